"""``explore_callable``: what a fit takes on all its data, for what is not a torch loop: scikit-learn, Keras, JAX."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker import devices
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import StatusLine
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.exploration_run import EstimateOptions, Estimation, ExplorationRun
from greenlove_tracker.forecasting import TrainingPlan, Trial
from greenlove_tracker.logs.trials import ExplorationMetadata
from greenlove_tracker.meter import Meter
from greenlove_tracker.projection.types import ProjectionOptions
from greenlove_tracker.records import Clock
from greenlove_tracker.report.screens import progress_line

_LEAST_SIZES = 3
_CUDA_DEVICES = {"/dev/nvidia-uvm", "/dev/dxg"}  # the second in the Windows Subsystem for Linux
_REPLICATES = 3  # of each size at most; a fit's time differs from call to call
_SMALLEST, _SMALLEST_SHARE = 50, 1000  # samples, or that part of all; fits on fewer are mostly their own start
_SINGLE_SHARE = 0.3  # of the budget that one fit may take, so that there is time for it again
_STEEPEST = 3.0  # exponent that an untried size is feared to cost, until two sizes show another


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

    That time goes in proportion to the data is not supposed: a power law is fitted and extended to all of the data, its
    exponent told. The smallest size is fitted once more before all others and not counted: first calls load and
    compile. A fit cannot be interrupted, so the budget is overrun by one fit at most; a size that is feared to be too
    slow for what is left is left out.

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
        **settings: fields of ``greenlove_tracker.config.Settings``.

    Raises:
        UsageError: on a bad argument, or where the budget held fewer than three sizes.
    """
    wanted = _checked(sizes, samples, budget_s)
    plan = TrainingPlan(samples=samples, batch_size=1, epochs=1)
    telling = EstimateOptions(auto_open_report, asks, on_no_terminal, ProjectionOptions(), undoes=False)
    run = ExplorationRun(load_settings(settings), plan, budget_s, clock, meter)
    line = StatusLine(even_beside_stdout=True)

    def timed(size: int) -> Trial:
        line.draw(progress_line(run.spent_s, budget_s, size, None))
        run.begin()
        began_s = run.perf_s()
        fit(size)
        devices.synchronise()
        took_s = run.perf_s() - began_s
        return Trial(size, 1, (max(took_s, 1e-9),), run.end() or None)

    found: list[Trial] = []
    try:
        cold_start_s = _explore(timed, wanted, run, budget_s, seed, found)
        seen = _seen(cold_start_s)
        forecast = run.forecast(found, seen)
    except BaseException as error:
        line.clear()
        run.break_off(error, found, _seen(), telling)
        raise
    finally:
        line.clear()
    return run.conclude(forecast, tuple(found), seen, None, telling)


def _seen(cold_start_s: float = 0.0) -> ExplorationMetadata:
    used_gpus = 0 if _is_without_cuda() else None
    return ExplorationMetadata(
        cold_start_s, peak_memory_gb=devices.peak_memory_gb(), used_gpus=used_gpus, method="power"
    )


def _is_without_cuda(opened: Path = Path("/proc/self/fd")) -> bool:
    """Whether nothing in this process has computed on an NVIDIA GPU; False where that cannot be seen.

    Every CUDA context holds the driver's memory manager open, which asking a GPU for its power does not.
    """
    try:
        return not any(os.path.realpath(fd) in _CUDA_DEVICES for fd in opened.iterdir())
    except OSError:  # not Linux
        return False


def _checked(sizes: Sequence[int] | None, samples: int, budget_s: float) -> list[int]:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < _LEAST_SIZES:
        raise UsageError(f"samples must be the number of all samples, at least {_LEAST_SIZES}, not {samples!r}")
    if sizes is None:
        smallest = max(1, min(_SMALLEST, samples // 8), samples // _SMALLEST_SHARE)
        sizes = [smallest * 2**k for k in range(samples.bit_length()) if smallest * 2**k <= samples]
    wanted = sorted(set(sizes))
    if len(wanted) < _LEAST_SIZES or wanted[0] < 1 or wanted[-1] > samples:
        raise UsageError(
            f"sizes must be three different ones or more, from 1 to samples={samples}, such as "
            f"{[max(1, samples // k) for k in (100, 50, 20, 10)]}, not {wanted}"
        )
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise UsageError(f"budget_s must be positive seconds, such as 30, not {budget_s!r}")
    return wanted


def _explore(
    timed: Callable[[int], Trial],
    sizes: Sequence[int],
    run: ExplorationRun,
    budget_s: float,
    seed: int,
    trials: list[Trial],
) -> float:
    """Each size once, from the smallest; then all again in random order, and those left out, while there is time.

    Args:
        timed: fits on so many samples.
        sizes: in order.
        run: that it is a part of.
        budget_s: of the exploration.
        seed: of the order.
        trials: they are put in here one by one, so that a fit that is broken off loses none.

    Returns:
        By how much the very first fit took longer than the same again.
    """
    cold_s = timed(sizes[0]).total_s
    order = random.Random(seed)  # noqa: S311  # an order, no secret
    for _ in range(_REPLICATES):
        seen = sorted({t.sample_size for t in trials})
        for size in [*order.sample(seen, len(seen)), *(s for s in sizes if s not in seen)]:
            if _feared_s(trials, size) <= min(budget_s - run.spent_s, _SINGLE_SHARE * budget_s):
                trials.append(timed(size))
    n_sizes = len({t.sample_size for t in trials})
    if n_sizes < _LEAST_SIZES:
        raise UsageError(
            f"{budget_s:g} s held {n_sizes} of the sizes, and three are needed: give smaller sizes or a larger budget_s"
        )
    return max(0.0, cold_s - trials[0].total_s)


def _feared_s(trials: Sequence[Trial], size: int) -> float:
    """What a fit may take: as before at its size, else by a power law through the two largest so far."""
    if not trials:
        return 0.0
    by_size: dict[int, float] = {}  # the shortest of each: a hiccup is not to stop the climb
    for t in trials:
        by_size[t.sample_size] = min(t.total_s, by_size.get(t.sample_size, math.inf))
    if size in by_size:
        return by_size[size]
    largest = max(by_size)
    exponent = _STEEPEST
    if len(by_size) > 1:
        before = max(s for s in by_size if s != largest)
        seen = math.log(by_size[largest] / by_size[before]) / math.log(largest / before)
        exponent = min(_STEEPEST, max(1.0, seen))
    return float(by_size[largest] * (size / largest) ** exponent)
