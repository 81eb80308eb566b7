"""The fields of ``run.csv``, each declared once: its meaning, its reader, and what it is for.

A further field is one line of ``RunFields``. The writer, the reader, reports, exporters and the reference page take it
from there, and refuse a name that is not declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from greenlove_tracker.logs.csvio import Lines
from greenlove_tracker.logs.schema import Reader, amount, at_least_1, cell, count, finite, yes
from greenlove_tracker.logs.trials import PLAN_NAMES, RECORD
from greenlove_tracker.vocabulary.records import Factor, Field
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS

ITSELF = ("",)
WITH_SOURCE = ("", ".source")


@dataclass(frozen=True, slots=True)
class RunField:
    """A field of ``run.csv``.

    Attributes:
        meaning: for the reference page.
        read: returns the value of its text, or raises ValueError.
        is_factor: it is a number that totals are multiplied with, with lines for its source, year, basis and table.
        may_hold_secrets: it is no text that somebody chose to log; secrets in it are masked.
        exported: what services beside the log are shown, as endings of its name. Nothing of the user, the command, the
            host or the job is.
        setting: its line among the settings of a report; several fields may share one.
        difference: the name under which runs are said to differ in it.
    """

    meaning: str
    read: Reader = str
    is_factor: bool = False
    may_hold_secrets: bool = False
    exported: Sequence[str] = ()
    setting: str = ""
    difference: str = ""


_text = RunField
_yes = partial(RunField, read=yes)
_count = partial(RunField, read=count)
_amount = partial(RunField, read=amount)
_factor = partial(RunField, read=amount, is_factor=True)


class RunFields:
    """The fields, in the order of the reference page and of the settings in a report."""

    schema_version = _count("version of the log's format")
    run_id = _text("the directory's name")
    rank = _count("of the process that wrote the file; further ones write `run-<n>.csv`")
    role = _text(
        "`joined`: another process measures this run; the rows of `epochs-<n>.csv` count for no energy or time"
    )
    closed = _yes("last line of a `run-<n>.csv`: its process has written all that it will")
    project = _text("the name that runs are grouped by, as given", setting="project")
    tags = _text("words of the user, as given", setting="project", exported=ITSELF)
    user = _text("only where `log_user` is set", setting="user")
    account = _text("that the job is charged to", setting="user")
    command = _text(
        "the command line, its secrets masked (`MASKED`); not where `log_command` is off",
        may_hold_secrets=True,
        setting="command",
        difference="command",
    )
    started_at = _text("UTC, ISO 8601", setting="started, UTC")
    host = _text("the machine's name", setting="host", difference="host")
    os = _text("the operating system", setting="host", difference="system")
    pid = _count("of the process")
    country = _text(
        "where it ran, as given; empty: the world's average",
        exported=ITSELF,
        setting="place",
        difference="place",
    )
    location = _text("of another tool's log: where it says that it ran")
    job_id = _text("the job's number, like all of the job from `SLURM_*` or `GREENLOVE_JOB_*`", setting="job")
    array_job_id = _text("the number of its array of jobs")
    array_task_id = _text("the job's number in its array", setting="job")
    cluster = _text("that the job ran on", setting="job")
    job_nodes = _count("the nodes of the job, or of its step")
    partition = _text("of the cluster", setting="job")
    part_of = _text(
        "the first run of the script under `greenlove run`, where that made several; none holds anything of another"
    )
    training_status = _text("how the script's tracker ended, where the script went on; it is the run's status, too")
    failure = _text("the error that ended a training of an experiment")

    epochs_planned = _count("as given, less what was done before the run", exported=ITSELF, difference="epochs planned")
    total_steps_planned = _count("likewise, of optimizer steps", exported=ITSELF)
    plan_source = _text("where that is from, of a script that does not say it: its own argument, or `--epochs`")
    loops_seen = _text(
        "in a script: `epochs`, `steps`, `no steps` of PyTorch, or `no torch`; of a command after `--`: `not looked "
        "for`"
    )
    first_epoch = _count(
        "epochs that were done before, where the run resumes; the rows have the epochs' true numbers", exported=ITSELF
    )
    first_step = _count("likewise, optimizer steps", exported=ITSELF)
    phases = _text(
        "of the plan, as in a configuration file: steps × tokens of a step, `505x131072 505x262144`", exported=ITSELF
    )
    epochs_before_pred = _count("epochs before the first forecast, where it is not the default")
    monitor_epochs = _count("epochs that are measured, where it is not the default")
    continues = _text(
        "the run that this one resumes; its speed is expected of this one until it says more",
        exported=ITSELF,
        setting="continues",
    )
    stopping_rule = _text(
        "the rule that may end the training early: its metric, and what differs from the usual",
        exported=ITSELF,
        setting="early stopping",
    )
    stopped_early_after = _count("the number of the epoch with which it did")
    best_epoch = _count("the number of the epoch whose value of the metric was the best by then")
    time_limit_s = _amount("the earliest of deadline, `max_hours` and end of the Slurm job, from the start")
    time_limit_source = _text("which of them it is")
    wait_s = _amount("time waited before the run (`greenlove plan --threshold`, `greenlove run --start`)")
    wait_reason = _text("why that ended")
    intensity_at_request_gco2e_per_kwh = _amount("the grid's when that wait began, where it was known")
    intensity_at_start_gco2e_per_kwh = _amount("the grid's when it ended, where it was known")

    technique = _text(
        "of an experiment: the way to train; of earlier versions: the first run beside it", difference="technique"
    )
    comparison = _text("of earlier versions: the comparison that the run is of")
    technique_note = _text(
        "what the technique changes in what is learnt, what it counted, schedules that were not followed"
    )
    experiment = _text("of a training of an experiment: its name")
    experiment_sha256 = _text("the hash of the experiment's file")
    experiment_run = _text("the key of the training in it")
    task_sha256 = _text("the hash of the task's file")
    arm = _text("the arm of the experiment")
    group = _text("the arm, with the values of the matrix")
    git_commit = _text("of the directory that the training ran in", setting="git commit", difference="git commit")
    batch_size = _count("of the loader of an experiment's training", difference="batch size")
    seed = _text("of all its random states", difference="seed")
    world_size = _count("processes that train together", exported=ITSELF, setting="ranks", difference="ranks")

    cpu_model = _text("the CPU", exported=ITSELF, setting="CPU", difference="CPU")
    cpu_threads = _count("its threads", exported=ITSELF, setting="CPU threads")
    cpu_tdp_w = _amount("its rated power")
    cpu_method = _text("how its energy is obtained")
    cpu_scope = _text("`whole node` where its counter is shared with others")
    gpu_models = _text("the GPUs of this job on this node", exported=ITSELF, setting="GPU", difference="GPUs")
    gpu_count = _count("the number of GPUs", exported=ITSELF)
    gpu_power_limit_w = _amount(
        "power limit of all of them together",
        exported=ITSELF,
        setting="GPU power limit, W",
        difference="GPU power limit, W",
    )
    gpu_memory_gb = _amount("memory of one GPU, where all have the same")
    gpu_method = _text("how their energy is obtained")
    ram_gb = _amount("our share of the memory", setting="memory, GiB")
    ram_w = _amount("its power, as modelled")
    ram_method = _text("how its energy is obtained")
    meter = _text("which meter", exported=ITSELF, setting="meter", difference="meter")
    meter_note = _text("why nothing is measured, where that is so", may_hold_secrets=True, setting="meter")
    meter_ready_s = _amount("how long after the start it was up")
    tracking_mode = _text("of CodeCarbon's log: whether it measured the process or the machine")
    codecarbon_run_id = _text("in the files that `codecarbon_options` ask for, which are no run of their own")
    unmeasured = _text(
        "there, but not measured; a run without its GPUs' energy has no cost of electricity", setting="not measured"
    )
    left_out = _text("components that `components` asks to leave out", setting="left out")
    gpu_doubt = _text("why these may not be the GPUs that it trained on", setting="not measured")
    gpu_note = _text("why GPUs could not be read, in the driver's words", setting="not measured")
    gpu_energies_kwh = RunField(
        "energy of each GPU of this node, as metered: `0=0.0123 1=0.0117+ 2=`, by its number; `+`: without the time in "
        "which it could not be read; nothing: never read",
    )
    cpu_share = _amount(
        "the share of the machine that constant and modelled power of the CPU is charged by",
        setting="share of the machine",
    )
    ram_share = _amount("likewise, of the memory")
    share_source = _text("where these shares are from", setting="share of the machine")

    carbon_intensity = _factor("what emissions are counted with", exported=(*WITH_SOURCE, ".year"))
    market_intensity = _factor("the carbon intensity of the contract, where one was given")
    intensity_order = _text(
        "with `intensity`: the services that were asked, in order; `carbon_intensity` is then what counts where none "
        "answers",
        exported=ITSELF,
        setting="carbon intensity asked for",
    )
    intensity_sources = _text("at its end: all that its rows were counted with, in the words of their cells")
    electricity_price = _factor("of a kWh; a tariff's may be negative", read=finite, exported=WITH_SOURCE)
    electricity_tariff = _text(
        "the tariff; `electricity_price` is then its mean over a week, for hours that it lacks",
        exported=ITSELF,
        setting="electricity tariff",
    )
    price_usd_per_gpu_hour = _factor("of the machine, as set", exported=ITSELF)
    is_rented = _yes("as set: somebody else's machine")
    pue = _factor("power usage effectiveness, as set", read=at_least_1, exported=ITSELF, difference="PUE")
    node_overhead = _factor(
        "an assumption, where it was set: what a node draws, in what its GPUs do; in no row",
        read=at_least_1,
        exported=ITSELF,
    )

    plan_stop = _text("of an exploration: epochs and their probabilities, where early stopping may end the training")
    peak_gpu_memory_gb = _amount("the most that torch's tensors took on one GPU")
    peak_cpu_memory_gb = _amount("of an experiment: the most that they took on the CPU in the first steps")
    warmup_epochs = _count("of an exploration of earlier versions: epochs that its forecast left out")
    compared = _text("of a comparison of techniques: their names; its trials are the run's epochs")
    precision = _text(
        f"that the training computes in: {', '.join(f'`{name}`' for name in PRECISIONS)}; absent where it was neither "
        "given nor seen",
        exported=ITSELF,
    )
    precision_basis = _text("how that is known, in a few words: `autocast`; `given`: the user said so")
    workload = _text(
        f"class of what is trained, given or guessed from the model: {', '.join(f'`{name}`' for name in WORKLOADS)}",
        exported=ITSELF,
    )
    workload_basis = _text("how that is known: `attention in 12 layers`; `given`: the user said so")

    torch_version = _text(
        "the version of PyTorch, where the process had loaded it by the run's end", difference="PyTorch"
    )
    python = _text("the version of Python", setting="versions", difference="Python")
    greenlove_version = _text(
        "the version that wrote the run", exported=ITSELF, setting="versions", difference="greenlove_tracker"
    )


FIELDS: dict[str, RunField] = {name: found for name, found in vars(RunFields).items() if isinstance(found, RunField)}
FIELDS |= {f"plan_{name}": _count(f"of an exploration: the plan's `{name}`") for name in PLAN_NAMES}
FIELDS |= {column.name: _text(f"of an exploration: {column.meaning}", column.read) for column in RECORD.described}
FACTOR_DETAILS = {
    "source": "where it is from",
    "year": "the year that it is of",
    "basis": "location-based or market-based, direct or lifecycle, or given",
    "table_sha256": "the hash of the table that it is from",
}


@cache
def declared(name: str) -> RunField:
    """Return the declaration of a field, or of the factor that it is a detail of.

    Raises:
        LookupError: where there is none.
    """
    base, _, detail = name.partition(".")
    found = FIELDS.get(base)
    if found is not None and (not detail or (found.is_factor and detail in FACTOR_DETAILS)):
        return found
    raise LookupError(f"run.csv has no field {name!r}: a new one is a line of RunFields in logs/run_fields.py")


def value_of(lines: Lines, name: str) -> str:
    """Return the value of a field.

    Raises:
        LookupError: where no field of that name is there, or declared.
    """
    line = lines.get(name)
    if line is None:
        declared(name)
        return ""
    return line[0]


def exported_names() -> list[str]:
    """Return the lines that services beside the log are shown."""
    return [f"{name}{end}" for name, found in FIELDS.items() for end in found.exported]


def names_by(label: str) -> dict[str, list[str]]:
    """Return the fields that have a label, by it: ``setting`` or ``difference``."""
    found: dict[str, list[str]] = {}
    for name, one in FIELDS.items():
        found.setdefault(getattr(one, label), []).append(name)
    found.pop("", None)
    return found


# -- A factor: its value and unit in a line of its name, its details in lines behind it --


def factor_fields(factor: Factor) -> list[Field]:
    """Return the lines that record a factor."""
    fields = [Field(factor.name, cell(factor.value), factor.unit)]
    # empty ones too: a later line must replace an earlier one of the same name
    return fields + [Field(f"{factor.name}.{detail}", getattr(factor, detail)) for detail in FACTOR_DETAILS]


def factor_in(lines: Lines, name: str) -> Factor | None:
    """Return the factor of that name; None where there is none.

    Raises:
        ValueError: where it is not what its field holds.
    """
    text = value_of(lines, name)
    if not text:
        return None
    details = [value_of(lines, f"{name}.{detail}") for detail in FACTOR_DETAILS]
    return Factor(name, declared(name).read(text), lines[name][1], *details)
