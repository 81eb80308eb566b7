"""The runs of one training, which was interrupted and gone on with, as one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.run import Run, count_in
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.logs.totals import summarise

_WAIT = ("wait_s", "wait_reason", "intensity_at_request_gco2e_per_kwh", "intensity_at_start_gco2e_per_kwh")
_OF_FIRST = ("started_at", "continues", "first_epoch", "first_step", *_WAIT)


def whole_training(runs: Sequence[Run]) -> Run:
    """Return the runs of one training as one run; a single one is returned as it is.

    Times, energies, emissions and costs are those of all their rows, lost work included, without the time that lay
    between them. Model quality, and how far it came, is what the last run stands on: values of work that was lost are
    left out. Everything else is as the last run has it.

    Args:
        runs: that the training took, begun anew or gone on with; at least one.
    """
    parts = sorted(runs, key=lambda run: run.started_at)
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    last = parts[-1]
    lines = {name: line for name, line in last.lines.items() if name not in (*_OF_FIRST, "intensity_sources")}
    lines |= {name: first.lines[name] for name in _OF_FIRST if name in first.lines}
    done_epochs = last.first_epoch - first.first_epoch
    done_steps = last.first_step - first.first_step
    for name, done in (("epochs_planned", done_epochs), ("total_steps_planned", done_steps)):
        rest = count_in(last.lines, name)
        if rest is not None:
            lines[name] = (str(done + rest), "")
        elif name in first.lines:  # nothing was left to do for the last one
            lines[name] = first.lines[name]
    for name in ("peak_gpu_memory_gb", "peak_cpu_memory_gb"):
        peaks = list(filter(None, (run.amount(name) for run in parts)))
        if peaks:
            lines[name] = (f"{max(peaks):.6g}", "GiB")
    ranks = sorted({rank for run in parts for rank in run.rows})
    rows = {rank: [row for run in parts for row in run.rows.get(rank, ())] for rank in ranks}
    summary = summarise(last.terms, rows, last.ending, gpu_count=last.summary.gpu_count)
    metrics = _lasting_metrics(parts)
    summary = replace(
        summary,
        started_at=first.summary.started_at,
        epochs_done=done_epochs + last.summary.epochs_done,
        epochs_planned=count_in(lines, "epochs_planned"),
        metrics=summarise_metrics(metrics),
    )
    return Run(
        last.path,
        lines=lines,
        own_lines=lines,
        rows=rows,
        command_rows=None,
        metric_values=metrics,
        metered_summary=summary,
        stated=None,
        trials=(),
        forecasts=(),
        parts=tuple(parts),
    )


def _lasting_metrics(parts: Sequence[Run]) -> dict[int, Sequence[MetricRecord]]:
    """Return the values that runs logged of work that lasts."""
    found: dict[int, list[MetricRecord]] = {}
    for at, run in enumerate(parts):
        n_steps = run.first_step - parts[0].first_step
        for rank, records in run.metric_values.items():
            lasting = [r for r in records if all(_lasts(r, run, later) for later in parts[at + 1 :])]
            found.setdefault(rank, []).extend(replace(r, steps_done=r.steps_done + n_steps) for r in lasting)
    return {rank: tuple(records) for rank, records in sorted(found.items())}


def _lasts(record: MetricRecord, run: Run, later: Run) -> bool:
    """Return True where a later run stands on the work that a value is of."""
    steps = run.first_step + record.steps_done
    if steps and later.first_step:
        return steps <= later.first_step
    return (record.epoch or 0) <= later.first_epoch and later.first_epoch > 0
