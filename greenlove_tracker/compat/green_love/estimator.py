"""``GreenLoveEstimator``: the original's estimator and its 27 parameters over ours."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from greenlove_tracker import Estimation, Estimator
from greenlove_tracker.compat.green_love import arguments
from greenlove_tracker.compat.green_love import results as fill
from greenlove_tracker.compat.green_love.crusoe import comparison_fields
from greenlove_tracker.compat.green_love.results import BenchmarkResults
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import can_ask, confirm, open_page, say
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.run import Run


class GreenLoveEstimator:
    """The original's estimator: its parameters, its results, its question at the end; our exploration and forecast.

    The first 27 parameters are the original's, in its order and with its defaults.

    Args:
        schedule: ``adaptive`` is ours, within ``budget_s`` (30 s); ``green-love`` is the original's, within 90 s.
        on_no_terminal: the answer where there is nobody to ask whether to train on.
        **ours: what else ``greenlove_tracker.Estimator`` takes by name, such as ``budget_s``, ``also_restore``,
            ``log_dir``.

    Attributes:
        estimation: what ``greenlove_tracker.Estimator`` found, with its forecast; None before ``estimate()``.

    Raises:
        UsageError: on a bad argument, with what to do; it is a ``ValueError``.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        criterion: Any,
        train_dataset: Any,
        total_epochs: int,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        train_step: Callable[..., Any] | None = None,
        exploration_epochs: int = 30,
        warmup_epochs: int = 3,
        target_benchmark_time: float = 10.0,
        initial_sample_size: int = 1000,
        single_epoch_budget: float = 0.3,
        country_code: str | None = None,
        carbon_intensity: float | None = None,
        electricity_price: float | None = None,
        electricity_maps_api_key: str | None = None,
        gpu_name: str | None = None,
        gpu_index: int = 0,
        manual_tdp_watts: float | None = None,
        manual_gpu_utilization: float = 0.70,
        benchmark_task: str | None = None,
        precision: str = "fp16",
        custom_speedup: Mapping[str, float] | None = None,
        report_dir: str | os.PathLike[str] = "./crusoe_reports",
        auto_open_report: bool = True,
        power_poll_interval: float = 1.0,
        *,
        schedule: str = "adaptive",
        on_no_terminal: str = "stop",
        **ours: Any,
    ) -> None:
        arguments.check_positive("carbon_intensity", carbon_intensity)
        arguments.check_positive("electricity_price", electricity_price)
        self._hardware = arguments.GpuArguments(
            gpu_name,
            manual_tdp_watts,
            manual_gpu_utilization,
            benchmark_task or None,
            precision,
            custom_speedup,
            arguments.gpu_at(gpu_index),
            arguments.count_gpus(model),
        )
        trials = arguments.TrialArguments(
            exploration_epochs, warmup_epochs, target_benchmark_time, initial_sample_size, single_epoch_budget
        )
        self._warmup_epochs = warmup_epochs if schedule == arguments.GREEN_LOVE else None
        self._estimator = Estimator(
            model,
            optimizer,
            criterion,
            arguments.samples_of(train_dataset, batch_size),
            total_epochs,
            batch_size,
            device=device,
            train_step=train_step or arguments.step_on_first_two,
            schedule=schedule,
            schedule_options=asdict(trials) if schedule == arguments.GREEN_LOVE else None,
            asks=False,
            on_no_terminal=on_no_terminal,
            country=country_code,
            carbon_intensity_gco2e_per_kwh=carbon_intensity,
            electricity_price_usd_per_kwh=electricity_price,
            **self._hardware.simulated,
            **{"comparison": self._hardware.comparison, **ours},
        )
        for message in arguments.unused_arguments(
            schedule,
            trials,
            custom_speedup,
            gpu_index,
            power_poll_interval,
            has_key=arguments.has_key(electricity_maps_api_key, carbon_intensity),
        ):
            warnings.warn(message, UserWarning, stacklevel=2)
        self._total_epochs = total_epochs
        self._full_size = arguments.full_size(train_dataset, self._estimator.plan.samples)
        self._report_dir, self._auto_open_report = Path(report_dir), auto_open_report
        self._is_silent = load_settings({"verbose": ours.get("verbose")}).verbose == 0
        self._results: BenchmarkResults | None = None
        self.estimation: Estimation | None = None
        self._user_chose_continue = False

    @property
    def results(self) -> BenchmarkResults | None:
        """The results; None before ``estimate()``."""
        return self._results

    @property
    def user_chose_continue(self) -> bool:
        """Return True to train here now: as answered on the terminal; without one, as ``on_no_terminal`` says."""
        return self._user_chose_continue

    def estimate(self) -> BenchmarkResults:
        """Explore, forecast, show the screen, write the report, and ask whether to train on.

        Raises:
            UsageError: where the training cannot be explored or the report cannot be written, with what to do.
        """
        _make_dir(self._report_dir)  # before the exploration, and not in vain after it
        estimation = self.estimation = self._estimator.estimate()
        results = self._results = self._results_of(estimation)
        page = _copy_page(estimation, self._report_dir)
        if not self._is_silent:
            say(f"  report  {page}\n")
        if self._auto_open_report and can_ask():  # a batch job may have inherited a display with nobody before it
            open_page(page.absolute().as_uri())
        answer = _ask_to_continue()
        self._user_chose_continue = estimation.continues if answer is None else answer
        if answer is None and not self._is_silent:
            verb = "goes on" if estimation.continues else "does not go on"
            say(f"nobody answers here: training {verb}, as on_no_terminal says")
        return results

    def cleanup(self) -> None:
        """Do nothing: nothing is left open after ``estimate()``; here for scripts that call it."""

    def _results_of(self, estimation: Estimation) -> BenchmarkResults:
        forecast, trials, hardware = estimation.forecast, estimation.trials, self._hardware
        run = Run(estimation.run_dir)
        return BenchmarkResults(
            total_epochs=self._total_epochs,
            precision=hardware.precision,
            benchmark_task=hardware.benchmark_task,
            gpu_name=hardware.name,
            gpu_tdp_w=hardware.tdp_w,
            gpu_efficiency=hardware.utilization(estimation.gpu_power_w, run.summary.gpu_count),
            **fill.samples(trials, self._full_size),
            **fill.times(forecast, trials, self._warmup_epochs),
            **fill.amounts(forecast, trials, run.summary.pue),
            **fill.factors(run),
            **comparison_fields(estimation.projections, forecast.duration_s.point),
        )


CrusoeEstimator = GreenLoveEstimator


def _make_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"report_dir: {path} cannot be made: {error.strerror}; name another directory") from error


def _copy_page(estimation: Estimation, report_dir: Path) -> Path:
    """Copy the exploration's page under the original's name, with the run's own instead of the time alone."""
    target = report_dir / f"green_love_report_{estimation.run_dir.name}.html"
    try:
        shutil.copyfile(estimation.page, target)
    except OSError as error:
        raise UsageError(
            f"the report is {estimation.page}, and cannot be copied to {target}: {error.strerror}"
        ) from error
    return target


def _ask_to_continue() -> bool | None:
    """Ask whether to train on; None where nobody answers."""
    try:
        return confirm("Continue training locally?", default=False)
    except KeyboardInterrupt:  # a no to the original, too: the script keeps its results
        return False
