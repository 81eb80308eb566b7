"""Track Hugging Face's ``Trainer`` with one callback: epochs, steps, samples and tokens.

What the trainer does in one epoch, and what it calls: ``on_epoch_begin``; for each optimizer step ``on_step_begin``,
``on_substep_end`` after each accumulated batch but the last, ``on_step_end``, then evaluation and checkpoint if
``control`` says so; ``on_epoch_end``, then evaluation and checkpoint again. Nothing is called when a step raises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from greenlove_tracker.integrations.training_adapter import TracksTraining, TrainingAdapter, harmless
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import needing

with needing("the Hugging Face callback", ("transformers", "torch"), "greenlove-tracker[huggingface]"):
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
    from transformers.trainer_callback import TrainerCallback

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

# transformers' own would measure beside ours, ask the network where it is, and write a file; it comes by itself in some
# versions. Trainers that are made from here on get a callback that does nothing in its place.
INTEGRATION_TO_CALLBACK["codecarbon"] = TrainerCallback

_OF_TIME = ("_runtime", "_per_second", "_compilation_time")  # what an evaluation says of its own time


class GreenloveCallback(TrainerCallback, TracksTraining):  # type: ignore[misc]  # a class of a library without types
    """Tracks what a ``transformers.Trainer`` trains.

    ::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[GreenloveCallback(country="DE")])
        trainer.train()

    Each ``train()`` is a run. Where ``num_train_epochs`` is a whole number of at least 2 and ``max_steps`` is not set,
    the trainer's epochs are the run's; any other training counts in steps and is one epoch. Evaluations and
    checkpoints within an epoch are gaps, not the epoch's. A training that resumes from a checkpoint plans only what
    is left.

    The loss that the trainer logs, and what its evaluations find, are metrics of the run.

    Samples are full batches: of a data set that they do not divide, the last batch of an epoch counts as a full one.
    Tokens are counted where ``include_num_input_tokens_seen`` is set. transformers' own CodeCarbon callback is off once
    this module is imported. With ``on_overrun="stop"`` a budget that is likely to be exceeded saves a checkpoint and
    ends the training as the trainer itself would; nothing is raised.

    Args:
        tracker: one of yours, which you stop yourself; it then also is closed as failed when ``train()`` raises
            inside its ``with`` block. Without it each ``train()`` makes one, and stops it.
        **tracker_settings: what ``Tracker`` takes, but for the length of the plan, which the trainer knows; ``phases``
            are those of the whole training, also where it resumes.

    Raises:
        UsageError: on a bad argument.
    """

    _is_automatic: ClassVar[bool] = False

    def __init__(self, tracker: Tracker | None = None, **tracker_settings: Any) -> None:
        self._adapter = TrainingAdapter(
            "Hugging Face",
            tracker,
            tracker_settings,
            "with a checkpoint after the next step",
            is_automatic=self._is_automatic,
        )
        self._by_epochs = False
        self._n_substeps = 0
        self._tokens_seen = 0

    # -- the trainer's events ------------------------------------------------------------------------------------

    @harmless
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin a run."""
        self._by_epochs = (
            args.max_steps <= 0 and args.num_train_epochs >= 2 and float(args.num_train_epochs).is_integer()
        )
        self._n_substeps = 0
        self._tokens_seen = state.num_input_tokens_seen
        steps_per_epoch = _steps_per_epoch(state) if self._by_epochs else None
        plan = _plan(self._by_epochs, state)
        self._adapter.begin(plan, steps_per_epoch=steps_per_epoch, n_processes=args.world_size)
        mixed = os.environ.get("ACCELERATE_MIXED_PRECISION")  # as `accelerate launch` says it to the trainer
        is_mixed = args.bf16 or args.fp16 or mixed in ("bf16", "fp16")
        self._adapter.note_kind(kwargs.get("model"), is_mixed=is_mixed)

    @harmless
    def on_epoch_begin(self, *event: Any, **kwargs: Any) -> None:
        """Begin an epoch; in a training that counts in steps go on with its single epoch."""
        self._adapter.start_epoch()

    @harmless
    def on_step_begin(self, *event: Any, **kwargs: Any) -> None:
        """Go on after an evaluation or a checkpoint."""
        self._adapter.resume()

    @harmless
    def on_substep_end(self, *event: Any, **kwargs: Any) -> None:
        """Count a batch of a step that accumulates gradients."""
        self._n_substeps += 1

    @harmless
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count a step; pause if an evaluation or a checkpoint follows."""
        if self._adapter.is_stopping:
            control.should_save = control.should_training_stop = True
        n_batches = self._n_substeps + 1
        self._n_substeps = 0
        n_tokens = self._new_tokens(args, state)
        self._adapter.step(n_batches * args.train_batch_size, n_tokens, n_batches=n_batches)
        if control.should_training_stop and not self._by_epochs:
            self._adapter.end_epoch()
        elif control.should_evaluate or control.should_save:
            self._adapter.pause()

    @harmless
    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log the training loss, on the first rank only, since all ranks log the same."""
        if state.is_world_process_zero and logs and "loss" in logs:
            self._adapter.log_metrics({"loss": logs["loss"]})

    @harmless
    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log the metrics of an evaluation, without its times and counters."""
        if state.is_world_process_zero and metrics:
            found = {n: v for n, v in metrics.items() if n != "epoch" and not n.endswith(_OF_TIME)}
            self._adapter.log_metrics(found)

    @harmless
    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End the epoch; in a training that counts in steps it ends only with the training."""
        if self._by_epochs and not _is_cut_short(state, control):
            self._adapter.end_epoch()
        elif control.should_training_stop or control.should_evaluate or control.should_save:
            self._adapter.pause()

    @harmless
    def on_train_end(self, *event: Any, **kwargs: Any) -> None:
        """End the run. An epoch that was cut short stays open, so that it is logged as unfinished."""
        if not self._by_epochs and not self._adapter.is_stopping:
            self._adapter.end_epoch()
        self._adapter.finish()

    def _new_tokens(self, args: TrainingArguments, state: TrainerState) -> int | None:
        """Return this rank's share of the tokens since the last step, since the trainer counts all ranks together."""
        new = state.num_input_tokens_seen - self._tokens_seen
        self._tokens_seen = state.num_input_tokens_seen
        if not new:
            return None  # the trainer does not count them, or does not find them in its inputs
        share, rest = divmod(new, args.world_size)
        if args.process_index == 0:
            share += rest
        return int(share)


def _plan(by_epochs: bool, state: TrainerState) -> dict[str, Any]:
    """Return the length of the training, and how much of it an earlier run did."""
    done = min(state.global_step, state.max_steps)
    if not by_epochs:
        return {"total_steps": state.max_steps or None, "first_step": done}
    done_epochs = min(done // _steps_per_epoch(state), state.num_train_epochs)
    return {"epochs": state.num_train_epochs, "first_epoch": done_epochs, "first_step": done}


def _steps_per_epoch(state: TrainerState) -> int:
    return max(1, int(state.max_steps // state.num_train_epochs))


def _is_cut_short(state: TrainerState, control: TrainerControl) -> bool:
    """Return True if the training was stopped within an epoch."""
    is_early = control.should_training_stop and state.global_step < state.max_steps
    return is_early and not float(state.epoch or 0.0).is_integer()


class AutomaticHuggingFaceCallback(GreenloveCallback):
    """The callback that ``greenlove run`` gives to a trainer whose script has none."""

    _is_automatic = True
