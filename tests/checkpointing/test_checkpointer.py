"""A training that goes through a Checkpointer: when it saves, what it goes on from, how it ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from fakes import FakeClock, make_tracker
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Checkpointer, Tracker, TrainingInterrupted
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError
from greenlove_tracker.vocabulary.records import RunStatus, status_of

N_BATCHES, EPOCHS = 6, 3


class LeftError(Exception):
    """The process is gone."""


class Training:
    """A small training that draws from every random state."""

    def __init__(self, directory: Path | str, **arguments: Any) -> None:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        x = torch.randn(N_BATCHES * 4, 5)
        generator = torch.Generator().manual_seed(4)
        self.loader = DataLoader(
            TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True, generator=arguments.pop("generator", generator)
        )
        self.model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        arguments = {"every_s": None} | arguments
        self.checkpointer = Checkpointer(
            directory, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, **arguments
        )
        self.losses: list[tuple[int, float]] = []
        self.epochs: list[int] = []
        self.sums: list[float] = []

    def run(
        self,
        epochs: int = EPOCHS,
        *,
        leave_at: int | None = None,
        signalled: signal.Signals | None = None,
        accumulate: int = 1,
        **arguments: Any,
    ) -> None:
        arguments = {"tracker": False} | arguments
        checkpointer = self.checkpointer
        for epoch in checkpointer.epochs(epochs, **arguments):
            self.epochs.append(epoch)
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.99  # before the batches: a resume must not do it twice
            noise = random.random() + np.random.rand()
            checkpointer.values["sum"] = 0.0
            for x, y in checkpointer.batches(self.loader):
                loss = functional.mse_loss(self.model(x + noise).squeeze(1), y + np.random.rand())
                loss.backward()
                if (checkpointer.position.steps + 1) % accumulate == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                checkpointer.values["sum"] += loss.item()
                self.losses.append((checkpointer.position.steps, loss.item()))
                if checkpointer.position.steps + 1 == leave_at:
                    if signalled is None:
                        raise LeftError
                    os.kill(os.getpid(), signalled)
            n_validated = sum(1 for _ in checkpointer.batches(self.loader))  # a second pass is whole, and draws
            assert n_validated == N_BATCHES
            self.sums.append(checkpointer.values["sum"])

    @property
    def bits(self) -> list[bytes]:
        return [value.numpy().tobytes() for value in self.model.state_dict().values()]


def left(directory: Path | str, steps: int, **arguments: Any) -> None:
    """Train until so many batches are done, and leave as a kill does: nothing is closed."""
    how = {name: arguments.pop(name) for name in ("accumulate",) if name in arguments}
    with pytest.raises(LeftError):
        Training(directory, every_steps=1, **arguments).run(leave_at=steps + 1, **how)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def events(log_dir: Path) -> list[CheckpointEvent]:
    return [event for run in runs(log_dir) for event in run.checkpoints]


def runs(log_dir: Path) -> list[Run]:
    return sorted(read_logs(log_dir).runs, key=lambda run: run.run_id)


# -- Going on, bit for bit --


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 5, 6, 7, 12, 17])
def test_goes_on_bit_for_bit(tmp_path: Path, steps: int) -> None:
    unbroken = Training(tmp_path / "a")
    unbroken.run()
    place = f"memory://{tmp_path.name}/b" if steps == 7 else tmp_path / "b"
    left(place, steps)
    resumed = Training(place)
    assert resumed.checkpointer.position.steps == steps
    resumed.run()
    assert resumed.bits == unbroken.bits
    assert resumed.losses == unbroken.losses[steps:]
    assert resumed.sums == unbroken.sums[-len(resumed.sums) :]
    assert resumed.epochs[0] == (steps - 1) // N_BATCHES  # the last batch's point lies before the validation
    torch.manual_seed(0)  # the states after the loop are also those of the checkpoint, whatever came between


@pytest.mark.slow
def test_steps_of_the_optimizer_are_counted_with_the_batches_of_each_across_a_resume(tmp_path: Path) -> None:
    log = {"log_dir": tmp_path / "logs", "verbose": 0}
    first = Training(tmp_path / "b", every_steps=1)
    with pytest.raises(LeftError):
        first.run(accumulate=4, tracker=log, leave_at=8)  # within the second step's batches
    first.checkpointer.tracker.stop()
    again = Training(tmp_path / "b")
    assert again.checkpointer.resumed["first_step"] == 1  # 7 batches are done
    again.run(accumulate=4, tracker=log)
    counts = [(run.summary.counts.steps, run.summary.counts.batches) for run in runs(tmp_path / "logs")]
    assert counts == [(1, 4), (3, 12)]  # 18 batches make 4 steps of 4; the first run's last batches are of a later one


@pytest.mark.slow
def test_more_epochs_later_are_as_if_planned_at_once(tmp_path: Path) -> None:
    unbroken = Training(tmp_path / "a")
    unbroken.run(3)
    Training(tmp_path / "b").run(2)
    longer = Training(tmp_path / "b")
    longer.run(3)
    assert longer.epochs == [2]
    assert longer.bits == unbroken.bits


@pytest.mark.slow
def test_a_finished_training_does_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Training(tmp_path).run()
    before = names(tmp_path)
    again = Training(tmp_path)
    again.run(tracker={"log_dir": tmp_path / "logs", "verbose": 0})
    assert again.epochs == [] and names(tmp_path) == before
    assert "has finished: nothing is left to do" in capfd.readouterr().err


def test_what_the_script_does_between_two_stages_stays(tmp_path: Path) -> None:
    def second_stage(training: Training) -> float:
        training.run(2)
        for group in training.optimizer.param_groups:
            group["lr"] = 0.001
        training.run(4)
        return training.optimizer.param_groups[0]["lr"]

    whole = second_stage(Training(tmp_path / "whole"))
    Training(tmp_path / "restarted").run(2)
    assert second_stage(Training(tmp_path / "restarted")) == whole


def test_early_stopping_is_an_end(tmp_path: Path) -> None:
    first = Training(tmp_path)
    for epoch in first.checkpointer.epochs(10, tracker=False):
        for _ in first.checkpointer.batches(first.loader):
            pass
        if epoch == 1:
            first.checkpointer.stop()
    assert first.checkpointer.position.epoch == 2
    again = Training(tmp_path)
    assert list(again.checkpointer.epochs(10, tracker=False)) == []
    assert names(tmp_path) == ["step-0000000012-final"]


@pytest.mark.slow
def test_damaged_checkpoint_is_passed_over_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    left(tmp_path, 4)
    file = tmp_path / "step-0000000004" / "model.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    resumed = Training(tmp_path)
    assert resumed.checkpointer.position.steps == 3
    assert "step-0000000004 is damaged" in caplog.text
    unbroken = Training(tmp_path / "a")
    unbroken.run()
    resumed.run(tracker={"log_dir": tmp_path / "logs", "verbose": 0})
    assert resumed.bits == unbroken.bits
    restored = events(tmp_path / "logs")[0]
    assert restored.action is CheckpointAction.RESTORED and restored.name == "step-0000000003"


def test_what_the_script_sets_before_the_loop_is_put_back(tmp_path: Path) -> None:
    def train(epochs: int) -> tuple[int, float]:
        model = nn.Linear(2, 1)
        checkpointer = Checkpointer(tmp_path, model=model, every_s=None)
        checkpointer.values["patience"] = 0
        for _ in checkpointer.epochs(epochs, tracker=False):
            checkpointer.values["patience"] += 1
        return checkpointer.values["patience"], model.weight.sum().item()

    first = train(2)
    assert train(3) == (3, first[1])


def test_batch_that_a_loop_is_left_in_by_break_is_done(tmp_path: Path) -> None:
    def train(epochs: int) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        checkpointer = Checkpointer(tmp_path / str(epochs > 2), model=model, optimizer=optimizer, every_s=None)
        for _ in checkpointer.epochs(epochs, tracker=False):
            for n, x in enumerate(checkpointer.batches(torch.ones(9, 2))):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if n == 2:
                    break
            assert checkpointer.position.batches == 2
        assert checkpointer.position.steps == 3 * epochs
        return model

    train(2)
    assert CheckpointStore(tmp_path / "False").listing()[0].manifest.position.steps == 6
    (tmp_path / "False").rename(tmp_path / "True")
    resumed = train(4)
    (tmp_path / "True").rename(tmp_path / "resumed")
    assert torch.equal(resumed.weight, train(4).weight)  # type: ignore[call-overload]


@pytest.mark.slow
def test_loop_that_was_left_is_not_gone_through_again(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with pytest.raises(LeftError):
        training.run(leave_at=2)
    with pytest.raises(UsageError, match="make the Checkpointer anew"):
        training.run()
    finished = Training(tmp_path / "c")
    finished.run(1)
    before = torch.get_rng_state()
    finished.run(1)  # a cell that is run again
    assert torch.equal(torch.get_rng_state(), before)
    assert finished.checkpointer.tracker.run_dir is None
    finished.run(2)
    assert finished.epochs == [0, 1]


_ENDS = """
import sys, torch
from greenlove_tracker import Checkpointer
checkpointer = Checkpointer(sys.argv[1] + "/c", model=torch.nn.Linear(2, 1), every_s=None, every_steps=1)
for epoch in checkpointer.epochs(3, tracker={"log_dir": sys.argv[1] + "/logs", "verbose": 0}):
    for n, _ in enumerate(checkpointer.batches([1, 2, 3])):
        if (epoch, n) == (1, 1):
            raise {error}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("error", "status"), [("ValueError", "failed"), ("KeyboardInterrupt", "interrupted")])
