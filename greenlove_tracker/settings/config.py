"""Settings, from the weakest to the strongest.

1. the defaults below;
2. the site's files: ``/etc/greenlove.toml``, then the one that ``GREENLOVE_CONFIG`` names;
3. ``greenlove/config.toml`` in the user's configuration directory (``$XDG_CONFIG_HOME`` or ``~/.config``);
4. ``greenlove.toml`` in the working directory; what sends, executes, writes elsewhere or stops a run does not hold
   there, as others may have left it in a directory that is cloned or shared, and what protects the user (who may read
   the logs, what is logged of command and user, which services are asked) is weaker there than in all other files;
5. environment variables ``GREENLOVE_<NAME>``, such as ``GREENLOVE_COUNTRY=DE``;
6. arguments of ``Tracker`` or options of the command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from greenlove_tracker.settings import config_files
from greenlove_tracker.settings.config_files import Environment, Source, Values
from greenlove_tracker.vocabulary.errors import SettingError, UsageError
from greenlove_tracker.vocabulary.phases import Phase, phases_from
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR
from greenlove_tracker.vocabulary.workloads import precision_named, workload_named

DEFAULT_LOG_DIR = "greenlove_logs"
PAGE_SIZES = ("A4", "Letter")

_EITHER_OR = (
    ("carbon_intensity_gco2e_per_kwh", "intensity"),
    ("electricity_price_usd_per_kwh", "electricity_tariff"),
)


_MOST_PUE = 10.0  # above it stands a percentage
_LEAST_GCO2E_PER_KWH = 1.0  # below it stand kilograms: no grid has as little


def asked_about_pue(value: float) -> str:
    """Return the question about a PUE that is a percentage; empty for any other."""
    return f": did you mean {value / 100:.2f}?" if value > _MOST_PUE else ""


def asked_about_intensity(value: float) -> str:
    """Return the question about an intensity in kg/kWh; empty for any other."""
    return f" g/kWh: are these kg? Then it is {value * 1000:g}" if 0 < value < _LEAST_GCO2E_PER_KWH else ""


def _is_time(text: str) -> bool:
    try:
        return not text or bool(datetime.fromisoformat(text))
    except ValueError:
        return False


# What a value must be: in words, and whether it is.
_POSITIVE = "a positive number", lambda value: 0 < value < math.inf
_PUE = "at least 1 (1.0: no overhead)", lambda value: 1 <= value <= _MOST_PUE, asked_about_pue
_INTENSITY = "a positive number", lambda value: _LEAST_GCO2E_PER_KWH <= value < math.inf, asked_about_intensity
_SHARE = "a share from 0 to 1", lambda value: 0 <= value <= 1


def _setting(
    default: Any,
    means: str,
    must: tuple[Any, ...] | None = None,
    acts: str = "",
    *,
    protects: bool = False,
) -> Any:
    """Declare a setting.

    Args:
        default: the value where nothing sets it.
        means: what it is, for the reference.
        must: what its value must be, in words; whether it is; and what is asked about a value that is not.
        acts: how it sends, executes, writes elsewhere or stops a run, if it does: no file of the working directory may.
        protects: it says what others learn: a file of the working directory is weaker here than all other files.
    """
    return field(default=default, metadata={"means": means, "must": must, "acts": acts, "protects": protects})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a run is measured and counted with; each says itself what it means.

    ``precision`` and ``workload`` are as ``load_settings`` writes them: ``bf16``, never ``fp16``, and ``vision``.
    """

    log_dir: str = _setting(DEFAULT_LOG_DIR, "where runs are written.", acts="may write elsewhere")
    project: str = _setting("", "name to group runs by.")
    tags: str = _setting("", "further words to find a run by, separated by commas in files and variables.")
    country: str = _setting(
        "",
        "where it runs: ISO 3166 code or English name, `US-CA`, `CA-QC`, a cloud's region (`us-east-1`) or a grid's "
        "zone (`CISO`); never guessed.",
    )
    carbon_intensity_gco2e_per_kwh: float | None = _setting(None, "overrides the country's.", must=_INTENSITY)
    intensity: str = _setting(
        "",
        "where the carbon intensity in force comes from while a run is tracked: `live`, `neso`, `eia` and the "
        "other services of `greenlove_tracker.grid.live`, a CSV file `utc,gco2e_per_kwh`, or `mock`; empty: the "
        "offline table, and no network is asked.",
        protects=True,
    )
    intensity_urls: str = _setting(
        "",
        "addresses instead of the services' own, such as `eia=http://127.0.0.1:8000/v2`, separated by commas.",
        acts="says where keys are sent",
    )
    market_gco2e_per_kwh: float | None = _setting(
        None,
        "carbon intensity of the site's electricity contract (market-based); the ledger shows it beside the "
        "location-based one.",
        must=(
            "at least 0",
            lambda value: value == 0 or _LEAST_GCO2E_PER_KWH <= value < math.inf,
            asked_about_intensity,
        ),
    )
    is_rented: bool = _setting(
        False, "whether the machine is somebody else's: its emissions are then scope 3, not scope 2."
    )
    electricity_price_usd_per_kwh: float | None = _setting(
        None, "overrides the country's household price.", must=_POSITIVE
    )
    electricity_tariff: str = _setting(
        "", "the price of electricity by the hour, such as `base 0.20; peak 0.32 17-21`, or a CSV file."
    )
    price_usd_per_gpu_hour: float | None = _setting(
        None, "what the machine costs per GPU and hour; it then is the cost, not electricity.", must=_POSITIVE
    )
    pue: float = _setting(
        1.0,
        "power usage effectiveness of the site, at least 1; multiplies every energy once.",
        must=_PUE,
    )
    node_overhead: float | None = _setting(
        None,
        "an assumption: what a whole node draws, in what its GPUs' counters see, such as 1.25; CPU and memory are "
        "within it. What that adds to the metered components is shown apart. Default: nothing is added.",
        must=("from 1 to 3 (1.25: a node draws 25% more than its GPUs)", lambda value: 1 <= value <= 3),
    )
    precision: str = _setting(
        "",
        "that the training computes in, for comparisons with other GPUs: `fp32`, `tf32`, `bf16` (`fp16` and "
        "`amp` too) or `fp8`; where it is not given, it is seen in a step of torch's as far as it can be.",
    )
    workload: str = _setting(
        "",
        "class of what is trained: `language`, `vision`, `speech`, `recommendation`, `graph` or `other`; likewise.",
    )
    verbose: int = _setting(
        1,
        "0 says nothing but warnings; 1 the status line and the final screen too; 2 what the CO2e is as much as.",
    )
    phases: tuple[Phase, ...] = _setting(
        (),
        "stretches of the training in which a step does more or less work, for its forecast; in a file or a variable "
        "the steps of each and the tokens of a step, such as `505x131072 505x262144`.",
    )
    epochs_before_pred: int = _setting(
        1, "0 or -1: no forecasts; else carbontracker's parser gives the forecast after this epoch."
    )
    max_energy_kwh: float | None = _setting(
        None, "a budget; `overrun_probability` and `on_overrun` say when and how it acts.", must=_POSITIVE
    )
    max_cost_usd: float | None = _setting(
        None, "a budget, of the machine's price where one is set, else of electricity.", must=_POSITIVE
    )
    max_kgco2e: float | None = _setting(None, "a budget.", must=_POSITIVE)
    max_hours: float | None = _setting(
        None,
        "time budget, from the start.",
        must=("a positive number, of a thousand years at most", lambda value: 0 < value <= 1e7),
    )
    deadline_utc: str = _setting(
        "",
        "when the run must be done, such as 2026-11-22T06:00. Of this, `max_hours` and the end of the Slurm job the "
        "earliest counts.",
        must=("a time such as 2026-11-22T06:00", _is_time),
    )
    overrun_probability: float = _setting(
        0.9,
        "a budget acts where it is exceeded with this probability, on the latest forecast.",
        must=("between 0 and 1, such as 0.9", lambda value: 0 < value < 1),
    )
    on_overrun: str = _setting(
        "warn",
        "`warn`; or `stop`: between two epochs, after the checkpoint hook, BudgetExceeded is raised.",
        must=('"warn", "stop" or a function', lambda value: value in ("warn", "stop")),
        acts="may stop a run",
    )
    log_user: bool = _setting(False, "write the user's login name into the log; off unless asked for.", protects=True)
    log_command: bool = _setting(
        True,
        "write the command line into the log, its passwords, tokens and keys masked; no: without it.",
        protects=True,
    )
    export: str = _setting(
        "",
        "services that rows, forecasts and the report are handed to beside the log, separated by commas: `mlflow`, "
        "`wandb`, `tensorboard`, `prometheus`; with a place: `prometheus=/a/file.prom`.",
        acts="sends figures, or writes them elsewhere",
    )
    continues: str = _setting(
        "", "the run id that this run resumes; its speed is expected of this run until it says more."
    )
    components: str = _setting(
        "",
        "what of the machine is counted: `gpu`, `cpu`, `ram` or several of them, separated by commas; empty: all.",
    )
    cpu_tdp_w: float | None = _setting(
        None, "rated power of the CPU where it is not recognised; fed to the load model.", must=_POSITIVE
    )
    ram_w: float | None = _setting(None, "power of the memory where it is known.", must=_POSITIVE)
    sim_cpu_tdp_w: float | None = _setting(
        None, "simulate a CPU of this rated power, at `sim_cpu_util`.", must=_POSITIVE
    )
    sim_cpu_util: float = _setting(0.5, "its load, in 0..1.", must=_SHARE)
    sim_gpu_w: float | None = _setting(
        None, "simulate `sim_gpu_count` GPUs of this power each, at `sim_gpu_util`.", must=_POSITIVE
    )
    sim_gpu_util: float = _setting(1.0, "their load, in 0..1.", must=_SHARE)
    sim_gpu_count: int = _setting(1, "their number.", must=("at least 1", lambda value: value >= 1))
    page_size: str = _setting(
        PAGE_SIZES[0],
        "of every PDF: `A4` or `Letter`.",
        must=('"A4" or "Letter"', lambda value: value in PAGE_SIZES),
    )
    private_logs: bool = _setting(False, "close the directory of a run to other users (mode 0700).", protects=True)
    strict: bool = _setting(
        False,
        "stop before the training begins where it could not be tracked as asked: by a bad setting in a file or a "
        "variable, a path, or a failure of ours. Else one warning says why, and the training runs.",
        acts="may stop a run",
    )
    given: frozenset[str] = frozenset()  # the names that arguments gave, not files or variables
    origins: Mapping[str, Source] = field(default_factory=dict, compare=False)  # of what is no default, by name
    notes: tuple[str, ...] = ()  # sentences on what was set and counts for nothing

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            must = one.metadata.get("must")
            if must and value is not None:
                wanted, is_so, *asks = must
                if not is_so(value):
                    asked = "".join(ask(value) for ask in asks)
                    raise UsageError(f"{{argument}} must be {wanted}, not {value!r}{asked}", argument=one.name)
        for pair in _EITHER_OR:
            if all(getattr(self, name) for name in pair):  # a number that is given is above 0
                raise UsageError("give {argument} or {argument}, not both", argument=pair)

    def stop_for(self, error: UsageError) -> bool:
        """Return True where an error ends the program: it lies in the script's own arguments, or all of them do."""
        return self.strict or error.is_in(self.given)

    def given_by(self, name: str) -> str:
        """Return who gave the value of a setting: the site, by its file, or the user."""
        origin = self.origins.get(name)
        return f"given by the site, {origin.where}" if origin and origin.is_site else "given by the user"

    @property
    def is_simulated(self) -> bool:
        """True where the hardware is given instead of measured."""
        return self.sim_cpu_tdp_w is not None or self.sim_gpu_w is not None


