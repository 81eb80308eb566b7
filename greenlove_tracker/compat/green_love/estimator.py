"""``GreenLoveEstimator``: the original's estimator and its 27 parameters over ours."""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from greenlove_tracker import Estimation, Estimator
from greenlove_tracker.compat.electricity_maps import intensity_now
from greenlove_tracker.compat.green_love import results as fill
from greenlove_tracker.compat.green_love.results import CANONICAL, BenchmarkResults
from greenlove_tracker.exploration.adaptive import TrialLimits
from greenlove_tracker.exploration.trials import loss_of_pair
from greenlove_tracker.logs.run import Run
from greenlove_tracker.machine import devices
from greenlove_tracker.projection.catalogue import recognise
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text.console import can_ask, confirm, open_page, say
from greenlove_tracker.vocabulary.errors import UsageError, whole_number

_WORKLOAD_OF = {
    "bert_base_squad": "language",
    "bert_large_squad": "language",
    "gnmt": "language",
    "resnet50": "vision",
    "tacotron2": "speech",
    "waveglow": "speech",
}
BENCHMARK_TASKS = list(_WORKLOAD_OF)
_TARGET_S = 10.0
_BUDGET_S = 30.0  # that an exploration has where the original's target is its default
_LIMITS = {"exploration_epochs": "epochs", "initial_sample_size": "first_samples", "single_epoch_budget": "epoch_s"}


class GreenLoveEstimator:
    """The original's estimator: its parameters, results and final question; our exploration and forecast.

    The first 27 parameters are the original's, in its order and with its defaults.

    Args:
        on_no_terminal: the answer to the final question if there is no terminal.
        **ours: other keywords of ``greenlove_tracker.Estimator``, such as ``budget_s``, ``also_restore``, ``log_dir``.

    Attributes:
        results: None before ``estimate()``.
        estimation: the result of ``greenlove_tracker.Estimator``, with its forecast; None before ``estimate()``.
        user_chose_continue: True to train here now, as answered on the terminal; without one, as ``on_no_terminal``
            says.

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
        target_benchmark_time: float = _TARGET_S,
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
        on_no_terminal: str = "stop",
        **ours: Any,
    ) -> None:
        schedule = {
            "exploration_epochs": whole_number("exploration_epochs", exploration_epochs),
            "warmup_epochs": whole_number("warmup_epochs", warmup_epochs, 0),
            "initial_sample_size": initial_sample_size,
            "single_epoch_budget": single_epoch_budget,
            "gpu_index": gpu_index,
            "power_poll_interval": power_poll_interval,
        }
        defaults = signature(GreenLoveEstimator).parameters
        changed = {name: value for name, value in schedule.items() if value != defaults[name].default}
        limits: dict[str, Any] = {limit: changed.pop(name) for name, limit in _LIMITS.items() if name in changed}
        if benchmark_task and benchmark_task not in BENCHMARK_TASKS:
            tasks = ", ".join(BENCHMARK_TASKS)
            raise UsageError(f"benchmark_task must be one of {tasks}, or None for all, not {benchmark_task!r}")
        speedups = {recognise(CANONICAL.get(name, name)).name: x for name, x in (custom_speedup or {}).items()}
        gpu = next(iter(devices.select_gpus(devices.nvml_gpus() or (), os.environ).gpus), None)
        is_on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        self._tdp_w = manual_tdp_watts
        self._given_load: float | None = None
        simulated: dict[str, Any] = {}
        if gpu is not None:
            if gpu.power_limit_w is not None:
                self._tdp_w = gpu.power_limit_w
        elif manual_tdp_watts is not None:  # as the original, count a GPU of this power where NVML shows none
            self._given_load = manual_gpu_utilization
            simulated = {"sim_gpu_w": manual_tdp_watts, "sim_gpu_util": manual_gpu_utilization}
        if electricity_maps_api_key and carbon_intensity is None:
            carbon_intensity = intensity_now(electricity_maps_api_key, country_code)
        own_tdp_w = self._tdp_w
        local_gpu = CANONICAL.get(gpu_name or "", gpu_name)
        memory_gb = None
        if gpu is not None and not is_on_gpu:  # it is idle: its limit is none of the training's
            own_tdp_w = None
        if gpu is not None and not gpu_name:
            gpu_name = gpu.name
            if is_on_gpu:
                local_gpu = gpu.name
                memory_gb = gpu.memory_gb
        comparison = ProjectionOptions(
            local_gpu=local_gpu,
            local_memory_gb=memory_gb,
            gpus=tuple(speedups),
            provider="crusoe",
            custom_speedup=speedups or None,
            workload=_WORKLOAD_OF.get(benchmark_task or ""),
            precision=precision,
            utilization=self._given_load,
            manual_tdp_watts=own_tdp_w,
        )
        if isinstance(train_dataset, list | tuple) and train_dataset:  # of samples; to ours it would be one of batches
            train_dataset = DataLoader(train_dataset, batch_size=batch_size, shuffle=True)
        self._estimator = Estimator(
            model,
            optimizer,
            criterion,
            train_dataset,
            total_epochs,
            batch_size,
            device=device,
            loss=partial(_loss_of_first_two, criterion=criterion),
            train_step=train_step,
            asks=False,
            on_no_terminal=on_no_terminal,
            country=country_code,
            carbon_intensity_gco2e_per_kwh=carbon_intensity,
            electricity_price_usd_per_kwh=electricity_price,
            **simulated,
            trial_limits=TrialLimits(**limits),
            **{"comparison": comparison, "budget_s": _BUDGET_S * target_benchmark_time / _TARGET_S, **ours},
        )
        if changed:
            said = f"no effect here: {', '.join(changed)}; docs/coming-from-green-love.md says what to do instead"
            warnings.warn(said, stacklevel=2)
        self._echoed: dict[str, Any] = {
            "total_epochs": total_epochs,
            "precision": precision,
            "benchmark_task": benchmark_task or None,
            "gpu_name": gpu_name or None,
            "gpu_tdp_w": self._tdp_w,
        }
        self._report_dir = Path(report_dir)
        self._auto_open_report = auto_open_report
        self._is_silent = load_settings({"verbose": ours.get("verbose")}).verbose == 0
        self.results: BenchmarkResults | None = None
        self.estimation: Estimation | None = None
        self.user_chose_continue = False

    def estimate(self) -> BenchmarkResults:
        """Explore, forecast, show the screen, write the report, and ask whether to train on.

        Raises:
            UsageError: if the training cannot be explored, with what to do.
            OSError: if the report cannot be written.
        """
        self._report_dir.mkdir(parents=True, exist_ok=True)  # before the exploration, and not in vain after it
        estimation = self.estimation = self._estimator.estimate()
        self.results = self._results_of(estimation)
        page = self._report_dir / f"green_love_report_{estimation.run_dir.name}.html"
        shutil.copyfile(estimation.page, page)
        if not self._is_silent:
            say("\n".join((*fill.choices_text(self.results.crusoe_estimates), f"  report      {page}\n")))
        if self._auto_open_report and can_ask():  # a batch job may have inherited a display with nobody before it
            open_page(page.absolute().as_uri())
        answer = confirm("Continue training locally?", default=False)
        if answer is not None:
            self.user_chose_continue = answer
            return self.results
        self.user_chose_continue = estimation.continues
        if not self._is_silent:
            if estimation.continues:
                verb = "goes on"
            else:
                verb = "does not go on"
            say(f"nobody answers here: training {verb}, as on_no_terminal says")
        return self.results

    def cleanup(self) -> None:
        """Do nothing: ``estimate()`` leaves nothing open. Scripts of the original call it."""

    def _results_of(self, estimation: Estimation) -> BenchmarkResults:
        forecast = estimation.forecast
        trials = estimation.trials
        run = Run(estimation.run_dir)
        load = self._given_load
        drawn_w = estimation.gpu_power_w
        limit_w = (self._tdp_w or 0.0) * run.summary.gpu_count
        if load is None and drawn_w is not None and limit_w:
            load = drawn_w / limit_w
        return BenchmarkResults(
            gpu_efficiency=load,
            **self._echoed,
            **fill.samples(trials, self._estimator.plan.samples or 0),
            **fill.times(forecast, trials),
            **fill.amounts(forecast, trials, run.summary.pue),
            **fill.factors(run),
            **fill.comparison_fields(estimation.projections, forecast.duration_s.point),
        )


CrusoeEstimator = GreenLoveEstimator


def _loss_of_first_two(model: Any, batch: Any, criterion: Any) -> Any:
    """Return the original's loss, which uses only inputs and targets of a batch."""
    if isinstance(batch, list | tuple):
        batch = batch[:2]
    return loss_of_pair(model, batch, criterion)


