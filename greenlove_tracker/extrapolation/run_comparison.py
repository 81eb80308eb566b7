"""Logged runs compared: the ratios of what they took, with intervals, and what else differed between them.

The model is that of trials (``ratios.py``) without blocks, since nobody ran them in turns. If the runs of several
groups happen to alternate in time, a drift over their order is fitted too; if one group ran after the other, a drift
cannot be told from the difference between them, and none is fitted. With one run per group, nothing shows how much runs
vary: then the noise of the epochs is used, and for the rest the assumption that forecasts make.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

import numpy as np
from scipy import special
from statsmodels.stats.weightstats import CompareMeans

from greenlove_tracker.extrapolation.draws import SPREAD
from greenlove_tracker.extrapolation.ratios import RatioFit, fit_ratios, times_the_trials, verdict_of
from greenlove_tracker.extrapolation.regression import cold_epochs_of, variance_of_mean
from greenlove_tracker.logs.run import GOOD_ENDINGS, Run
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.text.format import count, plural
from greenlove_tracker.vocabulary.comparisons import ArmTrial, Comparison, ComparisonRow, Verdict, is_modelled
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import LEVEL, Estimate, Kind
from greenlove_tracker.vocabulary.records import COMPONENTS, EpochRecord, joined_methods
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_LEAST_WARM_EPOCHS = 3  # of a run: fewer show no noise of their own
_LEAST_KNOWN_SHARE = 0.5  # of a run's epochs; an interrupted one may lack the energy of an epoch
_MOST_RUNS = 1000  # of each group; more are not advised
# Assumptions on the relative variation between runs of one code:
_TAU = 0.02  # its median
_TAU_OF_FEW = 0.1  # likewise, where a run has too few epochs to show any noise
_MOST_TAU = 0.5  # its maximum
_SAME_LENGTH = 0.01  # runs whose lengths differ by less are of one length: a last batch may be dropped


Groups = Mapping[str, Sequence[Run]]
"""The finished trainings under each name, the oldest first; the first name is the baseline."""

Fitted = tuple[Mapping[str, Estimate], RatioFit | None]
"""Ratios by name, and the fit that gave them; of one run each there is none."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A quantity of a run: its total, and that of each epoch if known."""

    of_run: Callable[[Run], float | None]
    of_epoch: Callable[[EpochRecord], float | None]
    grows: bool = True  # with the length of the run


def peak_memory_gb(run: Run) -> float | None:
    """Return the peak of torch's tensors: on one GPU, else on the CPU in a step."""
    return run.amount("peak_gpu_memory_gb") or run.amount("peak_cpu_memory_gb")  # 0: torch used no GPU


QUANTITIES = {
    "duration_s": _Quantity(lambda run: run.summary.duration_s, lambda epoch: epoch.duration_s),
    "energy_kwh": _Quantity(lambda run: run.summary.energy_kwh, lambda epoch: epoch.energy.total_kwh),
    "emissions_kgco2e": _Quantity(lambda run: run.emissions_kgco2e, lambda epoch: epoch.energy.total_kwh),
    "cost_usd": _Quantity(lambda run: run.summary.cost_usd, lambda epoch: epoch.duration_s),
    "peak_memory_gb": _Quantity(peak_memory_gb, lambda epoch: None, grows=False),
}


