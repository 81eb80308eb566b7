"""The rehearsal of a resume, within the processes that ``greenlove checkpoints rehearse`` starts.

The first one trains from the beginning. It saves in mid-epoch and at an epoch's end, goes on for some batches behind
each, and writes down what a checkpoint would hold then. The others each go on from one of these checkpoints, and write
down the same at the same places.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_flatten_with_path

from greenlove_tracker.checkpointing.distributed import RankAgreement
from greenlove_tracker.exploration.random_state import Values, plain_value, saved_generator
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.tracker.loop_length import NOT_OF_SCRIPT
from greenlove_tracker.vocabulary.checkpoints import RehearsalPoint, TrainingPosition
from greenlove_tracker.vocabulary.version import __version__

_MID_EPOCH = 2  # batches into the epoch
_SHORT = 40  # signs of a value that is written as it is
_VALUES = (int, float, str, list, tuple, dict, set, torch.Tensor, numpy.ndarray)


class Rehearsal:
    """One process of a rehearsal: where it saves, and what it writes down.

    Args:
        place: of the checkpoints that the process goes on from, named by their point; or ``straight``. What is written
            down lies beside it.
        target: the directory of the training's own checkpoints, where the result belongs.
        position: that the process goes on from.

    Attributes:
        longest_epoch: batches after which an epoch ends, so that its end is rehearsed in time.
    """

    def __init__(self, place: Path, target: LogPath, position: TrainingPosition) -> None:
        self._directory = place.parent
        (self._directory / "directory.txt").write_text(str(target), "utf-8")
        self._steps = int((self._directory / "steps.txt").read_text("utf-8"))
        self.longest_epoch = self._steps + _MID_EPOCH
        self._role = place.name
        self._to_save = set[str](RehearsalPoint if self._role == "straight" else ())
        self._saved = {} if self._to_save else {self._role: position}  # by point, until all is written down

    def saving_point(
        self,
        ranks: RankAgreement,
        position: TrainingPosition,
        epochs: int | None,
        save: Callable[[Path], None],
        held: Callable[[], Values],
        *,
        is_over: bool,
    ) -> None:
        """Save at each point; write down what is held one step behind it, and as many as were asked for or there are.

        The process ends once all is written down.

        Args:
            ranks: of the training.
            position: of the training.
            epochs: of the whole training; None where that is not known.
            save: saves it in a directory.
            held: returns what is written down.
            is_over: the training ends here.
        """
        point = _point_at(position, epochs or 3)
        if point in self._to_save:
            save(self._directory / point)
            self._to_save.remove(point)
            self._saved[point] = position
        for point, saved in list(self._saved.items()):
            steps = position.steps - saved.steps
            is_last = is_over or steps >= self._steps or (steps == 0 and position.epoch > saved.epoch)
            if is_last or steps == 1:
                content = {name: fingerprints(part) for name, part in held().items()}
                file = self._directory / f"{point}-{self._role}-{steps:06}-{ranks.rank}.json"
                file.write_text(json.dumps(content | {"from": saved.steps, "steps": steps}), "utf-8")
            if is_last:
                del self._saved[point]
        if is_over or not (self._to_save or self._saved):
            ranks.gathered(None)  # or a launcher would end the ranks that still write
            os._exit(0)


def _point_at(position: TrainingPosition, epochs: int) -> str:
    """Return the point to save at here, empty for none: in the second epoch and at its end, if there are more."""
    if position.batches >= _MID_EPOCH and position.epoch == min(epochs, 2) - 1:
        return RehearsalPoint.MID_EPOCH
    if position.batches == 0 and position.epoch == min(epochs - 1, 2):
        return RehearsalPoint.EPOCH_END
    return ""


def conditions(ranks: int) -> dict[str, str]:
    """Return the conditions that a resume is identical under, as far as it was tried."""
    n_gpus = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    return {
        "greenlove_tracker": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "script and arguments": _script_sha256(),
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "CPU": torch.backends.cpu.get_cpu_capability(),
        "GPUs": ", ".join(map(torch.cuda.get_device_name, range(n_gpus))),
    }


def _script_sha256() -> str:
    """Return a digest of the script, of its own modules that are loaded by now, and of its arguments."""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())} | {sys.argv[0]}
    found = hashlib.sha256(repr(sys.argv[1:]).encode())
    for file in sorted(files):
        if not file.startswith(NOT_OF_SCRIPT) and Path(file).is_file():
            found.update(Path(file).read_bytes())
    return found.hexdigest()[:12]


# -- What is written down --


def fingerprints(value: Any) -> dict[str, str]:
    """Return what is in a value by its path: what is short as it is, of all else a digest."""
    leaves, _ = tree_flatten_with_path(value)
    return {".".join(str(key).strip("[]'") for key in path): _text_of(leaf) for path, leaf in leaves}


def digest(value: Any) -> str:
    """Return a digest of all that is in a value."""
    return f"sha256 {hashlib.sha256(repr(fingerprints(value)).encode()).hexdigest()[:12]}"


def _text_of(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        local = leaf.to_local() if hasattr(leaf, "to_local") else leaf
        dense = local.detach().cpu().to_dense()
        if dense.numel() == 1:
            return repr(dense.item())
        content = dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(leaf, numpy.ndarray):
        content = leaf.tobytes()
    else:
        text = re.sub(" at 0x[0-9a-f]+", "", repr(sorted(map(repr, leaf)) if isinstance(leaf, set) else leaf))
        if len(text) < _SHORT:
            return text
        content = text.encode()
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def loop_variables() -> dict[str, str]:
    """Return digests of the plain variables of the functions that lead to this loop, and of their ``self``, by name."""
    found = dict[str, str]()
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if frame.f_code.co_filename.startswith(NOT_OF_SCRIPT):
            continue
        owner = getattr(frame.f_locals.get("self"), "__dict__", {})
        for name, value in [*frame.f_locals.items(), *((f"self.{name}", value) for name, value in owner.items())]:
            generator = saved_generator(name, value)
            if generator is not None:
                value = plain_value(generator.save())
            if isinstance(value, _VALUES) and not name.startswith("_"):
                found.setdefault(name, digest(value))
    return found
