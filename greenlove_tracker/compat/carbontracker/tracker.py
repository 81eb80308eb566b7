"""``CarbonTracker``: carbontracker's tracker over our ``Tracker``: what it measures, and nothing that it prints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from greenlove_tracker import Tracker
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Field

__all__ = ["CarbonTracker"]

_READY_S = 10.0  # a forecast waits this long for the meter, without which it would have no energy
_WITHOUT_EFFECT = {
    "update_interval": 1,
    "interpretable": True,
    "stop_and_confirm": False,
    "ignore_errors": False,
    "components": "all",
    "devices_by_pid": False,
    "decimal_precision": 12,
    "api_keys": None,
}


class CarbonTracker:
    """carbontracker's tracker: its arguments that change what is measured, with our measurement, log and forecast.

    Its others (``update_interval``, ``interpretable``, ``stop_and_confirm``, ``ignore_errors``, ``components``,
    ``devices_by_pid``, ``decimal_precision``, ``api_keys``) have no effect, and are warned of: all components are
    measured, and nothing is asked.

    Args:
        log_file_prefix: the project that the run is grouped by.
        sim_cpu: name of a simulated CPU. Where a device is simulated, nothing is measured beside the simulated ones.
        sim_cpu_tdp: its rated power, W.
        sim_cpu_util: its load, 0 to 1.
        sim_gpu: name of a simulated GPU.
        sim_gpu_watts: its power, W.
        sim_gpu_util: its load, 0 to 1.
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
        sim_cpu_util: float = 0.5,
        sim_gpu: str | None = None,
        sim_gpu_watts: float | None = None,
        sim_gpu_util: float = 0.5,
        **ours: Any,
    ) -> None:
        given_values = (
            update_interval,
            interpretable,
            stop_and_confirm,
            ignore_errors,
            components,
            devices_by_pid,
            decimal_precision,
            api_keys or None,
        )
        pairs = zip(_WITHOUT_EFFECT.items(), given_values, strict=True)
        others = [name for (name, usual), value in pairs if value != usual]
        if len(others) == 1:
            warnings.warn(f"{others[0]} has no effect", stacklevel=2)
        elif others:
            warnings.warn(f"{', '.join(others)} have no effect", stacklevel=2)
        if monitor_epochs == 0:
            raise UsageError("monitor_epochs cannot be 0; leave it out, or give -1, to monitor all epochs")
        self._monitored = monitor_epochs
        if monitor_epochs == -1:
            self._monitored = epochs
            if epochs_before_pred > epochs:
                epochs_before_pred = 0
        elif monitor_epochs < epochs_before_pred:
            raise UsageError(
                f"monitor_epochs ({monitor_epochs}) cannot be less than epochs_before_pred ({epochs_before_pred})"
            )
        given: dict[str, Any] = {
            "log_dir": log_dir,
            "project": log_file_prefix or None,
            "verbose": min(max(verbose, 0), 2),
            "epochs_before_pred": epochs_before_pred,
        }
        if sim_cpu:
            if sim_cpu_tdp is None:
                raise UsageError("sim_cpu needs its power in W: give sim_cpu_tdp")
            given |= {"sim_cpu_tdp_w": sim_cpu_tdp, "sim_cpu_util": sim_cpu_util}
        if sim_gpu:
            if sim_gpu_watts is None:
                raise UsageError("sim_gpu needs its power in W: give sim_gpu_watts")
            given |= {"sim_gpu_w": sim_gpu_watts, "sim_gpu_util": sim_gpu_util}
        self._is_open = False
        self._is_over = False
        self._n_done = 0
        self.tracker = Tracker(epochs, **{**given, **ours})
        if self.tracker.run_dir is not None:
            run = open_run()
            if run is not None:
                run.write_fields([Field("monitor_epochs", str(self._monitored))])

    def epoch_start(self) -> None:
        """Begin an epoch; where one is still open, as after ``continue`` in the loop, that one ends first."""
        if self._is_open:
            self.epoch_end()
        if not self._is_over:
            self.tracker.epoch_start()
            self._is_open = True

    def epoch_end(self) -> None:
        """End the epoch; after the last one that is monitored, the run is closed."""
        if not self._is_open or self._is_over:
            return
        self._is_open = False
        self._n_done += 1
        self.tracker.epoch_end()
        if self._n_done == self._monitored:
            self.tracker.wait_ready(_READY_S)
            _ = self.tracker.forecast  # of the epochs that are not monitored nothing else is known
            self.stop()

    def stop(self) -> None:
        """Close the run, early or not: what was measured is kept; it may be called again."""
        self._is_over = True
        self.tracker.stop()
