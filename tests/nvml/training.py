"""A training that does nothing but take its time, and records what the stand-in's GPUs truly took.

python training.py PLAN TOLD
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from pathlib import Path

from greenlove_tracker import Tracker

AFTER_READY_S = 0.1  # CodeCarbon measures every 0.05 s at most: what it took to become ready is not of the first epoch
plan = json.loads(sys.argv[1])
stub = ctypes.CDLL("libnvidia-ml.so.1")
stub.nvml_stub_joules.restype = ctypes.c_double


def mark() -> dict[str, object]:
    return {"s": time.perf_counter(), "j": [stub.nvml_stub_joules(number) for number in range(plan["n_gpus"])]}


def n_threads() -> int:
    return len(threading.enumerate())


epochs = []
run = [mark()]
with Tracker(epochs=len(plan["epochs_s"])) as tracker:
    if plan["awaits_meter"]:
        tracker.wait_ready(30)
        time.sleep(AFTER_READY_S)
    stub.nvml_stub_begin()
    for epoch_s in plan["epochs_s"]:
        marks = [mark()]
        tracker.epoch_start()
        marks.append(mark())
        time.sleep(epoch_s)
        marks.append(mark())
        tracker.epoch_end()
        marks.append(mark())
        epochs.append(marks)
    run.append(mark())
linger_until_s = time.perf_counter() + plan["lingers_s"]
while n_threads() > 1 and time.perf_counter() < linger_until_s:
    time.sleep(0.05)
threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
told = {"epochs": epochs, "run": run, "threads": threads, "ended_s": time.perf_counter()}
Path(sys.argv[2]).write_text(json.dumps(told), encoding="utf-8")
