"""``CarbonTracker``: carbontracker's tracker over our ``Tracker``: what it measures, asks and prints."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from greenlove_tracker import Tracker
from greenlove_tracker.compat.electricity_maps import intensity_by_key
from greenlove_tracker.logs.run import Run
from greenlove_tracker.report import wording
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import confirm, say
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.records import Field, RunStatus

__all__ = ["CarbonTracker"]

_READY_S = 10.0  # a forecast waits this long for the meter, without which it would have no energy
_COMPONENTS = {"gpu": "gpu", "cpu": "cpu,ram"}  # carbontracker counts the memory with the CPU


class CarbonTracker:
    """carbontracker's tracker: its arguments, with our measurement, log and forecast.

    ``update_interval``, ``ignore_errors`` and ``decimal_precision`` change nothing: energy is read where epochs begin
    and end, an error of ours never ends the training, and the log has all digits.

    Args:
        epochs_before_pred: epochs before the prediction.
        monitor_epochs: the run is closed after so many; -1 is all.
        interpretable: say what the CO2e is as much as, such as km by car.
        stop_and_confirm: show the prediction and ask whether to train on; "no" closes the run and ends the process, as
            in carbontracker. Without a terminal to ask on the training goes on.
        components: ``"all"``, ``"gpu"``, ``"cpu"`` or ``"gpu,cpu"``.
        devices_by_pid: has no effect, with a warning: ``CUDA_VISIBLE_DEVICES`` says which GPUs are counted.
        log_file_prefix: the project that the run is grouped by.
        verbose: 0 says nothing but warnings; 1 the status line and the final screen; 2 also what is counted, the
            carbon intensity, and the prediction.
        api_keys: ``{"electricitymaps": key}`` asks Electricity Maps for the intensity in force; give ``country=`` too.
        sim_cpu: name of a simulated CPU. Where a device is simulated, nothing is measured beside the simulated ones.
        sim_cpu_tdp: its rated power, W.
        sim_cpu_util: its load, 0 to 1; None is 0.5.
        sim_gpu: name of a simulated GPU.
        sim_gpu_watts: its power, W.
        sim_gpu_util: its load, 0 to 1; None is 0.5.
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
        api_keys: Mapping[str, str] | None = None,
        sim_cpu: str | None = None,
        sim_cpu_tdp: float | None = None,
        sim_cpu_util: float | None = None,
        sim_gpu: str | None = None,
        sim_gpu_watts: float | None = None,
        sim_gpu_util: float | None = None,
        **ours: Any,
    ) -> None:
        del update_interval, ignore_errors, decimal_precision
        if devices_by_pid:
            warnings.warn("devices_by_pid has no effect: CUDA_VISIBLE_DEVICES says which GPUs count", stacklevel=2)
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
            "verbose": min(max(verbose, 0), 1),
            "epochs_before_pred": epochs_before_pred,
            "components": _components(components),
        }
        if sim_cpu:
            if sim_cpu_tdp is None:
                raise UsageError("sim_cpu needs its power in W: give sim_cpu_tdp")
            given |= {"sim_cpu_tdp_w": sim_cpu_tdp, "sim_cpu_util": sim_cpu_util}
        if sim_gpu:
            if sim_gpu_watts is None:
                raise UsageError("sim_gpu needs its power in W: give sim_gpu_watts")
            given |= {"sim_gpu_w": sim_gpu_watts, "sim_gpu_util": 0.5 if sim_gpu_util is None else sim_gpu_util}
        given |= ours
        key = (api_keys or {}).get("electricitymaps", "")
        if key:
            given.setdefault("intensity", intensity_by_key(key, given.get("country")))
        self._predicts_after = epochs_before_pred
        self._asks = stop_and_confirm
        self._is_interpretable = interpretable
        self._verbose = verbose
        self._is_open = False
        self._is_over = False
        self._n_done = 0
        self.tracker = Tracker(epochs, **given)
        if self.tracker.run_dir is not None:
            run = open_run()
            if run:
                run.write_fields([Field("monitor_epochs", str(self._monitored))])

    def epoch_start(self) -> None:
        """Begin an epoch; end an open one first, such as after ``continue`` in the loop."""
        if self._is_open:
            self.epoch_end()
        if not self._is_over:
            self.tracker.epoch_start()
            self._is_open = True

    def epoch_end(self) -> None:
        """End the epoch; after the last monitored one, close the run.

        Raises:
            SystemExit: with ``stop_and_confirm``, if the answer is no.
        """
        if not self._is_open or self._is_over:
            return
        self._is_open = False
        self._n_done += 1
        self.tracker.epoch_end()
        if self._n_done == self._predicts_after and (self._asks or self._verbose >= 2):
            self.tracker.wait_ready(_READY_S)
            try:
                self._show_prediction()
            except Exception as error:  # the training goes on
                warnings.warn(f"the prediction cannot be shown: {error!r}", stacklevel=2)
            if self._asks and confirm("Continue training?") is False:
                self._close(RunStatus.STOPPED)
                sys.exit(0)
        if self._n_done == self._monitored:
            self.tracker.wait_ready(_READY_S)
            _ = self.tracker.forecast  # of the epochs that are not monitored nothing else is known
            self.stop()

    def stop(self) -> None:
        """Close the run, early or not, and keep what was measured. Further calls do nothing."""
        self._close(RunStatus.FINISHED)

    def _close(self, status: RunStatus) -> None:
        is_first = not self._is_over
        self._is_over = True
        self.tracker.stop(status=status)
        summary = self.tracker.summary
        if is_first and summary and self._verbose >= 1:
            self._say_equivalents(summary.emissions_kgco2e)

    def _show_prediction(self) -> None:
        forecast = self.tracker.forecast
        if self._verbose >= 2 and self.tracker.run_dir is not None:
            run = Run(self.tracker.run_dir)
            intensity = wording.intensity(run.carbon_intensity)
            say(f"greenlove  counted: {_counted(run)}")
            say(f"greenlove  carbon intensity, now and expected to the end: {intensity}")
        if forecast:
            say(f"greenlove  predicted: {_predicted(forecast)}")
            if forecast.emissions_kgco2e:
                self._say_equivalents(forecast.emissions_kgco2e.point)

    def _say_equivalents(self, kgco2e: float | None) -> None:
        if self._is_interpretable and kgco2e:
            say(f"greenlove  {wording.as_much_as(kgco2e)}")