def compare_runs(
    groups: Sequence[tuple[str, Sequence[Run]]],
    *,
    of_whole: bool = False,
    block_of: Callable[[Run], int] = lambda run: 0,
) -> Comparison:
    """Compare logged runs: the ratios of time, energy, CO2e, cost and peak memory to those of the first group.

    Args:
        groups: a name and its runs each; the first is the baseline. Only trainings that ended well are compared.
        of_whole: compare whole trainings whatever their length, for techniques that save by being shorter. Otherwise
            runs of different length are compared per sample (token, epoch, step), unless early stopping ended one.
        block_of: the block of a run: runs are compared within their block, such as trainings with one batch size, and
            the ratios are those of all blocks together.

    Returns:
        The comparison; its notes say which runs were left out, and what else differed.

    Raises:
        UsageError: if there is nothing to compare: one group, two of one name, or one without a finished training.
    """
    kept, left_out = _finished(groups)
    runs = sorted((run for group in kept.values() for run in group), key=lambda run: run.started_at)
    of_whole = of_whole or any(run.text("stopped_early_after") for run in runs)
    lengths, length_note = _lengths(kept, runs, of_whole=of_whole)
    trials = _trials(kept, runs, block_of)
    has_repeats = len(runs) > len(kept)

    def fitted(quantity: _Quantity) -> Fitted:
        def value(run: Run) -> float | None:
            whole = quantity.of_run(run)
            if whole is None or not quantity.grows:
                return whole
            return whole / lengths[id(run)]

        if not has_repeats:
            return dict(_assumed_ratios(kept, quantity, value)), None
        fit = fit_ratios(trials, lambda trial: value(runs[trial.position]), baseline=next(iter(kept)))
        return fit.ratios if fit else {}, fit

    on_gpu = {bool(run.amount("peak_gpu_memory_gb")) for run in runs}
    bases = {run.summary.cost_basis for run in runs}
    is_mixed = {"cost_usd": len(bases) > 1, "peak_memory_gb": len(on_gpu) > 1}
    of_all = [({}, None) if is_mixed.get(name) else fitted(quantity) for name, quantity in QUANTITIES.items()]
    baseline, *rows = [_compared(name, group, of_all) for name, group in kept.items()]
    residual_cv = None
    time_fit = of_all[0][1]
    if time_fit is not None:
        residual_cv = time_fit.residual_cv
    notes = []
    if not has_repeats:
        notes.append(
            "Of one run each nothing shows how much a run differs from the next of the same code: some 2% is "
            "assumed (10% of runs of under three steady epochs), and now and then far more. Three runs of each would "
            "show it",
        )
    notes += [*length_note, *left_out, *_differences(kept)]
    return Comparison(
        baseline=replace(baseline, verdict=Verdict.NO_DIFFERENCE, notes=()),
        rows=tuple(sorted(rows, key=_saving_order)),
        trials=tuple(trials),
        spent_s=math.fsum(trial.duration_s for trial in trials),
        residual_cv=residual_cv,
        energy_method=_methods(runs),
        notes=tuple(notes),
        is_of_runs=True,
    )


# -- Which runs --


def _finished(groups: Sequence[tuple[str, Sequence[Run]]]) -> tuple[dict[str, list[Run]], list[str]]:
    """Return the trainings that ended well, and say which runs were left out.

    Raises:
        UsageError: if a group has none, or if the groups are no comparison.
    """
    if len(groups) < 2:
        raise UsageError("a comparison needs two runs or directories of runs, the baseline first")
    if len(dict(groups)) < len(groups):
        raise UsageError("two groups of runs have one name: give each its own")
    kept = dict[str, list[Run]]()
    notes = list[str]()
    for name, runs in groups:
        reasons = [_reason_against(run) for run in runs]
        trainings = [run for run, reason in zip(runs, reasons, strict=True) if not reason]
        left_out = Counter(filter(None, reasons)).items()
        said = ", ".join(plural(number, noun) for noun, number in left_out) or "no run is there"
        if not trainings:
            raise UsageError(
                f"nothing of {name} can be compared: {said}. Give finished runs of whole trainings, as logged by "
                "greenlove run or a Tracker"
            )
        if left_out:
            notes.append(f"Of {name}, left out: {said}")
        kept[name] = sorted(trainings, key=lambda run: run.started_at)
    return kept, notes


def _reason_against(run: Run) -> str:
    """Return why a run cannot be compared, in the plural; empty if it can."""
    summary = run.summary
    if run.is_comparison:
        return "comparison"
    if run.is_exploration:
        return "exploration"
    if summary.status not in GOOD_ENDINGS or summary.exit_code:
        return "unfinished run"
    if summary.duration_s <= 0:
        return "empty run"
    return ""


# -- How long they were --


