from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest
from fakes import make_tracker, session, tick, train

from greenlove_tracker import Tracker, read_logs
from greenlove_tracker.logs.forecasts import scored_forecasts
from greenlove_tracker.machine.job import find_ranks
from greenlove_tracker.meter import NullMeter, SimulatedMeter
from greenlove_tracker.settings.config import Settings, load_settings, time_limit
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import RunStatus


def forecast(**estimates) -> Forecast:
    known = {"energy_kwh": None, "emissions_kgco2e": None, "cost_usd": None, **estimates}
    seconds = Estimate(100.0, 90.0, 110.0, 0.95, "s")
    known.setdefault("duration_s", seconds)
    return Forecast(
        **known,
        one_off_s=seconds,
        per_epoch_s=seconds,
        per_batch_s=None,
        warnings=(),
        backtest_error=None,
        method="live",
        degrees_of_freedom=1,
        plan=None,
    )


@pytest.mark.parametrize(
    ("settings", "slurm_s", "limit_s", "source"),
    [
        ({"deadline_utc": "2026-11-22T06:00"}, 300.0, 200.0, "deadline"),
        ({"deadline_utc": "2026-11-22T06:00"}, 100.0, 100.0, "Slurm time limit"),
        ({"deadline_utc": "2026-11-22T06:00", "max_hours": 0.05}, 300.0, 180.0, "time limit"),
        ({"max_hours": 24.0}, 300.0, 300.0, "Slurm time limit"),
        ({"max_hours": 24.0}, None, 86400.0, "time limit"),
    ],
)
def test_of_several_time_limits_the_earliest_counts(settings, slurm_s, limit_s, source):
    env = {} if slurm_s is None else {"SLURM_JOB_END_TIME": f"{1_795_327_000 + slurm_s:.0f}"}
    limit = time_limit(Settings(**settings), 1_795_327_000.0, env)
    assert (limit.limit_s, limit.source) == (limit_s, source)


# -- in a tracker, at 360 W: 1 Wh an epoch of 10 s ---------------------------------------------------------------


def test_a_budget_that_will_be_overrun_is_warned_of_once(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, max_energy_kwh=0.015) as t:
        train(t, clock, 20)
    warnings = [r.getMessage() for r in caplog.records]
    assert len(warnings) == 1 and "energy will reach" in warnings[0] and "15.0 Wh" in warnings[0]
    assert t.summary.status == "finished"


def test_a_budget_that_holds_is_silent(clock, tmp_path, caplog):
    limits = {"max_energy_kwh": 0.03, "max_cost_usd": 1.0, "max_kgco2e": 1.0}
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, country="DE", **limits) as t:
        train(t, clock, 20)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"max_energy_kwh": 0.0003}, "energy is at 0.400 Wh, over the limit of 0.300 Wh"),
        ({"deadline_utc": "2026-09-21T14:13:23"}, "time is at 4.00 s, over the deadline after 3.00 s"),
        ({"max_energy_kwh": 0.0005, "deadline_utc": "2026-09-21T14:13:25"}, None),
    ],
)
def test_a_short_run_without_marked_epochs_is_told_that_it_passed_its_budget(clock, tmp_path, caplog, limit, says):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, **limit):
        clock.pass_s(4.0)
    assert [says in r.getMessage() for r in caplog.records] == ([] if says is None else [True])


def test_a_long_run_without_marked_epochs_is_told_while_it_runs(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, max_energy_kwh=0.0004):
        for _ in range(6):
            clock.pass_s(1.0)
            tick()
        assert len(caplog.records) == 1 and "energy is at 0.500 Wh" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("meter", "settings", "says"),
    [
        (NullMeter("none"), {"max_energy_kwh": 0.5}, "energy is unknown, so the limit of 500 Wh could not be checked"),
        (NullMeter("none"), {"max_kgco2e": 1.0}, "CO2e is unknown, so the limit of 1.00 kg could not be checked"),
        (None, {"max_cost_usd": 1.0}, "cost is unknown, so the limit of $1.00 could not be checked"),
        (None, {"max_cost_usd": 1.0, "electricity_price_usd_per_kwh": 0.1}, ""),
        (None, {"max_energy_kwh": 0.5, "max_kgco2e": 1.0}, ""),
    ],
)
def test_a_budget_that_could_not_be_checked_is_told_at_the_end(clock, tmp_path, caplog, meter, settings, says):
    with make_tracker(clock, tmp_path, meter=meter, **settings) as tracked:
        train(tracked, clock, 3)
    assert caplog.text.count("could not be checked") == bool(says) and says in caplog.text


