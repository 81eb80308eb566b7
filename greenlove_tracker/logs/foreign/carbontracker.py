"""carbontracker's logs as runs: mean powers become sums over the devices, and what was not measured is empty."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import LogError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.foreign.base import (
    ForeignRecord,
    ForeignRun,
    amount,
    fields_of,
    iso,
    moment,
    read_lines,
    safe_text,
)
from greenlove_tracker.logs.problems import ProblemLog
from greenlove_tracker.logs.schema import cell, factor_fields, unit_of
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Factor,
    Field,
    Flag,
    Method,
    Row,
    RowKind,
    RunStatus,
    RunSummary,
)
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh, h_from_s, kwh_from_w_s

METHOD = "carbontracker"  # of its predictions
_ROUNDING = 0.02  # durations in a log are rounded to 0.01 s: of epochs of a second its parts differ by up to 1%
_MAX_PARTS = 1000  # devices, equivalents: more are no log's
_MAX_WRAPPED = 20_000  # characters of the powers of many devices
_APPLE_GPU = ("GPU", "ANE")  # read as one: its power is their sum already

LOG_NAME = re.compile(r"(.*?)_?carbontracker(|_output|_err)\.log", re.DOTALL)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):?(\d\d):?(\d\d)?Z?")
_PROCESS = re.compile(r"(?:(.*)_)?\d+(?:\.\w+)?")  # pid, and since 2.0 a random number; before it the user's prefix
_SENSOR = re.compile(r"(?:cpu|dram)(?::\d+)+|CPU|GPU|ANE")  # RAPL's domains, Apple's powermetrics; else it is a model
_COUNTRY = re.compile(r".*, ([A-Z]{2})")
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
    at: datetime | None = None


@dataclass(slots=True)
class CarbontrackerLog:
    """Both logs of a run; times are local ones of a zone that is not logged."""

    version: str = ""
    pue: float | None = None
    pue_source: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    epochs: list[LoggedEpoch] = field(default_factory=list)
    began_at: datetime | None = None
    ended_at: datetime | None = None
    intensity_gco2e_per_kwh: float | None = None
    location: str = ""
    planned: int | None = None  # as the message of an early stop has it
    is_stopped_early: bool = False
    is_refused: bool = False  # the question whether to go on was answered with no
    is_closed: bool = False
    actual: Consumption | None = None
    predicted: Consumption | None = None


# -- The lines of a log: each group of a pattern is the field that it fills, read by the reader of that name --

Line = tuple[type, str]  # the part of the log that it is of, and its pattern
_STANDARD: Sequence[Line] = (
    (CarbontrackerLog, r"carbontracker.* version (?P<version>.*)"),
    (
        CarbontrackerLog,
        r"Only .*PUE coefficient of (?P<pue>[1-9][0-9]*(?:\.[0-9]+)?)(?: \((?P<pue_source>.*)\))?\.?\s*",
    ),
    (CarbontrackerLog, r"The .*components were found:(?P<devices>.*)"),
    (LoggedEpoch, r"Epoch (?P<number>[0-9]{1,9}):? ?"),
    (LoggedEpoch, r"Duration:(?P<duration_s>.*)"),
    (LoggedEpoch, r"Average power usage \(W\) for (?P<key>\w+): (?P<powers_w>.*)"),
    (
        CarbontrackerLog,
        r"Average carbon intensity during training was (?P<intensity_gco2e_per_kwh>\d[\d.]*\d) gCO2eq/kWh"
        r"(?:.*at detected location:? (?P<location>.*)|.*)",
    ),
    (CarbontrackerLog, r"Carbon.*at detected location:? (?P<location>.*)"),
    (
        CarbontrackerLog,
        r"(?P<is_stopped_early>Training was interrupted)(?: before all (?P<planned>[0-9]{1,9}) epochs.*|.*)",
    ),
    (CarbontrackerLog, r"(?P<is_refused>Session ended by user).*"),
    (CarbontrackerLog, r"(?P<is_closed>Monitoring thread ended).*"),
)
_OUTPUT: Sequence[Line] = (
    (CarbontrackerLog, r"CarbonTracker: The .*components were found:(?P<devices>.*)"),  # the standard log may be lost
    (
        Consumption,
        r"(?:CarbonTracker: )?(?P<which>Actual|Predicted) consumption"
        r"(?: for (?P<epochs>[0-9]{1,9}) epoch(?:\(s\)|s)?)?:?\s*",
    ),
    (Consumption, r"\s*Time:(?P<duration_s>.*)"),
    (Consumption, r"\s*Energy:\s*(?P<energy_kwh>\S+) kWh\s*"),
    (Consumption, r"\s*CO2eq:\s*(?P<emissions_gco2e>\S+) g\s*"),
    (Consumption, r"\s*(?P<equivalents>\d[\d.]*) (?P<key>\S.*)"),
    (CarbontrackerLog, r"\s*This is equivalent to:\s*|\s*"),
    (Consumption, r"CarbonTracker:(?!.*CarbonTracker:).*"),  # whatever it says, the block before it has ended
)
# A line that fits no pattern was damaged where it has one of these, and else is of no interest.
_TELLING = re.compile(r"\d{4}|.*(?:Epoch|Duration:|Average|PUE|components|interrupted|ended)")

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? - (.*)")
_DURATION = re.compile(r"(?:(\d{1,7}) days?, )?(\d{1,7}):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_DEVICES = re.compile(r"(\w+) with device\(s\) (.*?)\.(?= \w+ with device\(s\) |\s*$)")


def read_log(file: Path, lines: Sequence[Line], log: CarbontrackerLog, notes: ProblemLog) -> None:
    """Take in what one of the logs says; what cannot be read is noted."""
    parts: dict[type, Any] = {CarbontrackerLog: log}  # that lines are of: the epoch and the consumption named last
    for number, stamp, message in _messages(file, notes):
        log.began_at = log.began_at or stamp
        log.ended_at = stamp or log.ended_at
        fits = ((of, found) for of, pattern in lines if (found := re.fullmatch(pattern, message)))
        fit = next(fits, None)
        try:
            if fit is not None:
                _take(parts, fit[0], fit[1].groupdict(), stamp)
            elif lines is _OUTPUT or _TELLING.match(message):
                raise ValueError(f"{message.strip()[:80]!r} is not understood")
        except ValueError as error:
            notes.add(file, f"line {number} left out: {error}")


def _messages(file: Path, notes: ProblemLog) -> Iterator[tuple[int, datetime | None, str]]:
    """Yield each message with its line and time; the powers of many devices are wrapped over several lines."""
    held, stamp = None, None
    for number, line in read_lines(file, notes):
        found = _STAMPED.fullmatch(line)
        stamp = moment(found[1]) if found else stamp
        if held and not found and len(held[2]) < _MAX_WRAPPED:
            held = (*held[:2], f"{held[2]} {line}")
        else:
            yield from [held] if held else ()
            held = number, stamp, found[2] if found else line
        if not (held[2].startswith("Average power") and "[" in held[2] and "]" not in held[2]):
            yield held
            held = None
    yield from [held] if held else ()


def _take(parts: dict[type, Any], of: type, texts: dict[str, str | None], stamp: datetime | None) -> None:
    """Fill the part of the log that a line is of, or begin a new one."""
    log, key = parts[CarbontrackerLog], texts.pop("key", None)
    values = {name: _READERS[name](text) for name, text in texts.items() if text is not None}
    if "number" in values:
        parts[of] = LoggedEpoch(values["number"], stamp)
        log.epochs.append(parts[of])
    elif "which" in values:
        parts[of] = Consumption(values.get("epochs"), at=stamp)
        setattr(log, values["which"], parts[of])
    elif of is Consumption and not values:
        parts[of] = None
    elif (part := parts.get(of)) is None:
        raise ValueError(f"{', '.join(values)} of nothing that is named")
    elif "powers_w" in values:
        component = str(key).lower()
        if component in part.powers_w:
            raise ValueError(f"a power of {component} without an epoch of its own")
        part.powers_w[component] = _powers_w(values["powers_w"], log.devices.get(component, ()))
    elif "equivalents" in values:
        part.equivalents |= {safe_text(str(key)): values["equivalents"]} if len(part.equivalents) < _MAX_PARTS else {}
    else:
        for name, value in values.items():
            if not getattr(part, name):  # of the whole log what was said first counts
                setattr(part, name, value)
            elif of is not CarbontrackerLog:
                raise ValueError(f"a second {name}, without a beginning of its own")


def _check(log: CarbontrackerLog) -> Iterator[str]:
    """Yield what the log should hold and does not: a line of it was lost, or damaged beyond being known."""
    for before, epoch in pairwise([LoggedEpoch(0, None), *log.epochs]):
        if epoch.number != before.number + 1:
            yield f"epoch {epoch.number} follows on epoch {before.number}"
        if epoch.duration_s is None:
            yield f"epoch {epoch.number} left out: no duration"
    components = {component: None for epoch in log.epochs for component in epoch.powers_w}
    if log.devices and (unknown := components.keys() - log.devices.keys()):
        yield f"a power of {', '.join(sorted(unknown))}, which is not among the components that were found"
    components |= {component: None for component in ("cpu", "gpu") if component in log.devices}
    for epoch in log.epochs:
        if lacking := components.keys() - epoch.powers_w.keys():
            yield f"epoch {epoch.number} has no power of {', '.join(sorted(lacking))}"
    for name, block in (("actual", log.actual), ("predicted", log.predicted)):
        if block is not None and (block.duration_s is None or block.energy_kwh is None):
            yield f"the {name} consumption lacks its time or its energy"


# -- Readers of what stands in a line: each raises ValueError where it cannot be meant --


def _devices(text: str) -> dict[str, tuple[str, ...]]:
    """Return the devices by component; their names may hold full stops."""
    found = _DEVICES.findall(text)
    return {name.lower(): tuple(safe_text(d) for d in devices.split(", ")[:_MAX_PARTS]) for name, devices in found}


def _seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50``."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
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


def _place(text: str) -> str:
    place = safe_text(text.partition(": [")[0].strip(" .:"))
    return "" if place == "Unknown" else place


_READERS: Mapping[str, Callable[[str], Any]] = {
    "version": safe_text,
    "pue": amount,
    "pue_source": safe_text,
    "devices": _devices,
    "number": int,
    "duration_s": _seconds,
    "powers_w": str,
    "intensity_gco2e_per_kwh": amount,
    "location": _place,
    "planned": int,
    "is_stopped_early": bool,
    "is_refused": bool,
    "is_closed": bool,
    "which": str.lower,
    "epochs": int,
    "energy_kwh": amount,
    "emissions_gco2e": amount,
    "equivalents": amount,
}


# -- The run --


class CarbontrackerRun(ForeignRun):
    """A run of carbontracker.

    Args:
        name: of its logs, without ``_carbontracker.log``.
        standard: its standard log, where there is one.
        output: its output log; one of the two there is.
    """

    def __init__(self, name: str, standard: Path | None, output: Path | None) -> None:
        found, rest = _TIME.search(name), _TIME.sub("", name).strip("_")
        time = "".join(found.groups("00")) if found else ""  # first, so that runs sort by it
        parts = (f"{time[:8]}T{time[8:]}" if time else "", METHOD, re.sub(r"[^\w.-]+", "_", rest)[:80])
        super().__init__(standard or output or Path(name), "-".join(part for part in parts if part))
        self.standard, self.output, self._process = standard, output, _PROCESS.fullmatch(rest)

    @cached_property
    def log(self) -> CarbontrackerLog:
        """The content of its logs.

        Raises:
            LogError: where they are no logs of carbontracker.
        """
        log, notes = CarbontrackerLog(), ProblemLog()
        for file, lines in ((self.standard, _STANDARD), (self.output, _OUTPUT)):
            if file is not None:
                read_log(file, lines, log, notes)
        if not (log.version or log.devices or log.epochs or log.actual or log.predicted):
            why = notes.problems[0].message if notes.problems else "nothing in it is known"
            raise LogError(f"{self.path}: is no log of carbontracker: {why}")
        if self.standard is None:
            notes.add(self.path, "its standard log is missing, which holds the epochs")
        for message in _check(log):
            notes.add(self.path, message)
        log.epochs = [epoch for epoch in log.epochs if epoch.duration_s is not None]
        self._problem_log.extend(notes.problems)
        return log

    @cached_property
    def _correction(self) -> float:
        """The factor that corrects carbontracker's energies: it takes the mean over devices for their sum.

        1.0 where the totals of the log are the sum over its devices and epochs, up to its rounding.
        """
        logged, measured_kwh = self.log.actual, self.measured.energy_kwh
        if logged is None or not logged.energy_kwh or measured_kwh is None:
            return 1.0
        factor = measured_kwh / logged.energy_kwh
        return 1.0 if math.isclose(factor, 1.0, rel_tol=_ROUNDING) else factor

    @property
    def agrees(self) -> bool:
        """True where the totals of the log are the sum over its devices and epochs, up to its rounding."""
        return self._correction == 1.0

    @property
    def predicted(self) -> Consumption | None:
        """The prediction, corrected as the totals are; None where none was made."""
        logged = self.log.predicted
        if logged is None or self.agrees:
            return logged
        energy_kwh, grams = (
            _times(logged.energy_kwh, self._correction),
            _times(logged.emissions_gco2e, self._correction),
        )
        return replace(logged, energy_kwh=energy_kwh, emissions_gco2e=grams, equivalents={})  # which were of these

    @cached_property
    def summary(self) -> RunSummary:
        """The totals, with carbontracker's prediction for epochs that it was not to monitor, flagged as such."""
        log, predicted, summary = self.log, self.predicted, self.measured
        is_whole = log.is_closed and not log.is_stopped_early and not log.is_refused
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

    def read_forecasts(self, stream: int) -> Iterator[IssuedForecast]:
        """Yield its one prediction, the mean so far times the epochs: it has no interval, and knows epochs alone."""
        predicted, epochs = self.predicted, self.log.epochs
        if stream or predicted is None or predicted.epochs is None or predicted.duration_s is None or not epochs:
            return
        before = [e for e in epochs if e.ended_at and predicted.at and e.ended_at <= predicted.at] or epochs[:1]
        kilograms = None if predicted.emissions_gco2e is None else predicted.emissions_gco2e / GRAMS_PER_KG
        points = {"duration_s": predicted.duration_s, "energy_kwh": predicted.energy_kwh, "emissions_kgco2e": kilograms}
        estimates = {q: Estimate(v, v, v, 0.0, unit_of(q)) for q, v in points.items() if v is not None}
        elapsed_s = math.fsum(e.duration_s or 0.0 for e in before)
        issued_at, n_done = iso(predicted.at), len(before)
        yield IssuedForecast(issued_at, elapsed_s, n_done, 0, predicted.epochs, METHOD, estimates)

    @cached_property
    def record(self) -> ForeignRecord:
        """The content of the log."""
        log = self.log
        actual, methods = log.actual or Consumption(None), {c: _method(log, c) for c in ("cpu", "gpu")}
        if log.pue is None:
            self._add_problem("", "names no PUE: counted without")
        status = RunStatus.FINISHED if log.is_closed and not log.is_stopped_early else RunStatus.INTERRUPTED
        return ForeignRecord(
            fields=self._fields_of(log, methods),
            rows=[_row(log, epoch, methods) for epoch in log.epochs],
            ending=Ending(
                RunStatus.STOPPED if log.is_refused else status, None, iso(log.ended_at) if log.is_closed else ""
            ),
            is_closed=log.is_closed,
            total_kwh=actual.energy_kwh,
            emissions_gco2e=actual.emissions_gco2e,
        )

    def _fields_of(self, log: CarbontrackerLog, methods: Mapping[str, str | None]) -> dict[str, Field]:
        gpus, cpus = log.devices.get("gpu", ()), log.devices.get("cpu", ())
        gpus = gpus[:1] if gpus[1:] == ("ANE",) else gpus  # Apple's are one
        country, predicted = _COUNTRY.fullmatch(log.location), log.predicted
        has_memory = any(cpu.startswith("dram") for cpu in cpus)
        fields = fields_of(
            {
                "project": safe_text(self._process[1] or "") if self._process else "",
                "started_at": iso(log.began_at),
                "meter": f"carbontracker {log.version}".strip(),
                "meter_note": "" if any(methods.get(c) for c in log.devices) else _UNKNOWN_METHOD,
                "epochs_planned": cell((predicted.epochs if predicted else None) or log.planned),
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
        source = f"as carbontracker {log.version} counted it"
        factors = []
        if log.pue is not None:
            factors.append(Factor("pue", log.pue, "", source + (f" ({log.pue_source})" if log.pue_source else "")))
        intensity, actual = log.intensity_gco2e_per_kwh, log.actual
        if intensity is None and actual and actual.energy_kwh and actual.emissions_gco2e is not None:
            intensity = actual.emissions_gco2e / actual.energy_kwh
            if log.epochs:
                self._add_problem("", "names no carbon intensity: taken from its totals")
        if intensity is not None:
            place = f"{source} ({log.location or 'no place known'})"
            factors.append(Factor("carbon_intensity", intensity, "gCO2e/kWh", place))
        return fields | {f.name: f for factor in factors for f in factor_fields(factor)}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _row(log: CarbontrackerLog, epoch: LoggedEpoch, methods: Mapping[str, str | None]) -> Row:
    duration_s = epoch.duration_s or 0.0
    powers_w = {c: epoch.powers_w.get(c) for c in ("cpu", "gpu")}
    cpu_kwh, gpu_kwh = (None if w is None else kwh_from_w_s(sum(w), duration_s) for w in powers_w.values())
    cpu_method, gpu_method = (None if w is None else methods[c] for c, w in powers_w.items())
    energy = Energy(cpu_kwh, gpu_kwh, None, cpu_method, gpu_method)
    total_kwh, intensity = energy.total_kwh, log.intensity_gco2e_per_kwh
    is_known = total_kwh is not None and intensity is not None
    emissions = gco2e_from_kwh((total_kwh or 0.0) * (log.pue or 1.0), intensity or 0.0) if is_known else None
    began_at = iso(epoch.ended_at - timedelta(seconds=duration_s) if epoch.ended_at else None)
    return Row(RowKind.EPOCH, epoch.number, began_at, 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, emissions)


def _method(log: CarbontrackerLog, component: str) -> str | None:
    """Return the method behind the powers: the log does not say which hardware was simulated.

    Powers of a GPU that never change are given ones; a single one may be either.
    """
    devices = log.devices.get(component, ())
    if devices and all(_SENSOR.fullmatch(device) for device in devices):
        return Method.SAMPLED_POWER
    if component == "cpu":
        return Method.TDP_MODEL  # of a CPU without a counter: half of its rated power
    powers = [powers_w for epoch in log.epochs if (powers_w := epoch.powers_w.get(component))]
    if len(powers) < 2:
        return None
    return Method.TDP_MODEL if len(set(powers)) == 1 else Method.SAMPLED_POWER
