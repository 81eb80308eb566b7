"""Whatever a training step changes is put back, or it is said by name before the training goes on."""

from __future__ import annotations

import collections
import copy
import itertools
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from greenlove_tracker import Estimator  # noqa: E402
from greenlove_tracker.exploration.snapshot import Snapshot  # noqa: E402
from greenlove_tracker.techniques.compare import compare  # noqa: E402
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402

CALLS = {"n": 0}


class Annealed:
    """A plain helper object of a model."""

    def __init__(self) -> None:
        self.beta, self.history, self.array = 0.0, [], np.zeros(3)
        self.counts = collections.defaultdict(int)

    def step(self) -> None:
        self.beta += 0.1
        self.history.append(self.beta)
        self.array += 1
        self.counts["steps"] += 1


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Locked:
    """An object that is not put back: what it guards may be elsewhere."""

    def __init__(self) -> None:
        self.lock, self.n = threading.Lock(), 0


class Model(nn.Module):
    instances = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.annealed, self.slotted, self.locked = nn.Linear(2, 2), Annealed(), Slotted(), Locked()
        self.table = types.SimpleNamespace(rows=[np.arange(2)])
        self.ids = itertools.count()
        self.change: Callable[[Model], Any] = lambda _: None

    def forward(self, inputs: Any) -> Any:
        self.change(self)
        return self.layer(inputs)


def count_globally(_: Model) -> None:
    CALLS["n"] += 1


def count_inside(_: Model) -> None:
    def closure() -> None:
        CALLS["n"] += 1

    closure()


def count_in_a_named_class(_: Model) -> None:
    Counted.n += 1


class Counted:
    n = 0


def count_in_the_class(model: Model) -> None:
    type(model).instances += 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.annealed.step(), []),
        (lambda m: setattr(m.slotted, "n", 9), []),
        (lambda m: m.table.rows[0].fill(7), []),
        (lambda m: setattr(m, "beta", 3), []),
        (lambda m: m.register_buffer("late", torch.ones(1)), []),
        (lambda m: m.layer.register_forward_hook(lambda *_: None), []),
        (lambda m: hasattr(m.layer, "parametrizations") or nn.utils.parametrizations.weight_norm(m.layer), []),
        (lambda m: setattr(m.locked, "n", m.locked.n + 1), ["model.locked.n"]),
        (lambda m: next(m.ids), ["model.ids"]),
        (lambda m: m.layer.weight.register_hook(lambda gradient: gradient), []),
        (lambda m: setattr(m.layer.weight, "data", m.layer.weight.data * 2), []),
        (count_globally, ["model.change.CALLS"]),
        (count_inside, ["model.change.CALLS"]),
        (count_in_a_named_class, ["model.change.Counted.n"]),
        (count_in_the_class, ["model.instances"]),
    ],
)
def test_what_a_model_changes_is_put_back_or_said(change: Any, said: list[str], caplog: Any) -> None:
    model = Model()
    model.change = change
    before = copy.deepcopy(model.annealed), model.layer.weight.clone(), set(vars(model)), set(vars(model.layer))
    with Snapshot(model, watched={"model": model}) as snapshot:
        model(torch.ones(1, 2)), model(torch.ones(1, 2))
    annealed, weight, names, names_of_layer = before
    assert (model.annealed.beta, model.annealed.history, model.annealed.array.sum()) == (annealed.beta, [], 0)
    assert model.annealed.counts == {} and model.slotted.n == 0 and model.table.rows[0].tolist() == [0, 1]
    assert set(vars(model)) == names and set(vars(model.layer)) == names_of_layer and type(model.layer) is nn.Linear
    assert torch.equal(model.layer.weight, weight) and not hasattr(model, "late") and not model.layer._forward_hooks
    assert not model.layer.weight._backward_hooks
    assert snapshot.left_changed == said
    assert [name in caplog.text for name in said] == [True] * len(said) and bool(caplog.text) == bool(said)


