"""Reads a text file that another tool wrote, whatever it holds: bounded memory, and nothing in it is believed."""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from greenlove_tracker.format import no_formula
from greenlove_tracker.logs.places import LogPath
from greenlove_tracker.logs.run import Problem

MAX_FILE_BYTES = 256 * 1024**2
MAX_LINE_BYTES = 64 * 1024
_MAX_TEXT = 200  # characters of a name or a note
_MAX_TOLD = 20  # problems of one file

_SIGNATURES = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Notes:
    """What could not be read, by file; of one file no more than a screen can hold."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._n_told: Counter[LogPath] = Counter()

    def tell(self, file: LogPath, message: str) -> None:
        """Note a problem."""
        self._n_told[file] += 1
        if self._n_told[file] <= _MAX_TOLD:
            self.problems.append(Problem(file, message))
        elif self._n_told[file] == _MAX_TOLD + 1:
            self.problems.append(Problem(file, "and more like these"))


def read_lines(file: Path, notes: Notes) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without line ends; what cannot be one is told and left out."""
    try:
        found = os.stat(file)  # noqa: PTH116  # follows links, and says why it cannot
        if not stat.S_ISREG(found.st_mode):
            notes.tell(file, "cannot be read: no plain file")
        elif found.st_size > MAX_FILE_BYTES:
            notes.tell(file, f"left out: {found.st_size:,} bytes, more than the {MAX_FILE_BYTES:,} that a log may have")
        else:
            with file.open("rb") as stream:
                yield from _lines(stream, file, notes)
    except OSError as error:
        notes.tell(file, f"cannot be read: {error.strerror}")


def _lines(stream: BinaryIO, file: Path, notes: Notes) -> Iterator[tuple[int, str]]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if number == 1 and (encoding := _SIGNATURES.get(line[:2])):
            notes.tell(file, f"cannot be read: {encoding} instead of UTF-8")
            return
        if not line.endswith(b"\n"):
            if not _is_followed(stream):
                notes.tell(file, "last line was cut off, and is left out")
                return
            notes.tell(file, f"line {number} left out: longer than {MAX_LINE_BYTES:,} bytes")
        elif b"\x00" in line:
            notes.tell(file, f"line {number} left out: NUL bytes")
        else:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")


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
