"""Random states as plain values: written to a file, read back, put back."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_flatten

from greenlove_tracker.exploration.random_state import (
    plain_value,
    put_back_random_state_values,
    random_state_values,
    saved_generator,
)


def through_a_file(values):
    file = io.BytesIO()
    torch.save(values, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def drawn():
    return [random.random(), random.gauss(0, 1), torch.rand(3).tolist(), np.random.rand(3).tolist(), np.random.randn()]


def test_values_survive_a_file_that_is_read_without_pickles() -> None:
    random.gauss(0, 1)  # of two Gaussian numbers, the second is kept in the state
    np.random.randn()
    values = through_a_file(random_state_values())
    first = drawn()
    assert drawn() != first
    assert put_back_random_state_values(values) == ()
    assert drawn() == first


def test_what_is_missing_is_said(monkeypatch) -> None:
    values = random_state_values()
    del values["torch's random state"]
    values["cuda random states"] = [torch.zeros(16, dtype=torch.uint8)]
    values["tpu random states"] = [torch.zeros(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", _no_device)
    before = torch.get_rng_state()
    missing = put_back_random_state_values(values)
    assert torch.equal(torch.get_rng_state(), before)
    assert sorted(missing) == [
        "cuda random states",
        "torch's random state",
        "tpu random states",
    ]


def _no_device(states):
    raise RuntimeError("no device 0")


def is_same_state(one, other):
    parts, form = tree_flatten(one)
    others, other_form = tree_flatten(other)
    return form == other_form and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(parts, others, strict=True)
    )


GENERATORS = {
    "torch": lambda: torch.Generator().manual_seed(3),
    "random": lambda: random.Random(3),
    "RandomState": lambda: np.random.RandomState(3),
    "PCG64": lambda: np.random.default_rng(3),
    "Philox": lambda: np.random.Generator(np.random.Philox(3)),
    "SFC64": lambda: np.random.Generator(np.random.SFC64(3)),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(3)),
}


def draw(generator):
    return torch.rand(2, generator=generator).tolist() if isinstance(generator, torch.Generator) else generator.random()


@pytest.mark.parametrize("kind", GENERATORS)
def test_every_kind_of_generator(kind) -> None:
    generator = GENERATORS[kind]()
    draw(generator)
    state = saved_generator("", generator)
    before = through_a_file(plain_value(state.save()))
    first = draw(generator)
    assert not is_same_state(plain_value(state.save()), before)
    state.put_back(before)
    assert is_same_state(plain_value(state.save()), before)
    assert draw(generator) == first
