import math
import tracemalloc
from dataclasses import replace

import pytest
from conftest import INTENSITY, epoch_row
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.logs.totals import (
    Ending,
    merge_epochs,
    summarise,
    total_duration_s,
)
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Flag, Method, Row, RowKind

ENDING = Ending("finished", 0, "2026-11-01T13:00:00.000Z")
PRICE = Factor("electricity_price", 0.30, "USD/kWh", "a test")
HOUR_S = 3600.0


def terms(**changed):
    return replace(RunFactors("run", "", "2026-11-01T12:00:00.000Z", None, INTENSITY), **changed)


def summary(rows, *, gpu_count=1, command_rows=None, joined=None, **changed):
    by_rank = rows if isinstance(rows, dict) else {0: rows}
    return summarise(
        terms(**changed), by_rank, ENDING, gpu_count=gpu_count, command_rows=command_rows, joined=joined or {}
    )


def gap(duration_s, energy=UNKNOWN_ENERGY, kind=RowKind.GAP, *flags):
    return Row(kind, None, "", duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None, frozenset(flags))


def gpu(kwh, method=Method.COUNTER):
    return Energy(gpu_kwh=kwh, gpu_method=method)


@st.composite
def rows(draw):
    """Rows as a tracker writes them, from the spans of a run: each metered by the same components or not at all."""
    is_there = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))

    def energy():
        if not draw(st.booleans()):
            return UNKNOWN_ENERGY
        return Energy(*(draw(st.floats(0, 1e3)) if there else None for there in is_there))

    seconds = st.floats(0.1, 1e5)  # a meter can tell
    return [
        Row(
            kind,
            number if kind in (RowKind.EPOCH, RowKind.SEGMENT) else None,
            "",
            draw(seconds),
            energy(),
            draw(seconds) if kind in (RowKind.EPOCH, RowKind.SEGMENT) else 0.0,
            Counts(1),
            energy() if kind in (RowKind.EPOCH, RowKind.SEGMENT) else UNKNOWN_ENERGY,
            None,
        )
        for number, kind in enumerate(draw(st.lists(st.sampled_from(RowKind), max_size=8)), 1)
    ]


@pytest.mark.parametrize(("gap_s", "energy_kwh"), [(0.0007, None), (0.2, 0.0)])
def test_nothing_metered_of_an_instant_says_nothing_about_a_run(gap_s, energy_kwh):
    written = [gap(12.0, UNKNOWN_ENERGY, RowKind.GAP, Flag.METER_STARTING), gap(gap_s, gpu(0.0), RowKind.TAIL)]
    found = summary(written)
    assert (found.energy_kwh, found.energy.total_kwh, found.measured_kwh) == (energy_kwh,) * 3


@pytest.mark.slow
@given(rows())
def test_the_sum_over_rows_is_the_sum_by_component_gaps_included(written):
    found = summary(written)
    parts = [e.total_kwh for row in written for e in (row.gap_before, row.energy) if e.total_kwh is not None]
    assert (found.energy.total_kwh is None) == (not parts)
    if parts:
        assert found.energy.total_kwh == pytest.approx(math.fsum(parts), rel=1e-9)
        assert found.energy_kwh == pytest.approx(found.energy.total_kwh + found.unmetered_estimate_kwh, rel=1e-9)
        assert found.energy_kwh >= found.energy.total_kwh
    else:
        assert found.energy_kwh is found.emissions_kgco2e is found.measured_kwh is found.unmetered_estimate_kwh is None
    assert found.duration_s == pytest.approx(total_duration_s(written), rel=1e-12)
    assert found.metered_s <= found.duration_s * (1 + 1e-12)


@pytest.mark.slow
@given(rows(), st.floats(1, 3))
def test_pue_multiplies_energy_emissions_and_cost_once(written, pue):
    bare, site = (summary(written, pue=p, electricity_price=PRICE) for p in (1.0, pue))
    assert site.energy == bare.energy and site.unmetered_estimate_kwh == bare.unmetered_estimate_kwh
    for name in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
        one, other = getattr(bare, name), getattr(site, name)
        assert (one is None and other is None) or other == pytest.approx(one * pue, rel=1e-9)


