from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, checkpoint_name
from greenlove_tracker.checkpoints import MANIFEST, CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.cli import cli

pytestmark = pytest.mark.usefixtures("no_settings")


def call(*arguments):
    return CliRunner().invoke(cli, ["checkpoints", *map(str, arguments)])


def save(directory, steps, kind=CheckpointKind.REGULAR, not_identical=()):
    store, position = CheckpointStore(directory), TrainingPosition(2, steps, 1000 + steps)
    with store.draft(checkpoint_name(position, kind)) as draft:
        files = (draft.write("model.pt", lambda file: file.write(bytes(2048))),)
        told = {"files": files, "epochs": 30, "not_identical": not_identical, "run_id": "abc"}
        return draft.commit(Manifest(kind, position, "2026-11-22T21:15:03.123456+00:00", **told)).path


@pytest.fixture
def directory(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2, CheckpointKind.EMERGENCY, ("the workers of the loader are persistent",))
    path = save(tmp_path, 3)
    (path / "model.pt").write_bytes(bytes(100))
    (save(tmp_path, 4) / MANIFEST).unlink()
    return tmp_path


def test_the_screen_says_what_is_whole_and_what_a_training_goes_on_from(directory):
    result = call(directory)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and max(map(len, lines)) <= 100
    rows = [line.split() for line in lines if line.startswith("step-")]
    assert [row[0] for row in rows] == [
        *("step-0000001004", "step-0000001003", "step-0000001002-emergency", "step-0000001001")
    ]
    assert " ".join(rows[3]) == "step-0000001001 2 of 30 1 2.00 KiB 2026-11-22 21:15:03 bit-identical"
    assert rows[0][-1] == rows[1][-1] == "damaged" and rows[2][-3:] == ["not", "identical", "*"]
    text = " ".join(result.stdout.split())
    assert "! step-0000001003 is damaged: model.pt holds 100 bytes instead of 2,048." in text
    assert "! step-0000001004 is damaged: it has no manifest.json, so it was never finished." in text
    assert "* Not bit-identical: the workers of the loader are persistent (1 checkpoint: step-0000001002-emerg" in text
    assert lines[-1] == "2 of 4 are whole. A training would go on from step-0000001002-emergency."


def test_json_holds_the_manifests(directory):
    found = json.loads(call(directory, "--json").stdout)
    assert found["newest_whole"] == "step-0000001002-emergency"
    assert [one["is_whole"] for one in found["checkpoints"]] == [False, False, True, True]
    torn, truncated, _, first = found["checkpoints"]
    assert torn["manifest"] is None and torn["size_bytes"] is None and truncated["problem"].startswith("model.pt holds")
    assert first["manifest"]["position"] == {"epoch": 2, "batches": 1, "steps": 1001} and first["size_bytes"] == 2048
    assert first["manifest"]["files"][0]["name"] == "model.pt" and first["is_bit_identical"] is True


def test_where_none_is_whole_the_exit_code_is_1(directory):
    for path in directory.glob("step-*/model.pt"):
        path.unlink()
    result = call(directory)
    assert result.exit_code == 1 and result.stdout.endswith("No checkpoint is whole: a training would begin anew.\n")
    assert json.loads(call(directory, "--json").stdout)["newest_whole"] is None


def test_one_checkpoint_is_not_taken_for_a_directory_of_them(tmp_path):
    path = save(tmp_path, 1)
    assert call(tmp_path).stdout.splitlines()[-1].startswith("1 of 1 is whole.")
    result = call(path)
    assert result.exit_code == 1 and "is a single checkpoint: give the directory that it lies in" in result.stderr


def test_a_directory_without_any_is_said(tmp_path):
    empty, nowhere = call(tmp_path), call(tmp_path / "nowhere")
    assert empty.exit_code == nowhere.exit_code == 1
    assert "holds no checkpoint" in empty.stderr and "there is no directory" in nowhere.stderr
    (tmp_path / "file").write_text("")
    assert "to a directory" in call(tmp_path / "file").stderr


def test_a_store_is_listed_too(tmp_path):
    address = f"memory://{tmp_path.name}-listing/run"
    save(address, 5)
    assert "go on from step-0000001005." in call(address).stdout


def test_no_torch_is_needed(directory):
    code = f"""
import sys
sys.modules["torch"] = None
from greenlove_tracker.cli import cli
cli(["checkpoints", {str(directory)!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "2 of 4 are whole" in done.stdout, done.stderr
