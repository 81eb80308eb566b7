"""``CarbonTracker``: carbontracker's tracker, with its arguments and methods, over our ``Tracker``."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from greenlove_tracker import Tracker
from greenlove_tracker.compat.carbontracker import consumption
from greenlove_tracker.compat.carbontracker.arguments import hardware, key_warning, monitoring, without_effect
from greenlove_tracker.compat.carbontracker.meter import meter_of
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import SettingError
from greenlove_tracker.logs.foreign.carbontracker import Consumption
from greenlove_tracker.logs.run import Run
from greenlove_tracker.tracker.signal_hold import signal_hold
from greenlove_tracker.tracker.state import WarnOnce

__all__ = ["CarbonTracker"]

_ASK_EACH_S = 1.0  # whether the energy is known by now, which is read from the log
# settings that a meter is made with
_OF_METER = ("log_dir", "country", "carbon_intensity_gco2e_per_kwh", "cpu_tdp_w", "ram_w")


class CarbonTracker:
    """carbontracker's tracker: its 20 arguments and four methods; our measurement, log and forecast.

    Args:
        log_file_prefix: the project that the run is grouped by.
        ignore_errors: has no effect: an error of the tracker's never ends a training.
        **ours: what else ``greenlove_tracker.Tracker`` takes by name, such as ``country``, ``pue``, ``project``.

    Attributes:
        tracker: the ``greenlove_tracker.Tracker`` behind it, with ``forecast``, ``summary`` and ``run_dir``.

    Raises:
        UsageError: on a bad argument, with what to do; it is a ``ValueError``.
    """

    def __init__(
        self,
        epochs: int,
        epochs_before_pred: int = 1,
        monitor_epochs: int = -1,
        update_interval: float = 1,
        interpretable: bool = True,
        stop_and_confirm: bool = False,
        ignore_errors: bool = False,
        components: str = "all",
        devices_by_pid: bool = False,
        log_dir: str | os.PathLike[str] | None = None,
        log_file_prefix: str = "",
        verbose: int = 1,
        decimal_precision: int = 12,
        api_keys: Mapping[str, Any] | None = None,
        sim_cpu: str | None = None,
        sim_cpu_tdp: float | None = None,
        sim_cpu_util: float | None = None,
        sim_gpu: str | None = None,
        sim_gpu_watts: float | None = None,
        sim_gpu_util: float | None = None,
        **ours: Any,
    ) -> None:
        chosen = hardware(components, sim_cpu, sim_cpu_tdp, sim_cpu_util, sim_gpu, sim_gpu_watts, sim_gpu_util)
        given: dict[str, Any] = {
            "log_dir": None if log_dir is None else os.fspath(log_dir),
            "project": log_file_prefix or None,
            "verbose": min(max(verbose, 0), 2),
            "stop_and_confirm": stop_and_confirm,
            **monitoring(epochs, epochs_before_pred, monitor_epochs),
        } | ours
        messages = without_effect(
            api_keys,
            update_interval=update_interval,
            devices_by_pid=devices_by_pid,
        )
        for message in messages:
            warnings.warn(message, UserWarning, stacklevel=2)
        self._is_open = self._is_over = self._has_named_components = self._has_predicted = False
        self._asked_s = 0.0
        self._warn_once = WarnOnce()
        self._epochs, self._epochs_done, self._epochs_before_pred = epochs, 0, epochs_before_pred
        self._monitored = epochs if monitor_epochs == -1 else monitor_epochs
        self._is_quiet, self._decimals, self._has_equivalents = verbose <= 0, decimal_precision, interpretable
        with suppress(SettingError):  # the tracker itself warns of it, and measures nothing
            settings = load_settings({name: given.get(name) for name in _OF_METER})
            given.setdefault("meter", meter_of(chosen, settings))
        self.tracker = Tracker(epochs, **given)

    def epoch_start(self) -> None:
        """Begin an epoch; where one is still open, as after ``continue`` in the loop, that one ends first."""
        if self._is_over:
            return
        if self._is_open:
            self.epoch_end()
        self.tracker.epoch_start()
        self._is_open = True

    def epoch_end(self) -> None:
        """End the epoch; after the last one that is monitored, the run is closed.

        Raises:
            SystemExit: where ``stop_and_confirm`` was asked for, and the answer is no.
        """
        if not self._is_open or self._is_over:
            return
        self._is_open = False
        self._epochs_done += 1
        try:
            self.tracker.epoch_end()
        finally:
            if not self._is_quiet:
                self._print_progress()

    def stop(self) -> None:
        """Close the run, early or not: what was measured is kept; it may be called again."""
        was_over, self._is_over = self._is_over, True
        self.tracker.stop()
        if not (was_over or self._is_quiet):
            self._guarded(self._print_actual)

    def _print_progress(self) -> None:
        """Print what carbontracker prints after this epoch: components, its prediction, and what it came to."""
        if not self._has_named_components and self.tracker.wait_ready(0.0):
            self._guarded(self._print_components)
        is_due = 0 < self._epochs_before_pred <= self._epochs_done and not self._has_predicted
        now_s = time.monotonic()
        if is_due and (self._epochs_done == self._epochs_before_pred or now_s > self._asked_s + _ASK_EACH_S):
            self._asked_s = now_s
            self._guarded(self._print_prediction)
        if self._epochs_done == self._monitored and not self._is_over:
            self._is_over = True
            self.tracker.stop()
            self._guarded(self._print_actual)

    def _guarded(self, show: Callable[[], None]) -> None:
        """Print something: a failure costs a warning, and what a signal handler of the training's raises comes after.

        In the middle of it that would be taken for an error of ours, or of stdout's, and be swallowed.
        """
        with signal_hold:
            try:
                show()
            except Exception as error:  # no line is worth a training
                self._warn_once.warn("print", f"some of what carbontracker prints is left out: {error!r}")

    def _print_components(self) -> None:
        """Print the devices that were found, once they are known."""
        run_dir = self.tracker.run_dir
        if run_dir is None or not self.tracker.wait_ready(0.0):
            return
        self._has_named_components = True
        fields = Run(run_dir)
        devices = {"GPU": _device_names(fields.text("gpu_models")), "CPU": fields.text("cpu_model")}
        found = " ".join(f"{kind} with device(s) {names}." for kind, names in devices.items() if names)
        if found:
            _print(f"The following components were found: {found}")

    def _print_prediction(self, *, is_last: bool = False) -> None:
        """Print the prediction as soon as its energy is known, or where it never will be."""
        run_dir = self.tracker.run_dir
        predicted = None if run_dir is None else consumption.prediction(Run(run_dir))
        if predicted is not None and (is_last or predicted.energy_kwh is not None):
            self._print_block(f"Predicted consumption for {self._epochs} epoch(s):", predicted)
            self._has_predicted = True

    def _print_actual(self) -> None:
        """Print the totals; carbontracker gives no number of epochs where it was to make no prediction."""
        summary = self.tracker.summary
        if summary is None:
            return
        if not self._has_named_components:
            self._guarded(self._print_components)
        if not self._has_predicted and self._epochs_before_pred > 0:
            self._guarded(partial(self._print_prediction, is_last=True))
        intensity = summary.carbon_intensity_gco2e_per_kwh
        _print(f"Average carbon intensity during training was {intensity:.2f} gCO2eq/kWh. ")
        of_epochs = f" for {summary.epochs_done} epoch(s)" if self._epochs_before_pred else ""
        self._print_block(f"Actual consumption{of_epochs}:", consumption.consumed(summary))
        _print("Finished monitoring.")

    def _print_block(self, title: str, amounts: Consumption) -> None:
        _print(consumption.block(title, amounts, self._decimals, has_equivalents=self._has_equivalents))

    def set_api_keys(self, api_keys: Mapping[str, Any]) -> None:
        """Warn that no service is asked yet."""
        if api_keys:
            warnings.warn(key_warning(api_keys), UserWarning, stacklevel=2)


def _device_names(models: str) -> str:
    """Return ``2 × A, 1 × B`` as carbontracker lists devices: ``A, A, B``."""
    parts = (model.partition(" × ") for model in models.split(", ") if model)
    return ", ".join(name for n, _, model in parts for name in [model or n] * (int(n) if n.isdecimal() else 1))


def _print(text: str) -> None:
    """Print a message as carbontracker does, on stdout, where scripts read it; a closed stdout hurts no training."""
    with suppress(OSError, ValueError):
        print(f"CarbonTracker: {text}", flush=True)  # noqa: T201  # what it is for
