from __future__ import annotations

import copy
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset  # noqa: E402

from greenlove_tracker.exploration import snapshot as snapshot_module  # noqa: E402
from greenlove_tracker.exploration.snapshot import (  # noqa: E402
    RestoreError,
    Snapshot,
    find_lr_schedulers,
    find_scalers_and_averages,
)
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    """Steps of microseconds are slower by far on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Noisy(Dataset):
    """Augments with every kind of random number, in whatever process loads it."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs, self.targets = torch.randn(26, 6, generator=generator), torch.randn(26, 1, generator=generator)
        self.rng = np.random.default_rng(3)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        noise = 0.1 * torch.randn(6) + random.random() + float(np.random.rand()) + float(self.rng.normal())
        return self.inputs[index] + noise, self.targets[index]


@dataclass
class Training:
    """A user's training, of which a test varies the parts."""

    optimizer_class: Any = torch.optim.Adam
    options: dict[str, Any] = field(default_factory=lambda: {"lr": 1e-2})
    scheduler: str = ""
    amp: str = ""
    loading: dict[str, Any] = field(default_factory=dict)
    has_generator: bool = True

    def __post_init__(self) -> None:
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = self.optimizer_class(self.model.parameters(), **self.options)
        self.schedule = {
            "": lambda: None,
            "step": lambda: torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5),
            "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=100),
        }[self.scheduler]()
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3) if self.amp == "scaler" else None
        generator = torch.Generator().manual_seed(5) if self.has_generator else None
        self.loader = DataLoader(Noisy(), batch_size=4, shuffle=True, generator=generator, **self.loading)

    def others(self) -> list[Any]:
        return [part for part in (self.schedule, self.scaler) if part is not None]

    def preserved(self):
        return Snapshot(self.model, self.optimizer, data=self.loader, others=self.others())

    def step(self, batch: Any) -> float:
        inputs, targets = batch
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.amp == "bfloat16"):
            loss = nn.functional.mse_loss(self.model(inputs), targets)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.schedule is not None:
            self.schedule.step()
        return loss.item()

    def epoch(self, batches: int | None = None) -> list[float]:
        self.model.train()
        losses = []
        for batch in self.loader:
            if len(losses) == batches:
                break
            losses.append(self.step(batch))
        return losses

    def explore(self) -> None:
        """Everything that an exploration might change."""
        self.epoch()
        self.epoch(3)
        self.model.eval()
        torch.manual_seed(99), random.seed(99), np.random.seed(99)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        self.model[0].weight.requires_grad_(False)
        self.optimizer.param_groups[0]["lr"] = 123.0

    def close(self) -> None:
        workers = self.loader._iterator
        if workers is not None:
            workers._shutdown_workers()


def trained(training: Training, *, explore_before: int | None = None, epochs: int = 3) -> tuple[list[float], Any]:
    """Losses and all that is left at the end, of a training that explored before one of its epochs, or never."""
    losses = []
    for epoch in range(epochs):
        if epoch == explore_before:
            with training.preserved():
                training.explore()
        losses += training.epoch()
    left = copy.deepcopy([training.model.state_dict(), training.optimizer.state_dict()])
    left += [part.state_dict() for part in training.others()]
    left += [torch.get_rng_state(), random.getstate(), np.random.get_state(), training.loader.generator.get_state()]
    training.close()
    return losses, left


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


ADAM = {"optimizer_class": torch.optim.Adam}
SGD = {"optimizer_class": torch.optim.SGD, "options": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 1e-3}}
PARTS = [
    ADAM,
    SGD,
    {"optimizer_class": torch.optim.AdamW, "options": {"lr": torch.tensor(1e-2), "amsgrad": True}, "scheduler": "step"},
    SGD | {"scheduler": "step"},
    ADAM | {"scheduler": "one cycle"},
    ADAM | {"amp": "bfloat16"},
    SGD | {"amp": "scaler", "scheduler": "step"},
]


