"""carbontracker's logs as runs: mean powers become sums over the devices, and what was not measured is empty."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.forecasts import QUANTITIES, IssuedForecast
from greenlove_tracker.logs.foreign.base import ForeignRecord, ForeignRun, amount, fields_of, read_lines, safe_text
from greenlove_tracker.logs.problems import ProblemLog
from greenlove_tracker.logs.schema import cell, factor_fields
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

LOG_NAME = re.compile(r"(.*?)_?carbontracker(|_output|_err)\.log", re.DOTALL)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):?(\d\d):?(\d\d)?Z?")
_PROCESS = re.compile(r"(?:(.*)_)?\d+(?:\.\w+)?")  # pid, and since 2.0 a random number; before it the user's prefix
_SENSOR = re.compile(r"(?:cpu|dram)(?::\d+)+|CPU|GPU|ANE")  # RAPL's domains, Apple's powermetrics; else it is a model
_COUNTRY = re.compile(r".*, ([A-Z]{2})")
_UNKNOWN_METHOD = "carbontracker does not log whether it measured the power or was given it"


class CarbontrackerRun(ForeignRun):
    """A run of carbontracker.

    Args:
        name: of its logs, without ``_carbontracker.log``.
        standard: its standard log, where there is one.
        output: its output log, where there is one.
    """

    def __init__(self, name: str, standard: Path | None, output: Path | None) -> None:
        file = standard or output
        if file is None:
            raise ValueError(f"{name}: a run of carbontracker without a log")
        super().__init__(file, run_id_of(name))
        self.name, self.standard, self.output = name, standard, output

    @cached_property
    def _notes(self) -> ProblemLog:
        return ProblemLog()

    @cached_property
    def log(self) -> CarbontrackerLog:
        """The content of its logs.

        Raises:
            LogError: where they are no logs of carbontracker.
        """
        log, notes = CarbontrackerLog(), self._notes
        if self.standard is not None:
            read_standard(self.standard, log, notes)
        if self.output is not None:
            read_output(self.output, log, notes)
        if not (log.version or log.devices or log.epochs or log.actual or log.predicted):
            why = notes.problems[0].message if notes.problems else "nothing in it is known"
            raise LogError(f"{self.path}: is no log of carbontracker: {why}")
        if self.standard is None:
            notes.add(self.path, "its standard log is missing, which holds the epochs")
        return log

    @property
    def agrees(self) -> bool:
        """True where the totals of the log are the sum over its devices and epochs, up to its rounding."""
        return math.isclose(self._correction, 1.0, rel_tol=_ROUNDING)

    @cached_property
    def _correction(self) -> float:
        """The factor that corrects carbontracker's energies: it takes the mean over devices for their sum."""
        logged, measured_kwh = self.log.actual, self.measured.energy_kwh
        if logged is None or not logged.energy_kwh or measured_kwh is None:
            return 1.0
        return measured_kwh / logged.energy_kwh

    @property
    def predicted(self) -> Consumption | None:
        """The prediction, corrected as the totals are; None where none was made."""
        logged = self.log.predicted
        return logged if logged is None or self.agrees else logged.times(self._correction)

    @property
    def is_monitored_in_part(self) -> bool:
        """True where fewer epochs were monitored than planned, on purpose: its totals are then its prediction."""
        log, planned = self.log, self.log.predicted.epochs if self.log.predicted else None
        is_ended = log.is_stopped_early or log.is_refused or not log.is_closed
        return not is_ended and planned is not None and 0 < len(log.epochs) < planned

    @cached_property
    def summary(self) -> RunSummary:
        """The totals, with carbontracker's prediction for epochs that it was not to monitor, flagged as such."""
        predicted, summary = self.predicted, self.measured
        if predicted is None or not self.is_monitored_in_part:
            return summary
        duration_s = max(summary.duration_s, predicted.duration_s or 0.0)
        energy_kwh, measured_kwh = summary.energy_kwh, summary.energy.total_kwh
        estimate_kwh, kilograms = summary.unmetered_estimate_kwh, summary.emissions_kgco2e
        if energy_kwh and measured_kwh is not None and predicted.energy_kwh is not None:
            estimate_kwh = max(0.0, predicted.energy_kwh / summary.pue - measured_kwh)
            kilograms = None if kilograms is None else kilograms * predicted.energy_kwh / energy_kwh
            energy_kwh = predicted.energy_kwh
        return replace(
            summary,
            duration_s=duration_s,
            gpu_hours=summary.gpu_count * h_from_s(duration_s),
            unmetered_estimate_kwh=estimate_kwh,
            energy_kwh=energy_kwh,
            emissions_kgco2e=kilograms,
            flags=summary.flags | {Flag.PREDICTED.value},
        )

    def read_forecasts(self, stream: int) -> Iterator[IssuedForecast]:
        """Yield its one prediction, the mean so far times the epochs: it has no interval, and knows epochs alone."""
        predicted, epochs = self.predicted, self.log.epochs
        if stream or predicted is None or predicted.epochs is None or predicted.duration_s is None or not epochs:
            return
        before = [e for e in epochs if e.ended_at and predicted.at and e.ended_at <= predicted.at] or epochs[:1]
        kilograms = None if predicted.emissions_gco2e is None else predicted.emissions_gco2e / GRAMS_PER_KG
        points = {"duration_s": predicted.duration_s, "energy_kwh": predicted.energy_kwh, "emissions_kgco2e": kilograms}
        estimates = {q: Estimate(v, v, v, 0.0, QUANTITIES[q]) for q, v in points.items() if v is not None}
        elapsed_s = math.fsum(e.duration_s or 0.0 for e in before)
        issued_at, n_done = _text(predicted.at), len(before)
        yield IssuedForecast(issued_at, elapsed_s, n_done, 0, predicted.epochs, METHOD, estimates)

    def _load(self) -> ForeignRecord:
        log = self.log
        if log.pue is None:
            self._notes.add(self.path, "names no PUE: counted without")
        if log.epochs and log.intensity_gco2e_per_kwh is None and _intensity(log) is not None:
            self._notes.add(self.path, "names no carbon intensity: taken from its totals")
        actual, methods = log.actual, {component: _method(log, component) for component in ("cpu", "gpu")}
        return ForeignRecord(
            fields=_fields(log, self.name, methods),
            rows=[_row(log, epoch, methods) for epoch in log.epochs],
            ending=Ending(_status(log), None, _text(log.ended_at) if log.is_closed else ""),
            is_closed=log.is_closed,
            total_kwh=actual.energy_kwh if actual else None,
            emissions_gco2e=actual.emissions_gco2e if actual else None,
            problems=self._notes.problems,
        )


