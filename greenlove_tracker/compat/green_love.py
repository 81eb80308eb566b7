"""The names of green-love 0.2.2 over the parts of this package: change the import, keep the script.

What each parameter does here, and what is different, stands in ``docs/coming-from-green-love.md``.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from scipy import stats
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from greenlove_tracker import Estimation, Estimator, devices
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import can_ask, confirm, open_page, say
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.trial import default_step
from greenlove_tracker.extrapolation.from_trials import observe
from greenlove_tracker.extrapolation.green_love import WARMUP_EPOCHS
from greenlove_tracker.forecasting import Estimate, Forecast, Trial
from greenlove_tracker.format import duration as format_time
from greenlove_tracker.format import mass as format_co2
from greenlove_tracker.format import money as format_cost
from greenlove_tracker.logs.parser import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.units import w_from_kwh_s

__all__ = [
    "BENCHMARK_TASKS",
    "BenchmarkResults",
    "CO2Equivalence",
    "CrusoeEstimator",
    "CrusoeGPUEstimate",
    "GreenLoveEstimator",
    "format_co2",
    "format_cost",
    "format_time",
    "sample_dataloader",
    "sample_dataset",
]

BENCHMARK_TASKS = ["bert_base_squad", "bert_large_squad", "gnmt", "resnet50", "tacotron2", "waveglow"]
_PRECISIONS = ("fp16", "fp32")
_KEY_VARIABLE = "ELECTRICITY_MAPS_API_KEY"  # where the original looks for the key, too
_SCHEDULE_DEFAULTS: Mapping[str, float] = {
    "exploration_epochs": 30, "warmup_epochs": 3, "target_benchmark_time": 10.0, "initial_sample_size": 1000,
    "single_epoch_budget": 0.3,
}  # fmt: skip
_RATINGS = ((0.05, "Excellent"), (0.15, "Good"), (0.30, "Fair"), (math.inf, "Poor"))  # by the coefficient of variation


@dataclass(frozen=True)
class CO2Equivalence:
    """An amount of CO2e as something else that emits as much."""

    icon: str
    label: str
    value: float
    unit: str
    description: str


@dataclass(frozen=True)
class CrusoeGPUEstimate:
    """The training on one GPU of Crusoe Cloud."""

    name: str
    vram_gb: int
    speedup: float
    est_time_s: float
    est_time_lower_s: float
    est_time_upper_s: float
    on_demand_cost: float
    on_demand_rate: float
    on_demand_cost_lower: float
    on_demand_cost_upper: float
    est_co2_kg: float
    est_energy_kwh: float
    cloud_power_w: float
    benchmark_key: str
    scale_factor: float
    scale_note: str
    value_score: float
    is_best_value: bool = False
    is_fastest: bool = False


@dataclass(frozen=True)
class BenchmarkResults:
    """What was found, under the original's names; None is not known. Energies are of CPU, memory and all our GPUs."""

    sample_sizes_used: list[int]
    full_dataset_size: int
    spearman_rho: float | None
    warmup_epoch_estimates: list[float]
    steady_epoch_estimate: float
    steady_epoch_std: float | None
    epoch_times: list[float]
    warmup_times: list[float]
    median_epoch_time: float
    mean_epoch_time: float
    std_epoch_time: float | None
    cv_epoch_time: float | None
    ci_lower_epoch: float
    ci_upper_epoch: float
    variance_rating: str | None
    est_full_epoch_time: float
    est_full_epoch_lower: float
    est_full_epoch_upper: float
    est_total_time_s: float
    est_total_time_lower_s: float
    est_total_time_upper_s: float
    mean_power_w: float | None
    gpu_tdp_w: float | None
    gpu_efficiency: float | None
    power_samples: list[float]
    est_total_energy_kwh: float | None
    carbon_intensity_gco2_kwh: float
    carbon_intensity_source: str
    electricity_price_kwh: float | None
    electricity_price_source: str | None
    est_total_co2_kg: float | None
    est_total_cost_usd: float | None
    country_code: str | None
    gpu_name: str | None
    gpu_benchmark_key: str | None
    crusoe_estimates: list[CrusoeGPUEstimate]
    co2_savings_kg: float | None
    co2_equivalences: list[CO2Equivalence]
    sample_epoch_data: dict[int, list[float]]
    total_epochs: int
    benchmark_epochs: int
    warmup_epochs: int
    sample_data_pct: float
    precision: str
    benchmark_task: str | None


