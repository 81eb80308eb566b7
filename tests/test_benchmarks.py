"""The yardsticks of the benchmarks: how forecasts are judged, damaged logs, seeded faults; no training is run here."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compare_explorations")


@pytest.mark.parametrize(
    "point, error", [(20, 0), (22, 0), (25, 0), (30, 0.2), (15, 0.25), (0, 1.0)], ids=lambda value: f"{value:g}"
)
def test_an_error_is_counted_from_the_nearer_end_and_not_inside(bench, point, error):
    assert bench.error_outside(point, 20, 25) == pytest.approx(error)
    assert bench.error_outside(point, 25, 20) == pytest.approx(error)


def test_the_bootstrap_is_of_the_mean_and_repeats(bench):
    same = bench.bootstrapped([-0.1] * 8)
    assert [same.mean, same.lower, same.upper] == pytest.approx([-0.1] * 3)
    spread = bench.bootstrapped([-0.3, -0.1, 0.0, 0.1] * 25)
    assert spread == bench.bootstrapped([-0.3, -0.1, 0.0, 0.1] * 25)
    assert spread.lower < spread.mean < spread.upper and spread.mean == pytest.approx(-0.075)
    standard_error = 0.1479 / 100**0.5  # of these four values, each as often
    assert spread.upper - spread.lower == pytest.approx(2 * 1.96 * standard_error, rel=0.05)


@pytest.fixture
def fuzzer(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fuzz_logs")


@pytest.mark.slow
def test_damaged_logs_neither_crash_nor_hang_nor_give_numbers_that_nobody_doubts(fuzzer):
    tallies = fuzzer.fuzz(3000, seed=3)
    assert set(tallies) == {"ours", "carbontracker", "CodeCarbon"}
    assert [tally.examples for tally in tallies.values() if tally.failures] == []
    assert sum(t.inputs for t in tallies.values()) == 3000 and all(t.noticed > 50 for t in tallies.values())
    assert "3,000 damaged logs, 0 failures" in fuzzer.report(tallies)


@pytest.mark.slow
def test_the_fuzzer_finds_a_reader_that_believes_everything(fuzzer, monkeypatch):
    from greenlove_tracker.logs import schema

    monkeypatch.setattr(schema, "_is_number", lambda text: True)
    monkeypatch.setattr(schema, "_are_close", lambda a, b: True)
    tallies = fuzzer.fuzz(3000, seed=3)
    assert tallies["ours"].count("unnoticed") > 0


def test_each_seeded_fault_is_one_line_of_the_package_and_names_tests_that_are_there(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    faults = importlib.import_module("seeded_faults")
    assert [(fault.file, fault.text) for fault in faults.FAULTS if faults.occurrences(fault) != 1] == []
    named = {Path(test.partition("::")[0]) for fault in faults.FAULTS for test in fault.tests}
    assert len(faults.FAULTS) == 60 and all((BENCHMARKS.parent / path).exists() for path in named)
