"""Sessions on a fake clock, through the tracker: monitored epochs, the question, the final screen."""

from __future__ import annotations

import io
import logging

import pytest
from fakes import ScriptedMeter, make_tracker, train

from greenlove_tracker import console, read_logs
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.forecasts import scored_forecasts
from greenlove_tracker.logs.run_rows import verify
from greenlove_tracker.meter import MeterInfo
from greenlove_tracker.records import Energy, Field


def test_the_run_is_closed_after_the_monitored_epochs_and_the_training_goes_on(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=5, monitor_epochs=2) as tracker:
        train(tracker, clock, 2)
        assert tracker.summary is not None
        for _ in range(3):
            tracker.epoch_start()
            tracker.step()
            clock.pass_s(10.0)
            tracker.epoch_end()
    run = read_logs(tmp_path).runs[0]
    assert (run.summary.epochs_done, run.summary.status, run.summary.duration_s) == (2, "finished", 20.0)


def test_a_run_that_was_stopped_by_hand_warns_of_further_epochs(clock, tmp_path, caplog):
    tracker = make_tracker(clock, tmp_path, epochs=5)
    train(tracker, clock, 1)
    tracker.stop()
    train(tracker, clock, 2)
    assert caplog.text.count("after stop") == 1 and tracker.summary.epochs_done == 1


@pytest.mark.parametrize("bad", [{"monitor_epochs": 0}, {"monitor_epochs": 1, "epochs_before_pred": 3}])
def test_bad_numbers_of_epochs_are_value_errors(clock, tmp_path, bad):
    with pytest.raises(UsageError, match="monitor_epochs"):
        make_tracker(clock, tmp_path, **bad)
    assert issubclass(UsageError, ValueError)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer, goes_on", [("y\n", True), ("what?\nY\n", True), ("n\n", False)])
def test_it_asks_whether_to_go_on(clock, tmp_path, monkeypatch, answer, goes_on):
    screen = Terminal()
    monkeypatch.setattr(console.sys, "stdin", Terminal(answer))
    monkeypatch.setattr(console.sys, "stderr", screen)
    tracker = make_tracker(clock, tmp_path, epochs_before_pred=2, stop_and_confirm=True)
    train(tracker, clock, 1)
    assert "Continue" not in screen.getvalue()
    if goes_on:
        train(tracker, clock, 2)
        tracker.stop()
    else:
        with pytest.raises(SystemExit) as ended:
            train(tracker, clock, 1)
        assert ended.value.code == 0
    assert "epoch 2/20 · 20.0 s · ends " in screen.getvalue() and "Continue training? [y/n]" in screen.getvalue()
    summary = read_logs(tmp_path).runs[0].summary
    assert (summary.epochs_done, summary.status) == ((3, "finished") if goes_on else (2, "stopped"))


def test_without_a_terminal_to_ask_on_training_goes_on(clock, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), make_tracker(clock, tmp_path, stop_and_confirm=True) as tracker:
        train(tracker, clock, 3)
    assert "no terminal" in caplog.text and tracker.summary.epochs_done == 3


def test_waiting_for_an_answer_is_not_extrapolated(clock, tmp_path, monkeypatch):
    def answer_late(question):
        clock.pass_s(600.0)
        return True

    monkeypatch.setattr("greenlove_tracker.console.can_ask", lambda: True)
    monkeypatch.setattr("greenlove_tracker.console.confirm", answer_late)
    with make_tracker(clock, tmp_path, epochs_before_pred=2, stop_and_confirm=True) as tracker:
        train(tracker, clock, 5)
        assert tracker.forecast.duration_s.point == pytest.approx(800.0, rel=0.01)


def test_what_is_not_the_trainings_time_is_in_no_score(clock, tmp_path, monkeypatch):
    def answer_late(question):
        clock.pass_s(600.0)
        return True

    monkeypatch.setattr("greenlove_tracker.console.can_ask", lambda: True)
    monkeypatch.setattr("greenlove_tracker.console.confirm", answer_late)
    with make_tracker(clock, tmp_path, epochs_before_pred=2, stop_and_confirm=True, country="DE") as tracker:
        for number in range(20):
            train(tracker, clock, 1)
            clock.pass_s(1.0)  # an evaluation, behind the last epoch too
            if number == 10:
                clock.wall_offset_s += 7200.0  # the machine is suspended
        clock.pass_s(5000.0)  # and what a script does in its with block when the training is over
    run = read_logs(tmp_path).runs[0]
    assert run.summary.duration_s == pytest.approx(20 * 11 + 600 + 5000)
    scores = scored_forecasts(run)
    assert {round(s.outcome, 6) for s in scores} == {820.0}  # with the wait for the answer
    energy = scored_forecasts(run, "energy_kwh")
    assert energy[-1].outcome == pytest.approx(0.36 * 820 / 3600, rel=1e-6)
    knew_of_it = [s for s in scores if s.issued.elapsed_s > 600.0]
    assert len(knew_of_it) > 10 and all(abs(s.error) < 0.02 for s in knew_of_it)


def test_the_final_screen_says_how_the_forecast_came_out(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 20)
    err = " ".join(capsys.readouterr().err.split())
    assert "Forecast after 2 epochs: 3 min 2" in err and "3 min 20 s ~" in err


class WithoutGpus(ScriptedMeter):
    """Finds a GPU that it cannot measure."""

    def start(self):
        info = super().start()
        return MeterInfo((*info.fields, Field("unmeasured", "gpu ram")), info.gpu_count)


def test_what_is_measured_without_the_gpus_has_no_price(clock, tmp_path):
    readings = [Energy(cpu_kwh=0.001, cpu_method="tdp_model")] * 20
    cases = [
        ("a", ScriptedMeter, {"country": "DE"}),
        ("b", WithoutGpus, {"country": "DE"}),
        ("c", WithoutGpus, {"price_usd_per_gpu_hour": 2.0}),
    ]
    costs, trackers = [], []
    for name, meter, given in cases:
        tracker = make_tracker(clock, tmp_path / name, epochs=4, meter=meter(list(readings)), **given)
        train(tracker, clock, 2)
        assert tracker.forecast.energy_kwh is not None
        costs.append(tracker.forecast.cost_usd is None)
        train(tracker, clock, 2)
        tracker.stop()
        trackers.append(tracker)
    known, half, rented = trackers
    assert costs == [False, True, False]
    assert known.summary.cost_basis == "electricity" and known.summary.cost_usd > 0
    assert (half.summary.cost_usd, half.summary.energy_kwh) == (None, known.summary.energy_kwh)
    assert rented.summary.cost_basis == "machine"
    (run,) = read_logs(tmp_path / "b").runs
    assert verify(run) == [] and run.electricity_price is not None


def test_of_many_ranks_whichever_ends_last_writes_the_totals_of_all(clock, tmp_path, monkeypatch):
    launch = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "many", "MASTER_PORT": "1"}
    trackers = []
    for rank in (0, 1):
        for name, value in {**launch, "RANK": f"{rank}", "LOCAL_RANK": f"{rank}"}.items():
            monkeypatch.setenv(name, value)
        with make_tracker(clock, tmp_path) as tracker:
            tracker.epoch_start()
            tracker.step(n_samples=5)
            tracker.epoch_end()
        trackers.append(tracker)
    assert trackers[0].run_dir == trackers[1].run_dir
    lines = (trackers[0].run_dir / "summary.csv").read_text().splitlines()
    assert "samples,10," in lines and "n_ranks,2," in lines
