"""Start the energy meter of a run while the training already runs, and stop it at the end."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

from greenlove_tracker.logs.run_fields import FIELDS
from greenlove_tracker.machine.devices import has_cuda_started
from greenlove_tracker.meter import MeterInfo, NullMeter
from greenlove_tracker.meter.base import ReadGpus
from greenlove_tracker.tracker.events import RunEnded
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.vocabulary.records import Field, Flag, LoggedGpuEnergy


class MeterStarter(RunPart):
    """Start and stop the meter of one run.

    Args:
        run: the parts of the run.

    Attributes:
        gpus: returns the energy that was read of each GPU.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._meter = run.state.meter
        self._is_settled = threading.Event()  # the meter has started, or has failed to
        self._is_released = self._has_failed = False
        self._visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.gpus: ReadGpus = tuple
        self._found: dict[str, str] = {}

    def started(self) -> None:
        """Start the meter, on a thread of its own if that takes long: nothing waits for it."""
        if self._meter.starts_at_once:
            self._start()
        else:
            self._run.beside("greenlove-meter", self._start)

    def _start(self) -> None:
        try:
            with self._run.loading():
                info = self._meter.start()
        except Exception as error:  # a meter is somebody else's code on somebody else's hardware
            self._has_failed = True
            self._recorder.detach_meter(Flag.METER_FAILED)
            message = f"the energy meter could not start: {error}. Time is tracked, energy is unknown"
            self._state.warn_once.warn("meter", message)
            info = MeterInfo((Field("meter", "none"), Field("meter_note", f"{error}")))
        with self._state.lock:
            if self._is_released:
                self._stop()
            else:
                self._attach(info)
            self._is_settled.set()

    def _attach(self, info: MeterInfo) -> None:
        ready_s = self._state.elapsed_s
        known = tuple(field for field in info.fields if field.name in FIELDS)
        if known != info.fields:  # a user's own meter may give others
            self._state.warn_once.warn(
                "fields", "run.csv lacks some of the fields that the meter gives: they are left out"
            )
            info = replace(info, fields=known)
        found = {field.name: field.value for field in info.fields}
        self._state.count_gpus(info.gpu_count, are_measured="gpu" not in found.get("unmeasured", "").split())
        if isinstance(self._meter, NullMeter):
            self._recorder.detach_meter(Flag.NO_METER)
        elif not self._has_failed:
            self._recorder.attach_meter(self._meter, info.gpus)
            self.gpus = info.gpus
            self._found = found
        # after the meter is attached: energy read before its first row would have no time
        self._writer.write_fields(info.fields)
        self._run.note(meter_ready_s=f"{ready_s:.3f}")

    def tick(self) -> None:
        """Warn of GPUs that cannot be read."""
        for one in self.gpus():
            if one.problem:
                self._state.warn_once.warn(one.gpu.label, f"{one.gpu.label} could not be read: {one.problem}")

    def ending(self) -> None:
        """Write the energy of each GPU, read errors, and doubts about which GPUs are ours."""
        self.tick()
        gpus = self.gpus()
        values = {"gpu_note": "; ".join(f"{one.gpu.label}: {one.problem}" for one in gpus if one.problem)}
        if Flag.METER_FAILED not in self._state.row_totals.flags:  # else they include energy that is in no row
            energies = [LoggedGpuEnergy(one.gpu.index, one.kwh, is_whole=not one.problem) for one in gpus]
            values["gpu_energies_kwh"] = " ".join(map(str, energies))
        doubts = [self._found.get("gpu_doubt", "")]
        if self._recorder.is_metering and os.environ.get("CUDA_VISIBLE_DEVICES") != self._visible_gpus:
            doubts.append("CUDA_VISIBLE_DEVICES changed after the start: the GPUs of before were counted")
        is_shown_none = self._found.get("meter", "").startswith("codecarbon") and self._state.gpu_count == 0
        if is_shown_none and has_cuda_started():  # CodeCarbon reads each GPU that the driver shows
            doubts.append("torch computes on CUDA, and the driver's library shows no GPU")
            values["unmeasured"] = f"{self._found.get('unmeasured', '')} gpu".strip()
            self._state.count_gpus(0, are_measured=False)
        values["gpu_doubt"] = "; ".join(filter(None, doubts))
        self._run.note(**values)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; return False if it fails or is not up in time."""
        return self._is_settled.wait(timeout_s) and not self._has_failed

    def ended(self, ending: RunEnded) -> None:
        """Stop the meter, or have it stopped as soon as it is up."""
        self._is_released = True
        if self._is_settled.is_set():
            self._stop()

    def _stop(self) -> None:
        try:
            self._meter.stop()
        except Exception as error:
            self._state.warn_once.warn("stop", f"the energy meter could not be stopped: {error!r}", error)
