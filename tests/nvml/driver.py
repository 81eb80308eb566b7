"""Trainings of some seconds over a scripted NVIDIA driver: the scenario as data, and what came of it.

The tracker, CodeCarbon and pynvml run unmodified, in a process of their own, over ``nvml_stub.c``. The stand-in also
says what its GPUs truly took. Seconds of a scenario count from the beginning of the first epoch; what is to hold while
the meter starts has no beginning.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from greenlove_tracker import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.records import Flag
from greenlove_tracker.vocabulary.units import JOULES_PER_KWH

HERE = Path(__file__).parent
_TIMEOUT_S = 90.0
_AFTERWARDS_S = 3600.0  # the second of a scenario at which the doctor looks
_NOT_OF_ENERGY = {Flag.LOADING, Flag.SHORT}
_HIDDEN = ("GREENLOVE_", "CODECARBON_", "CUDA_", "NVIDIA_", "SLURM_", "COLUMNS")
# A whole total in which a GPU is missing must say so in one of these ways.
_SAYS_INCOMPLETE = re.compile(r"at least|≥|missing|could not be (measured|read)|not measured|unmeasured", re.IGNORECASE)

DRIVER = -1  # in the place of a GPU's number
# What NVML returns: nvmlReturn_t
NOT_SUPPORTED = 3
NO_PERMISSION = 4
INSUFFICIENT_POWER = 8
GPU_IS_LOST = 15
NOT_READY = 27
UNKNOWN_ERROR = 999


@dataclass(frozen=True)
class Line:
    """A line of a scenario; ``nvml_stub.c`` says what keys there are.

    Attributes:
        gpu: its number, or ``DRIVER``.
        from_s: the second at which it begins to hold; by default, before the meter starts.
        until_s: the second at which it ends.
    """

    key: str
    value: object
    gpu: int = 0
    from_s: float = -math.inf
    until_s: float = math.inf

    def __str__(self) -> str:
        return f"{self.gpu} {self.from_s} {self.until_s} {self.key} {self.value}\n"


def fails(function: str, code: int, **when: Any) -> Line:
    """Return a line by which functions whose name begins so return this code."""
    return Line("fail", f"{function} {code}", **when)


def hangs(function: str, seconds: float, calls_before: int = 0, **when: Any) -> Line:
    """Return a line by which functions whose name begins so take so long, but for some calls before."""
    return Line("hang", f"{function} {seconds} {calls_before}", **when)


@dataclass(frozen=True)
class Gpu:
    """A GPU that answers everything.

    Attributes:
        power_w: what it takes all the time, or pairs: from which second, how much.
        slice_uuid: of the one MIG slice into which it is cut.
    """

    power_w: float | Sequence[tuple[float, float]] = 300.0
    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = ""
    slice_uuid: str = ""

    def lines(self, number: int) -> Iterable[Line]:
        """Return the lines of this GPU under this number."""
        yield Line("name", self.name, number)
        yield Line("uuid", self.uuid or uuid_of(number), number)
        if self.slice_uuid:
            yield Line("mig", self.slice_uuid, number)
        if isinstance(self.power_w, (int, float)):
            steps = [(-math.inf, self.power_w)]
        else:
            steps = [(-math.inf, self.power_w[0][1]), *self.power_w[1:]]
        ends = [*(from_s for from_s, _ in steps[1:]), math.inf]
        for (from_s, watts), until_s in zip(steps, ends, strict=True):
            yield Line("power", watts, number, from_s, until_s)


def uuid_of(number: int) -> str:
    """Return the UUID that a GPU has by default."""
    return f"GPU-{number:08x}-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Outcome:
    """What came of a training.

    Attributes:
        screen: what it wrote on standard error: warnings, and the run's last screen.
        log_dir: of its one run.
        doctor: what ``greenlove doctor`` said afterwards; empty where it was not asked.
        told: what ``training.py`` recorded itself.
        exit_s: from its last line until its process had ended.
    """

    screen: str
    log_dir: Path
    doctor: str
    told: Mapping[str, Any]
    exit_s: float

    @cached_property
    def run(self) -> Run:
        """The run as its log says."""
        (run,) = read_logs(self.log_dir).runs
        return run

    def truth_j(self, gpus: Sequence[int] | None = None) -> float:
        """Return what GPUs took in the whole run, in joules: all GPUs, or some."""
        before, after = self.told["run"]
        return _taken_j(before, after, gpus)

    def truth_of_epoch_j(self, epoch: int, gpus: Sequence[int] | None = None) -> tuple[float, float]:
        """Return what GPUs took in an epoch, which counts from 1: without the calls at its ends, and with them."""
        called, started, ended, returned = self.told["epochs"][epoch - 1]
        if epoch > 1:  # what lies between two epochs is too short to be told from the next
            called = self.told["epochs"][epoch - 2][2]
        return _taken_j(started, ended, gpus), _taken_j(called, returned, gpus)

    def check_epochs(
        self,
        epochs: Iterable[int],
        gpus: Sequence[int] | None = None,
        *,
        at_least_gpus: Sequence[int] | None = None,
        may_be_unknown: bool = False,
    ) -> None:
        """Check that the log has the true energy of epochs, within 3%.

        Args:
            epochs: that are checked; they count from 1.
            gpus: whose energy it must be; by default, all of them.
            at_least_gpus: whose energy it may be instead, or anything between the two.
            may_be_unknown: no energy is right, too.

        Raises:
            AssertionError: where it has another.
        """
        for epoch in epochs:
            _, most_j = self.truth_of_epoch_j(epoch, gpus)
            least_j, _ = self.truth_of_epoch_j(epoch, at_least_gpus or gpus)
            energy_j = self.gpu_j(epoch)
            text = f"epoch {epoch}: {energy_j} J in the log, truly {least_j:.1f} to {most_j:.1f} J"
            if energy_j is None:
                assert may_be_unknown, text
            else:
                assert least_j * 0.97 <= energy_j <= most_j * 1.03, text

    def check_total(self) -> None:
        """Check that the run's total is true within 3%, or too low and says that it is not whole.

        Raises:
            AssertionError: where it is neither.
        """
        truth_j = self.truth_j()
        text = f"the log's total is {self.total_j} J, truly {truth_j:.1f} J"
        assert self.total_j is not None and self.total_j <= truth_j * 1.03, text
        assert self.total_j >= truth_j * 0.97 or self.says_incomplete, text

    @property
    def held_s(self) -> list[float]:
        """The time that each epoch was held up by its two calls, the longest first."""
        held_s = []
        for called, started, ended, returned in self.told["epochs"]:
            held_s.append(started["s"] - called["s"] + returned["s"] - ended["s"])
        return sorted(held_s, reverse=True)

    def gpu_j(self, epoch: int) -> float | None:
        """Return the GPUs' energy in an epoch by the log, in joules; None where it is unknown."""
        return _joules(self.run.epochs[epoch - 1].energy.gpu_kwh)

    @property
    def total_j(self) -> float | None:
        """The total of the run, in joules. CPU and memory are set to next to nothing."""
        return _joules(self.run.summary.energy_kwh)

    @property
    def metered_j(self) -> float | None:
        """The GPUs' energy that was metered in the whole run, in joules: without what is estimated."""
        return _joules(self.run.summary.energy.gpu_kwh)

    @property
    def flags(self) -> frozenset[str]:
        """All flags of the run but those of its beginning and of time alone."""
        return self.run.summary.flags - _NOT_OF_ENERGY - {Flag.METER_STARTING}

    def flags_of_epoch(self, epoch: int) -> frozenset[str]:
        """Return the flags of an epoch that concern its energy."""
        return self.run.epochs[epoch - 1].flags - _NOT_OF_ENERGY

    @property
    def notes(self) -> str:
        """The notes of ``run.csv``, in which doubts and reasons stand."""
        texts = {name: text for name, (text, _) in self.run.lines.items()}
        return "\n".join(
            text for name, text in texts.items() if name.endswith(("_doubt", "_note")) or name == "unmeasured"
        )

    @property
    def said(self) -> str:
        """All that its user reads of the run."""
        return f"{self.screen}\n{self.notes}"

    @property
    def last_screen(self) -> str:
        """What the run says at its end."""
        text = f"\n{self.screen}"
        return text[text.rfind("\ngreenlove  ") :]

    @property
    def says_incomplete(self) -> bool:
        """True where the last screen says that a part of the energy is not in the total."""
        return bool(_SAYS_INCOMPLETE.search(self.last_screen))

    def doctor_line(self, subject: str) -> str:
        """Return the doctor's line of ``gpu 0`` or another; empty where there is none."""
        found = re.search(rf"^  {subject}\b.*$", self.doctor, re.MULTILINE)
        return found[0] if found else ""


