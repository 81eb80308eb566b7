import math
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from conftest import epoch_row
from foreign_samples import write_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenlove_tracker.logs.aggregate import Totals, aggregate
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import run_row
from greenlove_tracker.logs.selection import Period, part_of, parts_of
from greenlove_tracker.logs.totals import Ending, summarise
from greenlove_tracker.report.ledger import ledger_row
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import Energy, Factor, Field, Method

PRICE = Factor("electricity_price", 0.5, "USD/kWh", "a test")
BEGIN = datetime(2026, 10, 31, 23, 50, tzinfo=UTC)

SUMS = ("duration_s", "gpu_hours", "energy_kwh", "cpu_kwh", "gpu_kwh", "ram_kwh", "measured_kwh", "emissions_kgco2e")


def at(seconds):
    return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def row(number, start_s, duration_s, kwh, **changes):
    return replace(epoch_row(number, kwh, duration_s), started_at=at(start_s), **changes)


def crossing(make_run, rows, run_id="crossing", **fields):
    """Write a run from ten minutes before November on, which lasts as long as its rows."""
    ends_s = max((one.duration_s + (datetime.fromisoformat(one.started_at) - BEGIN).total_seconds()) for one in rows)
    known = {"started_at": at(0), "project": "x", **fields}
    return make_run(run_id, rows, known, electricity_price=PRICE, ended_at=at(ends_s)).parent


TWENTY_MINUTES = [row(n + 1, 120 * n, 120.0, 0.1 * (n + 1)) for n in range(10)]  # five before November, five in it


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [
        (None, None, "all that was logged"),
        ("2026-11", None, "November 2026 (UTC)"),
        ("2026-11-01", "2026-12-01", "November 2026 (UTC)"),
        ("2026-11", "2027-01", "2026-11-01 to before 2027-01-01 (UTC)"),
        ("2026-11-03", None, "from 2026-11-03 (UTC) on"),
        (None, "2026-11-03T07:30", "before 2026-11-03 07:30 (UTC)"),
        ("2026-11-01T01:00:00+01:00", "2026-11-02", "2026-11-01 to before 2026-11-02 (UTC)"),
    ],
)
def test_a_period_in_words(since, until, text):
    assert Period.parse(since, until).text == text


def test_a_period_that_ends_before_it_begins_is_told():
    with pytest.raises(UsageError, match="2026-11-01 is not after 2026-11-02"):
        Period.parse("2026-11-02", "2026-11-01")
    with pytest.raises(UsageError, match="until must be a date"):
        Period.parse(None, "2026-13")


def test_of_a_run_that_crosses_an_end_its_rows_within_count(make_run):
    logs_dir = crossing(make_run, TWENTY_MINUTES)
    before, behind = aggregate(logs_dir, until="2026-11-01").total, aggregate(logs_dir, since="2026-11").total
    assert (before.energy_kwh, behind.energy_kwh) == (pytest.approx(1.5), pytest.approx(4.0))
    assert before.duration_s == behind.duration_s == 600.0
    assert (before.cost_usd, behind.cost_usd) == (pytest.approx(0.75), pytest.approx(2.0))
    assert (behind.emissions_kgco2e, behind.gpu_hours) == (pytest.approx(1.6), pytest.approx(1 / 6))
    assert (behind.n_runs, behind.n_cut, behind.n_split) == (1, 1, 0)
    assert aggregate(logs_dir).total.n_cut == 0


def test_a_row_across_the_end_is_split_in_proportion_to_time(make_run):
    logs_dir = crossing(make_run, [row(1, 0, 800.0, 0.8), row(2, 800, 100.0, 0.3)])
    behind = aggregate(logs_dir, since="2026-11").total
    assert (behind.energy_kwh, behind.duration_s) == (pytest.approx(0.5), pytest.approx(300.0))
    assert (behind.n_cut, behind.n_split) == (1, 1)


