"""The rehearsal of a resume, within the processes that ``greenlove checkpoints rehearse`` starts.

The first one trains from the beginning. It saves in mid-epoch and at an epoch's end, goes on for some batches behind
each, and writes down what a checkpoint would hold then. The others each go on from one of these checkpoints, and write
down the same at the same place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy
import torch

from greenlove_tracker.exploration.random_state import plain_value, saved_generator
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.vocabulary.checkpoints import REHEARSAL_VARIABLE, RehearsalPoint, TrainingPosition

_MID_EPOCH = 3  # batches into the epoch
_LONGEST_TEXT = 40  # of what is written down as it is; of longer ones a digest
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, deque, torch.Tensor, numpy.ndarray)
_LIBRARIES = (sysconfig.get_paths()["stdlib"], str(Path(__file__).parents[1]))


class Rehearsal:
    """One process of a rehearsal: what it saves, and what it writes down.

    Args:
        directory: of the rehearsal; its ``plan.json`` says which process this is.

    Attributes:
        directory: of the rehearsal.
        role: ``straight``, or the point that the process goes on from.
        longest_epoch: batches after which an epoch ends, so that its end is rehearsed in time.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        plan = json.loads((directory / "plan.json").read_text("utf-8"))
        self.role: str = plan["role"]
        self._steps: int = plan["steps"]
        self.longest_epoch = self._steps + _MID_EPOCH
        self._saved: dict[str, TrainingPosition] = {}
        self._written = set[tuple[str, str]]()
        self._longest_seen = 0
        self._batches: dict[str, str] = {}
        self._metrics: dict[str, str] = {}

    @classmethod
    def of_environment(cls) -> Rehearsal | None:
        """Return the rehearsal that this process is a part of."""
        directory = os.environ.get(REHEARSAL_VARIABLE, "")
        return cls(Path(directory)) if directory else None

    def begin(self, directory: LogPath) -> None:
        """Tell that a Checkpointer was made, and for which directory."""
        (self.directory / "directory.txt").write_text(str(directory), "utf-8")

    def saved_at(self, point: str, position: TrainingPosition) -> None:
        """Note where the training was saved, or went on from."""
        self._saved[point] = position

    def due(self, position: TrainingPosition, epochs: int | None) -> str:
        """Return the point to save at now; empty for none.

        Args:
            position: of the training.
            epochs: of the whole training; None: not known.
        """
        self._longest_seen = max(self._longest_seen, position.batches)
        if self.role != "straight":
            return ""
        most = epochs or 2 + 1
        n_batches = _MID_EPOCH
        if position.epoch and self._longest_seen <= _MID_EPOCH:
            n_batches = 1
        if position.batches >= n_batches and position.epoch >= min(most, 2) - 1:
            point = RehearsalPoint.MID_EPOCH
        elif position.batches == 0 and position.epoch == min(most - 1, 2):
            point = RehearsalPoint.EPOCH_END
        else:
            return ""
        return "" if point in self._saved else point

    def reached(self, position: TrainingPosition, *, is_over: bool) -> list[tuple[str, str]]:
        """Return what is to be written down now: points, and whether it is the first step behind each or the last."""
        found = []
        for point, saved in self._saved.items():
            steps = position.steps - saved.steps
            has_no_batches = steps == 0 and position.epoch > saved.epoch
            is_last = is_over or steps >= self._steps or has_no_batches
            found += [(point, when) for when, is_now in (("first", steps > 0), ("last", is_last)) if is_now]
        return [one for one in found if one not in self._written]

    def is_done(self, epochs: int | None) -> bool:
        """Return True where all is written down."""
        n_done = sum(when == "last" for _, when in self._written)
        return n_done == (len(RehearsalPoint) if self.role == "straight" and epochs != 1 else 1)

    def note_batch(self, steps: int, batch: Any) -> None:
        """Write down what a batch holds."""
        self._batches[str(steps)] = digest(batch)

    def note_metric(self, epoch: int, name: str, value: Any) -> None:
        """Write down a value of a metric."""
        self._metrics[f"the metric {name} of epoch {epoch + 1}"] = text_of(value)

    def write(self, at: tuple[str, str], rank: int, position: TrainingPosition, parts: Mapping[str, Any]) -> None:
        """Write down what a checkpoint would hold now.

        Args:
            at: what ``reached`` has returned.
            rank: of this process.
            position: of the training.
            parts: what is held, what trains along and was not passed, and the variables of the loop, each by name.
        """
        point, when = at
        begun = self._saved[point].steps
        kind = "straight" if self.role == "straight" else "resumed"
        told = {name: dict(_texts(part)) for name, part in parts.items()}
        told |= {"metrics": self._metrics, "batches": self._batches}
        content = {**told, "from": begun, "steps": position.steps - begun}
        (self.directory / f"{point}-{kind}-{when}-{rank}.json").write_text(json.dumps(content), "utf-8")
        self._written.add(at)


