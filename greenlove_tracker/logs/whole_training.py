"""All runs of one training as one: of a training that was interrupted and gone on with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from greenlove_tracker.logs.lost_work import utc_s
from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import amount
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Counts, Field, RunSummary, sum_energies
from greenlove_tracker.units import GRAMS_PER_KG


def whole_training(runs: Sequence[Run]) -> Run:
    """Return the runs of one training as one run; a single one is returned as it is.

    Times, energies, emissions, costs and waits are sums over all of them, lost work included, without the time that
    lay between them; peaks of memory are the highest. Model quality, and how far it came, is what the last run
    stands on: values of work that was lost are left out. Everything else is as the last run has it.

    Args:
        runs: that the training took, begun anew or gone on with; at least one.
    """
    parts = sorted(runs, key=lambda run: run.started_at)
    first, last = parts[0], parts[-1]
    if first is last:
        return last
    metrics = _lasting_metrics(parts)
    ranks = sorted({rank for run in parts for rank in run.rows})
    rows = {rank: [row for run in parts for row in run.rows.get(rank, ())] for rank in ranks}
    fields, summary = _joined_fields(parts), _joined_summary(parts, metrics)
    return Run.from_memory(last.path, fields, rows, summary, parts=tuple(parts), metric_values=metrics)


_SUMMED = ("wait_s",)
_HIGHEST = ("peak_memory_gb", "peak_gpu_memory_gb")
_OF_FIRST = (
    "started_at",
    "continues",
    "first_epoch",
    "first_step",
    "wait_reason",
    "intensity_at_request_gco2e_per_kwh",
    "intensity_at_start_gco2e_per_kwh",
)


def _joined_fields(parts: Sequence[Run]) -> dict[str, Field]:
    first, last = parts[0], parts[-1]
    fields = dict(last.fields)
    fields.pop("intensity_sources", None)  # its rows name those of all
    for name in _OF_FIRST:
        fields.pop(name, None)
        if name in first.fields:
            fields[name] = first.fields[name]
    for several, joined in ((_SUMMED, math.fsum), (_HIGHEST, max)):
        for name in several:
            found = [field for run in parts if (field := run.fields.get(name)) is not None]
            values = [value for field in found if (value := _number(field.value)) is not None]
            if values:
                fields[name] = Field(name, f"{joined(values):g}", found[-1].unit)
    for name, done, before in (
        ("epochs_planned", last.first_epoch, first.first_epoch),
        ("total_steps_planned", last.first_step, first.first_step),
    ):
        rest = last.text(name)
        if rest.isdecimal():
            fields[name] = Field(name, str(done - before + int(rest)))
        elif name in first.fields:  # nothing was left to do for the last one
            fields[name] = first.fields[name]
    return fields


def _joined_summary(parts: Sequence[Run], metrics: Mapping[int, Sequence[MetricRecord]]) -> RunSummary:
    first, last = parts[0], parts[-1]
    each = [run.summary for run in parts]
    energy_kwh = _with_unmetered(each, "energy_kwh")
    emissions_kgco2e = _with_unmetered(each, "emissions_kgco2e")
    before_pue = [s.before_pue_kwh for s in each]
    unmetered_kwh = None
    if (whole_kwh := _with_unmetered(each, "before_pue_kwh")) is not None:
        estimates = [s.unmetered_estimate_kwh for s in each if s.unmetered_estimate_kwh is not None]
        estimates.append(whole_kwh - math.fsum(kwh for kwh in before_pue if kwh is not None))
        unmetered_kwh = math.fsum(estimates) or None
    planned = last.summary.epochs_planned
    measured = [s.measured_kwh for s in each if s.measured_kwh is not None]
    intensity = last.summary.carbon_intensity_gco2e_per_kwh
    return replace(
        last.summary,
        started_at=first.summary.started_at,
        epochs_done=last.first_epoch - first.first_epoch + last.summary.epochs_done,
        epochs_planned=(
            first.summary.epochs_planned if planned is None else last.first_epoch - first.first_epoch + planned
        ),
        counts=sum((s.counts for s in each), Counts()),
        duration_s=math.fsum(s.duration_s for s in each),
        epochs_duration_s=math.fsum(s.epochs_duration_s for s in each),
        metered_s=math.fsum(s.metered_s for s in each),
        energy=sum_energies(s.energy for s in each),
        measured_kwh=math.fsum(measured) if measured else None,
        unmetered_estimate_kwh=unmetered_kwh,
        energy_kwh=energy_kwh,
        carbon_intensity_gco2e_per_kwh=(
            intensity if emissions_kgco2e is None or not energy_kwh else emissions_kgco2e / energy_kwh * GRAMS_PER_KG
        ),
        emissions_kgco2e=emissions_kgco2e,
        cost_usd=_with_unmetered(each, "cost_usd"),
        gpu_hours=math.fsum(s.gpu_hours for s in each),
        flags=frozenset[str]().union(*(s.flags for s in each)),
        node_assumed_kwh=math.fsum(s.node_assumed_kwh or 0.0 for s in each) or None,
        metrics=summarise_metrics(metrics),
    )


def _with_unmetered(each: Sequence[RunSummary], quantity: str) -> float | None:
    """Return the sum of a quantity; of runs without it at its mean over the time of the others, as within a run."""
    known = [(s.duration_s, value) for s in each if (value := getattr(s, quantity)) is not None]
    known_s = math.fsum(duration_s for duration_s, _ in known)
    if not known or known_s <= 0:
        return None
    return math.fsum(value for _, value in known) * (math.fsum(s.duration_s for s in each) / known_s)


def _lasting_metrics(parts: Sequence[Run]) -> dict[int, Sequence[MetricRecord]]:
    """Return the values that runs logged of work that lasts, as if no time had lain between the runs."""
    ranks = sorted({rank for run in parts for rank in run.metric_values})
    found: dict[int, list[MetricRecord]] = {rank: [] for rank in ranks}
    began_s, passed_s = utc_s(parts[0].started_at), 0.0
    for at, run in enumerate(parts):
        own_s = utc_s(run.started_at)
        earlier_s = 0.0 if began_s is None or own_s is None else own_s - began_s - passed_s
        for rank in ranks:
            for record in run.metric_values.get(rank, ()):
                moved = replace(
                    record,
                    logged_at=_earlier(record.logged_at, earlier_s),
                    steps_done=run.first_step - parts[0].first_step + record.steps_done,
                )
                if all(_lasts(record, run, later) for later in parts[at + 1 :]):
                    found[rank].append(moved)
        passed_s += run.summary.duration_s
    return {rank: tuple(records) for rank, records in found.items()}


def _lasts(record: MetricRecord, run: Run, later: Run) -> bool:
    """Return True where a later run stands on the work that a value is of."""
    if later.first_step and (run.first_step + record.steps_done):
        return run.first_step + record.steps_done <= later.first_step
    return (record.epoch or 0) <= later.first_epoch and later.first_epoch > 0


def _earlier(logged_at: str, seconds: float) -> str:
    at_s = utc_s(logged_at)
    return logged_at if at_s is None else timestamp(at_s - seconds)


def _number(text: str) -> float | None:
    try:
        return amount(text)
    except ValueError:
        return None