def test_a_run_that_ended_within_its_budget_is_not_told_what_was_forecast(clock, tmp_path, caplog):
    prior = forecast(energy_kwh=Estimate(0.02, 0.018, 0.022, 0.95, "kWh"))
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, max_energy_kwh=0.01, prior=prior) as t:
        clock.pass_s(30.0)  # and no epoch and no tick that would compare the forecast with the budget
    assert t.forecast is prior and prior.energy_kwh.lower > 0.01
    assert caplog.records == []


def test_what_is_measured_stops_at_the_next_boundary_without_a_forecast(clock, tmp_path):
    with pytest.raises(BudgetExceeded), make_tracker(clock, tmp_path, max_energy_kwh=0.0015, on_overrun="stop") as t:
        while True:
            t.epoch_start()
            clock.pass_s(10.0)
            t.epoch_end()  # and no tick
    assert read_logs(tmp_path).runs[0].summary.epochs_done == 2


@pytest.mark.parametrize(
    "limit",
    [
        {"max_energy_kwh": 0.01},
        {"max_kgco2e": 0.004, "country": "DE"},
        {"max_cost_usd": 0.004, "country": "DE"},
        {"max_cost_usd": 0.08, "price_usd_per_gpu_hour": 2.0},
        {"deadline_utc": "2026-09-21T14:14:50"},  # the fake clock begins at 14:13:20
    ],
)
def test_stopping_comes_between_two_epochs_after_the_checkpoint(clock, tmp_path, limit):
    saved = []
    with (
        pytest.raises(BudgetExceeded, match=r"over the"),
        make_tracker(
            clock, tmp_path, on_overrun="stop", save_checkpoint=lambda: saved.append(clock.now_s), **limit
        ) as t,
    ):
        train(t, clock, 20)
    assert len(saved) == 1 and saved[0] % 10.0 == 0.0 and saved[0] < 200.0
    run = read_logs(tmp_path).runs[0]
    assert run.summary.status == "stopped" and run.summary.epochs_done == saved[0] / 10
    assert all(e.is_complete for e in run.epochs)
    assert scored_forecasts(run) == ()  # a run that stopped is not what was forecast


def test_a_script_under_greenlove_run_says_what_is_done_in_its_budgets(clock, tmp_path):
    meter = SimulatedMeter(clock, gpu_w=360.0)
    settings = load_settings({"log_dir": tmp_path, "verbose": 0})
    led = Session(settings, Plan(), find_ranks({}), clock, meter, mode=RunMode.RUNNER)
    with pytest.raises(BudgetExceeded), Tracker(epochs=20, max_energy_kwh=0.01, on_overrun="stop") as t:
        train(t, clock, 20)
    led.finish(RunStatus.FINISHED)
    (run,) = read_logs(tmp_path).runs
    assert 0 < run.summary.epochs_done < 20 and run.summary.status == "stopped"  # whatever the script did behind it
    assert run.summary.duration_s == clock.perf_s()


def test_a_deadline_sees_that_the_machine_was_suspended(clock, tmp_path, caplog):
    ends = datetime.fromtimestamp(clock.utc_s() + 3600.0, UTC).isoformat()
    with make_tracker(clock, tmp_path, deadline_utc=ends) as t:
        train(t, clock, 3)
        assert not caplog.text
        clock.wall_offset_s += 3500.0  # 130 s of training are left, and 70 s of time
        train(t, clock, 1)
    assert "over the deadline after 1 h" in caplog.text and "probability of over 99%" in caplog.text


def test_a_function_is_told_in_the_trainings_own_thread(clock, tmp_path):
    told = []
    with make_tracker(clock, tmp_path, max_energy_kwh=0.01, on_overrun=told.append) as t:
        train(t, clock, 20)
    (overrun,) = told
    assert overrun.quantity == "energy_kwh" and overrun.probability >= 0.9
    assert overrun.expected.point == pytest.approx(0.02, rel=0.05)


