"""Trainings to their end, on a fake clock and a simulated meter: runs, metrics, failures, Ctrl-C, schedulers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.techniques.full_training import train_fully
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique
from tests.fakes import FakeClock
from tests.techniques.task_samples import digits_task

STEP_S, EVAL_S = 1.0, 30.0


class Training:
    """A tiny training whose steps and evaluations take time on a clock; its tasks say what was done."""

    def __init__(self, **more: Any) -> None:
        self.clock = FakeClock()
        self.more = more
        self.first_weights: list[float] = []
        self.batches: list[list[float]] = []
        self.step_s = STEP_S

    def task(self) -> dict[str, Any]:
        x = torch.arange(24, dtype=torch.float32).unsqueeze(1)
        model = nn.Linear(1, 1)
        self.first_weights.append(model.weight.item())
        self.batches.append([])
        own = {key: make(model) if key == "also_restore" else make for key, make in self.more.items()}
        return {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=1e-4),
            "criterion": nn.MSELoss(),
            "train_dataset": DataLoader(TensorDataset(x, 2 * x), 8, shuffle=True),
            "train_step": self.step,
            "eval_fn": self.evaluate,
            "total_epochs": 4,
            **own,
        }

    def step(self, model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
        self.batches[-1] += batch[0].flatten().tolist()
        optimizer.zero_grad()
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        self.clock.pass_s(self.step_s)
        return loss

    def evaluate(self, model: nn.Module) -> Any:
        model.eval()
        self.clock.pass_s(EVAL_S)
        return 0.9

    def fully(self, log_dir: Any, techniques: Any = (), **more: Any) -> list[tuple[str, list[Run]]]:
        meter = SimulatedMeter(self.clock, gpu_w=360.0)
        return train_fully(self.task, techniques, log_dir=log_dir, clock=self.clock, meter=meter, verbose=0, **more)


def faster(training: Training) -> Technique:
    """A technique that halves the time of a step, and draws random numbers while it is applied."""

    def apply(parts: Parts) -> Parts:
        torch.rand(3)
        step = parts["train_step"]

        def fast(*arguments: Any) -> Any:
            training.step_s = STEP_S / 2
            try:
                return step(*arguments)
            finally:
                training.step_s = STEP_S

        return {**parts, "train_step": fast, "technique_notes": [lambda: "3 steps were skipped", lambda: ""]}

    return Technique("faster", apply, Stage.STEP, note="it is an invention")


def failing(error: BaseException, at_batch: int = 4) -> Technique:
    """A technique whose training raises an error."""

    def apply(parts: Parts) -> Parts:
        step, n = parts["train_step"], 0

        def fail(*arguments: Any) -> Any:
            nonlocal n
            n += 1
            if n == at_batch:
                raise error
            return step(*arguments)

        return {**parts, "train_step": fail}

    return Technique("failing", apply)


@pytest.mark.slow
def test_each_arm_is_a_run_of_its_own(tmp_path) -> None:
    training = Training()
    groups = training.fully(tmp_path, [faster(training)], country="DE", project="thesis")
    assert [name for name, _ in groups] == ["baseline", "faster"]
    baseline, fast = (runs[0] for _, runs in groups)
    assert len(Logs(tmp_path).runs) == 2
    for run, name in ((baseline, "baseline"), (fast, "faster")):
        assert run.text("technique") == name
        assert run.text("comparison") == baseline.run_id
        assert run.text("country") == "DE"
        assert run.text("batch_size") == "8"
        assert run.summary.project == "thesis"
        assert run.summary.status == "finished"
        assert run.is_complete
        assert run.summary.epochs_done == 4
        assert run.summary.counts.steps == 12
        assert run.summary.counts.samples == 96
    assert baseline.text("technique_note") == ""
    assert fast.text("technique_note") == "it is an invention; 3 steps were skipped"


@pytest.mark.slow
def test_evaluation_lies_outside_the_epochs(tmp_path) -> None:
    training = Training()
    ((_, [run]),) = training.fully(tmp_path)
    assert [epoch.duration_s for epoch in run.epochs] == pytest.approx([3 * STEP_S] * 4)
    assert run.summary.duration_s == pytest.approx(4 * (3 * STEP_S + EVAL_S))
    assert run.summary.energy_kwh == pytest.approx(360 * run.summary.duration_s / 3.6e6)


@pytest.mark.slow
def test_arms_begin_with_the_same_weights_and_see_the_same_data(tmp_path) -> None:
    training = Training()
    training.fully(tmp_path, [faster(training)], seed=7)
    assert training.first_weights[-2] == training.first_weights[-1]
    first, second = training.batches[-2:]
    assert first == second
    assert first[:24] != first[24:48]  # shuffled anew each epoch


@pytest.mark.slow
def test_repeats_take_turns_with_other_seeds(tmp_path) -> None:
    training = Training()
    arms = [faster(training), failing(ValueError("after a while"), at_batch=4)]
    told: list[tuple[str, str]] = []
    groups = dict(training.fully(tmp_path, arms, seed=5, repeats=2, on_failure=lambda *failure: told.append(failure)))
    assert [[run.text("seed") for run in runs] for runs in groups.values()] == [["5", "6"], ["5", "6"], []]
    assert len(told) == 1  # what failed is not tried again
    assert len({run.text("comparison") for runs in groups.values() for run in runs}) == 1
    order = [run.text("technique") for run in sorted(Logs(tmp_path).runs, key=lambda run: run.started_at)]
    assert order == ["baseline", "faster", "failing", "faster", "baseline"]  # each second repeat in reverse
    first, second = (run.metrics["train_loss"].last for run in groups["baseline"])
    assert first != second


@pytest.mark.slow
def test_metrics_are_logged_for_each_epoch(tmp_path) -> None:
    training = Training(eval_fn=lambda model: {"f1": torch.tensor(0.5), "train_loss": 3.0})
    ((_, [run]),) = training.fully(tmp_path)
    values = run.metric_values[0]
    losses = [v.value for v in values if v.name == "train_loss"]
    assert [v.epoch for v in values if v.name == "train_loss"] == [1, 2, 3, 4]
    assert losses[0] > losses[-1] > 0
    assert run.metrics["f1"].best == 0.5
    assert run.metrics["eval_train_loss"].last == 3.0


@pytest.mark.slow
def test_evaluations_come_as_often_as_asked_and_at_the_end(tmp_path) -> None:
    training = Training(eval_every=3)
    ((_, [run]),) = training.fully(tmp_path)
    assert [v.epoch for v in run.metric_values[0] if v.name == "accuracy"] == [3, 4]


@pytest.mark.slow
def test_a_training_in_steps_ends_after_them(tmp_path) -> None:
    training = Training(total_epochs=None, total_steps=10, eval_every=4)
    ((_, [run]),) = training.fully(tmp_path)
    assert run.summary.counts.steps == 10
    assert run.summary.counts.samples == 80
    assert run.is_complete
    assert [v.steps_done for v in run.metric_values[0] if v.name == "accuracy"] == [4, 8, 10]
    assert run.summary.epochs_duration_s == pytest.approx(10 * STEP_S)
    assert run.summary.duration_s == pytest.approx(10 * STEP_S + 3 * EVAL_S)


@pytest.mark.slow
def test_steps_that_accumulate_are_counted_by_the_optimizer(tmp_path) -> None:
    calls = 0

    def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            optimizer.step()

    training = Training(total_epochs=None, total_steps=5, train_step=step, eval_fn=None)
    ((_, [run]),) = training.fully(tmp_path)
    assert calls == 10
    assert run.summary.counts.steps == 5
    assert run.summary.counts.batches == 10


@pytest.mark.slow
def test_a_failing_arm_is_named_and_the_others_go_on(tmp_path) -> None:
    training = Training()

    def refuse(parts: Parts) -> Parts:
        raise NotApplicableError("this CPU has no bf16 instructions")

    told: list[tuple[str, str]] = []
    arms = [Technique("refused", refuse), failing(ValueError("a shape\nof something")), faster(training)]
    groups = training.fully(tmp_path, arms, on_failure=lambda *failure: told.append(failure))
    assert [(name, len(runs)) for name, runs in groups] == [
        ("baseline", 1),
        ("refused", 0),
        ("failing", 0),
        ("faster", 1),
    ]
    assert told == [("refused", "this CPU has no bf16 instructions"), ("failing", "ValueError: a shape of something")]
    assert sorted(run.summary.status for run in Logs(tmp_path).runs) == ["failed", "finished", "finished"]


@pytest.mark.slow
def test_out_of_memory_of_the_baseline_is_no_end(tmp_path, capsys) -> None:
    training = Training()
    training.more["train_step"] = _raises(MemoryError())
    own = Technique("smaller", lambda parts: {**parts, "train_step": training.step})
    groups = training.fully(tmp_path, [own])
    assert [(name, len(runs)) for name, runs in groups] == [("baseline", 0), ("smaller", 1)]
    assert "baseline did not finish: out of memory" in capsys.readouterr().err


@pytest.mark.slow
def test_the_baselines_own_error_is_the_tasks(tmp_path) -> None:
    training = Training(train_step=_raises(KeyError("pixels")))
    with pytest.raises(KeyError, match="pixels"):
        training.fully(tmp_path, [faster(training)])


def _raises(error: BaseException) -> Any:
    def step(*_: Any) -> None:
        raise error

    return step


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path, capsys) -> None:
    training = Training()
    groups = training.fully(tmp_path, [failing(KeyboardInterrupt()), faster(training)])
    assert [(name, len(runs)) for name, runs in groups] == [("baseline", 1), ("failing", 0), ("faster", 0)]
    assert "failing did not finish: stopped by Ctrl-C; kept: baseline" in capsys.readouterr().err
    assert sorted(run.summary.status for run in Logs(tmp_path).runs) == ["finished", "interrupted"]
    with pytest.raises(KeyboardInterrupt):
        Training(train_step=_raises(KeyboardInterrupt())).fully(tmp_path / "b")


@pytest.mark.slow
def test_a_scheduler_that_nobody_steps_is_stepped_each_epoch(tmp_path) -> None:
    found: list[Any] = []

    def schedulers(model: nn.Module) -> list[Any]:
        return found

    training = Training(also_restore=schedulers)
    own = training.task

    def task() -> dict[str, Any]:
        parts = own()
        found[:] = [torch.optim.lr_scheduler.StepLR(parts["optimizer"], 1, gamma=0.5)]
        return parts

    training.task = task  # type: ignore[method-assign]
    ((_, [run]),) = training.fully(tmp_path)
    assert found[0].last_epoch == 4
    assert found[0].get_last_lr() == [pytest.approx(1e-4 / 16)]
    assert run.text("technique_note") == ""


@pytest.mark.slow
def test_a_scheduler_that_the_step_steps_is_left_alone(tmp_path) -> None:
    kept: list[Any] = []

    def task() -> dict[str, Any]:
        parts = Training().task()
        scheduler = torch.optim.lr_scheduler.StepLR(parts["optimizer"], 100)
        kept[:] = [scheduler]

        def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
            optimizer.step()
            scheduler.step()

        return {**parts, "train_step": step, "also_restore": [scheduler], "eval_fn": None}

    clock = FakeClock()
    meter = SimulatedMeter(clock, gpu_w=1.0)
    ((_, [run]),) = train_fully(task, [], log_dir=tmp_path, clock=clock, meter=meter, verbose=0)
    assert kept[0].last_epoch == 12
    assert run.text("technique_note") == ""


def test_bad_arguments_are_said_before_anything_trains(tmp_path) -> None:
    training = Training()
    for techniques, more, match in (
        (["ampbf16"], {}, "did you mean amp-bf16"),
        ([faster(training), faster(training)], {}, "faster: named twice"),
        ([], {"epochs": 0}, "epochs must be a whole number"),
        ([], {"pue": 0.5}, "pue must be at least 1"),
        ([], {"puue": 1.5}, "puue"),
    ):
        with pytest.raises(UsageError, match=match):
            training.fully(tmp_path, techniques, **more)
    assert training.batches == []
    with pytest.raises(UsageError, match="how long is the whole training"):
        Training(total_epochs=None).fully(tmp_path)


def test_a_model_that_the_task_returns_each_time_is_refused_before_anything_trains(tmp_path) -> None:
    training = Training(train_step=None)
    parts = training.task()
    training.task = lambda: parts  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="make both inside the function"):
        training.fully(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_callers_random_states_and_switches_are_left_alone(tmp_path) -> None:
    def deterministic(parts: Parts) -> Parts:
        torch.use_deterministic_algorithms(True)
        return parts

    training = Training()
    torch.manual_seed(123)
    expected = torch.rand(1).item()
    torch.manual_seed(123)
    training.fully(tmp_path, [Technique("deterministic", deterministic)])
    assert torch.rand(1).item() == expected
    assert not torch.are_deterministic_algorithms_enabled()


def test_inside_greenlove_run_it_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GREENLOVE_RUN_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="greenlove run makes one of all"):
        Training().fully(tmp_path)


@pytest.mark.slow
def test_digits_learn(tmp_path) -> None:
    clock = FakeClock()
    meter = SimulatedMeter(clock, cpu_tdp_w=10.0)
    ((_, [run]),) = train_fully(digits_task, [], log_dir=tmp_path, epochs=2, clock=clock, meter=meter, verbose=0)
    best = run.metrics["accuracy"].best
    assert best is not None
    assert best > 0.7
    assert run.summary.counts.samples == 2 * 1437
