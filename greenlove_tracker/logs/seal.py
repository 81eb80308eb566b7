"""Seals a log directory: hashes of all files of all runs go to its manifest, and are compared with it.

What is hidden (``.name``) is neither read by the package nor sealed. Links to directories are followed to runs, and
not within them. Logs of other tools are not sealed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.format import plural
from greenlove_tracker.logs.file_hashes import FileHash, changes_since_end, difference, hash_file
from greenlove_tracker.logs.run import SILENT_AFTER_S, Run
from greenlove_tracker.logs.schema import CALIBRATION_FILE, SEAL_FILE
from greenlove_tracker.logs.seal_manifest import Files, Sealing, SealManifest
from greenlove_tracker.logs.signing import Signer
from greenlove_tracker.logs.storage import LogPath, RemotePath, entries, file_in, place
from greenlove_tracker.records import RunStatus

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: two sealings at once are not kept apart
    fcntl = None

_MAX_DEPTH = 10  # of directories in a log directory


@dataclass(frozen=True, slots=True)
class SealResult:
    """The outcome of a sealing.

    Attributes:
        sealing: the line that was added; None where nothing was new.
        head: SHA-256 of the last line, to be kept elsewhere; empty where there is none.
        n_sealed: runs that the manifest holds now.
        running: runs that were skipped, because they go on.
        unsealed_at_end: runs among those that were added whose summary holds no hashes.
    """

    sealing: Sealing | None
    head: str
    n_sealed: int
    running: Sequence[str]
    unsealed_at_end: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings of a comparison of a log directory with its seal.

    Attributes:
        findings: what was changed, added or removed, a sentence each; empty where all is as it was sealed.
        notes: what is to be known besides, a sentence each.
        n_runs: runs that were compared with the manifest.
        n_files: their files.
        n_sealings: lines of the manifest.
        head: SHA-256 of its last line; empty where there is none.
    """

    findings: Sequence[str]
    notes: Sequence[str]
    n_runs: int
    n_files: int
    n_sealings: int
    head: str


def seal(log_dir: str | os.PathLike[str], *, signer: Signer | None = None, reason: str = "") -> SealResult:
    """Add the runs that are new to the manifest; where none is, and nothing is to be signed, nothing is written.

    Args:
        log_dir: a directory of this machine that holds runs.
        signer: signs the manifest with the new line.
        reason: why runs that changed or are gone since they were sealed or ended are as they should be.

    Raises:
        UsageError: where a run changed or is gone and there is no reason, the manifest is damaged, another sealing is
            at work, the directory cannot be written, or the signer does not sign. Nothing is written then.
    """
    root = _directory(log_dir)
    if isinstance(root, RemotePath):
        raise UsageError(f"{root} is a store, which is only read: seal a directory of this machine, or --verify")
    with _alone(root):
        try:
            return _seal(root, signer, reason)
        except OSError as error:
            raise UsageError(f"{root} cannot be sealed: {error.filename or ''} {error.strerror or error}") from error


def _seal(root: Path, signer: Signer | None, reason: str) -> SealResult:
    manifest = SealManifest.read(root)
    if manifest.findings:
        raise UsageError(f"{manifest.findings[0]} Nothing was sealed; greenlove seal --verify names all that is wrong")
    runs, unreadable = _runs_below(root)
    if unreadable:
        raise UsageError(f"{' '.join(unreadable)} Nothing was sealed")
    new, changes, running = _survey(manifest, runs)
    removed = sorted(manifest.sealed.keys() - runs.keys())
    calibration = _calibration(runs)
    is_recalibrated = bool(manifest.calibration) and calibration != manifest.calibration
    if (changes or removed or is_recalibrated) and not reason:
        told = [f"run {name}: {clause}" for name, clauses in changes.items() for clause in clauses]
        told += [f"run {name} is missing" for name in removed]
        told += _calibration_findings(runs, manifest) if is_recalibrated else ()
        raise UsageError(
            "\n  ".join(["nothing was sealed: something is not as it was sealed, or as its run ended:", *told])
            + "\nPut it back, or seal it as it is with {argument=}, followed by why.",
            argument="reason",
        )
    sealing = None
    if (
        new
        or removed
        or calibration != manifest.calibration
        or (signer is not None and manifest.lines and not manifest.is_signed)
    ):
        why = reason if changes or removed or is_recalibrated else ""
        sealing = manifest.append(new, sorted(changes), removed, why, signer, calibration)
    without = [name for name in new if not runs[name].file_hashes]
    return SealResult(sealing, manifest.head, len(manifest.sealed), running, without)


def _calibration(runs: Mapping[str, Run]) -> str:
    """Return the SHA-256 of the calibrations at the wall that figures of these runs depend on; empty without one.

    One file, as nearly always, is that file's; of several in directories below, that of their hashes in order.
    """
    found = []
    for directory in dict.fromkeys(run.log_dir for run in runs.values()):
        try:
            found.append(hash_file(file_in(directory, CALIBRATION_FILE)).sha256)
        except FileNotFoundError:
            continue
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest() if found else ""


