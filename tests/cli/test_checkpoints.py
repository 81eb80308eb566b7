from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, checkpoint_name
from greenlove_tracker.cli import cli
from greenlove_tracker.vocabulary.checkpoints import MANIFEST, CheckpointKind, Manifest, TrainingPosition

pytestmark = pytest.mark.usefixtures("no_settings")


def call(*arguments):
    return CliRunner().invoke(cli, ["checkpoints", *map(str, arguments)])


def save(directory, steps, kind=CheckpointKind.REGULAR, **conditions):
    store, position = CheckpointStore(directory), TrainingPosition(2, steps, 1000 + steps)
    with closing(store.draft(checkpoint_name(position, kind))) as draft:
        files = (draft.write("model.pt", lambda file: file.write(bytes(2048))),)
        told = {"files": files, "epochs": 30, "conditions": conditions, "run_id": "abc"}
        return draft.commit(Manifest(kind, position, "2026-11-22T21:15:03.123456+00:00", **told)).path


@pytest.fixture
def directory(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2, CheckpointKind.EMERGENCY)
    path = save(tmp_path, 3)
    (path / "model.pt").write_bytes(bytes(100))
    (save(tmp_path, 4) / MANIFEST).unlink()
    return tmp_path


def test_one_checkpoint_is_not_taken_for_a_directory_of_them(tmp_path):
    path = save(tmp_path, 1)
    assert call(tmp_path).stdout.splitlines()[0].startswith("1 of 1 checkpoint is whole.")
    result = call(path)
    assert result.exit_code == 1 and "holds no checkpoint: give the directory that they lie in" in result.stderr


def test_a_directory_without_any_is_said(tmp_path):
    empty, nowhere = call(tmp_path), call(tmp_path / "nowhere")
    assert empty.exit_code == nowhere.exit_code == 1
    assert "holds no checkpoint" in empty.stderr and "there is no directory" in nowhere.stderr
    (tmp_path / "file").write_text("")
    assert "to a directory" in call(tmp_path / "file").stderr


def test_no_torch_is_needed(directory):
    code = f"""
import sys
sys.modules["torch"] = None
from greenlove_tracker.cli import cli
cli(["checkpoints", {str(directory)!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "2 of 4 checkpoints are whole" in done.stdout, done.stderr
