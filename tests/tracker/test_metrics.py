"""``tracker.log_metric``: from the call to what a reader finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from fakes import make_tracker, only_run, train

from greenlove_tracker.integrations.training_adapter import TrainingAdapter
from greenlove_tracker.logs import metrics as metrics_module


def test_the_last_and_the_best_value_are_in_summary_and_log(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        tracker.log_metric("accuracy", 0.1)
        for accuracy, loss in ((0.5, 2.0), (0.93, 0.5), (0.9, 0.7)):
            train(tracker, clock, 1)
            tracker.log_metric("accuracy", accuracy)
            tracker.log_metric("val/loss", loss)
            tracker.log_metric("temperature", loss)
    run = only_run(tmp_path)
    assert run.summary == tracker.summary == run.added_up()
    accuracy, loss, temperature = (run.metrics[n] for n in ("accuracy", "val/loss", "temperature"))
    assert (accuracy.last, accuracy.best, accuracy.lowest, accuracy.n_values) == (0.9, 0.93, 0.1, 4)
    assert (loss.last, loss.best, loss.highest) == (0.7, 0.5, 2.0)
    assert (temperature.best, temperature.lowest, temperature.highest) == (None, 0.5, 2.0)
    values = [v for v in run.metric_values[0] if v.name == "accuracy"]
    assert [(v.epoch, v.value) for v in values] == [(None, 0.1), (1, 0.5), (2, 0.93), (3, 0.9)]
    assert run.problems == []


def test_a_value_within_an_epoch_knows_its_epoch_and_steps(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 1)
        tracker.epoch_start()
        tracker.step()
        tracker.step()
        tracker.log_metric("loss", 1)
    (value,) = only_run(tmp_path).metric_values[0]
    assert (value.epoch, value.steps_done, value.value) == (2, 2, 1.0)
    assert value.logged_at.startswith("2026-")


def test_who_logs_says_which_is_better(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        for value in (3.0, 1.0, 2.0):
            tracker.log_metric("energy score", value, higher_is_better=True)
            tracker.log_metric("accuracy", value, higher_is_better=False)
            tracker.log_metric("depth", value, higher_is_better=np.bool_(False))
    run = only_run(tmp_path)
    metrics = run.metrics
    assert [metrics[name].best for name in ("energy score", "accuracy", "depth")] == [3.0, 1.0, 1.0]
    assert len(run.metric_values[0]) == 9 and run.problems == []


def test_nan_and_infinities_are_kept_and_never_the_best(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        for value in (0.5, float("-inf"), 0.7, float("nan")):
            tracker.log_metric("loss", value)
        tracker.log_metric("broken loss", float("inf"))
    run = only_run(tmp_path)
    assert math.isnan(run.metrics["loss"].last)
    assert (run.metrics["loss"].best, run.metrics["loss"].highest, run.metrics["loss"].n_values) == (0.5, 0.7, 4)
    broken = run.metrics["broken loss"]
    assert (broken.last, broken.best, broken.lowest) == (math.inf, None, None)
    assert run.problems == []


@pytest.mark.parametrize(
    "value", [np.float32(0.5), np.array([0.5]), torch.tensor(0.5), torch.ones(1, requires_grad=True) / 2]
)
def test_scalars_of_numpy_and_torch_are_numbers(value, clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        tracker.log_metric("f1", value)
    assert only_run(tmp_path).metrics["f1"].last == 0.5


@pytest.mark.parametrize(("name", "value"), [("f1", "0.5"), ("f1", None), ("f1", np.ones(3)), ("", 0.5), (3, 0.5)])
def test_what_is_no_metric_is_warned_of_and_left_out(name, value, clock, tmp_path, caplog):
    with make_tracker(clock, tmp_path) as tracker:
        tracker.log_metric(name, value)
        tracker.log_metric(name, value)
    assert caplog.text.count("wants a name and one number") == 1
    assert only_run(tmp_path).metrics == {}
    assert not list(only_run(tmp_path).path.glob("metrics-*"))


def test_names_that_are_too_many_are_left_out(clock, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(metrics_module, "MAX_NAMES", 2)
    with make_tracker(clock, tmp_path) as tracker:
        for value in (1.0, 2.0, 0.5):
            tracker.log_metric("loss", value)
        tracker.log_metric("accuracy", 0.5)
        tracker.log_metric("one too many", 1.0)
    run = only_run(tmp_path)
    assert (run.metrics["loss"].best, run.metrics["loss"].n_values) == (0.5, 3)
    assert set(run.metrics) == {"loss", "accuracy"}
    assert "one too many and further ones" in caplog.text


def test_a_run_that_was_killed_has_its_metrics_and_a_torn_line_costs_itself(clock, tmp_path):
    tracker = make_tracker(clock, tmp_path)
    train(tracker, clock, 1)
    for value in (0.5, 0.6, 0.7):
        tracker.log_metric("accuracy", value)
    path = tracker.run_dir / "metrics-0.csv"
    path.write_bytes(path.read_bytes()[:-8])
    run = only_run(tmp_path)
    assert (run.metrics["accuracy"].best, run.metrics["accuracy"].n_values) == (0.6, 2)
    assert [p.message for p in run.problems if "metrics-0" in str(p.path)]
    tracker.stop()


def test_a_name_is_one_line_and_shows_no_secret(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        tracker.log_metric("accuracy,\n of hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", 0.5)
    (name,) = only_run(tmp_path).metrics
    assert name.startswith("accuracy, of ") and "abcdefgh" not in name
    assert b"abcdefgh" not in (only_run(tmp_path).path / "summary.csv").read_bytes()


def test_a_summary_without_a_part_of_a_metric_is_added_up_anew(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 1)
        tracker.log_metric("accuracy", 0.5)
    path = tracker.run_dir / "summary.csv"
    path.write_bytes(path.read_bytes().replace(b"metric.accuracy.lowest,0.5", b"metric.accuracy.lowest,x"))
    run = only_run(tmp_path)
    assert run.metrics["accuracy"].lowest == 0.5
    assert "added up from the rows instead: metric.accuracy.lowest" in run.problems[0].message


def test_a_log_from_before_metrics_reads_the_same(clock, tmp_path):
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 1)
    assert only_run(tmp_path).metrics == {} and only_run(tmp_path).summary.metrics == ()
    assert b"metric." not in (tracker.run_dir / "summary.csv").read_bytes()


def test_what_is_logged_after_the_end_is_warned_of(clock, tmp_path, caplog):
    tracker = make_tracker(clock, tmp_path)
    tracker.stop()
    tracker.log_metric("accuracy", 0.5)
    assert "log_metric() after stop()" in caplog.text


def test_the_adapter_of_the_frameworks_logs_the_numbers_among_what_it_is_given(clock, tmp_path):
    tracker = make_tracker(clock, tmp_path)
    adapter = TrainingAdapter("a framework", tracker, {}, stops="at once")
    adapter.log_metrics({"loss": torch.tensor(0.5), "name": "resnet", "shape": np.ones(2), "accuracy": 1})
    tracker.stop()
    adapter.log_metrics({"loss": 7.0})
    assert {n: m.last for n, m in only_run(tmp_path).metrics.items()} == {"loss": 0.5, "accuracy": 1.0}