def run_id_of(name: str) -> str:
    """Return a run's name from that of its logs: time first, so that runs sort by it."""
    found = _TIME.search(name)
    time = "".join(found.groups("00")) if found else ""
    rest = _TIME.sub("", name).strip("_")
    parts = (f"{time[:8]}T{time[8:]}" if time else "", "carbontracker", re.sub(r"[^\w.-]+", "_", rest)[:80])
    return "-".join(part for part in parts if part)


def _status(log: CarbontrackerLog) -> str:
    """Return the ending: without the last epoch or line, the run was interrupted."""
    if log.is_refused:
        return RunStatus.STOPPED
    return RunStatus.FINISHED if log.is_closed and not log.is_stopped_early else RunStatus.INTERRUPTED


def _text(moment: datetime | None) -> str:
    """Return ISO 8601 without a zone: the log gives local times and not of where."""
    return moment.isoformat(timespec="milliseconds") if moment else ""


def _row(log: CarbontrackerLog, epoch: LoggedEpoch, methods: Mapping[str, str | None]) -> Row:
    duration_s = epoch.duration_s or 0.0
    cpu_kwh, gpu_kwh = (_energy_kwh(epoch, component) for component in ("cpu", "gpu"))
    energy = Energy(
        cpu_kwh, gpu_kwh, None, None if cpu_kwh is None else methods["cpu"], None if gpu_kwh is None else methods["gpu"]
    )
    total_kwh, intensity = energy.total_kwh, log.intensity_gco2e_per_kwh
    is_known = total_kwh is not None and intensity is not None
    emissions = gco2e_from_kwh((total_kwh or 0.0) * (log.pue or 1.0), intensity or 0.0) if is_known else None
    began_at = epoch.ended_at - timedelta(seconds=duration_s) if epoch.ended_at else None
    return Row(
        RowKind.EPOCH, epoch.number, _text(began_at), 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, emissions
    )