@pytest.mark.slow_cases
@pytest.mark.parametrize("explore_before", [0, 2])
@pytest.mark.parametrize("parts", PARTS)
def test_training_goes_on_as_if_it_had_never_explored(parts, explore_before):
    reference = trained(Training(**copy.deepcopy(parts)))
    explored = trained(Training(**copy.deepcopy(parts)), explore_before=explore_before)
    assert len(reference[0]) == 21
    assert explored[0] == reference[0]
    assert same(explored[1], reference[1])


@pytest.mark.slow
@pytest.mark.parametrize("explore_before", [0, 1])
@pytest.mark.parametrize("has_generator", [True, False])
@pytest.mark.parametrize("loading", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_the_order_and_noise_of_the_data_are_as_without_exploring(loading, has_generator, explore_before):
    parts = {"loading": loading, "has_generator": has_generator}
    reference = Training(**parts)
    expected = [reference.epoch(), reference.epoch()]
    reference.close()
    explored = Training(**parts)
    losses = [explored.epoch()] if explore_before else []
    workers = explored.loader._iterator
    with explored.preserved():
        explored.explore()
    assert explored.loader._iterator is workers
    losses += [explored.epoch() for _ in range(2 - explore_before)]
    explored.close()
    assert losses == expected


@pytest.mark.parametrize("failure", [RuntimeError("a step fails"), KeyboardInterrupt(), SystemExit(3)])
def test_nothing_is_left_of_an_exploration_that_fails(failure):
    reference = trained(Training(scheduler="step", amp="scaler"))
    training = Training(scheduler="step", amp="scaler")
    with pytest.raises(type(failure)) as caught, training.preserved():
        training.explore()
        raise failure
    assert caught.value is failure
    assert same(trained(training), reference)


@pytest.mark.filterwarnings("ignore:.*not writable")
def test_weights_in_a_file_that_cannot_be_written_are_left_alone(tmp_path):
    np.save(tmp_path / "table.npy", np.ones((8, 4), dtype=np.float32))
    table = torch.from_numpy(np.load(tmp_path / "table.npy", mmap_mode="r"))
    model = nn.Sequential(nn.Embedding.from_pretrained(table), nn.Linear(4, 4))
    with Snapshot(model), torch.no_grad():
        model[1].weight.zero_()
    assert model[0].weight.data_ptr() == table.data_ptr() and model[1].weight.any()


class Odd(nn.Module):
    """State in every place where a module may have some."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("average", torch.zeros(3), persistent=False)
        self.register_buffer("repeated", torch.arange(3.0).expand(4, 3))
        self.register_buffer("later", None)
        self.shape_only = torch.zeros(3, device="meta")
        self.steps, self.history, self.hidden = 0, [], torch.zeros(3)
        self.seen = {"batches": {"few": [1]}}
        self.rng = random.Random(1)
        self.pair = (torch.zeros(1), [])
        with torch.inference_mode():
            self.constant = torch.zeros(1)

    def forward(self, inputs: Any) -> Any:
        self.steps += 1
        self.history.append(self.steps)
        self.hidden += self.weight  # which ties it to the graph of this step
        self.later = torch.ones(1)
        self.average = 0.9 * self.average + inputs  # another tensor
        self.repeated = self.repeated + 1
        self.seen["batches"]["few"].append(self.rng.random())
        self.pair[0].add_(1)
        self.pair[1].append(1)
        self.unheard_of = True
        return (self.weight * inputs).sum()


def test_buffers_that_no_state_dict_holds_and_attributes_are_put_back():
    model = Odd()
    kept = {name: getattr(model, name) for name in ("average", "repeated", "history", "hidden")}
    with Snapshot(model):
        model(torch.ones(3)), model(torch.ones(3))
        kept["average"].fill_(5)
    assert all(getattr(model, name) is thing for name, thing in kept.items())
    assert model.hidden.is_leaf and not model.hidden.requires_grad
    assert torch.equal(model.average, torch.zeros(3)) and torch.equal(model.hidden, torch.zeros(3))
    assert torch.equal(model.repeated, torch.arange(3.0).expand(4, 3)) and model.later is None
    assert (model.steps, model.history) == (0, [])
    assert model.pair == (torch.zeros(1), [])
    assert model.seen == {"batches": {"few": [1]}} and model.rng.random() == random.Random(1).random()
    assert not hasattr(model, "unheard_of")


def test_wrapped_models_are_looked_into():
    for wrap in (nn.DataParallel, torch.compile):
        inner = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
        model, before = wrap(inner), copy.deepcopy(inner.state_dict())
        with Snapshot(model):
            model.eval()
            with torch.no_grad():
                inner[0].weight.add_(1), inner[1].running_mean.add_(1)
        assert model.training and inner[0].training and same(inner.state_dict(), before)


def test_random_states_and_switches_are_put_back():
    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), torch.rand(1).item()]

    state_of_python, state_of_numpy, state_of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected, model = draws(), nn.Linear(1, 1)
    random.setstate(state_of_python), np.random.set_state(state_of_numpy), torch.set_rng_state(state_of_torch)
    cudnn, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
    before = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    with Snapshot(model):
        draws(), draws()
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = (not flag for flag in before)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
    assert draws() == expected
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32) == before
    assert torch.get_float32_matmul_precision() == precision
    assert not torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


class Epochal(RandomSampler):
    """Counts its epochs, as a DistributedSampler is told to."""

    epoch = 0

    def __iter__(self):
        self.epoch += 1
        return super().__iter__()


def test_samplers_and_generators_of_a_loader_are_put_back():
    data = [(torch.tensor(float(number)),) for number in range(6)]
    jitter = np.random.default_rng(2)

    def collate(items: Any) -> Any:
        return torch.stack([item[0] for item in items]) + jitter.random()

    sampler = Epochal(data, generator=torch.Generator().manual_seed(1))
    sampler.epoch = 4
    loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 2, False), collate_fn=collate)
    snapshot = Snapshot(nn.Linear(1, 1), data=loader)
    assert snapshot.size_bytes == 2 * 4  # the data are not copied
    first = torch.cat(list(loader))
    assert sampler.epoch == 5
    snapshot.restore()
    assert sampler.epoch == 4 and torch.equal(torch.cat(list(loader)), first)


class Meter:
    """A user's own state, which its state_dict does not copy."""

    def __init__(self) -> None:
        self.counts = {"seen": [0]}

    def state_dict(self) -> dict[str, Any]:
        return self.counts

    def load_state_dict(self, counts: dict[str, Any]) -> None:
        self.counts = counts


def test_what_only_the_user_knows_is_put_back():
    meter, cell = Meter(), [1]
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1))
    pair = (lambda: list(cell), lambda saved: cell.__setitem__(slice(None), saved))
    generator = np.random.default_rng(1)
    snapshot = Snapshot(nn.Linear(1, 1), others=[meter, pair, average, generator])
    for _ in range(2):
        meter.counts["seen"].append(7)
        cell.append(2)
        average.update_parameters(nn.Linear(1, 1))
        drawn = generator.random()
        snapshot.restore()
        assert (meter.counts, cell, average.n_averaged.item()) == ({"seen": [0]}, [1], 0)
    assert drawn == generator.random()


