from __future__ import annotations

import pytest
from report_samples import cpu_energy, demo_run, epoch_row, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.rendering.document import Paragraph, Table
from greenlove_tracker.report.build import document
from greenlove_tracker.report.run_report import rank_blocks, rank_times, ranks_sentence
from greenlove_tracker.vocabulary.records import Flag


def ranks(logs, *by_rank, first_epochs=None) -> Run:
    """A run whose ranks have epochs of these durations."""
    rows = [epoch_row(i, s, cpu_energy(s)) for i, s in enumerate(by_rank[0], 1)]
    run = write_run(logs, rows, fields={"world_size": str(len(by_rank))})
    for rank, durations_s in enumerate(by_rank[1:], 1):
        begin = (first_epochs or {}).get(rank, 1)
        writer = RunWriter(run.path, rank, [], on_error=lambda error: None)
        for i, duration_s in enumerate(durations_s, begin):
            writer.write_row(epoch_row(i, duration_s, flags=[Flag.NO_METER]))
        writer.close(None)
    return Run(run.path)


def test_the_slowest_is_named_with_how_far_it_is_behind(tmp_path):
    run = ranks(tmp_path, [10.0, 10.0], [10.0, 11.0], [12.0, 13.0], [10.0, 10.0])
    assert rank_times(run) == [(0, 2, 10), (1, 2, 10.5), (2, 2, 12.5), (3, 2, 10)]
    assert ranks_sentence(run) == "rank 2 is behind: 12.5 s an epoch, 22% more than the median rank"
    _, text, bars = rank_blocks(run)
    assert isinstance(text, Paragraph) and isinstance(bars, Table)
    assert text.text == "Rank 2 is behind: 12.5 s an epoch, 22% more than the median rank."
    assert [row[0] for row in bars.rows] == ["rank 2", "rank 1", "rank 0", "rank 3"]
    assert "Ranks" in [getattr(block, "text", "") for block in document(run.path).blocks]


def test_ranks_are_compared_over_the_epochs_that_all_finished(tmp_path):
    # the first epoch is slow for all; rank 1 begins late, rank 2 is killed early
    run = ranks(tmp_path, [50.0, 10.0, 10.0, 10.0], [10.0, 10.0, 10.0], [55.0, 11.0], first_epochs={1: 2})
    assert rank_times(run) == [(0, 4, 10.0), (1, 3, 10.0), (2, 2, 11.0)]


@pytest.mark.parametrize("finishes", [True, False])
def test_one_rank_has_nobody_to_be_compared_with(tmp_path, finishes):
    run = demo_run(tmp_path) if finishes else ranks(tmp_path, [10.0], [])
    assert not list(rank_blocks(run)) and ranks_sentence(run) == ""