def _energy_kwh(epoch: LoggedEpoch, component: str) -> float | None:
    powers_w = epoch.powers_w.get(component)
    return None if powers_w is None else kwh_from_w_s(sum(powers_w), epoch.duration_s or 0.0)


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


def _fields(log: CarbontrackerLog, name: str, methods: Mapping[str, str | None]) -> dict[str, Field]:
    gpus, cpus = log.devices.get("gpu", ()), log.devices.get("cpu", ())
    is_apple = gpus[1:] == ("ANE",)
    country = _COUNTRY.fullmatch(log.location)
    planned = log.predicted.epochs if log.predicted and log.predicted.epochs else log.planned
    process = _PROCESS.fullmatch(_TIME.sub("", name).strip("_"))
    has_memory = any(cpu.startswith("dram") for cpu in cpus)
    fields = fields_of(
        {
            "project": safe_text(process[1] or "") if process else "",
            "started_at": _text(log.began_at),
            "meter": f"carbontracker {log.version}".strip(),
            "meter_note": "" if any(methods[c] for c in log.devices if c in methods) else _UNKNOWN_METHOD,
            "epochs_planned": cell(planned),
            "gpu_count": ("1" if is_apple else str(len(gpus))) if log.devices else "",
            "gpu_models": ", ".join(f"{n} × {model}" for model, n in Counter(gpus[:1] if is_apple else gpus).items()),
            "gpu_method": methods["gpu"] or "" if gpus else "",
            "cpu_model": ", ".join(cpus),
            "cpu_method": methods["cpu"] or "" if cpus else "",
            "unmeasured": "" if has_memory or not log.devices else "ram",
            "country": country[1] if country else "",
            "location": log.location,
        }
    )
    if log.pue is not None:
        fields |= {f.name: f for f in factor_fields(Factor("pue", log.pue, "", _source(log, log.pue_source)))}
    if (intensity := _intensity(log)) is not None:
        fields |= {f.name: f for f in factor_fields(intensity)}
    return fields


def _source(log: CarbontrackerLog, details: str) -> str:
    return f"as carbontracker {log.version} counted it" + (f" ({details})" if details else "")


def _intensity(log: CarbontrackerLog) -> Factor | None:
    """Return the intensity as it was logged, else that of its totals."""
    value, actual = log.intensity_gco2e_per_kwh, log.actual
    if value is None and actual and actual.energy_kwh and actual.emissions_gco2e is not None:
        value = actual.emissions_gco2e / actual.energy_kwh
    if value is None:
        return None
    return Factor("carbon_intensity", value, "gCO2e/kWh", _source(log, log.location or "no place known"))


# -- The content of carbontracker's two logs of a run, filled in line by line --

MAX_PARTS = 1000  # devices, equivalents: more are no log's
_MAX_WRAPPED = 100_000  # characters of the powers of many devices

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? - (.*)")
_DURATION = re.compile(r"(?:(\d{1,7}) days?, )?(\d{1,7}):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)
_DEVICES = re.compile(r"(\w+) with device\(s\) (.*?)\.(?= \w+ with device\(s\) |\s*$)")


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

    def times(self, factor: float) -> Consumption:
        """Return it with energy and emissions multiplied; equivalents, which were made of these, are left out."""
        energy_kwh, grams = self.energy_kwh, self.emissions_gco2e
        return Consumption(
            self.epochs,
            self.duration_s,
            None if energy_kwh is None else energy_kwh * factor,
            None if grams is None else grams * factor,
            at=self.at,
        )


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


def messages(file: Path, notes: ProblemLog) -> Iterator[tuple[int, datetime | None, str]]:
    """Yield each message with its line and time; the powers of many devices are wrapped over several lines."""
    held: tuple[int, datetime | None, str] | None = None
    stamp = None
    for number, line in read_lines(file, notes):
        found = _STAMPED.fullmatch(line)
        stamp = _moment(found[1]) if found else stamp
        if held is not None and (found or len(held[2]) > _MAX_WRAPPED):
            yield held
            held = None
        text = found[2] if found else line
        held = (number, stamp, text) if held is None else (*held[:2], f"{held[2]} {text}")
        if not ("[" in held[2] and "]" not in held[2] and held[2].startswith("Average power")):
            yield held
            held = None
    if held is not None:
        yield held


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def devices_of(message: str) -> dict[str, tuple[str, ...]]:
    """Return the devices by component; their names may hold full stops."""
    found = _DEVICES.findall(message.partition("found:")[2])
    return {name.lower(): tuple(safe_text(d) for d in devices.split(", ")[:MAX_PARTS]) for name, devices in found}


def seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50``.

    Raises:
        ValueError: where it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text.strip()[:40]!r} is no duration")
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return timedelta(days, hours=hours, minutes=minutes, seconds=float(found[4])).total_seconds()