def test_what_the_users_function_raises_is_the_users(clock, tmp_path):
    def refuse(overrun):
        raise RuntimeError("mine")

    with (
        pytest.raises(RuntimeError, match="mine"),
        make_tracker(clock, tmp_path, max_energy_kwh=0.01, on_overrun=refuse) as t,
    ):
        train(t, clock, 20)


def test_a_training_in_steps_stops_at_a_step(clock, tmp_path):
    meter = SimulatedMeter(clock, gpu_w=360.0)
    arguments = {"max_energy_kwh": 0.01, "on_overrun": "stop", "verbose": 0, "log_dir": tmp_path}
    with pytest.raises(BudgetExceeded), Tracker(total_steps=200, clock=clock, meter=meter, **arguments) as t:
        for _ in range(200):
            clock.pass_s(1.0)
            t.step()
            tick()
    assert 0 < read_logs(tmp_path).runs[0].summary.counts.steps < 200


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"max_energy_kwh": -1.0}, "max_energy_kwh"),
        ({"overrun_probability": 1.5}, "between 0 and 1"),
        ({"on_overrun": "explode"}, "on_overrun"),
        ({"save_checkpoint": 3}, "save_checkpoint"),
        ({"prior": "yesterday"}, "prior"),
        ({"deadline_utc": "soon"}, "deadline_utc"),
        ({"max_hours": float("inf")}, "max_hours"),
    ],
)
def test_bad_budgets_are_clear_errors(clock, tmp_path, bad, message):
    with pytest.raises(UsageError, match=message):
        make_tracker(clock, tmp_path, **bad)


def test_no_budget_acts_on_what_may_be_a_cold_start(clock, tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING),
        make_tracker(clock, tmp_path, deadline_utc="2026-09-21T14:23:20", on_overrun="stop") as t,
    ):
        train(t, clock, 1, epoch_s=120.0)  # twelve times as long as the others: 310 s in all, of 600 s
        train(t, clock, 19)
    assert t.summary.status == "finished" and caplog.records == []


def test_a_function_that_stops_the_tracker_ends_it_quietly(clock, tmp_path):
    tracker = make_tracker(clock, tmp_path, max_energy_kwh=0.01, on_overrun=lambda overrun: tracker.stop())
    train(tracker, clock, 2)
    tracker.epoch_start()
    assert tracker.summary is not None and tracker.summary.epochs_done == 2


def test_a_deadline_that_has_passed_is_said(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, deadline_utc="2020-01-01T00:00") as tracker:
        train(tracker, clock, 2)
    assert "the deadline had passed before the run began" in caplog.text


# -- does it fit its time limit? ----------------------------------------------------------------------------------


@pytest.fixture
def no_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)


def test_the_log_keeps_the_limit(clock, tmp_path, no_slurm):
    with make_tracker(clock, tmp_path, max_hours=2.0) as tracker:
        train(tracker, clock, 1)
    run = read_logs(tmp_path).runs[0]
    assert (run.amount("time_limit_s"), run.text("time_limit_source")) == (7200.0, "time limit")


def test_the_hours_of_a_job_count_from_its_own_start(clock, tmp_path, no_slurm):
    meter = SimulatedMeter(clock, gpu_w=360.0)
    settings = load_settings({"log_dir": tmp_path, "verbose": 0, "max_hours": 0.1})
    job = Session(settings, Plan(), find_ranks({}), clock, meter, mode=RunMode.RUNNER)
    clock.pass_s(260.0)
    with Tracker(epochs=2) as tracker:
        assert session().state.limits["duration_s"] == pytest.approx(360.0) and session().state.elapsed_s == 260.0
        train(tracker, clock, 2, epoch_s=60.0)
    with Tracker(epochs=2, clock=clock, meter=meter):  # another run, whose hours count from its own start
        assert session().state.limits["duration_s"] == pytest.approx(360.0)
    session().finish(RunStatus.FINISHED)
    assert job.state.is_finished


def test_an_exploration_has_no_time_limit_of_its_own(clock, tmp_path, caplog, no_slurm):
    settings = load_settings({"log_dir": tmp_path, "verbose": 0, "max_hours": 0.001})
    meter = SimulatedMeter(clock, gpu_w=360.0)
    run = Session(settings, Plan(), find_ranks({}), clock, meter, mode=RunMode.EXPLORATION)
    clock.pass_s(60.0)
    run.tick()
    run.finish(RunStatus.FINISHED)
    assert caplog.text == ""