# What can be set, by name: the fields that say what they mean.
_SETTINGS: dict[str, Any] = {one.name: one for one in fields(Settings) if one.metadata}


def load_settings(arguments: Values | None = None, env: Environment | None = None) -> Settings:
    """Merge files, environment and arguments; an argument that is None is not given.

    Raises:
        UsageError: on an argument of an unknown name, of the wrong type or out of range.
        SettingError: on such a setting in a file or a variable, a file that cannot be read, or with ``strict`` on a
            setting that counts for nothing.
    """
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    merge = _Merge(env, _checked(given))  # an argument's error is told before a file's
    problems = merge.problems or (merge.values.get("strict") and merge.notes)
    if problems:
        raise SettingError("; ".join(problems))
    if "log_dir" in merge.values:
        merge.values["log_dir"] = _in_home(merge.values["log_dir"])
    try:
        return Settings(**merge.values, given=frozenset(given), origins=merge.origins, notes=tuple(merge.notes))
    except UsageError as error:
        raise SettingError(f"settings of several places do not agree: {error}") from error


def is_strict(arguments: Values | None = None, env: Environment | None = None) -> bool:
    """Return whether ``strict`` is set anywhere, as far as that can be read: what is asked where settings are bad."""
    given = (arguments or {}).get("strict")
    return bool(_Merge(env, {} if given is None else {"strict": given}).values.get("strict"))


