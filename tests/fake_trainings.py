"""An experiment whose trainings are stand-ins: each is a process that logs a run, or ends as it is told to.

``fake_trainings.py run FILE`` is ``greenlove experiment run`` of the JSON that ``write_experiment`` wrote; with
``train`` it stands in the place of ``greenlove_tracker.experiments.one_run``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from report_samples import epoch_row, write_run

from greenlove_tracker.experiments.definition import Experiment, ExperimentBudget, PlannedRun, StartPolicy
from greenlove_tracker.vocabulary.records import Energy, Factor, Method
from greenlove_tracker.vocabulary.waits import wait_before

EPOCHS = 4  # of each training
EPOCH_S, EPOCH_KWH = 900.0, 0.25  # a training is an hour, and 1 kWh
_INTENSITY = Factor("carbon_intensity", 400.0, "gCO2e/kWh", "a test", "2025", "location-based, lifecycle")
_NOW, _NO_BUDGET = StartPolicy(), ExperimentBudget()
TRAIN = (sys.executable, __file__, "train")


def planned_run(arm: str = "baseline", seed: int = 0, task: str = "train.py:task", **changes: Any) -> PlannedRun:
    """Return a training without techniques; its key names it, as no real one does."""
    name = f"{arm}, seed {seed}"
    nothing: dict[str, Any] = {"epochs": None, "steps": None, "batch_size": None, "settings": {}, "values": {}}
    key = f"{arm}-{seed}"
    known = {"key": key, "arm": arm, "group": arm, "name": name, "seed": seed, "task": task, "arguments": ()}
    return PlannedRun(**{**known, "techniques": (), **nothing, **changes})


def make_experiment(
    directory: Path,
    *,
    arms: tuple[str, ...] = ("baseline", "optimised"),
    seeds: tuple[int, ...] = (0, 1),
    start: StartPolicy = _NOW,
    budget: ExperimentBudget = _NO_BUDGET,
    name: str = "digits",
    settings: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return an experiment with its outputs in a directory, and a file of its task there."""
    task = directory / "train.py"
    if not task.exists():
        task.write_text("def task(): ...\n")
    runs = tuple(
        planned_run(arm, seed, f"{task}:task", settings=settings or {"country": "DE"}) for seed in seeds for arm in arms
    )
    path, outputs = directory / "experiment.json", directory / "outputs"
    return Experiment(name, path, "0" * 64, runs, arms[0], start, budget, outputs, ("html",), "final")


def write_experiment(experiment: Experiment, **how: Any) -> None:
    """Write what the stand-ins read: by key, how a training goes. ``finish`` where nothing is said."""
    content = {"outputs": str(experiment.outputs), "name": experiment.name, "how": how.pop("how", {}), **how}
    experiment.path.write_text(json.dumps(content))


# -- a training --


class FakeTraining:
    """One training: a stand-in for ``one_run``."""

    def __init__(self, file: str, key: str, answer: str) -> None:
        content = json.loads(Path(file).read_text())
        self.outputs, self.name, self.key, self.answer_file = (
            Path(content["outputs"]),
            content["name"],
            key,
            Path(answer),
        )
        self.how = content["how"].get(key, "finish")
        self.checkpoint = self.outputs / "checkpoints" / key / "epoch"
        self.before = json.loads(self.checkpoint.read_text()) if self.checkpoint.exists() else {}
        self.run_id = f"{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns()}"

    def run(self) -> None:
        """Train, or end as the file says."""
        with (self.outputs / "begun.txt").open("a") as begun:
            begun.write(f"{self.key}\n")
        how, _, reason = self.how.partition(":")
        getattr(self, how.replace("-", "_"))(reason)

    def finish(self, reason: str = "") -> None:
        self.log(EPOCHS - self.before.get("epoch", 0), "finished")
        self.answer("finished")

    def fail(self, reason: str) -> None:
        self.log(1, "failed")
        self.answer("failed", reason)

    def stop_by_budget(self, reason: str) -> None:
        limits = {name: value for name, value in os.environ.items() if name.startswith(("GREENLOVE_M", "GREENLOVE_ON"))}
        (self.outputs / "limits.json").write_text(json.dumps(limits))
        self.save(1)
        self.log(1, "stopped")
        self.answer("interrupted", "over its limit")

    def lose_log(self, reason: str) -> None:
        self.answer("finished")

    def abort(self, reason: str) -> None:
        self.log(1, None)
        os.abort()

    def wait_once(self, reason: str) -> None:
        """Train until a signal comes; the next time to the end."""
        if self.before:
            self.finish()
            return
        self.save(2)

        def end(number: int, frame: FrameType | None) -> None:
            self.log(2, "interrupted")
            self.answer("interrupted", signal.Signals(number).name)
            os._exit(128 + number)

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        self.log(2, None)
        self.announce()
        while True:
            time.sleep(10)

    def until_told(self, reason: str) -> None:
        """Finish once there is a file ``go``."""
        self.announce()
        while not (self.outputs / "go").exists():
            time.sleep(0.01)
        self.finish()

    def announce(self) -> None:
        (self.outputs / "training").write_text(str(os.getpid()))

    def save(self, epoch: int) -> None:
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        self.checkpoint.write_text(json.dumps({"epoch": epoch, "run_id": self.run_id}))

    def answer(self, outcome: str, reason: str = "") -> None:
        self.answer_file.write_text(json.dumps({"outcome": outcome, "reason": reason}))

    def log(self, epochs: int, status: str | None) -> None:
        fields = {"experiment": self.name, "experiment_run": self.key, "country": "DE"}
        if self.before:
            fields |= {"continues": self.before["run_id"], "first_epoch": str(self.before["epoch"])}
        fields |= {field.name: field.value for field in wait_before(os.environ, time.time())}
        log_run(self.outputs / "runs" / self.run_id, fields, epochs, status)


def log_run(run_dir: Path, fields: Mapping[str, str], epochs: int = EPOCHS, status: str | None = "finished") -> None:
    """Write a run as a tracker does; without a status one that was killed."""
    energy = Energy(gpu_kwh=EPOCH_KWH, gpu_method=Method.COUNTER)
    rows = [epoch_row(number, EPOCH_S, energy) for number in range(1, epochs + 1)]
    planned = str(EPOCHS - int(fields.get("first_epoch", "0")))
    known = {"project": "", "pue": "1.0", "gpu_count": "1", "epochs_planned": planned, **fields}
    code = 1 if status == "failed" else 0
    write_run(run_dir.parent, rows, run_dir.name, fields=known, intensity=_INTENSITY, status=status, exit_code=code)


def main() -> int:
    """Run the experiment of a file, or one training of it."""
    what, file, *more = sys.argv[1:]
    if what == "train":
        FakeTraining(file, *more[:2]).run()
        return 0
    from greenlove_tracker.experiments import runner  # which no training waits for

    content = json.loads(Path(file).read_text())
    directory = Path(file).parent
    experiment = make_experiment(directory, arms=tuple(content["arms"]), seeds=tuple(content["seeds"]))
    return runner.run_experiment(experiment, command=TRAIN).exit_code


if __name__ == "__main__":
    raise SystemExit(main())
