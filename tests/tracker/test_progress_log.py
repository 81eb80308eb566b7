from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import epoch_row

from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.tracker.forecaster import ProgressLog
from greenlove_tracker.vocabulary.records import Flag, RowKind


def test_energy_so_far_is_estimated_where_it_was_not_metered_and_has_the_pue():
    log = ProgressLog()
    log.energy_factor = 1.5
    log.add_row(epoch_row(1, kwh=None))
    assert log.in_epochs(4).used_kwh is None
    log.add_row(epoch_row(2, kwh=0.001))
    progress = log.in_epochs(4)
    assert progress.used_kwh == pytest.approx(2 * 0.0015)
    assert progress.metered == ((10.0, pytest.approx(0.0015 * 3.6e6 / 10)),)


def test_energy_of_an_open_epoch_is_not_counted_twice():
    log = ProgressLog()
    log.add_row(epoch_row(1, kwh=0.001))
    log.add_row(epoch_row(2, 0.001, 10.0, RowKind.SEGMENT))
    assert log.in_epochs(4).used_kwh == pytest.approx(0.001)


@pytest.mark.slow
def test_a_forecast_after_80_000_epochs_is_made_from_as_little_as_after_80():
    rng = np.random.default_rng(5)
    for n in (80, 80_000):
        log = ProgressLog()
        log.add_row(replace(epoch_row(1, None, 0.5, RowKind.EPOCH, Flag.LOADING), gap_before_s=3.0))
        for duration_s in rng.normal(0.01, 0.0005, n - 1):
            log.add_row(replace(epoch_row(2, 0.1 * duration_s / 3600, float(duration_s)), gap_before_s=0.001))
        progress = log.in_epochs(2 * n)
        assert (progress.done_units, sum(b.units for b in progress.blocks)) == (n, n)
        assert progress.blocks[0].is_cold and not any(b.is_cold for b in progress.blocks[1:])
        assert len(progress.blocks) <= 513 and len(progress.metered) <= 513
        assert progress.elapsed_s == pytest.approx(log._rows_s)
        forecast = forecast_run(progress)
    truth_s = progress.elapsed_s + 80_000 * 0.011
    assert forecast.duration_s.point == pytest.approx(truth_s, rel=0.005)
    assert forecast.energy_kwh.point == pytest.approx(truth_s * 0.1 / 3600, rel=0.01)
