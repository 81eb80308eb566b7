"""What is heard of real PyTorch trainings, and that they do not notice."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import queue
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from greenlove_tracker.integrations.pytorch import PyTorchHooks
from greenlove_tracker.integrations.training_loops import LoopDetector
from greenlove_tracker.vocabulary.errors import BudgetExceeded
from greenlove_tracker.vocabulary.records import SystemClock
from tests.integrations.loop_log import RecorderLog

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

N, SIZE = 50, 8  # 7 batches, the last of 2 samples
N_BATCHES = 7


class Watched:
    """A log, and the hooks that fill it."""

    def __init__(self) -> None:
        self.log = RecorderLog(SystemClock())
        self.errors: list[Exception] = []
        self.detector = LoopDetector(self.log)
        self.hooks = PyTorchHooks(self.detector, self.errors.append)

    def done(self) -> list[tuple[int, int, int | None]]:
        self._finish()
        return self.log.done()

    def total(self) -> tuple[int, int, int]:
        self._finish()
        return self.log.total()

    def _finish(self) -> None:
        self.hooks.__exit__()
        self.detector.finish()
        assert self.errors == []


@pytest.fixture
def watched() -> Iterator[Watched]:
    one = Watched()
    with one.hooks:
        yield one
    assert one.errors == []


def data(n: int = N) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(n, 4, generator=generator), torch.randn(n, 1, generator=generator))


def loader(**options: Any) -> DataLoader:
    return DataLoader(data(), batch_size=SIZE, shuffle=True, **options)


class Training:
    def __init__(self, make_optimizer: Callable[..., Any] = torch.optim.SGD) -> None:
        self.net = nn.Linear(4, 1)
        self.optimizer = make_optimizer(self.net.parameters(), lr=0.01)

    def loss(self, batch: Any) -> Any:
        inputs, targets = batch
        return ((self.net(inputs) - targets) ** 2).mean()

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()


def train(batches: Any, epochs: int = 3) -> None:
    training = Training()
    for _ in range(epochs):
        for batch in batches:
            training.step(batch)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return ((torch.ones(4), torch.ones(1)) for _ in range(N))


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {"drop_last": True}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_epochs_batches_steps_and_samples(watched, options):
    train(loader(**options))
    expected = (6, 6, 48) if "drop_last" in options else (N_BATCHES, N_BATCHES, N)
    assert watched.done() == [expected] * 3


def test_of_a_dataset_without_a_length_samples_are_unknown(watched):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(DataLoader(Stream(), batch_size=SIZE))
    done = watched.done()
    assert [samples for *_, samples in done] == [None] * 3
    assert all(steps == n_batches for steps, n_batches, _ in done)


def test_a_distributed_sampler(watched):
    sampler = torch.utils.data.DistributedSampler(data(), num_replicas=2, rank=1)
    batches = DataLoader(data(), batch_size=SIZE, sampler=sampler)
    training = Training()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in batches:
            training.step(batch)
    assert watched.done() == [(4, 4, 25)] * 2


def test_samples_of_a_batch_sampler_of_the_scripts_own_are_unknown(watched):
    sampler = [[0, 1, 2], [3], [4, 5]]
    train(DataLoader(data(), batch_sampler=sampler), epochs=2)
    assert watched.done() == [(3, 3, None)] * 2


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "fused"])
def test_every_optimizer_makes_one_step_a_batch(watched, name):
    if name == "fused":
        training = Training(lambda *args, **options: torch.optim.AdamW(*args, **options, fused=True))
    else:
        training = Training(getattr(torch.optim, name))
    for batch in itertools.chain(loader(), loader()):

        def closure(batch: Any = batch) -> Any:
            training.optimizer.zero_grad()
            loss = training.loss(batch)
            loss.backward()
            return loss

        training.optimizer.step(closure)
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)] * 2


class OfItself(torch.optim.SGD):
    is_failing = False

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        if self.is_failing:
            raise RuntimeError("after the parent's step")
        return loss


def test_a_step_that_calls_that_of_its_parent_class_is_one(watched):
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # torch's hooks are around the parent's step() from here on
    training = Training(OfItself)
    for batch in loader():
        training.step(batch)
    training.optimizer.is_failing = True
    for _ in range(2):
        with pytest.raises(RuntimeError):
            training.optimizer.step()
    training.optimizer.is_failing = False
    for batch in loader():
        training.step(batch)
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)] * 2


def test_an_optimizer_for_each_parameter_in_backward(watched):
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)], nn.Linear(4, 1))
    for parameter in net.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)

        def step(_: Any, optimizer: Any = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for inputs, targets in loader():
        ((net(inputs) - targets) ** 2).mean().backward()
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)]


def test_a_gradient_scaler_that_skips_steps(watched):
    training, scaler = Training(), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for epoch in range(2):
        for number, batch in enumerate(loader()):
            training.optimizer.zero_grad()
            loss = training.loss(batch) * (float("inf") if not epoch and number in (0, 1, 4) else 1.0)
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)
            scaler.update()
    assert watched.done() == [(N_BATCHES - 3, N_BATCHES, N), (N_BATCHES, N_BATCHES, N)]


class OwnGenerator(DataLoader):  # type: ignore[type-arg]
    """Fetches one ahead, as accelerate's loaders do."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        ahead = next(batches, None)
        while ahead is not None:
            batch, ahead = ahead, next(batches, None)
            yield batch


class OwnIterator(DataLoader):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return super().__iter__()


