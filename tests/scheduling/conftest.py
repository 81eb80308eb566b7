import pytest

from greenlove_tracker.vocabulary.waits import WAIT_VARIABLE


@pytest.fixture(autouse=True)
def clean_env(monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "")  # what a wait hands over is of that test
