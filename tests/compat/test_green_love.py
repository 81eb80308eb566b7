"""Scripts of the original green-love, with nothing but their import changed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import os
import random
import subprocess
import sys
import warnings
from queue import SimpleQueue

import pytest

torch = pytest.importorskip("torch")

from fakes import FakeClock  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from greenlove_tracker import read_logs  # noqa: E402
from greenlove_tracker.compat import green_love  # noqa: E402
from greenlove_tracker.compat.green_love import GreenLoveEstimator  # noqa: E402
from greenlove_tracker.compat.green_love import estimator as estimator_module  # noqa: E402
from greenlove_tracker.machine.devices import Gpu  # noqa: E402
from greenlove_tracker.meter import SimulatedMeter  # noqa: E402
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402

N, WIDTH = 3200, 16
REQUIRED = inspect.Parameter.empty
PARAMETERS = {  # of green_love.GreenLoveEstimator 0.2.2, in its order
    "model": REQUIRED,
    "optimizer": REQUIRED,
    "criterion": REQUIRED,
    "train_dataset": REQUIRED,
    "total_epochs": REQUIRED,
    "batch_size": 64,
    "device": None,
    "train_step": None,
    "exploration_epochs": 30,
    "warmup_epochs": 3,
    "target_benchmark_time": 10.0,
    "initial_sample_size": 1000,
    "single_epoch_budget": 0.3,
    "country_code": None,
    "carbon_intensity": None,
    "electricity_price": None,
    "electricity_maps_api_key": None,
    "gpu_name": None,
    "gpu_index": 0,
    "manual_tdp_watts": None,
    "manual_gpu_utilization": 0.70,
    "benchmark_task": None,
    "precision": "fp16",
    "custom_speedup": None,
    "report_dir": "./crusoe_reports",
    "auto_open_report": True,
    "power_poll_interval": 1.0,
}
RESULTS = [  # of green_love.BenchmarkResults 0.2.2
    "sample_sizes_used",
    "full_dataset_size",
    "spearman_rho",
    "warmup_epoch_estimates",
    "steady_epoch_estimate",
    "steady_epoch_std",
    "epoch_times",
    "warmup_times",
    "median_epoch_time",
    "mean_epoch_time",
    "std_epoch_time",
    "cv_epoch_time",
    "ci_lower_epoch",
    "ci_upper_epoch",
    "variance_rating",
    "est_full_epoch_time",
    "est_full_epoch_lower",
    "est_full_epoch_upper",
    "est_total_time_s",
    "est_total_time_lower_s",
    "est_total_time_upper_s",
    "mean_power_w",
    "gpu_tdp_w",
    "gpu_efficiency",
    "power_samples",
    "est_total_energy_kwh",
    "carbon_intensity_gco2_kwh",
    "carbon_intensity_source",
    "electricity_price_kwh",
    "electricity_price_source",
    "est_total_co2_kg",
    "est_total_cost_usd",
    "country_code",
    "gpu_name",
    "gpu_benchmark_key",
    "crusoe_estimates",
    "co2_savings_kg",
    "co2_equivalences",
    "sample_epoch_data",
    "total_epochs",
    "benchmark_epochs",
    "warmup_epochs",
    "sample_data_pct",
    "precision",
    "benchmark_task",
]
SCRIPT = """
import json
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from green_love import GreenLoveEstimator

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()
dataset = TensorDataset(torch.randn(3200, 16), torch.randint(0, 4, (3200,)))
estimator = GreenLoveEstimator(
    model=model, optimizer=optimizer, criterion=criterion, train_dataset=dataset, total_epochs=100, batch_size=64,
)
results = estimator.estimate()
if estimator.user_chose_continue:
    print("trains")
