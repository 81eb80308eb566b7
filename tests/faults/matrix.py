"""Faults, and what must hold under each: the matrix of ``docs/method/reliability.md``.

    python tests/faults/matrix.py [--only WORD] [--into benchmarks/tables/reliability.md]

Each row trains the same tiny training (``training.py``) twice, in a process each: without the tracker and with it. Both
meet the fault, where it can be without a tracker too. Three things must hold: what the training comes to is the same,
every epoch whose ``epoch_end()`` returned is known afterwards, and the process ends with the same exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from greenlove_tracker import read_logs
from greenlove_tracker.vocabulary.records import Flag

HERE = Path(__file__).parent
EPOCHS, LOG_DIR = 8, "logs"
_TIMEOUT_S = 20.0  # and what a fault may take


class UnavailableError(Exception):
    """This machine, or this user, cannot have that fault."""


@dataclass(frozen=True)
class Fault:
    """A row of the matrix.

    Attributes:
        name: of the row.
        what: the fault, for people.
        inject: a name of ``injections.py``, or ``raises MODULE NAME N``; empty: the name.
        signal: sent from outside at random instants, to one process after the other.
        n_times: how often that is.
        is_unprivileged: the training may not write where that is forbidden, not as root either.
        ends_before: the process ends in this epoch: there is no result.
        flags: of the log, which must be there.
        says: a part of what is said on standard error.
        where: where finished epochs are known: ``log``, ``memory`` (``tracker.summary``), or ``none`` where it is our
            own code that failed.
        extra_s: what it may take longer than without.
    """

    name: str
    what: str
    inject: str = ""
    signal: int = 0
    n_times: int = 1
    is_unprivileged: bool = False
    flags: frozenset[str] = frozenset()
    says: str = ""
    where: str = "log"
    extra_s: float = 8.0


def _fails(name: str, what: str, says: str = "training goes on", where: str = "none", call: int = 3) -> Fault:
    """Return the row of a function of ours that raises from its n-th call on."""
    module, _, function = name.partition(":")
    inject = f"raises {module} {function} {call}"
    return Fault(f"{function} raises", what, inject, says=says, where=where)


FAULTS = (
    # the disk
    Fault("nothing", "no fault at all"),
    Fault("no_file_grows", "no file can grow, from epoch 3 to 6: a quota, or a full disk", says="cannot be written"),
    Fault("no_file_grows_to_the_end", "no file can grow from epoch 3 to the end", says="not complete", where="memory"),
    Fault("input_output_errors", "every write and fsync fails with EIO, from epoch 3 to 6", says="cannot be written"),
    Fault("slow_disk", "every fsync takes a second", extra_s=8.0),
    Fault("log_dir_removed", "the log directory is removed in epoch 4"),
    Fault("log_dir_removed_at_the_end", "the log directory is removed after the last epoch"),
    Fault("log_dir_read_only", "it is read-only from epoch 3 to 6", is_unprivileged=True),
    Fault(
        "log_dir_read_only_to_the_end",
        "it is read-only from epoch 3 to the end",
        is_unprivileged=True,
        says="not complete",
    ),
    Fault(
        "log_dir_unwritable_at_start",
        "it cannot be made at all",
        where="none",
        says="cannot write logs",
    ),
    Fault("working_directory_removed", "the working directory is removed before the tracker is made"),
    # the meter
    Fault(
        "meter_cannot_start",
        "the meter raises when it starts",
        flags=frozenset({Flag.METER_FAILED}),
        says="could not start",
    ),
    Fault(
        "meter_exits_at_start",
        "it calls sys.exit() when it starts",
        flags=frozenset({Flag.METER_FAILED}),
        says="could not start",
    ),
    Fault("meter_never_starts", "it hangs when it starts", flags=frozenset({Flag.METER_STARTING})),
    Fault(
        "meter_dies", "every reading raises from epoch 3 on", flags=frozenset({Flag.METER_FAILED}), says="GPU is lost"
    ),
    Fault("meter_exits", "a reading calls sys.exit()", flags=frozenset({Flag.METER_FAILED}), says="meter failed"),
    Fault("meter_hangs", "a reading never comes back", flags=frozenset({Flag.METER_FAILED}), says="hangs", extra_s=5.0),
    Fault("meter_goes_backwards", "it gives negative energy", flags=frozenset({Flag.METER_FAILED}), says="-1.0 kWh"),
    Fault("meter_gives_nan", "it gives NaN", flags=frozenset({Flag.METER_FAILED}), says="nan kWh"),
    Fault(
        "meter_gives_nonsense",
        "it gives a text for a reading",
        flags=frozenset({Flag.METER_FAILED}),
        says="meter failed",
    ),
    Fault(
        "meter_gives_text", "it gives a text for a number", flags=frozenset({Flag.METER_FAILED}), says="meter failed"
    ),
    Fault("meter_cannot_stop", "it raises when it is stopped", says="could not be stopped"),
    Fault("meter_never_stops", "it hangs when it is stopped", says="could not be stopped", extra_s=5.0),
    # the clocks
    Fault(
        "wall_clock_goes_forward",
        "the wall clock goes an hour forward, as after a suspend",
        flags=frozenset({Flag.CLOCK_JUMP}),
    ),
    Fault("wall_clock_goes_back", "it goes an hour back", flags=frozenset({Flag.CLOCK_JUMP})),
    Fault("wall_clock_at_its_beginning", "it stands at 1970", flags=frozenset({Flag.CLOCK_JUMP})),
    Fault("wall_clock_beyond_all_years", "it is beyond year 9999", flags=frozenset({Flag.CLOCK_JUMP})),
    Fault("steady_clock_goes_back", "the steady clock goes back by 100 s", flags=frozenset({Flag.CLOCK_JUMP})),
    Fault("steady_clock_stands_still", "the steady clock stands still"),
    Fault("suspended", "the process is stopped (SIGSTOP) for half a second"),
    # processes, threads, tasks
    Fault("fork_in_an_epoch", "a forked copy ends the epoch, trains on and exits with 5"),
    Fault("workers_by_fork", "worker processes by fork, in an epoch and between two"),
    Fault("threads", "8 threads count 1,600 steps at once"),
    Fault("training_in_a_thread", "the training runs in another thread than the tracker was made in"),
    Fault("no_more_threads", "no thread can be started"),
    Fault("two_trackers", "a second tracker takes over after epoch 4", says="superseded"),
    Fault("a_program_is_started", "another program is started in an epoch"),
    # the end of the process
    Fault("killed_for_memory", "SIGKILL in epoch 5, as by the OOM killer"),
    Fault("exits_at_once", "os._exit(3) in epoch 5"),
    Fault("exits", "sys.exit(7) in epoch 5"),
    Fault("exits_with_a_text", "sys.exit('out of data') in epoch 5"),
    Fault("raises_an_error", "the training raises ValueError in epoch 5"),
    Fault("raises_an_odd_error", "it raises what is no Exception"),
    Fault("aborts", "abort() in epoch 5"),
    Fault("crashes", "a segmentation fault in epoch 5"),
    Fault("becomes_another_program", "execv() in epoch 5"),
    Fault("never_stopped", "nobody calls stop(); sys.exit(4) at the end"),
    # what our calls meet on their way
    Fault("standard_error_is_closed", "standard error is closed in epoch 2"),
    Fault("standard_error_is_a_broken_pipe", "standard error is a pipe that nobody reads"),
    Fault("warnings_are_errors", "every warning is an error"),
    Fault("little_memory", "from epoch 3 on the process gets no more memory from the system"),
    Fault("on_overrun_raises", "on_overrun of the user's raises after epoch 1"),
    # our own code
    _fails("tracker.recorder:Recorder.start_epoch", "our code raises where an epoch begins"),
    _fails("tracker.recorder:Recorder.end_epoch", "our code raises where an epoch ends"),
    _fails("tracker.recorder:Recorder.count", "our code raises at a step", where="log"),
    _fails("logs.writer:RunWriter.write_row", "our code raises where a row is written"),
    _fails("logs.writer:RunWriter.unsynced", "our code raises on the way to the disk", says="", where="log", call=1),
    _fails(
        "logs.writer:RunWriter.close",
        "our code raises where the files are closed",
        says="closed properly",
        where="log",
        call=1,
    ),
    _fails(
        "logs.writer:RunWriter.__init__",
        "our code raises when the tracker is made",
        call=1,
        says="",
    ),
    _fails("tracker.session:Session.tick", "our thread raises at each tick", says="", where="log", call=1),
    _fails("tracker.recorder:Recorder.finish", "our code raises at the end", "closed properly", where="log", call=1),
    _fails(
        "machine.devices:synchronise", "torch's synchronisation raises", says="could not be synchronised", where="log"
    ),
    _fails("logs.totals:summarise", "the totals cannot be made", says="closed properly", where="log", call=1),
    _fails("tracker.session:run_factors", "a table of ours cannot be read", call=1, says=""),
    # signals
    Fault("terminated_with_a_handler", "SIGTERM, whose handler of the user's exits with 7"),
    Fault("hung_up", "SIGHUP in epoch 5"),
    Fault("terminated_in_c", "SIGTERM while the process hangs in C", extra_s=5.0),
    Fault("SIGTERM at random", "SIGTERM at 5 random instants", "nothing", signal.SIGTERM, 5),
    Fault("SIGINT at random", "Ctrl-C at 5 random instants", "nothing", signal.SIGINT, 5),
    Fault("SIGKILL at random", "SIGKILL at 5 random instants", "nothing", signal.SIGKILL, 5),
)


@dataclass(frozen=True)
class Ending:
    """The end of a training's process.

    Attributes:
        exit_code: of it.
        digests: of the weights, by the epochs whose ``epoch_end()`` returned.
        notes: further lines of the training's journal, ``result`` among them.
        out: what it printed.
        err: what was said on standard error.
        took_s: its time.
        is_stuck: it came to no end, and was killed.
    """

    exit_code: int
    digests: dict[int, str]
    notes: tuple[str, ...]
    out: str
    err: str
    took_s: float
    is_stuck: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a fault.

    Attributes:
        fault: the row.
        is_same: what the training came to is the same with us and without.
        finished: epochs whose ``epoch_end()`` returned.
        known: those of them that are known afterwards.
        exit_codes: with us and without, of each process.
        broken: everything that does not hold.
    """

    fault: Fault
    is_same: bool
    finished: int
    known: int
    exit_codes: tuple[tuple[int, int], ...]
    broken: tuple[str, ...]


