"""The manifest of a log directory: its lines, the chain that they make, and the signatures of them.

``greenlove_seal.jsonl`` has one line, a JSON object, a sealing: its number, when it was made, the SHA-256 of the line
before it with its line end, the hashes of the runs that were new or changed, and last the SHA-256 of its own text up
to there. A signature ``greenlove_seal.<number>.asc`` or ``.minisig`` is of all lines up to that sealing.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.files import write_atomically
from greenlove_tracker.logs.file_hashes import FileHash
from greenlove_tracker.logs.schema import CALIBRATION_FILE, SEAL_FILE, SEAL_PREFIX
from greenlove_tracker.logs.signing import SUFFIXES, Signer
from greenlove_tracker.logs.storage import LogPath, entries, file_in, read_bytes
from greenlove_tracker.logs.writer import timestamp

_FORMAT = 1
_MOST_BYTES = 4 * 1024**3
_LINE = re.compile(r'(\{.*),"sha256":"([0-9a-f]{64})"\}')
_SIGNATURE = re.compile(rf"{re.escape(SEAL_PREFIX)}[0-9]+({'|'.join(map(re.escape, SUFFIXES.values()))})")
Files = Mapping[str, FileHash]  # of a run, by name


@dataclass(frozen=True, slots=True)
class Sealing:
    """One line of the manifest.

    Attributes:
        number: from 1.
        sealed_at: UTC, ISO 8601.
        previous: SHA-256 of the line before; empty in the first.
        runs: the files of each run that was new or changed.
        changed: those of them that were not as they were sealed or ended.
        removed: runs that were sealed and are gone.
        reason: why both are as they should be; empty where there are none.
        signature: name of its file; empty where none was asked for.
        calibration: SHA-256 of the directory's calibration at the wall; empty where there was none.
    """

    number: int
    sealed_at: str
    previous: str
    runs: Mapping[str, Files]
    changed: Sequence[str] = ()
    removed: Sequence[str] = ()
    reason: str = ""
    signature: str = ""
    calibration: str = ""

    @property
    def line(self) -> bytes:
        """The line, with its end."""
        runs = {
            name: {file: {"bytes": found.n_bytes, "sha256": found.sha256} for file, found in sorted(files.items())}
            for name, files in sorted(self.runs.items())
        }
        told = {"number": self.number, "sealed_at": self.sealed_at, "previous": self.previous, "runs": runs}
        further = {"changed": list(self.changed), "removed": list(self.removed), "reason": self.reason}
        record = {"format": _FORMAT, **told, **further, "signature": self.signature}
        record |= {"calibration": self.calibration} if self.calibration else {}
        text = json.dumps(record, separators=(",", ":"))[:-1]
        return f'{text},"sha256":"{_sha256(text.encode())}"}}\n'.encode()

    @classmethod
    def from_text(cls, text: str) -> Sealing:
        """Return the sealing that a line holds.

        Raises:
            ValueError: where it holds none, or of a newer version.
        """
        try:
            record = json.loads(text)
            if record["format"] != _FORMAT:
                raise ValueError(f"its format is {record['format']!r}: pip install -U greenlove-tracker")
            runs = {
                _relative(name): {
                    _relative(f): FileHash.from_texts(str(h["bytes"]), h["sha256"]) for f, h in files.items()
                }
                for name, files in record["runs"].items()
            }
            number, at, previous = int(record["number"]), str(record["sealed_at"]), str(record["previous"])
            changed, removed = (tuple(map(_relative, record[key])) for key in ("changed", "removed"))
            reason, signature = str(record["reason"]), str(record["signature"])
            calibration = str(record.get("calibration", ""))
            return cls(number, at, previous, runs, changed, removed, reason, signature, calibration)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it lacks what a sealing holds: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as it stands.

    Attributes:
        data: with its end.
        sealing: what it holds; None where that cannot be read.
    """

    data: bytes
    sealing: Sealing | None

    @property
    def sha256(self) -> str:
        return _sha256(self.data)


