"""carbontracker's logs as runs: each device counts, and what was not measured is empty.

What is read of which release stands in ``docs/coming-from-carbontracker.md``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from greenlove_tracker.logs.csvio import ProblemLog, read_lines
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, safe_text
from greenlove_tracker.logs.schema import Reader, cell
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Flag,
    Method,
    Row,
    RowKind,
    RunStatus,
    part_of_energy,
    times,
)
from greenlove_tracker.vocabulary.units import kwh_from_w_s

# -- What the lines say: one table of patterns, for the logs of 1.0.3 to 2.4.7 --

Said = dict[str, Any]  # what a part of a log says, by the names of the groups

_HEAD = (
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?) - "
    r"(?:[\w -]{1,60} - [A-Z]+ - )?"  # thread and level, to 1.0.6
    r"(?:CarbonTracker: ?)?"  # in the output log
)
_COUNT = r"[0-9]{1,9}"
_NUMBER = r"(?:0|[1-9]\d{0,14})(?:\.\d{1,30})?"
_DURATION = (
    r"(?:\d{1,7} days?, )?\d{1,7}:[0-5]\d:(?:[0-5]\d(?:\.\d{1,9})?|60(?:\.0+)?|\d\.\d\d)"  # 0:00:1.30 is of 1.1.1
)
# As numpy and Python print them: [200.], [149.   136.86], [1.5e+02], [np.float64(200.0)], [[149.0, 136.8], [...]]
_POWER = r"(?:(?:np\.float64\()?(?:0|[1-9]\d{0,14})(?:\.\d{0,30})?(?:e[+-]\d\d)?\)?|None|nan)"
_LIST = rf"\[\s*{_POWER}(?:[\s,]+{_POWER})*\s*\]"
_READING = rf"\[{_POWER}(?:, {_POWER})*\]"
_POWERS = rf"{_NUMBER}(?:e[+-]\d\d)?|None|nan|{_LIST}|\[{_READING}(?:, {_READING})*\]"
_INTENSITY = rf"{_NUMBER}) gCO2(?:eq)?/kWh"
_PLACE = r"\.? at (?:detected location:? )?(?!Unknown|UNDETECTED|detected)(?P<location>[^:]*)(?:: \[.*)?"
_PATTERNS = {
    ("epochs", _HEAD): (
        rf"Epoch (?P<number>(?!0){_COUNT})(?:: ?| started\.)",
        rf"Epoch {_COUNT} (?P<over>ended)\.",  # to 1.0.6
        rf"Duration: (?P<duration>{_DURATION})",
        rf"(?:Average power usage|Power usages)(?: \(W\))? for (?i:gpu): (?P<gpu_w>{_POWERS})\.?",
        rf"(?:Average power usage|Power usages)(?: \(W\))? for (?i:cpu): (?P<cpu_w>{_POWERS})\.?",
    ),
    ("run", _HEAD): (
        r"carbontracker.* version (?P<version>.*)",
        r"The .*components were found:(?P<devices>.*)",
        rf"Only .*PUE coefficient of (?P<pue>(?!0){_NUMBER})(?: \((?P<pue_source>.*)\))?\.?",
        rf"Average carbon intensity during training was (?P<mean_intensity>{_INTENSITY}(?:{_PLACE}|.*)",
        rf"Training location was determined to be (?P<location>.*)\. Current.* (?P<intensity>{_INTENSITY}.*",
        rf"(?:Current|Live|Carbon intensity(?: fetched)?:) .*?(?P<intensity>{_INTENSITY}(?:{_PLACE}|.*)",
        rf"Carbon intensit.*?{_PLACE}",
        rf"Training was (?P<interrupted>interrupted)(?: before all (?:(?P<planned>{_COUNT})|-1) epochs.*|.*)",
        r"Session (?P<refused>ended by user).*",
        r"Monitoring thread (?P<closed>ended).*",
        r"(?:|(?:Monitoring|Carbon|Live|Location|Failed|Defaulted|Finished|Continu|Quitting|Input).*)",
    ),
    ("consumptions", ""): (
        rf"(?P<which>Actual) consumption(?: for {_COUNT} epoch(?:\(s\)|s)?)?:?",
        rf"(?P<which>Predicted) consumption(?: for (?P<planned>{_COUNT}) epoch(?:\(s\)|s)?)?:?",
        rf"(?P<which>First) {_COUNT} epoch\(s\):",  # this and the next to 1.0.4
        rf"(?P<which>Prediction) for (?P<planned>{_COUNT}) epoch\(s\):",
        rf"\s+Time:\s+(?P<time>{_DURATION})(?: s)?",
        rf"\s+Energy:\s+(?P<energy>{_NUMBER}) kWh",
        rf"\s+CO2eq:\s+(?P<grams>{_NUMBER}) g",
        r"\s+This is equivalent to:|",
        rf"\s+{_NUMBER} [a-z].*",
    ),
}
_KNOWN = [
    (kind, re.compile(head + pattern, re.ASCII)) for (kind, head), patterns in _PATTERNS.items() for pattern in patterns
]
_BREAK = re.compile(r"(?<=[\d.n])\n[ \t]+(?=[\d.e+ na-]*\]?$)", re.MULTILINE)  # in long arrays of numpy


def _seconds(text: str) -> float:
    """Return a duration such as ``0:01:02.50`` or ``2 days, 0:01:02``."""
    numbers = map(float, reversed(re.findall(r"[\d.]+", text)))
    return sum(number * unit_s for number, unit_s in zip(numbers, (1, 60, 3600, 86_400), strict=False))


def _mean_powers(text: str) -> list[float]:
    """Return the mean power of each device, nothing where none was measured.

    To 1.0.6 a log has every reading of every device. 0 W is of hardware that could not be read: what draws nothing does
    not run.
    """
    plain = re.sub(r"np\.float64\(|None|nan", "0", text)
    readings = re.findall(r"\[([^\[\]]+)\]", plain) or [plain]
    of_devices = zip(*(re.findall(r"\d[\d.e+-]*", reading) for reading in readings), strict=False)
    means = [statistics.fmean(map(float, of_one)) for of_one in of_devices]
    return means if any(means) else []


_READERS: dict[str, Reader] = {  # of what is no text, by the names of the groups
    "at": datetime.fromisoformat,
    "number": int,
    "planned": int,
    "duration": _seconds,
    "time": _seconds,
    "cpu_w": _mean_powers,
    "gpu_w": _mean_powers,
    "pue": float,
    "intensity": float,
    "mean_intensity": float,
    "energy": float,
    "grams": float,
}


def _read_parts(files: Iterable[Path], notes: ProblemLog) -> tuple[Said, list[Said], dict[str, Said]]:
    """Return what the logs of a run say.

    In one process, 1.x also writes what a tracker says into the logs of those before it. To 1.1.2, that is the same log
    where they began in one minute, with each line once for each of them.

    Returns:
        What they say of the run, and of each epoch, with the times of the first and last line as ``from`` and ``to``;
        and the last whole consumption of each kind, with its ``intensity``.
    """
    run: Said = {}
    epochs: list[Said] = [{}]  # the first, of these and of the next, has what stands before the others
    consumptions: list[Said] = [{}]
    parts = {"run": [run], "epochs": epochs, "consumptions": consumptions}
    for file in files:
        text = "".join(f"{line.rstrip()}\n" for line in read_lines(str(file), partial(notes.add, file)))
        left_out = []
        for line, _ in groupby(_BREAK.sub(" ", text).split("\n")):
            try:
                kind, said = _understood(line)
            except ValueError:  # what stands between the lines costs nothing
                left_out.append(line)
                continue
            time = said.pop("at", None)
            if "version" in said and "version" in run:
                notes.add(file, f"from {time} on of another tracker, and left out: 1.x gives it a log of its own, too")
                run["until"] = time
                break
            if time and time > run.get("until", time):
                break
            if said.keys() & {"number", "which"}:
                parts[kind].append({})
            part = parts[kind][-1]
            if time:
                part.setdefault("from", time)
                part["to"] = time
            if kind == "run":
                part.update(said)
            elif any(part.setdefault(name, value) != value for name, value in said.items()):
                left_out.append(line)
        if left_out:
            told = f"{plural(len(left_out), 'line')} not understood: left out; the first: {left_out[0][:80]!r}"
            notes.add(file, told)
    consumed = {}
    for said in consumptions:
        if "planned" in said:
            run.setdefault("planned", said["planned"])
        if said.keys() >= {"which", "time", "energy", "grams"}:
            said["intensity"] = said["grams"] / said["energy"] if said["energy"] else None
            consumed[said["which"]] = said
        elif said:
            notes.add(file, "lacks lines of a consumption: what they said is left out")
    return run, epochs[1:], consumed


def _understood(line: str) -> tuple[str, Said]:
    """Return the kind of the part that a line belongs to, and what it says.

    Raises:
        ValueError: where it fits no pattern.
    """
    for kind, pattern in _KNOWN:
        if match := pattern.fullmatch(line):
            said = match.groupdict().items()
            return kind, {name: _READERS.get(name, str)(text) for name, text in said if text is not None}
    raise ValueError(line)


# -- What a run comes to --

_MAX_DEVICES = 1000  # more are no log's
_IN_WHOLE_SECONDS = ("1.0.7", "1.1.0")  # which give durations so
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
        content = "".join(read_lines(str(standard), partial(ProblemLog().add, standard)))  # its problems are told later
        rest = f"{rest}-{sha256(content.encode()).hexdigest()[:8]}".strip("-")
    return ForeignRun(standard, (began, "carbontracker", rest), partial(_read, standard, project))


def _read(standard: Path, project: str, notes: ProblemLog) -> ForeignLog:
    """Return what the logs of a run say.

    Raises:
        LogError: where they are no logs of carbontracker.
    """
    output = standard.with_name(f"{standard.stem}_output.log")
    run, begun, consumed = _read_parts([standard, output] if output.exists() else [standard], notes)
    if run.keys() <= {"from", "to"} and not begun:
        raise LogError(f"{standard}: is no log of carbontracker: nothing in it is known")
    if "pue" not in run and not run.get("version", "").startswith("1.0."):
        notes.add(standard, "names no PUE: counted without")
    devices = _devices(run.get("devices", ""))
    expected = {"number", *(f"{component}_w" for component, names in devices.items() if names)}
    whole = {epoch["number"] for epoch in begun if epoch.keys() >= expected}
    n_damaged = max([len(begun), *(epoch["number"] for epoch in begun)]) - len(whole)
    if n_damaged:  # a line was lost, or damaged beyond being known
        notes.add(standard, f"lacks lines of {plural(n_damaged, 'epoch')}: what they said is left out")
    epochs = [epoch for epoch in begun if epoch.keys() & {"duration", "over"}]
    # to 1.0.5 only the times of its first and last line tell how long an epoch took
    durations_s = [max(0.0, epoch.get("duration", (epoch["to"] - epoch["from"]).total_seconds())) for epoch in epochs]
    pue = run.get("pue", 1.0)
    is_mean_over_devices = not run.get("version", "").startswith("1.")  # since 2.0 an epoch has one power
    components = {}
    methods = {}
    stated: dict[str, float | None] = {}
    energies: list[list[float | None]] = []
    for component, names in devices.items():
        each_w = [epoch.get(f"{component}_w", []) for epoch in epochs]
        if is_mean_over_devices:
            each_w = [w * max(1, len(names)) if len(w) == 1 else w for w in each_w]
        components[component] = (names, each_w)
        methods[component] = _method(component, names, each_w)
        if any(each_w) and methods[component] is None:
            stated["measured_kwh"] = None  # how much of it hardware measured is not known
        energies.append(
            [kwh_from_w_s(sum(w), s) if w and s else None for w, s in zip(each_w, durations_s, strict=True)]
        )
    summed_kwh = pue * math.fsum(filter(None, chain(*energies)))
    actual = consumed.get("Actual", {})
    predicted = consumed.get("Predicted", {})
    total_kwh = actual.get("energy", summed_kwh)
    step_s = 1.0 if run.get("version") in _IN_WHOLE_SECONDS else 0.01
    tolerance = _ROUNDING + len(epochs) * step_s / max(step_s, math.fsum(durations_s))
    is_sum = math.isclose(total_kwh, summed_kwh, rel_tol=tolerance, abs_tol=_LAST_DIGIT)
    if not is_sum:
        told = f"its total of {total_kwh} kWh is not that of its devices and epochs: {summed_kwh:.6g} kWh count"
        notes.add(output, told)
    share = total_kwh / summed_kwh if is_sum and total_kwh * summed_kwh else 1.0
    # first CO2eq ÷ energy of the total, which no wording can break
    named = (actual.get("intensity"), run.get("mean_intensity"), run.get("intensity"), predicted.get("intensity"))
    intensity = next((value for value in named if value is not None), None)
    rows = []
    for epoch, duration_s, cpu_kwh, gpu_kwh in zip(epochs, durations_s, *energies, strict=True):
        energy = part_of_energy(Energy(cpu_kwh, gpu_kwh, None, methods["cpu"], methods["gpu"]), share)
        began_at = iso(epoch["to"] - timedelta(seconds=duration_s))
        gco2e = None if intensity is None else times(energy.total_kwh, intensity * pue)
        number = epoch["number"]
        rows.append(Row(RowKind.EPOCH, number, began_at, 0.0, UNKNOWN_ENERGY, duration_s, Counts(), energy, gco2e))
    planned = run.get("planned", 0)
    status = RunStatus.INTERRUPTED
    if "refused" in run:
        status = RunStatus.STOPPED
    elif 0 < planned <= len(rows) or ("closed" in run and "interrupted" not in run):
        status = RunStatus.FINISHED  # 2.3 may log all epochs and no end
        if 0 < len(rows) < planned:  # the others were not to be monitored: each takes the mean time, as it predicts
            left_s = statistics.fmean(durations_s) * (planned - len(rows))
            flags = frozenset({Flag.PREDICTED.value})
            rows.append(Row(RowKind.TAIL, None, "", left_s, UNKNOWN_ENERGY, 0.0, Counts(), UNKNOWN_ENERGY, None, flags))
    texts = _texts(run, devices, methods) | {"project": safe_text(project), "epochs_planned": str(planned or "")}
    if intensity is None:
        del texts["carbon_intensity.source"]
    else:
        texts["carbon_intensity"] = cell(intensity)
    is_of_each = is_sum and (actual or all(len(names) < 2 for names in devices.values()))
    return ForeignLog(
        texts=texts,
        rows=rows,
        ending=Ending(status, None, iso(run["to"]) if "closed" in run else ""),
        stated=stated,
        output=str(output) if output.exists() else "",
        components=components,
        predicted=predicted if is_of_each else None,
    )


def _devices(text: str) -> dict[str, list[str]]:
    """Return the names of the devices by component."""
    devices: dict[str, list[str]] = {"cpu": [], "gpu": []}
    for component, names in _DEVICES.findall(text):
        devices[component.lower()] = [safe_text(name) for name in names.split(", ")[:_MAX_DEVICES] if name]
    return devices


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


def _texts(run: Said, devices: Mapping[str, Sequence[str]], methods: Mapping[str, str | None]) -> dict[str, str]:
    """Return the fields of ``run.csv``."""
    cpus = devices["cpu"]
    gpus = devices["gpu"]
    tool = f"carbontracker {safe_text(run.get('version', ''))}".strip()
    place = safe_text(run.get("location", "")).strip(" .")
    country = re.search(r", ([A-Z]{2})$", place)
    cpu_model = ", ".join(cpus)
    return {
        "started_at": iso(run.get("from")),
        "meter": tool,
        "meter_note": "" if any(methods.values()) else _UNKNOWN_METHOD,
        "gpu_count": str(len(gpus)) if cpus or gpus else "",
        "gpu_models": ", ".join(f"{n} × {model}" for model, n in Counter(gpus).items()),
        "gpu_method": methods["gpu"] or "",
        "cpu_model": cpu_model,
        "cpu_method": methods["cpu"] or "",
        "unmeasured": "ram" if (cpus or gpus) and "dram" not in cpu_model else "",
        "country": country[1] if country else "",
        "location": place,
        "carbon_intensity.source": f"as {tool} counted it ({place or 'no place known'})",
        "pue": cell(run.get("pue")),
        "pue.source": f"as {tool} counted it ({safe_text(run['pue_source'])})" if "pue_source" in run else "",
    }
