"""Epochs from what passes, without torch and on a clock that is moved by hand."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator

import pytest

from greenlove_tracker.integrations.training_loops import LoaderPass, LoopDetector
from tests.fakes import FakeClock
from tests.integrations.loop_log import Epoch, RecorderLog

BATCH_S, STEP_S = 0.5, 1.0


class Optimizer:
    pass


class Loader:
    """Iterates as a data loader whose iterators tell of themselves; a batch takes 0.5 s."""

    def __init__(self, bench: Bench, n_batches: int, n_samples: int | None = 10) -> None:
        self.bench, self.n_batches, self.n_samples = bench, n_batches, n_samples

    def __iter__(self) -> LoaderIterator:
        return LoaderIterator(self)


class LoaderIterator:
    def __init__(self, loader: Loader) -> None:
        self.loader, self.left = loader, loader.n_batches
        self.current: LoaderPass | None = loader.bench.detector.begin(loader)
        if self.current is not None:
            self.current.iterator = weakref.ref(self)

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> int:
        detector, current = self.loader.bench.detector, self.current
        if not self.left:
            if current is not None:
                detector.end(current)
            raise StopIteration
        self.left -= 1
        self.loader.bench.clock.pass_s(BATCH_S)
        n_samples = self.loader.n_samples
        if current is not None:
            detector.batch(current, n_samples)
        return self.left


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = RecorderLog(self.clock)
        self.detector = LoopDetector(self.log, self.clock.perf_s)
        self.optimizer = Optimizer()

    def loader(self, n_batches: int, n_samples: int | None = 10) -> Loader:
        return Loader(self, n_batches, n_samples)

    def step(self, optimizer: object | None = None) -> None:
        optimizer = optimizer or self.optimizer
        self.detector.step_begins(optimizer)
        self.clock.pass_s(STEP_S)
        self.detector.step_ended(optimizer)

    def evaluate(self, loader: Loader) -> None:
        for _ in loader:
            self.clock.pass_s(0.1)

    def epochs(self) -> list[Epoch]:
        """End the training, and return its epochs."""
        self.detector.finish()
        return self.log.epochs()

    def done(self) -> list[tuple[int, int, int | None]]:
        self.detector.finish()
        return self.log.done()

    def total(self) -> tuple[int, int, int]:
        self.detector.finish()
        return self.log.total()


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    assert one.log.recorder.epoch is None, "a test reads the epochs at its end"


def test_passes_with_steps_are_epochs_and_passes_without_are_the_gap_between(bench):
    train, val = bench.loader(4), bench.loader(2)
    for _ in range(3):
        bench.clock.pass_s(7.0)
        for _ in train:
            bench.step()
        bench.evaluate(val)
    epochs = bench.epochs()
    assert [(e.steps, e.batches, e.samples, e.is_done) for e in epochs] == [(4, 4, 40, True)] * 3
    assert [e.duration_s for e in epochs] == [4 * 1.5] * 3
    assert [e.gap_s for e in epochs] == [pytest.approx(gap_s) for gap_s in (7.0, 8.2, 8.2)]


def test_an_evaluation_between_a_batch_and_its_step_leaves_the_step_with_the_loader_that_is_trained_on(bench):
    train, val = bench.loader(4), bench.loader(2)
    for _ in range(2):
        for number, _ in enumerate(train):
            if number % 2:
                bench.evaluate(val)
            bench.step()
    assert bench.done() == [(4, 4, 40)] * 2


def test_an_evaluation_on_the_training_loader_within_its_own_epoch(bench):
    train = bench.loader(4)
    for _ in range(2):
        for number, _ in enumerate(train):
            bench.step()
            if number == 1:
                bench.evaluate(train)
    assert bench.done() == [(4, 4, 40)] * 2


def test_a_look_at_one_batch_before_training_is_no_epoch(bench):
    train = bench.loader(4)
    next(iter(train))
    kept = iter(train)
    next(kept)
    for _ in range(2):
        for _ in train:
            bench.step()
    assert bench.done() == [(4, 4, 40)] * 2
    assert kept.left == 3


def test_five_steps_of_one_optimizer_to_one_of_another_from_one_batch(bench):
    second = Optimizer()
    for _ in bench.loader(4):
        for _ in range(5):
            bench.step()
        bench.step(second)
    assert bench.done() == [(20, 4, 40)]


def test_a_step_that_raised_takes_none_of_those_behind_it(bench):
    other = Optimizer()
    for number, _ in enumerate(bench.loader(4)):
        if number == 1:
            bench.detector.step_begins(other)  # and never ends
        bench.step()
        if number == 1:
            bench.detector.step_begins(bench.optimizer)
    assert bench.done() == [(4, 4, 40)]


def test_fetching_one_ahead_ends_the_epoch_with_its_last_step(bench):
    train, val = bench.loader(4), bench.loader(2)
    for _ in range(3):
        batches = iter(train)
        ahead = next(batches, None)
        while ahead is not None:
            ahead = next(batches, None)
            bench.step()
        bench.evaluate(val)
        bench.clock.pass_s(9.0)
    epochs = bench.epochs()
    assert [(e.steps, e.batches, e.is_done) for e in epochs] == [(4, 4, True)] * 3
    assert all(e.duration_s + e.gap_s < 18.0 for e in epochs)


def test_epochs_that_are_left_by_break_are_epochs_of_so_many_batches(bench):
    train, val = bench.loader(1000), bench.loader(2)
    for _ in range(4):
        for number, _ in enumerate(train):
            if number == 5:
                break
            bench.step()
        bench.evaluate(val)
        bench.clock.pass_s(9.0)
    epochs = bench.epochs()
    assert [(e.steps, e.batches, e.is_done) for e in epochs] == [(5, 6, True)] * 4
    assert [e.duration_s for e in epochs] == [pytest.approx(8.0, abs=0.01)] * 4


def test_the_last_pass_of_a_training_in_steps_is_none_of_the_epochs(bench):
    train, n_steps = bench.loader(4), 0
    while n_steps < 10:
        for _ in train:
            bench.step()
            n_steps += 1
            if n_steps == 10:
                break
    assert bench.total() == (2, 10, 10)


def test_an_exception_in_the_middle_of_an_epoch_and_training_goes_on(bench):
    train = bench.loader(6)
    for epoch in range(3):
        try:
            for number, _ in enumerate(train):
                if epoch == 1 and number == 3:
                    raise ValueError
                bench.step()
        except ValueError:
            pass
    assert bench.total() == (3, 15, 16)


def test_without_a_loader_steps_are_counted_alone(bench):
    second = Optimizer()
    for _ in range(30):
        bench.step()
        bench.step(second)
    assert bench.total() == (0, 30, 0)


def test_one_batch_that_is_trained_on_again_and_again_is_one_batch(bench):
    next(iter(bench.loader(100)))
    for _ in range(50):
        bench.step()
    assert bench.total() == (0, 50, 1)


def test_an_evaluation_in_a_training_without_a_loader_is_a_pause(bench):
    val = bench.loader(20)
    for _ in range(3):
        for _ in range(10):
            bench.step()
        bench.evaluate(val)
    (epoch,) = bench.epochs()
    assert epoch.steps == 30 and epoch.gap_s == pytest.approx(
        3 * 12.0 + 3 * STEP_S
    )  # a step tells of itself when it is done


def test_a_model_that_is_trained_on_import_is_no_epoch(bench):
    for _ in range(5):
        bench.step()
    for _ in range(2):
        for _ in bench.loader(4):
            bench.step()
    assert bench.total() == (2, 13, 8)


def test_training_goes_on_with_another_loader_while_the_former_is_open(bench):
    first, second = iter(bench.loader(100)), bench.loader(4)
    for _ in range(6):
        next(first)
        bench.step()
    for _ in range(2):
        for _ in second:
            bench.step()
    assert bench.done() == [(6, 6, 60), (4, 4, 40), (4, 4, 40)]


def test_what_the_script_tracks_or_explores_itself_is_not_seen(bench):
    train = bench.loader(4)
    bench.log.is_elsewhere = True
    for _ in range(2):
        for _ in train:
            bench.step()
    bench.log.is_elsewhere = False
    for _ in train:
        bench.step()
    assert bench.done() == [(4, 4, 40)]


def test_of_loaders_in_turn_batches_and_steps_are_counted_and_epochs_cannot_be_told(bench):
    for _ in range(3):
        first, second = iter(bench.loader(5)), iter(bench.loader(5))
        for _ in range(5):
            for batches in (first, second):
                next(batches)
                bench.step()
    assert bench.total() == (0, 30, 30) and bench.detector.takes_turns


def test_a_cycle_of_a_short_loader_beside_a_long_one_makes_the_epochs_of_the_long_one(bench):
    short, long = bench.loader(4), bench.loader(20)
    for _ in range(3):
        for _ in zip(itertools.cycle(short), long, strict=False):
            bench.step()
    assert bench.done() == [(20, 20, 200)] * 3