def run_fault(fault: Fault) -> Outcome:
    """Train with the fault, and without the tracker, and compare.

    Raises:
        UnavailableError: where this machine or user cannot have the fault.
    """
    outcomes = [_run_once(fault, seed) for seed in range(fault.n_times)]
    return Outcome(
        fault,
        all(o.is_same for o in outcomes),
        sum(o.finished for o in outcomes),
        sum(o.known for o in outcomes),
        tuple(codes for o in outcomes for codes in o.exit_codes),
        tuple(text for o in outcomes for text in o.broken),
    )


def _run_once(fault: Fault, seed: int) -> Outcome:
    inject = fault.inject or fault.name
    bare = _train_bare(inject)
    with tempfile.TemporaryDirectory(prefix="fault-") as made:
        directory = Path(made)
        directory.chmod(0o777)
        ours = _train("with", inject, directory, fault, seed)
        for path in (directory / LOG_DIR).glob("*/"):
            path.chmod(0o755)
        known, flags = _known_epochs(directory / LOG_DIR)
    return compare(fault, bare, ours, known, flags)


def compare(fault: Fault, bare: Ending, ours: Ending, known: int, flags: frozenset[str]) -> Outcome:
    """Return what holds.

    Args:
        fault: that was injected.
        bare: the training without the tracker.
        ours: the training with it.
        known: whole epochs in the log.
        flags: of the log.
    """
    if fault.where == "memory":
        known = max((int(n.split()[1]) for n in ours.notes if n.startswith("summary")), default=0)
    results = tuple(n for n in ours.notes if not n.startswith("summary"))
    killed = bool(fault.signal) and ours.exit_code == -fault.signal
    expected = replace(bare, exit_code=-fault.signal) if killed else bare
    is_prefix = all(bare.digests.get(n) == digest for n, digest in ours.digests.items())
    is_same = is_prefix and (killed or (ours.digests, results, ours.out) == (bare.digests, bare.notes, bare.out))
    code = expected.exit_code
    finished = max(ours.digests, default=0)
    broken = []
    if not is_same:
        broken.append(f"the training came to {results} {ours.digests}, without us to {bare.notes} {bare.digests}")
    if fault.where != "none" and known < finished:
        broken.append(f"{finished} epochs were finished, {known} are known")
    if ours.exit_code != code:
        broken.append(f"exit code {ours.exit_code} instead of {code}")
    if missing := fault.flags - flags:
        broken.append(f"no flag {', '.join(missing)} in the log, but {', '.join(sorted(flags)) or 'none'}")
    if fault.inject.startswith("raises ") and "(a fault was injected)" not in ours.err:
        broken.append("the fault was not met")
    if fault.says not in " ".join(ours.err.split()):
        broken.append(f"{fault.says!r} was not said")
    broken += _stuck(bare, "without us") + _stuck(ours, "with us")
    if ours.took_s > bare.took_s + fault.extra_s:
        broken.append(f"took {ours.took_s:.1f} s, without us {bare.took_s:.1f} s")
    if broken:
        broken.append(f"standard error: {ours.err[-2000:]}")
    counted = min(known, finished) if fault.where != "none" else known
    return Outcome(fault, is_same, finished, counted, ((ours.exit_code, code),), tuple(broken))


