"""What was logged, counted again with a file of carbon intensities; and the jobs that left no log."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from report_samples import GERMANY, WORLD, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.records import UNKNOWN_ENERGY, Energy
from greenlove_tracker.rendering import markdown
from greenlove_tracker.rendering.document import Heading, Paragraph, Table
from greenlove_tracker.report.build import document

ONE_KWH = Energy(gpu_kwh=1.0, gpu_method="counter")
YEAR = "(none set), 2026-01-01 to 2026-12-31"
HEAD = "country,from,until,gco2e_per_kwh,basis,source\n"


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


def given(tmp_path, *lines):
    path = tmp_path / "factors.csv"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return path


def restated(logs, path) -> tuple[Paragraph, Table, Table]:
    blocks = list(document(logs, factors=path).blocks)
    at = next(i for i, b in enumerate(blocks) if isinstance(b, Heading) and b.text.startswith("Restated"))
    said, *rest = blocks[at + 1 : at + 5]
    table, sources = (block for block in rest if isinstance(block, Table))
    return said, table, sources


def test_both_figures_stand_side_by_side(logs, tmp_path):
    path = given(tmp_path, "DE,2026-01-01,2026-12-31,344,location-based,supplier 2026")
    said, table, sources = restated(logs, path)
    assert "beside what was logged. It says nothing of 1 run, which stay as they are." in said.text
    assert table.rows == (
        ("DE, 2026-01-01 to 2026-12-31", "2", "2.00 kWh*", "381", "762 g*", "344", "688 g*", "−9.7%"),
        ("(none set)", "1", "1.00 kWh", "458", "458 g", "as logged", "458 g", ""),
        ("total", "3", "3.00 kWh*", "", "1.22 kg*", "", "1.15 kg*", "−6.1%"),
    )
    assert sources.rows[0][1:3] == ("344", "gCO2e/kWh")
    assert re.search(
        "supplier 2026; 2026-01-01 to 2026-12-31; location-based; table SHA-256 [0-9a-f]{16}", sources.rows[0][3]
    )


def test_a_run_is_restated_alone(logs, tmp_path):
    path = given(tmp_path, "*,2026-01-01,2026-12-31,100,location-based,an audit")
    _, table, _ = restated(logs / "a", path)
    assert table.rows[0] == ("DE, 2026-01-01 to 2026-12-31", "1", "2.00 kWh", "381", "762 g", "100", "200 g", "−73.8%")


def test_a_file_that_holds_for_nothing_is_an_error(logs, tmp_path):
    path = given(tmp_path, "FR,2026-01-01,2026-12-31,50,location-based,RTE", "DE,2020-01-01,2020-12-31,400,,old")
    with pytest.raises(UsageError, match="none of its lines holds"):
        document(logs, factors=path)


def test_what_was_unknown_and_is_known_now_has_no_change(tmp_path):
    logs = tmp_path / "logs"
    write_run(logs, [epoch_row(1, 3600.0, ONE_KWH)], intensity=None)
    _, table, _ = restated(logs, given(tmp_path, "*,2026-01-01,2026-12-31,100,location-based,an audit"))
    assert table.rows[0] == (YEAR, "1", "1.00 kWh", "unknown", "unknown", "100", "100 g", "unknown")


def test_the_jobs_that_left_no_log_are_counted(logs):
    said = [block.text for block in document(logs, n_jobs=10).blocks if isinstance(block, Paragraph)]
    assert said[1] == "Of 10 jobs, 8 (80%) left no log here and are missing from every total; 1 run belonged to no job."
    with pytest.raises(UsageError, match="1 jobs are too few: these runs belong to 2"):
        document(logs, n_jobs=1)


def test_explorations_are_not_training_runs(logs):
    rows = [epoch_row(1, 3600.0, ONE_KWH)]
    write_run(logs, rows, "d", intensity=GERMANY, fields={"plan_samples": "500", "plan_batch_size": "5"})
    content = document(logs)
    assert content.subtitle.startswith("3 training runs and 1 exploration · ")
    text = markdown.render(content)
    assert "## By kind" in text
    assert re.search(r"\| d \| demo \| .*exploration \|", text)
    cite = CliRunner().invoke(cli, ["report", str(logs), "--format", "cite"]).output
    assert "comprise 4 runs (1 exploratory) on" in cite
    assert "| exploratory | 1 |" in cite


def test_the_command_line_takes_both(logs, tmp_path):
    path = given(tmp_path, "*,2026-01-01,2026-12-31,100,location-based,an audit")
    to = tmp_path / "r.md"
    asked = ["report", str(logs), "-o", str(to), "--factors", str(path), "--jobs", "12"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    assert "Restated with other factors" in to.read_text()
    assert "Of 12 jobs, 10 (83%) left no log" in to.read_text()
    refused = CliRunner().invoke(cli, ["report", str(logs), "--format", "cite", "--jobs", "12"])
    assert refused.exit_code == 1
    assert "--jobs is of --format report: leave it out" in refused.output


def test_an_energy_restated_with_another_pue_has_a_column(logs, tmp_path):
    path = tmp_path / "factors.csv"
    path.write_text(
        "country,from,until,quantity,value,basis,source\n*,2026-01-01,2026-12-31,pue,1.5,annual mean,report\n"
    )
    _, table, _ = restated(logs, path)
    assert [column.title for column in table.columns][2:4] == ["energy", "restated energy"]
    assert [row[2:4] for row in table.rows] == [
        ("2.00 kWh*", "3.00 kWh*"),
        ("1.00 kWh", "1.50 kWh"),
        ("3.00 kWh*", "4.50 kWh*"),
    ]
    assert table.rows[1][-1] == "+50.0%"


def test_a_mistyped_column_is_refused_instead_of_passed_over(logs, tmp_path):
    path = tmp_path / "factors.csv"
    path.write_text(
        "country,from,until,factor,value,basis,source\n*,2026-01-01,2026-12-31,pue,1.5,annual mean,report\n"
    )
    with pytest.raises(UsageError, match="no such column: factor; there are country, from, until, basis"):
        document(logs, factors=path)
