"""Each tool in a fresh process of its own, as its own page says it is used: a task in, an answer out, both JSON.

    task='{"loop": "MLP", "batches": 500, "device": "cpu", "threads": 1, "seed": 1}'
    python benchmarks/exploration_tools.py ours "$task"

Subjects: `size` (how long is a batch), `truth` (the whole training, run plainly), `ours`, `green-love`,
`carbontracker`. The clock of a tool runs from its constructor to its forecast; imports and data are before it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exploration_task import Task

TOOLS = ("ours", "green-love", "carbontracker")
CLASSES = {
    "greenlove_tracker": "Estimator",
    "green_love": "GreenLoveEstimator",
    "carbontracker.tracker": "CarbonTracker",
}
COUNTRY = "DE"  # given to those that take one, so that no look-up over the network is timed
GREEN_LOVE_TDP_W = 65.0  # as its page advises where NVML is not there; it changes no time
START_S = 30.0  # granted for imports and data, before a tool's own time-out

Answer = dict[str, Any]


def run_subject(subject: str, task: Task, timeout_s: float) -> Answer:
    """Run a subject in a process of its own and return its answer; its `problem` where it gives none."""
    command = [sys.executable, str(Path(__file__).resolve()), subject, json.dumps(asdict(task))]
    with tempfile.TemporaryDirectory() as directory:  # for its logs and reports; no configuration of ours lies there
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                cwd=directory,
                timeout=START_S + timeout_s,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"no answer in {timeout_s:g} s", "spent_s": timeout_s}
    if done.returncode or not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1:] or ["said nothing"]
        return {"problem": f"exit {done.returncode}: {last[0][:200]}"}
    return json.loads(done.stdout.splitlines()[-1])


def size(task: Task) -> Answer:
    """Time of a batch, and what it was timed on; a tool that is not installed fails here, and not as a forecast."""
    import torch
    from training_loops import LOOPS, SIZING_BATCHES, batch_s

    for module, name in CLASSES.items():
        getattr(importlib.import_module(module), name)
    sizing = Task(task.loop, SIZING_BATCHES, task.device, task.threads, task.seed)
    gpu = torch.cuda.get_device_name() if task.device == "cuda" else None
    loop = LOOPS[task.loop]
    return {
        "batch_s": batch_s(sizing),
        "epochs": loop.epochs,
        "batch": loop.batch,
        "torch": torch.__version__,
        "gpu": gpu,
    }


def truth(task: Task) -> Answer:
    """Wall time of the whole training."""
    from training_loops import build, train_s

    return {"truth_s": train_s(build(task))}


def ours(task: Task) -> Answer:
    """Our Estimator with its defaults, without a terminal."""
    from training_loops import build

    from greenlove_tracker import Estimator

    t = build(task)
    began_s = time.perf_counter()
    estimator = Estimator(t.model, t.optimizer, t.criterion, t.loader, t.epochs, asks=False, verbose=0, country=COUNTRY)
    estimation = estimator.estimate()
    spent_s = time.perf_counter() - began_s
    duration, warnings = estimation.forecast.duration_s, [w.name for w in estimation.forecast.warnings]
    return {
        "point_s": duration.point,
        "lower_s": duration.lower,
        "upper_s": duration.upper,
        "spent_s": spent_s,
        "trials": len(estimation.trials),
        "warnings": warnings,
    }


def green_love(task: Task) -> Answer:
    """The original as in its quick start: it takes the data set and makes a loader like ours of it."""
    from green_love import GreenLoveEstimator
    from training_loops import build

    t = build(task)
    began_s = time.perf_counter()
    estimator = GreenLoveEstimator(
        model=t.model,
        optimizer=t.optimizer,
        criterion=t.criterion,
        train_dataset=t.loader.dataset,
        total_epochs=t.epochs,
        batch_size=t.loader.batch_size,
        device=task.device,
        country_code=COUNTRY,
        manual_tdp_watts=GREEN_LOVE_TDP_W,
        auto_open_report=False,
    )
    results = estimator.estimate()
    return {
        "point_s": results.est_total_time_s,
        "lower_s": results.est_total_time_lower_s,
        "upper_s": results.est_total_time_upper_s,
        "spent_s": time.perf_counter() - began_s,
        "trials": len(results.sample_sizes_used),
    }


def carbontracker(task: Task) -> Answer:
    """Its forecast after the first epoch, as by default; the number that it prints, before it rounds it to seconds."""
    from carbontracker import predictor
    from carbontracker.tracker import CarbonTracker
    from training_loops import build, train_epoch

    t = build(task)
    began_s = time.perf_counter()
    tracker = CarbonTracker(epochs=t.epochs, log_dir=".")
    tracker.epoch_start()
    train_epoch(t)
    tracker.epoch_end()
    spent_s = time.perf_counter() - began_s
    return {"point_s": float(predictor.predict_time(t.epochs, tracker.tracker.epoch_times)), "spent_s": spent_s}


SUBJECTS: Mapping[str, Callable[[Task], Answer]] = {
    "size": size,
    "truth": truth,
    "ours": ours,
    "green-love": green_love,
    "carbontracker": carbontracker,
}


def main() -> None:
    subject, task = sys.argv[1], Task(**json.loads(sys.argv[2]))
    answers, sys.stdout = sys.stdout, sys.stderr  # what the tools print is not the answer
    print(json.dumps(SUBJECTS[subject](task)), file=answers, flush=True)
    os._exit(0)  # carbontracker's threads would hold the exit up


if __name__ == "__main__":
    main()
