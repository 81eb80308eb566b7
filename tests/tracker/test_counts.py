"""What ``step()`` counts, whatever a loop counts with: the log holds whole numbers, and every epoch its energy."""

from __future__ import annotations

import math

import numpy
import pytest
from fakes import make_tracker

from greenlove_tracker import read_logs

torch = pytest.importorskip("torch")
LEFT_OUT = "is no whole number from 0 up"


def epochs_of(clock, tmp_path, counts, **arguments):
    with make_tracker(clock, tmp_path, epochs=2, **arguments) as tracker:
        for _ in range(2):
            tracker.epoch_start()
            for count in counts():
                clock.pass_s(1.0)
                tracker.step(n_tokens=count)
            tracker.epoch_end()
    epochs = read_logs(tmp_path).runs[0].epochs
    assert [epoch.energy.total_kwh for epoch in epochs] == [pytest.approx(len(list(counts())) * 1e-4)] * 2
    return [epoch.tokens for epoch in epochs]


def reused(tensor, values=(512, 50, 50)):
    """Give the same tensor again and again, with another value in it."""
    for value in values:
        tensor.fill_(value)
        yield tensor


@pytest.mark.parametrize(
    ("counts", "whole"),
    [
        (lambda: [numpy.int32(2_000_000_000)] * 2, 4_000_000_000),
        (lambda: [torch.tensor(2_000_000_000, dtype=torch.int32)] * 2, 4_000_000_000),
        (lambda: [torch.tensor(8192.0, dtype=torch.bfloat16)] * 3000, 24_576_000),
        (lambda: [torch.tensor(200, dtype=torch.uint8)] * 20, 4_000),
        (lambda: [numpy.array([7]), 64.0, True], 72),
        (lambda: reused(torch.zeros((), dtype=torch.int64)), 612),
    ],
)
def test_counts_add_up_whatever_holds_them(clock, tmp_path, caplog, counts, whole):
    assert epochs_of(clock, tmp_path, counts) == [whole, whole]
    assert not caplog.records


@pytest.mark.parametrize(
    "bad",
    [-1, 2.5, math.nan, math.inf, 10**20, "many", numpy.array([1, 2]), torch.tensor(-1)],
)
def test_what_is_no_count_is_left_out_with_one_warning(clock, tmp_path, caplog, bad):
    assert epochs_of(clock, tmp_path, lambda: [5, bad, bad, 6]) == [11, 11]
    assert [LEFT_OUT in record.message for record in caplog.records] == [True]


def test_a_number_alone_counts_samples(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=1) as tracker:
        tracker.epoch_start()
        tracker.step(32)
        tracker.step(32)
        tracker.epoch_end()
    (epoch,) = read_logs(tmp_path).runs[0].epochs
    assert (epoch.steps, epoch.samples) == (2, 64)