def _stuck(ending: Ending, who: str) -> list[str]:
    return [f"no end {who} in {ending.took_s:.0f} s: {ending.err[-2000:]}"] if ending.is_stuck else []


@cache
def _train_bare(inject: str) -> Ending:
    with tempfile.TemporaryDirectory(prefix="fault-") as made:
        return _train("without", inject, Path(made), Fault("", ""), 0)


def _train(how: str, inject: str, directory: Path, fault: Fault, seed: int) -> Ending:
    journal = directory / "journal"
    command = [sys.executable, "-X", "faulthandler", str(HERE / "training.py"), how, inject, str(journal)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GREENLOVE_", "SLURM_"))}
    env |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"XDG_CONFIG_HOME": str(directory / "none")}
    if fault.is_unprivileged and os.geteuid() == 0:
        command = [*_without_roots_right_to_write(), *command]
    begun_s = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # what it leaves behind is ended with it
    ) as child:
        if fault.signal:
            _send_at_random(child, fault.signal, journal, seed)
        is_stuck = False
        try:
            out, err = child.communicate(timeout=_TIMEOUT_S + fault.extra_s)
        except subprocess.TimeoutExpired:
            is_stuck = True
            out, err = _end_group(child)
    took_s = time.monotonic() - begun_s
    lines = journal.read_text().splitlines() if journal.exists() else []
    epochs = {int(line.split()[1]): line.split()[2] for line in lines if line.startswith("epoch ")}
    notes = tuple(line for line in lines if not line.startswith(("epoch ", "begun")))
    return Ending(child.returncode, epochs, notes, out, err, took_s, is_stuck)


