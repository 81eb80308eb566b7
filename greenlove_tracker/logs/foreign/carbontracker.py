"""carbontracker's logs as runs: each device counts, and what was not measured is empty.

What is read of which release stands in ``docs/coming-from-carbontracker.md``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from greenlove_tracker.logs.csvio import ProblemLog
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, moment, safe_text
from greenlove_tracker.logs.foreign.carbontracker_lines import WHOLE_CONSUMPTION, Said, read_parts
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Factor,
    Flag,
    Method,
    Row,
    RowKind,
    RunStatus,
    times,
)
from greenlove_tracker.vocabulary.units import kwh_from_w_s

_MAX_DEVICES = 1000  # more are no log's
_LAST_DIGIT = 5e-7  # kWh; to 1.1.7 a total has six decimals
_ROUNDING = 0.02  # of a total and its epochs: the last reading of an epoch may count in one of them alone

LOG_NAME = re.compile(r"(.*?)_?carbontracker(|_output|_err)\.log", re.DOTALL)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d)[\W_]?(\d\d)[\W_]?(\d\d)?Z?")
_PROCESS = re.compile(r"(?:^|_)\d+(?:\.\w+)?$")  # pid, and since 2.0 a random number; before it the user's prefix
_SENSOR = re.compile(r"(?:cpu|dram|intel-rapl)(?::\d+)+|CPU|GPU")  # RAPL's domains, Apple's powermetrics; else a model
_DEVICES = re.compile(r"(?i)\b(cpu|gpu) with device\(s\) (.*?)(?:, ane)?\.(?= +\w+ with device\(s\) |\s*$)")
_UNKNOWN_METHOD = "carbontracker does not log whether it measured the power or was given it"


def carbontracker_run(standard: Path) -> ForeignRun:
    """Return the run of a standard log, and of the output log beside it."""
    name = LOG_NAME.sub(r"\1", standard.name)
    time = _TIME.search(name)
    rest = _TIME.sub("", name).strip("_")
    began = "{}{}{}T{}{}{}".format(*time.groups("00")) if time else ""  # first, so that runs sort by it
    project = _PROCESS.sub("", rest)
    if project == rest:  # names up to 1.1.2 tell the minute alone: runs of one minute differ by what their logs say
        rest = f"{rest}-{sha256(_content(standard)).hexdigest()[:8]}".strip("-")
    return ForeignRun(standard, (began, "carbontracker", rest), partial(_read, standard, project))


def _content(file: Path) -> bytes:
    """Return what a file holds; nothing if it cannot be read, which the reading of the run tells."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _read(standard: Path, project: str, notes: ProblemLog) -> ForeignLog:
    """Return what the logs of a run say.

    Raises:
        LogError: where they are no logs of carbontracker.
    """
    output = standard.with_name(f"{standard.stem}_output.log")
    parts = read_parts(standard, output, notes)
    (run,) = parts["run"]
    if run.keys() <= {"from", "to"} and len(parts["epochs"]) == 1:
        raise LogError(f"{standard}: is no log of carbontracker: nothing in it is known")
    if "pue" not in run and not run.get("version", "").startswith("1.0."):
        notes.add(standard, "names no PUE: counted without")
    devices = _devices(run.get("devices", ""))
    expected = {f"{component}_w" for component, names in devices.items() if names}
    if n_damaged := _n_damaged(parts["epochs"], expected):
        notes.add(standard, f"lacks lines of {plural(n_damaged, 'epoch')}: what they said is left out")
    epochs = [epoch for epoch in parts["epochs"] if "number" in epoch and epoch.keys() & {"duration", "over"}]
    pue = float(run.get("pue", 1.0))
    powers_w = {}
    methods = {}
    summed_kwh = 0.0
    for component, names in devices.items():
        powers_w[component] = [_powers_w(epoch.get(f"{component}_w", ""), len(names)) for epoch in epochs]
        methods[component] = _method(component, names, powers_w[component])
        for each_w, epoch in zip(powers_w[component], epochs, strict=True):
            summed_kwh += pue * kwh_from_w_s(sum(each_w), _duration_s(epoch))
    consumed = {}
    for said in parts["consumptions"]:
        if said.keys() >= WHOLE_CONSUMPTION:
            consumed[said["which"]] = (_seconds(said["time"]), float(said["energy"]), float(said["grams"]))
    total_kwh = summed_kwh
    if "Actual" in consumed:
        _, total_kwh, _ = consumed["Actual"]
    is_sum = math.isclose(total_kwh, summed_kwh, rel_tol=_tolerance(run, epochs), abs_tol=_LAST_DIGIT)
    if not is_sum:
        told = f"its total of {total_kwh} kWh is not that of its devices and epochs: {summed_kwh:.6g} kWh count"
        notes.add(output, told)
    share = total_kwh / summed_kwh if is_sum and total_kwh * summed_kwh else 1.0
    intensity = _intensity(run, consumed)
    rate = times(intensity, pue)
    rows = []
    for epoch, *each_w in zip(epochs, *powers_w.values(), strict=True):
        rows.append(_row(epoch, share, methods, rate, *each_w))
    is_of_each = is_sum and ("Actual" in consumed or all(len(names) < 2 for names in devices.values()))
    planned = int(next((said["planned"] for said in (run, *parts["consumptions"]) if "planned" in said), 0))
    status = RunStatus.INTERRUPTED
    if "refused" in run:
        status = RunStatus.STOPPED
    elif 0 < planned <= len(rows) or ("closed" in run and "interrupted" not in run):
        status = RunStatus.FINISHED  # 2.3 may log all epochs and no end
        if 0 < len(rows) < planned:
            rows.append(_unmonitored(rows, planned))
    factors = []
    if intensity is not None:
        source = f"as {_tool(run)} counted it ({_place(run) or 'no place known'})"
        factors.append(Factor("carbon_intensity", intensity, "gCO2e/kWh", source))
    return ForeignLog(
        texts=_texts(run, devices, methods) | {"project": safe_text(project), "epochs_planned": str(planned or "")},
        factors=factors,
        rows=rows,
        ending=Ending(status, None, iso(moment(run["to"])) if "closed" in run else ""),
        output=str(output) if output.exists() else "",
        devices=devices,
        powers_w=powers_w,
        predicted=consumed.get("Predicted") if is_of_each else None,
    )