class OwnGetter(DataLoader):  # type: ignore[type-arg]
    """Makes its iterator without torch's own ``__iter__``, as torchdata's StatefulDataLoader does."""

    def __iter__(self) -> Any:
        return self._get_iterator()


class Mapped(DataLoader):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return map(tuple, super().__iter__())


@pytest.mark.parametrize("kind", [OwnGenerator, OwnIterator, OwnGetter, Mapped])
def test_subclasses_with_an_iter_of_their_own(kind, watched):
    train(kind(data(), batch_size=SIZE))
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)] * 3


def test_accelerate(watched):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    training = Training()
    net, optimizer, batches, validation = accelerator.prepare(
        training.net, training.optimizer, loader(), DataLoader(data(), batch_size=25)
    )
    for _ in range(3):
        for inputs, targets in batches:
            with accelerator.accumulate(net):
                accelerator.backward(((net(inputs) - targets) ** 2).mean())
                optimizer.step()
                optimizer.zero_grad()
        for inputs, _ in validation:
            net(inputs)
    assert watched.done() == [(4, N_BATCHES, N)] * 3


def test_a_thread_that_fetches_ahead(watched):
    training, batches = Training(), loader()
    for _ in range(3):
        waiting: queue.Queue[Any] = queue.Queue(2)

        def fetch(waiting: queue.Queue[Any] = waiting) -> None:
            for batch in batches:
                waiting.put(batch)
            waiting.put(None)

        thread = threading.Thread(target=fetch)
        thread.start()
        while (batch := waiting.get()) is not None:
            training.step(batch)
        thread.join()
    epochs, steps, n_batches = watched.total()
    assert (epochs, steps, n_batches) == (3, 3 * N_BATCHES, 3 * N_BATCHES)


def results(run: Callable[[], object]) -> Any:
    torch.manual_seed(3)
    random.seed(3)
    run()
    return torch.get_rng_state().tolist(), random.getstate()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_trainings_are_bit_identical(num_workers):
    outcomes = []

    def run() -> None:
        training = Training(torch.optim.Adam)
        generator = torch.Generator().manual_seed(7)
        batches = DataLoader(
            data(),
            batch_size=SIZE,
            shuffle=True,
            num_workers=num_workers,
            generator=generator,
            persistent_workers=bool(num_workers),
        )
        for _ in range(3):
            for batch in batches:
                training.step(batch)
            sum(training.loss(batch) for batch in DataLoader(data(), batch_size=25))
        outcomes.append((training.net.weight.tolist(), generator.get_state().tolist()))

    plain = results(run)
    watched = Watched()
    with watched.hooks:
        assert results(run) == plain
    assert outcomes[0] == outcomes[1]
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)] * 3


def test_everything_is_as_before_once_the_script_has_ended():
    iterators = torch.utils.data.dataloader._BaseDataLoaderIter
    before, finders = dict(vars(iterators)), list(sys.meta_path)
    module = sys.modules["torch.optim.optimizer"]
    with Watched().hooks:
        assert iterators.__next__ is not before["__next__"] and iterators.__next__.__wrapped__ is before["__next__"]
        assert len(module._global_optimizer_pre_hooks) == len(module._global_optimizer_post_hooks) == 1
    assert dict(vars(iterators)) == before and sys.meta_path == finders
    assert not module._global_optimizer_pre_hooks and not module._global_optimizer_post_hooks


def test_loaders_are_pickled_and_iterators_are_torchs_own(watched):
    batches = pickle.loads(pickle.dumps(loader()))
    assert type(iter(batches)).__name__ == "_SingleProcessDataLoaderIter"
    assert isinstance(iter(OwnGenerator(data())), types.GeneratorType)
    train(batches, epochs=1)
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)]


def test_an_error_of_ours_is_told_once_and_nothing_is_heard_any_more():
    watched = Watched()

    def fail() -> None:
        raise ValueError("ours")

    watched.log.end_epoch = fail  # type: ignore[method-assign]
    with watched.hooks:
        train(loader())
    assert [f"{error}" for error in watched.errors] == ["ours"]


def test_a_budget_ends_the_loop_between_two_batches(watched):
    def stop() -> None:
        if watched.log.recorder.epochs_done == 2:
            raise BudgetExceeded("too much")

    watched.log.overrun = stop
    with pytest.raises(BudgetExceeded):
        train(loader(), epochs=9)
    watched.log.overrun = lambda: None
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)] * 2


def _train_in_child(results: Any) -> None:
    train(loader(), epochs=1)
    results.put(os.getpid())


def test_a_forked_child_is_not_heard(watched):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_train_in_child, args=(results,))
    child.start()
    assert results.get(timeout=180) == child.pid
    child.join()
    train(loader(), epochs=1)
    assert watched.done() == [(N_BATCHES, N_BATCHES, N)]


@pytest.mark.slow
def test_a_compiled_step(watched):
    training = Training()
    compiled = torch.compile(training.optimizer.step, backend="eager")
    for batch in loader():
        training.optimizer.zero_grad()
        training.loss(batch).backward()
        compiled()
    assert watched.total() == (1, N_BATCHES, N_BATCHES)


def test_a_loader_in_itertools_cycle_goes_on_in_steps(watched):
    training = Training()
    for batch in itertools.islice(itertools.cycle(loader()), 20):
        training.step(batch)
    assert watched.total() == (1, 20, N_BATCHES)  # batches that cycle kept are handed out by nobody


def test_a_new_iterator_for_each_batch(watched):
    training, batches = Training(), loader()
    for _ in range(20):
        training.step(next(iter(batches)))
    assert watched.total() == (0, 20, 20)
