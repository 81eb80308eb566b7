"""Reads carbontracker's standard log: each epoch's time and mean power, the factors, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from greenlove_tracker.logs.foreign.carbontracker_log import (
    MAX_PARTS,
    CarbontrackerLog,
    LoggedEpoch,
    devices_of,
    messages,
    seconds,
    whole,
)
from greenlove_tracker.logs.foreign.textfile import amount, safe_text
from greenlove_tracker.logs.notes import Notes

_POWER = re.compile(r"Average power usage \(W\) for (\w+): (.*)")
_PUE = re.compile(r"PUE coefficient of (\d[\d.]*\d)(?: \((.*)\))?")
_INTENSITY = re.compile(r"Average carbon intensity during training was (\d[\d.]*\d) gCO2eq/kWh")
_LOCATION = re.compile(r"at detected location:? (.*)")
_PLANNED = re.compile(r"before all (\d+) epochs")
_APPLE_GPU = ("GPU", "ANE")  # read as one: its power is their sum already


def read_standard(file: Path, log: CarbontrackerLog, notes: Notes) -> None:
    """Take in what the standard log says; what cannot be read is noted."""
    for number, stamp, message in messages(file, notes):
        log.began_at = log.began_at or stamp
        log.ended_at = stamp or log.ended_at
        take = _BY_FIRST_WORD.get(message.partition(" ")[0])
        if take is None:
            continue
        try:
            take(log, stamp, message)
        except ValueError as error:
            notes.tell(file, f"line {number} left out: {error}")
    for epoch in log.epochs:
        if epoch.duration_s is None:
            notes.tell(file, f"epoch {epoch.number} left out: no duration")
    log.epochs = [epoch for epoch in log.epochs if epoch.duration_s is not None]


def _take_version(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    log.version = safe_text(message.rpartition("version ")[2])


def _take_pue(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if found := _PUE.search(message):
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
    if log.epochs and log.epochs[-1].duration_s is None:
        log.epochs[-1].duration_s = seconds(message)


def _take_average(log: CarbontrackerLog, stamp: datetime | None, message: str) -> None:
    if found := _INTENSITY.search(message):
        log.intensity_gco2e_per_kwh = amount(found[1])
        _take_location(log, stamp, message)
    elif (found := _POWER.fullmatch(message)) and log.epochs:
        component = found[1].lower()
        log.epochs[-1].powers_w[component] = _powers_w(found[2], log.devices.get(component, ()))


def _powers_w(text: str, devices: tuple[str, ...]) -> tuple[float, ...] | None:
    """One power for each device; a power without brackets is the mean over all devices, not their sum.

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
