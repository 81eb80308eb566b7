"""The GPUs that a training ran on: those that its model was on, of all that were metered beside it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural
from greenlove_tracker.logs.explored import seen_beside
from greenlove_tracker.logs.judged import gpu_mean_w
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import MEASURED_METHODS

_COUNTED = re.compile(r"\s*([1-9][0-9]{0,4}) ?[×x] ?(.+)", re.DOTALL)
_SIMULATED = "simulated"  # the meter whose GPUs are the user's word for those of the training


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of a training; None is not known.

    Attributes:
        gpu: as its driver or the user calls it; None where there is none.
        n_gpus: that the training is on; 1 where there is none.
        has_price: whether a price per GPU-hour is one of this machine.
        memory_gb: of one, as its driver shows it.
        draw: share of their enforced power limit that they were measured to draw.
        limit_w: that limit, of one.
        peak_memory_gb: of one GPU.
        idle: the GPUs that were metered beside it in vain, in words; the measured energy is then not the training's.
    """

    gpu: str | None
    n_gpus: int = 1
    has_price: bool = False
    memory_gb: float | None = None
    draw: float | None = None
    limit_w: float | None = None
    peak_memory_gb: float | None = None
    idle: str = ""


def given_machine(gpu: str | None, memory_gb: float | None) -> Machine:
    """A machine without a log."""
    if gpu is None:
        return Machine(None)
    n_gpus, name = _counted(gpu)
    return Machine(name, n_gpus or 1, has_price=True, memory_gb=memory_gb)


def logged_machine(run: Run, gpu: str | None = None, memory_gb: float | None = None) -> Machine:
    """The machine of a run.

    Args:
        run: whose log tells it.
        gpu: the user's name for its GPU, with or without their number.
        memory_gb: that the user gives of one.

    Raises:
        UsageError: where its log names no GPU, or several, or where one is given for a run that used none.
    """
    n_metered, n_logged = run.summary.gpu_count, _used_gpus(run)
    if gpu and _is_on_cpu(run, n_logged):
        raise UsageError(
            f"{run.path} was made on a CPU, and its time is not that of {gpu}: give --hours without a log, or leave "
            "--gpu out"
        )
    n_used = n_metered if n_logged is None or (n_logged == 0 and _is_simulated(run)) else n_logged
    logged_name = None if n_logged == 0 or gpu else _named_gpu(run, n_used)
    typed, name = _counted(gpu) if gpu else (None, logged_name)
    n_gpus = typed or n_used or (n_metered if gpu else 0) or 1
    limit_w = _number(run, "gpu_power_limit_w") if n_gpus == n_used and run.summary.n_nodes == 1 else None
    is_as_logged = n_gpus == n_used == n_metered
    return Machine(
        gpu=name,
        n_gpus=n_gpus,
        has_price=name is not None or n_used > 0,
        memory_gb=memory_gb or (_number(run, "gpu_memory_gb") if gpu is None else None),
        draw=_draw(run, limit_w) if is_as_logged and limit_w else None,
        limit_w=limit_w / n_metered if limit_w and n_metered else None,
        peak_memory_gb=None if n_logged == 0 else _peak_memory_gb(run, is_on_gpu=name is not None),
        idle=_idle(n_metered, n_used, is_called_gpu=name is not None, is_logged=n_logged is not None),
    )


def _used_gpus(run: Run) -> int | None:
    """GPUs that the model was on; None where the log does not say."""
    text = run.text("used_gpus")
    return int(text) if text.isdecimal() else None


def _is_on_cpu(run: Run, n_logged: int | None) -> bool:
    """Whether the log says so: its model was on no GPU, or the meter found none."""
    return run.text("gpu_count") == "0" if n_logged is None else n_logged == 0 and not _is_simulated(run)


def _is_simulated(run: Run) -> bool:
    return run.text("meter") == _SIMULATED


def _idle(n_metered: int, n_used: int, *, is_called_gpu: bool, is_logged: bool) -> str:
    """What the energy holds that is not the training's, or does not hold that is; empty where neither is so."""
    if n_metered > n_used:
        return f"{plural(n_metered - n_used, 'metered GPU')} idle, so the energy is not compared"
    if n_metered < n_used or (is_called_gpu and is_logged and not n_metered):
        return "not all its GPUs were metered, so the energy is not compared"
    return ""


def _named_gpu(run: Run, n_used: int) -> str | None:
    """Its name, as the meter found it; None where there is none.

    Raises:
        UsageError: where it has none, or several.
    """
    models = run.text("gpu_models")
    if not n_used:
        return None
    if not models:
        raise UsageError(f"{run.path} does not name its GPU: give --gpu, such as {_example('RTX 4090', n_used)}")
    first = models.partition(", ")[0]
    if len(models.split(" × ")) > 2:
        example = _example(_counted(first)[1], n_used)
        raise UsageError(f"{run.path} ran on different GPUs ({models}): say which to go by, such as {example}")
    return _counted(models)[1]


def _example(name: str, n_gpus: int) -> str:
    """What to type for one GPU, or for the GPUs of the log and for another number of them."""
    if n_gpus == 1:
        return f"--gpu {name!r}"
    return f"--gpu {name!r} for all {n_gpus}, or --gpu '{n_gpus - 1} × {name}' for fewer"


def _counted(text: str) -> tuple[int | None, str]:
    """``4 × L40S`` as number and name; None where no number is typed."""
    found = _COUNTED.fullmatch(text)
    return (int(found[1]), found[2].strip()) if found else (None, text.strip())


def _number(run: Run, name: str) -> float | None:
    """A positive number of ``run.csv``; None where there is none."""
    try:
        value = float(run.text(name))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _draw(run: Run, limit_w: float) -> float | None:
    """The share of their limit that all GPUs drew; None where it was not measured."""
    if not set(run.text("gpu_method").split("+")) <= MEASURED_METHODS:
        return None
    power_w = seen_beside(run).gpu_power_w if run.trials else gpu_mean_w(run)
    return min(1.0, power_w / limit_w) if power_w else None


def _peak_memory_gb(run: Run, *, is_on_gpu: bool) -> float | None:
    """Of one GPU; the peak of an exploration without one is that of the process."""
    return _number(run, "peak_gpu_memory_gb") or (_number(run, "peak_memory_gb") if is_on_gpu else None)
