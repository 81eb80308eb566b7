"""The rows of a comparison from its trials: ratios, verdicts, and the whole training projected."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from greenlove_tracker.comparisons import BASELINE, ArmTrial, ComparisonRow, Verdict, WholeRun, is_modelled
from greenlove_tracker.extrapolation.draws import student_quantile
from greenlove_tracker.extrapolation.ratios import RatioFit, budget_needed_s, fit_ratios, rounded_budget_s, verdict_of
from greenlove_tracker.forecasting import LEVEL, Estimate, Kind, TrainingPlan
from greenlove_tracker.pricing import Rates
from greenlove_tracker.units import BYTES_PER_GB

_NOT_FINITE = "its loss was not a finite number: look at the learning rate, or at a wider range of numbers"


@dataclass(slots=True)
class ArmRecord:
    """Facts about an arm beside its trials.

    Attributes:
        notes: what the technique changes in what is learnt, and what it counted.
        reason: it was not run because; empty where it was.
        one_off_s: of its first steps, beyond as many steady ones.
        starts_s: of its epochs, each.
        n_starts: epochs that began in the windows of its trials.
    """

    notes: tuple[str, ...] = ()
    reason: str = ""
    one_off_s: float | None = None
    starts_s: Sequence[float] = field(default_factory=list)
    n_starts: int = 0


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


class Rows:
    """The rows of a comparison.

    Args:
        trials: of whole blocks.
        records: of the arms, the baseline first.
        plan: the whole training; None where the task does not say it.
        accounting: factors of energy and time, and what it took.

    Attributes:
        baseline: its row.
        others: those that save most energy (else time) first, those that did not run last.
        residual_cv: of the fit of the times.
        notes: of the fits.
    """

    def __init__(
        self,
        trials: Sequence[ArmTrial],
        records: Mapping[str, ArmRecord],
        plan: TrainingPlan | None,
        accounting: Accounting,
    ) -> None:
        self._trials = {name: [t for t in trials if t.arm == name] for name in records}
        self._records, self._plan, self._accounting, self._n_trials = records, plan, accounting, len(trials)
        self._time = fit_ratios(trials, lambda t: t.duration_s / t.samples)
        self._energy = fit_ratios(trials, lambda t: None if t.energy_kwh is None else t.energy_kwh / t.samples)
        self._memory = fit_ratios(trials, lambda t: t.peak_memory_bytes, may_stall=False)
        self._has_counted_energy = not all(is_modelled(t.energy_method) for t in trials if t.energy_method)
        self.baseline = self._row(BASELINE)
        self.others = tuple(sorted((self._row(name) for name in records if name != BASELINE), key=_order))
        self.residual_cv = None if self._time is None else self._time.residual_cv
        notes = [note for fit in (self._time, self._energy) if fit is not None for note in fit.notes]
        self.notes = tuple(dict.fromkeys(notes))

    def _row(self, name: str) -> ComparisonRow:
        trials, record = self._trials[name], self._records[name]
        if record.reason:
            return ComparisonRow(name, Verdict.NOT_RUN, reason=record.reason, notes=record.notes)
        time_ratio, energy_ratio = _ratio(self._time, name), _ratio(self._energy, name)
        # Of energy where hardware counted any of it.
        fit = self._energy if self._has_counted_energy and energy_ratio is not None else self._time
        verdict = Verdict.NO_DIFFERENCE if name == BASELINE else verdict_of(_ratio(fit, name))
        _, basis = self._accounting.rates.cost(1.0, 1.0, self._accounting.gpu_count)
        times_s = [t.duration_s / t.samples for t in trials]
        peaks = [t.peak_memory_bytes for t in trials if t.peak_memory_bytes is not None]
        is_finite = all(t.loss is None or math.isfinite(t.loss) for t in trials)
        return ComparisonRow(
            name,
            verdict,
            time_ratio=time_ratio,
            energy_ratio=energy_ratio,
            co2e_ratio=energy_ratio,
            cost_ratio={"machine": time_ratio, "electricity": energy_ratio}.get(basis),
            memory_ratio=_ratio(self._memory, name),
            n_trials=len(trials),
            duration_s_per_sample=statistics.geometric_mean(times_s) if times_s else None,
            peak_memory_gb=max(peaks) / BYTES_PER_GB if peaks else None,
            one_off_s=record.one_off_s,
            whole_run=self._whole_run(name),
            notes=record.notes,
            budget_s=self._needed_s(name, fit) if verdict is Verdict.TOO_SHORT else None,
            learns_otherwise="" if is_finite else _NOT_FINITE,
        )

    def _needed_s(self, name: str, fit: RatioFit | None) -> float | None:
        took = self._accounting
        if fit is None or name not in fit.ratios:
            return None if took.advised_s is None else rounded_budget_s(took.advised_s)
        needed_s = budget_needed_s(fit, name, self._n_trials, took.spent_s, prepared_s=took.prepared_s)
        return needed_s if math.isfinite(needed_s) else None

    def _whole_run(self, name: str) -> WholeRun:
        """Project the whole training: what the baseline would take, times the ratio.

        The starts of epochs are added, less those that the trials held; and what is spent once.
        """
        plan, trials, record = self._plan, self._trials[name], self._records[name]
        if plan is None or plan.phases or not trials:  # of phases the trials saw the first
            return WholeRun()
        if plan.epochs is not None:
            samples = float(plan.epochs * (plan.samples or 0))
        else:
            samples = float((plan.steps or 0) * (plan.batches_per_step or 1) * (plan.batch_size or 1))
        duration = self._total(name, self._time, lambda t: t.duration_s, samples, "s")
        if duration is None:
            return WholeRun()
        starts_held = record.n_starts / sum(t.samples for t in trials) * samples
        start_s = statistics.median(record.starts_s) if record.starts_s else 0.0
        further_s = start_s * max(0.0, plan.n_starts - starts_held) + (record.one_off_s or 0.0)
        accounting = self._accounting
        energy = self._total(name, self._energy, lambda t: t.energy_kwh, samples, "kWh")
        if energy is not None:  # what is added draws what the rest does
            energy = energy.times((1 + further_s / duration.point) * accounting.energy_factor, "kWh")
        duration = duration.plus(further_s)
        cost, _ = accounting.rates.cost(duration, energy, accounting.gpu_count)
        return WholeRun(duration, energy, accounting.rates.emissions(energy), cost)

    def _total(
        self, name: str, fit: RatioFit | None, value: Callable[[ArmTrial], float | None], samples: float, unit: str
    ) -> Estimate | None:
        logs = [math.log(v / t.samples) for t in self._trials[BASELINE] if (v := value(t)) is not None and v > 0]
        ratio = _ratio(fit, name)
        if len(logs) < 2 or (name != BASELINE and ratio is None):
            return None
        mean = statistics.fmean(logs)
        width = student_quantile((1 + LEVEL) / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        if ratio is not None:  # in logarithms the widths of a product add as those of independent numbers do
            mean += math.log(ratio.point)
            width = math.hypot(width, math.log(ratio.upper / ratio.lower) / 2)
        lower, point, upper = (samples * math.exp(mean + side * width) for side in (-1, 0, 1))
        return Estimate(point, lower, upper, LEVEL, unit, Kind.CONFIDENCE)


def _ratio(fit: RatioFit | None, name: str) -> Estimate | None:
    return None if fit is None else fit.ratios.get(name)


def _order(row: ComparisonRow) -> tuple[bool, bool, float]:
    ratio = row.energy_ratio or row.time_ratio
    return row.verdict is Verdict.NOT_RUN, ratio is None, 0.0 if ratio is None else ratio.point
