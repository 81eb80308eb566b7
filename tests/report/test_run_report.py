"""The report of one run: the same whenever it is made, and one pass over its files."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from report_samples import HERE, epoch_row, gpu_run, write_run

from greenlove_tracker.rendering.document import Paragraph
from greenlove_tracker.report.build import document
from greenlove_tracker.vocabulary.records import Flag


def test_a_runs_report_reads_each_file_once(tmp_path: Path, monkeypatch) -> None:
    run = gpu_run(tmp_path)
    opened, open_file = Counter(), os.open

    def counting(path, *arguments, **more):
        opened[str(path)] += str(path).startswith(str(tmp_path))
        return open_file(path, *arguments, **more)

    monkeypatch.setattr(os, "open", counting)
    assert document(run.path).title == "thesis: train.py"
    assert {Path(path).name: n for path, n in opened.items() if n} == {
        "run.csv": 1,
        "summary.csv": 1,
        "epochs-0.csv": 1,
    }


def test_a_run_that_goes_on_is_not_said_to_have_ended(tmp_path: Path) -> None:
    rows = [epoch_row(n, 2.0, flags=[Flag.METER_STARTING]) for n in (1, 2)]
    run = write_run(tmp_path, rows, status=None, fields=HERE)
    blocks = document(tmp_path).blocks
    assert run.summary.status == "running"
    assert not any("ended" in block.text for block in blocks[:4] if isinstance(block, Paragraph))
