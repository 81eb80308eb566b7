"""What the lines of carbontracker's logs say: one table of patterns, for the logs of 1.0.3 to 2.4.7.

What each release writes stands in ``docs/coming-from-carbontracker.md``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from greenlove_tracker.logs.csvio import ProblemLog, read_lines
from greenlove_tracker.text.format import plural

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


_READERS: dict[str, Callable[[str], Any]] = {  # of what is no text, by the names of the groups
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


def read_parts(files: Iterable[Path], notes: ProblemLog) -> tuple[Said, list[Said], dict[str, Said]]:
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
            consumed[said["which"]] = said
            if said["energy"]:
                said["intensity"] = said["grams"] / said["energy"]
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
