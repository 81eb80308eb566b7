"""carbontracker's logs as runs: mean powers become sums over the devices, and what was not measured is empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.foreign.carbontracker_log import CarbontrackerLog, LoggedEpoch
from greenlove_tracker.logs.foreign.carbontracker_output import read_output
from greenlove_tracker.logs.foreign.carbontracker_standard import read_standard
from greenlove_tracker.logs.foreign.run import ForeignRecord, ForeignRun, fields_of
from greenlove_tracker.logs.foreign.textfile import safe_text
from greenlove_tracker.logs.notes import Notes
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Method, Row, RowKind, RunStatus
from greenlove_tracker.units import gco2e_from_kwh, kwh_from_w_s

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
    def _notes(self) -> Notes:
        return Notes()

    @cached_property
    def log(self) -> CarbontrackerLog:
        """What its logs say.

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
            notes.tell(self.path, "its standard log is missing, which holds the epochs")
        return log

    def _load(self) -> ForeignRecord:
        log = self.log
        if log.pue is None:
            self._notes.tell(self.path, "names no PUE: counted without")
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
    """A run's name from that of its logs: time first, so that runs sort by it."""
    found = _TIME.search(name)
    time = "".join(found.groups("00")) if found else ""
    rest = _TIME.sub("", name).strip("_")
    parts = (f"{time[:8]}T{time[8:]}" if time else "", "carbontracker", re.sub(r"[^\w.-]+", "_", rest)[:80])
    return "-".join(part for part in parts if part)


def _status(log: CarbontrackerLog) -> str:
    """Stopped before the last epoch, or without the last line: interrupted."""
    if log.is_refused:
        return RunStatus.STOPPED
    return RunStatus.FINISHED if log.is_closed and not log.is_stopped_early else RunStatus.INTERRUPTED


def _text(moment: datetime | None) -> str:
    """ISO 8601 without a zone: the log gives local times and not of where."""
    return moment.isoformat(timespec="milliseconds") if moment else ""


# -- rows ------------------------------------------------------------------------------------------------------------


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
    """What the powers are: the log does not say which hardware was simulated.

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


# -- fields ----------------------------------------------------------------------------------------------------------


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
    """As it was logged, else what its totals come to."""
    value, actual = log.intensity_gco2e_per_kwh, log.actual
    if value is None and actual and actual.energy_kwh and actual.emissions_gco2e is not None:
        value = actual.emissions_gco2e / actual.energy_kwh
    if value is None:
        return None
    return Factor("carbon_intensity", value, "gCO2e/kWh", _source(log, log.location or "no place known"))
