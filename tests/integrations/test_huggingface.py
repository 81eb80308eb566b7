"""The Hugging Face callback in the real library's own loop, on a model of a few hundred weights."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import CodeCarbonCallback

from greenlove_tracker import read_logs
from greenlove_tracker.integrations.huggingface import GreenloveCallback
from greenlove_tracker.vocabulary.records import Flag
from tests.integrations.by_hand import only_run, runs

N_SAMPLES, N_TOKENS, BATCH = 12, 8, 4  # 3 batches an epoch
EVALUATION_S = 0.05


class Model(GPT2LMHeadModel):
    """Its evaluations take their time."""

    def forward(self, *args, **kwargs):
        if not self.training:
            time.sleep(EVALUATION_S)
        return super().forward(*args, **kwargs)


class Witness(TrainerCallback):
    """Notes when evaluations and checkpoints end."""

    def __init__(self):
        self.moments = []
        self.n_evaluations = 0

    def on_evaluate(self, args, state, control, **kwargs):
        self.n_evaluations += 1
        self.moments.append(time.time() - EVALUATION_S / 2)  # a moment within it

    def on_save(self, args, state, control, **kwargs):
        self.moments.append(time.time() - 0.002)  # rows begin at a full millisecond


class At(TrainerCallback):
    """Sets a flag of the control's at a step."""

    def __init__(self, step, flag):
        self.step, self.flag = step, flag

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            setattr(control, self.flag, True)


def make_trainer(*callbacks, n_samples=N_SAMPLES, **arguments):
    torch.manual_seed(0)
    model = Model(GPT2Config(vocab_size=32, n_positions=N_TOKENS, n_embd=16, n_layer=2, n_head=2))
    ids = torch.randint(0, 32, (n_samples, N_TOKENS))
    data = [{"input_ids": row, "labels": row} for row in ids]
    defaults = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    defaults |= {"per_device_train_batch_size": BATCH, "logging_strategy": "no", "remove_unused_columns": False}
    args = TrainingArguments("checkpoints", **(defaults | arguments))
    return Trainer(model, args, train_dataset=data, eval_dataset=data[:1], callbacks=list(callbacks))


def make_callback(**settings):
    return GreenloveCallback(sim_cpu_tdp_w=50, verbose=0, **settings)


def test_a_training_in_steps_is_one_epoch(tmp_path):
    callback = make_callback(log_dir=tmp_path / "logs", country="DE")
    make_trainer(callback, max_steps=5, include_num_input_tokens_seen=True).train()
    (run,) = read_logs(tmp_path / "logs").runs
    assert (run.summary.status, run.summary.epochs_done) == ("finished", 1)
    assert (run.text("total_steps_planned"), run.text("epochs_planned"), run.text("country")) == ("5", "", "DE")
    counts = run.summary.counts
    assert (counts.steps, counts.batches, counts.samples, counts.tokens) == (5, 5, 20, 5 * BATCH * N_TOKENS)
    assert run.summary.energy_kwh > 0 and callback.tracker.summary == run.summary


def test_tokens_that_the_trainer_does_not_count_are_unknown():
    make_trainer(make_callback(), max_steps=2).train()
    assert only_run().summary.counts.tokens is None


def is_trained_at(run, moment):
    """Whether a moment lies in what the run counts as its epochs."""
    trained = [row for row in run.rows[0] if row.epoch is not None]
    starts = [datetime.fromisoformat(row.started_at).timestamp() for row in trained]
    return any(start < moment < start + row.duration_s for start, row in zip(starts, trained, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{"max_steps": 4}, {"num_train_epochs": 2}, {"num_train_epochs": 1}])
@pytest.mark.parametrize("when", ["steps", "epoch"])
def test_evaluations_and_checkpoints_are_gaps(plan, when):
    strategy = {"eval_strategy": when, "eval_steps": 2, "save_strategy": when, "save_steps": 2}
    witness = Witness()
    make_trainer(make_callback(), witness, **strategy, **plan).train()
    run = only_run()
    assert 0 < witness.n_evaluations < len(witness.moments)
    assert not any(is_trained_at(run, moment) for moment in witness.moments)
    assert run.summary.between_s > witness.n_evaluations * EVALUATION_S
    assert all(epoch.is_complete for epoch in run.epochs)


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "steps"), [(1, 3), (1.5, 5)])
def test_one_epoch_or_a_fraction_counts_in_steps(epochs, steps):
    make_trainer(make_callback(), num_train_epochs=epochs).train()
    run = only_run()
    assert (run.text("total_steps_planned"), run.summary.counts.steps) == (str(steps), steps)
    assert [e.is_complete for e in run.epochs] == [True]