def test_a_part_is_a_run_that_begins_and_ends_with_the_period(make_run):
    logs_dir = crossing(make_run, TWENTY_MINUTES)
    (part,) = aggregate(logs_dir, since="2026-11-01T00:01", until="2026-11-01T00:05").runs
    assert (part.started_at, part.summary.ended_at) == ("2026-11-01T00:01:00.000Z", "2026-11-01T00:05:00.000Z")
    assert part.summary.energy_kwh == pytest.approx(0.3 + 0.7 + 0.4)  # half of the sixth and of the eighth
    # the sixth ended in it, and the eighth behind it
    assert (part.summary.epochs_done, part.summary.counts.steps, part.run_id) == (2, 10, "crossing")


def test_unmetered_time_counts_at_the_mean_power_of_the_run_wherever_it_is_cut(make_run):
    rows = [row(1, 0, 500.0, None), row(2, 500, 100.0, 0.1), row(3, 600, 400.0, 0.4)]
    logs_dir = crossing(make_run, rows)
    before = aggregate(logs_dir, until="2026-11").total
    assert (before.energy_kwh, before.unmetered_estimate_kwh) == (pytest.approx(0.6), pytest.approx(0.5))


def test_emissions_and_cost_are_cut_at_the_rates_of_their_time(tmp_path):
    dirty, clean = (600.0, 0.0, None, 1.0, 600.0, 0.1), (600.0, 0.0, None, 1.0, 200.0, 0.4)
    run = _run_of(tmp_path, [[dirty, clean]], is_rented=False)
    middle_s = BEGIN.timestamp() + 600.0
    before, behind = part_of(run, -math.inf, middle_s).summary, part_of(run, middle_s, math.inf).summary
    assert before.energy_kwh == pytest.approx(behind.energy_kwh)
    assert before.emissions_kgco2e == pytest.approx(3 * behind.emissions_kgco2e)
    assert behind.cost_usd == pytest.approx(4 * before.cost_usd)
    assert behind.emissions_kgco2e == pytest.approx(0.2 * behind.energy_kwh)


def test_rows_that_are_lost_are_told_and_without_any_the_run_counts_where_it_ended(make_run):
    logs_dir = crossing(make_run, TWENTY_MINUTES)
    rows = logs_dir / "crossing" / "epochs-0.csv"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:-1]))
    assert "not all there" in str(aggregate(logs_dir, since="2026-11").problems)
    rows.write_text("")
    assert aggregate(logs_dir, since="2026-11").total.energy_kwh == pytest.approx(5.5)
    assert aggregate(logs_dir, until="2026-11").total.n_runs == 0


def test_days_and_months_are_cut_alike(make_run):
    logs_dir = crossing(make_run, TWENTY_MINUTES)
    found = aggregate(logs_dir)
    assert {k: t.energy_kwh for k, t in found.by("month").items()} == {
        ("2026-10",): pytest.approx(1.5),
        ("2026-11",): pytest.approx(4.0),
    }
    assert found.by("day").keys() == {("2026-10-31",), ("2026-11-01",)}
    assert found.total.n_runs == 1  # though it is in two months
    assert aggregate(logs_dir, since="2026-11").by("project", "month").keys() == {("x", "2026-11")}


@pytest.mark.parametrize(
    ("chosen", "runs"),
    [
        ({}, "ab"),
        ({"user": "ada"}, "a"),
        ({"user": ["ada", "bob"]}, "ab"),
        ({"project": "x", "user": "bob"}, ""),
        ({"job": "7"}, "a"),
        ({"job": "west/7"}, "a"),
        ({"host": "node2"}, "b"),
    ],
)
def test_runs_are_chosen(make_run, chosen, runs):
    make_run("a", fields={"project": "x", "user": "ada", "job_id": "7", "cluster": "west", "host": "node1"})
    make_run("b", fields={"project": "y", "user": "bob", "host": "node1"})
    logs_dir = make_run("b", [epoch_row(1)], {"host": "node2"}, rank=1, is_closed=False).parent
    found = aggregate(logs_dir, **chosen)
    assert "".join(run.run_id for run in found.runs) == runs
    assert found.selection.is_everything is (not chosen)


