"""The replays of recorded GPU trainings, on small recordings made here."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("backtest_gpu")


@pytest.fixture
def energy(gpu):
    return importlib.import_module("backtest_energy")


def write_steps(folder, step_ms, phases=""):
    """A recording of 200 steps, logged at each fifth from step 10 on, and a copy of it."""
    lines = ["run,step,elapsed_ms"]
    for run in ("a", "copy"):
        lines += [f"{run},{step},{sum(step_ms[10:step])}" for step in range(10, 201, 5)]
    (folder / "nanogpt_times.csv").write_text("\n".join(lines))
    rows = [f"{run},track,record,200,39,20,{phases}" for run in ("a", "copy")]
    head = "run,track,record,steps,steps_logged,total_s,phases_steps_x_tokens"
    (folder / "nanogpt_runs.csv").write_text("\n".join([head, *rows]))


def test_a_copy_counts_once_and_a_constant_run_is_forecast(gpu, tmp_path):
    write_steps(tmp_path, [100] * 200)
    (run,) = gpu.step_runs(tmp_path)
    assert (run.kind, run.steps[0], run.steps[-1], run.elapsed_s[-1]) == (gpu.CONSTANT, 0, 190, 19.0)
    forecasts = dict(gpu.replay_steps(run))
    assert set(forecasts) == set(gpu.TENTHS)
    assert forecasts[3].duration_s.point == pytest.approx(19.0, rel=0.01)


@pytest.mark.slow
def test_the_plan_begins_at_the_first_step_that_was_logged_and_is_given(gpu, tmp_path):
    write_steps(tmp_path, [100] * 100 + [180] * 100, "100x1000 100x2000")
    (run,) = gpu.step_runs(tmp_path)
    assert run.kind == gpu.PLAN and [(p.steps, p.tokens_per_step) for p in run.plan] == [(90, 1000), (100, 2000)]
    truth_s = run.elapsed_s[-1]
    told, given = dict(gpu.replay_steps(run)), dict(gpu.replay_steps(run, phases=run.plan))
    assert told[3].duration_s.upper < truth_s
    assert given[3].duration_s.lower < truth_s < given[3].duration_s.upper
    assert given[3].duration_s.point == pytest.approx(truth_s, rel=0.05)


def write_epochs(folder, n=20, watts=7000):
    """A training of 20 epochs of 10 s, with an evaluation of 4 s after each from the tenth on; its power has a hole."""
    events, at_s = [], 3.0
    for epoch in range(1, n + 1):
        events += [("epoch_start", at_s), ("epoch_stop", at_s + 10.0)]
        at_s += 10.0 + (4.0 if epoch >= n // 2 else 0.0)
    events.append(("run_stop", at_s))
    rows = ["run,event,at_ms,samples_or_epoch", *(f"unet3d-0,{event},{1000 * t:.0f}," for event, t in events)]
    (folder / "mlperf_power_events.csv").write_text("\n".join(rows))
    readings = [t for t in np.arange(0.0, at_s + 3.0, 2.0) if not 50.0 < t < 62.0]
    power = ["run,at_ms,wall_w", *(f"unet3d-0,{1000 * t:.0f},{watts + (500 if t >= 62 else 0)}" for t in readings)]
    (folder / "mlperf_power_power.csv").write_text("\n".join(power))


def test_energy_is_integrated_over_holes_by_the_trapezoid(energy, gpu, tmp_path):
    write_epochs(tmp_path)
    (run,) = gpu.power_runs(tmp_path, "unet3d")
    power = energy.node_power(tmp_path, run)
    assert (run.eval_from, run.eval_s, run.total_s, power.holes_s) == (10, 4.0, 244.0, 12.0)
    hole = 12.0 * 7250.0
    assert power.kwh_until(59.0) * 3.6e6 == pytest.approx(47.0 * 7000.0 + hole)
    assert power.kwh_until(run.total_s) * 3.6e6 == pytest.approx(47.0 * 7000.0 + hole + 185.0 * 7500.0)


def test_a_forecast_of_energy_is_split_into_power_and_time(energy, gpu, tmp_path):
    write_epochs(tmp_path)
    (run,) = gpu.power_runs(tmp_path, "unet3d")
    power = energy.node_power(tmp_path, run)
    made = {m.tenth: m for m in energy.replay(run, power)}
    truth_kwh = power.kwh_until(run.total_s)
    assert made[3].forecast.energy_kwh.point < 0.9 * truth_kwh  # nobody told it of the evaluations
    assert energy.energy_at(made[5], power, run.total_s) == pytest.approx(truth_kwh, rel=0.02)
    assert energy.step_baseline(run, power, 6) < 0.9 * truth_kwh


def test_steps_that_are_told_as_epochs_are_forecast_before_the_first_one_ends(gpu, tmp_path):
    write_steps(tmp_path, [1000] * 200)
    (run,) = gpu.step_runs(tmp_path)
    spans = list(itertools.pairwise(run.elapsed_s))
    forecasts = dict(gpu.replay_in_epochs(run.steps[1:], spans, 3))
    assert set(forecasts) == set(gpu.TENTHS)
    assert 0.2 < forecasts[1].position.done_units < 0.4 and forecasts[5].position.done_units == 1
    for forecast in forecasts.values():
        assert forecast.duration_s.point == pytest.approx(190.0, rel=0.03)
        assert forecast.duration_s.lower < 189.0 < forecast.duration_s.upper
