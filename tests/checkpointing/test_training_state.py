"""The state of a training in plain values, taken and put back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

from greenlove_tracker.checkpointing.distributed import RankAgreement
from greenlove_tracker.checkpointing.plain_files import read_plain
from greenlove_tracker.checkpointing.training_state import TrainingState, named
from greenlove_tracker.exploration.random_state import copied
from greenlove_tracker.vocabulary.errors import UsageError


def make(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, n_steps: int) -> None:
    for _ in range(n_steps):
        optimizer.zero_grad()
        model(torch.randn(6, 4)).square().sum().backward()
        optimizer.step()


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "state.pt")
        torch.save(state, path)
        return read_plain(path)


def bits(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def put_back(state: TrainingState, saved: TrainingState) -> None:
    of_rank = through_a_file(saved.capture_of_rank())
    state.load(through_a_file(saved.capture()), of_rank, is_in_loop=True)


def test_gradients_at_hand_come_back_and_so_does_their_lack() -> None:
    """Without a gradient an optimizer skips a parameter."""
    model, optimizer = make()
    train(model, optimizer, 1)
    model[0].bias.grad = None
    other, _ = make(1)
    put_back(TrainingState({"model": other}, {}, {}, {}), TrainingState({"model": model}, {}, {}, {}))
    assert other[0].bias.grad is None
    assert torch.equal(other[0].weight.grad, model[0].weight.grad)


def test_what_state_dict_leaves_out() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("cache", torch.zeros(3), persistent=False)

    model, other = Model(), Model()
    model.cache.fill_(7.0)
    model.layer.bias.requires_grad_(False)
    model.eval()
    saved, restored = TrainingState({"m": model}, {}, {}, {}), TrainingState({"m": other}, {}, {}, {})
    put_back(restored, saved)
    assert other.cache.tolist() == [7.0] * 3
    assert not other.layer.bias.requires_grad
    assert not other.training and not other.layer.training


@pytest.mark.slow
def test_compiled_and_plain_models_read_each_other() -> None:
    model, _ = make()
    other, _ = make(1)
    put_back(TrainingState({"m": other}, {}, {}, {}), TrainingState({"m": torch.compile(model)}, {}, {}, {}))
    assert bits(other) == bits(model)


def test_values_of_numpy_and_pairs_of_functions() -> None:
    held = {"loss": np.float32(0.1), "counts": np.arange(6, dtype=np.int16).reshape(2, 3), "best": (1, None, "x")}
    held |= {"is_on": np.bool_(True), "when": np.datetime64("2026-11-22"), "seen": {1, 2}}
    read = through_a_file(copied(held))
    assert {name: type(value) for name, value in read.items()} == {name: type(value) for name, value in held.items()}
    assert read["counts"].dtype == np.int16 and read["counts"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert all(read[name] == held[name] for name in held if name != "counts")

    got: list[Any] = []
    state = TrainingState({}, {}, {}, named("other", (lambda: {"n": 3}, got.append)))
    assert state.names == ("other",)
    assert list(named("model", (nn.Linear(1, 1), nn.Linear(1, 1)))) == ["model-1", "model-2"]
    put_back(state, state)
    assert got == [{"n": 3}]


def test_what_is_not_plain_is_refused_and_named() -> None:
    with pytest.raises(UsageError, match=r"holds pickles \(greenlove_tracker.*add_safe_globals"):
        through_a_file({"a": [RankAgreement()]})


def test_another_training_is_refused_in_words() -> None:
    model, optimizer = make()
    saved = TrainingState({"model": model}, {"optimizer": optimizer}, {}, {})
    with pytest.raises(UsageError, match=r"has \['model', 'optimizer'\], and this training \['model'\]"):
        put_back(TrainingState({"model": model}, {}, {}, {}), saved)
    small = nn.Linear(1, 1)
    with pytest.raises(UsageError, match="the state of model in the checkpoint does not fit"):
        put_back(TrainingState({"model": small}, {"optimizer": torch.optim.SGD(small.parameters())}, {}, {}), saved)
    with pytest.raises(UsageError, match=r"other is a int: it must have state_dict\(\)"):
        TrainingState({}, {}, {}, {"other": 3})


def test_parameters_that_nobody_would_save_are_refused() -> None:
    model, _ = make()
    temperature = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], 0.1)
    with pytest.raises(UsageError, match="optimizer trains parameters of none of the models"):
        TrainingState({"model": model}, {"optimizer": optimizer}, {}, {})
    pair = (lambda: temperature.detach(), lambda saved: temperature.data.copy_(saved))
    TrainingState({"model": model}, {"optimizer": optimizer}, {}, {"temperature": pair})


def test_the_parameters_of_an_optimizer_come_back_into_the_list_that_it_holds() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    saved = TrainingState({"model": model}, {"optimizer": torch.optim.LBFGS(model.parameters())}, {}, {}).capture()
    reordered = torch.optim.LBFGS(reversed([*model.parameters()]))
    state = TrainingState({"model": model}, {"optimizer": reordered}, {}, {})
    state.load(saved, state.capture_of_rank(), is_in_loop=False)
    assert reordered._params is reordered.param_groups[0]["params"]
    assert all(one is other for one, other in zip(reordered._params, model.parameters(), strict=True))
