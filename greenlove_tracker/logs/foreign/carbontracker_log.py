"""What carbontracker's two logs of a run say, filled in line by line as they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from greenlove_tracker.logs.foreign.textfile import read_lines, safe_text
from greenlove_tracker.logs.notes import Notes

MAX_PARTS = 1000  # devices, equivalents: more are no log's
_MAX_WRAPPED = 100_000  # characters of the powers of many devices

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d+)? - (.*)")
_DURATION = re.compile(r"(\d{1,7}):(\d\d):(\d\d?(?:\.\d+)?)")
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


def messages(file: Path, notes: Notes) -> Iterator[tuple[int, datetime | None, str]]:
    """Each message with its line and time; the powers of many devices are wrapped over several lines."""
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
    """The devices by component; their names may hold full stops."""
    found = _DEVICES.findall(message.partition("found:")[2])
    return {name.lower(): tuple(safe_text(d) for d in devices.split(", ")[:MAX_PARTS]) for name, devices in found}


def seconds(text: str) -> float:
    """A duration such as ``0:01:02.50``.

    Raises:
        ValueError: where it is none.
    """
    found = _DURATION.search(text)
    if not found:
        raise ValueError(f"{text.strip()[:40]!r} is no duration")
    return timedelta(minutes=60 * int(found[1]) + int(found[2]), seconds=float(found[3])).total_seconds()


def whole(text: str) -> int:
    """A whole number as people write it.

    Raises:
        ValueError: where it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{text[:40]!r} is no number of epochs")
    return int(text)