@pytest.mark.parametrize("thing", [object(), [1], "text", (print,), None, [nn.Linear(1, 1), nn.Linear(1, 1)]])
def test_what_cannot_be_restored_is_refused_before_anything_runs(thing):
    with pytest.raises(UsageError, match=r"also_restore\[1\] is a .*state_dict.*pair of functions"):
        Snapshot(nn.Linear(1, 1), others=[Meter(), thing])


def test_what_cannot_be_put_back_is_named_and_all_else_is_put_back():
    def fail(_: Any) -> None:
        raise ValueError("gone")

    model, cell = nn.Linear(2, 2), [1]
    before = model.weight.clone()
    others = [(lambda: 0, fail), (lambda: list(cell), lambda saved: cell.__setitem__(slice(None), saved)), (int, fail)]
    named = pytest.raises(RestoreError, match=r"also_restore\[0\].*gone.*also_restore\[2\]")
    with named, Snapshot(model, others=others):
        cell.append(2)
        raise KeyboardInterrupt
    with pytest.raises(UsageError, match=r"also_restore\[0\] cannot be saved.*division"):
        Snapshot(model, others=[(lambda: 1 / 0, fail)])
    assert cell == [1] and torch.equal(model.weight, before)


def test_a_model_for_which_there_is_no_room_is_refused_with_the_sizes(monkeypatch):
    model, data = nn.Linear(512, 512, bias=False), TensorDataset(torch.zeros(4, 1))
    loader = DataLoader(data, num_workers=1, persistent_workers=True)
    workers = loader._iterator = object()
    monkeypatch.setattr(snapshot_module, "free_host_bytes", lambda: 1.26 * 1024**2)
    assert Snapshot(model).size_bytes == 1024**2
    monkeypatch.setattr(snapshot_module, "free_host_bytes", lambda: 1.2 * 1024**2)
    with pytest.raises(UsageError, match=r"0\.000977 GB, and 0\.000937 GB of the host"):
        Snapshot(model, data=loader, others=[(pytest.fail, pytest.fail)])
    assert loader._iterator is workers
    loader._iterator = None


