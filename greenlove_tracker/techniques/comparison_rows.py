"""The rows of a comparison from its trials: ratios, verdicts, losses, and the whole training projected."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from greenlove_tracker.comparisons import BASELINE, ArmTrial, ComparisonRow, Verdict, WholeRun, is_modelled
from greenlove_tracker.extrapolation.draws import student_quantile
from greenlove_tracker.extrapolation.ratios import RatioFit, budget_needed_s, fit_ratios, rounded_budget_s, verdict_of
from greenlove_tracker.forecasting import LEVEL, Estimate, Kind, TrainingPlan
from greenlove_tracker.format import significant
from greenlove_tracker.pricing import Rates
from greenlove_tracker.units import BYTES_PER_GB

_DRIFT_ERRORS = 3.0  # standard errors of the loss, beyond which it drifts
_LEAST_DRIFT = 0.01  # of the loss: less is no drift that anybody trains for


@dataclass(slots=True)
class ArmRecord:
    """Facts about an arm beside its trials.

    Attributes:
        note: what the technique changes in what is learnt.
        reason: it was not run because; empty where it was.
        one_off_s: of its first steps, beyond as many steady ones.
        start_s: of its epochs' starts, each.
        n_starts: epochs that began in the windows of its trials.
        said: by the technique, at the end.
        losses: of the last batches of its last trial, each with the samples of the batch.
        is_alike: it trained on as many samples as the others at each block's end, so that its loss can be compared.
    """

    note: str = ""
    reason: str = ""
    one_off_s: float | None = None
    start_s: list[float] = field(default_factory=list)
    n_starts: int = 0
    said: tuple[str, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    is_alike: bool = True


@dataclass(frozen=True, slots=True)
class Accounting:
    """The prices and intensities that a comparison is counted with, and the time that it took.

    Attributes:
        rates: of the run.
        energy_factor: the energy that is counted, in that of the trials: PUE, and the rest of the node.
        gpu_count: GPUs that the machine's price is paid for.
        spent_s: all of it.
        prepared_s: before the first block.
        advised_s: a budget that holds enough blocks; None where that is not known.
    """

    rates: Rates
    energy_factor: float = 1.0
    gpu_count: int = 1
    spent_s: float = 0.0
    prepared_s: float = 0.0
    advised_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a comparison, and what its fit says of the whole.

    Attributes:
        baseline: its row.
        others: those that save most first, those that did not run last.
        residual_cv: of the fit of the times.
        notes: of the fits.
    """

    baseline: ComparisonRow
    others: tuple[ComparisonRow, ...]
    residual_cv: float | None
    notes: tuple[str, ...]


def rows_of(
    trials: Sequence[ArmTrial],
    records: Mapping[str, ArmRecord],
    plan: TrainingPlan | None,
    accounting: Accounting,
) -> Rows:
    """Return the rows.

    Args:
        trials: of whole blocks.
        records: of the arms, the baseline first.
        plan: the whole training; None where the task does not say it.
        accounting: factors of energy and time, and what it took.
    """
    fits = _RatioFits(trials)
    writer = _RowWriter(trials, records, plan, accounting, fits)
    others = [writer.row(name) for name in records if name != BASELINE]
    notes = dict.fromkeys(n for fit in (fits.time, fits.energy) if fit is not None for n in fit.notes)
    return Rows(
        writer.row(BASELINE),
        tuple(sorted(others, key=_order)),
        None if fits.time is None else fits.time.residual_cv,
        tuple(notes),
    )


def _order(row: ComparisonRow) -> tuple[bool, bool, float]:
    """Order by the energy that is saved, else by the time; what did not run is last."""
    ratio = row.energy_ratio or row.time_ratio
    return row.verdict is Verdict.NOT_RUN, ratio is None, 0.0 if ratio is None else ratio.point


