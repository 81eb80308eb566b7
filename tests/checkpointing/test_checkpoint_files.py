from __future__ import annotations

import errno
import json
import os
import random
from contextlib import closing

import pytest

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, checkpoint_name
from greenlove_tracker.vocabulary.checkpoints import (
    MANIFEST,
    CheckpointFile,
    CheckpointKind,
    Manifest,
    TrainingPosition,
)
from greenlove_tracker.vocabulary.errors import UsageError

REGULAR, BEST, FINAL, EMERGENCY = (
    *(CheckpointKind.REGULAR, CheckpointKind.BEST),
    *(CheckpointKind.FINAL, CheckpointKind.EMERGENCY),
)


def save(store, steps, kind=REGULAR, content=None, *, epoch=0, prune=False):
    """Write a checkpoint of two files as a training does, and return it."""
    position = TrainingPosition(epoch, steps, steps)
    with closing(store.draft(checkpoint_name(position, kind))) as draft:
        data = random.Random(steps).randbytes(5000) if content is None else content
        files = (draft.write("model.pt", lambda file: file.write(data)), draft.write("rank-0.pt", write_pieces))
        saved_at = f"2026-01-01T00:{steps // 60:02}:{steps % 60:02}+00:00"
        checkpoint = draft.commit(Manifest(kind, position, saved_at, files=files, holds=("model",)))
    if prune:
        store.prune()
    return checkpoint


def write_pieces(file):
    for _ in range(100):
        file.write(b"some piece")


def names(store):
    return [checkpoint.name for checkpoint in store.listing() if not checkpoint.damage]


@pytest.fixture(params=["disk", "store"])
def store(request, tmp_path):
    """A store on a disk, and one that fsspec knows."""
    if request.param == "disk":
        return CheckpointStore(tmp_path / "checkpoints")
    return CheckpointStore(f"memory://{tmp_path.name}-{os.urandom(4).hex()}/checkpoints")


def listed(directory):
    return sorted(path.name for path in directory.iterdir())


# -- What is written is read --


def test_a_checkpoint_comes_back_as_it_was_written(store):
    written = save(store, 7, EMERGENCY)
    (found,) = store.listing()
    assert found == written and found.name == "step-0000000007-emergency" and found.problem() == ""
    assert found.manifest.kind is EMERGENCY and found.manifest.holds == ("model",)
    assert (found.path / "rank-0.pt").read_bytes() == b"some piece" * 100
    assert (found.path / "model.pt").read_bytes() == random.Random(7).randbytes(5000)
    assert store.newest_whole() == (found, ()) and found.size_bytes == 6000


def test_the_furthest_comes_first_and_then_the_latest(store):
    for steps, kind in [(9, REGULAR), (10, BEST), (100, REGULAR), (100, EMERGENCY)]:
        save(store, steps, kind)
    save(store, 100, FINAL, epoch=1)
    order = ("100-final", "100-emergency", "100", "10-best", "9")
    assert names(store) == [f"step-{name:0>{10 + len(name) - len(name.split('-')[0])}}" for name in order]


def test_a_second_one_of_the_same_name_leaves_the_first_as_it_is(store):
    first, second = save(store, 5, content=b"first"), save(store, 5, content=b"second")
    assert (first.name, second.name) == ("step-0000000005", "step-0000000005-2")
    assert first.problem() == second.problem() == "" and store.newest_whole()[0] == second


def test_files_that_others_wrote_by_name_are_taken_over(store):
    position = TrainingPosition(0, 1, 1)
    with closing(store.draft(checkpoint_name(position, REGULAR))) as draft:
        (draft.directory / "__0_0.distcp").write_bytes(b"shard")
        found = draft.commit(Manifest(REGULAR, position, "", files=(draft.add(draft.directory / "__0_0.distcp"),)))
    assert found.manifest.files[0].name == "__0_0.distcp" and found.problem() == ""
    assert (found.path / "__0_0.distcp").read_bytes() == b"shard"