def test_generators_are_put_back_wherever_they_hang() -> None:
    generators = np.random.default_rng(1), torch.Generator().manual_seed(1), random.Random(1)

    def step() -> tuple[float, ...]:
        of_numpy, of_torch, of_python = generators
        return of_numpy.random(), torch.rand(1, generator=of_torch).item(), of_python.random()

    with Snapshot((), watched={"step": step}) as snapshot:
        drawn = step()
    assert step() == drawn and snapshot.left_changed == []


class Smoothed:
    """A criterion with state that is no module."""

    def __init__(self) -> None:
        self.mean, self.seen = torch.zeros(1), 0

    def __call__(self, outputs: Any, targets: Any) -> Any:
        loss = (outputs - targets).square().mean()
        self.seen += 1
        self.mean.mul_(0.9).add_(0.1 * loss.detach())
        return loss


class Counting(TensorDataset):
    def __init__(self) -> None:
        super().__init__(torch.ones(64, 2), torch.ones(64, 2))
        self.drawn = {"n": 0}

    def __getitem__(self, index: Any) -> Any:
        self.drawn["n"] += 1
        return super().__getitem__(index)


def explored(tmp_path: Any, *parts: Any, **options: Any) -> None:
    options = {"budget_s": 0.5, "log_dir": tmp_path / "logs", "verbose": 0, "asks": False, "batch_size": 8, **options}
    Estimator(*parts, total_epochs=50, **options).estimate()


def test_an_exploration_says_what_it_changed(tmp_path: Any, caplog: Any) -> None:
    model, criterion, data = Model(), Smoothed(), Counting()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    shadow = {name: value.clone() for name, value in model.state_dict().items()}
    named: list[int] = []
    n_steps = 0

    def train_step(model: Any, batch: Any, optimizer: Any, criterion: Any, _: Any) -> None:
        nonlocal n_steps
        n_steps += 1
        named.append(n_steps)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = criterion(model(batch[0]), batch[1])
            loss.backward()
            return loss

        optimizer.step(closure)
        for name, value in model.state_dict().items():
            shadow[name].mul_(0.9).add_(value, alpha=0.1)

    restored = (lambda: list(named), lambda saved: named.__setitem__(slice(None), saved))
    explored(tmp_path, model, optimizer, criterion, data, train_step=train_step, also_restore=[restored])
    assert (criterion.seen, criterion.mean.item(), named, len(optimizer.state)) == (0, 0.0, [], 0)
    for name in ("train_step.shadow", "train_step.n_steps", "train_dataset.drawn"):
        assert name in caplog.text
    assert "train_step.named" not in caplog.text and "criterion" not in caplog.text.partition("also_restore")[0]


def test_what_is_named_in_also_restore_may_be_a_plain_object(tmp_path: Any, caplog: Any) -> None:
    annealed = Annealed()
    model = nn.Linear(2, 2)

    def loss(model: Any, batch: Any) -> Any:
        annealed.step()
        return model(batch[0]).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.ones(64, 2))
    explored(tmp_path, model, optimizer, None, data, loss=loss, also_restore=[annealed])
    assert annealed.beta == 0 and annealed.history == [] and "have changed" not in caplog.text


def test_a_lazy_model_is_refused_with_what_to_do(tmp_path: Any) -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(UsageError, match=r"a model is lazy: 0\.weight has no shape yet\. Run a batch through"):
        explored(tmp_path, model, optimizer, nn.MSELoss(), Counting())


def test_a_comparison_says_what_its_task_changed(tmp_path: Any) -> None:
    data = Counting()

    def task() -> Any:
        model = nn.Linear(2, 2)
        return model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss(), data

    found = compare(task, ["grad-accumulation=2"], budget_s=1, log_dir=tmp_path, verbose=0)
    assert found.left_changed == ("task.data.drawn",)
