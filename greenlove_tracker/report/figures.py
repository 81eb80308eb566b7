"""The key figures of a run or of several, each with how it was obtained; the terminal and the PDF show these."""

from __future__ import annotations

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.judged import gpu_mean_w
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import COMPONENTS, EpochRecord, Flag
from greenlove_tracker.report import wording
from greenlove_tracker.report.document import KeyFigure
from greenlove_tracker.report.scale import energy_scale

_ALIKE = 1.1  # epochs that differ by no more than this are given as "n × duration"


def run_figures(run: Run) -> tuple[KeyFigure, ...]:
    """Time, energy, CO2e, cost and GPU-hours of a run."""
    return (_time(run), _energy(run), _emissions(run), _cost(run), _compute(run))


def _time(run: Run) -> KeyFigure:
    summary = run.summary
    if not summary.duration_s:
        return KeyFigure("time", fmt.UNKNOWN, (wording.NOTHING_RECORDED,))
    if is_exploration(run.fields):
        return KeyFigure("time", fmt.duration(summary.duration_s), ("trials, and preparations between them",))
    if not run.epochs and summary.epochs_planned is None:
        return KeyFigure("time", fmt.duration(summary.duration_s), ("the whole script; no epochs were marked in it",))
    parts = [_epochs_text([epoch.duration_s for epoch in run.epochs if epoch.is_complete])]
    cut_off = [epoch for epoch in run.epochs if not epoch.is_complete]
    if cut_off:
        parts[0] += f", {fmt.duration(sum(_durations(cut_off)))} of an unfinished one"
    if summary.between_s > 0:
        parts[0] += f", and {fmt.duration(summary.between_s)} outside epochs (loading, validation, saving)"
    if summary.n_ranks > 1:
        parts.append(f"the slowest of {summary.n_ranks} ranks")
    return KeyFigure("time", fmt.duration(summary.duration_s), tuple(parts))


def _durations(epochs: list[EpochRecord]) -> list[float]:
    return [epoch.duration_s for epoch in epochs]


def _epochs_text(durations_s: list[float]) -> str:
    if not durations_s:
        return "no epoch was finished"
    mean_s = sum(durations_s) / len(durations_s)
    if max(durations_s) <= _ALIKE * min(durations_s):
        return f"{len(durations_s):,} × {fmt.duration(mean_s)}"
    span = f"{fmt.duration(min(durations_s))} to {fmt.duration(max(durations_s))}"
    return f"{len(durations_s):,} epochs of {span}, mean {fmt.duration(mean_s)}"


def _energy(run: Run) -> KeyFigure:
    summary = run.summary
    if summary.energy_kwh is None:
        return KeyFigure("energy", fmt.UNKNOWN, (wording.why_no_energy(run),))
    scale = energy_scale(summary.energy_kwh)
    parts = []
    for component in sorted(COMPONENTS, key=("gpu", "cpu", "ram").index):
        energy_kwh = summary.energy.component_kwh(component)
        if energy_kwh is not None:
            constant_w = wording.data(run, "ram_w", 12) if component == "ram" else ""
            tdp_w = wording.data(run, "cpu_tdp_w", 12) if component == "cpu" else ""
            method = wording.method(summary.energy.component_method(component), constant_w, tdp_w)
            parts.append(f"{component} {scale.text(energy_kwh)} {method}")
    if summary.unmetered_estimate_kwh:
        parts.append(f"{scale.text(summary.unmetered_estimate_kwh)} estimated for {unmetered_text(run)}")
    return KeyFigure("energy", fmt.energy(summary.energy_kwh), (*parts, f"PUE {summary.pue}"))


def unmetered_text(run: Run) -> str:
    """``1.30 s before the meter was up``: the time that an estimate stands for."""
    unmetered_s = max(0.0, run.summary.duration_s - run.summary.metered_s)
    only_at_start = Flag.METER_STARTING in run.summary.flags and not (
        run.summary.flags & {Flag.METER_FAILED, Flag.GPU_UNREAD}
    )
    return f"{fmt.duration(unmetered_s)} {'before the meter was up' if only_at_start else 'that was not metered'}"


def _emissions(run: Run) -> KeyFigure:
    if not run.knows_carbon_intensity:
        return KeyFigure("CO2e", fmt.UNKNOWN, ("no carbon intensity in the log",))
    value = wording.emissions_kgco2e(run)
    how = () if value is not None else ("the energy is unknown",)
    return KeyFigure("CO2e", fmt.mass(value), (*how, wording.intensity(run.carbon_intensity)))


def _cost(run: Run) -> KeyFigure:
    summary, price = run.summary, run.electricity_price
    if summary.cost_usd is None:
        return KeyFigure("cost", fmt.UNKNOWN, (wording.why_no_cost(run),))
    if summary.cost_basis == "machine":
        per_hour = run.terms.price_usd_per_gpu_hour
        how = f"machine at {fmt.significant(per_hour or 0.0)} $ per GPU-hour, as set; electricity not added"
    else:
        details = (price.basis, price.year) if price else ()
        what = ", ".join(t for t in (fmt.shortened(d, 30) for d in details) if t)
        no_machine = (
            "no machine price set" if run.terms.price_usd_per_gpu_hour is None else "the GPU-hour price found no GPU"
        )
        how = f"electricity at {fmt.significant(price.value if price else 0.0)} $/kWh, {what}; {no_machine}"
    return KeyFigure("cost", fmt.money(summary.cost_usd), (how,))


def _compute(run: Run) -> KeyFigure:
    if not run.text("gpu_count"):
        return KeyFigure("compute", fmt.UNKNOWN, ("the log does not say how many GPUs there were",))
    if not run.summary.gpu_count:
        return KeyFigure("compute", "no GPU", ("none was found, or none is read",))
    parts = [wording.data(run, "gpu_models", 60) or fmt.plural(run.summary.gpu_count, "GPU")]
    mean_w = gpu_mean_w(run)
    limit = wording.data(run, "gpu_power_limit_w", 12)
    if mean_w is not None:
        parts.append(f"mean {fmt.power(mean_w)}" + (f" of {limit} W" if limit else ""))
    if peak := wording.data(run, "peak_gpu_memory_gb", 12):
        parts.append(f"peak memory {peak} GB")
    return KeyFigure("compute", gpu_hours(run.summary.gpu_hours), (", ".join(parts),))


def gpu_hours(value_h: float | None) -> str:
    """GPU-hours as text."""
    if value_h is None:
        return fmt.UNKNOWN
    return f"{fmt.significant(value_h, 3 if value_h >= 1 else 2)} GPU-h"