@dataclass(frozen=True, slots=True)
class _Hardware:
    """What the user says of GPUs, for the comparison with others."""

    gpu_name: str | None
    gpu_index: int
    manual_tdp_watts: float | None
    manual_gpu_utilization: float
    benchmark_task: str | None
    precision: str
    custom_speedup: Mapping[str, float] | None
    gpu: devices.Gpu | None

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            raise UsageError(f"precision must be one of {', '.join(_PRECISIONS)}, not {self.precision!r}")
        if self.benchmark_task is not None and self.benchmark_task not in BENCHMARK_TASKS:
            raise UsageError(
                f"benchmark_task must be one of {', '.join(BENCHMARK_TASKS)}, or None for all of them, not "
                f"{self.benchmark_task!r}"
            )
        _check_positive("manual_tdp_watts", self.manual_tdp_watts)
        _check_positive("manual_gpu_utilization", self.manual_gpu_utilization)
        if self.manual_gpu_utilization > 1:
            raise UsageError(f"manual_gpu_utilization is a share from 0 to 1, not {self.manual_gpu_utilization!r}")
        if not isinstance(self.custom_speedup, Mapping | None):
            raise UsageError(f'custom_speedup must be such as {{"H100 HGX 80GB": 2.5}}, not {self.custom_speedup!r}')
        for name, speedup in (self.custom_speedup or {}).items():
            _check_positive(f"custom_speedup[{name!r}]", speedup)

    @property
    def simulated(self) -> dict[str, Any]:
        """The settings that count a GPU of the given power where NVML shows none to measure, as the original does."""
        if self.gpu is not None or self.manual_tdp_watts is None:
            return {}
        return {"sim_gpu_w": self.manual_tdp_watts, "sim_gpu_util": self.manual_gpu_utilization}

    @property
    def tdp_w(self) -> float | None:
        """The power limit of the GPU, as NVML or else the user says."""
        limit_w = self.gpu.power_limit_w if self.gpu else None
        return self.manual_tdp_watts if limit_w is None else limit_w

    def load(self, drawn_w: float | None, n_gpus: int) -> float | None:
        """The share of their rated power that the GPUs drew; the user's word where none was measured."""
        if self.simulated:
            return self.manual_gpu_utilization
        return drawn_w / (self.tdp_w * n_gpus) if drawn_w is not None and self.tdp_w and n_gpus else None


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
        _check_positive("carbon_intensity", carbon_intensity)
        _check_positive("electricity_price", electricity_price)
        self._hardware = _Hardware(
            gpu_name, gpu_index, manual_tdp_watts, manual_gpu_utilization, benchmark_task or None, precision,
            custom_speedup, _gpu_at(gpu_index),
        )  # fmt: skip
        options = {
            "exploration_epochs": exploration_epochs, "warmup_epochs": warmup_epochs,
            "target_benchmark_time": target_benchmark_time, "initial_sample_size": initial_sample_size,
            "single_epoch_budget": single_epoch_budget,
        }  # fmt: skip
        self._estimator = Estimator(
            model, optimizer, criterion, _samples_of(train_dataset, batch_size), total_epochs, batch_size,
            device=device, train_step=train_step or _step_on_first_two, schedule=schedule,
            schedule_options=options if schedule == "green-love" else None, asks=False,
            on_no_terminal=on_no_terminal, country=country_code, carbon_intensity_gco2e_per_kwh=carbon_intensity,
            electricity_price_usd_per_kwh=electricity_price, **self._hardware.simulated, **ours,
        )  # fmt: skip
        has_key = electricity_maps_api_key or (carbon_intensity is None and os.environ.get(_KEY_VARIABLE))
        for message in _without_effect(schedule, options, bool(has_key), gpu_index, power_poll_interval):
            warnings.warn(message, UserWarning, stacklevel=2)
        self._total_epochs, self._full_size = total_epochs, _full_size(train_dataset, self._estimator)
        self._report_dir, self._auto_open_report = Path(report_dir), auto_open_report
        self._is_silent = load_settings({"verbose": ours.get("verbose")}).verbose == 0
        self._results: BenchmarkResults | None = None
        self._user_chose_continue = False
        self.estimation: Estimation | None = None

    @property
    def results(self) -> BenchmarkResults | None:
        """What was found; None before ``estimate()``."""
        return self._results

    @property
    def user_chose_continue(self) -> bool:
        """Whether to train here now, as was answered on the terminal; without one as ``on_no_terminal`` says."""
        return self._user_chose_continue

    def estimate(self) -> BenchmarkResults:
        """Explore, forecast, tell, write the report, and ask whether to train on.

        Raises:
            UsageError: where the training cannot be explored or the report cannot be written, with what to do.
        """
        _make_dir(self._report_dir)  # before the exploration, and not in vain after it
        estimation = self.estimation = self._estimator.estimate()
        self._results = self._found(estimation)
        page = _copy_page(estimation.run_dir, self._report_dir)
        if not self._is_silent:
            say(f"  report  {page}\n")
        if self._auto_open_report and can_ask():  # a batch job may have inherited a display with nobody before it
            open_page(page.absolute().as_uri())
        answer = _answer()
        self._user_chose_continue = estimation.continues if answer is None else answer
        if answer is None and not self._is_silent:
            verb = "goes on" if estimation.continues else "does not go on"
            say(f"nobody answers here: training {verb}, as on_no_terminal says")
        return self._results

    def cleanup(self) -> None:
        """Nothing is left open after ``estimate()``; here for scripts that call it."""

    def _found(self, estimation: Estimation) -> BenchmarkResults:
        forecast, trials, hardware = estimation.forecast, estimation.trials, self._hardware
        run = read_logs(estimation.run_dir).runs[0]
        by_size: dict[int, list[float]] = {}
        for trial in sorted(trials, key=lambda t: t.sample_size):
            by_size.setdefault(min(trial.sample_size, self._full_size), []).extend(trial.epoch_durations_s)
        return BenchmarkResults(
            sample_sizes_used=list(by_size),
            full_dataset_size=self._full_size,
            sample_epoch_data=by_size,
            sample_data_pct=100 * min(by_size) / self._full_size,
            benchmark_epochs=sum(map(len, by_size.values())),
            total_epochs=self._total_epochs,
            precision=hardware.precision,
            benchmark_task=hardware.benchmark_task,
            gpu_name=hardware.gpu_name or (hardware.gpu.name if hardware.gpu else None),
            gpu_benchmark_key=None,
            crusoe_estimates=_crusoe_estimates(forecast, hardware),
            co2_savings_kg=None,
            co2_equivalences=[],
            **_times(forecast, trials),
            **_amounts(forecast, trials),
            **_factors(run),
            gpu_tdp_w=hardware.tdp_w,
            gpu_efficiency=hardware.load(estimation.gpu_power_w, run.summary.gpu_count),
        )


