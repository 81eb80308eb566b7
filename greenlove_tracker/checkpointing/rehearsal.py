"""The rehearsal of a resume, within the processes that ``greenlove checkpoints rehearse`` starts.

The first one trains from the beginning. It saves in mid-epoch and at an epoch's end, goes on for some batches behind
each, and writes down what a checkpoint would hold then. The others each go on from one of these checkpoints, and write
down the same at the same places.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_flatten_with_path

from greenlove_tracker.exploration.random_state import plain_value, saved_generator
from greenlove_tracker.vocabulary.checkpoints import REHEARSAL_VARIABLE, RehearsalPoint, TrainingPosition

_MID_EPOCH = 2  # batches into the epoch
_VALUES = (bool, int, float, complex, str, list, tuple, dict, set, torch.Tensor, numpy.ndarray)
_LIBRARIES = re.compile(f"site-packages|dist-packages|{sysconfig.get_paths()['stdlib']}|{Path(__file__).parents[1]}")


class Rehearsal:
    """One process of a rehearsal: where it saves, and what it writes down.

    Args:
        directory: of the rehearsal; its ``plan.json`` says which process this is.

    Attributes:
        directory: of the rehearsal.
        role: ``straight``, or the point that the process goes on from.
        longest_epoch: batches after which an epoch ends, so that its end is rehearsed in time.
        seen: digests of batches, and values of metrics, by name.
    """

    def __init__(self, directory: Path) -> None:
        plan = json.loads((directory / "plan.json").read_text("utf-8"))
        self.directory = directory
        self.role: str = plan["role"]
        self._steps: int = plan["steps"]
        self.longest_epoch = self._steps + _MID_EPOCH
        self.seen: dict[str, dict[str, str]] = {"batches": {}, "metrics": {}}
        self._saved: dict[str, TrainingPosition] = {}  # by point, until all is written down
        self._passed = set[str]()  # points, the same on all ranks
        self._is_last_saved = self.role != "straight"

    @classmethod
    def of_environment(cls) -> Rehearsal | None:
        """Return the rehearsal that this process is a part of."""
        directory = os.environ.get(REHEARSAL_VARIABLE, "")
        return cls(Path(directory)) if directory else None

    def due(self, position: TrainingPosition, epochs: int | None) -> str:
        """Return the point to save at now, empty for none: in the second epoch and at its end, if there are more."""
        most = epochs or 3
        point = ""
        if position.batches >= _MID_EPOCH and position.epoch == min(most, 2) - 1:
            point = RehearsalPoint.MID_EPOCH
        elif position.batches == 0 and position.epoch == min(most - 1, 2):
            point = RehearsalPoint.EPOCH_END
        if self.role != "straight" or point in self._passed:
            return ""
        return point

    def saved_at(self, point: str, position: TrainingPosition, epochs: int | None) -> None:
        """Note where the training was saved, or went on from."""
        self._saved[point] = position
        self._passed.add(point)
        self._is_last_saved |= point == RehearsalPoint.EPOCH_END or epochs == 1

    def write(
        self, rank: int, position: TrainingPosition, held: Callable[[], Mapping[str, Any]], *, is_over: bool
    ) -> bool:
        """Write down what is held one step behind each point, and as many as were asked for or there are.

        Args:
            rank: of this process.
            position: of the training.
            held: returns what is written down.
            is_over: the training ends here.

        Returns:
            whether all is written down.
        """
        kind = "straight" if self.role == "straight" else "resumed"
        for point, saved in list(self._saved.items()):
            steps = position.steps - saved.steps
            is_last = is_over or steps >= self._steps or (steps == 0 and position.epoch > saved.epoch)
            if is_last or steps == 1:
                content = {name: fingerprints(part) for name, part in held().items()} | self.seen
                file = self.directory / f"{point}-{kind}-{steps:06}-{rank}.json"
                file.write_text(json.dumps(content | {"from": saved.steps, "steps": steps}), "utf-8")
            if is_last:
                del self._saved[point]
        return is_over or (self._is_last_saved and not self._saved)


def conditions(ranks: int, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions that a resume is identical under, as far as it was tried."""
    gpus = []
    if torch.cuda.is_initialized():
        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    capability = torch.backends.cpu.get_cpu_capability()
    here = {"ranks": str(ranks), "threads": str(torch.get_num_threads()), "CPU": capability, "GPUs": ", ".join(gpus)}
    return {**versions, **here}


def script_sha256() -> str:
    """Return a digest of the script, of its own modules that are loaded, and of its arguments."""
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())} | {sys.argv[0]}
    found = hashlib.sha256(repr(sys.argv[1:]).encode())
    for file in sorted(files):
        if not _LIBRARIES.search(file) and Path(file).is_file():
            found.update(Path(file).read_bytes())
    return found.hexdigest()


# -- What is written down --


def fingerprints(value: Any) -> dict[str, str]:
    """Return what is in a value by its path: numbers and texts as they are, of all else a digest."""
    return {".".join(map(_name_of, path)): _text_of(leaf) for path, leaf in tree_flatten_with_path(value)[0]}


def digest(value: Any) -> str:
    """Return a digest of all that is in a value."""
    return f"sha256 {hashlib.sha256(repr(fingerprints(value)).encode()).hexdigest()[:12]}"


def _name_of(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", key)))


def _text_of(leaf: Any) -> str:
    if isinstance(leaf, bool | int | float | None):
        return repr(leaf)
    if isinstance(leaf, torch.Tensor):
        local = leaf.to_local() if hasattr(leaf, "to_local") else leaf
        dense = local.detach().cpu().to_dense()
        if dense.numel() == 1:
            return repr(dense.item())
        content = dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(leaf, numpy.ndarray):
        content = leaf.tobytes()
    else:
        parts = sorted(map(repr, leaf)) if isinstance(leaf, set) else leaf
        content = re.sub(" at 0x[0-9a-f]+", "", repr(parts)).encode()
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def loop_variables() -> dict[str, str]:
    """Return digests of the plain variables of the functions that lead to this loop, and of their ``self``, by name."""
    found: dict[str, str] = {}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not _LIBRARIES.search(frame.f_code.co_filename):
            owner = frame.f_locals.get("self")
            variables = frame.f_locals | {
                f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()
            }
            for name, value in variables.items():
                generator = saved_generator(name, value)
                if generator is not None:
                    found.setdefault(name, digest(plain_value(generator.save())))
                elif isinstance(value, _VALUES) and not name.startswith("_"):
                    found.setdefault(name, digest(value))
        frame = frame.f_back
    return found
