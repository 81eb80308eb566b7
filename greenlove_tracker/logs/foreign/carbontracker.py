"""carbontracker's logs as runs: mean powers become sums over the devices, and what was not measured is empty."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.csvio import Line, ProblemLog, read_lines
from greenlove_tracker.logs.foreign.base import ForeignRun, amount, iso, lines_of, moment, safe_text
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Factor,
    Flag,
    Method,
    Row,
    RowKind,
    RunStatus,
    RunSummary,
)
from greenlove_tracker.units import gco2e_from_kwh, h_from_s, kwh_from_w_s

_ROUNDING = 0.02  # durations in a log are rounded to 0.01 s: of epochs of a second its parts differ by up to 1%
_MAX_PARTS = 1000  # devices, equivalents: more are no log's
_MAX_MESSAGE = 20_000  # characters: the powers of a thousand devices have fewer
_APPLE_GPU = ("GPU", "ANE")  # read as one: its power is their sum already

LOG_NAME = re.compile(r"(.*?)_?carbontracker(|_output|_err)\.log", re.DOTALL)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):?(\d\d):?(\d\d)?Z?")
_PROCESS = re.compile(r"(?:(.*)_)?\d+(?:\.\w+)?")  # pid, and since 2.0 a random number; before it the user's prefix
_SENSOR = re.compile(r"(?:cpu|dram)(?::\d+)+|CPU|GPU|ANE")  # RAPL's domains, Apple's powermetrics; else it is a model
_UNKNOWN_METHOD = "carbontracker does not log whether it measured the power or was given it"


# -- What a log holds --


@dataclass(slots=True)
class LoggedEpoch:
    """An epoch, with the power of each device by component: None where none was measured."""

    number: int
    ended_at: datetime | None
    duration_s: float | None = None
    powers_w: dict[str, tuple[float, ...] | None] = field(default_factory=dict)


@dataclass(slots=True)
class Consumption:
    """A prediction or the totals, as the output log gives them; PUE is in the energy."""

    epochs: int | None
    duration_s: float | None = None
    energy_kwh: float | None = None
    emissions_gco2e: float | None = None
    equivalents: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class CarbontrackerLog:
    """Both logs of a run; times are local ones of a zone that is not logged.

    Attributes:
        said: what its lines say of the whole run, by the names of the groups of ``_KNOWN``; what was said first counts.
        devices: their names by component.
        blocks: what was consumed, by ``Actual`` and ``Predicted``.
    """

    said: dict[str, str] = field(default_factory=dict)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    epochs: list[LoggedEpoch] = field(default_factory=list)
    blocks: dict[str, Consumption] = field(default_factory=dict)
    began_at: datetime | None = None
    ended_at: datetime | None = None

    def number(self, name: str) -> float | None:
        """Return a number that was said."""
        return amount(self.said.get(name, ""))

    @property
    def is_stopped_early(self) -> bool:
        """True where not all epochs were monitored that were to be."""
        return "interrupted" in self.said or "closed" not in self.said

    @property
    def location(self) -> str:
        """The place that it found; empty where it found none."""
        place = safe_text(self.said.get("location", "").partition(": [")[0].strip(" .:"))
        return "" if place == "Unknown" else place


# -- The messages of a log: one table of patterns, whose groups name what is said --

# A message begins with its time, and in the output log with a name; all lines up to the next are of it.
_HEAD = re.compile(
    r"^(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? - (?:CarbonTracker: ?)?|CarbonTracker: ?)", re.MULTILINE
)
_KNOWN = tuple(
    re.compile(pattern)
    for pattern in (
        r"Epoch (?P<number>[0-9]{1,9}):? ?",
        r"Duration: (?P<duration>.*)",
        r"Average power usage \(W\) for (?P<component>\w+): (?P<powers>\[[^][]*\]|[^][]*)",
        r"The .*components were found:(?P<devices>.*)",
        r"\n?(?P<which>Actual|Predicted) consumption(?: for (?P<epochs>[0-9]{1,9}) epoch(?:\(s\)|s)?)?:?[ ]*"
        r"\n\s*Time:\s(?P<time>.*)\n\s*Energy:\s+(?P<energy>\d\S*) kWh[ ]*\n\s*CO2eq:\s+(?P<grams>\d\S*) g[ ]*"
        r"(?:\n\s*This is equivalent to:[ ]*)?(?P<equivalents>(?:\n\s*\d[\d.]* \S.*)*)",
        r"carbontracker.* version (?P<version>.*)",
        r"Only .*PUE coefficient of (?P<pue>[1-9][0-9]*(?:\.[0-9]+)?)(?: \((?P<pue_source>.*)\))?\.?\s*",
        r"Average carbon intensity during training was (?P<carbon_intensity>\d+(?:\.\d+)?) gCO2eq/kWh"
        r"(?:.*at detected location:? (?P<location>.*)|.*)",
        r"Carbon.*at detected location:? (?P<location>.*)",
        r"Training was (?P<interrupted>interrupted)(?: before all (?P<planned>[0-9]{1,9}) epochs.*|.*)",
        r"Session (?P<refused>ended by user).*",
        r"Monitoring thread (?P<closed>ended).*",
    )
)
# A message that fits no pattern was damaged where it has one of these, and else is of no interest.
_TELLING = re.compile(r"\d{4}|.*(?:Epoch|Duration:|Average|PUE|components|interrupted|ended|onsumption|CarbonTracker)")
_DURATION = re.compile(r"(?:(\d{1,7}) days?, )?(\d{1,7}):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_DEVICES = re.compile(r"\b(\w+) with device\(s\) (.*?)\.(?= \w+ with device\(s\) |\s*$)")


def _read(file: Path, log: CarbontrackerLog, notes: ProblemLog) -> None:
    """Take in what one of the logs says; what cannot be read is noted."""
    lines = read_lines(str(file), partial(notes.add, file))
    parts = ["", *_HEAD.split("\n".join(line.rstrip("\r\n") for line in lines))]
    for stamp, message in zip(parts[::2], map(str.rstrip, parts[1::2]), strict=True):
        at = moment(stamp or "")
        log.began_at, log.ended_at = log.began_at or at, at or log.ended_at
        try:
            if len(message) > _MAX_MESSAGE:
                raise ValueError("it is too long")
            found = next(filter(None, (pattern.fullmatch(message) for pattern in _KNOWN)), None)
            if found:
                _take(log, {name: text for name, text in found.groupdict().items() if text is not None}, at)
            elif "\n" in message or _TELLING.match(message):
                raise ValueError("it is not understood")
        except ValueError as error:
            notes.add(file, f"{message.strip()[:80]!r} left out: {str(error)[:80]}")


def _take(log: CarbontrackerLog, said: dict[str, str], at: datetime | None) -> None:
    """Take in one message."""
    epoch = log.epochs[-1] if log.epochs else None
    match said:
        case {"number": number}:
            log.epochs.append(LoggedEpoch(int(number), at))
        case {"duration": text}:
            if epoch is None or epoch.duration_s is not None:
                raise ValueError("a duration without an epoch of its own")
            epoch.duration_s = _seconds(text)
        case {"component": name, "powers": text}:
            if epoch is None or name.lower() in epoch.powers_w:
                raise ValueError(f"a power of {name} without an epoch of its own")
            epoch.powers_w[name.lower()] = _powers_w(text, log.devices.get(name.lower(), ()))
        case {"devices": text}:
            log.devices = log.devices or _devices(text)
        case {"which": which, "time": time, "energy": energy, "grams": grams, "equivalents": text}:
            pairs = (line.split(maxsplit=1) for line in text.split("\n")[1:_MAX_PARTS])
            equivalents = {safe_text(name): amount(number) or 0.0 for number, name in pairs}
            epochs = int(said["epochs"]) if "epochs" in said else None
            log.blocks[which] = Consumption(epochs, _seconds(time), amount(energy), amount(grams), equivalents)
        case _:
            log.said = said | log.said


def _check(log: CarbontrackerLog) -> Iterator[str]:
    """Yield what the log should hold and does not: a line of it was lost, or damaged beyond being known."""
    components = {"cpu", "gpu"}.intersection(log.devices).union(*(epoch.powers_w for epoch in log.epochs))
    for before, epoch in pairwise([LoggedEpoch(0, None), *log.epochs]):
        if epoch.number != before.number + 1:
            yield f"epoch {epoch.number} follows on epoch {before.number}"
        if epoch.duration_s is None:
            yield f"epoch {epoch.number} left out: no duration"
        if lacking := components - epoch.powers_w.keys():
            yield f"epoch {epoch.number} has no power of {', '.join(sorted(lacking))}"


# -- Readers of what stands in a message: each raises ValueError where it cannot be meant --


def _devices(text: str) -> dict[str, tuple[str, ...]]:
    """Return the devices by component; their names may hold full stops."""
    found = _DEVICES.findall(text)
    return {name.lower(): tuple(safe_text(d) for d in devices.split(", ")[:_MAX_PARTS]) for name, devices in found}


def _seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50``."""
    if not (found := _DURATION.fullmatch(text.strip())):
        raise ValueError(f"{text.strip()[:40]!r} is no duration")
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return timedelta(days, hours=hours, minutes=minutes, seconds=float(found[4])).total_seconds()


