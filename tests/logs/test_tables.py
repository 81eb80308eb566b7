"""Every file of a run reads as it was written, describes its columns, and refuses a cell that one cannot hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import pytest
from conftest import epoch_row
from fakes import FakeClock, ScriptedMeter, make_tracker
from report_samples import issued

from greenlove_tracker import read_logs
from greenlove_tracker.logs.schema import EPOCHS, SUMMARY, LogTable
from greenlove_tracker.logs.tables import (
    CHECKPOINTS,
    COMPARISON,
    COMPARISON_TRIALS,
    FORECASTS,
    METRICS,
    SPANS,
    TRIALS,
    ComparisonLine,
    MetricRecord,
    SpanRow,
    TrialRow,
)
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition
from greenlove_tracker.vocabulary.comparisons import ArmTrial, Verdict
from greenlove_tracker.vocabulary.forecasting import Estimate, Kind
from greenlove_tracker.vocabulary.records import Energy

ENERGY = Energy(cpu_kwh=0.1, gpu_kwh=0.2, cpu_method="tdp_model", gpu_method="counter+sampled_power")
FORECAST = issued(
    energy_kwh=Estimate(0.1, 0.09, 0.12, 0.95, "kWh"),
    warnings=["FEW"],
    emissions_kgco2e=Estimate(0.04, 0.03, 0.05, 0.95, "kgCO2e"),
    cost_usd=Estimate(-0.03, -0.04, 0.04, 0.95, "USD"),
)
SAVED = CheckpointEvent(
    CheckpointAction.SAVED,
    "2026-11-01T12:00:00.000Z",
    CheckpointKind.REGULAR,
    TrainingPosition(3, 20, 320),
    "step-0000000320",
    1234,
    0.01,
    0.2,
    is_bit_identical=True,
)
RESTORED = replace(
    SAVED,
    action=CheckpointAction.RESTORED,
    replay_s=1.5,
    replayed_batches=20,
    from_run="20261101T110000-bbbbbbbb",
    saved_at="2026-11-01T11:50:00.000Z",
    is_bit_identical=False,
    note="persistent workers, whose random states nobody knows",
)
TEXTS = ('a sentence, with "quotes"', "ä: 1")
ARM = ComparisonLine(
    "compile",
    Verdict.SAVES,
    8,
    {
        "time_ratio": Estimate(0.9, 0.8, math.inf, 0.95, "1", Kind.CONFIDENCE),
        "cost_usd": Estimate(1.0, 0.9, 1.1, 0.95, "USD", Kind.CONFIDENCE),
    },
    *(0.1, 2.0, -0.5, math.inf, 30.0),
    "",
    TEXTS,
    "its loss is higher",
)
RECORDS = [
    (EPOCHS, replace(epoch_row(1), energy=ENERGY, gap_before=Energy(ram_kwh=0.0, ram_method="constant"))),
    (
        EPOCHS,
        replace(
            epoch_row(2),
            carbon_intensity_gco2e_per_kwh=200.0,
            carbon_intensity_source="neso, a",
            electricity_price_usd_per_kwh=-0.1,
        ),
    ),
    (FORECASTS, FORECAST),
    (FORECASTS, replace(issued(), duration_p99_s=None, stop_epochs=Estimate(10.0, 8.0, 12.0, 0.95, "epochs"))),
    (SPANS, SpanRow(("a", "b"), 3, 1, "", 2.0, 1.0, ENERGY, 0.1, frozenset({"by_time"}))),
    (METRICS, MetricRecord("2026-01-01T00:00:00.000Z", None, 7, 'a, "b"', -math.inf, False)),
    (CHECKPOINTS, SAVED),
    (CHECKPOINTS, RESTORED),
    (CHECKPOINTS, CheckpointEvent(CheckpointAction.NOTICED, "2026-11-01T12:01:00.000Z", note="SIGTERM")),
    (TRIALS, TrialRow(1, 2, 640, 64, 0.25, None)),
    (COMPARISON, ARM),
    (
        COMPARISON,
        replace(
            ARM,
            estimates={},
            spent_s=9.0,
            given_budget_s=10.0,
            comparison_notes=TEXTS,
            left_changed=TEXTS,
            is_of_runs=False,
        ),
    ),
    (COMPARISON_TRIALS, ArmTrial("compile", 1, 2, 3.0, 4.0, 5, 0.5, 0.1, "counter", 6, math.inf)),
]


@pytest.mark.parametrize("table, record", RECORDS)
def test_a_record_reads_back_as_it_was_written(table, record):
    assert list(table.read(table.lines([record, record]), pytest.fail)) == [record, record]


@pytest.mark.parametrize("table", [SUMMARY, *{id(table): table for table, _ in RECORDS}.values()])
def test_each_column_is_named_once_and_says_what_it_is(table):
    assert len(set(table.columns)) == len(table.columns) and all(column.meaning for column in table.described)


@pytest.mark.parametrize(
    ("record", "column", "text"),
    [
        (FORECAST, "duration_s", ""),
        (FORECAST, "duration_s", "nan"),
        (FORECAST, "energy_lower_kwh", ""),
        (FORECAST, "duration_lower_s", "1e9"),
        (FORECAST, "stop_epochs", "1"),
        (FORECAST, "level", "x"),
        (FORECAST, "elapsed_s", ""),
        (RECORDS[4][1], "name", "c"),
        (RECORDS[4][1], "is_nested", "no"),
        (RECORDS[4][1], "energy_kwh", "0.9"),
        (RECORDS[5][1], "value", "1_0"),
        (RECORDS[5][1], "value", ""),
        (RECORDS[5][1], "name", ""),
        (RECORDS[5][1], "steps_done", "-1"),
        (RECORDS[5][1], "higher_is_better", "x"),
        (SAVED, "action", "saves"),
        (SAVED, "kind", "good"),
        (SAVED, "steps", "-1"),
        (SAVED, "blocked_s", "x"),
        (SAVED, "epoch", ""),
        (RECORDS[9][1], "sample_size", ""),
        (ARM, "verdict", "perhaps"),
        (ARM, "time_ratio_lower", ""),
        (ARM, "notes", "[1]"),
        (RECORDS[12][1], "duration_s", ""),
    ],
)
def test_a_cell_that_a_column_cannot_hold_costs_its_line_and_is_told(record, column, text):
    table = next(table for table, sample in RECORDS if type(sample) is type(record))
    cells = table.cells(record)
    cells[table.columns.index(column)] = text
    with pytest.raises(ValueError, match=r".+"):
        table.record(cells)


def test_a_header_that_lost_the_end_of_an_interval_costs_the_rows_that_have_one_and_is_told():
    stopped = replace(FORECAST, stop_epochs=Estimate(10.0, 8.0, 12.0, 0.95, "epochs"))
    data = FORECASTS.lines([FORECAST, stopped]).replace(b"stop_upper_epochs", b"stop_upper")
    told = []
    assert list(FORECASTS.read(data, told.append)) == [FORECAST]
    assert told == ["has no column stop_upper_epochs", "line 3 left out: stop_epochs without its interval"]


def test_a_further_column_is_one_line_of_its_record():
    @dataclass(frozen=True)
    class Sample:
        duration_s: Annotated[float, "of the sample"]
        temperature_c: Annotated[float | None, "of the hottest GPU", "finite"] = None

    table = LogTable(Sample, "samples-{}.csv", last_of_first="duration_s")
    assert table.lines([Sample(1.5, -3.0), Sample(2.0)]) == b"duration_s,temperature_c\n1.5,-3.0\n2.0,\n"
    assert list(table.read(b"duration_s\n1.5\n", pytest.fail)) == [Sample(1.5)]
    assert [column.meaning for column in table.described] == ["of the sample", "of the hottest GPU"]


def test_a_tracker_logs_what_becomes_of_checkpoints(tmp_path):
    clock = FakeClock()
    with make_tracker(clock, tmp_path / "logs", meter=ScriptedMeter([])) as tracker:
        tracker.log_checkpoint(RESTORED)
        tracker.log_checkpoint(SAVED)
    (run,) = read_logs(tmp_path / "logs").runs
    assert run.checkpoints == (RESTORED, SAVED)
    assert not run.problems