def _devices(text: str) -> dict[str, list[str]]:
    """Return the names of the devices by component."""
    devices: dict[str, list[str]] = {"cpu": [], "gpu": []}
    for component, names in _DEVICES.findall(text):
        devices[component.lower()] = [safe_text(name) for name in names.split(", ")[:_MAX_DEVICES] if name]
    return devices


def _n_damaged(epochs: Iterable[Said], expected: set[str]) -> int:
    """Return the epochs of which a line is missing: it was lost, or damaged beyond being known."""
    numbers = [int(epoch["number"]) for epoch in epochs if "number" in epoch]
    whole = {epoch["number"] for epoch in epochs if epoch.keys() >= {"number", *expected}}
    return max([0, len(numbers), *numbers]) - len(whole)


def _seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50`` or ``2 days, 0:01:02``."""
    numbers = map(float, reversed(re.findall(r"[\d.]+", text)))
    return sum(number * unit_s for number, unit_s in zip(numbers, (1, 60, 3600, 86_400), strict=False))


def _duration_s(epoch: Said) -> float:
    """Return how long an epoch took; to 1.0.5 only the times of its first and last line tell."""
    if "duration" in epoch:
        return _seconds(epoch["duration"])
    began_s = _seconds(epoch["from"][11:].replace(",", "."))
    ended_s = _seconds(epoch["to"][11:].replace(",", "."))
    return (ended_s - began_s) % 86_400


def _powers_w(text: str, n_devices: int) -> Sequence[float]:
    """Return one power for each device, nothing where none was measured.

    To 1.0.6 a log has every reading of every device; since 2.0 it has one mean over all. 0 W is of hardware that could
    not be read: what draws nothing does not run.
    """
    plain = text.replace("np.float64", "").replace("None", "0").replace("nan", "0")
    readings = re.findall(r"\[([^\[\]]+)\]", plain) or [f"{plain} " * max(1, n_devices)]
    of_devices = zip(*(re.findall(r"\d[\d.e+-]*", reading) for reading in readings), strict=False)
    means = [statistics.fmean(map(float, of_one)) for of_one in of_devices]
    return means if any(means) else ()


def _method(component: str, devices: Sequence[str], powers_w: Sequence[Sequence[float]]) -> str | None:
    """Return the method behind the powers: the log does not say which hardware was simulated.

    Powers of a GPU that never change are given ones; a single one may be either.
    """
    measured = [tuple(each) for each in powers_w if each]
    if measured and devices and all(map(_SENSOR.fullmatch, devices)):
        return Method.SAMPLED_POWER
    if measured and (component == "cpu" or len(set(measured)) < min(2, len(measured))):
        return Method.TDP_MODEL  # of a CPU without a counter: half of its rated power
    return Method.SAMPLED_POWER if len(measured) > 1 else None


def _row(
    epoch: Said,
    share: float,
    methods: Mapping[str, str | None],
    gco2e_per_kwh: float | None,
    *powers_w: Sequence[float],
) -> Row:
    """Return an epoch, by the powers of CPU and GPUs in it."""
    duration_s = _duration_s(epoch)
    ended_at = moment(epoch["to"])
    began_at = iso(ended_at - timedelta(seconds=duration_s) if ended_at else None)
    cpu_kwh, gpu_kwh = (share * kwh_from_w_s(sum(each), duration_s) if each else None for each in powers_w)
    energy = Energy(cpu_kwh, gpu_kwh, None, methods["cpu"], methods["gpu"])
    emissions_gco2e = None
    if gco2e_per_kwh is not None:
        emissions_gco2e = times(energy.total_kwh, gco2e_per_kwh)
    number = int(epoch["number"])
    return Row(RowKind.EPOCH, number, began_at, 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, emissions_gco2e)


def _tolerance(run: Said, epochs: Sequence[Said]) -> float:
    """Return by which share the total and the sum of the epochs may differ: the durations in the log are rounded."""
    step_s = 1.0 if run.get("version") in ("1.0.7", "1.1.0") else 0.01
    return _ROUNDING + len(epochs) * step_s / max(step_s, math.fsum(map(_duration_s, epochs)))


def _intensity(run: Said, consumed: Mapping[str, tuple[float, float, float]]) -> float | None:
    """Return the carbon intensity: CO2eq ÷ energy of the total, which no wording can break, else as it is named."""
    ratios = {which: grams / kwh for which, (_, kwh, grams) in consumed.items() if kwh}
    found = (ratios.get("Actual"), run.get("mean_intensity"), run.get("intensity"), ratios.get("Predicted"))
    return next((float(value) for value in found if value is not None), None)


def _unmonitored(epochs: Sequence[Row], n_planned: int) -> Row:
    """Return the epochs that were not to be monitored, each of the mean time, as carbontracker predicts them."""
    left_s = statistics.fmean(epoch.duration_s for epoch in epochs) * (n_planned - len(epochs))
    flags = frozenset({Flag.PREDICTED.value})
    return Row(RowKind.TAIL, None, "", left_s, UNKNOWN_ENERGY, 0.0, Counts(), UNKNOWN_ENERGY, None, flags)


def _texts(run: Said, devices: Mapping[str, Sequence[str]], methods: Mapping[str, str | None]) -> dict[str, str]:
    """Return the fields of ``run.csv``."""
    cpus = devices["cpu"]
    gpus = devices["gpu"]
    place = _place(run)
    country = re.search(r", ([A-Z]{2})$", place)
    has_memory = any(cpu.startswith("dram") for cpu in cpus)
    return {
        "started_at": iso(moment(run.get("from", ""))),
        "meter": _tool(run),
        "meter_note": "" if any(methods.values()) else _UNKNOWN_METHOD,
        "gpu_count": str(len(gpus)) if cpus or gpus else "",
        "gpu_models": ", ".join(f"{n} × {model}" for model, n in Counter(gpus).items()),
        "gpu_method": methods["gpu"] or "",
        "cpu_model": ", ".join(cpus),
        "cpu_method": methods["cpu"] or "",
        "unmeasured": "ram" if (cpus or gpus) and not has_memory else "",
        "country": country[1] if country else "",
        "location": place,
        "pue": run.get("pue", ""),
        "pue.source": f"as {_tool(run)} counted it ({safe_text(run['pue_source'])})" if "pue_source" in run else "",
    }


def _tool(run: Said) -> str:
    return f"carbontracker {safe_text(run.get('version', ''))}".strip()


def _place(run: Said) -> str:
    return safe_text(run.get("location", "")).strip(" .")
