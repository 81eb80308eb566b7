import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker.errors import UsageError
from greenlove_tracker.rendering import html
from greenlove_tracker.rendering.document import BarChart, Paragraph, Table
from greenlove_tracker.report.build import document, write_html


@pytest.fixture
def logs(tmp_path):
    """Three months of runs of two users; one crosses the end of October, another has no user and no job."""
    starts = ("2026-09-12T10:00:00Z", "2026-10-31T23:50:00Z", "2026-11-05T08:00:00Z", "2026-11-06T08:00:00Z")
    for i, start in enumerate(starts):
        known = {"user": ("ada", "bob", "ada", "")[i], "job_id": ("11", "12", "13", "")[i], "started_at": start}
        write_run(
            tmp_path / "logs", gpu_rows(30), f"run-{i}", fields={**GPU_FIELDS, **known}, intensity=GERMANY, price=PRICE
        )
    return tmp_path / "logs"


def table_of(content, title):
    return next(b for b in content.blocks if isinstance(b, Table) and b.columns[0].title == title)


def test_months_are_drawn_the_oldest_first_and_a_run_is_in_both_that_it_crosses(logs):
    content = document(logs)
    charts = {b.title: b for b in content.blocks if isinstance(b, BarChart)}
    for title in ("CO2e by month", "energy by month"):
        assert [bar.label for bar in charts[title].bars] == ["2026-09", "2026-10", "2026-11"]
    table = table_of(content, "month")
    assert [row[:2] for row in table.rows] == [("2026-11", "3"), ("2026-10", "1"), ("2026-09", "1"), ("total", "4")]
    assert table.rows[0][2].endswith("◇") and not table.rows[2][2].endswith("◇")
    notes = [b.text for b in content.blocks if isinstance(b, Paragraph) and b.is_note]
    assert any(note.startswith("◇ split in proportion") for note in notes)
    assert any("is split between the two" in note for note in notes)
    assert "CO2e by month" not in str(document(logs, since="2026-09", until="2026-10"))


def test_a_period_without_runs_is_an_error_that_says_so(logs):
    with pytest.raises(UsageError, match="holds no run in the period"):
        document(logs, since="2027-01")
    with pytest.raises(UsageError, match="holds no run of user eve"):
        document(logs, user="eve")


def test_the_file_is_the_same_whenever_it_is_made(logs, tmp_path):
    one, other = (write_html(logs, tmp_path / f"{n}.html", since="2026-11", issued="2026-12-02") for n in "ab")
    assert one.read_bytes() == other.read_bytes()
    assert "Issued on 2026-12-02" in html.render(document(logs, issued="2026-12-02"))


def test_a_period_without_a_run_is_named_and_a_report_is_not_issued_before_its_period(logs):
    with pytest.raises(UsageError, match="holds no run of user eve in the period October 2025"):
        document(logs, since="2025-10", user="eve")
    with pytest.raises(UsageError, match="issued 2026-10-31 lies before the period of the report, November 2026"):
        document(logs, since="2026-11", issued="2026-10-31")