class _RatioFits:
    """The fits of time, energy and memory to the trials of a comparison."""

    def __init__(self, trials: Sequence[ArmTrial]) -> None:
        self.time = fit_ratios(trials, lambda t: t.duration_s / t.samples)
        self.energy = fit_ratios(trials, lambda t: None if t.energy_kwh is None else t.energy_kwh / t.samples)
        self.memory = fit_ratios(trials, lambda t: t.peak_memory_bytes, may_stall=False)
        self._has_counted_energy = not all(is_modelled(t.energy_method) for t in trials if t.energy_method)

    def deciding(self, name: str) -> RatioFit | None:
        """Return the fit that an arm's verdict is of: energy where hardware counted any of it, else time."""
        return self.energy if self._has_counted_energy and _ratio(self.energy, name) is not None else self.time


def _ratio(fit: RatioFit | None, name: str) -> Estimate | None:
    return None if fit is None else fit.ratios.get(name)


class _RowWriter:
    def __init__(
        self,
        trials: Sequence[ArmTrial],
        records: Mapping[str, ArmRecord],
        plan: TrainingPlan | None,
        accounting: Accounting,
        fits: _RatioFits,
    ) -> None:
        self._trials = {name: [t for t in trials if t.arm == name] for name in records}
        self._records, self._plan, self._accounting = records, plan, accounting
        self._fits, self._n_trials = fits, len(trials)

    def row(self, name: str) -> ComparisonRow:
        """Return the row of an arm."""
        trials, record = self._trials[name], self._records[name]
        notes = tuple(text for text in (record.note, *record.said) if text)
        if record.reason:
            return ComparisonRow(name, Verdict.NOT_RUN, reason=record.reason, notes=notes)
        energy_ratio, time_ratio = _ratio(self._fits.energy, name), _ratio(self._fits.time, name)
        fit = self._fits.deciding(name)
        verdict = Verdict.NO_DIFFERENCE if name == BASELINE else verdict_of(_ratio(fit, name))
        peaks = [t.peak_memory_bytes for t in trials if t.peak_memory_bytes is not None]
        return ComparisonRow(
            name,
            verdict,
            time_ratio=time_ratio,
            energy_ratio=energy_ratio,
            co2e_ratio=energy_ratio,
            cost_ratio=self._cost_ratio(time_ratio, energy_ratio),
            memory_ratio=_ratio(self._fits.memory, name),
            n_trials=len(trials),
            duration_s_per_sample=_mean(trials, lambda t: t.duration_s / t.samples),
            peak_memory_gb=max(peaks) / BYTES_PER_GB if peaks else None,
            one_off_s=record.one_off_s,
            final_loss=trials[-1].loss if trials and self._is_alike(name) else None,
            whole_run=self._whole_run(name),
            notes=(*notes, *self._missing_loss(name)),
            budget_s=self._needed_s(name, fit) if verdict is Verdict.TOO_SHORT else None,
            learns_otherwise=self._loss_drift(name),
        )

    def _is_alike(self, name: str) -> bool:
        return self._records[name].is_alike and self._records[BASELINE].is_alike

    def _needed_s(self, name: str, fit: RatioFit | None) -> float | None:
        took = self._accounting
        if fit is None or name not in fit.ratios:
            return None if took.advised_s is None else rounded_budget_s(took.advised_s)
        needed_s = budget_needed_s(fit, name, self._n_trials, took.spent_s, prepared_s=took.prepared_s)
        return needed_s if math.isfinite(needed_s) else None

    def _cost_ratio(self, time_ratio: Estimate | None, energy_ratio: Estimate | None) -> Estimate | None:
        _, basis = self._accounting.rates.cost(1.0, 1.0, self._accounting.gpu_count)
        return {"machine": time_ratio, "electricity": energy_ratio}.get(basis)

    def _missing_loss(self, name: str) -> tuple[str, ...]:
        """Say why an arm has no loss to compare, where another has."""
        trials = self._trials[name]
        if not self._records[BASELINE].is_alike or self._records[name].is_alike or not trials:
            return ()
        return ("No loss is compared: it was too slow to train on as many samples as the others before the trials",)

    def _loss_drift(self, name: str) -> str:
        """Return a clause that the loss is no number, or that after equal samples it is another than the baseline's.

        Another: by more than three standard errors of a difference of means over the last batches, as these scatter.
        """
        trials, base = self._trials[name], self._records[BASELINE].losses
        if any(t.loss is not None and not math.isfinite(t.loss) for t in trials):
            return "its loss was not a finite number: look at the learning rate, or at a wider range of numbers"
        own = self._records[name].losses
        base_loss = next((t.loss for t in reversed(self._trials[BASELINE])), None)
        if name == BASELINE or not self._is_alike(name) or not trials or base_loss is None or trials[-1].loss is None:
            return ""
        difference = trials[-1].loss - base_loss
        error = math.hypot(_error(base), _error(own)) if min(len(base), len(own)) > 1 else math.inf
        if not abs(difference) > max(_DRIFT_ERRORS * error, _LEAST_DRIFT * abs(base_loss)):
            return ""
        word = "above" if difference > 0 else "below"
        return (
            f"its loss after as many samples is {significant(trials[-1].loss)}, {word} the baseline's "
            f"{significant(base_loss)} by more than that scatters"
        )

    def _whole_run(self, name: str) -> WholeRun:
        """Project the whole training: what the baseline would take, times the ratio.

        The starts of epochs are added, less those that the trials held; and what is spent once.
        """
        plan, trials, base = self._plan, self._trials[name], self._trials[BASELINE]
        if plan is None or plan.phases or not trials:  # of phases the trials saw the first
            return WholeRun()
        samples = _samples_of(plan)
        duration = self._total(base, name, self._fits.time, lambda t: t.duration_s, samples)
        if duration is None:
            return WholeRun()
        record = self._records[name]
        starts_held = record.n_starts / sum(t.samples for t in trials) * samples
        start_s = statistics.median(record.start_s) if record.start_s else 0.0
        further_s = start_s * max(0.0, plan.n_starts - starts_held) + (record.one_off_s or 0.0)
        accounting = self._accounting
        energy = self._total(base, name, self._fits.energy, lambda t: t.energy_kwh, samples)
        if energy is not None:  # what is added draws what the rest does
            energy = energy.times((1 + further_s / duration.point) * accounting.energy_factor, "kWh")
        duration = duration.plus(further_s)
        cost, _ = accounting.rates.cost(duration, energy, accounting.gpu_count)
        return WholeRun(duration, energy, accounting.rates.emissions(energy), cost)

    def _total(
        self,
        base: Sequence[ArmTrial],
        name: str,
        fit: RatioFit | None,
        value: Callable[[ArmTrial], float | None],
        samples: float,
    ) -> Estimate | None:
        logs = [math.log(v / t.samples) for t in base if (v := value(t)) is not None and v > 0]
        ratio = None if name == BASELINE else _ratio(fit, name)
        if len(logs) < 2 or (name != BASELINE and ratio is None):
            return None
        mean = statistics.fmean(logs)
        width = student_quantile((1 + LEVEL) / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        if ratio is not None:  # in logarithms the widths of a product add as those of independent numbers do
            mean += math.log(ratio.point)
            width = math.hypot(width, math.log(ratio.upper / ratio.lower) / 2)
        lower, point, upper = (samples * math.exp(mean + side * width) for side in (-1, 0, 1))
        return Estimate(point, lower, upper, LEVEL, "s" if fit is self._fits.time else "kWh", Kind.CONFIDENCE)


def _samples_of(plan: TrainingPlan) -> float:
    if plan.epochs is not None:
        return float(plan.epochs * (plan.samples or 0))
    return float((plan.steps or 0) * (plan.batches_per_step or 1) * (plan.batch_size or 1))


def _mean(trials: Sequence[ArmTrial], value: Callable[[ArmTrial], float]) -> float | None:
    return statistics.geometric_mean(map(value, trials)) if trials else None


def _error(losses: Sequence[tuple[int, float]]) -> float:
    return statistics.stdev([loss for _, loss in losses]) / math.sqrt(len(losses))
