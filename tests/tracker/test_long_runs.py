"""Runs of days and of very many epochs: their logs grow with the time, not with the looks at it, and are read whole."""

from __future__ import annotations

import os
import shutil
import tracemalloc

import pytest
from fakes import FakeClock, make_tracker, session, tick, train

from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.units import kwh_from_w_s

LIMITS = {"max_energy_kwh": 1e6, "max_hours": 1e6}


def killed(tracker, tmp_path) -> Run:
    """The log as kill -9 would leave it now."""
    left = shutil.copytree(tracker.run_dir, tmp_path / "left")
    for file in left.iterdir():
        os.utime(file, (1e9, 1e9))
    return Run(left)


@pytest.mark.slow_cases
@pytest.mark.parametrize(("limits", "n_days", "look_s"), [(LIMITS, 1, 10.0), ({}, 1, 10.0), (LIMITS, 30, 60.0)])
def test_a_run_of_days_has_a_row_a_minute_with_a_budget_too(tmp_path, limits, n_days, look_s, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    clock, days_s = FakeClock(), n_days * 86_400.0
    with make_tracker(clock, tmp_path / "logs", epochs=2, **limits) as tracker:
        tracker.epoch_start()
        for _ in range(int(days_s / look_s)):
            clock.pass_s(look_s)
            tick()
        clock.pass_s(55.0)
        tick()
        run = killed(tracker, tmp_path)
        assert len(run.rows[0]) == days_s / 60
        assert run.summary.duration_s == pytest.approx(days_s) and run.problems == []
        assert run.summary.energy_kwh == pytest.approx(kwh_from_w_s(360.0, days_s))
        used_kwh = session().recorder.metered_kwh
        assert used_kwh == pytest.approx(kwh_from_w_s(360.0, days_s + 55.0 * bool(limits)))  # as the budget is told


@pytest.mark.slow
def test_a_run_of_very_many_epochs_keeps_none_of_them_and_loses_none(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    clock, n_epochs = FakeClock(), 3000
    with make_tracker(clock, tmp_path / "logs", epochs=1_000_000) as tracker:
        train(tracker, clock, 1000, epoch_s=0.01)
        tracemalloc.start()
        train(tracker, clock, n_epochs - 1000, epoch_s=0.01)
        kept_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        run = killed(tracker, tmp_path)
        assert len(run.rows[0]) == run.summary.epochs_done == n_epochs
    assert kept_bytes < 100 * n_epochs  # a row takes 700
    assert tracker.summary.epochs_done == n_epochs