def _lengths(groups: Groups, runs: Sequence[Run], *, of_whole: bool) -> tuple[Mapping[int, float], list[str]]:
    """Return what to divide each run by, by its identity: 1 if all have one length; and a note if not."""
    whole = {id(run): 1.0 for run in runs}
    for unit in ("samples", "tokens", "epochs", "steps"):  # what a technique changes least comes first
        counted = [run.summary.epochs_done if unit == "epochs" else getattr(run.summary.counts, unit) for run in runs]
        known = {id(run): float(n) for run, n in zip(runs, counted, strict=True) if n}
        if len(known) < len(runs):
            continue
        if max(known.values()) <= min(known.values()) * (1 + _SAME_LENGTH):
            return whole, []
        lengths = _by_group(groups, lambda run: count(known[id(run)]))  # noqa: B023  # called at once
        if of_whole:
            return whole, [
                f"The trainings differ in length ({lengths} {unit}): a shorter one saves by being shorter, and the "
                "ratios are of whole trainings"
            ]
        return known, [f"The runs differ in length ({lengths} {unit}): all ratios but memory's are of one {unit[:-1]}"]
    return whole, ["How long each run was is not known, so whole runs are compared: are they equally long?"]


# -- The fit --


def _trials(groups: Groups, runs: Sequence[Run], block_of: Callable[[Run], int]) -> list[ArmTrial]:
    """Return each run as a trial, in the order in which they began."""
    names = {id(run): name for name, group in groups.items() for run in group}
    starts_s = [utc_s(run.started_at) for run in runs]
    first_s = starts_s[0] or 0.0
    trials = []
    for position, run in enumerate(runs):
        summary = run.summary
        started_s = starts_s[position] or first_s
        peak_bytes = None
        peak_gb = peak_memory_gb(run)
        if peak_gb is not None:
            peak_bytes = round(peak_gb * BYTES_PER_GB)
        trials.append(
            ArmTrial(
                arm=names[id(run)],
                block=block_of(run),
                position=position,
                started_s=started_s - first_s,
                duration_s=summary.duration_s,
                samples=summary.counts.samples or 1,
                energy_kwh=summary.energy_kwh,
                energy_method=_methods([run]),
                peak_memory_bytes=peak_bytes,
            )
        )
    return trials


def _methods(runs: Sequence[Run]) -> str:
    """Return how the energy of runs was obtained, as in the log."""
    return joined_methods(run.summary.energy.component_method(c) for run in runs for c in COMPONENTS) or ""


def _assumed_ratios(
    groups: Groups, quantity: _Quantity, value: Callable[[Run], float | None]
) -> Iterator[tuple[str, Estimate]]:
    """Yield the ratios of single runs, with an assumed variation between runs beside the noise of their epochs.

    The difference of logarithms of two runs has the variance v₁ + v₂ + 2τ²: v is that of a run's mean epoch, from the
    noise of its warm epochs, and τ the variation between runs. Single runs do not show τ, so it has a half-Cauchy prior
    (Gelman, Bayesian Analysis 1(3), 2006). Where a run has too few epochs to show v, a wider prior stands for it.
    This holds for times and energies: the ratio of two peaks of memory has no interval.
    """
    (_, (baseline,)), *others = groups.items()
    some = SPREAD[8::16]
    normal = special.ndtri(some)
    for name, (run,) in others:
        before = value(baseline)
        after = value(run)
        if not before or not after:
            continue
        ratio = after / before
        level = 0.0
        lower = upper = ratio
        if quantity.grows:
            within = [_variance_within(baseline, quantity), _variance_within(run, quantity)]
            tau = _TAU_OF_FEW if None in within else _TAU
            taus = tau * np.tan(math.atan(_MOST_TAU / tau) * some)[:, None]
            differences = np.sqrt(math.fsum(filter(None, within)) + 2 * taus**2) * normal
            level = LEVEL
            lower, upper = (ratio * np.exp(np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))).tolist()
        yield name, Estimate(ratio, lower, upper, level, "1", Kind.ASSUMPTION)


def _variance_within(run: Run, quantity: _Quantity) -> float | None:
    """Return the relative variance of a run from the noise of its epochs; None if too few are known."""
    epochs = [quantity.of_epoch(epoch) or 0.0 for epoch in run.epochs if epoch.is_complete]
    known = [x for x in epochs if x]
    if len(known) < max(_LEAST_WARM_EPOCHS, _LEAST_KNOWN_SHARE * len(epochs)):
        return None
    warm = known[cold_epochs_of([known])[0] :]
    if len(warm) >= _LEAST_WARM_EPOCHS:
        return variance_of_mean(warm)
    return None