def conditions(ranks: int, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions that a resume is identical under, as far as it was tried."""
    gpus = []
    if torch.cuda.is_initialized():
        gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        **versions,
        "ranks": str(ranks),
        "threads": str(torch.get_num_threads()),
        "CPU": torch.backends.cpu.get_cpu_capability(),
        "GPUs": ", ".join(gpus) or "none",
    }


def script_sha256() -> str:
    """Return a digest of the script, of its own modules that are loaded, and of its arguments."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())} | {sys.argv[0]}
    found = hashlib.sha256(repr(sys.argv[1:]).encode())
    for file in sorted(file for file in files if file and not _is_of_library(file) and Path(file).is_file()):
        found.update(Path(file).read_bytes())
    return found.hexdigest()


def _is_of_library(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(_LIBRARIES)


# -- What is written down --


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is in a value by name: of tensors and arrays digests, of short values they themselves."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _texts(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(part, torch.Tensor | dict | list) for part in value):
        for number, part in enumerate(value):
            yield from _texts(part, f"{name}.{number}")
    else:
        yield name, text_of(value)


def text_of(value: Any) -> str:
    """Return a value as a text that is another one for each other value."""
    if hasattr(value, "to_local"):
        value = value.to_local()
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            parts = (value.coalesce().indices(), value.coalesce().values()) if value.is_sparse else (value.to_dense(),)
            return f"sparse {digest(parts)}"
        if value.numel() == 1 and not value.is_complex():
            return repr(value.item())
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()[:12]}"
    if isinstance(value, numpy.ndarray) and value.dtype != object:
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()[:12]}"
    text = re.sub(" at 0x[0-9a-f]+", "", repr(sorted(value, key=repr) if isinstance(value, set) else value))
    if len(text) > _LONGEST_TEXT:
        return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def digest(value: Any) -> str:
    """Return a digest of all that is in a value."""
    parts = _texts(vars(value) if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor) else value)
    return f"sha256 {hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:12]}"


def loop_variables() -> dict[str, str]:
    """Return the plain variables of the functions that lead to this loop, and of their objects, by name."""
    found: dict[str, str] = {}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not _is_of_library(frame.f_code.co_filename):
            variables = dict(frame.f_locals)
            for name, owner in frame.f_locals.items():
                is_of_script = type(owner).__module__ == frame.f_globals.get("__name__") and hasattr(owner, "__dict__")
                if is_of_script and not isinstance(owner, torch.nn.Module):
                    variables |= {f"{name}.{attribute}": value for attribute, value in vars(owner).items()}
            for name, value in variables.items():
                generator = saved_generator(name, value)
                if generator is not None:
                    found.setdefault(name, digest(plain_value(generator.save())))
                elif isinstance(value, _PLAIN) and not name.startswith("_"):
                    found.setdefault(name, digest(value))
        frame = frame.f_back
    return found
