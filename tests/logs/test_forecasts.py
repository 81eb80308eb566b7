"""The log of forecasts, and its scoring."""

from __future__ import annotations

import dataclasses

import pytest
from conftest import epoch_row
from fakes import FakeClock, tick
from report_samples import issued, write_forecasts

from greenlove_tracker import Tracker
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.forecasts import Scored, headline, scored_forecasts
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import FORECASTS
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.stopping import ExpectedStop, StoppingRule, unknown_stop


def scores_of(make_run, forecasts, duration_s, quantity="duration_s", n_epochs=20):
    """The scores of forecasts of a run of 20 epochs, or so many, that took so long and metered nothing."""
    rows = [epoch_row(n + 1, None, duration_s / n_epochs) for n in range(n_epochs)]
    run = Run(make_run(rows=rows))
    write_forecasts(run, *forecasts)
    run.summary = dataclasses.replace(run.summary, epochs_planned=n_epochs)
    return scored_forecasts(run, quantity)


def test_scores(make_run):
    held, missed = scores_of(make_run, [issued(), issued(point=30.0)], 20.5)
    assert (held.has_held, missed.has_held) == (True, False)
    assert held.error == pytest.approx(20 / 20.5 - 1) and missed.error == pytest.approx(30 / 20.5 - 1)


@pytest.mark.parametrize("has_estimate", [False, True])
def test_what_was_not_forecast_or_is_not_known_has_no_score(make_run, has_estimate):
    more = {"energy_kwh": Estimate(1.0, 0.9, 1.1, 0.95, "kWh")} if has_estimate else {}
    assert not scores_of(make_run, [issued(**more)], 20.0, "energy_kwh")


@pytest.mark.parametrize(("n_epochs", "n_scores"), [(20, 1), (40, 0)])
def test_a_forecast_of_another_training_in_the_same_run_has_no_score(make_run, n_epochs, n_scores):
    assert len(scores_of(make_run, [issued()], 20.5, n_epochs=n_epochs)) == n_scores


def test_the_forecast_at_a_tenth_of_the_run_is_shown_and_else_the_last(make_run):
    forecasts = [issued(1.0), issued(2.1, warnings=["FEW"]), issued(2.5), issued(9.0)]
    scores = scores_of(make_run, forecasts, 20.0)
    assert headline(scores) is scores[2]
    assert headline(scores[:1]) is scores[0] and headline([]) is None
    assert Scored(
        issued(), issued().estimates["duration_s"], 19.0, 19.0
    ).has_held  # the end of an interval belongs to it


@pytest.mark.slow
def test_a_run_scores_its_forecasts_against_its_summary(tmp_path):
    clock = FakeClock()
    with Tracker(
        epochs=10, log_dir=tmp_path, verbose=0, clock=clock, meter=SimulatedMeter(clock, gpu_w=360.0)
    ) as tracker:
        for _ in range(10):
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
            tick()
    run = read_logs(tmp_path).runs[0]
    assert [f.epochs_done for f in run.forecasts] == list(range(1, 10))
    assert run.problems == []
    scores = scored_forecasts(run)
    assert all(s.has_held and s.outcome == 100.0 for s in scores)
    assert abs(scores[-1].error) < 0.01
    energies = scored_forecasts(run, "energy_kwh")
    assert energies[0].outcome == pytest.approx(0.01) and energies[-1].has_held


@pytest.mark.parametrize("ending", ["stopped early", "interrupted"])
def test_a_run_that_did_not_do_what_was_forecast_is_not_scored(make_run, ending):
    run_dir = make_run(
        rows=[epoch_row(1), epoch_row(2)], fields={"epochs_planned": "5"}, is_closed=ending != "interrupted"
    )
    run = Run(run_dir)
    run.summary = dataclasses.replace(run.summary, epochs_planned=5)
    assert run.units_done is None and scored_forecasts(run) == ()
    run.summary = dataclasses.replace(run.summary, epochs_planned=2, status="finished")
    assert run.units_done == 2


def test_a_damaged_log_of_forecasts_is_told_and_the_rest_kept(make_run):
    run_dir = make_run()
    lines = [FORECASTS.columns, FORECASTS.cells(issued()), ["nonsense"] * len(FORECASTS.columns)]
    (run_dir / "forecasts.csv").write_text("".join(",".join(line) + "\n" for line in lines), encoding="utf-8")
    run = Run(run_dir)
    assert len(run.forecasts) == 1
    assert "line 3 left out" in str(run.problems[0])


def test_energy_of_several_nodes_is_not_scored_against_the_forecast_of_the_first(make_run):
    run_dir = make_run(fields={"epochs_planned": "2"})
    forecast = issued(energy_kwh=Estimate(0.1, 0.09, 0.12, 0.95, "kWh"))
    (run_dir / "forecasts.csv").write_bytes(FORECASTS.lines([forecast]))
    run = Run(run_dir)
    run.summary = dataclasses.replace(run.summary, epochs_planned=20, epochs_done=20, n_nodes=2)
    assert len(scored_forecasts(run)) == 1 and not scored_forecasts(run, "energy_kwh")


@pytest.mark.parametrize("most_epochs", [7, 47, 1000])
def test_an_expected_stop_is_read_as_it_was_written(most_epochs):
    rule = StoppingRule("val_loss", patience=5)
    stop = unknown_stop(rule, most_epochs)
    again = ExpectedStop.parse(stop.text)
    assert (again.most_epochs, again.basis) == (most_epochs, stop.basis)
    assert [k for k, _ in again.probabilities] == [k for k, _ in stop.probabilities]
    assert again.probability_of_none == pytest.approx(stop.probability_of_none)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "5:x none=0 most=5 basis=a", "5:0 none=0 most=5 basis=a", "5:1 none=0"]
)
def test_a_damaged_expected_stop_is_refused(text):
    with pytest.raises(UsageError, match=r"run\.csv is damaged"):
        ExpectedStop.parse(text)
