from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.shutdown import guard


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let each test write into a directory of its own, without settings from outside; close what it leaves open."""
    for name in list(os.environ):
        if name.startswith("GREENLOVE_") or name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    torch = sys.modules.get("torch")
    n_threads = torch.get_num_threads() if torch else 1
    if torch:
        torch.set_num_threads(1)  # so small a model only waits for a second one
    yield
    if torch:
        torch.set_num_threads(n_threads)
    if guard.current is not None:
        guard.current.finish(RunStatus.SUPERSEDED)