def _components(names: str) -> str | None:
    """Return our names of carbontracker's components; None for all.

    Raises:
        UsageError: if it has no such component.
    """
    chosen = [name.strip().lower() for name in names.split(",")]
    if chosen == ["all"]:
        return None
    if not set(chosen) <= set(_COMPONENTS):
        raise UsageError(f'components must be "all", "gpu", "cpu" or "gpu,cpu", not {names!r}')
    return ",".join(_COMPONENTS[name] for name in chosen)


def _counted(run: Run) -> str:
    """Write which devices are counted, each with its method."""
    not_counted = run.text("left_out").split() + run.text("unmeasured").split()
    found = []
    for component, name in (("gpu", "gpu_models"), ("cpu", "cpu_model"), ("ram", "ram_gb")):
        device = wording.field_text(run, name)
        if not device or component in not_counted:
            continue
        if component == "ram":
            device = f"memory of {device} GiB"
        method = run.text(f"{component}_method")
        if method:
            device += f", {wording.method(method)}"
        found.append(device)
    return "; ".join(found) or "nothing"


def _predicted(forecast: Forecast) -> str:
    named = ((name, getattr(forecast, name)) for name in ("duration_s", "energy_kwh", "emissions_kgco2e"))
    return " · ".join(fmt.interval(known, fmt.QUANTITIES[name][1]) for name, known in named if known)
