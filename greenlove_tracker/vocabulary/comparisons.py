"""The vocabulary of comparisons: ways to train, or logged runs, against a baseline; a ratio below 1 saves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Method

BASELINE = "baseline"  # the name of the arm that the others are compared with
# How a peak of memory is known.
META = "meta"
MEASURED_STEP = "measured step"


class Verdict(StrEnum):
    """The verdict on one arm."""

    SAVES = "saves"
    COSTS_MORE = "costs more"
    NO_DIFFERENCE = "no measurable difference"
    TOO_SHORT = "too short to tell"
    NOT_RUN = "not run"


_MODELS = frozenset({Method.TDP_MODEL, Method.CONSTANT})


def is_modelled(energy_method: str) -> bool:
    """Return True if no hardware counted any of an energy, so that it says little beyond the time.

    Args:
        energy_method: as in the log: methods joined by ``+``; empty for none.
    """
    methods = set(filter(None, energy_method.split("+")))
    return bool(methods) and methods <= _MODELS


@dataclass(frozen=True, slots=True)
class ArmTrial:
    """One timed trial of one arm, or one logged run of it."""

    arm: Annotated[str, "its name"]
    block: Annotated[int, "trials of one block lie next to each other, as many of each arm; from 0"]
    position: Annotated[int, "in the order of all trials, from 0"]
    started_s: Annotated[float, "since the comparison began"]
    duration_s: Annotated[float, "of the timed part"]
    samples: Annotated[int, "samples trained on in it; 1 for a logged run without a known number"]
    start_s: Annotated[float, "time until the first batch of its first epoch, before the timed part"] = 0.0
    energy_kwh: Annotated[float | None, "of the timed part, as metered, before PUE; empty below 5 s"] = None
    energy_method: Annotated[str, "how it was obtained"] = ""
    peak_memory_bytes: Annotated[int | None, "of the arm alone"] = None
    loss: Annotated[float | None, "mean over the trial's last batches; `nan` and `inf` too", "any"] = None


@dataclass(frozen=True, slots=True)
class WholeRun:
    """The whole training, projected; None for what is unknown.

    Attributes:
        duration_s: the time, including the starts of its epochs and what is spent once.
    """

    duration_s: Estimate | None = None
    energy_kwh: Estimate | None = None
    emissions_kgco2e: Estimate | None = None
    cost_usd: Estimate | None = None


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One arm against the baseline: ratios with their confidence intervals; below 1 saves.

    Attributes:
        name: the name of the technique, of several joined by ``+``, or of the runs.
        verdict: the verdict on its energy if hardware counted any of it, else on its time.
        time_ratio: of the time per sample; for logged runs, of the whole time.
        energy_ratio: of its energy; None if not measured.
        co2e_ratio: of its operational emissions.
        cost_ratio: of its cost, by machine price or electricity, whichever is in force.
        memory_ratio: of the peak memory.
        n_trials: the number of timed trials, or runs.
        duration_s_per_sample: the geometric mean over its trials.
        peak_memory_gb: the largest of its trials, in GiB.
        one_off_s: time spent once, such as by ``compile``; in ``whole_run``, not in the ratios.
        final_loss: the mean over the last trials, after as many samples as the baseline's.
        whole_run: the projection onto the whole training.
        reason: why it was not run; empty if it was.
        notes: what it changes in the training, drifting losses, skipped steps: sentences without a full stop.
        budget_s: the budget that would tell, if the verdict is "too short to tell".
        learns_otherwise: how its learning differs from the baseline's, as a clause without a full stop: "its best
            accuracy is 14 points lower"; empty if no difference is seen, or nothing is known.
    """

    name: str
    verdict: Verdict
    time_ratio: Estimate | None = None
    energy_ratio: Estimate | None = None
    co2e_ratio: Estimate | None = None
    cost_ratio: Estimate | None = None
    memory_ratio: Estimate | None = None
    n_trials: int = 0
    duration_s_per_sample: float | None = None
    peak_memory_gb: float | None = None
    one_off_s: float | None = None
    final_loss: float | None = None
    whole_run: WholeRun = WholeRun()
    reason: str = ""
    notes: tuple[str, ...] = ()
    budget_s: float | None = None
    learns_otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms against a baseline.

    Attributes:
        baseline: the training without any technique; its ratios are None.
        rows: the arms, those that save most energy first (without energy: most time), those that did not run last.
        trials: all timed trials, in order.
        spent_s: the time that it took, with all preparations.
        budget_s: the time that it had; None for logged runs.
        residual_cv: the coefficient of variation of a trial that is left after arm, block and drift.
        energy_method: of the trials, as in the log; empty if none was measured.
        run_dir: its directory; None if it is not written.
        notes: on the whole comparison: sentences without a full stop.
        left_changed: what could not be put back, by name and with the reason.
        is_of_runs: True if whole logged runs were compared instead of trials of one training.
    """

    baseline: ComparisonRow
    rows: tuple[ComparisonRow, ...]
    trials: tuple[ArmTrial, ...] = ()
    spent_s: float = 0.0
    budget_s: float | None = None
    residual_cv: float | None = None
    energy_method: str = ""
    run_dir: Path | None = None
    notes: tuple[str, ...] = ()
    left_changed: tuple[str, ...] = ()
    is_of_runs: bool = False


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The memory of one way to train, at the peak of a step; None for what is unknown.

    Attributes:
        name: the name of the technique, or of several joined by ``+``; ``baseline`` for the training as it is.
        parameters_bytes: parameters and buffers.
        gradients_bytes: gradients that are held beside the parameters.
        optimizer_bytes: states of the optimizer.
        activations_bytes: everything else: saved tensors, temporaries, the batch.
        peak_bytes: the sum.
        method: ``meta``: by steps of tensors that hold no data; ``measured step``: by real ones.
        reason: why it is unknown; empty if it is known.
        batch_size: samples of a step.
    """

    name: str = ""
    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    activations_bytes: int | None = None
    peak_bytes: int | None = None
    method: str = ""
    reason: str = ""
    batch_size: int | None = None