def _taken_j(before: Mapping[str, Any], after: Mapping[str, Any], gpus: Sequence[int] | None) -> float:
    numbers = range(len(after["j"])) if gpus is None else gpus
    return math.fsum(after["j"][number] - before["j"][number] for number in numbers)


def _joules(energy_kwh: float | None) -> float | None:
    if energy_kwh is None:
        return None
    return energy_kwh * JOULES_PER_KWH


@dataclass(frozen=True)
class Driver:
    """Starts trainings over the stand-in.

    Attributes:
        library_dir: has ``libnvidia-ml.so.1``.
        work_dir: an empty directory.
    """

    library_dir: Path
    work_dir: Path

    @property
    def _scenario(self) -> Path:
        return self.work_dir / "scenario"

    @property
    def limits_w(self) -> list[float]:
        """All power limits: those of the scenario, and behind them those that were set."""
        found = re.findall(r" limit (\S+)$", self._scenario.read_text(encoding="utf-8"), re.MULTILINE)
        return [float(watts) for watts in found]

    def train(
        self,
        gpus: Sequence[Gpu],
        *lines: Line,
        epochs_s: Sequence[float] = (0.5, 0.5, 0.5, 0.5),
        env: Mapping[str, str] | None = None,
        asks_doctor: bool = False,
        awaits_meter: bool = True,
        lingers_s: float = 0.0,
        nvidia_smi: str = "exit 0",
    ) -> Outcome:
        """Train, and return what came of it.

        Args:
            gpus: that the driver has.
            lines: faults, and whatever else is not as it should be.
            epochs_s: the durations of the epochs.
            env: more of the environment.
            asks_doctor: ``greenlove doctor`` is run afterwards.
            awaits_meter: the first epoch begins when the meter is up.
            lingers_s: how long the process waits at its end for threads to end.
            nvidia_smi: the shell command behind ``nvidia-smi``, by which CodeCarbon looks for a driver.
        """
        environment = self.environment(gpus, *lines, nvidia_smi=nvidia_smi) | dict(env or {})
        plan = {"epochs_s": epochs_s, "n_gpus": len(gpus), "awaits_meter": awaits_meter, "lingers_s": lingers_s}
        told_path = self.work_dir / "told.json"
        training = [sys.executable, str(HERE / "training.py"), json.dumps(plan), str(told_path)]
        exit_code, _, screen = _run(training, self.work_dir, environment)
        ended_s = time.perf_counter()
        assert exit_code == 0, screen
        told = json.loads(told_path.read_text(encoding="utf-8"))
        said = ""
        if asks_doctor:
            afterwards = environment | {"NVML_SECOND": str(_AFTERWARDS_S)}
            _, said, _ = _run([sys.executable, "-m", "greenlove_tracker", "doctor"], self.work_dir, afterwards)
        return Outcome(screen, self.work_dir / "logs", said, told, ended_s - told["ended_s"])

    def environment(self, gpus: Sequence[Gpu], *lines: Line, nvidia_smi: str = "exit 0") -> dict[str, str]:
        """Write a scenario, and return the environment of a process over it; the arguments are those of ``train``."""
        scenario = [Line("gpus", len(gpus), DRIVER)]
        for number, gpu in enumerate(gpus):
            scenario += gpu.lines(number)
        text = "".join(map(str, [*scenario, *lines]))
        self._scenario.write_text(text, encoding="utf-8", errors="surrogateescape")
        smi = self.work_dir / "bin/nvidia-smi"
        smi.parent.mkdir(exist_ok=True)
        smi.write_text(f"#!/bin/sh\n{nvidia_smi}\n", encoding="utf-8")
        smi.chmod(0o755)
        ours = {
            "HOME": str(self.work_dir),
            "PATH": f"{smi.parent}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(self.library_dir),
            "NVML_SCENARIO": str(self._scenario),
            "GREENLOVE_LOG_DIR": "logs",
            "GREENLOVE_COUNTRY": "DE",
            "GREENLOVE_CPU_TDP_W": "0.01",  # so that totals are the GPUs', and alike on each machine
            "GREENLOVE_RAM_W": "0.01",
            "COLUMNS": "160",
            "NO_COLOR": "1",
        }
        return {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)} | ours


def _run(command: Sequence[str], directory: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code, and what it wrote on standard output and standard error."""
    with (directory / "out").open("w+") as out, (directory / "err").open("w+") as error:
        process = subprocess.Popen(command, cwd=directory, env=env, stdout=out, stderr=error, start_new_session=True)
        try:
            process.wait(_TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        written = [(directory / name).read_text(encoding="utf-8") for name in ("out", "err")]
        return process.returncode, *written