def _powers_w(text: str, devices: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return one power for each device; a power without brackets is the mean over all devices, not their sum.

    0 W is of hardware that could not be read: what draws nothing does not run.
    """
    parts = text.strip("[] ").replace(",", " ").split()
    values = tuple(value for part in parts[:_MAX_PARTS] if (value := amount(part)) is not None)
    if not any(values):
        return None
    return values if text.startswith("[") or devices == _APPLE_GPU else values[:1] * max(1, len(devices))


# -- The run --


class CarbontrackerRun(ForeignRun):
    """A run of carbontracker.

    Args:
        name: of its logs, without ``_carbontracker.log``.
        standard: its standard log.
        output: its output log, where there is one.
    """

    def __init__(self, name: str, standard: Path, output: Path | None) -> None:
        found, rest = _TIME.search(name), _TIME.sub("", name).strip("_")
        time = "".join(found.groups("00")) if found else ""  # first, so that runs sort by it
        parts = (f"{time[:8]}T{time[8:]}" if time else "", "carbontracker", re.sub(r"[^\w.-]+", "_", rest)[:80])
        super().__init__(standard, "-".join(part for part in parts if part))
        self.standard, self.output, self._process = standard, output, _PROCESS.fullmatch(rest)

    @cached_property
    def log(self) -> CarbontrackerLog:
        """The content of its logs.

        Raises:
            LogError: where they are no logs of carbontracker.
        """
        log, notes = CarbontrackerLog(), ProblemLog()
        for file in filter(None, (self.standard, self.output)):
            _read(file, log, notes)
        if not ("version" in log.said or log.devices or log.epochs or log.blocks):
            why = notes.problems[0].message if notes.problems else "nothing in it is known"
            raise LogError(f"{self.path}: is no log of carbontracker: {why}")
        if "pue" not in log.said:
            notes.add(self.path, "names no PUE: counted without")
        for message in _check(log):
            notes.add(self.path, message)
        log.epochs = [epoch for epoch in log.epochs if epoch.duration_s is not None]
        for problem in notes.problems:
            self._problem_log.add(problem.path, problem.message)
        return log

    @cached_property
    def _correction(self) -> float:
        """The factor that corrects carbontracker's energies: it takes the mean over devices for their sum.

        1.0 where the totals of the log are the sum over its devices and epochs, up to its rounding.
        """
        logged, measured_kwh = self.log.blocks.get("Actual"), self.metered_summary.energy_kwh
        if logged is None or not logged.energy_kwh or measured_kwh is None:
            return 1.0
        factor = measured_kwh / logged.energy_kwh
        return 1.0 if math.isclose(factor, 1.0, rel_tol=_ROUNDING) else factor

    @property
    def actual(self) -> Consumption | None:
        """The totals of the log; None without any, and where they are not the sum over its devices and epochs."""
        return self.log.blocks.get("Actual") if self._correction == 1.0 else None

    @property
    def predicted(self) -> Consumption | None:
        """The prediction, corrected as the totals are; None where none was made."""
        logged, factor = self.log.blocks.get("Predicted"), self._correction
        if logged is None or factor == 1.0:
            return logged
        energy_kwh, grams = (logged.energy_kwh or 0.0) * factor, (logged.emissions_gco2e or 0.0) * factor
        return replace(logged, energy_kwh=energy_kwh, emissions_gco2e=grams, equivalents={})  # which were of these

    @cached_property
    def summary(self) -> RunSummary:
        """The totals, with carbontracker's prediction for epochs that it was not to monitor, flagged as such."""
        log, predicted, summary = self.log, self.predicted, self.metered_summary
        is_whole = not log.is_stopped_early and "refused" not in log.said
        if predicted is None or not is_whole or not 0 < len(log.epochs) < (predicted.epochs or 0):
            return summary
        duration_s = max(summary.duration_s, predicted.duration_s or 0.0)
        summary = replace(
            summary,
            duration_s=duration_s,
            gpu_hours=summary.gpu_count * h_from_s(duration_s),
            flags=summary.flags | {Flag.PREDICTED.value},
        )
        energy_kwh, measured_kwh, kilograms = summary.energy_kwh, summary.energy.total_kwh, summary.emissions_kgco2e
        if not energy_kwh or measured_kwh is None or predicted.energy_kwh is None:
            return summary
        return replace(
            summary,
            unmetered_estimate_kwh=max(0.0, predicted.energy_kwh / summary.pue - measured_kwh),
            energy_kwh=predicted.energy_kwh,
            emissions_kgco2e=None if kilograms is None else kilograms * predicted.energy_kwh / energy_kwh,
        )

    @property
    def ending(self) -> Ending:
        """How and when it ended."""
        log = self.log
        status = RunStatus.INTERRUPTED if log.is_stopped_early else RunStatus.FINISHED
        ended_at = iso(log.ended_at) if self.has_summary else ""
        return Ending(RunStatus.STOPPED if "refused" in log.said else status, None, ended_at)

    @property
    def has_summary(self) -> bool:
        """True where it came to its end."""
        return "closed" in self.log.said

    @cached_property
    def _methods(self) -> Mapping[str, str | None]:
        return {component: _method(self.log, component) for component in ("cpu", "gpu")}

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Row]]:
        """Its epochs."""
        return {0: [_row(self.log, epoch, self._methods) for epoch in self.log.epochs]}

    @cached_property
    def own_lines(self) -> Mapping[str, Line]:
        """What its lines say of the whole run."""
        log, methods = self.log, self._methods
        gpus, cpus = log.devices.get("gpu", ()), log.devices.get("cpu", ())
        gpus = gpus[:1] if gpus[1:] == ("ANE",) else gpus  # Apple's are one
        version, predicted = safe_text(log.said.get("version", "")), log.blocks.get("Predicted")
        has_memory = any(cpu.startswith("dram") for cpu in cpus)
        country = re.fullmatch(r".*, ([A-Z]{2})", log.location)
        fields = lines_of(
            {
                "project": safe_text(self._process[1] or "") if self._process else "",
                "started_at": iso(log.began_at),
                "meter": f"carbontracker {version}".strip(),
                "meter_note": "" if any(methods.get(c) for c in log.devices) else _UNKNOWN_METHOD,
                "epochs_planned": cell(predicted.epochs if predicted else None) or log.said.get("planned", ""),
                "gpu_count": str(len(gpus)) if log.devices else "",
                "gpu_models": ", ".join(f"{n} × {model}" for model, n in Counter(gpus).items()),
                "gpu_method": methods["gpu"] or "" if gpus else "",
                "cpu_model": ", ".join(cpus),
                "cpu_method": methods["cpu"] or "" if cpus else "",
                "unmeasured": "" if has_memory or not log.devices else "ram",
                "country": country[1] if country else "",
                "location": log.location,
            }
        )
        source, of_pue = f"as carbontracker {version} counted it", safe_text(log.said.get("pue_source", ""))
        factors = (
            ("pue", "", f"{source} ({of_pue})" if of_pue else source),
            ("carbon_intensity", "gCO2e/kWh", f"{source} ({log.location or 'no place known'})"),
        )
        for name, unit, of in factors:
            if (value := log.number(name)) is not None:
                fields |= {f.name: (f.value, f.unit) for f in factor_fields(Factor(name, value, unit, of))}
        return fields