class SealManifest:
    """The manifest of a directory, damaged ones too.

    Attributes:
        is_there: False where the directory has none; with a signature of it, that is a finding.
        lines: as they stand.
        findings: where it is not as it was written, a sentence each.
        notes: what was allowed, a sentence each.
        sealed: by name, the files of each run as it was sealed last, and the number of that sealing.
        calibration: SHA-256 of the directory's calibration as it was sealed last; empty without one.
    """

    def __init__(self, root: LogPath, data: bytes | None, signatures: Iterable[str]) -> None:
        self._root = root
        self._signatures = sorted(signatures)
        self.is_there = data is not None
        self.findings, self.notes = list[str](), list[str]()
        self.sealed = dict[str, tuple[Files, int]]()
        self.calibration = ""
        whole = data or b""
        self.lines = [self._line(n, text) for n, text in enumerate(whole.splitlines(keepends=True), 1)]
        if self.is_there and not self.lines:
            self.findings.append(f"{SEAL_FILE} is empty: its lines were deleted.")
        if not self.is_there and self._signatures:
            self.findings.append(f"{SEAL_FILE} was deleted: there is a signature of it, {', '.join(self._signatures)}.")
        self._follow()

    @classmethod
    def read(cls, root: LogPath) -> SealManifest:
        """Return the manifest of a directory.

        Raises:
            OSError: where it cannot be read; that there is none is no error.
        """
        signatures = [entry.name for entry in entries(root) if _SIGNATURE.fullmatch(entry.name)]
        try:
            return cls(root, read_bytes(file_in(root, SEAL_FILE), _MOST_BYTES), signatures)
        except FileNotFoundError:
            return cls(root, None, signatures)

    @property
    def head(self) -> str:
        """SHA-256 of the last line; empty where there is none."""
        return self.lines[-1].sha256 if self.lines else ""

    @property
    def is_signed(self) -> bool:
        """True where the last sealing says that it was signed."""
        last = self.lines[-1].sealing if self.lines else None
        return last is not None and bool(last.signature)

    def append(
        self,
        runs: Mapping[str, Files],
        changed: Sequence[str],
        removed: Sequence[str],
        reason: str,
        signer: Signer | None,
        calibration: str = "",
    ) -> Sealing:
        """Write a sealing behind the others, and return it; all of the manifest is on the disk then, or nothing new.

        Args:
            runs: those that are new or changed.
            changed: those of them that changed.
            removed: runs that are gone.
            reason: why.
            signer: signs all lines.
            calibration: SHA-256 of the directory's calibration; empty without one.

        Raises:
            UsageError: where the signer does not sign.
            OSError: where the disk does not take it.
        """
        root = Path(str(self._root))
        number = len(self.lines) + 1
        signature = f"{SEAL_PREFIX}{number}{SUFFIXES[signer.program]}" if signer else ""
        now = timestamp(time.time())
        sealing = Sealing(number, now, self.head, runs, changed, removed, reason, signature, calibration)
        whole = self._up_to(len(self.lines)) + sealing.line
        signed = signer.sign(whole) if signer else b""  # first: where that fails, nothing is written
        if signer:
            write_atomically(root / signature, signed)
        try:
            write_atomically(root / SEAL_FILE, whole)
        except BaseException:
            if signer:
                (root / signature).unlink(missing_ok=True)
            raise
        self.lines.append(_Line(sealing.line, sealing))
        self._take(sealing)
        return sealing

    def _up_to(self, n: int) -> bytes:
        """Return the first lines."""
        return b"".join(line.data for line in self.lines[:n])

    def _line(self, n: int, data: bytes) -> _Line:
        text = data.decode("utf-8", "replace")
        found = _LINE.fullmatch(text.removesuffix("\n"))
        if not text.endswith("\n") or found is None:
            is_cut = text.startswith("{") and not text.rstrip().endswith("}")
            what = "was cut off" if is_cut or not text.endswith("\n") else "was edited: it is no sealing"
            self.findings.append(f"{SEAL_FILE}: line {n} {what}.")
        if found is None:
            return _Line(data, None)
        if _sha256(found[1].encode()) != found[2]:
            self.findings.append(
                f"{SEAL_FILE}: line {n} was edited: it does not have the hash that it states of itself."
            )
        try:
            return _Line(data, Sealing.from_text(f"{found[1]}}}"))
        except ValueError as error:
            self.findings.append(f"{SEAL_FILE}: line {n} cannot be read: {error}.")
            return _Line(data, None)

    def _follow(self) -> None:
        """Go along the chain: numbers, hashes, and what each sealing did to the runs."""
        last = 0
        for n, line in enumerate(self.lines, 1):
            sealing = line.sealing
            number = last + 1 if sealing is None else sealing.number
            if number > last + 1:
                gone = f"sealing {last + 1} is" if number == last + 2 else f"sealings {last + 1} to {number - 1} are"
                self.findings.append(f"{SEAL_FILE}: {gone} missing before line {n}.")
            elif number <= last:
                self.findings.append(
                    f"{SEAL_FILE}: line {n} holds sealing {number}, behind sealing {last}: it was moved or copied."
                )
            elif sealing is not None and sealing.previous != (self.lines[n - 2].sha256 if n > 1 else ""):
                before = f"line {n - 1} as that is now: it was edited or replaced" if n > 1 else "the beginning"
                self.findings.append(f"{SEAL_FILE}: line {n} does not follow {before}.")
            last = max(last, number)
            if sealing is not None:
                self._take(sealing)

    def _take(self, sealing: Sealing) -> None:
        is_recalibrated = bool(self.calibration) and self.calibration != sealing.calibration
        self.calibration = sealing.calibration
        if is_recalibrated and not sealing.reason:
            self.findings.append(
                f"{SEAL_FILE}: sealing {sealing.number} holds another {CALIBRATION_FILE}, and gives no reason."
            )
        for name in sealing.runs:
            if name in self.sealed and not (sealing.reason and name in sealing.changed):
                self.findings.append(
                    f"{SEAL_FILE}: sealing {sealing.number} holds run {name} anew, and gives no reason."
                )
        for name in sealing.removed:
            self.sealed.pop(name, None)
            if not sealing.reason:
                self.findings.append(f"{SEAL_FILE}: sealing {sealing.number} drops run {name}, and gives no reason.")
        self.sealed |= {name: (files, sealing.number) for name, files in sealing.runs.items()}
        if sealing.reason:
            allowed = [f"run {name} as changed" for name in sealing.changed]
            allowed += [f"run {name} as removed" for name in sealing.removed]
            allowed += [f"{CALIBRATION_FILE} as changed"] if is_recalibrated else []
            self.notes.append(f"Sealing {sealing.number} took {', '.join(allowed)}, because: {sealing.reason}")

    def findings_of_signatures(self, required: Signer | None) -> list[str]:
        """Return what is wrong with the signatures, a sentence each; whose the good ones are goes to the notes.

        Args:
            required: must have signed the last sealing; None: whoever signed is told.

        Raises:
            OSError: where a signature cannot be read.
        """
        promised = {line.sealing.signature: n for n, line in enumerate(self.lines, 1) if line.sealing}
        promised.pop("", None)
        lacking = promised.keys() - set(self._signatures)
        findings = [f"{name} is missing: sealing {promised[name]} was signed." for name in sorted(lacking)]
        signed_to = 0
        for name in self._signatures:
            n = promised.get(name)
            if n is not None:
                problem = self._check(name, n, required)
                findings += [f"{name} does not vouch for sealing {n}: {problem}."] if problem else []
                signed_to = signed_to if problem else max(signed_to, n)
            elif self.is_there:
                findings.append(
                    f"{name} is of a sealing that {SEAL_FILE} does not hold, or not as one that was signed."
                )
        if signed_to < len(self.lines) and (required is not None or self._signatures):
            by = f" by {required.program}" if required else ""
            told = findings if required is not None else self.notes
            after = f" of what was sealed after sealing {signed_to}" if signed_to else ""
            told.append(f"There is no good signature{by}{after}.")
        return findings

    def _check(self, name: str, n: int, required: Signer | None) -> str:
        """Return why a signature is not one of the first lines by who is required; empty where it is, as is noted."""
        program = next((p for p, suffix in SUFFIXES.items() if name.endswith(suffix)), "")
        if required is not None and required.program != program:
            return f"it is not by {required.program}"
        signer = required or Signer(program)
        who, problem = signer.problem(self._up_to(n), read_bytes(file_in(self._root, name)))
        if not problem:
            self.notes.append(f"{name} is a good signature of all up to sealing {n}, by {who}.")
        return problem


def _relative(name: object) -> str:
    """Return the name of a run or a file; raise ValueError where it leads out of its directory."""
    if not isinstance(name, str) or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is no name of a run or a file")
    return name


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