@pytest.mark.parametrize(
    ("energy", "assumed_kwh"),
    [
        (gpu(1.0), 0.25),
        (Energy(0.1, 1.0, 0.05, Method.TDP_MODEL, Method.COUNTER, Method.CONSTANT), 0.10),  # CPU and memory are within
        (Energy(0.3, 1.0, None, Method.COUNTER, Method.COUNTER), None),  # more than was assumed: it stands
        (Energy(cpu_kwh=1.0, cpu_method=Method.COUNTER), None),  # no GPU's counter
        (UNKNOWN_ENERGY, None),
    ],
)
def test_the_rest_of_the_node_is_assumed_where_it_is_said_and_never_in_silence(energy, assumed_kwh):
    row = replace(epoch_row(1, 1.0, HOUR_S), energy=energy)
    bare, whole = (summary([row], pue=1.2, electricity_price=PRICE, node_overhead=k) for k in (None, 1.25))
    assert bare.node_assumed_kwh is None
    assert whole.node_assumed_kwh == (None if assumed_kwh is None else pytest.approx(assumed_kwh))
    assert (whole.energy, whole.measured_kwh) == (bare.energy, bare.measured_kwh)
    if assumed_kwh is None:
        assert whole == bare
    else:
        assert whole.energy_kwh == pytest.approx(1.25 * 1.2)
        assert whole.emissions_kgco2e == pytest.approx(1.25 * 1.2 * 400 / 1000)
        assert whole.measured_share == pytest.approx(1.0 / 1.25)


def test_four_gpus_of_300_w_for_an_hour():
    found = summary([epoch_row(1, 4 * 0.3, HOUR_S)], gpu_count=4, pue=1.25, electricity_price=PRICE)
    assert (found.energy.gpu_kwh, found.energy_kwh, found.gpu_hours) == (1.2, 1.5, 4.0)
    assert found.emissions_kgco2e == pytest.approx(1.5 * 400 / 1000)
    assert (found.cost_usd, found.cost_basis) == (pytest.approx(0.45), "electricity")
    assert (found.measured_kwh, found.measured_share, found.unmetered_estimate_kwh) == (1.2, 1.0, 0.0)


def test_a_machine_without_gpus_costs_its_electricity():
    found = summary([epoch_row(1, 1.0)], gpu_count=0, price_usd_per_gpu_hour=2.0, electricity_price=PRICE)
    assert (found.cost_usd, found.cost_basis) == (pytest.approx(0.3), "electricity")
    assert (summary([epoch_row(1, 1.0)]).cost_usd, summary([epoch_row(1, 1.0)]).cost_basis) == (None, "")


def test_the_machine_costs_what_it_costs_where_its_energy_is_not_known():
    found = summary([epoch_row(1, None, HOUR_S)], price_usd_per_gpu_hour=2.0)
    assert (found.cost_usd, found.energy_kwh, found.emissions_kgco2e) == (2.0, None, None)


def test_what_was_not_metered_is_estimated_at_the_mean_power_and_told_apart():
    found = summary([gap(30.0), epoch_row(1, 0.001, 10.0), epoch_row(2, 0.003, 10.0)])
    assert found.energy.gpu_kwh == found.measured_kwh == 0.004
    assert found.unmetered_estimate_kwh == pytest.approx(0.004 / 20 * 30)
    assert (found.metered_s, found.duration_s) == (20.0, 50.0)
    assert found.measured_share == pytest.approx(20 / 50)


def test_one_component_that_went_silent_is_estimated_alone():
    both = replace(epoch_row(1, duration_s=10.0), energy=Energy(0.002, 0.001, None, "tdp_model", "counter"))
    rest = replace(epoch_row(2, duration_s=30.0), energy=Energy(0.006, None, None, "tdp_model"))
    found = summary([both, rest])
    assert (found.energy.cpu_kwh, found.energy.gpu_kwh, found.energy.ram_kwh) == (0.008, 0.001, None)
    assert found.unmetered_estimate_kwh == pytest.approx(0.003)
    assert found.measured_kwh == 0.001 and found.metered_s == 10.0


def test_no_rows_are_no_energy():
    found = summary({})
    assert (found.duration_s, found.energy_kwh, found.epochs_done, found.n_ranks) == (0.0, None, 0, 1)
    assert found.measured_share is None


def test_an_unknown_intensity_is_no_emission():
    unknown = Factor("carbon_intensity", math.nan, "", "not in the log")
    found = summary([epoch_row(1)], carbon_intensity=unknown)
    assert found.energy_kwh is not None and found.emissions_kgco2e is None