def test_accumulated_batches_are_counted_as_they_were():
    make_trainer(make_callback(), num_train_epochs=2, gradient_accumulation_steps=2).train()
    counts = [(e.steps, e.batches, e.samples) for e in only_run().epochs]
    assert counts == [(2, 3, 12), (2, 3, 12)]  # two batches, and the one that is left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "planned", "steps"),
    [({"max_steps": 6}, ("2", ""), [2]), ({"num_train_epochs": 3}, ("", "2"), [2, 3])],
    ids=["steps", "epochs"],
)
def test_a_resumed_training_plans_the_rest(plan, planned, steps):
    saving = {"save_strategy": "steps", "save_steps": 4}
    make_trainer(make_callback(), At(5, "should_training_stop"), **saving, **plan).train()
    resumed = make_trainer(make_callback(), restore_callback_states_from_checkpoint=True, **saving, **plan)
    resumed.train(resume_from_checkpoint="checkpoints/checkpoint-4")
    second = runs()[1]
    assert (second.text("total_steps_planned"), second.text("epochs_planned")) == planned
    assert [(e.steps, e.is_complete) for e in second.epochs] == [(n, True) for n in steps]


def test_a_training_stopped_early_leaves_its_last_epoch_unfinished():
    make_trainer(make_callback(), At(4, "should_training_stop"), num_train_epochs=3).train()
    run = only_run()
    assert [(e.steps, e.is_complete) for e in run.epochs] == [(3, True), (1, False)]
    assert Flag.UNFINISHED in run.epochs[1].flags
    assert (run.summary.status, run.summary.epochs_done) == ("finished", 1)


def test_transformers_own_codecarbon_tracker_is_off():
    trainer = make_trainer(make_callback(), max_steps=1, report_to="codecarbon")
    assert not any(isinstance(c, CodeCarbonCallback) for c in trainer.callback_handler.callbacks)
    trainer.train()
    assert only_run().summary.counts.steps == 1


def test_a_ranks_tokens_add_up_to_those_of_all():
    state = SimpleNamespace(num_input_tokens_seen=100)
    args = [SimpleNamespace(world_size=3, process_index=rank) for rank in range(3)]
    assert [make_callback()._new_tokens(a, state) for a in args] == [34, 33, 33]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [{"max_steps": 200}, {"num_train_epochs": 60}])
def test_a_budget_stops_the_training_with_a_checkpoint_and_without_an_exception(plan, caplog):
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    at_work = At(0, "should_log")
    at_work.on_step_begin = lambda *args, **kwargs: time.sleep(0.05)
    trainer = make_trainer(make_callback(on_overrun="stop", deadline_utc=soon.isoformat()), at_work, **plan)
    trainer.train()
    assert 0 < trainer.state.global_step < trainer.state.max_steps
    assert Path(f"checkpoints/checkpoint-{trainer.state.global_step}").is_dir()
    assert "training stops with a checkpoint" in caplog.text
    assert only_run().summary.status == "stopped"


@pytest.mark.slow
def test_the_loss_and_what_evaluations_find_are_metrics_of_the_run():
    logged = {"logging_strategy": "steps", "logging_steps": 2, "label_names": ["labels"]}
    trainer = make_trainer(make_callback(), num_train_epochs=2, eval_strategy="epoch", **logged)
    trainer.train()
    history = trainer.state.log_history
    run = only_run()
    assert set(run.metrics) == {"loss", "eval_loss"}
    assert [v.value for v in run.metric_values[0] if v.name == "loss"] == [h["loss"] for h in history if "loss" in h]
    evaluated = [(v.epoch, v.value) for v in run.metric_values[0] if v.name == "eval_loss"]
    assert evaluated == [(h["epoch"], h["eval_loss"]) for h in history if "eval_loss" in h]
    assert trainer.evaluate()["eval_loss"] == run.metrics["eval_loss"].last  # the run is over: no warning, no row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "precision"),
    [({}, ("fp32", "32 bits, without autocast")), ({"bf16": True}, ("bf16", "autocast"))],
)
def test_precision_and_workload_are_those_of_the_trainer(arguments, precision, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")  # the trainer leaves its own there
    make_trainer(make_callback(), max_steps=1, **arguments).train()
    run = only_run()
    assert (run.text("precision"), run.text("precision_basis")) == precision
    assert (run.text("workload"), run.text("workload_basis")) == ("language", "input_ids as its input")


def test_a_guess_that_fails_is_a_warning_and_no_end(monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise ValueError("no such model")

    monkeypatch.setattr("greenlove_tracker.machine.training_kind.workload_of", fail)
    make_trainer(make_callback(), max_steps=2).train()
    assert only_run().summary.counts.steps == 2 and "precision" not in only_run().lines
    assert caplog.text.count("no such model") == 1
