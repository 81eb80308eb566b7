from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from projection_samples import forecast, projected, projected_by_name
from report_samples import epoch_row, write_run

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition
from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.tables import CHECKPOINTS
from greenlove_tracker.projection.spot import MeasuredTimes, measured_in, row_for_spot, spot_advice_of
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.records import Row
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.spot_report import spot_document

FIRST, SECOND = "20261121T120000-aaaa", "20261121T130000-bbbb"
GIVEN = {"preemptions_per_hour": 0.05, "spot_price": 1.0, "on_demand_price": 3.0, "checkpoint_s": 5.0}
pytestmark = pytest.mark.usefixtures("no_settings")


def write_checkpoints(run_dir: Path, *events: CheckpointEvent) -> None:
    rows = [dict(zip(CHECKPOINTS.columns, CHECKPOINTS.cells(event), strict=True)) for event in events]
    (run_dir / CHECKPOINTS.file(0)).write_text(csv_text(list(CHECKPOINTS.columns), rows))


def saved(at: str, blocked_s: float | None, written_s: float | None) -> CheckpointEvent:
    position = TrainingPosition(1, 0, 10)
    return CheckpointEvent(
        CheckpointAction.SAVED, at, CheckpointKind.REGULAR, position, blocked_s=blocked_s, written_s=written_s
    )


def rows(hour: int) -> list[Row]:
    """Four epochs of 10 s from the full hour on."""
    return [replace(epoch_row(i + 1, 10.0), started_at=f"2026-11-21T{hour}:00:{10 * i:02d}.000Z") for i in range(4)]


def preempted(logs: Path) -> None:
    """Two runs of one training: the second goes on from a checkpoint of the first after 2 s."""
    begun = write_run(logs, rows(12), FIRST, fields={"started_at": "2026-11-21T12:00:00.000Z"}, status="terminated")
    write_checkpoints(begun.path, saved("2026-11-21T12:00:15Z", 0.2, 1.0))
    fields = {"started_at": "2026-11-21T13:00:00.000Z", "continues": FIRST}
    again = write_run(logs, rows(13), SECOND, fields=fields)
    restored = CheckpointEvent(
        CheckpointAction.RESTORED,
        "2026-11-21T13:00:02Z",
        from_run=FIRST,
        saved_at="2026-11-21T12:00:15Z",
        blocked_s=0.5,
        replay_s=0.4,
    )
    write_checkpoints(
        again.path, restored, saved("2026-11-21T13:00:13Z", 0.1, None), saved("2026-11-21T13:00:24Z", 0.3, 2.0)
    )


def row(**options) -> Projection:
    return projected(forecast(hours=100.0), **options)[0]


def test_checkpoints_and_restarts_are_measured_from_the_log(logs: Path) -> None:
    preempted(logs)
    measured = measured_in(str(logs))
    assert measured.checkpoint_s == pytest.approx(0.2) and measured.written_s == pytest.approx(1.0)
    assert (measured.n_saved, measured.n_restarts) == (2, 1)
    assert measured.restart_s == pytest.approx(2.0)
    given = {"preemptions_per_hour": 0.05, "spot_price": 1.0, "on_demand_price": 3.0}
    advice = spot_advice_of(row(), given, measured)
    assert (advice.terms.checkpoint_s, advice.terms.restart_s) == (measured.checkpoint_s, measured.restart_s)
    page = " ".join(terminal.render(spot_document(advice, "", measured), brief=False).split())
    assert f"the mean of 2 in {SECOND}" in page and "count twice" in page


def test_the_command_takes_its_times_from_the_log(logs: Path) -> None:
    preempted(logs)
    words = ["project", str(logs), "--spot", "--preemptions", "30", "--spot-price", "1", "--price", "3", "--json"]
    result = CliRunner().invoke(cli, words)
    record = json.loads(result.stdout)
    assert (record["checkpoint_s"], record["restart_s"]) == (pytest.approx(0.2), pytest.approx(2.0))


def test_what_is_given_goes_before_what_was_measured() -> None:
    measured = MeasuredTimes(0.2, 1.0, 2, 30.0, 1, 0.01)
    advice = spot_advice_of(row(), {**GIVEN, "restart_s": 300.0}, measured)
    assert (advice.terms.checkpoint_s, advice.terms.written_s, advice.terms.restart_s) == (5.0, 0.0, 300.0)


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("preemptions_per_hour", "preemptions_per_hour is needed"),
        ("checkpoint_s", "checkpoint_s is needed"),
        ("restart_s", "restart_s is needed"),
        ("spot_price", "no public list is kept here"),
    ],
)
def test_what_is_missing_is_asked_for(left_out: str, says: str) -> None:
    given = {**GIVEN, "restart_s": 300.0}
    del given[left_out]
    with pytest.raises(UsageError, match=says):
        spot_advice_of(row(), given, MeasuredTimes())


def test_the_price_on_demand_is_that_of_the_row() -> None:
    given = {"preemptions_per_hour": 0.05, "spot_price": 0.6, "checkpoint_s": 5.0, "restart_s": 300.0}
    rented = projected_by_name(forecast(hours=100.0))["L40S"]
    advice = spot_advice_of(rented, given, MeasuredTimes())
    assert advice.terms.on_demand_price == rented.offer.usd_per_gpu_hour
    assert advice.on_demand.cost_usd.point == pytest.approx(rented.cost_usd.point)
    assert advice.on_demand.emissions_kgco2e.point == pytest.approx(rented.emissions_kgco2e.point)
    here = spot_advice_of(row(price_usd_per_gpu_hour=2.0), given, MeasuredTimes())
    assert here.terms.on_demand_price == pytest.approx(2.0)
    own = spot_advice_of(row(), given, MeasuredTimes())  # electricity is no price of a machine
    assert own.terms.on_demand_price is None and own.verdict == "unknown"


def test_the_row_is_the_target_or_this_machine() -> None:
    all_rows = projected(forecast())
    assert row_for_spot(all_rows, ()) is all_rows[0]
    assert row_for_spot(all_rows, ("l40s",)).name == "L40S"
    with pytest.raises(UsageError, match="one machine"):
        row_for_spot(all_rows, ("L40S", "H100"))
    with pytest.raises(UsageError, match="does not fit L40S"):
        row_for_spot(projected(forecast(), peak_memory_gb=70.0), ("L40S",))
