"""Early stopping in a user's loop and as a technique: the best weights come back bit for bit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from rank_processes import run_ranks
from techniques.task_samples import digits_task
from torch import nn

from greenlove_tracker import Checkpointer, EarlyStopping
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named, technique_with
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.stopping import StoppingRule


class AwkwardModel(nn.Module):
    """Tied, and transposed bf16 weights, BatchNorm, and a state beside tensors."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(4)
        self.low_precision = nn.Parameter(torch.randn(4, 3).bfloat16().t())
        self.frozen = nn.Parameter(torch.randn(2), requires_grad=False)
        self.n_calls = 0

    def get_extra_state(self):
        return {"n_calls": self.n_calls}

    def set_extra_state(self, state):
        self.n_calls = state["n_calls"]

    def forward(self, tokens):
        self.n_calls += 1
        return self.head(self.norm(self.embedding(tokens)))


def tensors_of(model):
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


def bits_of(model):
    """Every tensor as bytes: NaN and the sign of zero count."""
    return {name: t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for name, t in tensors_of(model).items()}


def disturb(model):
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(1)
        for tensor in model.buffers():
            tensor.add_(1)


# -- the user's loop --


def test_it_ends_after_its_patience_and_says_which_epoch_was_the_best():
    stopping = EarlyStopping("accuracy", patience=2, restore=(model := nn.Linear(2, 2)))
    ends = [stopping.step(value) for value in (0.5, 0.7, 0.6)]
    assert not any(ends) and not stopping.has_stopped
    assert stopping.step(torch.tensor(0.65))
    assert (stopping.has_stopped, stopping.best_value, stopping.best_at, stopping.best_epoch) == (True, 0.7, 2, 2)
    assert stopping.note == "ended after epoch 4, the best was epoch 2 (accuracy 0.700)"
    disturb(model)
    assert stopping.restore_best()
    assert stopping.note == "ended after epoch 4, with the weights of epoch 2 (accuracy 0.700)"


def test_a_module_gets_every_bit_back_in_the_same_memory():
    torch.manual_seed(0)
    model = AwkwardModel()
    with torch.no_grad():
        model.frozen.copy_(torch.tensor([-0.0, math.nan]))
    model(torch.arange(6))
    stopping = EarlyStopping(patience=5, restore=model)
    stopping.step(1.0)
    best, held = bits_of(model), {name: (id(t), t.data_ptr(), t.stride()) for name, t in tensors_of(model).items()}
    for value in (2.0, 1.0, math.nan):
        model(torch.arange(6))
        disturb(model)
        stopping.step(value)
    assert bits_of(model) != best
    assert stopping.restore_best()
    assert bits_of(model) == best
    assert {name: (id(t), t.data_ptr(), t.stride()) for name, t in tensors_of(model).items()} == held
    assert model.head.weight is model.embedding.weight and model.n_calls == 1
    disturb(model)  # the copy is not what was put back
    stopping.restore_best()
    assert bits_of(model) == best


def test_a_copy_is_made_at_each_best_value_alone():
    calls, state = [], SimpleNamespace(weights=0)

    def save():
        calls.append(state.weights)
        return [state.weights]

    stopping = EarlyStopping(
        patience=3, min_delta=0.5, restore=(save, lambda saved: setattr(state, "weights", saved[0]))
    )
    for number, value in enumerate([math.nan, 3.0, 3.1, 2.8, 2.8]):  # 2.8 is the best, and no improvement of 0.5
        state.weights = number
        stopping.step(value)
    assert calls == [1, 3] and stopping.has_stopped
    stopping.restore_best()
    assert state.weights == 3


def test_it_tells_the_tracker():
    tracker = Mock()
    stopping = EarlyStopping("f1", patience=1, every=5, tracker=tracker)
    stopping.step(np.float32(0.5))
    stopping.step(0.25)
    rule = StoppingRule("f1", patience=1, higher_is_better=True, every=5)
    assert tracker.mock_calls == [
        call.expect_stop(rule),
        call.log_metric("f1", 0.5, higher_is_better=True),
        call.log_metric("f1", 0.25, higher_is_better=True),
        call.log_early_stop(5),
    ]


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("entropy", {}),
        ("val_loss", {"patience": 0}),
        ("val_loss", {"restore": 3}),
        ("val_loss", {"restore": nn.Linear}),
    ],
)
def test_what_cannot_be_followed_or_restored_is_refused(metric, options):
    with pytest.raises(UsageError):
        EarlyStopping(metric, **options)


def test_what_comes_too_early_or_too_late_is_refused():
    stopping = EarlyStopping(patience=1, restore=nn.Linear(1, 1))
    with pytest.raises(UsageError, match="no weights are kept"):
        stopping.restore_best()
    with pytest.raises(UsageError, match="takes a number"):
        stopping.step(None)
    assert stopping.step(math.nan)
    with pytest.raises(UsageError, match="leave the loop"):
        stopping.step(0.1)


# -- resumed --


