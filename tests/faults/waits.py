"""Faults while a run waits to begin, and how late it then begins: the second table of ``docs/method/reliability.md``.

    PYTHONPATH=tests python tests/faults/waits.py [--only WORD] [--into benchmarks/tables/reliability.md]

Most rows move the clocks of a machine that is none (``scheduling/waits.py``), below the real wait with its real
threads: a machine cannot be suspended, nor its clock set, in a test. The last rows are real processes and real signals.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from faults.matrix import UnavailableError
from scheduling.waits import HOUR_S, NOW, FakeMachine, HourlyProvider, until, with_table

from greenlove_tracker import wait_for_low_carbon
from greenlove_tracker.scheduling.times import parse_when
from greenlove_tracker.scheduling.wait_loop import WaitResult

HERE = Path(__file__).parent
MOST_LATE_S = 60.0  # of a start, and of what follows the machine's waking
FIRST_ANSWER_S = 2.0  # without a network
_TIMEOUT_S = 60.0
_MAX_WAIT_S = 6 * HOUR_S
LOOKED_S = 30.0  # between two looks at the clocks
_DIRTY, _CLEAN = 400.0, 150.0


@dataclass(frozen=True)
class WaitOutcome:
    """What came of a fault.

    Attributes:
        ended: why the wait ended, or how the process did.
        late_s: how long after the right moment; negative: too early.
        most_late_s: that is allowed.
        broken: everything else that does not hold.
    """

    ended: str
    late_s: float
    most_late_s: float = MOST_LATE_S
    broken: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All that does not hold."""
        if -1.0 <= self.late_s <= self.most_late_s:
            return self.broken
        return (*self.broken, f"{self.late_s:.1f} s late, {self.most_late_s:.0f} s are allowed")


@dataclass(frozen=True)
class WaitFault:
    """A row: its name, the fault in words, and what meets it."""

    name: str
    what: str
    meet: Callable[[], WaitOutcome]


def _below(
    machine: FakeMachine, values: Sequence[float | Callable[[], object] | None], max_wait: str = "6h"
) -> WaitResult:
    source = with_table(machine, HourlyProvider(machine, values))
    return wait_for_low_carbon(200, max_wait, intensity=source, quiet=True, clocks=machine.clocks)


_AT_S = HOUR_S + 3.0  # just after the machine fell asleep for half a minute, of which suspended time is no part


def _maximum(event: Callable[[FakeMachine], Callable[[], None]]) -> Callable[[], WaitOutcome]:
    """Meet an event while the grid stays dirty: the maximum wait is to be kept, or the start to follow the waking."""

    def meet() -> WaitOutcome:
        machine = FakeMachine()
        machine.at(_AT_S, event(machine))
        result = _below(machine, [_DIRTY])
        right_s = max([_MAX_WAIT_S, *machine.woken_s])
        return WaitOutcome(result.reason, result.waited_s - right_s)

    return meet


def _timed(event: Callable[[FakeMachine], Callable[[], None]], *, by_steady: bool = False) -> Callable[[], WaitOutcome]:
    """Meet an event while a time is waited for, by the wall clock; or by the steady one, where that is not believed."""

    def meet() -> WaitOutcome:
        machine, start = FakeMachine(), NOW + timedelta(hours=5)
        machine.at(_AT_S, event(machine))
        result = until(machine, start)
        if by_steady:
            late_s = result.waited_s - 5 * HOUR_S
        elif machine.woken_s and machine.woken_s[0] > 5 * HOUR_S:
            late_s = result.waited_s - machine.woken_s[0]
        else:
            late_s = machine.utc - start.timestamp()
        return WaitOutcome(result.reason, late_s)

    return meet


def _night(begun: datetime) -> Callable[[], WaitOutcome]:
    def meet() -> WaitOutcome:
        machine, zone = FakeMachine(begun), ZoneInfo("Europe/Berlin")
        result = until(machine, parse_when("tomorrow 08:00", begun, zone))
        eight = machine.now.astimezone(zone).replace(hour=8, minute=0, second=0, microsecond=0)
        return WaitOutcome(result.reason, (machine.now - eight).total_seconds())

    return meet


def _fails_for_hours() -> WaitOutcome:
    machine = FakeMachine()
    result = _below(machine, [_DIRTY, None, None, _CLEAN])
    answers_s = 3 * HOUR_S - 600.0  # 15:10 to 18:00; it is asked again each five minutes
    return WaitOutcome(result.reason, result.waited_s - answers_s, 300.0 + LOOKED_S)


def _fails_to_the_end() -> WaitOutcome:
    result = _below(FakeMachine(), [_DIRTY, None])
    return WaitOutcome(result.reason, result.waited_s - _MAX_WAIT_S)


