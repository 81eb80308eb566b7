"""Write ``docs/reference/log.md``: the meaning of each column, field and value of the log directory.

python docs/write_log_reference.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.checkpoints import CHECKPOINT_COLUMNS
from greenlove_tracker.logs.comparisons import COMPARISON_COLUMNS, COMPARISON_TRIAL_COLUMNS
from greenlove_tracker.logs.forecasts import FORECAST_COLUMNS
from greenlove_tracker.logs.metrics import METRIC_COLUMNS
from greenlove_tracker.logs.schema import EPOCH_COLUMNS, RATE_COLUMNS, SCHEMA_VERSION, flat_columns
from greenlove_tracker.logs.spans import SPAN_COLUMNS, SpanFlag
from greenlove_tracker.records import Flag, Method, RowKind, RunStatus, RunSummary
from greenlove_tracker.workloads import PRECISIONS, WORKLOADS

_COMPONENT = {"cpu": "CPU", "gpu": "all GPUs together", "ram": "memory"}

COLUMNS = {
    "kind": "what the row stands for, see below",
    "epoch": "number of the epoch in the training, from 1; empty in `gap` and `tail` rows",
    "started_at": "UTC, ISO 8601: where the epoch or segment began (`gap` and `tail`: where the gap began)",
    "gap_before_s": "time between the row before and this one: loading, validation, checkpoints",
    "gap_before_kwh": "energy of that time, the sum of the three that follow",
    "duration_s": "time of the epoch or segment itself; 0 in `gap` and `tail` rows",
    "steps": "optimizer steps, as told by `step()`",
    "batches": "batches, as told by `step()`",
    "samples": "samples of this rank, as told by `step(n_samples=…)`",
    "tokens": "tokens of this rank, as told by `step(n_tokens=…)`",
    "energy_kwh": "energy of the duration, the sum of the three that follow, as metered, before PUE",
    "emissions_gco2e": "of the duration: energy × PUE × carbon intensity",
    "flags": "what spoils the row, separated by spaces, see below",
    **{f"{c}_kwh": f"energy of {what}" for c, what in _COMPONENT.items()},
    **{f"{c}_method": f"how the energy of {what} was obtained, see below" for c, what in _COMPONENT.items()},
    **{f"gap_before_{c}_kwh": f"energy of {what} in the gap" for c, what in _COMPONENT.items()},
    **{f"gap_before_{c}_method": f"how the gap's energy of {what} was obtained" for c, what in _COMPONENT.items()},
}

FORECASTS = {
    "issued_at": "UTC, ISO 8601",
    "elapsed_s": "time since the start of the run",
    "epochs_done": "epochs done by then",
    "steps_done": "optimizer steps done by then",
    "planned": "epochs that the run is to do, or steps where it counts in steps",
    "method": "`live`: from the run itself; `wls` or `green-love`: from an exploration, before the first epoch",
    "level": "of the intervals",
    "duration_s": "wall time of the whole run, done and remaining",
    "energy_kwh": "its energy, with PUE, and with what `node_overhead` assumes",
    "emissions_kgco2e": "its emissions; the carbon intensity's own error is not in the interval",
    "cost_usd": "its cost: of the machine where its price is set, else of electricity",
    **{
        f"{q}_{end}_{unit}": f"{end} end of the interval of `{q}_{unit}`"
        for end in ("lower", "upper")
        for q, unit in (("duration", "s"), ("energy", "kwh"), ("emissions", "kgco2e"), ("cost", "usd"))
    },
    "duration_p99_s": "the time that is exceeded with a probability of 1%",
    "warnings": "names of what makes the forecast worse, separated by spaces",
    "stop_epochs": "the number of the epoch with which early stopping is expected to end the run, the median; empty "
    "without a rule",
    "stop_lower_epochs": "lower end of its interval",
    "stop_upper_epochs": "upper end of its interval",
}

SPANS = {
    "name": "of the span, as given to `track`",
    "path": "the names of the spans that it lies in and its own, joined by ` > `; recursion lengthens none",
    "is_nested": "`yes` or `no`: it lies in another",
    "calls": "that ended since the row before of this path: 0 where a span of over a minute goes on",
    "failed": "of them, those that an exception ended",
    "started_at": "UTC, ISO 8601: where the time of the row begins",
    "duration_s": "time in the span, with that of the spans within it",
    "own_s": "time without that of the spans within it: these add up (on several threads, to more than the run)",
    "energy_kwh": "energy of `own_s`, the sum of the three that follow, as metered, before PUE: all rows add up to "
    "that of all spans, each counted once; that of a span is the sum over its path and all that begin with it",
    **{f"{c}_kwh": f"energy of {what}" for c, what in _COMPONENT.items()},
    **{f"{c}_method": f"how the energy of {what} was obtained, see below" for c, what in _COMPONENT.items()},
    "emissions_gco2e": "of that energy: × PUE × carbon intensity",
    "flags": "what is to be known of the row, separated by spaces, see below",
}

RATES = {
    "carbon_intensity_gco2e_per_kwh": "that was in force, mean over the time of the gap and the row; the row's "
    "energies count with it",
    "carbon_intensity_source": "who gave it, measured, estimated or forecast, direct or lifecycle, how old it was when "
    "it was asked for, and why it stands in for what was asked for: `neso measured direct, 12 min old`, "
    "`table lifecycle (fallback: neso: it did not answer)`, `mock`; several with `;` between them",
    "electricity_price_usd_per_kwh": "of a tariff, mean over the same time; empty where the tariff does not say",
}

METRICS = {
    "logged_at": "UTC, ISO 8601",
    "epoch": "that was open then, or the last one before; empty before the first",
    "steps_done": "optimizer steps done by then",
    "name": "of the metric",
    "value": "as it was given; `nan`, `inf` and `-inf` too",
    "higher_is_better": "`yes` or `no`, as `log_metric(higher_is_better=…)` said; empty: the name tells, or nothing",
}

CHECKPOINTS = {
    "action": "`saved`, `failed` (the one before stays), `skipped` (the one before was still being written), "
    "`restored` "
    "(this run goes on from it), `damaged` (it was passed over), `noticed` (the job or the machine is about to end)",
    "at": "UTC, ISO 8601: of a save when its state was taken, of a restore when the replay was done",
    "kind": "`regular`, `best`, `emergency` or `final`; empty for a notice",
    "epoch": "whole epochs that were done, of the whole training",
    "batches": "that were done of the next epoch, on one rank",
    "steps": "batches that were done in all, on one rank",
    "name": "of the checkpoint, in its directory",
    "size_bytes": "of all its files",
    "blocked_s": "for which the training stood still; of a restore, reading and checking",
    "written_s": "for which it was written on a thread of its own; empty where the training waited for all of it",
    "replay_s": "of a restore: fetching and dropping the batches that were done",
    "replayed_batches": "as many of them",
    "from_run": "of a restore: the run that wrote the checkpoint",
    "saved_at": "of a restore: when the checkpoint's state was taken",
    "is_bit_identical": "`yes` where a resume goes on as if nothing had happened, bit for bit; empty for a notice",
    "note": "who gave the notice, why something failed, why a resume is not bit-identical",
}

SUMMARY = {
    "run_id": "the directory's name",
    "project": "as given",
    "status": "how the run ended, see below",
    "exit_code": "of the process, where it is known",
    "started_at": "UTC, ISO 8601",
    "ended_at": "UTC, ISO 8601",
    "epochs_done": "epochs that ran to their end",
    "epochs_planned": "as given, less those that were done before the run",
    "duration_s": "wall time of the whole run",
    "epochs_duration_s": "of it, inside epochs",
    "metered_s": "of it, while every known component was metered",
    "measured_kwh": "the part of the metered energy that counters and sampled power gave; the rest is modelled",
    "unmetered_estimate_kwh": "estimate for the time that was not metered, at the mean power of the time that was",
    "pue": "power usage effectiveness",
    "energy_kwh": "(metered energy + estimate + assumed) × PUE",
    "carbon_intensity_gco2e_per_kwh": "as in `run.csv`, where its source stands; of a run whose rows have their own, "
    "its mean over the energy",
    "emissions_kgco2e": "energy × carbon intensity",
    "cost_usd": "see `cost_basis`",
    "cost_basis": "`machine`: price per GPU-hour × GPUs × time; `electricity`: price × energy; empty: no price known",
    "gpu_count": "GPUs of all nodes",
    "gpu_hours": "GPUs × wall time",
    "n_ranks": "processes that wrote rows",
    "n_nodes": "of them, those that carry a meter",
    "flags": "all flags of all rows",
    "node_assumed_kwh": "what `node_overhead` adds for the rest of the node, an assumption; not in older logs",
    **{name: COLUMNS[name] for name in ("steps", "batches", "samples", "tokens")},
    **{f"{c}_kwh": f"metered energy of {what}, before PUE" for c, what in _COMPONENT.items()},
    **{f"{c}_method": f"how the energy of {what} was obtained" for c, what in _COMPONENT.items()},
}

RUN = {
    "schema_version, greenlove_version": "of what wrote the run",
    "run_id, project, tags, started_at": "who it is",
    "command": "the command line, its secrets masked (`MASKED`); not where `log_command` is off",
    "host, pid, python, os, git_commit": "what ran, and where",
    "user": "only where `log_user` is set",
    "rank, world_size": "of the process that wrote the file; further ones write `run-<n>.csv`",
    "role": "`joined`: another process measures this run; the rows of `epochs-<n>.csv` count for no energy or time",
    "closed": "last line of a `run-<n>.csv`: its process has written all that it will",
    "epochs_planned, total_steps_planned": "as given, less what was done before the run",
    "plan_source": "where that is from, of a script that does not say it: its own argument, or `--epochs`",
    "loops_seen": "in a script: `epochs`, `steps`, `no steps` of PyTorch, `no torch`, or `unseen:` and what was loaded "
    "that shows no epochs (`spawn`: processes; `fastai`, `keras`, `lightgbm`, `xgboost`, `jax`, `sklearn`); of a "
    "command after `--`: `not looked for`",
    "first_epoch, first_step": "what was done before, where the run resumes; the rows have the epochs' true numbers",
    "phases": "of the plan, as in a configuration file: steps × tokens of a step, `505x131072 505x262144`",
    "epochs_before_pred, monitor_epochs": "as given, where they are not the default",
    "stopping_rule": "the rule that may end the training early: its metric, and what differs from the usual",
    "stopped_early_after": "the number of the epoch with which it did",
    "best_epoch": "the number of the epoch whose value of the metric was the best by then",
    "plan_stop": "of an exploration: epochs and their probabilities, where early stopping may end the training",
    "continues": "the run that this one resumes; its speed is expected of this one until it says more",
    "time_limit_s, time_limit_source": "the earliest of deadline, `max_hours` and end of the Slurm job, from the start",
    "wait_s, wait_reason": "time waited before the run (`greenlove wait`, `greenlove run --start`); why that ended",
    "intensity_at_request_gco2e_per_kwh, intensity_at_start_gco2e_per_kwh": "the grid's when that wait began and "
    "ended, where it was known",
    "part_of": "the run of `greenlove run` whose script made this one's tracker; neither holds anything of the other",
    "has_parts": "`yes`: such runs lie beside this one, which is what lay outside them",
    "job_id, array_job_id, array_task_id, account, partition, cluster": "from `SLURM_*` or `GREENLOVE_JOB_*`",
    "country": "as given; empty: the world's average",
    "pue, price_usd_per_gpu_hour, is_rented": "as set",
    "node_overhead": "an assumption, where it was set: what a node draws, in what its GPUs do; in no row",
    "market_intensity": "of the contract, where it was given; with `.source` and `.basis` as below",
    "carbon_intensity, electricity_price": "value and unit; with `.source`, `.year`, `.basis`, `.table_sha256`",
    "intensity_order": "with `intensity`: the services that were asked, in order; `carbon_intensity` is then what "
    "counts where none answers",
    "intensity_sources": "at its end: all that its rows were counted with, in the words of their cells",
    "electricity_tariff": "the tariff; `electricity_price` is then its mean over a week, for hours that it lacks",
    "meter, meter_ready_s": "which meter, and how long after the start it was up",
    "meter_note": "why nothing is measured, where that is so",
    "cpu_model, cpu_threads, cpu_tdp_w, cpu_method": "the CPU; `cpu_scope` says `whole node` where a counter is shared",
    "gpu_count, gpu_models, gpu_power_limit_w, gpu_method": "the GPUs of this job on this node; `gpu_doubt` if any",
    "gpu_memory_gb": "memory of one GPU, where all have the same",
    "ram_gb, ram_w, ram_method": "our share of the memory",
    "cpu_share, ram_share, share_source": "the share of the machine that constant and modelled power is charged by",
    "unmeasured": "there, but not measured; a run without its GPUs' energy has no cost of electricity",
    "codecarbon_run_id": "in the files that `codecarbon_options` ask for, which are no run of their own",
    "peak_gpu_memory_gb": "the most that torch's tensors took on one GPU",
    "plan_samples, plan_batch_size, plan_epochs, plan_steps, plan_eval_every, "
    "plan_batches_per_step": "what an exploration explored for",
    "torch_version": "of PyTorch, where the process had loaded it by the run's end",
    "technique, comparison": "of `greenlove compare --full`: which way to train, and the id of the first run beside it",
    "experiment, experiment_sha256, experiment_run, task_sha256, arm, "
    "group": "of a training of an experiment, beside `technique`: its name, the hash of its file, the key of the "
    "training, the hash of the task's file, the arm, and the arm with the values of the matrix",
    "technique_note": "what the technique changes in what is learnt, what it counted, schedules that were not followed",
    "batch_size, seed": "likewise: of the training's loader, and of all random states",
    "cold_start_s, eval_durations_s": "of an exploration: the first step beyond a warm one, and timed evaluations",
    "peak_memory_gb": "of an exploration: memory, of one GPU or without one of the process; of `compare --full` "
    "without a GPU: of the process, from the arm's start on",
    "gpu_power_w": "of an exploration: mean draw",
    "gpu_memory_estimate_gb": "of an exploration on a CPU: the peak that it would have on a GPU, estimated",
    "used_gpus": "of an exploration: GPUs that the model was on; 0: it trained on the CPU",
    "precision": "that the training computes in: " + ", ".join(f"`{name}`" for name in PRECISIONS) + "; absent where "
    "it was neither given nor seen",
    "workload": "class of what is trained, given or guessed from the model: "
    + ", ".join(f"`{name}`" for name in WORKLOADS),
    "precision_basis, workload_basis": "how they are known, in a few words: `autocast`, `attention in 12 layers`; "
    "`given`: the user said so",
    "method, warmup_epochs": "of an exploration: how its forecast was made",
    "compared": "of a comparison of techniques: their names; its trials are the run's epochs",
}

COMPARISON = {
    "name": "of the technique, or of several joined by `+`; the first row is the `baseline`'s",
    "verdict": "`saves`, `costs more`, `no measurable difference`, `too short to tell` or `not run`: of its energy "
    "where that was measured, else of its time",
    "n_trials": "that were timed",
    "level": "of the intervals, all of which are confidence intervals",
    **{
        f"{name}_ratio": f"of {what} to the baseline's; below 1 saves"
        for name, what in (
            ("time", "the time of a sample"),
            ("energy", "its energy"),
            ("co2e", "its operational emissions"),
            ("cost", "its cost, of the machine where its price is set, else of electricity"),
            ("memory", "the peak memory"),
        )
    },
    "duration_s": "the whole training, projected, with the starts of its epochs and what is spent once",
    "energy_kwh": "its energy, with PUE, and with what `node_overhead` assumes",
    "emissions_kgco2e": "its emissions",
    "cost_usd": "its cost",
    "duration_s_per_sample": "geometric mean over its trials",
    "peak_memory_gb": "largest of its trials, in GiB: on a GPU, without what other arms hold there; on a CPU, of the "
    "tensors that live at a time in a step apart",
    "one_off_s": "its first steps beyond as many steady ones, as of `compile`; in the projection, not in the ratios",
    "final_loss": "mean over the last batches of its last trial, after as many samples as the baseline's",
    "budget_s": "that would tell, where this was too short",
    "reason": "it was not run because",
    "notes": "what it changes in the training, and what was seen of it, as a JSON list",
    "learns_otherwise": "how what it learns differs from the baseline, as a clause; empty where no difference is seen",
    "spent_s": "time that the comparison took; like all that follow, in the baseline's row only",
    "given_budget_s": "time that it had",
    "residual_cv": "coefficient of variation of a trial that is left after arm, block and drift",
    "energy_method": "how the energy of the trials was obtained; several methods are joined by `+`",
    "comparison_notes": "on the whole, as a JSON list",
    "left_changed": "what could not be put back, as a JSON list",
    "is_of_runs": "`yes`: logged runs were compared, not trials of one training",
}

COMPARISON_TRIALS = {
    "arm": "its name",
    "block": "trials of one block lie next to each other, one of each arm; from 0",
    "position": "in the order of all trials, from 0",
    "started_s": "since the comparison began",
    "duration_s": "of the timed part",
    "samples": "that were trained on in it",
    "start_s": "time until the first batch of its first epoch, before the timed part",
    "energy_kwh": "of the timed part, as metered, before PUE; empty below 5 s",
    "energy_method": "how it was obtained",
    "peak_memory_bytes": "of the arm alone",
    "loss": "mean over the trial's last batches; `nan` and `inf` too",
    "temperature_c": "of the hottest GPU, at the end",
    "clock_mhz": "of the slowest GPU's streaming multiprocessors, at the end",
}

PAGE = Path(__file__).parent / "reference" / "log.md"


def log_reference() -> str:
    """Return the page ``docs/reference/log.md``."""
    history = inspect.getdoc(schema) or ""
    parts = [
        "# The log directory",
        "",
        "<!-- made by: python docs/write_log_reference.py -->",
        "",
        f"Schema version {SCHEMA_VERSION}. {history.split('history:')[1].split('An empty')[0].strip()}",
        "",
        "Each run is a directory `<UTC start>-<random>` with three files or more. A row is written at once, brought to",
        "the disk within a second, and never changes.",
        "**An empty cell means not measured; a zero means measured zero.**",
        "",
        "CodeCarbon takes no new sample within 50 ms of the last, so a gap shorter than that reads as zero energy, and",
        "what it took falls to its neighbour. Sums are not touched by this.",
        *_table("run.csv: field, value, unit", "field", RUN),
        *_table("epochs-<rank>.csv", "column", {c: COLUMNS[c] for c in EPOCH_COLUMNS}),
        *_table(
            "epochs-<rank>.csv, after the others: only with `intensity` or `electricity_tariff`",
            "column",
            {c: RATES[c] for c in RATE_COLUMNS},
        ),
        *_table("forecasts.csv: only where a forecast was made", "column", {c: FORECASTS[c] for c in FORECAST_COLUMNS}),
        *_table("spans-<rank>.csv: only where `track` was used", "column", {c: SPANS[c] for c in SPAN_COLUMNS}),
        *_table(
            "metrics-<rank>.csv: only where a metric was logged", "column", {c: METRICS[c] for c in METRIC_COLUMNS}
        ),
        *_table(
            "checkpoints-<rank>.csv: only where a `Checkpointer` wrote, or `log_checkpoint`",
            "column",
            {c: CHECKPOINTS[c] for c in CHECKPOINT_COLUMNS},
        ),
        *_table(
            "comparison.csv: only of a comparison of techniques",
            "column",
            {c: COMPARISON[c] for c in COMPARISON_COLUMNS if not c.endswith(("_lower", "_upper"))},
        ),
        "",
        "Ratios and projected totals have two more columns each, after their own: `…_lower` and `…_upper`, the ends",
        "of the interval.",
        *_table(
            "comparison_trials.csv: one row a trial of it",
            "column",
            {c: COMPARISON_TRIALS[c] for c in COMPARISON_TRIAL_COLUMNS},
        ),
        *_table("summary.csv: field, value, unit", "field", {c: SUMMARY[c] for c in flat_columns(RunSummary)}),
        "",
        "Behind these each metric has six lines: `metric.<name>.last`, `.best` (empty where it is not known which is),",
        "`.lowest`, `.highest` (of the finite values), `.n_values` and `.higher_is_better`. Of one that several ranks",
        "logged, those of the first of them.",
        "",
        "`SHA256SUMS` has the hash of each CSV file of a run that has ended ([integrity](../integrity.md)).",
    ]
    values = {
        "`kind`": RowKind,
        "`…_method`": Method,
        "`flags`": Flag,
        "`flags` of spans": SpanFlag,
        "`status`": RunStatus,
    }
    for title, names in values.items():
        parts += _table(f"Values of {title}", "value", {member.value: member.meaning for member in names})
    parts += [
        "",
        "A run of one process is three files, and one more each where forecasts were made, spans measured or metrics",
        "logged. Where there are more files of rows,",
        "totals are added up from them. `summary.csv` has the ranks that ended: each writes it anew, and of over 16",
        "the last one, where none was killed; an empty `.last-look` shows which runs those are.",
        "`epochs-command.csv` holds the totals of `greenlove run -- command`; trackers in it, and in processes that a",
        "script starts, write their epochs to `epochs-<n>.csv`, and `run-<n>.csv` says `role,joined`.",
        "`.ranks-<user id>/` beside the runs holds the agreements of the ranks of one launch on their run's name, and",
        "may be deleted at any time. Every file has the mode that the umask gives: several users can write to one",
        "directory with the mode of `/tmp` (`chmod 1777`), and with a umask of 077 each reads their own runs alone.",
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, head: str, rows: dict[str, str]) -> list[str]:
    return ["", f"## {title}", "", f"| {head} | meaning |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in rows.items())]


if __name__ == "__main__":
    PAGE.write_text(log_reference(), encoding="utf-8")
