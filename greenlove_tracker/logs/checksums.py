"""``SHA256SUMS`` of a run that has ended: the hashes of its CSV files, which ``sha256sum -c`` reads too.

Pages made from them, and what else lies in the directory, are not listed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.files import write_atomically
from greenlove_tracker.logs.schema import RUN_FILE
from greenlove_tracker.logs.storage import LogFile, LogPath, entries, file_in, names, open_binary, place, read_bytes

SUMS_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](\w[\w.-]*\.csv)")
_LISTED = re.compile(r"\w[\w.-]*\.csv")
_MOST_LOOKS = 3  # at files that other processes of the run may still write
_MAX_DEPTH = 4  # a log directory, a run, and the explorations within it


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings of a comparison of runs with their checksums.

    Attributes:
        findings: what was changed, added or removed, a sentence each; empty where all is as it was.
        n_verified: runs that were compared.
        without: runs without checksums: interrupted, still running, or of an older version.
    """

    findings: Sequence[str]
    n_verified: int
    without: Sequence[str]


def write_sums(run_dir: Path) -> None:
    """Write the checksums of a run's files.

    Raises:
        OSError: where a file cannot be read, or the disk does not take it.
    """
    path = run_dir / SUMS_FILE
    for _ in range(_MOST_LOOKS):  # again after writing: another process may have ended meanwhile
        listed = filter(_LISTED.fullmatch, names(run_dir))
        sums = "".join(f"{_sha256(file_in(run_dir, name))}  {name}\n" for name in listed).encode()
        if path.exists() and path.read_bytes() == sums:
            return
        write_atomically(path, sums)


def changes(run_dir: LogPath) -> list[str] | None:
    """Return which files of a run are not as its checksums say, a clause each; None of a run without checksums.

    Raises:
        OSError: where the directory or its checksums cannot be read.
    """
    found = names(run_dir)
    if SUMS_FILE not in found:
        return None
    lines = read_bytes(file_in(run_dir, SUMS_FILE)).decode("utf-8", "replace").splitlines()
    matches = [_LINE.fullmatch(line) for line in lines]
    clauses = [] if all(matches) else [f"{SUMS_FILE} was changed: it holds what is no checksum"]
    then = {match[2]: match[1] for match in matches if match}
    now = {name: _sha256_or_none(file_in(run_dir, name)) for name in filter(_LISTED.fullmatch, found)}
    for name in sorted(then | now):
        if name not in then:
            clauses.append(f"{name} was added")
        elif then[name] != now.get(name):
            clauses.append(f"{name} was changed" if name in now else f"{name} is missing")
    return clauses


def verify(log_dir: str | LogPath) -> Verification:
    """Compare a run, or every run of a directory, with its checksums."""
    findings, without, n_verified = list[str](), list[str](), 0
    for run_dir in _runs_below(place(log_dir)):
        try:
            found = changes(run_dir)
        except OSError as error:
            found = [f"cannot be read: {error.strerror or error}"]
        if found is None:
            without.append(run_dir.name)
        else:
            n_verified += 1
            findings += [f"run {run_dir.name}: {clause}" for clause in found]
    return Verification(findings, n_verified, without)


def _runs_below(path: LogPath, depth: int = 0) -> Iterator[LogPath]:
    """Yield the runs of a directory, itself among them; links are followed from the log directory alone."""
    try:
        found = entries(path)
    except OSError:  # a file of another tool; and what cannot be read is named where it is added up
        return
    if any(e.name in (RUN_FILE, SUMS_FILE) or e.name.startswith("epochs-") for e in found):
        yield path
    for entry in found if depth < _MAX_DEPTH else ():
        if entry.is_dir and not (entry.is_link and depth):
            yield from _runs_below(path / entry.name, depth + 1)


def _sha256(file: LogFile) -> str:
    with open_binary(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]


def _sha256_or_none(file: LogFile) -> str | None:
    try:
        return _sha256(file)
    except OSError:  # it is not as it was
        return None
