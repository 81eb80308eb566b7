"""Sessions on a fake clock, through the tracker: what is not the training's, the final screen, the price, ranks."""

from __future__ import annotations

import pytest
from fakes import ScriptedMeter, make_tracker, train

from greenlove_tracker import read_logs
from greenlove_tracker.logs.forecasts import scored_forecasts
from greenlove_tracker.meter import MeterInfo
from greenlove_tracker.vocabulary.records import Energy, Field


def test_what_is_not_the_trainings_time_is_in_no_score(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs_before_pred=2, country="DE") as tracker:
        for number in range(20):
            train(tracker, clock, 1)
            clock.pass_s(1.0)  # an evaluation, behind the last epoch too
            if number == 10:
                clock.wall_offset_s += 7200.0  # the machine is suspended
        clock.pass_s(5000.0)  # and what a script does in its with block when the training is over
    run = read_logs(tmp_path).runs[0]
    assert run.summary.duration_s == pytest.approx(20 * 11 + 5000)
    scores = scored_forecasts(run)
    assert {round(s.outcome, 6) for s in scores} == {220.0}
    energy = scored_forecasts(run, "energy_kwh")
    assert energy[-1].outcome == pytest.approx(0.36 * 220 / 3600, rel=1e-6)
    assert len(scores) > 10 and all(abs(s.error) < 0.02 for s in scores if s.issued.epochs_done > 1)


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
    assert run.added_up() == run.summary and run.electricity_price is not None


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
