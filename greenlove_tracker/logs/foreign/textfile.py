"""Reads a text file that another tool wrote, whatever it holds: bounded memory, and nothing in it is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from greenlove_tracker.format import no_formula
from greenlove_tracker.logs.csvfile import NOT_UTF_8, UNKNOWN, UTF_16
from greenlove_tracker.logs.notes import Notes
from greenlove_tracker.logs.places import check_file

MAX_LINE_BYTES = 64 * 1024
_MAX_TEXT = 200  # characters of a name or a note


def read_lines(file: Path, notes: Notes) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without line ends; what cannot be one is told and left out."""
    try:
        check_file(file.stat())  # a pipe would be waited for
        with file.open("rb") as stream:
            yield from _lines(stream, file, notes)
    except OSError as error:
        notes.tell(file, f"cannot be read: {error.strerror}")


def _lines(stream: BinaryIO, file: Path, notes: Notes) -> Iterator[tuple[int, str]]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if number == 1 and line[:2] in UTF_16:
            notes.tell(file, "cannot be read: UTF-16 instead of UTF-8")
            return
        if not line.endswith(b"\n"):
            if not _is_followed(stream):
                notes.tell(file, "last line was cut off, and is left out")
                return
            notes.tell(file, f"line {number} left out: longer than {MAX_LINE_BYTES:,} bytes")
        elif b"\x00" in line:
            notes.tell(file, f"line {number} left out: NUL bytes")
        else:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")
            if UNKNOWN in text:
                notes.tell(file, NOT_UTF_8)
            yield number, text


def _is_followed(stream: BinaryIO) -> bool:
    """Whether a line end follows; the stream then stands behind it."""
    while rest := stream.readline(MAX_LINE_BYTES):
        if rest.endswith(b"\n"):
            return True
    return False


def safe_text(text: str) -> str:
    """``text`` as one short line that no spreadsheet takes for a formula."""
    visible = "".join(c if c.isprintable() else " " for c in text[: 4 * _MAX_TEXT])
    return no_formula(" ".join(visible.split())[:_MAX_TEXT])


def amount(text: str) -> float | None:
    """The number that ``text`` holds; None where it is empty or says that there is none.

    Raises:
        ValueError: where it is no number, or a negative one.
    """
    if not text.strip() or text.strip().lower() in ("none", "nan"):
        return None
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{text.strip()[:40]!r} is not an amount")
    return value