def test_several_models_and_optimizers_are_kept():
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    before = copy.deepcopy([m.state_dict() for m in models])
    with Snapshot(models, optimizers):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    assert same([m.state_dict() for m in models], before)
    assert not any(optimizer.state for optimizer in optimizers)
    with pytest.raises(UsageError, match="a model is a function"):
        Snapshot([models[0], lambda: None])


def test_schedulers_scalers_and_averages_that_a_step_holds_are_found():
    model, scaler = nn.Linear(1, 1), torch.amp.GradScaler("cpu", growth_interval=1)
    optimizer, average = torch.optim.SGD(model.parameters(), lr=1.0), torch.optim.swa_utils.AveragedModel(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = average.module.weight.clone()
    with Snapshot(model, optimizer, others=(*find_lr_schedulers(optimizer), *find_scalers_and_averages())):
        scaler.scale(model(torch.ones(1, 1))).backward()
        scaler.step(optimizer), schedule.step(), average.update_parameters(model)
    assert torch.equal(average.module.weight, before) and average.n_averaged == 0
    assert scaler._scale is None and schedule.last_epoch == 0


def test_the_order_of_hooks_and_of_moved_items_stays() -> None:
    model = nn.Linear(2, 2)
    called: list[str] = []
    model.register_forward_hook(lambda *_: called.append("first"))
    model.register_forward_hook(lambda *_: called.append("prepended"), prepend=True)
    model.moved = OrderedDict(a=1, b=2)
    model.moved.move_to_end("a")
    with Snapshot(model):
        model.moved["c"] = 3
    model(torch.ones(1, 2))
    assert called == ["prepended", "first"] and list(model.moved) == ["b", "a"]


def test_data_and_samplers_of_no_class_of_torchs_are_put_back() -> None:
    class Numbers:
        n_read = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> torch.Tensor:
            self.n_read += 1
            return torch.tensor(float(index))

    class InOrder:
        epoch = 0

        def __iter__(self):
            self.epoch += 1
            return iter(range(4))

        def __len__(self) -> int:
            return 4

    loader = DataLoader(Numbers(), sampler=InOrder())
    with Snapshot((), data=loader, watched={"train_dataset": loader}) as snapshot:
        list(loader)
    assert (loader.dataset.n_read, loader.sampler.epoch, snapshot.left_changed) == (0, 0, [])


def test_copies_of_arrays_count_before_they_are_made() -> None:
    model = nn.Linear(1, 1)
    model.table = np.ones(1000)
    assert Snapshot(model).size_bytes == 8000 + 8  # and two parameters
