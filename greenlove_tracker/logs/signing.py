"""Detached signatures by external programs, GnuPG and minisign: nothing secret is read here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.errors import UsageError

SUFFIXES = {"gpg": ".asc", "minisign": ".minisig"}  # of a signature's file, by the program that makes it
_NO_LONGER_GOOD = {"EXPSIG": "it has expired", "EXPKEYSIG": "its key has expired", "REVKEYSIG": "its key was revoked"}
_SIGN_TIMEOUT_S = 180.0  # somebody types a passphrase
_CHECK_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Signer:
    """A program that signs, and whose signatures it checks.

    Attributes:
        program: one of ``SUFFIXES``.
        key: of gpg, the name or fingerprint of a key; of minisign, the file of a key (to check also the public key
            itself). Empty: the program's own default; any key that gpg knows will then do for a check.
    """

    program: str
    key: str = ""

    def sign(self, data: bytes) -> bytes:
        """Return a detached signature; the program may ask for a passphrase on the terminal.

        Raises:
            UsageError: where the program is not there, takes too long, or does not sign.
        """
        with _files(data, b"") as (file, signature):
            signature.unlink()
            if self.program == "gpg":
                own_key = ["--local-user", self.key] if self.key else []
                command = [
                    "gpg",
                    "--batch",
                    "--armor",
                    *own_key,
                    "--output",
                    str(signature),
                    "--detach-sign",
                    str(file),
                ]
            else:
                own_key = ["-s", self.key] if self.key else []
                command = ["minisign", "-S", "-m", str(file), "-x", str(signature), *own_key]
            done = _run(command, _SIGN_TIMEOUT_S, is_captured=False)
            if done.returncode or not signature.exists():
                raise UsageError(f"{self.program} did not sign: exit code {done.returncode}; it says why above")
            return signature.read_bytes()

    def problem(self, data: bytes, signature: bytes) -> tuple[str, str]:
        """Return whose signature of the data it is, and why it is not good, of which one is empty."""
        with _files(data, signature) as (file, signature_file):
            try:
                if self.program == "gpg":
                    return self._problem_by_gpg(file, signature_file)
                return self._problem_by_minisign(file, signature_file)
            except UsageError as error:
                return "", str(error)

    def _problem_by_gpg(self, file: Path, signature: Path) -> tuple[str, str]:
        """Read what gpg reports (its doc/DETAILS): an expired or revoked key gives no GOODSIG, maybe exit code 0."""
        command = ["gpg", "--batch", "--status-fd", "1", "--verify", str(signature), str(file)]
        done = _run(command, _CHECK_TIMEOUT_S)
        words = [line.split() for line in done.stdout.splitlines() if line.startswith("[GNUPG:] ")]
        reports = {line[1]: line[2:] for line in words if len(line) > 2}
        spent = next((words for report, words in _NO_LONGER_GOOD.items() if report in reports), "")
        if spent or done.returncode or "GOODSIG" not in reports or "VALIDSIG" not in reports:
            return "", spent or _last_line(done.stderr) or "gpg does not call it good"
        fingerprint, primary = reports["VALIDSIG"][0], reports["VALIDSIG"][-1]
        who = f"{' '.join(reports['GOODSIG'][1:])}, key {fingerprint}"
        if self.key:
            listed = _run(["gpg", "--batch", "--with-colons", "--list-keys", "--", self.key], _CHECK_TIMEOUT_S).stdout
            known = {line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:")}
            if not known & {fingerprint, primary}:
                return "", f"it is of {who}, not of {self.key}"
        return who, ""

    def _problem_by_minisign(self, file: Path, signature: Path) -> tuple[str, str]:
        given = ["-p" if Path(self.key).exists() else "-P", self.key] if self.key else []
        command = ["minisign", "-V", "-m", str(file), "-x", str(signature), *given]
        done = _run(command, _CHECK_TIMEOUT_S)
        if done.returncode:
            return "", _last_line(done.stderr) or _last_line(done.stdout) or "minisign does not call it good"
        return f"the minisign key {self.key or 'minisign.pub'}", ""


@contextmanager
def _files(data: bytes, signature: bytes) -> Iterator[tuple[Path, Path]]:
    """Give files of these contents, which nobody else can read."""
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory) / "manifest", Path(directory) / "signature"
        for file, content in zip(files, (data, signature), strict=True):
            file.write_bytes(content)
        yield files


def _run(command: Sequence[str], timeout_s: float, *, is_captured: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program.

    Raises:
        UsageError: where it is not there, or takes too long.
    """
    environment = {**os.environ, "LC_ALL": "C"}  # its messages are quoted in ours
    if "GPG_TTY" not in environment and sys.stdin is not None and sys.stdin.isatty():
        environment["GPG_TTY"] = os.ttyname(sys.stdin.fileno())  # where gpg's agent asks for a passphrase
    pipe = subprocess.PIPE if is_captured else None
    quiet = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe} if is_captured else {"stdout": 2}
    try:
        return subprocess.run(
            command, env=environment, timeout=timeout_s, check=False, encoding="utf-8", errors="replace", **quiet
        )
    except FileNotFoundError as error:
        raise UsageError(f"there is no program {command[0]} on this machine: install it") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{command[0]} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror or error}") from error


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()
