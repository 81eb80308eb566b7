"""What users import, and what that costs them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

import greenlove_tracker

HEAVY = ("torch", "codecarbon", "numpy", "pandas", "statsmodels", "rich", "reportlab")
SERVICES = ("mlflow", "wandb", "tensorboard", "prometheus_client")


def loaded_after(code: str) -> list[str]:
    probe = f"import sys\n{code}\nprint(*[m for m in {HEAVY + SERVICES!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import greenlove_tracker") == []
    assert loaded_after("from greenlove_tracker import EarlyStopping, Tracker, read_logs, aggregate") == []


def test_making_a_tracker_loads_nothing_heavy_in_the_training_thread(tmp_path):
    code = f"""
import threading
from greenlove_tracker import Tracker
threading.Thread.start = lambda self: None  # the background threads alone load CodeCarbon
Tracker(3, country='DE', verbose=0, log_dir={str(tmp_path)!r}).stop()
"""
    assert loaded_after(code) == []


def test_naming_exporters_loads_none_of_their_packages_in_the_training_thread(tmp_path):
    code = f"""
import threading
from greenlove_tracker import Tracker
from greenlove_tracker.tracker import session
session._END_S = 0.0
from greenlove_tracker.integrations.exporters import mlflow, prometheus, tensorboard, wandb
threading.Thread.start = lambda self: None
Tracker(3, country='DE', verbose=0, log_dir={str(tmp_path)!r}, export='mlflow,wandb,tensorboard,prometheus')
"""
    assert loaded_after(code) == []


def test_every_public_name_is_there():
    for name in greenlove_tracker.__all__:
        assert getattr(greenlove_tracker, name) is not None
        assert name in dir(greenlove_tracker)
    with pytest.raises(AttributeError, match="no attribute 'Tracer'"):
        _ = greenlove_tracker.Tracer


def public_objects() -> Iterator[tuple[str, object]]:
    """What `__all__` exports, and the public methods and properties of its classes."""
    for name in set(greenlove_tracker.__all__) - {"__version__"}:
        exported = getattr(greenlove_tracker, name)
        yield name, exported
        if inspect.isclass(exported):
            yield from ((f"{name}.{n}", o) for n, o in vars(exported).items() if not n.startswith("_") and is_api(o))


def is_api(member: object) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)


def test_all_that_is_exported_is_documented_with_its_arguments():
    lacking = []
    for name, thing in public_objects():
        text = inspect.getdoc(thing) or ""
        named = [p for p in inspect.signature(thing).parameters if p != "self"] if inspect.isfunction(thing) else []
        if "." in name and "Args:" not in text:  # a method's name and summary may say it all
            named = []
        lacking += [f"{name}({p})" for p in named if f"{p}:" not in text] if text else [name]
    assert lacking == []
