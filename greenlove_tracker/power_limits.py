"""A lower power limit of a GPU for a while: a process of its own puts it back, however ours ends.

``lowered`` starts ``python -m greenlove_tracker.power_limits`` in a session of its own, which Ctrl-C does not reach. It
writes down what the limit was, sets it, and puts it back when it is told to, when the process that started it ends in
any way, or when it is asked to end itself. What it wrote down stays where even it is killed: ``greenlove doctor`` finds
it, and puts the limit back.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

from greenlove_tracker.devices import PowerLimitError, power_limits, set_power_limit
from greenlove_tracker.files import write_atomically

with contextlib.suppress(ImportError):  # Windows has none, and ``lowered`` says so
    import fcntl

_POLL_S = 0.5  # between two looks at whether the parent lives, beside the pipe from it
_ANSWER_TIMEOUT_S = 30.0  # of the watchdog: it loads Python and NVML
_ATTEMPTS = 5  # to put a limit back
_RETRY_S = 1.0
ROUNDING_W = 1.0  # by which a driver may set another limit than it was told
_START_TOLERANCE_S = 2.0  # a process's start time is that of the boot and ticks: it shifts when the clock is set
_SET, _FAILED = "set", "failed"  # the first word of the watchdog's answer
_ENDED_EARLY = 3  # its exit code after a signal


@dataclass(frozen=True, slots=True)
class LoweredLimit:
    """A power limit that was lowered, as it was written down before.

    Attributes:
        before_w: the limit that is put back.
        lowered_w: the limit that is set meanwhile.
        pid: of the process that it is lowered for.
        pid_started_utc_s: when that process began: another may get its number.
        lowered_utc_s: when it was lowered.
    """

    gpu_uuid: str
    before_w: float
    lowered_w: float
    pid: int
    pid_started_utc_s: float
    lowered_utc_s: float


# Directories of what is written down: a restart of the machine empties the first, as it does the limits themselves.
DIRECTORIES = (Path("/run/greenlove-power-limits"), Path(tempfile.gettempdir(), "greenlove-power-limits"))


def state_dir() -> Path:
    """Return the directory in which a lowered limit is written down."""
    return next((d for d in DIRECTORIES if os.access(d if d.exists() else d.parent, os.W_OK)), DIRECTORIES[-1])


@contextlib.contextmanager
def lowered(gpu_uuid: str, limit_w: float, *, directory: Path | None = None) -> Iterator[None]:
    """Set the power limit of a GPU within the block.

    Args:
        gpu_uuid: of the GPU.
        limit_w: to be set.
        directory: of what is written down; default: ``state_dir()``.

    Raises:
        PowerLimitError: where it cannot be set, then nothing was changed; or where it was put back before the block
            ended, or could not be put back.
    """
    directory = state_dir() if directory is None else directory
    owner = os.getpid()
    watchdog = _started_watchdog(gpu_uuid, limit_w, directory)
    try:
        answer = _answer(watchdog)
        if answer != _SET:
            raise PowerLimitError(answer.removeprefix(_FAILED).strip() or "the power limit's watchdog did not start")
        yield
    finally:
        if os.getpid() == owner:  # not of a fork of this process, whose block ends too
            _end(watchdog, gpu_uuid, directory)
    if watchdog.poll() == _ENDED_EARLY:
        raise PowerLimitError("the power limit was put back before its time: its watchdog was told to end")


def _started_watchdog(gpu_uuid: str, limit_w: float, directory: Path) -> subprocess.Popen[str]:
    if sys.platform != "linux" or not sys.executable:
        raise PowerLimitError("power limits are changed on Linux only, by a Python that can be started again")
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package)))
    arguments = [gpu_uuid, repr(limit_w), str(directory.absolute()), str(os.getpid())]
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "greenlove_tracker.power_limits", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # one that waits for the end of our stderr is not to wait for the watchdog
            cwd="/",  # python -m looks in the working directory first, whose modules are not meant
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            start_new_session=True,  # Ctrl-C and the end of a terminal go to our session
        )
    except OSError as error:
        raise PowerLimitError(f"the watchdog that puts the power limit back cannot be started: {error}") from error


def _answer(watchdog: subprocess.Popen[str]) -> str:
    """Return the watchdog's next line; empty where it ended, or says nothing for too long."""
    stdout = cast(IO[str], watchdog.stdout)
    ready, _, _ = select.select([stdout], [], [], _ANSWER_TIMEOUT_S)
    return stdout.readline().strip() if ready else ""


