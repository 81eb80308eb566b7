"""carbontracker's logs as runs: mean powers become sums over the devices, and what was not measured is empty."""

from __future__ import annotations

import math
import re
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from greenlove_tracker.logs.csvio import ProblemLog, read_lines
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, moment, safe_text
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
)
from greenlove_tracker.vocabulary.units import gco2e_from_kwh, kwh_from_w_s

_ROUNDING = 0.02  # durations in a log are rounded to 0.01 s: of epochs of a second its parts differ by up to 1%
_MAX_DEVICES = 1000  # more are no log's
_MAX_MESSAGE = 20_000  # characters: the powers of a thousand devices have fewer

LOG_NAME = re.compile(r"(.*?)_?carbontracker(|_output|_err)\.log", re.DOTALL)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):?(\d\d):?(\d\d)?Z?")
_PROCESS = re.compile(r"(?:(.*)_)?\d+(?:\.\w+)?")  # pid, and since 2.0 a random number; before it the user's prefix
_SENSOR = re.compile(r"(?:cpu|dram)(?::\d+)+|CPU|GPU")  # RAPL's domains, Apple's powermetrics; else it is a model
_UNKNOWN_METHOD = "carbontracker does not log whether it measured the power or was given it"

# -- The messages of a log: one table of patterns, whose groups name what is said --

# A message begins with its time, and in the output log with a name; all lines up to the next are of it.
_HEAD = re.compile(
    r"^(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? - (?:CarbonTracker: ?)?|CarbonTracker: ?)", re.MULTILINE
)
_COUNT = r"[0-9]{1,9}"
_NUMBER = r"(?:0|[1-9]\d{0,14})(?:\.\d{1,30})?"
_POWER = rf"(?:{_NUMBER}(?:e[+-]\d\d)?|None|nan)"
_POWERS = rf"\[\s*{_POWER}(?:[\s,]+{_POWER})*\s*\]|{_POWER}"
_DURATION = r"(?:\d{1,7} days?, )?\d{1,7}:[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
_PLACE = r"at detected location:? (?!Unknown)(?P<location>[^:\n]*)(?::.*)?"
_KNOWN = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"Epoch (?P<number>(?!0){_COUNT}):? ?",
        rf"Duration: (?P<duration>{_DURATION})",
        rf"Average power usage \(W\) for (?i:gpu): (?P<gpu_w>{_POWERS})",
        rf"Average power usage \(W\) for (?i:cpu): (?P<cpu_w>{_POWERS})",
        r"The .*components were found:(?P<devices>.*)",
        rf"\n?(?P<which>Actual|Predicted) consumption"
        rf"(?: for (?:(?<=Predicted consumption for )(?P<planned>{_COUNT})|{_COUNT}) epoch(?:\(s\)|s)?)?:?[ ]*"
        rf"\n\s*Time:\s(?P<time>{_DURATION})\n\s*Energy:\s+(?P<energy>{_NUMBER}) kWh[ ]*"
        rf"\n\s*CO2eq:\s+(?P<grams>{_NUMBER}) g[ ]*(?:\n\s*This is equivalent to:[ ]*)?(?:\n[ \t]+\d.*)*",
        r"carbontracker.* version (?P<version>.*)",
        rf"Only .*PUE coefficient of (?P<pue>(?!0){_NUMBER})(?: \((?P<pue_source>.*)\))?\.?\s*",
        rf"Average carbon intensity during training was (?P<carbon_intensity>{_NUMBER}) gCO2eq/kWh(?:.*{_PLACE}|.*)",
        rf"Carbon.*{_PLACE}",
        rf"Training was (?P<interrupted>interrupted)(?: before all (?P<planned>{_COUNT}) epochs.*|.*)",
        r"Session (?P<refused>ended by user).*",
        r"Monitoring thread (?P<closed>ended).*",
    )
)
# A message that fits no pattern was damaged where it has one of these, and else is of no interest.
_TELLING = re.compile(r"\d{4}|.*(?:Epoch|Duration:|Average|PUE|components|interrupted|ended|onsumption|CarbonTracker)")
_DEVICES = re.compile(r"\b(CPU|GPU) with device\(s\) (.*?)(?:, ANE)?\.(?= \w+ with device\(s\) |\s*$)")  # ANE: in GPU's

# By the names of the groups; and the times of the first and the last message, ``from`` and ``to``.
Said = dict[str, str]


def _parts_of(files: Iterable[Path], notes: ProblemLog) -> Sequence[Said]:
    """Return what the logs say before the first epoch, from each epoch on, and from each consumption on.

    What a part says first counts.
    """
    parts = [Said()]
    for file in files:
        for time, message in _messages(file, notes):
            found = (pattern.fullmatch(message) for pattern in _KNOWN if len(message) <= _MAX_MESSAGE)
            if match := next(filter(None, found), None):
                said = {name: text for name, text in match.groupdict().items() if text is not None}
                if "number" in said or "which" in said:
                    parts.append(Said())
                parts[-1] = {**said, **parts[-1]}
            elif "\n" in message or _TELLING.match(message):
                notes.add(file, f"{message.strip()[:80]!r} left out: it is not understood")
            if time:
                parts[-1] = {"from": time, **parts[-1], "to": time}
    return parts


