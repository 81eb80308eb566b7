"""Reads carbontracker's output log: what it predicted, and what it says the run took."""

from __future__ import annotations

import re
from pathlib import Path

from greenlove_tracker.logs.foreign.carbontracker_log import (
    MAX_PARTS,
    CarbontrackerLog,
    Consumption,
    devices_of,
    messages,
    seconds,
    whole,
)
from greenlove_tracker.logs.foreign.textfile import amount, safe_text
from greenlove_tracker.logs.notes import Notes

_BLOCK = re.compile(r"(Actual|Predicted) consumption(?: for (\d+) epoch)?")
_EQUIVALENT = re.compile(r"(\d[\d.]*) (\S.*)")


def read_output(file: Path, log: CarbontrackerLog, notes: Notes) -> None:
    """Take in what the output log says; what cannot be read is noted."""
    block: Consumption | None = None
    for number, stamp, message in messages(file, notes):
        log.began_at = log.began_at or stamp
        log.ended_at = stamp or log.ended_at
        text = message.removeprefix("CarbonTracker:").strip()
        try:
            if found := _BLOCK.match(text):
                block = Consumption(whole(found[2]) if found[2] else None)
                if found[1] == "Actual":
                    log.actual = block
                else:
                    log.predicted = block
            elif text and message.startswith("CarbonTracker:"):
                block = None
                _take_components(log, text)
            elif block is not None:
                _take_amount(block, text)
        except ValueError as error:
            notes.tell(file, f"line {number} left out: {error}")


def _take_components(log: CarbontrackerLog, text: str) -> None:
    if not log.devices and "components were found:" in text:  # of a run whose standard log is lost
        log.devices = devices_of(text)


def _take_amount(block: Consumption, text: str) -> None:
    name, _, value = text.partition(":")
    if name == "Time":
        block.duration_s = seconds(value)
    elif name == "Energy":
        block.energy_kwh = amount(value.strip().removesuffix("kWh"))
    elif name == "CO2eq":
        block.emissions_gco2e = amount(value.strip().removesuffix("g"))
    elif (found := _EQUIVALENT.fullmatch(text)) and len(block.equivalents) < MAX_PARTS:
        block.equivalents[safe_text(found[2])] = float(found[1])
