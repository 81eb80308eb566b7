"""Exploring real loaders and models in virtual time: the training's own calls move the clock."""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeClock  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler  # noqa: E402

from greenlove_tracker import Estimator, Tracker, read_logs  # noqa: E402
from greenlove_tracker.extrapolation.explorations import explored_plan  # noqa: E402
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # noqa: E402
from greenlove_tracker.logs.run import Run  # noqa: E402
from greenlove_tracker.logs.uncertainty import forecast_with_meter_error  # noqa: E402
from greenlove_tracker.meter import NullMeter, SimulatedMeter  # noqa: E402
from greenlove_tracker.text import format as fmt  # noqa: E402
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402
from greenlove_tracker.vocabulary.stopping import StoppingRule, unknown_stop  # noqa: E402


class Numbers(Dataset):
    """As many numbers as one likes, none of them stored."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([float(i)])


class SlowToStart(Sampler):
    """In order; beginning takes its time, as workers or a shuffled index do."""

    def __init__(self, n, clock, start_s):
        self.n, self.clock, self.start_s = n, clock, start_s

    def __len__(self):
        return self.n

    def __iter__(self):
        self.clock.pass_s(self.start_s)
        return iter(range(self.n))


class Stream(IterableDataset):
    """Endless."""

    def __iter__(self):
        return (torch.tensor([float(i)]) for i in itertools.count())


def explored(
    tmp_path, *, step_s, start_s=0.0, n=6400, batch_size=64, noise=0.0, data=None, cold_s=0.0, eval_s=0.0, **arguments
):
    """The estimation, the virtual time that it took, and its longest indivisible call."""
    clock, order = FakeClock(), random.Random(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = itertools.count()

    def step(model, batch, optimizer, criterion, device):
        clock.pass_s(step_s * (1 + noise * order.random()) + (cold_s if next(calls) == 0 else 0.0))

    if data is None:
        data = DataLoader(Numbers(n), batch_size, sampler=SlowToStart(n, clock, start_s))
    settings = {"total_epochs": 100} if "total_steps" not in arguments else {}
    settings |= {"eval_fn": lambda model: clock.pass_s(eval_s)} if eval_s else {}
    settings |= {"train_step": step, "clock": clock, "meter": NullMeter(), "log_dir": tmp_path, "verbose": 0}
    estimation = Estimator(model, optimizer, nn.MSELoss(), data, **(settings | arguments)).estimate()
    return estimation, clock.now_s, step_s * (1 + noise) + start_s + cold_s


@pytest.mark.slow
@pytest.mark.parametrize("budget_s", [1.0, 30.0, 300.0])
@pytest.mark.parametrize(
    "loop",
    [
        {"step_s": 1e-3},
        {"step_s": 2.0},
        {"step_s": 40.0},
        {"step_s": 0.01, "n": 50_000_000},
        {"step_s": 0.01, "n": 1, "batch_size": 64},
        {"step_s": 0.05, "start_s": 8.0},
        {"step_s": 0.1, "noise": 10.0},
        {"step_s": 0.1, "cold_s": 25.0},
    ],
    ids=lambda loop: " ".join(f"{k}={v}" for k, v in loop.items()),
)
def test_the_budget_is_overrun_by_one_call_of_the_users_at_most(tmp_path, loop, budget_s):
    if loop.get("start_s", 0.0) > budget_s:
        with pytest.raises(UsageError, match="give a larger budget_s"):
            explored(tmp_path, **loop, budget_s=budget_s)
        return
    estimation, took_s, longest_s = explored(tmp_path, **loop, budget_s=budget_s)
    assert took_s <= budget_s + longest_s
    assert estimation.trials and estimation.forecast.duration_s.point > 0


def test_workers_that_persist_are_started_once_for_all_trials(tmp_path):
    def note_start(worker):
        (tmp_path / str(os.getpid())).touch()

    loader = DataLoader(Numbers(640), 64, num_workers=1, persistent_workers=True, worker_init_fn=note_start)
    estimation, *_ = explored(tmp_path / "logs", step_s=0.1, data=loader)
    assert len(estimation.trials) > 2 and len([path for path in tmp_path.iterdir() if path.is_file()]) == 1


def test_ten_slow_steps_give_an_answer_wide_and_named(tmp_path):
    estimation = explored(tmp_path, step_s=2.0, n=64 * 10_000)[0]
    forecast = estimation.forecast
    assert forecast.duration_s.point == pytest.approx(100 * 10_000 * 2.0, rel=0.05)
    assert {"FEW", "FAR"} <= {w.name for w in forecast.warnings}
    assert sum(t.batches * len(t.epoch_durations_s) for t in estimation.trials) >= 10


def test_a_stream_without_length_is_explored_in_steps(tmp_path):
    loader = DataLoader(Stream(), 8)
    forecast = explored(tmp_path, step_s=0.01, data=loader, total_steps=50_000)[0].forecast
    assert forecast.plan.steps == 50_000 and forecast.plan.n_epochs == 1
    assert forecast.duration_s.point == pytest.approx(500.0, rel=0.02)


def test_steps_over_data_with_a_length_pay_for_each_pass(tmp_path):
    forecast = explored(tmp_path, step_s=0.01, start_s=1.0, total_steps=1_250)[0].forecast
    assert forecast.plan.n_epochs == 12.5 and forecast.plan.batches_per_epoch == 100
    assert forecast.duration_s.point == pytest.approx(13 * 1.0 + 1_250 * 0.01, rel=0.02)  # the last pass is begun


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"total_epochs": None}, "total_epochs or total_steps"),
        ({"total_epochs": 3, "total_steps": 5}, "total_epochs or total_steps"),
        ({"total_epochs": 0}, "at least 1"),
        ({"total_epochs": None, "total_steps": 0}, "at least 1"),
        ({"total_epochs": None, "total_steps": 9, "eval_fn": id}, "eval_every="),
        ({"total_epochs": None, "total_steps": 30, "phases": "10x64samples 10x128samples"}, "phases add up to 20"),
        ({"data": DataLoader(Stream(), 8)}, "no length: say with total_steps="),
    ],
)
def test_a_training_that_does_not_follow_from_what_was_given_is_refused(tmp_path, arguments, says):
    with pytest.raises(UsageError, match=says):
        explored(tmp_path, step_s=0.01, **arguments)


def test_data_that_end_before_their_length_are_named(tmp_path):
    class Short(list):
        def __len__(self):
            return 1_000

    with pytest.raises(UsageError, match="ended after"):
        explored(tmp_path, step_s=0.01, data=Short([0, 1, 2]))


def test_inside_an_open_run_it_neither_ends_that_run_nor_counts_twice(tmp_path):
    clock = FakeClock()
    with Tracker(3, clock=clock, meter=SimulatedMeter(clock, cpu_tdp_w=3600.0), log_dir=tmp_path, verbose=0) as tracker:
        for epoch in range(3):
            if epoch == 1:
                estimation = explored(tmp_path, step_s=0.01, budget_s=5.0)[0]
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
    summary = read_logs(tmp_path).runs[0].summary
    assert (summary.epochs_done, summary.status) == (3, "finished")
    assert estimation.run_dir.parent == tracker.run_dir / "explorations"
    assert len(read_logs(tmp_path).runs) == 1 and read_logs(estimation.run_dir).runs[0].trials == estimation.trials


@pytest.mark.slow
def test_a_forecast_from_the_log_is_the_one_that_was_told(tmp_path):
    for name, arguments in (
        ("a", {"cold_s": 12.0}),
        ("c", {"total_steps": 1_250, "start_s": 1.0}),
    ):
        estimation, _, _ = explored(tmp_path / name, step_s=0.01, noise=0.1, **arguments)
        again = forecast_from_log(read_logs(tmp_path / name).runs[0])
        assert again.duration_s.point == pytest.approx(estimation.forecast.duration_s.point, rel=1e-9)
        assert estimation.projections[0].duration_s.point == pytest.approx(again.duration_s.point, rel=1e-9)


def test_what_is_shown_of_its_energy_has_the_error_of_the_meters(tmp_path):
    estimation, _, _ = explored(tmp_path, step_s=0.1, meter=None, sim_cpu_tdp_w=50.0)
    energy = estimation.forecast.energy_kwh
    shown = forecast_with_meter_error(estimation.forecast, Run(estimation.run_dir))
    assert shown.energy_kwh.point == energy.point and shown.duration_s == estimation.forecast.duration_s
    assert shown.energy_kwh.upper > 1.6 * energy.point > energy.upper  # a model by rated power may be so far off
    assert fmt.bounds(shown.energy_kwh, fmt.energy) in estimation.page.read_text("utf-8").replace("\u00a0", " ")


@pytest.mark.slow
def test_evaluations_come_after_trials_and_within_the_budget_but_for_one(tmp_path):
    clock, model = FakeClock(), nn.Linear(1, 1)
    clock.calls = calls = []  # the clock is not the training's, and is not put back

    def passes(what, seconds):
        clock.calls.append(what)
        clock.pass_s(seconds)

    def estimate(eval_s):
        calls.clear()
        began_s = clock.now_s
        data = DataLoader(Numbers(6400), 64, collate_fn=lambda batch: None)
        forecast = (
            Estimator(
                model,
                torch.optim.SGD(model.parameters(), 0.1),
                nn.MSELoss(),
                data,
                10,
                clock=clock,
                meter=NullMeter(),
                log_dir=tmp_path,
                verbose=0,
                train_step=lambda *a: passes("step", 0.1),
                eval_fn=lambda m: passes("eval", eval_s),
            )
            .estimate()
            .forecast
        )
        return forecast, clock.now_s - began_s

    forecast, took_s = estimate(1.0)
    assert calls.count("eval") == 3 and "step" not in calls[calls.index("eval") :] and took_s <= 30.0
    assert forecast.duration_s.point == pytest.approx(10 * (100 * 0.1 + 1.0), rel=0.02)
    forecast, took_s = estimate(100.0)
    assert calls.count("eval") == 1 and took_s <= 30.0 + 100.0
    assert forecast.between_s.point == pytest.approx(1000.0)


def test_ranks_of_one_launch_are_refused(tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="2 processes train together"):
        explored(tmp_path, step_s=0.1)


@pytest.mark.slow
def test_an_exploration_is_a_prior_of_any_length(tmp_path):
    estimation, _, _ = explored(tmp_path / "explored", step_s=1e-3)

    def tracker(**arguments):
        return Tracker(log_dir=tmp_path / "tracked", verbose=0, clock=FakeClock(), meter=NullMeter(), **arguments)

    with tracker(epochs=100, prior=estimation) as same:
        assert same.forecast == estimation.forecast
    with tracker(epochs=300, prior=estimation) as longer:
        assert longer.forecast.plan.epochs == 300
        assert longer.forecast.duration_s.point == pytest.approx(3 * estimation.forecast.duration_s.point, rel=0.01)
    with tracker(total_steps=500, prior=estimation) as in_steps:
        assert in_steps.forecast.plan.steps == 500
        assert in_steps.forecast.duration_s.point == pytest.approx(0.5, rel=0.02)


def test_ctrl_c_keeps_the_trials_and_puts_everything_back(tmp_path):
    clock, model, calls = FakeClock(), nn.Linear(1, 1), itertools.count()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(model, batch, optimizer, criterion, device):
        clock.pass_s(0.01)
        with torch.no_grad():
            model.weight += 1.0
        if next(calls) > 1_500:
            raise KeyboardInterrupt

    estimator = Estimator(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        nn.MSELoss(),
        [torch.zeros(1)] * 1_000,
        100,
        1,
        clock=clock,
        meter=NullMeter(),
        log_dir=tmp_path,
        verbose=0,
        train_step=step,
    )
    with pytest.raises(KeyboardInterrupt):
        estimator.estimate()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    (run,) = read_logs(tmp_path).runs
    assert run.summary.status == "interrupted" and len({t.sample_size for t in run.trials}) >= 3
    assert forecast_from_log(run).duration_s.point == pytest.approx(1_000.0, rel=0.02)


def test_steps_are_optimizer_steps_where_gradients_are_accumulated(tmp_path):
    clock, model = FakeClock(), nn.Linear(1, 1)
    optimizer, calls = torch.optim.SGD(model.parameters(), lr=0.1), itertools.count(1)

    def step(model, batch, optimizer, criterion, device):
        clock.pass_s(0.01)
        if next(calls) % 4 == 0:
            optimizer.step()

    data = DataLoader(Stream(), 8)
    arguments = {"total_steps": np.int64(5_000), "train_step": step, "clock": clock, "meter": NullMeter()}
    estimation = Estimator(model, optimizer, nn.MSELoss(), data, log_dir=tmp_path, verbose=0, **arguments).estimate()
    forecast = estimation.forecast
    assert (forecast.plan.steps, forecast.plan.batches_per_step) == (5_000, 4)
    assert forecast.duration_s.point == pytest.approx(5_000 * 4 * 0.01, rel=0.02)
    again = forecast_from_log(read_logs(tmp_path).runs[0])
    assert again.duration_s.point == pytest.approx(forecast.duration_s.point, rel=1e-9)
    assert not optimizer._optimizer_step_post_hooks


def test_phases_of_the_training_are_explored_for_logged_and_forecast_again(tmp_path):
    phases = "500x64samples 500x128samples,eval_every=100,eval_s=30"
    estimation, *_ = explored(tmp_path, step_s=0.1, total_epochs=None, total_steps=None, phases=phases)
    forecast = estimation.forecast
    alike_s, grown_s = (part.duration_s for part in forecast.phases)
    assert alike_s.point == pytest.approx(50, rel=0.02)
    assert grown_s.lower < 500 * (0.02 + 0.16) < grown_s.upper
    assert forecast.between_s.point == 150
    (run,) = read_logs(tmp_path).runs
    assert run.text("phases") == phases and run.is_exploration
    assert forecast_from_log(run) == forecast
    assert explored_plan(run).with_length(steps=3000).phases == ()


def test_evaluations_of_the_phases_are_timed(tmp_path):
    phases = "5epochs 5epochs,eval_every=1"
    estimation, *_ = explored(tmp_path, step_s=0.1, total_epochs=None, phases=phases, eval_s=2.0)
    assert estimation.forecast.between_s.point == pytest.approx(10.0)


@pytest.mark.slow
def test_a_training_is_said_to_fit_its_time_limit_or_not(tmp_path, monkeypatch):
    """100 epochs of 100 steps of 10 ms, 100 s in all."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1")  # this job's: the training may be another
    loop = {"step_s": 0.01, "noise": 0.02, "budget_s": 30.0}
    none, *_ = explored(tmp_path, **loop)
    assert none.time_fit is None
    kept, *_ = explored(tmp_path, **loop, max_hours=1.0)
    assert kept.time_fit.probability > 0.99 and 3200 < kept.time_fit.longest <= 3600
    missed, *_ = explored(tmp_path, **loop, max_hours=50 / 3600)
    assert missed.time_fit.probability < 0.01 and 40 < missed.time_fit.longest <= 50
    never, *_ = explored(tmp_path, **loop, max_hours=0.5 / 3600)
    assert never.time_fit.longest == 0
    assert [run.amount("time_limit_s") for run in read_logs(tmp_path).runs] == [None] * 4


@pytest.mark.slow
def test_with_early_stopping_any_epoch_may_be_the_last_and_the_log_says_so_too(tmp_path):
    rule = StoppingRule("val_loss", patience=5)
    estimation, *_ = explored(tmp_path, step_s=0.01, stopping=rule)
    forecast, whole = estimation.forecast, estimation.forecast.without_stop
    assert forecast.expected_stop == unknown_stop(rule, 100)
    assert whole.duration_s.point == pytest.approx(100.0, rel=0.02)
    assert forecast.duration_s.lower < 10 < 90 < forecast.duration_s.upper
    assert whole.duration_s.relative_width < 0.1  # the exploration is as good as without
    again = forecast_from_log(Run(estimation.run_dir))
    assert dict(again.expected_stop.probabilities) == pytest.approx(dict(forecast.expected_stop.probabilities))
    assert again.duration_s.point == pytest.approx(forecast.duration_s.point)
    with pytest.raises(UsageError, match="counts epochs: give total_epochs, not steps"):
        explored(tmp_path, step_s=0.01, stopping=rule, total_steps=1000)