def _messages(file: Path, notes: ProblemLog) -> Iterator[tuple[str | None, str]]:
    """Yield each message with its time, where it has one."""
    lines = read_lines(str(file), partial(notes.add, file))
    texts = ["", *_HEAD.split("\n".join(line.rstrip("\r\n") for line in lines))]
    return zip(texts[::2], map(str.rstrip, texts[1::2]), strict=True)


def _seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50`` or ``2 days, 0:01:02``."""
    *days, hours, minutes, seconds = map(float, re.findall(r"[\d.]+", text))
    return timedelta(sum(days), hours=hours, minutes=minutes, seconds=seconds).total_seconds()


def _powers_w(text: str, n_devices: int) -> Sequence[float]:
    """Return one power for each device, nothing where none was measured.

    A power without brackets is the mean over all devices, not their sum. 0 W is of hardware that could not be read:
    what draws nothing does not run.
    """
    values = [float(word) for word in re.findall(r"\d[^\s,\]]*", text)]
    n_each = 1 if text.startswith("[") else max(1, n_devices)
    if any(values):
        return values[:_MAX_DEVICES] * n_each
    return ()


def _method(component: str, devices: Sequence[str], powers_w: Sequence[Sequence[float]]) -> str | None:
    """Return the method behind the powers: the log does not say which hardware was simulated.

    Powers of a GPU that never change are given ones; a single one may be either.
    """
    if devices and all(map(_SENSOR.fullmatch, devices)):
        return Method.SAMPLED_POWER
    measured = [tuple(each) for each in powers_w if each]
    if component == "cpu" or len(set(measured)) < min(2, len(measured)):
        return Method.TDP_MODEL  # of a CPU without a counter: half of its rated power
    return Method.SAMPLED_POWER if len(measured) > 1 else None


# -- The run --


def carbontracker_run(standard: Path) -> ForeignRun:
    """Return the run of a standard log, and of the output log beside it."""
    name = LOG_NAME.sub(r"\1", standard.name)
    time = _TIME.search(name)
    rest = _TIME.sub("", name).strip("_")
    began = "{}{}{}T{}{}{}".format(*time.groups("00")) if time else ""  # first, so that runs sort by it
    process = _PROCESS.fullmatch(rest)
    project = process[1] if process else ""
    return ForeignRun(standard, (began, "carbontracker", rest), partial(_read, standard, project or ""))


def _read(standard: Path, project: str, notes: ProblemLog) -> ForeignLog:
    """Return what the logs of a run say.

    Raises:
        LogError: where they are no logs of carbontracker.
    """
    output = standard.with_name(f"{standard.stem}_output.log")
    files = [standard, output] if output.exists() else [standard]
    parts = _parts_of(files, notes)
    said = ChainMap(*parts)
    last_said = ChainMap(*reversed(parts))
    if said.keys() <= {"from", "to"}:
        raise LogError(f"{standard}: is no log of carbontracker: nothing in it is known")
    if "pue" not in said:
        notes.add(standard, "names no PUE: counted without")
    found = dict(_DEVICES.findall(said.get("devices", "")))
    devices = {}
    for component in ("cpu", "gpu"):
        names = found.get(component.upper(), "").split(", ")
        devices[component] = [safe_text(name) for name in names[:_MAX_DEVICES] if name]
    if n_damaged := _n_damaged(parts, [f"{c}_w" for c in devices if devices[c]]):
        notes.add(standard, f"lacks lines of {plural(n_damaged, 'epoch')}: what they said is left out")
    epochs = [part for part in parts if part.keys() >= {"number", "duration"}]
    powers_w = {c: [_powers_w(epoch.get(f"{c}_w", ""), len(devices[c])) for epoch in epochs] for c in devices}
    methods = {c: _method(c, devices[c], powers_w[c]) for c in devices}
    is_whole = "closed" in said and "interrupted" not in said
    if "refused" in said:
        status = RunStatus.STOPPED
    elif is_whole:
        status = RunStatus.FINISHED
    else:
        status = RunStatus.INTERRUPTED
    rows = [_row(said, epoch, methods, of_it) for epoch, *of_it in zip(epochs, *powers_w.values(), strict=True)]
    if status is RunStatus.FINISHED and 0 < len(rows) < int(said.get("planned", 0)):
        rows.append(_unmonitored(rows, int(said["planned"])))
    blocks = [part for part in parts if "which" in part]
    consumed = {part["which"]: (_seconds(part["time"]), float(part["energy"]), float(part["grams"])) for part in blocks}
    energy_kwh = math.fsum(row.energy.total_kwh or 0.0 for row in rows) * float(said.get("pue", 1.0))
    is_sum = "Actual" in consumed and math.isclose(energy_kwh, consumed["Actual"][1], rel_tol=_ROUNDING)
    return ForeignLog(
        texts={"project": safe_text(project), **_texts(said, devices, methods)},
        factors=_factors(said),
        rows=rows,
        ending=Ending(status, None, iso(moment(last_said.get("to", ""))) if "closed" in said else ""),
        output=str(output) if output in files else "",
        devices=devices,
        powers_w=powers_w,
        consumed=consumed if is_sum else {},
    )


def _n_damaged(parts: Sequence[Said], powers: Iterable[str]) -> int:
    """Return the epochs of which a line is missing: it was lost, or damaged beyond being known.

    Args:
        parts: of the log.
        powers: of the devices that were found; further ones count where any epoch has them.
    """
    epochs = [part for part in parts if "number" in part]
    expected = {"duration", *powers, *{"gpu_w", "cpu_w"}.intersection(chain(*epochs))}
    whole = {epoch["number"] for epoch in epochs if epoch.keys() >= expected}
    return max([len(epochs), *(int(epoch["number"]) for epoch in epochs)]) - len(whole)


def _row(
    said: Mapping[str, str], epoch: Said, methods: Mapping[str, str | None], powers_w: Iterable[Sequence[float]]
) -> Row:
    """Return an epoch, by the powers of CPU and GPUs in it."""
    duration_s = _seconds(epoch["duration"])
    ended_at = moment(epoch.get("from", ""))
    cpu_kwh, gpu_kwh = (kwh_from_w_s(sum(each), duration_s) if each else None for each in powers_w)
    cpu_method, gpu_method = (None if kwh is None else methods[c] for c, kwh in (("cpu", cpu_kwh), ("gpu", gpu_kwh)))
    energy = Energy(cpu_kwh, gpu_kwh, None, cpu_method, gpu_method)
    total_kwh = energy.total_kwh
    intensity = said.get("carbon_intensity")
    if total_kwh is not None and intensity:
        emissions_gco2e = gco2e_from_kwh(total_kwh * float(said.get("pue", 1.0)), float(intensity))
    else:
        emissions_gco2e = None
    began_at = iso(ended_at - timedelta(seconds=duration_s) if ended_at else None)
    number = int(epoch["number"])
    return Row(RowKind.EPOCH, number, began_at, 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, emissions_gco2e)


def _unmonitored(epochs: Sequence[Row], n_planned: int) -> Row:
    """Return the epochs that were not to be monitored, each of the mean time, as carbontracker predicts them."""
    mean_s = math.fsum(epoch.duration_s for epoch in epochs) / len(epochs)
    left_s = mean_s * (n_planned - len(epochs))
    flags = frozenset({Flag.PREDICTED.value})
    return Row(RowKind.TAIL, None, "", left_s, UNKNOWN_ENERGY, 0.0, Counts(), UNKNOWN_ENERGY, None, flags)


def _texts(
    said: Mapping[str, str], devices: Mapping[str, Sequence[str]], methods: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the fields of ``run.csv``."""
    cpus = devices["cpu"]
    gpus = devices["gpu"]
    country = re.search(r", ([A-Z]{2})$", _place(said))
    has_memory = any(cpu.startswith("dram") for cpu in cpus)
    return {
        "started_at": iso(moment(said.get("from", ""))),
        "meter": _tool(said),
        "meter_note": "" if any(methods[c] for c in devices if devices[c]) else _UNKNOWN_METHOD,
        "epochs_planned": said.get("planned", ""),
        "gpu_count": str(len(gpus)) if cpus or gpus else "",
        "gpu_models": ", ".join(f"{n} × {model}" for model, n in Counter(gpus).items()),
        "gpu_method": methods["gpu"] or "" if gpus else "",
        "cpu_model": ", ".join(cpus),
        "cpu_method": methods["cpu"] or "" if cpus else "",
        "unmeasured": "ram" if (cpus or gpus) and not has_memory else "",
        "country": country[1] if country else "",
        "location": _place(said),
    }


def _factors(said: Mapping[str, str]) -> Sequence[Factor]:
    """Return what carbontracker counted with."""
    of_pue = safe_text(said.get("pue_source", ""))
    factors = (("pue", "", of_pue), ("carbon_intensity", "gCO2e/kWh", _place(said) or "no place known"))
    source = f"as {_tool(said)} counted it"
    return [
        Factor(name, float(said[name]), unit, f"{source} ({of})" if of else source)
        for name, unit, of in factors
        if name in said
    ]


def _tool(said: Mapping[str, str]) -> str:
    return f"carbontracker {safe_text(said.get('version', ''))}".strip()


def _place(said: Mapping[str, str]) -> str:
    return safe_text(said.get("location", "")).strip(" .")
