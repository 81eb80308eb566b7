"""``CarbonTracker``: carbontracker's tracker, with its arguments, over our ``Tracker``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from greenlove_tracker import Tracker
from greenlove_tracker.compat.carbontracker.arguments import hardware, monitoring
from greenlove_tracker.compat.carbontracker.meter import meter_of
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import SettingError

__all__ = ["CarbonTracker"]

# settings that a meter is made with
_OF_METER = ("log_dir", "country", "carbon_intensity_gco2e_per_kwh", "cpu_tdp_w", "ram_w")


class CarbonTracker:
    """carbontracker's tracker: its arguments, ``epoch_start``, ``epoch_end`` and ``stop``; our measurement and screen.

    Args:
        log_file_prefix: the project that the run is grouped by.
        ignore_errors: no effect, as ``interpretable`` and ``decimal_precision``: no error of ours ends a training.
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
        ignored = {
            "api_keys": api_keys or None,
            "update_interval": update_interval != 1,
            "devices_by_pid": devices_by_pid,
        }
        if names := [name for name, is_given in ignored.items() if is_given]:
            warnings.warn(f"{', '.join(names)}: no effect here", UserWarning, stacklevel=2)
        self._is_open = self._is_over = False
        self._epochs_left = given["monitor_epochs"]
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
        self.tracker.epoch_end()
        self._epochs_left -= 1
        if not self._epochs_left:
            self.stop()

    def stop(self) -> None:
        """Close the run, early or not: what was measured is kept; it may be called again."""
        self._is_over = True
        self.tracker.stop()
