import copy
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Flag,
    Method,
    RowKind,
    RunStatus,
    sum_energies,
)

KWH = st.none() | st.floats(0, 1e6)
ENERGIES = st.builds(Energy, KWH, KWH, KWH)
COUNTS = st.builds(Counts, *[st.none() | st.integers(0, 10**12)] * 4)


def test_unknown_is_not_zero():
    assert UNKNOWN_ENERGY.total_kwh is None and not UNKNOWN_ENERGY.is_known
    assert Energy(cpu_kwh=0.0).total_kwh == 0.0 and Energy(cpu_kwh=0.0).is_known
    assert (UNKNOWN_ENERGY + UNKNOWN_ENERGY) == UNKNOWN_ENERGY
    assert sum_energies([]) == UNKNOWN_ENERGY


def test_a_sum_names_every_method():
    one = Energy(gpu_kwh=1.0, gpu_method=Method.SAMPLED_POWER)
    other = Energy(gpu_kwh=2.0, gpu_method="counter+sampled_power", ram_kwh=0.5, ram_method=Method.CONSTANT)
    both = one + other
    assert (both.gpu_kwh, both.gpu_method) == (3.0, "counter+sampled_power")
    assert (both.ram_kwh, both.ram_method, both.cpu_kwh, both.cpu_method) == (0.5, "constant", None, None)
    assert both.component_kwh("gpu") == 3.0 and both.component_method("ram") == "constant"


@given(st.lists(ENERGIES))
def test_the_sum_over_rows_is_the_sum_by_component(energies):
    totals = [e.total_kwh for e in energies if e.total_kwh is not None]
    whole = sum_energies(energies).total_kwh
    assert (whole is None) == (not totals)
    assert whole is None or whole == pytest.approx(math.fsum(totals), rel=1e-9)


@given(COUNTS, COUNTS)
def test_counts_add_what_is_known(a, b):
    both = a + b
    for name in ("steps", "batches", "samples", "tokens"):
        known = [v for v in (getattr(a, name), getattr(b, name)) if v is not None]
        assert getattr(both, name) == (sum(known) if known else None)


@pytest.mark.parametrize("word", [*Flag, *Method, *RowKind, *RunStatus])
def test_a_word_has_a_meaning_and_is_its_string_everywhere(word):
    assert word == str(word.value) == f"{word}" and word.meaning and word.meaning != word
    assert type(word)(word.value) is word is pickle.loads(pickle.dumps(word)) is copy.copy(word)
    assert hash(word) == hash(str(word)) and json.dumps(word) == f'"{word.value}"'
