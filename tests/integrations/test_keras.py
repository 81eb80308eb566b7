"""The Keras callback in the real library's own ``fit``, on the PyTorch backend."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # before the first import of Keras
pytest.importorskip("keras")

import keras
import numpy as np

from greenlove_tracker import Tracker
from greenlove_tracker.integrations.keras import GreenloveCallback
from greenlove_tracker.vocabulary.errors import UsageError
from tests.integrations.by_hand import assert_equal_totals, only_run, runs

if keras.backend.backend() != "torch":
    pytest.skip("Keras runs on another backend in this process", allow_module_level=True)

BATCH, STEP_S, TEST_S = 32, 2.0, 0.5
X = np.random.default_rng(0).random((160, 5)).astype("float32")  # 5 batches
Y = X.sum(axis=1)


class SlowModel(keras.Model):
    """A layer whose every batch takes a time that is set; it breaks at one if told so."""

    def __init__(self, pass_s=lambda _: None, breaks_at=0):
        super().__init__()
        self.layer = keras.layers.Dense(1)
        self.pass_s, self.breaks_at, self.n_trained = pass_s, breaks_at, 0

    def call(self, x):
        return self.layer(x)

    def train_step(self, data):
        self.n_trained += 1
        if self.n_trained == self.breaks_at:
            raise RuntimeError("out of luck")
        self.pass_s(STEP_S)
        return super().train_step(data)

    def test_step(self, data):
        self.pass_s(TEST_S)
        return super().test_step(data)


def make_model(*arguments, optimizer="sgd", **more):
    keras.utils.set_random_seed(0)
    model = SlowModel(*arguments, **more)
    model.compile(optimizer, "mse")
    return model


def make_callback(tracker=None, **arguments):
    settings = {} if tracker else {"sim_cpu_tdp_w": 50, "verbose": 0}
    return GreenloveCallback(tracker, **settings, **arguments)


def fit(model, *callbacks, **arguments):
    defaults = {"batch_size": BATCH, "verbose": 0, "callbacks": list(callbacks)}
    return model.fit(X, Y, **(defaults | arguments))


def test_totals_are_those_of_a_tracker_placed_by_hand_and_validation_is_a_gap(clock):
    def train(settings, by_hand):
        model = make_model(clock.pass_s)
        if not by_hand:
            callback = GreenloveCallback(batch_size=BATCH, **settings)
            fit(model, callback, epochs=3, shuffle=False, validation_data=(X[:64], Y[:64]))
            return
        with Tracker(epochs=3, **settings) as tracker:
            for _ in range(3):
                tracker.epoch_start()
                for first in range(0, len(X), BATCH):
                    model.train_on_batch(X[first : first + BATCH], Y[first : first + BATCH])
                    tracker.step(BATCH)
                tracker.pause()
                model.evaluate(X[:64], Y[:64], batch_size=BATCH, verbose=0)
                tracker.epoch_end()

    run = assert_equal_totals(train, clock)
    assert [(e.steps, e.samples, e.duration_s) for e in run.epochs] == [(5, 160, pytest.approx(5 * STEP_S))] * 3
    assert run.summary.between_s == pytest.approx(3 * 2 * TEST_S)
    assert run.text("epochs_planned") == "3"


def test_the_metrics_of_each_epoch_are_logged():
    shown = fit(make_model(), make_callback(), epochs=2, validation_data=(X[:64], Y[:64])).history
    logged = only_run().metrics
    assert set(logged) == {"loss", "val_loss"} and logged["val_loss"].last == pytest.approx(shown["val_loss"][-1])


def test_samples_without_a_batch_size_are_unknown():
    fit(make_model(), make_callback(), epochs=1)
    counts = only_run().summary.counts
    assert (counts.steps, counts.batches, counts.samples) == (5, 5, None)


def test_a_restored_training_goes_on_with_the_epoch_that_its_backup_names(tmp_path):
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(make_model(breaks_at=12), make_callback(), backup, epochs=4)
    fit(make_model(), make_callback(), backup, epochs=4)
    broken, restored = runs()
    assert (broken.summary.epochs_done, broken.summary.counts.steps) == (2, 11)
    assert (restored.text("epochs_planned"), restored.first_epoch, restored.summary.epochs_done) == ("2", 2, 2)


def test_early_stopping_between_epochs_and_a_stop_in_the_middle_of_one():
    stop = keras.callbacks.EarlyStopping(monitor="loss", min_delta=1e9, patience=1)
    fit(make_model(), make_callback(), stop, epochs=9)
    fit(make_model(), stop, make_callback(), epochs=9)

    class StopsAtBatch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    fit(make_model(), make_callback(), StopsAtBatch(), epochs=9)
    found = [[(e.steps, e.is_complete) for e in run.epochs] for run in runs()]
    assert found == [[(5, True)] * 2, [(5, True)] * 2, [(3, False)]]
    assert [run.summary.status for run in runs()] == ["finished"] * 3


def test_accumulated_batches_are_parts_of_a_step():
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=2)
    fit(make_model(optimizer=optimizer), make_callback(), epochs=2)
    assert [(e.steps, e.batches) for e in only_run().epochs] == [(2, 5), (3, 5)]  # the fifth waits for the sixth
    assert int(optimizer.iterations) == 5


def test_data_without_a_length():
    def batches():
        for first in range(0, len(X), BATCH):
            yield X[first : first + BATCH], Y[first : first + BATCH]

    model = make_model()
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(batches(), epochs=1, verbose=0, callbacks=[make_callback(batch_size=BATCH)])
    assert [(e.steps, e.samples, e.is_complete) for e in only_run().epochs] == [(5, 160, True)]


def test_all_batches_of_an_execution_are_counted_and_a_cut_one_has_no_more_than_there_are():
    """Only on JAX and TensorFlow does Keras do several steps in one; here its own iterator and list of callbacks do."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    iterator = EpochIterator(X, Y, batch_size=BATCH, steps_per_execution=3)  # 3 batches, then 2
    callback = make_callback(batch_size=BATCH)
    hooks = keras.callbacks.CallbackList(
        [callback], model=make_model(), epochs=2, steps=iterator.num_batches, verbose=0
    )
    hooks.on_train_begin()
    ends = []
    for epoch in range(2):
        hooks.on_epoch_begin(epoch)
        for begin, end, _batches in iterator:
            hooks.on_train_batch_begin(begin)
            ends.append(end)
            hooks.on_train_batch_end(end, {"loss": 0.0})
        hooks.on_epoch_end(epoch, {"loss": 0.0})
    hooks.on_train_end()
    assert ends == [2, 5] * 2  # Keras names a last batch that there is none of
    assert [(e.steps, e.batches, e.samples) for e in only_run().epochs] == [(5, 5, 160)] * 2


def test_bad_arguments_are_said_at_once():
    with pytest.raises(UsageError, match="batch_size must be"):
        GreenloveCallback(batch_size=0)
