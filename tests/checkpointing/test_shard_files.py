"""A directory of checkpoints that a stranger made: nothing in it runs code, and nothing outside of it is touched."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.distributed import checkpoint as dcp

from greenlove_tracker.checkpointing import checkpoint_files
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore
from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.vocabulary.checkpoints import MANIFEST, CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.vocabulary.errors import UsageError


class Writes:
    """Unpickled, it makes a directory."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self._path,))


def trained(directory: Path) -> nn.Module:
    model = nn.Linear(2, 1)
    for _ in Checkpointer(directory, model=model, every_s=None).epochs(1, tracker=False):
        pass
    return model


def said_to_be_sharded(directory: Path, shards: Path) -> None:
    """Add a further checkpoint whose model lies in shards."""
    trained(directory)
    (found,) = CheckpointStore(directory).listing()
    state = torch.load(directory / found.name / "model.pt", weights_only=True) | {"is_sharded": True, "parts": {}}
    of_rank = torch.load(directory / found.name / "rank-0.pt", weights_only=True)
    store = CheckpointStore(directory)
    with closing(store.draft("step-0000000009")) as draft:
        for path in shards.iterdir():
            (draft.directory / path.name).write_bytes(path.read_bytes())
        files = [draft.add(draft.directory / path.name) for path in shards.iterdir()]
        files.append(draft.write("model.pt", lambda file: torch.save(state, file)))
        files.append(draft.write("rank-0.pt", lambda file: torch.save(of_rank, file)))
        position = TrainingPosition(1, 0, 9)
        draft.commit(Manifest(CheckpointKind.REGULAR, position, found.manifest.saved_at, files=tuple(files)))


def shards_of(model: nn.Module, place: Path, *, groups: Any = ()) -> Path:
    state = {"models": {f"model.{name}": value for name, value in model.state_dict().items()}}
    state["optimizers"] = {"optimizer": {"state": {}, "param_groups": groups}}
    index = dcp.save(state, storage_writer=dcp.FileSystemWriter(place), no_dist=True)
    torch.save(index, place / "shards.pt")
    return place


@pytest.mark.filterwarnings("ignore")
def test_shards_are_read_in_one_process(tmp_path: Path) -> None:
    kept = nn.Linear(2, 1)
    said_to_be_sharded(tmp_path / "c", shards_of(kept, tmp_path / "shards"))
    model = nn.Linear(2, 1)
    Checkpointer(tmp_path / "c", model=model, every_s=None)
    assert torch.equal(model.weight, kept.weight)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["metadata", "value", "path"])
def test_shards_of_a_stranger_run_nothing_and_lead_nowhere(tmp_path: Path, place: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    evil = Writes(tmp_path / "was run")
    groups = [{"lr": evil if place == "value" else 0.1, "params": ["model.weight", "model.bias"]}]
    shards = shards_of(model, tmp_path / "shards", groups=groups)
    if place == "metadata":
        torch.save(evil, shards / "shards.pt")
        (shards / ".metadata").write_bytes(pickle.dumps(evil))
    elif place == "path":
        index = torch.load(shards / "shards.pt", weights_only=False)
        for info in index.storage_data.values():
            info.relative_path = f"../{info.relative_path}"
        torch.save(index, shards / "shards.pt")
    said_to_be_sharded(tmp_path / "c", shards)
    with pytest.raises(UsageError, match="of a checkpoint"):
        Checkpointer(tmp_path / "c", model=model, optimizer=optimizer, every_s=None)
    assert not (tmp_path / "was run").exists()


def written_anew(checkpoint: Path, **changed: Any) -> None:
    """Change what a manifest says, with a checksum that holds."""
    content = json.loads((checkpoint / MANIFEST).read_text())["checkpoint"] | changed
    sha256 = checkpoint_files._content_sha256(content)
    (checkpoint / MANIFEST).write_text(json.dumps({"format": 1, "sha256": sha256, "checkpoint": content}))


@pytest.mark.parametrize(
    "changed",
    [
        {"files": [{"name": "../../x", "size_bytes": 1, "sha256": "00"}]},
        {"files": [{"name": "/etc/passwd", "size_bytes": 1, "sha256": "00"}]},
        {"files": [{"name": "..\\x", "size_bytes": 1, "sha256": "00"}]},
        {"files": [{"name": "a\x00b", "size_bytes": 1, "sha256": "00"}]},
        {"files": [{"name": 3, "size_bytes": 1, "sha256": "00"}]},
        {"position": {"steps": "many"}},
        {"position": [3]},
        {"saved_at": 3},
        {"holds": 3},
    ],
)
def test_a_manifest_with_paths_or_other_types_is_damaged(tmp_path: Path, changed: dict[str, Any]) -> None:
    trained(tmp_path / "c")
    (found,) = CheckpointStore(tmp_path / "c").listing()
    written_anew(tmp_path / "c" / found.name, **changed)
    (tmp_path / "c" / "step-0000000007").mkdir()
    assert {one.name: bool(one.damage) for one in CheckpointStore(tmp_path / "c").listing()} == {
        found.name: True,
        "step-0000000007": True,
    }
    assert Checkpointer(tmp_path / "c", model=nn.Linear(2, 1), every_s=None).position == TrainingPosition()


def test_a_manifest_that_is_nested_deep_and_a_pipe_are_damaged(tmp_path: Path) -> None:
    trained(tmp_path / "c")
    (found,) = CheckpointStore(tmp_path / "c").listing()
    path = tmp_path / "c" / found.name
    (path / "model.pt").unlink()
    os.mkfifo(path / "model.pt")
    content = dataclasses.asdict(found.manifest)
    written_anew(path, files=[{**file, "size_bytes": 0} for file in content["files"] if file["name"] == "model.pt"])
    (deep := tmp_path / "c" / "step-0000000008").mkdir()
    (deep / MANIFEST).write_text("[" * 100_000)
    problems = {one.name: one.problem() for one in CheckpointStore(tmp_path / "c").listing()}
    assert "no plain file" in problems[found.name]
    assert "recursion" in problems["step-0000000008"]