# -- Not whole is not there --


def test_without_a_commit_nothing_is_there(store):
    before = save(store, 1)
    with closing(store.draft("step-0000000002")) as draft:
        draft.write("model.pt", lambda file: file.write(b"x"))
        assert store.newest_whole()[0] == before
    store.prune()
    assert names(store) == [before.name] and not draft.directory.exists()


def test_a_file_of_another_rank_that_is_not_here_keeps_it_from_being_committed(store):
    with closing(store.draft("step-0000000002")) as draft:
        file = draft.write("model.pt", lambda file: file.write(b"x"))
        manifest = Manifest(REGULAR, TrainingPosition(0, 2, 2), "", files=(file, CheckpointFile("rank-1.pt", 3, "ab")))
        with pytest.raises(OSError, match=r"rank-1\.pt.*: do all ranks write to the same directory\?"):
            draft.commit(manifest)
    assert store.newest_whole()[0] is None


# -- Damage is seen --


def damage_missing(path):
    path.unlink()


def damage_truncated(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage_torn(path):
    """Zeros in place of a block that never reached the store."""
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    path.write_bytes(data)


def damage_bit(path):
    data = bytearray(path.read_bytes())
    at = random.Random(3).randrange(len(data) * 8)
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


DAMAGES = [damage_missing, damage_truncated, damage_torn, damage_bit]


@pytest.mark.parametrize("name", ["model.pt", "rank-0.pt", MANIFEST])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_seen_and_the_newest_whole_one_is_used(store, name, damage):
    save(store, 1), save(store, 2), save(store, 3)
    damage(store.path / "step-0000000003" / name)
    found, passed_over = store.newest_whole()
    assert found is not None and found.name == "step-0000000002"
    if damage is damage_missing and name == MANIFEST:  # as where a process has died
        assert passed_over == ()
    else:
        assert len(passed_over) == 1 and name in passed_over[0]


def test_another_format_is_refused_and_what_is_no_directory(store, tmp_path):
    path = save(store, 1).path / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    assert "is of another format" in store.listing()[0].damage
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="written to a directory"):
        CheckpointStore(tmp_path / "file")


# -- Which are kept --


def test_the_last_few_are_kept(store):
    for steps in range(1, 7):
        save(store, steps, prune=True)
    assert names(store) == [f"step-{steps:010}" for steps in (6, 5, 4)]


def test_the_newest_best_and_final_are_kept_beside_them(store):
    for steps in range(1, 4):
        save(store, steps, BEST, prune=True)
    save(store, 4, FINAL)
    for steps in range(5, 9):
        save(store, steps, prune=True)
    kept = ["step-0000000008", "step-0000000007", "step-0000000006", "step-0000000004-final", "step-0000000003-best"]
    assert names(store) == kept


def test_a_damaged_best_does_not_take_the_place_of_a_whole_one(store):
    save(store, 1, BEST), save(store, 2, BEST)
    damage_truncated(store.path / "step-0000000002-best" / "model.pt")
    for steps in range(3, 6):
        save(store, steps, prune=True)
    assert "step-0000000001-best" in names(store)


# -- Processes that die --


def test_what_dead_processes_left_is_cleared(store):
    (store.path / "step-0000000001").mkdir(parents=True)
    (store.path / "step-0000000001" / "rank-7.pt").write_bytes(b"of before")
    found = save(store, 3, prune=True)
    assert listed(store.path) == [found.name]


# -- A full disk --


def fail_with(code):
    def fails(*_args, **_named):
        raise OSError(code, os.strerror(code))

    return fails


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_disk_that_fails_at_any_call_keeps_the_last_whole_one(store, monkeypatch, call):
    before = save(store, 1)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(call, fail_with(errno.ENOSPC))
        save(store, 2)
    assert store.newest_whole() == (before, ()) and names(store) == [before.name]
    assert save(store, 2).problem() == ""
