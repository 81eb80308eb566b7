"""``explore_callable``: the forecast of a fit on all its data, where it is no torch loop: scikit-learn, Keras, JAX."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenlove_tracker.exploration.exploration_run import EstimateOptions, Estimation, ExplorationRun
from greenlove_tracker.logs.trials import ExplorationRecord
from greenlove_tracker.machine import devices
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.forecasting import TrainingPlan, Trial
from greenlove_tracker.vocabulary.records import Clock

_LEAST_SIZES = 3
_CUDA_DEVICES = {"/dev/nvidia-uvm", "/dev/dxg"}  # the second in the Windows Subsystem for Linux
_REPLICATES = 3  # of each size at most; a fit's time differs from call to call
_SMALLEST = 50  # samples of the smallest trial: fits on fewer are mostly their own start
_SMALLEST_SHARE = 1000  # or one in so many of all samples, where that is more
_SINGLE_SHARE = 0.3  # of the budget that one fit may take once there are enough sizes, so that there is time again
_STEEPEST = 3.0  # exponent that an untried size is expected to cost at most, until two sizes show another


def explore_callable(
    fit: Callable[[int], object],
    sizes: Sequence[int] | None = None,
    *,
    samples: int,
    budget_s: float = 30.0,
    seed: int = 0,
    auto_open_report: bool = False,
    asks: bool = False,
    on_no_terminal: str = "continue",
    clock: Clock | None = None,
    meter: Meter | None = None,
    **settings: Any,
) -> Estimation:
    """Time ``fit`` on samples of several sizes, and forecast it on all of the data.

    ::

        explore_callable(lambda n: SVC().fit(X[:n], y[:n]), samples=len(X))

    Time need not go in proportion to the data: a power law is fitted and extended to all of the data, and its exponent
    is shown. The smallest size is fitted once more before all others and not counted: first calls load and
    compile. A fit cannot be interrupted, so the budget is overrun by one fit at most; a size that may be too slow
    for what is left is left out.

    Args:
        fit: trains anew on the first so many samples; what it changes is not given back.
        sizes: three different ones or more, none above ``samples``; default: doubled from a thousandth of
            ``samples`` on, as far as the budget reaches.
        samples: of all the data.
        budget_s: of the exploration.
        seed: of the order of replicates.
        auto_open_report: open the page in a browser, where there is one.
        asks: ask on a terminal whether to train on.
        on_no_terminal: ``continue`` or ``stop``.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        **settings: fields of ``greenlove_tracker.settings.config.Settings``.

    Raises:
        UsageError: on a bad argument, or where the budget held fewer than three sizes.
    """
    sizes = _checked(sizes, samples)
    plan = TrainingPlan(samples=samples, batch_size=1, epochs=1)
    options = EstimateOptions(budget_s, auto_open_report, asks, on_no_terminal, clock, meter)
    with ExplorationRun(load_settings(settings), plan, options) as run:
        run.record = ExplorationRecord(method="power")
        cold_start_s = _time_fits(fit, sizes, run, seed)
        run.record = replace(run.record, cold_start_s=cold_start_s)
        forecast = run.forecast()
    return run.conclude(forecast)


def _is_without_cuda() -> bool:
    """Return whether nothing in this process has computed on an NVIDIA GPU; False where that cannot be seen.

    Every CUDA context holds the driver's memory manager open, which asking a GPU for its power does not.
    """
    opened = [*Path("/proc/self/fd").glob("*")]  # none where it is not Linux
    return bool(opened) and _CUDA_DEVICES.isdisjoint(map(os.path.realpath, opened))


def _checked(sizes: Sequence[int] | None, samples: int) -> list[int]:
    """Return the sizes in order, doubled from the smallest where none are given.

    Raises:
        UsageError: where an argument cannot be.
    """
    samples = whole_number("samples", samples, _LEAST_SIZES)
    if sizes is None:
        smallest = max(1, min(_SMALLEST, samples // 8), samples // _SMALLEST_SHARE)
        sizes = [smallest * 2**k for k in range((samples // smallest).bit_length())]
    wanted = sorted({whole_number("sizes", size, 0) for size in sizes})
    if len(wanted) < _LEAST_SIZES or wanted[0] < 1 or wanted[-1] > samples:
        raise UsageError(
            f"sizes must be three different ones or more, from 1 to samples={samples}, such as [100, 200, 400], "
            f"not {wanted}"
        )
    return wanted


def _time_fits(fit: Callable[[int], object], sizes: Sequence[int], run: ExplorationRun, seed: int) -> float:
    """Fit each size once, from the smallest; then all again in random order, and those left out, while there is time.

    Returns:
        The time in s that the very first fit took beyond the same again.

    Raises:
        UsageError: where the budget held fewer than three sizes.
    """

    def timed(size: int) -> Trial:
        run.show_progress(size)
        run.start_trial()
        began_s = run.perf_s()
        fit(size)
        devices.synchronise()
        duration_s = run.perf_s() - began_s
        return Trial(size, 1, (max(duration_s, 1e-9),), run.end_trial().total_kwh or None)

    cold_s = timed(sizes[0]).total_s
    times_s: dict[int, float] = {}  # the shortest of each size: a hiccup stops no climb
    order = random.Random(seed)  # noqa: S311  # an order, no secret
    for _ in range(_REPLICATES):
        for size in [*order.sample(sorted(times_s), len(times_s)), *(s for s in sizes if s not in times_s)]:
            share = _SINGLE_SHARE if len(times_s) >= _LEAST_SIZES else 1.0
            if _expected_s(times_s, size) <= min(run.budget_s - run.spent_s, run.budget_s * share):
                trial = timed(size)
                times_s[size] = min(trial.total_s, times_s.get(size, math.inf))
                run.record = replace(
                    run.record,
                    trials=(*run.record.trials, trial),
                    peak_memory_gb=devices.peak_memory_gb(),
                    used_gpus=0 if _is_without_cuda() else None,
                )
    if len(times_s) < _LEAST_SIZES:
        n_sizes = len(times_s)
        raise UsageError(
            f"{run.budget_s:g} s held {n_sizes} sizes, and three are needed: give smaller sizes or a larger budget_s"
        )
    return max(0.0, cold_s - run.record.trials[0].total_s)


def _expected_s(times_s: Mapping[int, float], size: int) -> float:
    """Return the time that a fit may take: as before at its size, else by a power law through the two largest."""
    if not times_s or size in times_s:
        return times_s.get(size, 0.0)
    *smaller, largest = sorted(times_s)
    exponent = _STEEPEST
    if smaller:
        measured = math.log(times_s[largest] / times_s[smaller[-1]]) / math.log(largest / smaller[-1])
        exponent = min(_STEEPEST, max(1.0, measured))
    return float(times_s[largest] * (size / largest) ** exponent)