CrusoeEstimator = GreenLoveEstimator


def sample_dataset(dataset: Dataset[Any], sample_pct: float = 10.0, seed: int = 42) -> Subset[Any]:
    """A random sample of a data set, in the order of the whole; the same for the same seed.

    Raises:
        UsageError: where the percentage is not above 0 and at most 100.
    """
    if not 0 < sample_pct <= 100:
        raise UsageError(f"sample_pct is a percentage above 0 and at most 100, not {sample_pct!r}")
    whole = len(dataset)
    order = torch.randperm(whole, generator=torch.Generator().manual_seed(seed)).tolist()
    return Subset(dataset, sorted(order[: math.ceil(whole * sample_pct / 100)]))


def sample_dataloader(
    dataloader: DataLoader[Any], sample_pct: float = 10.0, seed: int = 42, batch_size: int | None = None
) -> DataLoader[Any]:
    """A loader of a random sample, otherwise as the given one; shuffled where that one is."""
    names = ("num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn", "prefetch_factor",
             "persistent_workers", "multiprocessing_context")  # fmt: skip
    return DataLoader(
        sample_dataset(dataloader.dataset, sample_pct, seed),
        batch_size=batch_size or dataloader.batch_size or 1,
        shuffle=isinstance(dataloader.sampler, RandomSampler),
        **{name: getattr(dataloader, name) for name in names},
    )