class _Merge:
    """What files, variables and arguments set together.

    Attributes:
        values: of the settings, by name.
        origins: the place that each comes from.
        notes: a sentence on each thing that is set and counts for nothing.
        problems: a sentence on each mistake.
    """

    def __init__(self, env: Environment | None, arguments: Values) -> None:
        env = os.environ if env is None else env
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Source] = {}
        self.notes = config_files.unknown_variables(env, _SETTINGS)
        self.problems: list[str] = []
        self._own_file = config_files.user_file(env)
        for source in config_files.sources(env, _SETTINGS, arguments):
            try:
                values = source.read()
            except SettingError as error:
                self.problems.append(f"{error}")
                continue
            for name, value in values.items():
                try:
                    self._set(name, value, source)
                except UsageError as error:
                    self.problems.append(f"{source.where}: {error}")

    def _set(self, name: str, value: Any, source: Source) -> None:
        if value == "" and name in _SETTINGS and not isinstance(_SETTINGS[name].default, str):
            return  # an empty variable, as a module's file may leave it, sets no number
        checked = _checked({name: value})
        reason = self._held_back(name, checked[name]) if source.is_local else ""
        if reason:
            self.notes.append(f"{name} of {source.where} counts for nothing, as {reason}")
            return
        self.values |= checked
        self.origins[name] = source

    def _held_back(self, name: str, value: Any) -> str:
        """Return why a setting in a file of the working directory counts for nothing; empty where it counts."""
        declared = _SETTINGS[name].metadata
        if declared["protects"] and name in self.origins:
            return f"{self.origins[name].where} says it"
        here = Path.cwd().resolve()
        is_inside = name == "log_dir" and (here / _in_home(value)).resolve().is_relative_to(here)
        if not declared["acts"] or is_inside:
            return ""
        variable = config_files.PREFIX + name.upper()
        return f"it {declared['acts']}: set it in {self._own_file}, as {variable} or by an argument"


