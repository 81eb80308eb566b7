"""Finds the newest whole checkpoint of a training, reads it, and puts its state back."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, CheckpointStore
from greenlove_tracker.checkpointing.checkpoint_writer import MODEL_FILE, rank_file, versions
from greenlove_tracker.checkpointing.distributed import RankAgreement
from greenlove_tracker.checkpointing.sharded_states import has_shards, load_sharded, put_back_rank_buffers
from greenlove_tracker.checkpointing.training_state import TrainingState, unpacked
from greenlove_tracker.checkpoints import NotIdentical
from greenlove_tracker.errors import UsageError
from greenlove_tracker.tracker.state import WarnOnce


@dataclass
class Resumed:
    """A checkpoint that a training goes on from.

    Attributes:
        checkpoint: that was read.
        state: content of ``model.pt``.
        of_rank: content of the file of this rank; of the first rank's, where this one has none.
        not_identical: why going on from it is not bit-identical; empty where it is.
        is_of_this_rank: random states and the position in the data are those of this rank.
        passed_over: newer ones that are damaged, in sentences; on the first rank.
    """

    checkpoint: Checkpoint
    state: dict[str, Any]
    of_rank: dict[str, Any]
    not_identical: tuple[str, ...]
    is_of_this_rank: bool
    passed_over: tuple[str, ...] = ()


def newest_checkpoint(
    store: CheckpointStore, ranks: RankAgreement, *, trust_pickles: bool, warn_once: WarnOnce
) -> Resumed | None:
    """Read the newest whole checkpoint; damaged ones are said and passed over. None where there is none.

    Raises:
        UsageError: where it holds pickles that are not trusted.
        OSError: where the directory cannot be read.
    """
    found, name = None, ""
    damaged: tuple[str, ...] = ()
    if ranks.rank == 0:
        found, damaged = store.newest_whole()
        for sentence in damaged:
            warn_once.warn(sentence, f"{sentence} The newest whole checkpoint before it is used")
        name = "" if found is None else found.name
    name = ranks.gathered(name)[0]
    if not name:
        return None
    if found is None:
        found = next((checkpoint for checkpoint in store.checkpoints() if checkpoint.name == name), None)
    if found is None:
        raise OSError(f"rank {ranks.rank} does not see the checkpoint {name}")
    manifest = found.manifest
    reasons: list[str] = list(manifest.not_identical)
    is_of_this_rank = manifest.world_size == ranks.world_size
    if not is_of_this_rank:
        reasons.append(
            NotIdentical.OTHER_RANKS.with_detail(f"{manifest.world_size} wrote it, and {ranks.world_size} go on")
        )
    here = versions()
    if (wrote := manifest.versions.get("torch")) != here["torch"]:
        reasons.append(NotIdentical.OTHER_VERSION.with_detail(f"{wrote} wrote it, and {here['torch']} goes on"))
    rank = ranks.rank if ranks.rank < manifest.world_size else 0
    return Resumed(
        found,
        _loaded(found, MODEL_FILE, trust_pickles=trust_pickles),
        _loaded(found, rank_file(rank), trust_pickles=trust_pickles),
        tuple(dict.fromkeys(reasons)),
        is_of_this_rank,
        damaged,
    )


def put_back(
    resumed: Resumed,
    state: TrainingState,
    models: Mapping[str, torch.nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    values: dict[str, Any],
    ranks: RankAgreement,
    *,
    trust_pickles: bool,
    with_shards: bool = True,
) -> None:
    """Put the state of the training back, in place.

    Raises:
        UsageError: where it is of another training.
        OSError: where it cannot be read.
    """
    if has_shards(resumed.checkpoint):
        if with_shards:
            load_sharded(resumed.checkpoint, models, optimizers, ranks, trust_pickles=trust_pickles)
    elif state.is_sharded:
        raise UsageError(
            f"the checkpoint {resumed.checkpoint.name} is of models that were not sharded: load it without FSDP, or "
            "begin anew in another directory"
        )
    state.load(resumed.state)
    state.put_back_gradients(resumed.of_rank["gradients"])
    if resumed.is_of_this_rank:
        put_back_rank_buffers(models, resumed.of_rank["buffers"])
    values.clear()
    values.update(unpacked(resumed.of_rank["values"]))


def _loaded(checkpoint: Checkpoint, name: str, *, trust_pickles: bool) -> dict[str, Any]:
    with checkpoint.open(name) as file:
        try:
            loaded: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=not trust_pickles)
        except pickle.UnpicklingError as error:
            raise UsageError(
                f"{name} of the checkpoint {checkpoint.name} holds more than plain values. Reading that can run any "
                "code: pass trust_pickles=True if the checkpoint is your own"
            ) from error
    return loaded