def whole(text: str) -> int:
    """Return a whole number as people write it.

    Raises:
        ValueError: where it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{text[:40]!r} is no number of epochs")
    return int(text)


# -- The standard log: each epoch's time and mean power, the factors, and how it ended --

_POWER = re.compile(r"Average power usage \(W\) for (\w+): (.*)")
_PUE = re.compile(r"PUE coefficient of ([\d.]*\d)(?: \((.*)\))?\.?\s*")
_INTENSITY = re.compile(r"Average carbon intensity during training was (\d[\d.]*\d) gCO2eq/kWh")
_LOCATION = re.compile(r"at detected location:? (.*)")
_PLANNED = re.compile(r"before all (\d+) epochs")
_APPLE_GPU = ("GPU", "ANE")  # read as one: its power is their sum already


def read_standard(file: Path, log: CarbontrackerLog, notes: ProblemLog) -> None:
    """Take in what the standard log says; what cannot be read is noted."""
    for number, stamp, message in messages(file, notes):
        log.began_at = log.began_at or stamp
        log.ended_at = stamp or log.ended_at
        take = _BY_FIRST_WORD.get(message.partition(" ")[0])
        if take is None:
            if message[:4].isdecimal() or any(word in message for word in _BY_FIRST_WORD):
                notes.add(file, f"line {number} left out: {message[:80]!r} is no message with its time")
            continue
        try:
            take(log, stamp, message)
        except ValueError as error:
            notes.add(file, f"line {number} left out: {error}")
    for epoch in log.epochs:
        if epoch.duration_s is None:
            notes.add(file, f"epoch {epoch.number} left out: no duration")
    for text in _gaps(log):
        notes.add(file, text)
    log.epochs = [epoch for epoch in log.epochs if epoch.duration_s is not None]


def _gaps(log: CarbontrackerLog) -> Iterator[str]:
    """Yield what the log should hold and does not: a line of it was lost, or damaged beyond being known."""
    expected = 1
    for epoch in log.epochs:
        if epoch.number != expected:
            yield f"epoch {epoch.number} follows on epoch {expected - 1}"
        expected = epoch.number + 1
    found = [component for component in log.devices if component in ("cpu", "gpu")]
    components = dict.fromkeys([*found, *(component for epoch in log.epochs for component in epoch.powers_w)])
    for component in components:
        if log.devices and component not in log.devices:
            yield f"a power of {component}, which is not among the components that were found"
        for epoch in log.epochs:
            if component not in epoch.powers_w:
                yield f"epoch {epoch.number} has no power of {component}"


def _take_version(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    log.version = safe_text(message.rpartition("version ")[2])


def _take_pue(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if "PUE coefficient" in message:
        found = _PUE.fullmatch(message, max(0, message.find("PUE coefficient")))
        if found is None:
            raise ValueError(f"{message[:80]!r} has no PUE")
        value = amount(found[1])
        if value is None or value < 1:
            raise ValueError(f"a PUE of {found[1][:40]}")
        log.pue, log.pue_source = value, safe_text(found[2] or "")


def _take_components(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if "components were found:" in message:
        log.devices = devices_of(message)


def _take_epoch(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    log.epochs.append(LoggedEpoch(whole(message.removeprefix("Epoch ").rstrip(": ")), stamp))


def _take_duration(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if not log.epochs or log.epochs[-1].duration_s is not None:
        raise ValueError("a duration without an epoch of its own")
    log.epochs[-1].duration_s = seconds(message.removeprefix("Duration:"))


def _take_average(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if found := _INTENSITY.search(message):
        log.intensity_gco2e_per_kwh = amount(found[1])
        _take_location(log, stamp, message)
    elif (found := _POWER.fullmatch(message)) and log.epochs:
        component = found[1].lower()
        if component in log.epochs[-1].powers_w:
            raise ValueError(f"a power of {component} without an epoch of its own")
        log.epochs[-1].powers_w[component] = _powers_w(found[2], log.devices.get(component, ()))
    else:
        raise ValueError(f"{message[:80]!r} is not understood")


def _powers_w(text: str, devices: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return one power for each device; a power without brackets is the mean over all devices, not their sum.

    0 W is of hardware that could not be read: what draws nothing does not run.
    """
    parts = text.strip("[] ").replace(",", " ").split()
    values = [value for part in parts[:MAX_PARTS] if (value := amount(part)) is not None]
    if not any(values):
        return None
    if text.startswith("[") or devices == _APPLE_GPU:
        return tuple(values)
    return (values[0],) * max(1, len(devices))