def _check_positive(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise UsageError(f"{name} must be a number above zero, or left out, not {value!r}")


def _gpu_at(index: int) -> devices.Gpu | None:
    gpus = devices.nvml_gpus()
    if isinstance(index, bool) or not isinstance(index, int) or index < 0 or (gpus and index >= len(gpus)):
        raise UsageError(f"gpu_index must be a whole number from 0 to {max(0, len(gpus) - 1)} here, not {index!r}")
    return gpus[index] if gpus else None


def _samples_of(data: Any, batch_size: int) -> Any:
    """A list is a data set of samples to the original; to ``Estimator`` it would be one of batches."""
    if isinstance(data, list | tuple) and data:
        return DataLoader(data, batch_size=batch_size, shuffle=True)
    return data


def _full_size(data: Any, estimator: Estimator) -> int:
    try:
        return len(data.dataset if isinstance(data, DataLoader) else data)
    except TypeError:  # the loader of a stream knows its batches only
        return estimator.plan.samples or 0


def _step_on_first_two(model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
    """The default step of the original, which looks at no more of a batch than inputs and targets."""
    pair = batch[:2] if isinstance(batch, list | tuple) else batch
    return default_step(model, pair, optimizer, criterion, device)


def _without_effect(
    schedule: str, options: Mapping[str, float], has_key: bool, gpu_index: int, power_poll_interval: float
) -> Iterator[str]:
    """What the user gave in vain, in words."""
    changed = [name for name, value in options.items() if value != _SCHEDULE_DEFAULTS[name]]
    if changed and schedule != "green-love":
        yield (
            f"{', '.join(changed)}: only the original's schedule knows what that is, so it has no effect here; "
            'leave it out, or give schedule="green-love"'
        )
    elif "warmup_epochs" in changed:
        yield f"warmup_epochs: the forecast keeps the first {WARMUP_EPOCHS} epochs apart all the same"
    if has_key:
        yield (
            "the key for Electricity Maps has no effect yet: nothing live is asked, the mean of a year is taken from a "
            "table; carbon_intensity= takes a figure of yours"
        )
    if gpu_index != 0:
        yield (
            f"gpu_index={gpu_index} only says which GPU is named: the energy is of every GPU that this process may "
            f"use. Start it with CUDA_VISIBLE_DEVICES={gpu_index}"
        )
    if power_poll_interval != 1.0:
        yield "power_poll_interval has no effect: energy is read where a trial begins and ends, not in intervals"


def _make_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"report_dir: {path} cannot be made: {error.strerror}; name another directory") from error


def _copy_page(run_dir: Path, report_dir: Path) -> Path:
    """The exploration's page under the original's name, with the run's own instead of the time alone."""
    target = report_dir / f"green_love_report_{run_dir.name}.html"
    try:
        shutil.copyfile(run_dir / "dashboard.html", target)
    except OSError as error:
        raise UsageError(f"the report is in {run_dir}, and cannot be copied to {target}: {error.strerror}") from error
    return target


def _answer() -> bool | None:
    """Whether to train on; None where nobody answers."""
    try:
        return confirm("Continue training locally?", default=False)
    except KeyboardInterrupt:  # a no to the original, too: the script keeps its results
        return False


def _crusoe_estimates(forecast: Forecast, hardware: _Hardware) -> list[CrusoeGPUEstimate]:
    """The training on the GPUs of Crusoe Cloud: with the projection."""
    return []


def _times(forecast: Forecast, trials: Sequence[Trial]) -> dict[str, Any]:
    """Times of the whole and of an epoch."""
    total, rest_s = forecast.duration_s, forecast.one_off_s.point
    rest_s += forecast.between_s.point if forecast.between_s else 0.0
    n_epochs = forecast.plan.n_epochs if forecast.plan else 1
    epoch_s, lower_s, upper_s = (max(0.0, t - rest_s) / n_epochs for t in (total.point, total.lower, total.upper))
    first_s, steady_s = _at_full_size(forecast, trials, epoch_s)
    std_s = statistics.stdev(steady_s) if len(steady_s) > 1 else None
    cv = std_s / epoch_s if std_s is not None and epoch_s > 0 else None
    return {
        "warmup_epochs": len(first_s), "warmup_epoch_estimates": first_s, "warmup_times": first_s,
        "epoch_times": steady_s, "median_epoch_time": statistics.median(steady_s) if steady_s else epoch_s,
        "steady_epoch_estimate": epoch_s, "mean_epoch_time": epoch_s, "est_full_epoch_time": epoch_s,
        "steady_epoch_std": std_s, "std_epoch_time": std_s, "cv_epoch_time": cv,
        "variance_rating": None if cv is None else next(name for limit, name in _RATINGS if cv < limit),
        "ci_lower_epoch": lower_s, "ci_upper_epoch": upper_s,
        "est_full_epoch_lower": lower_s, "est_full_epoch_upper": upper_s,
        "est_total_time_s": total.point, "est_total_time_lower_s": total.lower, "est_total_time_upper_s": total.upper,
        "spearman_rho": _spearman(trials),
    }  # fmt: skip


def _at_full_size(forecast: Forecast, trials: Sequence[Trial], epoch_s: float) -> tuple[list[float], list[float]]:
    """The first epochs, and every warm one, taken to the size of the whole along the fitted line where there is one."""
    first_s, plan, per_batch = [forecast.one_off_s.point + epoch_s], forecast.plan, forecast.per_batch_s
    if plan is None or per_batch is None:
        return first_s, []
    fixed_s = forecast.per_epoch_s.point if forecast.per_epoch_s else 0.0
    scales = [epoch_s / (fixed_s + per_batch.point * t.sample_size / t.batch_size) for t in trials]
    is_original = forecast.method == "green-love"
    warm = observe(trials, plan, WARMUP_EPOCHS if is_original else None).steady
    steady_s = [d * scale for times, scale in zip(warm, scales, strict=True) for d in times]
    if is_original:
        columns = itertools.zip_longest(*(t.epoch_durations_s[:WARMUP_EPOCHS] for t in trials))
        scaled = [[d * x for d, x in zip(column, scales, strict=True) if d is not None] for column in columns]
        first_s = [statistics.fmean(column) for column in scaled]
    return first_s, steady_s


def _spearman(trials: Sequence[Trial]) -> float | None:
    """Of size and median epoch, since trials differ in their epochs; fewer than three sizes say nothing."""
    if len({t.sample_size for t in trials}) < 3:
        return None
    medians_s = [statistics.median(t.epoch_durations_s) for t in trials]
    return float(stats.spearmanr([t.sample_size for t in trials], medians_s).statistic)


def _amounts(forecast: Forecast, trials: Sequence[Trial]) -> dict[str, Any]:
    """Energy and what follows from it."""
    energy_kwh = _point(forecast.energy_kwh)
    powers_w = [w_from_kwh_s(t.energy_kwh, t.total_s) for t in trials if t.energy_kwh is not None]
    return {
        "est_total_energy_kwh": energy_kwh,
        "est_total_co2_kg": _point(forecast.emissions_kgco2e),
        "est_total_cost_usd": _point(forecast.cost_usd),
        "mean_power_w": None if energy_kwh is None else w_from_kwh_s(energy_kwh, forecast.duration_s.point),
        "power_samples": powers_w,
    }


def _point(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.point


def _factors(run: Run) -> dict[str, Any]:
    """What energy was multiplied with, and where that is from."""
    intensity, price = run.carbon_intensity, run.electricity_price
    return {
        "carbon_intensity_gco2_kwh": intensity.value,
        "carbon_intensity_source": f"{intensity.source} {intensity.year}".strip(),
        "electricity_price_kwh": price.value if price else None,
        "electricity_price_source": f"{price.source} {price.year}".strip() if price else None,
        "country_code": run.text("country") or None,
    }
