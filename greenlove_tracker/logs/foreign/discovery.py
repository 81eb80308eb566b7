"""Finds runs of every kind under a directory: ours, carbontracker's and CodeCarbon's."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.csvio import Problem, ProblemLog
from greenlove_tracker.logs.foreign.base import ForeignRun
from greenlove_tracker.logs.foreign.carbontracker import LOG_NAME, CarbontrackerRun
from greenlove_tracker.logs.foreign.codecarbon import CodeCarbonRun, Reading, read_emissions
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import CALIBRATION_FILE, CODECARBON_PREFIX
from greenlove_tracker.logs.storage import LogPath, entries, file_in

_OWN_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{10}")  # as new_run_id() gives it: no other needs to be looked into


def runs_and_problems(path: LogPath) -> tuple[list[Run], Iterable[Problem]]:
    """Return every run under ``path``, or in it where it is a file, the oldest first, and what could not be read.

    A directory that has the name of a run is taken for one: it is looked into when the run is read.
    """
    notes, ours, listed = ProblemLog(), list[Run](), [path]
    if not isinstance(path, Path) or path.is_dir():
        ours, listed = _search(path, notes)
    elif name := LOG_NAME.fullmatch(path.name):  # the other log of a run of carbontracker lies beside it
        stem = path.name.removesuffix(f"{name[2]}.log")
        listed = [file for kind in ("", "_output") if (file := path.with_name(f"{stem}{kind}.log")).exists()]
    files = [file for file in listed if isinstance(file, Path)]
    emissions = {file: found for file in files if ".csv" in file.suffixes and (found := read_emissions(file, notes))}
    logs = [file for file in files if LOG_NAME.fullmatch(file.name)]
    deeper = [run.path for run in ours if run.place != f"{path}/{run.run_id}"]
    found_in = [*deeper, *logs, *emissions, *(problem.path for problem in notes.problems)]
    _tell_of_the_rest(path, listed, found_in, notes)
    by_id = _by_id(ours, notes)
    for run in [*_carbontracker_runs(logs, notes), *_codecarbon_runs(emissions, by_id.values(), notes)]:
        _add(run, by_id, notes)
    return [by_id[run_id] for run_id in sorted(by_id)], notes.problems


def _search(root: LogPath, notes: ProblemLog) -> tuple[list[Run], list[LogPath]]:
    """Return our runs in a directory and below, and what else is there; links are followed last, and into no circle."""
    todo, links = deque([root]), deque[LogPath]()
    entered, ours, others = set[str](), list[Run](), list[LogPath]()
    while todo or links:
        directory = (todo or links).popleft()
        run = Run(directory)
        if (real := str(directory.resolve())) in entered:
            notes.add(directory, "left out: leads to a directory that was read already")
        elif directory is not root and run.is_run:
            ours.append(run)
        elif directory is not root and run.problems:
            notes.extend(run.problems)
        else:
            others.append(directory)
            try:
                is_searched = directory is root or isinstance(root, Path)  # a store may hold anything
                listed = entries(directory) if is_searched else []
            except OSError as error:
                notes.add(directory, f"cannot be read: {error.strerror or error}")
                listed = []
            for entry in listed:
                if entry.is_dir and not entry.is_link and _OWN_NAME.fullmatch(entry.name):
                    ours.append(Run(file_in(directory, entry.name), run_id=entry.name))
                    entered.add(f"{real}/{entry.name}")
                elif entry.is_dir:
                    (links if entry.is_link else todo).append(directory / entry.name)
                elif entry.name != CALIBRATION_FILE:
                    others.append(directory / entry.name)
        entered.add(real)
    return ours, others


def _tell_of_the_rest(root: LogPath, listed: Iterable[LogPath], found_in: Iterable[LogPath], notes: ProblemLog) -> None:
    """Tell of what lies directly in a directory and leads to nothing that was found."""
    n = len(root.parts)
    names = {name for path in found_in for name in path.parts[n : n + 1]}
    for path in sorted(listed, key=str):
        is_for_prometheus = path.name.endswith(".prom")
        if len(path.parts) == n + 1 and path.name not in names and not is_for_prometheus:
            notes.add(path, "is not a run: no run.csv" if path.is_dir() else "is not a run: a file")


def _carbontracker_runs(logs: Iterable[Path], notes: ProblemLog) -> Iterator[ForeignRun]:
    by_name: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for file in logs:
        name, kind = LOG_NAME.fullmatch(file.name).groups()  # type: ignore[union-attr]  # they were chosen by it
        by_name[file.parent, name][kind] = file
    for (_, name), by_kind in by_name.items():
        if set(by_kind) == {"_err"}:
            notes.add(by_kind["_err"], "is not a run: its standard and output logs are missing")
        else:
            yield CarbontrackerRun(name, by_kind.get(""), by_kind.get("_output"))


def _codecarbon_runs(
    emissions: Mapping[Path, Iterable[tuple[str, Reading]]], ours: Iterable[Run], notes: ProblemLog
) -> Iterator[ForeignRun]:
    """Yield the runs, each with its rows of all files; those of a run of ours are in that one already."""
    by_name: dict[str, list[Reading]] = defaultdict(list)
    for name, reading in chain.from_iterable(emissions.values()):
        by_name[name].append(reading)
    is_doubled = any(name.startswith(CODECARBON_PREFIX) for name in by_name)
    within_ours = {_text(Run(run.path), "codecarbon_run_id") for run in ours} if is_doubled else set()
    for name in [name for name in by_name if name not in within_ours]:
        readings = list(dict.fromkeys(by_name[name]))
        first, *further = dict.fromkeys(reading.file for reading in by_name[name])
        for file in further:
            if file.parent != first.parent or len(readings) < len(by_name[name]):
                notes.add(file, f"counted as one with {first}: it holds the same run")
        yield CodeCarbonRun(name, readings)


def _add(run: ForeignRun, by_id: dict[str, Run], notes: ProblemLog) -> None:
    """Add a run of another tool: one found before is a copy; one that only has the same name gets another."""
    n, name = 1, run.run_id
    while (other := by_id.get(run.run_id)) is not None:
        if isinstance(other, ForeignRun) and _are_alike(run, other):
            notes.add(run.path, copy_message(other.path))
            return
        n += 1
        run.run_id = f"{name}-{n}"
    by_id[run.run_id] = run


def _are_alike(run: ForeignRun, other: ForeignRun) -> bool:
    try:
        return run.record == other.record
    except Exception:  # unreadable: each is a problem of its own
        return False


# -- Copies: a run of ours keeps its name in run.csv, whatever its directory is called --


def _by_id(ours: Iterable[Run], notes: ProblemLog) -> dict[str, Run]:
    """Return our runs by name, each once."""
    by_path = {run.place: run for run in ours}
    copies, by_id = _copies({path: _identity(run) for path, run in by_path.items()}), dict[str, Run]()
    for path, run in by_path.items():
        if path in copies:
            notes.add(run.path, copy_message(copies[path]))
        elif (other := by_id.setdefault(run.run_id, run)) is not run:
            notes.add(run.path, f"left out: {other.path} has the same name; rename one of them")
    return by_id


def copy_message(original: LogPath | str) -> str:
    """Return what is said of a copy."""
    return f"left out: the same run as in {original}"


def _copies(identities: Mapping[str, str]) -> dict[str, str]:
    """Return the copies, with their originals: those under their own name, else the first."""
    originals: dict[str, str] = {}
    for place, identity in sorted(identities.items(), key=lambda item: os.path.basename(item[0]) != item[1]):  # noqa: PTH119
        originals.setdefault(identity, place)
    return {place: originals[identity] for place, identity in identities.items() if originals[identity] != place}


def _identity(run: Run) -> str:
    """Return the name that a run was written under; where it does not say, its directory's with its time."""
    if _OWN_NAME.fullmatch(run.run_id):
        return run.run_id
    read = Run(run.path)  # of which nothing is kept
    return _text(read, "run_id") or f"{run.run_id} {_text(read, 'started_at')}"


def _text(run: Run, name: str) -> str:
    """Return a field of a run; empty where it cannot be read."""
    try:
        return run.text(name)
    except (LogError, OSError, ValueError):
        return ""