estimator.cleanup()
print(json.dumps({
    "lower_s": results.est_total_time_lower_s, "time_s": results.est_total_time_s,
    "upper_s": results.est_total_time_upper_s, "rho": results.spearman_rho, "sizes": results.sample_sizes_used,
    "is_kept": estimator.results is results,
}))
"""


@pytest.fixture(autouse=True)
def no_gpu_and_no_terminal(monkeypatch):
    monkeypatch.setattr("greenlove_tracker.machine.devices.nvml_gpus", tuple)
    monkeypatch.setattr("greenlove_tracker.text.console.can_ask", lambda: False)
    monkeypatch.delenv("ELECTRICITY_MAPS_API_KEY", raising=False)


def pieces(n=N):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(n, WIDTH), torch.randint(0, 4, (n,)))
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), data


def make(tmp_path, *, data=None, epochs=50, **arguments):
    model, optimizer, criterion, samples = pieces()
    given = {
        "report_dir": tmp_path / "reports",
        "log_dir": tmp_path / "logs",
        "sim_cpu_tdp_w": 50.0,
        "verbose": 0,
        "budget_s": 1.5,
        "country_code": "DE",
    }
    return GreenLoveEstimator(
        model, optimizer, criterion, samples if data is None else data, epochs, **(given | arguments)
    )


def test_a_script_of_the_original_runs_with_nothing_but_its_import_changed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("from green_love import", "from greenlove_tracker.compat.green_love import"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("GREENLOVE_")}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=env | {"GREENLOVE_COUNTRY": "DE"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)  # and nothing else: the answer without a terminal is no
    assert 0 <= found["lower_s"] < found["time_s"] < found["upper_s"]
    assert found["sizes"] == sorted(found["sizes"]) and found["is_kept"] and -1 <= found["rho"] <= 1
    (page,) = (tmp_path / "crusoe_reports").glob("green_love_report_*.html")
    assert "3,200 samples · batch 64 · 100 epochs" in page.read_text(encoding="utf-8") and page.name in done.stderr
    assert "training does not go on" in done.stderr and "Warning" not in done.stderr


@pytest.mark.slow
def test_the_further_examples_of_its_readme_run_too(tmp_path):
    speedups = {"H100 HGX 80GB": 2.5, "A100 SXM 80GB": 1.8}
    place = {"country_code": "DE", "carbon_intensity": 332, "electricity_price": 0.40}
    results = make(
        tmp_path,
        custom_speedup=speedups,
        manual_tdp_watts=350,
        manual_gpu_utilization=0.75,
        sim_cpu_tdp_w=None,
        **place,
    ).estimate()
    assert results.est_total_co2_kg == pytest.approx(results.est_total_energy_kwh * 0.332)
    assert results.est_total_cost_usd == pytest.approx(results.est_total_energy_kwh * 0.40)
    assert set(speedups) <= {e.name for e in results.crusoe_estimates}


@pytest.mark.slow
def test_a_key_of_electricity_maps_asks_it_for_the_intensity_in_force(tmp_path, electricity_maps):
    results = make(tmp_path, electricity_maps_api_key="s3cret").estimate()
    assert electricity_maps.asked[0].headers["auth-token"] == "s3cret" and results.carbon_intensity_gco2_kwh == 322
    assert results.est_total_co2_kg == pytest.approx(results.est_total_energy_kwh * 0.322)


def test_parameters_are_the_originals_in_its_order_with_its_defaults():
    signature = inspect.signature(GreenLoveEstimator).parameters
    theirs = {n: p.default for n, p in signature.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert list(theirs.items()) == list(PARAMETERS.items()) and len(theirs) == 27


def test_the_originals_names_are_all_there():
    names = [
        "GreenLoveEstimator",
        "CrusoeEstimator",
        "BenchmarkResults",
        "CrusoeGPUEstimate",
        "CO2Equivalence",
        "BENCHMARK_TASKS",
        "sample_dataset",
        "sample_dataloader",
        "format_time",
        "format_cost",
        "format_co2",
    ]
    assert sorted(green_love.__all__) == sorted(names) and all(hasattr(green_love, name) for name in names)
    assert (
        green_love.format_time(3725),
        green_love.format_cost(1.5),
        green_love.format_co2(0.25),
    ) == (
        "1 h 2 min",
        "$1.50",
        "250 g",
    )


def test_results_agree_with_one_another_and_with_the_log(tmp_path):
    clock, dice = FakeClock(), random.Random(1)
    virtual = {"clock": clock, "meter": SimulatedMeter(clock, cpu_tdp_w=50.0), "budget_s": 30.0}
    virtual["train_step"] = lambda *arguments: clock.pass_s(0.01 * (1 + 0.1 * dice.random()))
    names = {"gpu_name": "RTX 4090", "benchmark_task": "resnet50", "precision": "fp32"}
    estimator = make(tmp_path, pue=1.5, **names, **virtual)
    assert estimator.results is None and not estimator.user_chose_continue
    results = estimator.estimate()
    assert sorted(vars(results)) == sorted(RESULTS)
    run = read_logs(tmp_path / "logs").runs[0]
    forecast = estimator.estimation.forecast
    assert results.sample_epoch_data == {
        size: [d for t in run.trials if t.sample_size == size for d in t.epoch_durations_s]
        for size in results.sample_sizes_used
    }
    assert results.benchmark_epochs == sum(len(t.epoch_durations_s) for t in run.trials)
    assert results.full_dataset_size == N and results.total_epochs == 50
    assert results.sample_data_pct == pytest.approx(100 * results.sample_sizes_used[0] / N)
    steady_s = (results.total_epochs - results.warmup_epochs) * results.steady_epoch_estimate
    assert results.est_total_time_s == pytest.approx(sum(results.warmup_epoch_estimates) + steady_s)
    assert results.est_total_time_s == forecast.duration_s.point
    assert results.ci_lower_epoch < results.mean_epoch_time < results.ci_upper_epoch
    assert results.est_total_co2_kg == pytest.approx(
        results.est_total_energy_kwh * results.carbon_intensity_gco2_kwh / 1000
    )
    assert results.est_total_cost_usd == pytest.approx(results.est_total_energy_kwh * results.electricity_price_kwh)
    assert results.mean_power_w == pytest.approx(25, rel=0.2)  # half of 50 W, without the PUE that is in the energy
    assert results.est_total_energy_kwh == pytest.approx(1.5 * results.mean_power_w * results.est_total_time_s / 3.6e6)
    assert results.power_samples == pytest.approx([25] * len(results.power_samples), rel=0.2)
    assert results.country_code == "DE" and "Germany" in results.carbon_intensity_source
    assert (results.gpu_name, results.benchmark_task, results.precision) == ("RTX 4090", "resnet50", "fp32")


def test_what_is_not_known_is_none(tmp_path, monkeypatch):
    monkeypatch.delenv("GREENLOVE_COUNTRY", raising=False)
    results = make(
        tmp_path, country_code=None, data=TensorDataset(torch.randn(64, WIDTH), torch.zeros(64).long()), epochs=2
    ).estimate()
    unknown = (
        "electricity_price_kwh",
        "electricity_price_source",
        "est_total_cost_usd",
        "country_code",
        "gpu_name",
        "gpu_tdp_w",
        "gpu_efficiency",
        "gpu_benchmark_key",
        "spearman_rho",
    )
    assert {name: getattr(results, name) for name in unknown} == dict.fromkeys(unknown)
    assert "world average" in results.carbon_intensity_source


@pytest.mark.slow
def test_a_gpu_that_cannot_be_measured_is_counted_with_the_power_that_the_user_gives(tmp_path):
    results = make(tmp_path, manual_tdp_watts=350, manual_gpu_utilization=0.75, sim_cpu_tdp_w=None).estimate()
    assert results.mean_power_w == pytest.approx(262.5, rel=0.1) and results.gpu_tdp_w == 350
    assert results.gpu_efficiency == 0.75


@pytest.mark.slow
def test_a_gpu_that_can_be_measured_is_not_overruled(tmp_path, monkeypatch):
    monkeypatch.setattr("greenlove_tracker.machine.devices.nvml_gpus", lambda: (Gpu(0, "GPU-0", "H100", 80.0, 700.0),))
    results = make(tmp_path, manual_tdp_watts=350).estimate()
    assert (results.gpu_name, results.gpu_tdp_w) == ("H100", 700) and results.mean_power_w < 30


@pytest.mark.parametrize(
    "argument, message",
    [
        ({"warmup_epochs": 1}, "no effect here: warmup_epochs"),
        ({"gpu_index": 1}, "gpu_index"),
        ({"power_poll_interval": 0.5}, "power_poll_interval"),
    ],
)
def test_what_has_no_effect_is_said_where_it_was_given(tmp_path, argument, message):
    with pytest.warns(UserWarning, match=message) as caught:
        make(tmp_path, **argument)
    assert [w.filename for w in caught] == [__file__]


@pytest.mark.slow
def test_the_originals_schedule_limits_our_trials(tmp_path):
    """Of 10 ms a batch, epochs of 0.1 s at most have ten."""
    clock = FakeClock()

    def step(*arguments):
        clock.pass_s(0.01)

    limits = {"exploration_epochs": 2, "initial_sample_size": 128, "single_epoch_budget": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limited = make(tmp_path, train_step=step, clock=clock, meter=SimulatedMeter(clock), budget_s=30, **limits)
    limited.estimate()
    trials = limited.estimation.trials
    assert max(trial.sample_size for trial in trials) <= 640
    assert max(len(trial.epoch_durations_s) for trial in trials) == 2


# -- the comparison with Crusoe's GPUs ---------------------------------------------------------------------------


@pytest.mark.slow
def test_the_training_on_crusoes_gpus_agrees_with_the_results_and_with_itself(tmp_path):
    results = make(tmp_path, gpu_name="RTX 4090", manual_tdp_watts=450, precision="fp32", sim_cpu_tdp_w=None).estimate()
    found = results.crusoe_estimates
    assert results.gpu_benchmark_key == "GeForce RTX 4090" and {"L40S 48GB", "A100 PCIe 80GB"} < {e.name for e in found}
    assert "A40 48GB" not in {e.name for e in found}  # not offered any more
    assert [e.on_demand_cost for e in found] == sorted(e.on_demand_cost for e in found)
    for e in found:
        assert e.est_time_s == pytest.approx(results.est_total_time_s / e.speedup)
        assert e.est_time_lower_s < e.est_time_s < e.est_time_upper_s
        of_time = e.on_demand_rate * e.est_time_s / 3600
        if e.name in ("L40S 48GB", "A100 PCIe 80GB"):
            assert e.on_demand_cost == pytest.approx(of_time)
            assert e.on_demand_cost_lower < e.on_demand_cost < e.on_demand_cost_upper
        else:  # only to reserve: a week is paid for
            assert e.on_demand_cost == pytest.approx(e.on_demand_rate * 24 * 7) and e.on_demand_cost > of_time
        assert e.est_energy_kwh == pytest.approx(e.cloud_power_w * e.est_time_s / 3.6e6)
        assert 0 < e.est_co2_kg < e.est_energy_kwh and e.scale_note  # never a bare 0 kg: no grid of theirs has 1 kg/kWh
    assert [e.name for e in found if e.is_fastest] == [min(found, key=lambda e: e.est_time_s).name]
    best = [e for e in found if e.is_best_value]
    assert best == [min(found, key=lambda e: e.value_score)] and best[0].value_score < math.inf
    eight = next(e for e in found if e.name == "H100 HGX 80GB")  # rented out by eight
    assert eight.scale_factor > 5 and eight.on_demand_rate > 20 and eight.vram_gb == 80
    assert results.co2_savings_kg == pytest.approx(results.est_total_co2_kg - min(e.est_co2_kg for e in found))
    assert results.co2_savings_kg > 0
    for e in results.co2_equivalences:
        assert e.label and e.unit and e.description and e.value > 0
    phone = next(e for e in results.co2_equivalences if e.unit == "charge")
    assert phone.value == pytest.approx(results.co2_savings_kg / 0.0124) and phone.icon == "📱"


def asked(monkeypatch) -> list[dict]:
    """What the projection is asked for, by each estimation."""
    calls = []

    def project_forecast(forecast, options):
        calls.append(
            {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
            | {"energy_kwh": forecast.energy_kwh}
        )
        raise UsageError("asked enough")

    monkeypatch.setattr("greenlove_tracker.projection.from_log.project_forecast", project_forecast)
    return calls


def test_the_projection_is_asked_in_the_terms_of_the_results(tmp_path, monkeypatch):
    calls = asked(monkeypatch)
    make(
        tmp_path,
        gpu_name="RTX 4090",
        manual_tdp_watts=400,
        manual_gpu_utilization=0.6,
        benchmark_task="resnet50",
        precision="fp32",
        carbon_intensity=332,
        electricity_price=0.4,
        pue=1.5,
        sim_cpu_tdp_w=None,
        custom_speedup={"H100 HGX 80GB": 2.5, "L40S": 1.5},
    ).estimate()
    (found,) = calls
    names = (
        "local_gpu",
        "n_gpus",
        "workload",
        "precision",
        "country",
        "pue",
        "manual_tdp_watts",
        "utilization",
        "custom_speedup",
    )
    assert {name: found[name] for name in names} == {
        "local_gpu": "RTX 4090",
        "n_gpus": 1,
        "workload": "vision",
        "precision": "fp32",
        "country": "DE",
        "pue": 1.5,
        "manual_tdp_watts": 400,
        "utilization": 0.6,
        "custom_speedup": {"H100 SXM5 80GB": 2.5, "L40S": 1.5},
    }
    assert (found["carbon_intensity"].value, found["electricity_price"].value) == (332, 0.4)


def test_a_training_on_a_gpu_is_compared_by_what_nvml_says_of_it(tmp_path, monkeypatch):
    calls = asked(monkeypatch)
    gpus = tuple(Gpu(i, f"GPU-{i}", name, 80.0, 700.0) for i, name in enumerate(("T4", "NVIDIA H100 PCIe")))
    monkeypatch.setattr("greenlove_tracker.machine.devices.nvml_gpus", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True)
    monkeypatch.setattr("greenlove_tracker.exploration.estimator._gpus_of", lambda models: 2)
    monkeypatch.setattr("greenlove_tracker.machine.devices.peak_memory_gb", lambda *device_bytes: 30.0)
    clock, dice = FakeClock(), random.Random(1)
    virtual = {"clock": clock, "budget_s": 30.0}
    virtual["train_step"] = lambda *arguments: clock.pass_s(0.01 * (1 + 0.1 * dice.random()))
    results = make(tmp_path, sim_gpu_w=600.0, sim_gpu_count=2, manual_tdp_watts=99, **virtual).estimate()
    (found,) = calls
    assert results.gpu_name == found["local_gpu"] == "NVIDIA H100 PCIe"
    names = ("local_memory_gb", "n_gpus", "utilization", "manual_tdp_watts", "peak_memory_gb")
    assert [found[name] for name in names] == [80.0, 2, None, 700.0, 30.0]  # a simulated draw is none
    assert found["energy_kwh"].point == results.est_total_energy_kwh > 0


@pytest.mark.slow
def test_a_gpu_that_is_not_in_the_energy_is_counted_with_an_assumed_draw(tmp_path):
    results = make(tmp_path, gpu_name="RTX 4090").estimate()  # a CPU of 50 W is all that is measured
    assert results.crusoe_estimates
    assert all(e.cloud_power_w > 50 and e.est_energy_kwh > 0 for e in results.crusoe_estimates)


@pytest.mark.slow
def test_a_speedup_of_the_users_goes_by_the_originals_names(tmp_path):
    custom = {"MI300X 192GB": 3.0, "L40S 48GB": 0.5}
    results = make(tmp_path, gpu_name="Unheard Of 9000", custom_speedup=custom).estimate()
    found = {e.name: e for e in results.crusoe_estimates}
    assert {name: e.speedup / e.scale_factor for name, e in found.items()} == pytest.approx(custom)
    assert found["L40S 48GB"].value_score == math.inf and not found["L40S 48GB"].is_best_value  # it saves no time


@pytest.mark.slow
def test_the_best_value_the_fastest_and_the_report_are_there_before_the_question(tmp_path, monkeypatch, capsys):
    before = []

    def answer(question, default):
        before.append(capsys.readouterr().err)
        before.extend((tmp_path / "reports").glob("green_love_report_*.html"))
        return True

    monkeypatch.setattr(estimator_module, "confirm", answer)
    estimator = make(tmp_path, gpu_name="RTX 3090", manual_tdp_watts=350, sim_cpu_tdp_w=None, verbose=1)
    estimates = estimator.estimate().crusoe_estimates
    said, page = before
    fastest = next(e for e in estimates if e.is_fastest)
    best = next(e for e in estimates if e.is_best_value)
    assert f"best value  {best.name}, " in said and f"fastest     {fastest.name}, " in said
    assert (best.access, fastest.access) == ("on demand", "reserved") and "$5,766 reserved, " in said
    assert estimator.user_chose_continue and page.name in said
    assert "The time of an epoch by sample size" in page.read_text(encoding="utf-8")
    estimator.cleanup()


@pytest.mark.slow
@pytest.mark.parametrize("answer, goes_on", [("stop", False), ("continue", True)])
def test_without_a_terminal_the_answer_is_given_in_advance(tmp_path, answer, goes_on):
    estimator = make(tmp_path, on_no_terminal=answer)
    estimator.estimate()
    assert estimator.user_chose_continue is goes_on


@pytest.mark.slow
@pytest.mark.parametrize("is_at_terminal, opens, n_opened", [(True, True, 1), (False, True, 0), (True, False, 0)])
def test_a_page_opens_only_before_somebody(tmp_path, monkeypatch, is_at_terminal, opens, n_opened):
    opened = []
    monkeypatch.setattr(estimator_module, "open_page", opened.append)
    monkeypatch.setattr(estimator_module, "can_ask", lambda: is_at_terminal)
    make(tmp_path, auto_open_report=opens).estimate()
    assert [url.startswith("file:///") and url.endswith(".html") for url in opened] == [True] * n_opened


@pytest.mark.slow
def test_a_list_is_a_data_set_and_a_batch_may_hold_more_than_two(tmp_path):
    samples = [(torch.randn(WIDTH), 1, "ignored") for _ in range(640)]
    results = make(tmp_path, data=samples).estimate()
    assert results.full_dataset_size == 640 and max(results.sample_sizes_used) <= 640


def test_a_training_step_of_the_users_is_called_as_the_original_calls_it(tmp_path):
    calls = SimpleQueue()  # a list would be put back

    def step(model, batch, optimizer, criterion, device):
        calls.put((type(model), len(batch), type(optimizer), type(criterion), device))

    make(tmp_path, train_step=step).estimate()
    assert {calls.get() for _ in range(calls.qsize())} == {
        (nn.Sequential, 2, torch.optim.Adam, nn.CrossEntropyLoss, torch.device("cpu"))
    }


@pytest.mark.parametrize(
    "argument, message",
    [
        ({"epochs": 0}, "at least 1"),
        ({"benchmark_task": "mnist"}, "benchmark_task must be one of bert_base_squad"),
        ({"custom_speedup": {"H1000": 2.0}}, "H1000"),
        ({"manual_tdp_watts": -1}, "manual_tdp_watts must be"),
        ({"warmup_epochs": -1}, "warmup_epochs must be a whole number"),
        ({"warmup_epochs": 1.5}, "warmup_epochs must be a whole number"),
        ({"exploration_epochs": 0}, "exploration_epochs must be a whole number"),
        ({"country_code": "Atlantis"}, "Atlantis"),
        ({"on_no_terminal": "ask"}, "on_no_terminal"),
        ({"bach_size": 3}, "no such setting: bach_size"),
    ],
)
def test_bad_arguments_are_said_before_anything_runs(tmp_path, argument, message):
    def step(*arguments):
        pytest.fail("it ran")

    with pytest.raises(UsageError, match=message):
        make(tmp_path, train_step=step, **argument).estimate()


def test_samples_are_reproducible_and_otherwise_as_the_whole():
    data = pieces(101)[3]
    first, again, other = (green_love.sample_dataset(data, 10, seed) for seed in (1, 1, 2))
    assert first.indices == again.indices == sorted(first.indices) != other.indices and len(first) == 11
    loader = DataLoader(data, 8, shuffle=True, drop_last=True, collate_fn=len)
    sample = green_love.sample_dataloader(loader, 50)
    assert list(sample) == [8] * 6 and isinstance(sample.sampler, torch.utils.data.RandomSampler)
    assert list(green_love.sample_dataloader(DataLoader(data, 8, collate_fn=len), 10, batch_size=4)) == [4, 4, 3]
    with pytest.raises(UsageError, match="percentage"):
        green_love.sample_dataset(data, 0)