def test_error_in_the_body_ends_the_run_as_one(tmp_path: Path, error: str, status: str) -> None:
    script = [sys.executable, "-c", _ENDS.replace("{error}", error), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert error in done.stderr
    (run,) = runs(tmp_path / "logs")
    assert run.summary is not None and run.summary.status == status
    assert CheckpointAction.SAVED in [event.action for event in run.checkpoints]


# -- When it saves --


@pytest.mark.slow
def test_saves_by_time_steps_and_epochs_and_keeps_the_last(tmp_path: Path) -> None:
    clock = FakeClock()

    def saved(directory: str, **arguments: Any) -> list[int]:
        training = Training(tmp_path / directory, clock=clock, keep_last=20, **arguments)
        for _ in training.checkpointer.epochs(2, tracker=False):
            for _ in training.checkpointer.batches(training.loader):
                clock.pass_s(10.0)
        return [int(name.split("-")[1]) for name in names(tmp_path / directory)]

    assert saved("time", every_s=25) == [3, 6, 9, 12, 12]  # the last two: after the last batch, and the final one
    assert saved("steps", every_steps=5) == [5, 10, 12]
    assert saved("epochs", every_epochs=1) == [6, 12]
    assert saved("none") == [12]
    kept = Training(tmp_path / "kept", every_steps=1, keep_last=2)
    kept.run(1)
    assert names(tmp_path / "kept") == ["step-0000000005", "step-0000000006", "step-0000000006-final"]


def test_asked_for(tmp_path: Path) -> None:
    training = Training(tmp_path)
    for _ in training.checkpointer.epochs(1, tracker=False):
        for n, _ in enumerate(training.checkpointer.batches(training.loader)):
            if n == 1:
                training.checkpointer.save()
    assert names(tmp_path) == ["step-0000000002", "step-0000000006-final"]


@pytest.mark.slow
def test_best_is_kept_across_a_resume(tmp_path: Path) -> None:
    def train(values: list[float], n: int) -> None:
        training = Training(tmp_path, best="accuracy")
        for epoch in training.checkpointer.epochs(n, tracker=False):
            for _ in training.checkpointer.batches(training.loader):
                pass
            training.checkpointer.log_metric("accuracy", values[epoch])

    train([0.5, 0.7, float("nan")], 3)
    assert names(tmp_path) == ["step-0000000006-best", "step-0000000012-best", "step-0000000018-final"]
    manifest = json.loads((tmp_path / "step-0000000012-best" / "manifest.json").read_text())["checkpoint"]
    assert (manifest["metric"], manifest["metric_value"]) == ("accuracy", 0.7)
    train([0.0, 0.0, 0.0, 0.6, 0.8], 5)
    assert "step-0000000024-best" not in names(tmp_path) and "step-0000000030-best" in names(tmp_path)


@pytest.mark.slow
def test_failed_save_never_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left(tmp_path / "c", 2)
    write = Draft.write

    def full(draft: Draft, name: str, *args: Any) -> Any:
        if name == "model.pt":
            raise OSError(28, "No space left on device")
        return write(draft, name, *args)

    monkeypatch.setattr(Draft, "write", full)
    resumed = Training(tmp_path / "c", every_steps=1)
    resumed.run(tracker={"log_dir": tmp_path / "logs", "verbose": 0})
    assert resumed.epochs == [0, 1, 2]
    assert names(tmp_path / "c") == ["step-0000000001", "step-0000000002"]
    failed = [event for event in events(tmp_path / "logs") if event.action is CheckpointAction.FAILED]
    assert len(failed) == 17 and "No space left" in failed[0].note
    assert caplog.text.count("could not be written") == 1


# -- Its end --


@pytest.fixture
def quiet_signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.usefixtures("quiet_signals")
def test_signal_saves_and_ends_the_training(tmp_path: Path, number: signal.Signals) -> None:
    unbroken = Training(tmp_path / "a")
    unbroken.run()
    log = {"log_dir": tmp_path / "logs", "verbose": 0}
    first = Training(tmp_path / "b")
    with pytest.raises(TrainingInterrupted) as raised:
        first.run(leave_at=8, signalled=number, tracker=log)
    error = raised.value
    assert status_of(raised.type, error) == (RunStatus.TERMINATED, error.code)  # of a script around it
    assert (error.code, error.checkpoint, error.reason) == (128 + number, "step-0000000008-emergency", number.name)
    assert names(tmp_path / "b") == ["step-0000000008-emergency"]
    (run,) = runs(tmp_path / "logs")
    assert run.summary is not None and run.summary.status == "terminated"
    assert [event.action for event in run.checkpoints] == [CheckpointAction.NOTICED, CheckpointAction.SAVED]

    again = Training(tmp_path / "b")
    assert again.checkpointer.resumed == {"first_epoch": 1, "first_step": 8, "continues": run.run_id}
    again.run(tracker=log)
    assert again.bits == unbroken.bits
    assert first.losses == unbroken.losses[:8]
    second = runs(tmp_path / "logs")[1]
    assert second.text("continues") == run.run_id
    restored = second.checkpoints[0]
    assert (restored.action, restored.replayed_batches, restored.from_run) == (CheckpointAction.RESTORED, 2, run.run_id)
    assert restored.kind is CheckpointKind.EMERGENCY


def test_budget_ends_a_training_that_is_saved(tmp_path: Path) -> None:
    clock = FakeClock()
    training = Training(tmp_path / "c", clock=clock)
    tracker = make_tracker(clock, tmp_path / "logs", epochs=20, max_energy_kwh=0.01, on_overrun="stop")
    with pytest.raises(BudgetExceeded):
        for _ in training.checkpointer.epochs(20, tracker=tracker):
            for _ in training.checkpointer.batches(training.loader):
                clock.pass_s(100.0)
    steps = training.checkpointer.position.steps
    assert names(tmp_path / "c") == [f"step-{steps:010d}"]
    assert training.checkpointer.position.batches == 0


# -- The tracker --


@pytest.mark.slow
def test_tracker_of_ones_own_counts_saving_as_a_gap(tmp_path: Path) -> None:
    log = tmp_path / "logs"
    left(tmp_path / "c", 8)
    training = Training(tmp_path / "c", every_steps=3)
    with Tracker(EPOCHS, log_dir=log, verbose=0, **training.checkpointer.resumed) as tracker:
        training.run(tracker=tracker)
    (run,) = runs(log)
    assert [epoch.epoch for epoch in run.epochs] == [2, 3]
    saved = [event for event in run.checkpoints if event.action is CheckpointAction.SAVED]
    assert [event.position.steps for event in saved] == [11, 14, 17, 18]
    assert all(event.blocked_s is not None and event.size_bytes for event in saved)
    assert run.summary is not None and run.summary.status == "finished"


def test_an_evaluation_behind_the_end_of_an_epoch_is_a_gap(tmp_path: Path) -> None:
    clock = FakeClock()
    checkpointer = Checkpointer(tmp_path / "c", every_epochs=1, clock=clock)
    with make_tracker(clock, tmp_path / "logs", epochs=2) as tracker:
        for _ in checkpointer.epochs(2, tracker=tracker):
            for _ in checkpointer.batches([1, 2]):
                tracker.step()
                clock.pass_s(5.0)
            checkpointer.epoch_end()
            checkpointer.epoch_end()  # it has ended already
            clock.pass_s(30.0)
    (run,) = runs(tmp_path / "logs")
    assert [epoch.duration_s for epoch in run.epochs] == [10.0, 10.0]
    assert run.summary.duration_s == 80.0


# -- What is refused --


def test_bad_arguments_are_said(tmp_path: Path) -> None:
    for arguments, words in (
        ({"every_s": 0}, "every_s must be a number of seconds above 0"),
        ({"every_steps": 0}, "every_steps must be a whole number"),
        ({"keep_last": 0}, "keep_last must be a whole number"),
        ({"best": "thing"}, "give higher_is_better="),
        ({"signals": "usr1"}, "signals are named as SIGTERM is, not 'usr1'"),
    ):
        with pytest.raises(UsageError, match=words):
            Checkpointer(tmp_path, **arguments)  # type: ignore[arg-type]
    checkpointer = Checkpointer(tmp_path)
    with pytest.raises(UsageError, match="inside a loop over epochs"):
        checkpointer.batches([1])
    with pytest.raises(UsageError, match="tracker must be"):
        checkpointer.epochs(3, tracker="yes")  # type: ignore[arg-type]
    assert names(tmp_path) == []


# -- What is said at the first save --


def test_a_relative_directory_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    checkpointer = Checkpointer("c", every_s=None)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert list(checkpointer.epochs(1, tracker=False)) == [0]
    assert names(tmp_path / "c") == ["step-0000000000-final"] and names(tmp_path / "elsewhere") == []


def test_a_value_that_cannot_be_resumed_and_what_was_not_passed_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1)]
    checkpointer = Checkpointer(tmp_path / "c", model=model, optimizer=optimizer, every_s=None)
    checkpointer.values["last"] = LeftError("of the training")
    assert list(checkpointer.epochs(1, tracker=False)) == [0]
    assert "last (LeftError) cannot be saved and read back" in caplog.text
    assert f"{type(schedulers[0]).__name__}: pass scheduler=" in caplog.text
    assert not CheckpointStore(tmp_path / "c").listing()
