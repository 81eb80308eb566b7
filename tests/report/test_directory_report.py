import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker import aggregate
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import ChartRow, ColumnChart
from greenlove_tracker.report.build import document
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.vocabulary.errors import UsageError


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


def column_charts(content) -> list[ColumnChart]:
    rows = [block.charts for block in content.blocks if isinstance(block, ChartRow)]
    return [chart for charts in rows for chart in charts if isinstance(chart, ColumnChart)]


def test_months_are_drawn_the_oldest_first_and_a_run_is_in_both_that_it_crosses(logs):
    (chart,) = column_charts(document(logs))
    assert chart.title == "CO2e by day" and (chart.labels[0], chart.labels[-1]) == ("12 Sep", "6 Nov")
    by_day = dict(zip(chart.labels, chart.series[0][1], strict=True))
    total = aggregate(logs).total.emissions_kgco2e
    assert by_day["31 Oct"] > 0 and by_day["1 Nov"] > 0 and by_day["2 Nov"] == 0  # a run crosses midnight
    assert sum(by_day.values()) == pytest.approx(total * 1000)
    (one_month,) = column_charts(document(logs, since="2026-11"))
    assert one_month.labels[0] == "1 Nov"
    by_month = terminal.render(summary_document(aggregate(logs), ["month"]))
    assert [line.split()[:2] for line in by_month.splitlines() if line.startswith("  2026")] == [
        *(["2026-09", "1"], ["2026-10", "1"], ["2026-11", "3"])
    ]
    assert "is split between the two" in by_month and "…" not in by_month


def test_a_period_without_runs_is_an_error_that_says_so(logs):
    with pytest.raises(UsageError, match="holds no run in the period"):
        document(logs, since="2027-01")
    with pytest.raises(UsageError, match="holds no run of user eve in the period October 2025"):
        document(logs, since="2025-10", user="eve")