def _never_answers() -> WaitOutcome:
    result = _below(FakeMachine(), [None])
    says = () if "hourly: it is down" in result.explanation else (f"it says {result.explanation!r}",)
    return WaitOutcome(result.reason, result.waited_s, broken=says)


def _hangs() -> WaitOutcome:
    machine, hangs = FakeMachine(), threading.Event()

    def hang() -> None:
        hangs.wait(_TIMEOUT_S)

    def look_no_longer() -> None:
        machine.answer_within_s = 0.001

    machine.at(49 * 60, look_no_longer)
    try:
        result = _below(machine, [_DIRTY, hang])
    finally:
        hangs.set()
    return WaitOutcome(result.reason, result.waited_s - _MAX_WAIT_S)


def _hangs_from_the_first() -> WaitOutcome:
    machine, hangs = FakeMachine(), threading.Event()
    machine.answer_within_s = 0.001

    def hang() -> None:
        hangs.wait(_TIMEOUT_S)

    try:
        result = _below(machine, [hang])
    finally:
        hangs.set()
    return WaitOutcome(result.reason, result.waited_s, MOST_LATE_S + 1.0)


# -- real processes --


@contextlib.contextmanager
def _waiting(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield a process that says that it waits to touch a file, and the file."""
    with tempfile.TemporaryDirectory(prefix="wait-") as made:
        started = Path(made, "started")
        wait = [sys.executable, "-m", "greenlove_tracker", "plan", "--intensity", "mock", "--threshold", "1"]
        command = [*wait, *arguments, "--", "touch", str(started)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=made, env=_environment(made), **pipes) as child:  # type: ignore[call-overload]
            try:
                line = child.stderr.readline()
                if "waiting until" not in line:
                    raise RuntimeError(f"it does not wait: {line}")
                yield child, started
            finally:
                child.kill()


def _environment(directory: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GREENLOVE_", "SLURM_"))}
    path = os.pathsep.join(p for p in sys.path if p)
    return env | {"PYTHONPATH": path, "XDG_CONFIG_HOME": f"{directory}/none"}


def _signalled(number: int, code: int) -> Callable[[], WaitOutcome]:
    def meet() -> WaitOutcome:
        with _waiting() as (child, started):
            begun_s = time.monotonic()
            child.send_signal(number)
            _, err = child.communicate(timeout=_TIMEOUT_S)
            took_s = time.monotonic() - begun_s
            broken = []
            if started.exists():
                broken.append("the command was started")
            if child.returncode != code:
                broken.append(f"exit code {child.returncode} instead of {code}")
            if (number == signal.SIGINT and "nothing was started" not in err) or "Traceback" in err:
                broken.append(f"it says {err!r}")
        return WaitOutcome(f"nothing started, exit code {code}", took_s, 5.0, tuple(broken))

    return meet


def _stopped() -> WaitOutcome:
    """Stop the process past its maximum wait; it begins when it goes on."""
    with _waiting("--max-wait", "2s") as (child, started):
        child.send_signal(signal.SIGSTOP)
        time.sleep(4.0)
        is_early = started.exists()
        begun_s = time.monotonic()
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=_TIMEOUT_S)
        took_s = time.monotonic() - begun_s
        broken = ("it was started while it stood still",) if is_early else ()
        if not started.exists() or child.returncode:
            broken += (f"not started, exit code {child.returncode}",)
    return WaitOutcome("maximum wait", took_s, broken=broken)


def _after_the_start() -> WaitOutcome:
    """Send SIGTERM when the command runs: its handler gets it."""
    handler = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); print('up', flush=True); "
    command = [
        sys.executable,
        "-m",
        "greenlove_tracker",
        "plan",
        "--intensity",
        "mock",
        "--threshold",
        "1000",
    ]
    with tempfile.TemporaryDirectory(prefix="wait-") as made:
        command += ["--", sys.executable, "-c", f"{handler}signal.pause()"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment(made)
        ) as child:
            is_up = child.stdout is not None and child.stdout.readline() == "up\n"
            begun_s = time.monotonic()
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=_TIMEOUT_S)
            took_s = time.monotonic() - begun_s
    broken = () if is_up and child.returncode == 9 else (f"exit code {child.returncode} instead of 9",)
    return WaitOutcome("the command's handler, exit code 9", took_s, 5.0, broken)


def _without_network() -> WaitOutcome:
    try:
        is_there = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError as error:
        raise UnavailableError("there is no unshare") from error
    if not is_there:
        raise UnavailableError("this user may not make a network namespace")
    took_s, broken = [], []
    wait = [sys.executable, "-m", "greenlove_tracker", "plan", "--country", "GB", "--threshold", "100", "--", "true"]
    with tempfile.TemporaryDirectory(prefix="wait-") as made:
        for _ in range(3):  # of which a busy machine may delay two
            begun_s = time.monotonic()
            done = subprocess.run(
                ["unshare", "-rn", *wait], capture_output=True, text=True, check=False, env=_environment(made)
            )
            took_s.append(time.monotonic() - begun_s)
            if done.returncode or "a year's average" not in done.stderr or "neso: " not in done.stderr:
                broken.append(f"exit code {done.returncode}: {done.stderr}")
    return WaitOutcome("no provider", min(took_s), FIRST_ANSWER_S, tuple(broken))


def _set(by_s: float) -> Callable[[FakeMachine], Callable[[], None]]:
    return lambda machine: machine.set_clock(by_s)


def _asleep(for_s: float) -> Callable[[FakeMachine], Callable[[], None]]:
    return lambda machine: machine.suspend(for_s)


FAULTS = (
    WaitFault("suspended_past_the_maximum", "suspended for 8 h, past the maximum wait", _maximum(_asleep(8 * HOUR_S))),
    WaitFault("suspended_within", "suspended for 2 h within the maximum wait", _maximum(_asleep(2 * HOUR_S))),
    WaitFault("suspended_past_the_start", "suspended for 8 h, past the start", _timed(_asleep(8 * HOUR_S))),
    WaitFault("suspended_before_the_start", "suspended for 2 h before the start", _timed(_asleep(2 * HOUR_S))),
    WaitFault("forward", "the clock is set an hour forward; a maximum wait", _maximum(_set(HOUR_S))),
    WaitFault("back", "the clock is set an hour back; a maximum wait", _maximum(_set(-HOUR_S))),
    WaitFault("forward_to_a_time", "the clock is set an hour forward; a start at a time", _timed(_set(HOUR_S))),
    WaitFault("back_to_a_time", "the clock is set an hour back; a start at a time", _timed(_set(-HOUR_S))),
    WaitFault("at_1970", "the clock is set to 1970; a start at a time", _timed(_set(-1.79e9), by_steady=True)),
    WaitFault("at_2120", "the clock is set to 2120; a start at a time", _timed(_set(3e9), by_steady=True)),
    WaitFault("clocks_go_back", "a night of 25 hours; 08:00", _night(datetime(2026, 10, 24, 20, tzinfo=UTC))),
    WaitFault("clocks_go_forward", "a night of 23 hours; 08:00", _night(datetime(2027, 3, 27, 21, tzinfo=UTC))),
    WaitFault("fails_for_hours", "the service is down for two hours, then clean", _fails_for_hours),
    WaitFault("fails_to_the_end", "the service is down from the second hour on", _fails_to_the_end),
    WaitFault("never_answers", "the service never answers, the table does", _never_answers),
    WaitFault("hangs", "the service hangs from the second hour on", _hangs),
    WaitFault("hangs_from_the_first", "the service hangs from the first question on", _hangs_from_the_first),
    WaitFault("ctrl_c", "Ctrl-C during the wait", _signalled(signal.SIGINT, 130)),
    WaitFault("terminated", "SIGTERM during the wait", _signalled(signal.SIGTERM, -signal.SIGTERM)),
    WaitFault("hung_up", "SIGHUP during the wait", _signalled(signal.SIGHUP, -signal.SIGHUP)),
    WaitFault("terminated_after", "SIGTERM when the command runs", _after_the_start),
    WaitFault("stopped", "stopped (SIGSTOP) past the maximum wait", _stopped),
    WaitFault("without_network", "an empty network namespace, until the command has ended", _without_network),
)

BEGIN, END = "<!-- wait faults begin -->", "<!-- wait faults end -->"


def report(faults: Sequence[WaitFault], say: Callable[[str], None]) -> str:
    """Meet the faults and return the table."""
    lines = ["| fault | ended by | late by | at most |", "|---|---|--:|--:|"]
    n_run = n_broken = 0
    for fault in faults:
        try:
            outcome = fault.meet()
        except UnavailableError as error:
            lines.append(f"| {fault.what} | not run: {error} | | |")
            continue
        n_run += 1
        n_broken += bool(outcome.problems)
        say(f"{fault.name}: {'; '.join(outcome.problems) or 'holds'}")
        ended = "**BROKEN** " * bool(outcome.problems) + outcome.ended
        lines.append(f"| {fault.what} | {ended} | {outcome.late_s:.1f} s | {outcome.most_late_s:.0f} s |")
    return "\n".join([f"{n_run} faults, {n_broken} broken.", "", *lines])


def main() -> None:
    """Meet the faults, print the table, and put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--into", type=Path, help="the page to put the table into")
    arguments = parser.parse_args()
    chosen = [fault for fault in FAULTS if arguments.only in fault.name]
    table = report(chosen, lambda text: print(text, file=sys.stderr))  # noqa: T201
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    from scoring import told

    told(table, arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