def _calibration_findings(runs: Mapping[str, Run], manifest: SealManifest) -> Iterator[str]:
    now, sealed = _calibration(runs), manifest.calibration
    if now == sealed or not manifest.is_there:
        return
    if not sealed:
        yield f"{CALIBRATION_FILE} is not sealed: figures of calibrated machines depend on it."
    else:
        clause = "was changed" if now else "is missing"
        yield f"{CALIBRATION_FILE} {clause}: figures of calibrated machines depend on it."


def _survey(
    manifest: SealManifest, runs: Mapping[str, Run]
) -> tuple[dict[str, Files], dict[str, list[str]], Sequence[str]]:
    """Return the runs to be sealed, how those of them changed that were sealed or ended before, and those that go on.

    Raises:
        OSError: where a file cannot be read.
    """
    new, changes, running = dict[str, Files](), dict[str, list[str]](), list[str]()
    for name, run in with_bar(runs.items(), len(runs), len(runs)):
        before = manifest.sealed.get(name)
        if before is None and _is_running(run):
            running.append(name)
            continue
        files = {file: hash_file(file_in(run.path, file)) for file in _files_below(run.path)}
        if before is None:
            new[name] = files
            if found := changes_since_end(run.path, run.file_hashes):
                changes[name] = [f"since its end {clause}" for clause in found]
        elif files != before[0]:
            new[name] = files
            changes[name] = _changed_files(run, before[0])
    return new, changes, running


def verify_seal(log_dir: str | os.PathLike[str], *, signer: Signer | None = None, head: str = "") -> Verification:
    """Compare a log directory with its manifest: the chain, the signatures, every run and every file.

    Args:
        log_dir: a directory that holds runs, of this machine or a store.
        signer: who must have signed the last sealing; without, the signatures that are there are checked.
        head: the SHA-256 of a line that the manifest must hold, kept elsewhere.

    Raises:
        UsageError: where there is no such directory.
    """
    root = _directory(log_dir)
    try:
        manifest = SealManifest.read(root)
        findings = [*manifest.findings, *manifest.findings_of_signatures(signer)]
        if not manifest.is_there and not findings:
            findings.append(f"There is no {SEAL_FILE}: nothing was sealed, or it was deleted.")
        if head and head not in {line.sha256 for line in manifest.lines}:
            findings.append(f"{SEAL_FILE} holds no line {head}: lines were deleted, or all of it was written anew.")
        runs, unreadable = _runs_below(root)
        findings += _calibration_findings(runs, manifest)
    except OSError as error:
        raise UsageError(f"{root} cannot be read: {error.strerror or error}") from error
    comparison = _Comparison(manifest, runs)
    return Verification(
        [*findings, *unreadable, *comparison.findings],
        [*manifest.notes, *comparison.notes],
        len(manifest.sealed.keys() & runs.keys()),
        sum(len(files) for name, (files, _) in manifest.sealed.items() if name in runs),
        len(manifest.lines),
        manifest.head,
    )