def _end(watchdog: subprocess.Popen[str], gpu_uuid: str, directory: Path) -> None:
    """Tell the watchdog to put the limit back, and do it ourselves where it was killed.

    Raises:
        PowerLimitError: where it could not be put back.
    """
    stdin, stdout = cast(IO[str], watchdog.stdin), cast(IO[str], watchdog.stdout)
    with contextlib.suppress(OSError):  # it has ended
        stdin.write("end\n")
        stdin.close()
    try:
        watchdog.wait(_ANSWER_TIMEOUT_S + _ATTEMPTS * _RETRY_S)
    except subprocess.TimeoutExpired:  # a driver that hangs: it goes on to try, and what it wrote down stays
        raise PowerLimitError("the power limit is not put back yet: greenlove doctor says how") from None
    finally:
        stdout.close()
    left = _read(_state_path(gpu_uuid, directory))
    if left is not None and left.pid == os.getpid():  # the watchdog was killed, or had no success
        restore(gpu_uuid, directory)


# ---- what is written down


def _state_path(gpu_uuid: str, directory: Path) -> Path:
    return directory / f"{gpu_uuid}.json"


def _read(path: Path) -> LoweredLimit | None:
    """Return what was written down; None where nothing was.

    Raises:
        PowerLimitError: where it is damaged, or somebody else's: root would set what any user wrote into /tmp.
    """
    try:
        if path.lstat().st_uid not in (0, os.geteuid()):
            raise PowerLimitError(f"{path} is neither root's nor yours, and is not followed: remove it")
        return LoweredLimit(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, TypeError, ValueError) as error:
        raise PowerLimitError(f"{path} cannot be read: {error}") from error