def test_ranks_of_one_node_do_not_count_it_again():
    bare = [epoch_row(1, None, 12.0, RowKind.EPOCH, Flag.NO_METER)]
    found = summary({0: [epoch_row(1, 0.004, 10.0)], 1: bare, 2: bare, 3: bare}, gpu_count=4)
    assert (found.energy_kwh, found.n_ranks, found.n_nodes) == (0.004, 4, 1)
    assert (found.duration_s, found.epochs_done) == (12.0, 1)
    assert found.counts == Counts(steps=5, batches=20, samples=1280)
    assert Flag.NO_METER not in found.flags


def test_two_nodes_add_up():
    bare = [epoch_row(1, None, 10.0, RowKind.EPOCH, Flag.NO_METER)]
    found = summary({0: [epoch_row(1, 0.004)], 1: bare, 2: [epoch_row(1, 0.006)], 3: bare}, gpu_count=4)
    assert found.energy_kwh == pytest.approx(0.010) and found.unmetered_estimate_kwh == 0.0
    assert (found.n_ranks, found.n_nodes, found.duration_s) == (4, 2, 10.0)


def test_a_node_whose_meter_failed_is_estimated_after_the_others():
    failed = [epoch_row(1, None, 20.0, RowKind.EPOCH, Flag.METER_FAILED)]
    found = summary({0: [epoch_row(1, 0.004, 10.0)], 1: failed})
    assert (found.energy.gpu_kwh, found.unmetered_estimate_kwh) == (0.004, pytest.approx(0.008))
    assert found.energy_kwh == pytest.approx(0.012) and found.n_nodes == 2
    assert found.metered_s == 0.0 and Flag.METER_FAILED in found.flags


def test_a_command_holds_the_totals_and_its_trackers_the_epochs():
    command = [gap(60.0, gpu(0.01)), gap(5.0, gpu(0.001), RowKind.TAIL)]
    found = summary({0: [epoch_row(1, 0.004), epoch_row(2, 0.004)]}, command_rows=command, joined={0: 0})
    assert found.energy_kwh == pytest.approx(0.011) and found.duration_s == 65.0
    assert (found.epochs_done, found.epochs_duration_s, found.between_s) == (2, 20.0, 45.0)


def test_a_command_killed_before_its_first_row_leaves_the_rows_of_its_trackers():
    found = summary({0: [epoch_row(1, 0.004)]}, command_rows=[])
    assert (found.energy_kwh, found.duration_s) == (0.004, 10.0)


def test_segments_become_one_epoch():
    parts = [epoch_row(3, 0.001, 60.0, RowKind.SEGMENT), epoch_row(3, 0.002, 60.0, RowKind.SEGMENT, Flag.CLOCK_JUMP)]
    (record,) = merge_epochs([*parts, epoch_row(3, 0.003, 5.0)], rank=2)
    assert (record.epoch, record.rank, record.n_segments, record.is_complete) == (3, 2, 3, True)
    assert record.duration_s == 125.0 and record.energy.gpu_kwh == pytest.approx(0.006)
    assert record.emissions_gco2e == pytest.approx(2.4) and record.flags == {Flag.CLOCK_JUMP}
    assert (record.steps, record.samples, record.tokens) == (15, 960, None)


def test_an_epoch_without_a_closing_row_is_unfinished():
    done, cut = merge_epochs([epoch_row(1), epoch_row(2, kind=RowKind.SEGMENT)], rank=0)
    assert done.is_complete and not cut.is_complete and Flag.UNFINISHED in cut.flags
    assert summary([epoch_row(1), epoch_row(2, kind=RowKind.SEGMENT)]).epochs_done == 1


@pytest.mark.parametrize("second", [UNKNOWN_ENERGY, Energy(cpu_kwh=0.1, cpu_method="counter")])
def test_an_epoch_that_was_metered_in_part_has_no_energy(second):
    parts = [epoch_row(1, kind=RowKind.SEGMENT), replace(epoch_row(1), energy=second)]
    (record,) = merge_epochs(parts, rank=0)
    assert record.energy == UNKNOWN_ENERGY and record.emissions_gco2e is None and record.duration_s == 20.0


@pytest.mark.slow
def test_sums_over_any_number_of_rows_are_exact_and_take_the_memory_of_few():
    def many():
        for n in range(50_000):
            yield epoch_row(n, 1e-3 / (1 + n % 11), 0.1 + n % 7 / 3)

    kwh = math.fsum(row.energy.gpu_kwh for row in many())
    duration_s = math.fsum(row.gap_before_s + row.duration_s for row in many())
    tracemalloc.start()
    found = summary(many())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.energy.gpu_kwh, found.duration_s, found.epochs_done) == (kwh, duration_s, 50_000)
    assert peak_bytes < 2e6  # as lists of floats: 10 MB