def _directory(log_dir: str | os.PathLike[str]) -> LogPath:
    root = place(log_dir)
    if not root.is_dir():
        raise UsageError(f"there is no directory {root}")
    if Run(root).is_run:
        raise UsageError(f"{root} is a single run: give the directory that it lies in")
    return root


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep a second sealing of the directory away: both would add a line behind the same one.

    Raises:
        UsageError: where another one is at work, or the directory cannot be opened.
    """
    if fcntl is None:
        yield
        return
    try:
        handle = os.open(root, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"{root} cannot be read: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise UsageError(f"another greenlove seal is at work in {root}: wait for its end") from error
            # else a file system without locks: two at once are not kept apart
        yield
    finally:
        os.close(handle)


# -- The runs beside it --


class _Comparison:
    """The runs of a directory beside those that were sealed.

    Attributes:
        findings: what was changed, added or removed, a sentence each.
        notes: what is to be known besides, a sentence each.
    """

    def __init__(self, manifest: SealManifest, runs: Mapping[str, Run]) -> None:
        self._sealed = manifest.sealed
        self._places = {
            found: f"{file} of run {name}" for name, (files, _) in self._sealed.items() for file, found in files.items()
        }
        self._whole = {frozenset(files.items()): name for name, (files, _) in self._sealed.items()}
        self._renamed = set[str]()
        self.findings, self.notes = list[str](), list[str]()
        without = list[str]()
        for name, run in with_bar(runs.items(), len(runs), len(runs)):
            if name in self._sealed:
                self.findings += [
                    f"Run {name}: {clause}." for clause in _changed_files(run, self._sealed[name][0], self._places)
                ]
            elif _is_running(run):
                self.notes.append(f"Run {name} is still running: it is not sealed yet, and was not verified.")
                continue
            else:
                self._not_sealed(name, run, runs)
            if not run.file_hashes:
                without.append(name)
        dates = {line.sealing.number: line.sealing.sealed_at for line in manifest.lines if line.sealing}
        for name in sorted(self._sealed.keys() - runs.keys() - self._renamed):
            number = self._sealed[name][1]
            self.findings.append(f"Run {name} is missing: sealing {number} of {dates[number]} holds it.")
        if without:
            of_them = f"{plural(len(without), 'run')} ({', '.join(without)})"
            self.notes.append(f"Without hashes from their end, so nothing shows what they held then: {of_them}.")

    def _not_sealed(self, name: str, run: Run, runs: Mapping[str, Run]) -> None:
        try:
            files = {file: hash_file(file_in(run.path, file)) for file in _files_below(run.path)}
            changes = changes_since_end(run.path, run.file_hashes)
        except OSError as error:
            self.findings.append(f"Run {name} is not sealed, and cannot be read: {error.strerror or error}.")
            return
        original = self._whole.get(frozenset(files.items()))
        if original is not None and original not in runs:
            self._renamed.add(original)
            self.findings.append(f"Run {original} was renamed to {name}; its files are as they were sealed.")
            return
        was = "it was added, or is not sealed yet" if original is None else f"it was added, as a copy of run {original}"
        self.findings.append(f"Run {name} is not sealed: {was}.")
        self.findings += [f"Run {name}: since its end {clause}." for clause in changes]


def _changed_files(run: Run, sealed: Files, places: Mapping[FileHash, str] | None = None) -> list[str]:
    """Return how a run's files differ from those that were sealed, a clause each."""
    places = places or {}
    try:
        there = set(_files_below(run.path))
    except OSError as error:
        return [f"cannot be read: {error.strerror or error}"]
    added = {name: _hash_or_none(run, name) for name in sorted(there - sealed.keys())}
    clauses = []
    for name, stated in sealed.items():
        if name not in there:
            new_name = next((n for n, found in added.items() if found == stated), None)
            added.pop(new_name or "", None)
            clauses.append(f"{name} is missing" if new_name is None else f"{name} was renamed to {new_name}")
        elif clause := difference(file_in(run.path, name), stated):
            found = _hash_or_none(run, name)
            moved = f"; that was sealed as {places[found]}" if found is not None and found in places else ""
            clauses.append(f"{name} {clause}{moved}")
    for name, found in added.items():
        copied = f", a copy of {places[found]}" if found is not None and found in places else ""
        clauses.append(f"{name} was added{copied}")
    return clauses


def _hash_or_none(run: Run, name: str) -> FileHash | None:
    try:
        return hash_file(file_in(run.path, name))
    except OSError:
        return None


def _is_running(run: Run) -> bool:
    """Return True where a run goes on, or a rank of it that had not ended with the first."""
    if run.has_summary:
        return None in run.file_hashes.values() and time.time() - run.written_s < SILENT_AFTER_S
    try:
        return run.metered_summary.status == RunStatus.RUNNING
    except (LogError, OSError, ValueError, ArithmeticError):  # damaged: it is sealed as it is
        return False


def _runs_below(root: LogPath) -> tuple[dict[str, Run], list[str]]:
    """Return the runs by their paths in the directory, and what could not be read, a sentence each."""
    runs, unreadable = dict[str, Run](), list[str]()
    entered, waiting, links = set[tuple[int, int]](), [("", root, 0)], list[tuple[str, LogPath, int]]()
    while waiting or links:  # links behind all that is real: a link to a run of the directory is no second one
        name, path, depth = waiting.pop() if waiting else links.pop()
        try:
            if not _is_new(path, entered):
                continue
            if name and (run := Run(path)).is_run:
                runs[name] = run
                continue
            inner = [entry for entry in entries(path) if entry.is_dir]
        except OSError as error:
            unreadable.append(f"{path} cannot be read: {error.strerror or error}.")
            continue
        if inner and depth == _MAX_DEPTH:
            unreadable.append(f"What lies below {path} was not read: it is {_MAX_DEPTH} directories deep.")
            continue
        for entry in inner:
            at = links if entry.is_link else waiting
            at.append((f"{name}/{entry.name}" if name else entry.name, path / entry.name, depth + 1))
    return dict(sorted(runs.items())), unreadable


def _is_new(path: LogPath, entered: set[tuple[int, int]]) -> bool:
    """Return True where a directory was not entered yet, and note it: links may lead round in a circle."""
    if isinstance(path, RemotePath):
        return True
    found = path.stat()
    key = found.st_dev, found.st_ino
    is_new = key not in entered
    entered.add(key)
    return is_new


def _files_below(path: LogPath, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the files of a run by their paths in it.

    Raises:
        OSError: where a directory cannot be read.
    """
    for entry in entries(path):
        if not entry.is_dir:
            yield prefix + entry.name
        elif not entry.is_link and depth < _MAX_DEPTH:
            yield from _files_below(path / entry.name, f"{prefix}{entry.name}/", depth + 1)
