"""The faults that are injected inside the training's own process, by name."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from training import LOG_DIR, STEPS, Training

Injection = Callable[[Training], None]
_injections: dict[str, Injection] = {}
_READ_TIMEOUT_S = 0.3  # a meter that hangs is waited for this long here; in earnest, some seconds


def inject(training: Training, fault: str) -> None:
    """Inject a fault; ``raises MODULE NAME N`` lets a function of ours raise from its N-th call on."""
    name, *arguments = fault.split()
    if name == "raises":
        _let_raise(training, *arguments)
    else:
        _injections[name](training)


def injection(function: Injection) -> Injection:
    _injections[function.__name__] = function
    return function


def within_tracker(function: Injection) -> Injection:
    """Register a fault that cannot be where the tracker is not."""

    def only_tracked(training: Training) -> None:
        if training.is_tracked:
            function(training)

    _injections[function.__name__] = only_tracked
    return function


def _let_raise(training: Training, module: str, name: str, from_call: str) -> None:
    if not training.is_tracked:
        return
    _tick_often()
    owner: Any = import_module(f"greenlove_tracker.{module}")
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original, calls = getattr(owner, last), []

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) >= int(from_call):
            os.write(2, b"(a fault was injected)\n")
            raise RuntimeError(f"injected into {name}")
        return original(*arguments, **options)

    setattr(owner, last, failing)


@injection
def nothing(training: Training) -> None: ...


def _run_dir() -> Path:
    return next(path for path in Path(LOG_DIR).iterdir() if path.is_dir() and not path.name.startswith("."))


def _tick_often() -> None:
    background = import_module("greenlove_tracker.tracker.background")
    background.TICK_S, background.SEGMENT_S = 0.02, 0.3


# -- the disk --


def _limit_files(training: Training, *, until: int | None) -> None:
    """Let no file grow any further from epoch 3 on, as under a quota or on a full disk: writes are cut short, too."""
    _tick_often()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    training.during[3].append(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1100, hard)))
    if until is not None:
        training.after[until].append(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


@within_tracker
def no_file_grows(training: Training) -> None:
    _limit_files(training, until=6)


@within_tracker
def no_file_grows_to_the_end(training: Training) -> None:
    _limit_files(training, until=None)


@within_tracker
def input_output_errors(training: Training) -> None:
    _tick_often()
    write, fsync = os.write, os.fsync
    mine = training._journal

    def fail(handle: int, *data: bytes) -> int:
        if handle == mine:
            return write(handle, *data)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def restore() -> None:
        os.write, os.fsync = write, fsync

    def break_it() -> None:
        os.write, os.fsync = fail, fail  # type: ignore[assignment]

    training.during[3].append(break_it)
    training.after[6].append(restore)


@within_tracker
def slow_disk(training: Training) -> None:
    _tick_often()
    fsync = os.fsync
    os.fsync = lambda handle: (time.sleep(1.0), fsync(handle))[1]


@within_tracker
def log_dir_removed(training: Training) -> None:
    _tick_often()
    training.during[4].append(lambda: shutil.rmtree(LOG_DIR))


@within_tracker
def log_dir_removed_at_the_end(training: Training) -> None:
    training.after[8].append(lambda: shutil.rmtree(LOG_DIR))


@within_tracker
def log_dir_read_only(training: Training) -> None:
    _tick_often()
    training.during[3].append(lambda: _run_dir().chmod(0o555))
    training.after[6].append(lambda: _run_dir().chmod(0o755))


@within_tracker
def log_dir_read_only_to_the_end(training: Training) -> None:
    training.during[3].append(lambda: _run_dir().chmod(0o555))


@within_tracker
def log_dir_unwritable_at_start(training: Training) -> None:
    Path("occupied").touch()
    training.tracker_arguments["log_dir"] = "occupied/logs"


@injection
def working_directory_removed(training: Training) -> None:
    training.tracker_arguments["log_dir"] = str(Path(LOG_DIR).absolute())
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()


# -- the meter --


class _Meter:
    """A meter that works, until it does not."""

    starts_at_once = False
    resolution_s = 0.0

    def __init__(self, training: Training, **failures: Callable[[], Any]) -> None:
        self._training, self._failures, self._begun_s = training, failures, 0.0
        self.fails = False

    def start(self) -> Any:
        from greenlove_tracker.meter import MeterInfo
        from greenlove_tracker.vocabulary.records import Field

        if "start" in self._failures:
            self._failures["start"]()
        self._begun_s = time.perf_counter()
        return MeterInfo((Field("meter", "injected"),))

    def read(self) -> Any:
        from greenlove_tracker.vocabulary.records import Energy, Method

        if self.fails and "read" in self._failures:
            return self._failures["read"]()
        before_s, self._begun_s = self._begun_s, time.perf_counter()
        return Energy(cpu_kwh=1e-6 * (self._begun_s - before_s), cpu_method=Method.COUNTER)

    def stop(self) -> None:
        if "stop" in self._failures:
            self._failures["stop"]()


def _raise(error: BaseException) -> Any:
    raise error


def _use_meter(training: Training, **failures: Callable[[], Any]) -> None:
    meter = _Meter(training, **failures)
    training.tracker_arguments["meter"] = meter
    training.during[3].append(lambda: setattr(meter, "fails", True))
    begin = training.loop

    def loop() -> None:
        if "start" not in failures:
            training.tracker.wait_ready(10)
        begin()

    training.loop = loop


def _energy(kwh: Any) -> Any:
    from greenlove_tracker.vocabulary.records import Energy, Method

    return Energy(cpu_kwh=kwh, cpu_method=Method.COUNTER)


def _forever() -> Any:
    threading.Event().wait(60)


def _watch_closely() -> None:
    import_module("greenlove_tracker.meter.watched").TIMEOUT_S = _READ_TIMEOUT_S


_FAILING_METERS: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {
    "meter_cannot_start": lambda: {"start": lambda: _raise(OSError("no such device"))},
    "meter_exits_at_start": lambda: {"start": lambda: _raise(SystemExit(9))},
    "meter_never_starts": lambda: {"start": _forever},
    "meter_dies": lambda: {"read": lambda: _raise(RuntimeError("GPU is lost"))},
    "meter_exits": lambda: {"read": lambda: _raise(SystemExit(9))},
    "meter_hangs": lambda: {"read": _forever},
    "meter_goes_backwards": lambda: {"read": lambda: _energy(-1.0)},
    "meter_gives_nan": lambda: {"read": lambda: _energy(float("nan"))},
    "meter_gives_nonsense": lambda: {"read": lambda: "many"},
    "meter_gives_text": lambda: {"read": lambda: _energy("1.0")},
    "meter_cannot_stop": lambda: {"stop": lambda: _raise(RuntimeError("busy"))},
    "meter_never_stops": lambda: {"stop": _forever},
}
for _name, _failures in _FAILING_METERS.items():

    def _fail(training: Training, failures: Callable[[], dict[str, Callable[[], Any]]] = _failures) -> None:
        _watch_closely()
        _use_meter(training, **failures())

    _fail.__name__ = _name
    within_tracker(_fail)


# -- the clocks --


def _move_clock(clock: str, at_s: Callable[[float], float]) -> Callable[[], None]:
    from greenlove_tracker.vocabulary.records import SystemClock

    read = getattr(SystemClock, clock)
    return lambda: setattr(SystemClock, clock, lambda self: at_s(read()))


_CLOCKS: dict[str, tuple[str, Callable[[float], float]]] = {
    "wall_clock_goes_forward": ("utc_s", lambda s: s + 3600),
    "wall_clock_goes_back": ("utc_s", lambda s: s - 3600),
    "wall_clock_at_its_beginning": ("utc_s", lambda s: 0.0),
    "wall_clock_beyond_all_years": ("utc_s", lambda s: 1e15),
    "steady_clock_goes_back": ("perf_s", lambda s: s - 100),
    "steady_clock_stands_still": ("perf_s", lambda s: 1e6),
}
for _name, (_clock, _at_s) in _CLOCKS.items():

    def _jump(training: Training, clock: str = _clock, at_s: Callable[[float], float] = _at_s) -> None:
        training.during[4].append(_move_clock(clock, at_s))

    _jump.__name__ = _name
    within_tracker(_jump)


# -- processes, threads, tasks --


@injection
def fork_in_an_epoch(training: Training) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:  # the copy goes on as if it were the training itself
            training.write = lambda line: None  # type: ignore[method-assign]
            training.tracker.epoch_end()
            training.run_epoch(5)
            training.tracker.stop()
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5

    training.during[4].append(fork)


def _square(number: int) -> int:
    return number * number


@injection
def workers_by_fork(training: Training) -> None:
    def work() -> None:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(_square, [1, 2, 3]) == [1, 4, 9]

    training.during[3].append(work)
    training.after[5].append(work)


@injection
def threads(training: Training) -> None:
    def count() -> None:
        for _ in range(200):
            training.tracker.step(1)

    def work() -> None:
        crowd = [threading.Thread(target=count) for _ in range(8)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()

    training.during[3].append(work)
    if training.is_tracked:

        def check() -> None:
            from greenlove_tracker import read_logs

            assert read_logs(LOG_DIR).runs[0].epochs[2].steps == 8 * 200 + STEPS

        training.at_end.append(check)


@injection
def training_in_a_thread(training: Training) -> None:
    begin = training.loop

    def loop() -> None:
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()

    training.loop = loop


@within_tracker
def no_more_threads(training: Training) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threading.Thread.start = start  # type: ignore[method-assign]


@injection
def two_trackers(training: Training) -> None:
    training.after[4].append(lambda: setattr(training, "tracker", training.make_tracker()))


@injection
def a_program_is_started(training: Training) -> None:
    training.during[3].append(lambda: subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=False))


# -- the end of the process --

_ENDINGS: dict[str, Callable[[], object]] = {
    "killed_for_memory": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits_at_once": lambda: os._exit(3),
    "exits": lambda: sys.exit(7),
    "exits_with_a_text": lambda: sys.exit("out of data"),
    "raises_an_error": lambda: _raise(ValueError("a loss that is not finite")),
    "raises_an_odd_error": lambda: _raise(type("Odd", (BaseException,), {})()),
    "aborts": os.abort,
    "becomes_another_program": lambda: os.execv("/bin/sh", ["sh", "-c", "exit 6"]),
    "crashes": lambda: ctypes.string_at(0),
}
for _name, _ending in _ENDINGS.items():

    def _end(training: Training, ending: Callable[[], object] = _ending) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        training.during[5].append(ending)

    _end.__name__ = _name
    injection(_end)


@injection
def never_stopped(training: Training) -> None:
    training.loop = lambda: (Training.run_epochs(training), training.write(f"result {training.digest()}"), sys.exit(4))[
        0
    ]


# -- what our calls meet on their way --


@injection
def standard_error_is_closed(training: Training) -> None:
    training.tracker_arguments["verbose"] = 2
    training.during[2].append(lambda: (sys.stderr.close(), os.close(2)))
    training.at_end.append(lambda: os.open(os.devnull, os.O_WRONLY))


@injection
def standard_error_is_a_broken_pipe(training: Training) -> None:
    training.tracker_arguments["verbose"] = 2

    def break_it() -> None:
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 2)

    training.during[2].append(break_it)


@injection
def warnings_are_errors(training: Training) -> None:
    warnings.simplefilter("error")


@injection
def little_memory(training: Training) -> None:
    """Leave no memory for anything large; what is small comes from what Python holds already."""

    ctypes.CDLL("libgcc_s.so.1")  # as NumPy and torch do; without it glibc aborts where a daemon thread ends

    def limit() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

    training.during[3].append(limit)


# -- the user's own hooks --


@injection
def on_overrun_raises(training: Training) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of the user's own")

    if training.is_tracked:
        _tick_often()
        training.tracker_arguments |= {"max_energy_kwh": 1e-9, "on_overrun": fail}
        training.during[1].append(lambda: time.sleep(0.2))
    else:  # without us it fails by itself, at the same place
        training.after[1].append(fail)


# -- signals --


@injection
def terminated_with_a_handler(training: Training) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
    training.during[5].append(lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(5)))


@injection
def terminated_in_c(training: Training) -> None:
    """Hang in C, where no handler of Python's is ever called, at SIGTERM."""

    def hang() -> None:
        mutex = ctypes.create_string_buffer(64)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.2; kill -TERM {os.getpid()}"])
        libc.pthread_mutex_lock(mutex)

    training.during[5].append(hang)


@injection
def suspended(training: Training) -> None:
    def stop() -> None:
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)

    training.during[4].append(stop)


@injection
def hung_up(training: Training) -> None:
    training.during[5].append(lambda: os.kill(os.getpid(), signal.SIGHUP))
