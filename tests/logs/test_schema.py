import csv
import dataclasses
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.logs.run_fields import factor_fields, factor_in
from greenlove_tracker.logs.schema import (
    EPOCHS,
    cell,
    log_lines,
    read_summary,
    summary_fields,
)
from greenlove_tracker.vocabulary.records import Counts, Energy, Factor, Flag, Method, Row, RowKind, RunSummary

POSITIVE = st.floats(0, 1e30)
WHOLE = st.none() | st.integers(0, 2**63)
METHODS = st.sampled_from(["counter", "sampled_power", "counter+sampled_power", "tdp_model", "constant"])
TEXTS = st.text(st.characters(blacklist_characters="\x00\n\r", blacklist_categories=["Cs"]))
FLAGS = st.frozensets(st.sampled_from([f.value for f in Flag]))
COUNTS = st.builds(Counts, WHOLE, WHOLE, WHOLE, WHOLE)


@st.composite
def energies(draw, most_kwh=1e30):
    kwh = [draw(st.none() | st.floats(0, most_kwh)) for _ in range(3)]
    return Energy(*kwh, *(None if e is None else draw(METHODS) for e in kwh))


ROWS = st.builds(
    Row,
    st.sampled_from(RowKind),
    WHOLE,
    TEXTS,
    POSITIVE,
    energies(),
    POSITIVE,
    COUNTS,
    energies(),
    st.none() | POSITIVE,
    FLAGS,
)
BOUNDED = st.floats(0, 1e30)
OPTIONAL = st.none() | BOUNDED
SUMMARIES = st.builds(
    RunSummary,
    run_id=TEXTS,
    project=TEXTS,
    status=TEXTS,
    exit_code=st.none() | st.integers(-64, 255),
    started_at=TEXTS,
    ended_at=TEXTS,
    epochs_done=st.integers(0, 10**9),
    epochs_planned=WHOLE,
    counts=COUNTS,
    duration_s=BOUNDED,
    epochs_duration_s=BOUNDED,
    metered_s=BOUNDED,
    energy=energies(1e30),
    measured_kwh=OPTIONAL,
    unmetered_estimate_kwh=OPTIONAL,
    node_assumed_kwh=OPTIONAL,
    pue=st.floats(1, 10),
    energy_kwh=OPTIONAL,
    carbon_intensity_gco2e_per_kwh=BOUNDED,
    emissions_kgco2e=OPTIONAL,
    cost_usd=OPTIONAL,
    cost_basis=TEXTS,
    gpu_count=st.integers(0, 10**9),
    gpu_hours=BOUNDED,
    n_ranks=st.integers(1, 10**9),
    n_nodes=st.integers(1, 10**9),
    flags=FLAGS,
)


@st.composite
def agreeing(draw):
    """A summary whose totals are made of one another, as those that are written."""
    s = draw(SUMMARIES)
    parts_kwh = s.energy.total_kwh, s.unmetered_estimate_kwh or 0.0, s.node_assumed_kwh or 0.0
    energy_kwh = None if parts_kwh[0] is None else sum(parts_kwh) * s.pue
    emissions = None if energy_kwh is None else energy_kwh * s.carbon_intensity_gco2e_per_kwh / 1000
    hours = s.gpu_count * s.duration_s / 3600
    return dataclasses.replace(s, energy_kwh=energy_kwh, emissions_kgco2e=emissions, gpu_hours=hours)


def read_back(fields):
    """The summary from its lines."""
    lines = ((field.name, field.value, field.unit) for field in fields.values())
    return read_summary(log_lines([("field", "value", "unit"), *lines]), pytest.fail)


def through_csv(lines):
    return list(csv.reader(io.StringIO(log_lines(lines).decode(), newline=""), strict=True))


@pytest.mark.slow
@given(ROWS)
def test_a_row_reads_back_as_it_was(row):
    (cells,) = through_csv([EPOCHS.cells(row)])
    assert EPOCHS.record(cells) == row
    assert list(EPOCHS.read(EPOCHS.lines([row]), pytest.fail)) == [row]


@pytest.mark.slow
@given(agreeing())
def test_a_summary_reads_back_as_it_was(summary):
    fields = summary_fields(summary)
    cells = through_csv([[f.name, f.value, f.unit] for f in fields])
    assert [c[1] for c in cells] == [f.value for f in fields]
    assert read_back({f.name: f for f in fields}) == summary


@pytest.mark.slow
@given(st.builds(Factor, st.just("carbon_intensity"), POSITIVE, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS))
def test_a_factor_reads_back_as_it_was(factor):
    lines = {f.name: (f.value, f.unit) for f in factor_fields(factor)}
    assert factor_in(lines, "carbon_intensity") == factor


