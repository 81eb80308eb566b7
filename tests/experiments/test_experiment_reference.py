from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from greenlove_tracker.experiments.definition import SECTIONS, read_experiment


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    return importlib.import_module("write_experiment_reference")


def test_the_page_in_the_docs_is_the_one_that_the_keys_give(reference):
    said = "run docs/write_experiment_reference.py"
    assert reference.PAGE.read_text(encoding="utf-8") == reference.experiment_reference(), said


def test_its_example_can_be_read(reference, tmp_path, no_settings):
    (tmp_path / "digits_task.py").write_text("def task(): ...\n")
    (tmp_path / "digits.yaml").write_text(reference.EXAMPLE)
    assert len(read_experiment(tmp_path / "digits.yaml").runs) == 24


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_has_a_description_and_an_example_that_it_takes(section, tmp_path, no_settings):
    (tmp_path / "digits_task.py").write_text("def task(): ...\n")
    needed = {"name": "name: digits", "task": "task: digits_task.py:task"}
    for key, field in SECTIONS[section].model_fields.items():
        assert field.description and field.examples
        line = f"{key}: {field.examples[0]}"
        if section == "arms":
            line = f"one: {{{line}}}"
        if section:
            line = f"{section}: {{{line}}}"
        text = "\n".join(({k: v for k, v in needed.items() if k != key} | {"": line}).values())
        (tmp_path / "one.yaml").write_text(text)
        assert read_experiment(tmp_path / "one.yaml").runs, text