def test_a_checkpointer_resumes_it_with_the_weights_it_keeps(tmp_path):
    class LeftError(Exception):
        """The process is killed here."""

    def train(killed_in=None):
        torch.manual_seed(0)
        model = AwkwardModel()
        best, stopping = bits_of(model), EarlyStopping(patience=2, restore=model)
        checkpointer = Checkpointer(tmp_path, model=model, others=stopping, every_epochs=1)
        seen = []
        for epoch in checkpointer.epochs(6, tracker=False):
            if epoch == killed_in:
                raise LeftError
            seen.append(epoch)
            if stopping.step([1.0, 2.0, 3.0][epoch]):
                checkpointer.stop()
            disturb(model)
        return seen, stopping, model, best

    with pytest.raises(LeftError):
        train(killed_in=2)
    seen, stopping, model, best = train()
    assert seen == [2] and stopping.has_stopped
    assert bits_of(model) != best
    stopping.restore_best()
    assert bits_of(model) == best
    assert stopping.note.startswith("ended after epoch 3, with the weights of epoch 1")
    seen, stopping, model, best = train()  # once more, after its end
    assert seen == [] and stopping.has_stopped
    stopping.restore_best()
    assert bits_of(model) == best


def test_the_state_of_another_training_is_refused():
    state = EarlyStopping("accuracy").state_dict()
    with pytest.raises(UsageError, match="of accuracy, and early stopping follows val_loss"):
        EarlyStopping().load_state_dict(state)
    with pytest.raises(UsageError, match="in its direction"):
        EarlyStopping("accuracy", higher_is_better=False).load_state_dict(state)


# -- several ranks --


def _ranks_that_disagree(rank):
    stopping = EarlyStopping(patience=2, restore=nn.Linear(1, 1))
    ends = [stopping.step(value) for value in ([1.0, 2.0, 3.0], [1.0, 0.5, 0.1])[rank]]
    by_rank_0 = EarlyStopping("accuracy", patience=1)
    ends_by_rank_0 = [by_rank_0.step(value if rank == 0 else None) for value in (0.5, 0.6, 0.6)]
    return ends, stopping.note, ends_by_rank_0


@pytest.mark.slow
def test_the_value_of_rank_0_decides_for_all(tmp_path):
    first, second = run_ranks(_ranks_that_disagree, 2, tmp_path)
    assert first == second
    ends, note, ends_by_rank_0 = first
    assert ends == ends_by_rank_0 == [False, False, True]
    assert note == "ended after epoch 3, the best was epoch 1 (val_loss 1.00)"


# -- the technique --


def losses_task(found, **more):
    """A task whose evaluation gives these metrics."""

    def evaluate(model):
        model.eval()
        return found

    return lambda: {**digits_task(), "eval_fn": evaluate, **more}


def test_it_puts_early_stopping_of_the_model_into_the_parts():
    arm = build_arm(digits_task, technique_named("early-stopping=3"))
    stopping = arm.parts["early_stopping"]
    assert stopping.rule == StoppingRule("accuracy", patience=3, higher_is_better=True)
    best = bits_of(arm.parts["model"])
    stopping.step(0.9)
    disturb(arm.parts["model"])
    stopping.restore_best()
    assert bits_of(arm.parts["model"]) == best
    assert arm.parts["technique_notes"][-1]() == "not ended early, with the weights of epoch 1 (accuracy 0.900)"


@pytest.mark.parametrize(
    ("found", "metric"),
    [
        ({"accuracy": 0.1, "train_loss": 2.0, "val_loss": 1.0}, "val_loss"),
        ({"accuracy": 0.1, "eval_loss": 1.0}, "accuracy"),
        ({"grad_norm": 3.0, "f1": 0.1, "accuracy": 0.2}, "f1"),
        (0.3, "accuracy"),
    ],
)
def test_without_a_metric_it_follows_the_loss_of_the_evaluation(found, metric):
    arm = build_arm(losses_task(found, eval_every=2), technique_named("early-stopping"))
    rule = arm.parts["early_stopping"].rule
    assert (rule.metric, rule.patience, rule.every) == (metric, 5, 2)
    assert arm.parts["model"].training  # the evaluation left its layers as they were


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (losses_task(0.0, eval_fn=None), {}, "has no eval_fn"),
        (
            losses_task({"f1": 0.1, "val_loss": 1.0}),
            {"metric": "val_los"},
            "gives no val_los: .* of f1, val_loss, train_loss",
        ),
        (losses_task({"grad_norm": 1.0}), {}, "gives no val_loss: say with metric which"),
        (losses_task(0.1, total_steps=100, total_epochs=None), {}, "let the task give eval_every"),
        (losses_task(0.1, total_steps=100), {"metric": "train_loss"}, "let the task give eval_every"),
    ],
)
def test_where_nothing_can_be_followed_it_says_why(task, options, message):
    with pytest.raises(NotApplicableError, match=message):
        build_arm(task, technique_with("early-stopping", options))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("early-stopping=0", {}, "patience must be a whole number of at least 1"),
        ("early-stopping=max", {}, "such as early-stopping=5"),
        ("early-stopping", {"metric": 3}, "metric must be the name"),
        ("early-stopping", {"higher_is_better": "yes"}, "higher_is_better must be True or False"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_trains(name, options, message):
    with pytest.raises(UsageError, match=message):
        technique_with(name, options)