def test_unknown_is_empty_and_zero_is_not():
    assert [cell(v) for v in (None, 0.0, 0, math.nan, math.inf, True, "a\x00b")] == [
        "",
        "0.0",
        "0",
        "",
        "",
        "yes",
        "ab",
    ]
    assert cell(frozenset({"short", "clock_jump"})) == "clock_jump short"


def cells(**changed):
    row = Row(RowKind.EPOCH, 1, "2026", 0.0, Energy(), 1.0, Counts(), Energy(), None)
    return [changed.get(column, text) for column, text in zip(EPOCHS.columns, EPOCHS.cells(row), strict=True)]


SUMMARY = RunSummary(
    "a",
    "",
    "finished",
    0,
    "",
    "",
    1,
    None,
    Counts(),
    1.0,
    1.0,
    1.0,
    Energy(),
    None,
    None,
    1.0,
    None,
    400.0,
    None,
    None,
    "",
    0,
    0.0,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("duration_s", "nan"),
        ("epochs_done", ""),
        ("energy_kwh", "inf"),
        ("duration_s", "-1.0"),
        ("gpu_kwh", "-1.0"),
        ("energy_kwh", "-1.0"),
        ("cost_usd", "nan"),
        ("emissions_kgco2e", "-1.0"),
        ("gpu_count", "-1"),
        ("gpu_hours", "-1.0"),
        ("samples", "-1"),
    ],
)
def test_a_summary_that_holds_something_else_is_refused(name, value):
    fields = {f.name: f for f in summary_fields(SUMMARY)}
    assert read_back(fields) == SUMMARY
    with pytest.raises(ValueError, match=name):
        read_back({**fields, name: dataclasses.replace(fields[name], value=value)})
    with pytest.raises(ValueError, match=name):
        read_back({k: f for k, f in fields.items() if k != name})


@pytest.mark.parametrize(
    ("column", "text", "says"),
    [
        ("duration_s", "1_0", "'1_0' is not an amount"),  # float() takes it for 10
        ("duration_s", "+3.5", "not an amount"),  # a digit that was lost
        ("duration_s", "٣", "not an amount"),
        ("steps", "1_0", "not a count"),
        ("epoch", "-2", "not a count"),
        ("gpu_kwh", "0.9", "not the sum of its components"),
        ("energy_kwh", "0.9", "not the sum of its components"),
        ("energy_kwh", "", "not the sum of its components"),
        ("gap_before_gpu_kwh", "0.9", "not the sum of its components"),
        ("gpu_method", "cou7ter", "cou7ter"),
        ("gpu_kwh", "1e308", "not an amount"),
    ],
)
def test_a_damaged_cell_costs_its_row(column, text, says):
    energy = Energy(cpu_kwh=0.1, gpu_kwh=0.2, cpu_method=Method.TDP_MODEL, gpu_method=Method.COUNTER)
    cells = EPOCHS.cells(Row(RowKind.EPOCH, 1, "", 1.0, energy, 10.0, Counts(5), energy, 0.1))
    cells[EPOCHS.columns.index(column)] = text
    with pytest.raises(ValueError, match=says):
        EPOCHS.record(cells)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("energy_kwh", "0.9", "energy of its components"),
        ("gpu_kwh", "0.9", "energy of its components"),
        ("emissions_kgco2e", "0.9", "energy times carbon intensity"),
        ("gpu_hours", "0.9", "time of its GPUs"),
        ("duration_s", "7200.0", "time of its GPUs"),
        ("pue", "0.5", "not 1 or more"),
        ("gpu_method", "cou7ter", "cou7ter"),
    ],
)
def test_totals_that_contradict_each_other_are_refused(name, text, says):
    energy = Energy(gpu_kwh=0.2, gpu_method=Method.COUNTER)
    amounts = {"duration_s": 3600.0, "epochs_duration_s": 3600.0, "metered_s": 3600.0, "gpu_hours": 2.0, "pue": 1.5}
    energies_kwh = {"measured_kwh": 0.2, "unmetered_estimate_kwh": 0.0, "energy_kwh": 0.3, "emissions_kgco2e": 0.12}
    names = dict.fromkeys(("run_id", "project", "status", "started_at", "ended_at", "cost_basis"), "")
    counts = {
        "exit_code": 0,
        "epochs_done": 1,
        "epochs_planned": 1,
        "gpu_count": 2,
        "counts": Counts(),
        "cost_usd": None,
    }
    factor = {"carbon_intensity_gco2e_per_kwh": 400.0}
    summary = RunSummary(energy=energy, **names, **amounts, **energies_kwh, **counts, **factor)
    fields = {f.name: f for f in summary_fields(summary)}
    assert read_back(fields) == summary
    damaged = {**fields, name: dataclasses.replace(fields[name], value=text)}
    with pytest.raises(ValueError, match=says):
        read_back(damaged)