energies = st.one_of(st.none(), st.floats(1e-9, 5))
rates = st.one_of(st.none(), st.floats(0, 900))
gaps_s = st.one_of(st.just(0.0), st.floats(0.01, 900))
row_values = st.tuples(st.floats(0.5, 4000), gaps_s, energies, energies, rates, st.floats(-0.2, 0.6))


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranks=st.lists(st.lists(row_values, min_size=1, max_size=6), min_size=1, max_size=3),
    cuts=st.lists(st.floats(-100, 30_000), min_size=1, max_size=6),
    is_rented=st.booleans(),
)
def test_adjacent_periods_add_up_to_the_whole(tmp_path_factory, ranks, cuts, is_rented):
    run = _run_of(tmp_path_factory.mktemp("run"), ranks, is_rented=is_rented)
    parts = list(parts_of(run, [-math.inf, *(BEGIN.timestamp() + cut for cut in sorted(set(cuts))), math.inf]))
    whole, summed = Totals([run_row(run)]), Totals([run_row(part, run) for part in parts])
    by_rates = ("emissions_kgco2e", "cost_usd") if whole.unmetered_estimate_kwh else ()  # of each part's time
    for name in (*SUMS, "cost_usd"):
        # of several ranks the time is that of the slowest in each part, and what was not metered goes by it
        if (len(ranks) == 1 and name not in by_rates) or name in ("cpu_kwh", "gpu_kwh", "ram_kwh", "measured_kwh"):
            assert (getattr(summed, name) or 0.0) == pytest.approx(getattr(whole, name) or 0.0, rel=1e-9, abs=1e-9), (
                name
            )


def _run_of(path, ranks, *, is_rented):
    rows, ends_s = {}, 0.0
    for rank, values in enumerate(ranks):
        at_s, rows[rank] = 0.0, []
        for n, (duration_s, gap_s, gap_kwh, kwh, grams, usd) in enumerate(values):
            gap, energy = (
                Energy(
                    gpu_kwh=e, cpu_kwh=None if e is None else e / 3, gpu_method=Method.COUNTER, cpu_method="tdp_model"
                )
                for e in (gap_kwh, kwh)
            )
            one = row(n + 1, at_s + gap_s, duration_s, None, gap_before_s=gap_s, gap_before=gap, energy=energy)
            rows[rank].append(replace(one, carbon_intensity_gco2e_per_kwh=grams, electricity_price_usd_per_kwh=usd))
            at_s += gap_s + duration_s
        ends_s = max(ends_s, at_s)
    factor = Factor("carbon_intensity", 400.0, "gCO2e/kWh", "a test")
    terms = RunFactors("r", "", at(0), None, factor, 1.2, PRICE, 2.0 if is_rented else None, 1.5)
    summary = summarise(terms, rows, Ending("finished", 0, at(ends_s)), gpu_count=2)
    names = {"started_at": at(0), "gpu_count": "2"}
    fields = {name: Field(name, value) for name, value in names.items()}
    fields["carbon_intensity"] = Field("carbon_intensity", "400.0", "gCO2e/kWh")
    lines = {field.name: (field.value, field.unit) for field in fields.values()}
    known = {"lines": lines, "own_lines": lines, "rows": rows, "command_rows": None, "terms": terms}
    return Run(path, metered_summary=summary, stated=None, **known)


def test_a_ledger_has_the_part_of_a_run_with_its_ends(make_run):
    logs_dir = crossing(make_run, TWENTY_MINUTES)
    (row,) = map(ledger_row, aggregate(logs_dir, since="2026-11", until="2026-12").runs)
    assert (row["period_start"], row["period_end"]) == ("2026-11-01T00:00:00.000Z", at(1200))
    assert row["energy_kwh"] == pytest.approx(4.0)


def test_a_run_of_another_tool_is_cut_too(tmp_path, monkeypatch):
    write_rows(tmp_path, "2026-11-01T00:30:00,p,r,3600,0.4,0.5,0,0.5,1.0")  # written at its end
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/Los_Angeles")  # its times have no zone: they count as UTC everywhere
        time.tzset()
        before, behind = aggregate(tmp_path, until="2026-11").total, aggregate(tmp_path, since="2026-11").total
        assert before.energy_kwh == behind.energy_kwh == pytest.approx(0.5)
        assert (behind.emissions_kgco2e, behind.duration_s, behind.n_split) == (pytest.approx(0.2), 1800.0, 1)
    time.tzset()
