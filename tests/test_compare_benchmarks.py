"""The benchmarks of comparisons: their schedule, and what they take from recordings, on small ones made here."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def coverage(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compare_coverage")


@pytest.fixture
def records(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compare_records")


def write_recordings(folder: Path) -> None:
    """Three records of three runs each, of which one mixes codes, and runs that were logged each tenth step."""
    rng = np.random.default_rng(1)
    totals = {"2025-01": (100.0, 100.4, 99.7), "2025-02": (100.0, 100.4, 700.0), "2025-03": (90.0, 90.3, 89.8)}
    runs = ["run,track,record,steps,steps_logged,total_s,phases_steps_x_tokens"]
    times = ["run,step,elapsed_ms"]
    for number, (record, total_s) in enumerate((r, t) for r, three in totals.items() for t in three):
        runs.append(f"d{number},track_1_short,{record},500,40,{total_s},")
        elapsed_ms = itertools.accumulate(rng.normal(1000.0, 5.0, 40))
        times += [f"d{number},{10 * i + 10},{ms:.0f}" for i, ms in enumerate(elapsed_ms)]
    times += [line.replace("d0,", "copy,") for line in times if line.startswith("d0,")]
    (folder / "nanogpt_runs.csv").write_text("\n".join(runs))
    (folder / "nanogpt_times.csv").write_text("\n".join(times))


@pytest.mark.parametrize(("n_techniques", "n_blocks"), [(1, 10), (4, 3)])
def test_each_second_block_mirrors_the_one_before(coverage, n_techniques, n_blocks):
    order, size = coverage.mirrored(n_techniques, n_blocks, np.random.default_rng(1))
    blocks = [order[i : i + size] for i in range(0, len(order), size)]
    assert len(blocks) == n_blocks
    assert all(len(set(block)) == size == n_techniques + 1 for block in blocks)
    assert all(mirror == block[::-1] for block, mirror in zip(blocks[::2], blocks[1::2], strict=False))


def test_each_kind_of_noise_makes_a_comparison(coverage):
    for noise in coverage.SCENARIOS.values():
        tally = coverage.tally(noise, 4, 4, 2)
        assert (len(tally.held), len(tally.found)) == (2, 2)


def test_records_of_one_code_are_compared_in_order(records, tmp_path):
    write_recordings(tmp_path)
    assert list(records.records_of(tmp_path)) == ["2025-01", "2025-03"]
    table, thirds, signs = records.pairs_table(records.records_of(tmp_path))
    assert "| 2025-01 | 2025-03 | 0.9000 | 0.9000 |" in table
    assert "| saves |" in table
    assert (len(thirds), len(signs), all(signs)) == (9, 9, True)


def test_a_copied_log_counts_once_and_less_time_is_found(records, tmp_path):
    write_recordings(tmp_path)
    stretches = records.stretches_of(tmp_path)
    assert len(stretches) == 9
    fit = records.halves(stretches["d0"], 24, 0.05)
    assert fit.ratios["same"].upper < 1
    assert records.holds(records.halves(stretches["d0"], 24), "same", 1.0)