def sample_dataset(dataset: Dataset[Any], sample_pct: float = 10.0, seed: int = 42) -> Subset[Any]:
    """Draw a random sample of a data set, in its order; the same seed gives the same sample.

    Raises:
        UsageError: if the percentage is not above 0 and at most 100.
    """
    if not 0 < sample_pct <= 100:
        raise UsageError(f"sample_pct is a percentage above 0 and at most 100, not {sample_pct!r}")
    whole = len(dataset)
    n_drawn = math.ceil(whole * sample_pct / 100)
    order = torch.randperm(whole, generator=torch.Generator().manual_seed(seed))
    return Subset(dataset, sorted(order[:n_drawn].tolist()))


def sample_dataloader(
    dataloader: DataLoader[Any], sample_pct: float = 10.0, seed: int = 42, batch_size: int | None = None
) -> DataLoader[Any]:
    """Return a loader of a random sample with the settings of the given one, shuffled if that one is."""
    names = (
        "num_workers",
        "collate_fn",
        "pin_memory",
        "drop_last",
        "timeout",
        "worker_init_fn",
        "prefetch_factor",
        "persistent_workers",
        "multiprocessing_context",
    )
    sample = sample_dataset(dataloader.dataset, sample_pct, seed)
    return DataLoader(
        sample,
        batch_size=batch_size or dataloader.batch_size or 1,
        shuffle=isinstance(dataloader.sampler, RandomSampler),
        **{name: getattr(dataloader, name) for name in names},
    )