def _write(state: LoweredLimit, directory: Path) -> None:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(_state_path(state.gpu_uuid, directory), json.dumps(asdict(state)).encode())
    except OSError as error:
        raise PowerLimitError(f"what the power limit was cannot be written to {directory}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class WrittenLimit:
    """A power limit that is written down as lowered.

    Attributes:
        state: what was written down; None where that is damaged.
        path: of the file.
        is_in_use: the process that it is lowered for, or its watchdog, still runs.
    """

    state: LoweredLimit | None
    path: Path
    is_in_use: bool


def written_down(directories: Sequence[Path] = DIRECTORIES) -> list[WrittenLimit]:
    """Return all power limits that are written down as lowered."""
    found = []
    for path in (path for directory in directories for path in sorted(directory.glob("*.json"))):
        try:
            state = _read(path)
        except PowerLimitError:
            found.append(WrittenLimit(None, path, False))
            continue
        if state is not None:
            found.append(WrittenLimit(state, path, _is_running(state) or _is_locked(path.with_suffix(".lock"))))
    return found


def restore(gpu_uuid: str, directory: Path) -> str:
    """Put a power limit back that was left lowered; where nothing is written down there is nothing to do.

    Args:
        gpu_uuid: of the GPU.
        directory: of what is written down.

    Returns:
        What was done, as a sentence.

    Raises:
        PowerLimitError: where another process still uses it, or it cannot be set.
    """
    with _lock(gpu_uuid, directory):
        state = _read(_state_path(gpu_uuid, directory))
        if state is None:
            return "Nothing was left lowered."
        if _is_running(state) and state.pid != os.getpid():
            raise PowerLimitError(_in_use(state))
        return _put_back(state, directory, time.sleep)


def _put_back(state: LoweredLimit, directory: Path, sleep: Callable[[float], None]) -> str:
    """Set the limit that was there before, unless somebody else has set another one meanwhile."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            now_w = power_limits(state.gpu_uuid).limit_w
            is_ours = abs(now_w - state.lowered_w) <= ROUNDING_W
            if is_ours:
                set_power_limit(state.gpu_uuid, state.before_w)
            break
        except PowerLimitError:
            if attempt == _ATTEMPTS:
                raise
            sleep(_RETRY_S)
    _state_path(state.gpu_uuid, directory).unlink(missing_ok=True)
    if is_ours:
        return f"The power limit is {state.before_w:g} W again."
    return f"The power limit is {now_w:g} W, which somebody else has set: it was left so."


@contextlib.contextmanager
def _lock(gpu_uuid: str, directory: Path) -> Iterator[None]:
    """Hold the only right to change a GPU's limit: the system takes it from a process that ends in any way.

    Raises:
        PowerLimitError: where another process holds it.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(directory / f"{gpu_uuid}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PowerLimitError(f"{directory} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            state = _read(_state_path(gpu_uuid, directory))
            raise PowerLimitError(_in_use(state)) from None
        yield
    finally:
        os.close(handle)


def _is_locked(path: Path) -> bool:
    """Return whether a process holds a lock; whoever may read the file can ask."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _in_use(state: LoweredLimit | None) -> str:
    who = "another process" if state is None else f"process {state.pid}"
    return f"the power limit of this GPU is changed by {who}, which puts it back when it ends"


def _started_utc_s(pid: int) -> float | None:
    """Return when a process began; None where there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return None


def _is_running(state: LoweredLimit) -> bool:
    started_s = _started_utc_s(state.pid)
    return started_s is not None and abs(started_s - state.pid_started_utc_s) < _START_TOLERANCE_S


# ---- the watchdog


class Watchdog:
    """Lowers a limit, waits for the end of a process, and puts the limit back.

    Args:
        gpu_uuid: of the GPU.
        limit_w: to be set.
        directory: of what is written down.
        parent_pid: the process that it is lowered for.
        sleep: between attempts.
    """

    def __init__(
        self,
        gpu_uuid: str,
        limit_w: float,
        directory: Path,
        parent_pid: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gpu_uuid, self._limit_w, self._directory = gpu_uuid, limit_w, directory
        self._parent_pid, self._sleep = parent_pid, sleep
        self._is_told_to_end = False

    def run(self) -> int:
        """Do all of it, and say on stdout how far it is.

        Returns:
            The exit code: 0; ``_ENDED_EARLY`` where a signal ended it; 1 where something could not be done.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):  # the end of a job: what is killed next puts nothing back
            signal.signal(number, self._end_soon)
        try:
            with _lock(self._gpu_uuid, self._directory):
                state = self._lower()
                try:
                    _say(_SET)
                    self._wait()
                finally:
                    _put_back(state, self._directory, self._sleep)
        except PowerLimitError as error:
            _say(f"{_FAILED} {error}")
            return 1
        return _ENDED_EARLY if self._is_told_to_end else 0

    def _end_soon(self, *_: object) -> None:
        self._is_told_to_end = True

    def _lower(self) -> LoweredLimit:
        left = _read(_state_path(self._gpu_uuid, self._directory))
        if left is not None:  # of a process that was killed together with its watchdog
            if _is_running(left):
                raise PowerLimitError(_in_use(left))
            _put_back(left, self._directory, self._sleep)
        now = power_limits(self._gpu_uuid)
        started_s = _started_utc_s(self._parent_pid)
        if started_s is None:
            raise PowerLimitError("the process that it was to be lowered for has ended")
        state = LoweredLimit(self._gpu_uuid, now.limit_w, self._limit_w, self._parent_pid, started_s, time.time())
        _write(state, self._directory)
        try:
            set_power_limit(self._gpu_uuid, self._limit_w)
            set_w = power_limits(self._gpu_uuid).limit_w
            if abs(set_w - self._limit_w) > ROUNDING_W:
                set_power_limit(self._gpu_uuid, now.limit_w)
                raise PowerLimitError(f"the driver set {set_w:g} W where it was told {self._limit_w:g} W")
        except PowerLimitError:
            _state_path(self._gpu_uuid, self._directory).unlink(missing_ok=True)
            raise
        return state

    def _wait(self) -> None:
        """Wait for a word from the parent, the end of its pipe, its own end, or a signal.

        A fork of the parent holds the pipe open when the parent is gone: so its number is looked at too.
        """
        while not self._is_told_to_end and os.getppid() == self._parent_pid:
            ready, _, _ = select.select([sys.stdin], [], [], _POLL_S)
            if ready:
                return


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the parent has ended, and nobody reads
        print(text, flush=True)  # noqa: T201  # the answer to the parent


def main() -> None:
    """Run the watchdog."""
    gpu_uuid, limit_w, directory, parent_pid = sys.argv[1:]
    sys.exit(Watchdog(gpu_uuid, float(limit_w), Path(directory), int(parent_pid)).run())


if __name__ == "__main__":
    main()