def _end_group(child: subprocess.Popen[str]) -> tuple[str, str]:
    """End a training that stands still, with all that it started; Python first says where each thread stands."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=_TIMEOUT_S)
    raise RuntimeError("a process outlives SIGKILL")


def _send_at_random(child: subprocess.Popen[str], number: int, journal: Path, seed: int) -> None:
    """Send a signal at an instant of the training, its own calls and ours included."""
    chance = random.Random(seed)
    awaited = f"epoch {chance.randrange(1, EPOCHS - 1)}"
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and not (journal.exists() and awaited in journal.read_text()):
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.012))
    child.send_signal(number)


def _known_epochs(log_dir: Path) -> tuple[int, frozenset[str]]:
    """Return the whole epochs in the log, as its files have them, and every flag."""
    if not log_dir.is_dir():
        return 0, frozenset()
    runs = read_logs(log_dir).runs
    rows = [row for run in runs for row in (*run.epochs, *(r for rank in run.rows.values() for r in rank))]
    flags = frozenset[str]().union(*(row.flags for row in rows))
    return sum(epoch.is_complete for run in runs for epoch in run.epochs), flags


def _without_roots_right_to_write() -> list[str]:
    """Return what a command begins with, so that root too may not write where it is forbidden.

    Raises:
        UnavailableError: where there is no such program.
    """
    if shutil.which("setpriv") is None:
        raise UnavailableError("root writes everywhere, and there is no setpriv")
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-all", "--"]


# -- the table --

BEGIN, END = "<!-- fault matrix begin -->", "<!-- fault matrix end -->"


def report(faults: tuple[Fault, ...], say: Callable[[str], None]) -> str:
    """Run the faults and return the table."""
    lines = ["| fault | result | finished epochs, known | exit code |", "|---|---|--:|--:|"]
    n_lost = n_broken = n_run = 0
    for fault in faults:
        try:
            outcome = run_fault(fault)
        except UnavailableError as error:
            lines.append(f"| {fault.what} | not run: {error} | | |")
            continue
        n_run += 1
        n_lost += 0 if fault.where == "none" else outcome.finished - outcome.known
        n_broken += bool(outcome.broken)
        say(f"{fault.name}: {'; '.join(outcome.broken) or 'holds'}")
        lines.append(f"| {fault.what} | {_cells(outcome)} |")
    head = f"{n_run} faults, {n_lost} finished epochs lost, {n_broken} broken."
    return "\n".join([head, "", *lines])


def _cells(outcome: Outcome) -> str:
    codes = sorted({ours for ours, _ in outcome.exit_codes})
    same = "the same" if outcome.is_same else "DIFFERS"
    places = {"log": "", "memory": " (in memory, on the final screen)", "none": " (ours failed, and says so)"}
    known = f"{outcome.known} of {outcome.finished}{places[outcome.fault.where]}"
    return f"{same} | {known} | {', '.join(map(str, codes))}"


def main() -> None:
    """Run the matrix, print the table, and put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--into", type=Path, help="the page to put the table into")
    arguments = parser.parse_args()
    chosen = tuple(fault for fault in FAULTS if arguments.only in fault.name)
    table = report(chosen, lambda text: print(text, file=sys.stderr))  # noqa: T201
    sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
    from scoring import told

    told(table, arguments.into, BEGIN, END)


if __name__ == "__main__":
    main()
