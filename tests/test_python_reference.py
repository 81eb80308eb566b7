"""The pages of the public names and the settings are what their docstrings say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker.settings.config import setting_names


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    return importlib.import_module("write_python_reference")


def test_the_pages_in_the_docs_are_what_the_docstrings_give(reference):
    for page, text in (
        (reference.PYTHON, reference.python_reference),
        (reference.SETTINGS, reference.settings_reference),
    ):
        assert page.read_text(encoding="utf-8") == text(), "run docs/write_python_reference.py"


def test_every_public_name_stands_in_one_group(reference):
    named = [name for names in reference.GROUPS.values() for name in names]
    assert sorted(named) == sorted(set(greenlove_tracker.__all__) - {"__version__"})


def test_every_argument_of_a_public_function_is_explained(reference):
    page = reference.PYTHON.read_text(encoding="utf-8")
    for name in ("extrapolate", "project", "aggregate", "write_pdf", "speedup"):
        section = page.split(f"### {name}\n")[1].split("\n### ")[0]
        assert "| args | |" in section, name


def test_every_setting_has_its_variable(reference):
    page = reference.SETTINGS.read_text(encoding="utf-8")
    assert all(f"`GREENLOVE_{name.upper()}`" in page for name in setting_names())
