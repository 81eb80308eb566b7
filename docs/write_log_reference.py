"""Write ``docs/reference/log.md``: the meaning of each column, field and value of the log directory.

python docs/write_log_reference.py
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.logs import schema, tables
from greenlove_tracker.logs.schema import EPOCHS, SCHEMA_VERSION, SUMMARY, LogTable
from greenlove_tracker.logs.tables import SpanFlag
from greenlove_tracker.vocabulary.records import Flag, Method, RowKind, RunStatus
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS

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
    "loops_seen": "in a script: `epochs`, `steps`, `no steps` of PyTorch, or `no torch`; of a command after `--`: `not "
    "looked for`",
    "first_epoch, first_step": "what was done before, where the run resumes; the rows have the epochs' true numbers",
    "phases": "of the plan, as in a configuration file: steps × tokens of a step, `505x131072 505x262144`",
    "epochs_before_pred, monitor_epochs": "as given, where they are not the default",
    "stopping_rule": "the rule that may end the training early: its metric, and what differs from the usual",
    "stopped_early_after": "the number of the epoch with which it did",
    "best_epoch": "the number of the epoch whose value of the metric was the best by then",
    "plan_stop": "of an exploration: epochs and their probabilities, where early stopping may end the training",
    "continues": "the run that this one resumes; its speed is expected of this one until it says more",
    "time_limit_s, time_limit_source": "the earliest of deadline, `max_hours` and end of the Slurm job, from the start",
    "wait_s, wait_reason": "time waited before the run (`greenlove plan --threshold`, `greenlove run --start`); why "
    "that ended",
    "intensity_at_request_gco2e_per_kwh, intensity_at_start_gco2e_per_kwh": "the grid's when that wait began and "
    "ended, where it was known",
    "part_of": "the first run of the script under `greenlove run`, where that made several; none holds anything of "
    "another",
    "training_status": "how the script's tracker ended, where the script went on; it is the run's status, too",
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
    "technique, comparison": "of an experiment: the way to train; of earlier versions: the first run beside it",
    "experiment, experiment_sha256, experiment_run, task_sha256, arm, "
    "group": "of a training of an experiment, beside `technique`: its name, the hash of its file, the key of the "
    "training, the hash of the task's file, the arm, and the arm with the values of the matrix",
    "technique_note": "what the technique changes in what is learnt, what it counted, schedules that were not followed",
    "batch_size, seed": "likewise: of the training's loader, and of all random states",
    "cold_start_s, eval_durations_s": "of an exploration: the first step beyond a warm one, and timed evaluations",
    "peak_memory_gb": "of an exploration: memory, of one GPU or without one of the process",
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

FURTHER: tuple[LogTable[Any], ...] = (
    tables.FORECASTS,
    tables.SPANS,
    tables.METRICS,
    tables.CHECKPOINTS,
    tables.TRIALS,
    tables.COMPARISON,
    tables.COMPARISON_TRIALS,
)
PAGE = Path(__file__).parent / "reference" / "log.md"


def log_reference() -> str:
    """Return the page ``docs/reference/log.md``."""
    history = inspect.getdoc(schema) or ""
    parts = [
        "# The log directory",
        "",
        "<!-- made by: python docs/write_log_reference.py -->",
        "",
        f"This is schema version {SCHEMA_VERSION}. Its history:",
        "",
        history.split("history:")[1].split("An empty")[0].strip(),
        "",
        "Each run is a directory `<UTC start>-<random>` with three files or more. A row is written at once, brought to",
        "the disk within a second, and never changes.",
        "**An empty cell means not measured; a zero means measured zero.**",
        "",
        "CodeCarbon takes no new sample within 50 ms of the last, so a gap shorter than that reads as zero energy, and",
        "what it took falls to its neighbour. Sums are not touched by this.",
        *_table("run.csv: field, value, unit; of several lines of one field the last counts", "field", RUN),
        *_table("epochs-<rank>.csv", "column", _meanings(EPOCHS, EPOCHS.least)),
        *_table(
            "epochs-<rank>.csv, after the others: only with `intensity` or `electricity_tariff`",
            "column",
            _meanings(EPOCHS, EPOCHS.columns[len(EPOCHS.least) :]),
        ),
        *(line for table in FURTHER for line in _table(table.title, "column", _meanings(table, table.columns))),
        *_table("summary.csv: field, value, unit", "field", _meanings(SUMMARY, SUMMARY.columns)),
        "",
        "After these each metric has six lines: `metric.<name>.last`, `.best` (empty where it is not known which is),",
        "`.lowest`, `.highest` (of the finite values), `.n_values` and `.higher_is_better`. Of one that several ranks",
        "logged, those of the first of them.",
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
        "totals are added up from them, and `summary.csv` has those of the first rank alone.",
        "`epochs-command.csv` holds the totals of `greenlove run -- command`; trackers in it, and in processes that a",
        "script starts, write their epochs to `epochs-<n>.csv`, and `run-<n>.csv` says `role,joined`.",
        "`.ranks-<user id>/` beside the runs holds the agreements of the ranks of one launch on their run's name, and",
        "may be deleted at any time. Every file has the mode that the umask gives: several users can write to one",
        "directory with the mode of `/tmp` (`chmod 1777`), and with a umask of 077 each reads their own runs alone.",
    ]
    return "\n".join(parts) + "\n"


def _meanings(table: LogTable[Any], columns: Sequence[str]) -> dict[str, str]:
    return {column.name: column.meaning for column in table.described if column.name in columns}


def _table(title: str, head: str, rows: dict[str, str]) -> list[str]:
    return ["", f"## {title}", "", f"| {head} | meaning |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in rows.items())]


if __name__ == "__main__":
    PAGE.write_text(log_reference(), encoding="utf-8")
