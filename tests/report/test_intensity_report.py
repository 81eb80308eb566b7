"""What reports and screens say of a run whose rows have the carbon intensity of their time."""

from __future__ import annotations

import csv
from datetime import UTC, datetime

import pytest
from fakes import make_tracker, tick, train

from greenlove_tracker import aggregate, read_logs
from greenlove_tracker.cli.export import epoch_rows
from greenlove_tracker.grid.live.fallback import IntensityFallbacks
from greenlove_tracker.grid.live.offline import CsvIntensity, TableIntensity
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.logs.aggregate import flat_totals
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import ChartRow
from greenlove_tracker.report.declarations import cite, model_card, sci
from greenlove_tracker.report.directory_report import directory_document, summary_document
from greenlove_tracker.report.ledger import ledger_csv, ledger_row
from greenlove_tracker.report.run_report import end_screen, run_document

KWH = 0.001  # of an epoch: 360 W for 10 s


@pytest.fixture
def run(clock, tmp_path, monkeypatch):
    """A run of three epochs at 100, 300 and then the table's intensity, since the file ends."""
    monkeypatch.delenv("GREENLOVE_INTENSITY", raising=False)
    clock.wall_offset_s = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    at = [datetime.fromtimestamp(clock.utc_s() + 10 * n, UTC).isoformat() for n in range(3)]
    path = tmp_path / "own.csv"
    path.write_text(f"utc,gco2e_per_kwh\n{at[0]},100\n{at[1]},300\n")

    def now():
        return datetime.fromtimestamp(clock.utc_s(), UTC)

    class Strict(CsvIntensity):
        """A file of which only the row that holds the time counts."""

        def now(self, place):
            point = super().now(place)
            if point.end_utc <= now():
                from greenlove_tracker.grid.live.intensity import IntensityUnavailable

                raise IntensityUnavailable("csv", "the file ends before")
            return point

    source = IntensityFallbacks(grid_place("DE"), (Strict(path, now=now), TableIntensity(now)))
    tracker = make_tracker(clock, tmp_path / "logs", country="DE", intensity=source, pue=1.5)
    with tracker:
        train(tracker, clock, 3)
        tick()
    return read_logs(tmp_path / "logs").runs[0]


def test_what_was_not_metered_has_no_power(run):
    file = run.path / "epochs-0.csv"
    first, *others = csv.DictReader(file.read_text().splitlines())
    unknown = first | {name: "" for name in first if ("kwh" in name and "per_kwh" not in name) or "method" in name}
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, first)
        writer.writeheader()
        writer.writerows([unknown | {"emissions_gco2e": ""}, *others])
    (rewritten,) = read_logs(run.path.parent).runs
    charts = [block.charts for block in run_document(rewritten).blocks if isinstance(block, ChartRow)]
    (power,) = next(found for found in charts if found[0].title.startswith("Power, before PUE"))
    assert [x for x, _ in power.lines[0].points] == [10, 20, 20, 30]
    assert [y for _, y in power.lines[0].points] == pytest.approx([360] * 4)


def test_what_is_drawn_and_exported_comes_to_the_total(run):
    table = run.terms.carbon_intensity.value
    kilograms = KWH * 1.5 * (100 + 300 + table) / 1000
    assert run.summary.emissions_kgco2e == pytest.approx(kilograms)
    exported = epoch_rows(run)
    assert [row["carbon_intensity_gco2e_per_kwh"] for row in exported] == pytest.approx([100, 300, table])
    assert sum(row["emissions_gco2e"] for row in exported) == pytest.approx(kilograms * 1000)


def test_a_mock_is_called_one_wherever_it_appears(clock, tmp_path):
    with make_tracker(clock, tmp_path / "logs", intensity="mock") as tracker:
        train(tracker, clock, 3)
    (mocked,) = read_logs(tmp_path / "logs").runs
    assert "MOCK: invented figures, of no grid" in mocked.carbon_intensity.source
    assert {row.carbon_intensity_source for row in mocked.rows[0]} == {"mock"}
    screen = " ".join(end_screen(mocked, exit_code=0).split())
    assert "MOCK: the carbon intensity is invented, and so is the CO2e." in screen
    total = aggregate(read_logs(tmp_path / "logs"))
    for declared in (model_card(total), sci(total, "epoch"), cite(total)):
        assert "MOCK: the carbon intensity of 1 run is invented, and so is the CO2e" in declared
    assert all(row["carbon_intensity_source"].startswith("MOCK") for run in total.runs for row in epoch_rows(run))
    assert "MOCK" in ledger_csv(list(map(ledger_row, total.runs)))
    assert "! MOCK: the carbon intensity of 1 run" in terminal.render(summary_document(total, ["project"]))
    assert flat_totals(total.total)["mock_intensity"] == 1
    assert "! MOCK: the carbon intensity of 1 run" in terminal.render(directory_document(total))