def _in_home(path: str) -> str:
    """Return a path with the home that no shell expands in a file: a directory called ~ invites rm -r ~."""
    return os.path.expanduser(path)  # noqa: PTH111  # no error without a home


def setting_names() -> tuple[str, ...]:
    """Return the settings that can be set."""
    return tuple(_SETTINGS)


def refuse_unknown(names: Iterable[str], further: Iterable[str] = ()) -> None:
    """Refuse names of settings that there are not, with the nearest one.

    Args:
        names: of settings.
        further: that could have been meant, beside all settings.

    Raises:
        UsageError: where one is unknown.
    """
    unknown = sorted(set(names) - set(_SETTINGS))
    if unknown:
        near = config_files.nearest(unknown[0], [*_SETTINGS, *further])
        hint = f"did you mean {near}?" if near else "greenlove config show lists all"
        raise UsageError(f"no such setting: {', '.join(unknown)}; {hint}")


_YES_OR_NO = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off", ""), False)
_KINDS = {bool: "yes or no", str: "a text", int: "a whole number", float: "a number"}
_NAMED = {"precision": precision_named, "workload": workload_named}


def _checked(values: Values) -> dict[str, Any]:
    """Return settings as a log holds them, each checked by itself and with the others."""
    refuse_unknown(values)
    checked = {name: _converted(name, value) for name, value in values.items()}
    Settings(**checked)
    return checked


def _converted(name: str, value: Any) -> Any:
    if name == "phases":
        return phases_from(value)
    default = _SETTINGS[name].default
    kind: Any = float if default is None else type(default)
    try:
        if kind is bool:
            return _YES_OR_NO[str(value).strip().lower()]
        if name == "tags" and isinstance(value, Mapping):
            value = [f"{tag}={of_tag}".replace(",", ";") for tag, of_tag in value.items()]
        if isinstance(value, Mapping) or (isinstance(value, bool) and kind is not int):
            raise TypeError(type(value))
        if kind is str and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        converted = kind(value)
        if kind is int and isinstance(value, float) and value != converted:
            raise ValueError(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{{argument}} must be {_KINDS[kind]}, not {value!r}", argument=name) from error
    return _NAMED[name](converted) if converted and name in _NAMED else converted


class TimeLimitSource(StrEnum):
    """The place that a time limit comes from."""

    DEADLINE = "deadline"
    HOURS = "time limit"
    SLURM = "Slurm time limit"


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The moment at which a training must be done.

    Attributes:
        limit_s: from its start; not positive where that moment had passed before.
        source: where it comes from.
    """

    limit_s: float
    source: TimeLimitSource


def time_limit(settings: Settings, started_utc_s: float, env: Environment | None = None) -> TimeLimit | None:
    """Return the earliest of deadline, longest time and end of the Slurm job; None without any.

    Args:
        settings: with deadline and longest time.
        started_utc_s: when the training begins.
        env: of the Slurm job; default: none, of a training that is not this job.
    """
    limits = []
    if settings.deadline_utc:
        when = datetime.fromisoformat(settings.deadline_utc)
        deadline = when if when.tzinfo else when.replace(tzinfo=UTC)
        limits.append(TimeLimit(deadline.timestamp() - started_utc_s, TimeLimitSource.DEADLINE))
    slurm = (env or {}).get("SLURM_JOB_END_TIME", "")
    if slurm.isdecimal():
        limits.append(TimeLimit(float(slurm) - started_utc_s, TimeLimitSource.SLURM))
    if settings.max_hours is not None:
        limits.append(TimeLimit(settings.max_hours * SECONDS_PER_HOUR, TimeLimitSource.HOURS))
    return min(limits, key=lambda limit: limit.limit_s, default=None)