def _take_location(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if found := _LOCATION.search(message):
        place = safe_text(found[1].partition(": [")[0].strip(" .:"))
        log.location = "" if place == "Unknown" else place


def _take_ending(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if message.startswith("Training was interrupted"):
        log.is_stopped_early = True
        if found := _PLANNED.search(message):
            log.planned = whole(found[1])
    elif message.startswith("Session ended by user"):
        log.is_refused = True
    elif message.startswith("Monitoring thread ended"):
        log.is_closed = True


_BY_FIRST_WORD: dict[str, Callable[[CarbontrackerLog, datetime | None, str], None]] = {
    "carbontracker": _take_version,
    "Only": _take_pue,
    "The": _take_components,
    "Epoch": _take_epoch,
    "Duration:": _take_duration,
    "Average": _take_average,
    "Carbon": _take_location,
    "Training": _take_ending,
    "Session": _take_ending,
    "Monitoring": _take_ending,
}


# -- The output log: the prediction, and the totals of the run --

_BLOCK = re.compile(r"(Actual|Predicted) consumption(?: for (\d+) epoch(?:\(s\)|s)?)?:?")
_EQUIVALENT = re.compile(r"(\d[\d.]*) (\S.*)")


def read_output(file: Path, log: CarbontrackerLog, notes: ProblemLog) -> None:
    """Take in what the output log says; what cannot be read is noted."""
    block: Consumption | None = None
    for number, stamp, message in messages(file, notes):
        log.began_at = log.began_at or stamp
        log.ended_at = stamp or log.ended_at
        text = message.removeprefix("CarbonTracker:").strip()
        try:
            if "CarbonTracker:" in text:
                raise ValueError(f"{text[:80]!r} is no message with its time")
            if text.startswith(("Actual consumption", "Predicted consumption")):
                block = None
                if (found := _BLOCK.fullmatch(text)) is None:
                    raise ValueError(f"{text[:80]!r} is not understood")
                block = Consumption(whole(found[2]) if found[2] else None, at=stamp)
                if found[1] == "Actual":
                    log.actual = block
                else:
                    log.predicted = block
            elif text and message.startswith("CarbonTracker:"):
                block = None
                _take_devices(log, text)
            elif block is not None:
                _take_amount(block, text)
            elif text:
                raise ValueError(f"{text[:80]!r} is of nothing that is named")
        except ValueError as error:
            notes.add(file, f"line {number} left out: {error}")
    _note_incomplete(log, file, notes)


def _note_incomplete(log: CarbontrackerLog, file: Path, notes: ProblemLog) -> None:
    for name, block in (("actual", log.actual), ("predicted", log.predicted)):
        if block is not None and (block.duration_s is None or block.energy_kwh is None):
            notes.add(file, f"the {name} consumption lacks its time or its energy")


def _take_devices(log: CarbontrackerLog, text: str) -> None:
    if not log.devices and "components were found:" in text:  # of a run whose standard log is lost
        log.devices = devices_of(text)


def _amount_in(text: str, unit: str) -> float | None:
    value, _, of = text.strip().rpartition(" ")
    if of != unit:
        raise ValueError(f"{text.strip()[:40]!r} is not in {unit}")
    return amount(value)


def _take_amount(block: Consumption, text: str) -> None:
    name, _, value = text.partition(":")
    if name == "Time":
        block.duration_s = seconds(value)
    elif name == "Energy":
        block.energy_kwh = _amount_in(value, "kWh")
    elif name == "CO2eq":
        block.emissions_gco2e = _amount_in(value, "g")
    elif (found := _EQUIVALENT.fullmatch(text)) and len(block.equivalents) < MAX_PARTS:
        block.equivalents[safe_text(found[2])] = amount(found[1]) or 0.0
    elif text and text != "This is equivalent to:":
        raise ValueError(f"{text[:80]!r} is not understood")
