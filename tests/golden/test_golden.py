"""Each case of ``cases.py`` against the golden file that it wrote before: numbers and codes; of screens the text.

``make golden`` writes the files anew; what changed is read as a diff. A case runs in a copy of ``given/``, in UTC and
without the machine's settings. Numbers are kept with 9 digits and compared to a millionth: processors differ beyond.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from golden.cases import CASES, NOW, SCREENS, printed

HERE = Path(__file__).parent
RECORDED = HERE.parent / "recorded"
LONG_AGO_S = 1_577_836_800.0  # no file that is given belongs to a run that goes on
OF_THE_MACHINE = {"command", "greenlove_version", "host", "os", "pid", "python", "torch_version", "version", "versions"}
MOST_WORDS = 4  # what is longer is a sentence
WIDTH = 120
SENTENCE = object()
TODAYS = re.compile(
    r"\d+(?= days old)|(?<=greenlove-tracker )\d+\.\d+\.\d+|\d\d:\d\d:\d\d$|(?<=written for )\d.*$", re.M
)


@pytest.fixture(scope="session")
def given(tmp_path_factory) -> Path:
    """Unpack what the cases read: ``given/``, logs of other tools, and recorded trainings of two families."""
    directory = tmp_path_factory.mktemp("golden") / "given"
    shutil.copytree(HERE / "given", directory)
    shutil.copytree(RECORDED / "foreign", directory / "foreign")
    with zipfile.ZipFile(RECORDED / "cpu-trainings.zip") as archive:
        for name in archive.namelist():
            if name.startswith(("20261121T1013", "20261121T1014")):  # three of each
                archive.extract(name, directory / "recorded")
    return directory


@pytest.fixture
def place(given, tmp_path, no_settings, monkeypatch) -> Path:
    """Enter a directory of this case's own."""
    directory = tmp_path / "case"
    shutil.copytree(given, directory)
    for path in directory.rglob("*"):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    monkeypatch.chdir(directory)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("greenlove_tracker.cli.plan._utc_now", lambda: NOW)
    time.tzset()
    yield directory
    monkeypatch.undo()
    time.tzset()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")
@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, place: Path, pytestconfig) -> None:
    found = plain(CASES[name](place))
    path = HERE / "expected" / f"{name}.json"
    is_written = pytestconfig.getoption("--golden-update")
    expected = None if is_written and not is_json(path) else json.loads(path.read_text("utf-8"))
    differences = different(expected, found)
    if differences and is_written:
        path.write_text(written(found) + "\n", "utf-8")
    elif differences:
        pytest.fail(f"{path.name}: {'; '.join(differences[:5])} ({len(differences)} in all)", pytrace=False)


@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, place: Path, pytestconfig) -> None:
    screen = SCREENS[name]
    found = TODAYS.sub("N", printed(screen, place)[1] if isinstance(screen, str) else screen(place))
    path = HERE / "expected" / f"{name}.txt"
    if pytestconfig.getoption("--golden-update"):
        path.write_text(found, "utf-8")
    else:
        assert found == path.read_text("utf-8")


def test_every_golden_file_has_its_case(pytestconfig) -> None:
    kept = {path.name for path in (HERE / "expected").iterdir()}
    known = {f"{name}.json" for name in CASES} | {f"{name}.txt" for name in SCREENS}
    if pytestconfig.getoption("--golden-update"):
        for name in kept - known:
            (HERE / "expected" / name).unlink()
    else:
        assert kept == known


def is_json(path: Path) -> bool:
    """Return False for a file that is not there, or that a merge left in two versions."""
    try:
        json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True


def plain(value: Any) -> Any:
    """Return it as JSON has it, without sentences and what belongs to the machine."""
    if isinstance(value, pd.DataFrame):
        return plain(value.to_dict("records"))
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        kept = {str(key): plain(item) for key, item in value.items() if not is_of_the_machine(str(key))}
        return {key: item for key, item in sorted(kept.items()) if item is not SENTENCE}
    if isinstance(value, list | tuple | set | frozenset):
        items = [item for item in map(plain, value) if item is not SENTENCE]
        return sorted(items) if isinstance(value, set | frozenset) else items
    return plain_scalar(value)


def plain_scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return SENTENCE if len(value.split()) > MOST_WORDS or value.endswith(".") else value
    if value is None or isinstance(value, bool | int):
        return value
    number = float(value)
    return float(f"{number:.9g}") if math.isfinite(number) else str(number)


def is_of_the_machine(name: str) -> bool:
    return name in OF_THE_MACHINE or name.endswith(("sha256", ".bytes"))


def different(expected: Any, found: Any, where: str = "") -> list[str]:
    """Return where two of them differ, and how."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = sorted(expected.keys() | found.keys())
        return [d for k in keys for d in different(expected.get(k, "-"), found.get(k, "-"), f"{where}.{k}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [d for n, (old, new) in pairs for d in different(old, new, f"{where}[{n}]")]
    if isinstance(expected, float) and isinstance(found, int | float):
        return [] if math.isclose(expected, found, rel_tol=1e-6, abs_tol=1e-12) else [f"{where} {expected} → {found}"]
    return [] if expected == found else [f"{where} {str(expected)[:40]} → {str(found)[:40]}"]


def written(value: Any, indent: str = "") -> str:
    """Write JSON with what fits on a line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {written(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + written(item, inner) for item in value) + f"\n{indent}]"