def difference_of_means(values: Sequence[float], baseline: Sequence[float]) -> Estimate | None:
    """Return the difference of two means with Welch's t interval; without one where nothing shows how each varies."""
    if not (values and baseline):
        return None
    difference = fmean(values) - fmean(baseline)
    lower = upper = difference
    level = 0.0
    if len(set(values)) + len(set(baseline)) > 2 and min(len(values), len(baseline)) > 1:
        level = LEVEL
        lower, upper = CompareMeans.from_data(values, baseline).tconfint_diff(1 - LEVEL, usevar="unequal")
    return Estimate(difference, lower, upper, level, "1", Kind.CONFIDENCE)


# -- What is said --


def _compared(name: str, runs: Sequence[Run], of_all: Sequence[Fitted]) -> ComparisonRow:
    """Return the row of a group from the fits to time, energy, CO2e, cost and memory."""
    time, energy, emissions, cost, memory = (ratios.get(name) for ratios, _ in of_all)
    n = len(runs)
    verdict = verdict_of(time)
    fit = of_all[0][1]
    if energy is not None and not is_modelled(_methods(runs)):  # it was counted
        verdict = verdict_of(energy)
        fit = of_all[1][1]
    notes = []
    if time is None:
        notes.append("How much its time varies is not known: run it three times, and the baseline too")
    elif verdict is Verdict.TOO_SHORT and fit is not None:
        needed = n * times_the_trials(fit, name)
        if needed <= _MOST_RUNS:
            notes.append(f"Too few runs to tell: about {max(n + 1, math.ceil(needed))} of each would")
        else:
            notes.append("The runs differ too much among themselves: no practical number of runs would tell")
    totals = [run.summary for run in runs]
    duration_s_per_sample = None
    if all(total.counts.samples for total in totals):
        duration_s_per_sample = geometric_mean(total.duration_s / (total.counts.samples or 1) for total in totals)
    return ComparisonRow(
        name,
        verdict,
        time_ratio=time,
        energy_ratio=energy,
        co2e_ratio=emissions,
        cost_ratio=cost,
        memory_ratio=memory,
        n_trials=n,
        duration_s_per_sample=duration_s_per_sample,
        peak_memory_gb=max(filter(None, map(peak_memory_gb, runs)), default=None),
        notes=tuple(notes),
    )


def _saving_order(row: ComparisonRow) -> float:
    """Order rows by what they save; rows without a ratio come last."""
    ratio = row.energy_ratio or row.time_ratio
    if ratio is None:
        return math.inf
    return ratio.point


def _differences(groups: Groups) -> Iterator[str]:
    """Yield what else differed between the runs; the ratios contain its effect."""
    for text_of, what, effect in _CIRCUMSTANCES:
        if len({text_of(run) for group in groups.values() for run in group}) > 1:
            yield f"The runs had {what} ({_by_group(groups, text_of)}): {effect}"


def _by_group(groups: Groups, text_of: Callable[[Run], str]) -> str:
    """Write what the runs of each group had, by the name of the group."""
    return "; ".join(
        f"{name}: {', '.join(sorted({text_of(run) or 'not known' for run in group}))}" for name, group in groups.items()
    )


def _batch_size(run: Run) -> str:
    """Return the batch size of a run; else the mean of its batches, of which the last may be smaller."""
    counts = run.summary.counts
    stated = run.text("batch_size")
    if stated or not counts.samples or not counts.batches:
        return stated
    return f"{counts.samples / counts.batches:.0f}"


_BOTH = "the ratios include its effect"
_CIRCUMSTANCES: tuple[tuple[Callable[[Run], str], str, str], ...] = (
    (lambda run: run.text("gpu_models") or plural(run.summary.gpu_count, "GPU"), "other GPUs", _BOTH),
    (lambda run: run.text("cpu_model"), "other CPUs", _BOTH),
    (lambda run: str(run.summary.n_ranks), "other numbers of processes", _BOTH),
    (_batch_size, "other batch sizes", "that changes what the model learns, and the ratios include its effect"),
    (
        lambda run: _methods([run]),
        "energy from other methods",
        "the ratio includes what one counts and another does not",
    ),
    (lambda run: f"{run.summary.pue:g}", "another PUE", "the ratios of energy, CO2e and cost include it"),
    (
        lambda run: f"{run.carbon_intensity.value:.0f} gCO2e/kWh" if run.knows_carbon_intensity else "",
        "another carbon intensity",
        "the ratio of CO2e includes the grid's effect",
    ),
    (lambda run: run.summary.cost_basis, "costs on another basis", "they are not compared"),
)
