"""The jobs that left no log; explorations beside trainings."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from report_samples import GERMANY, WORLD, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.records import UNKNOWN_ENERGY, Energy
from greenlove_tracker.rendering import markdown
from greenlove_tracker.rendering.document import Paragraph
from greenlove_tracker.report.build import document

ONE_KWH = Energy(gpu_kwh=1.0, gpu_method="counter")


@pytest.fixture
def logs(tmp_path):
    """2 kWh in Germany, 1 kWh nowhere in particular, and a run of unknown energy in Germany."""
    logs = tmp_path / "logs"
    in_germany = {"country": "DE", "cluster": "west"}
    rows = [epoch_row(1, 3600.0, ONE_KWH)]
    write_run(logs, rows * 2, "a", intensity=GERMANY, fields={**in_germany, "job_id": "7"})
    write_run(logs, rows, "b", intensity=WORLD)
    write_run(logs, [epoch_row(1, 60.0, UNKNOWN_ENERGY)], "c", intensity=GERMANY, fields={**in_germany, "job_id": "8"})
    return logs


def test_the_jobs_that_left_no_log_are_counted(logs):
    said = [block.text for block in document(logs, n_jobs=10).blocks if isinstance(block, Paragraph)]
    assert said[0] == "Of 10 jobs, 8 (80%) left no log here and are missing from every total; 1 run belonged to no job."
    with pytest.raises(UsageError, match="1 jobs are too few: these runs belong to 2"):
        document(logs, n_jobs=1)


def test_explorations_are_not_training_runs(logs):
    rows = [epoch_row(1, 3600.0, ONE_KWH)]
    write_run(logs, rows, "d", intensity=GERMANY, fields={"plan_samples": "500", "plan_batch_size": "5"})
    content = document(logs)
    assert content.subtitle.startswith("3 training runs and 1 exploration · ")
    text = markdown.render(content)
    assert "## By kind" in text
    assert re.search(r"\| demo/d \| .*exploration \|", text)
    cite = CliRunner().invoke(cli, ["report", str(logs), "--format", "cite"]).output
    assert "comprise 4 runs (1 exploratory) on" in cite
    assert "| exploratory | 1 |" in cite