def _row(log: CarbontrackerLog, epoch: LoggedEpoch, methods: Mapping[str, str | None]) -> Row:
    duration_s = epoch.duration_s or 0.0
    powers_w = {c: epoch.powers_w.get(c) for c in ("cpu", "gpu")}
    cpu_kwh, gpu_kwh = (None if w is None else kwh_from_w_s(sum(w), duration_s) for w in powers_w.values())
    cpu_method, gpu_method = (None if w is None else methods[c] for c, w in powers_w.items())
    energy = Energy(cpu_kwh, gpu_kwh, None, cpu_method, gpu_method)
    total_kwh, intensity = energy.total_kwh, log.number("carbon_intensity")
    is_known = total_kwh is not None and intensity is not None
    emissions = gco2e_from_kwh((total_kwh or 0.0) * (log.number("pue") or 1.0), intensity or 0.0) if is_known else None
    began_at = iso(epoch.ended_at - timedelta(seconds=duration_s) if epoch.ended_at else None)
    return Row(RowKind.EPOCH, epoch.number, began_at, 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, emissions)


def _method(log: CarbontrackerLog, component: str) -> str | None:
    """Return the method behind the powers: the log does not say which hardware was simulated.

    Powers of a GPU that never change are given ones; a single one may be either.
    """
    devices = log.devices.get(component, ())
    if devices and all(_SENSOR.fullmatch(device) for device in devices):
        return Method.SAMPLED_POWER
    powers = [powers_w for epoch in log.epochs if (powers_w := epoch.powers_w.get(component))]
    if component == "cpu" or len(set(powers)) < min(2, len(powers)):
        return Method.TDP_MODEL  # of a CPU without a counter: half of its rated power
    return Method.SAMPLED_POWER if len(powers) > 1 else None
