"""``early-stopping=5``: a training ends once it no longer improves, and gets its best weights back.

``EarlyStopping`` is for the user's own loop, whatever the framework; importing it loads no torch.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from greenlove_tracker.machine.job import torch_group
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, whole_value, with_note
from greenlove_tracker.text.format import plural, significant
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.metrics import direction_of, number_of
from greenlove_tracker.vocabulary.stopping import StoppingRule

_NOTE = "the best epoch is chosen by its score, which is then too good by chance: only other data tell how good it is"

_DEFAULT_PATIENCE = 5
# What a whole training logs: its loss, and an evaluation without a name.
TRAIN_LOSS = "train_loss"
ACCURACY = "accuracy"

Pair = tuple[Callable[[], Any], Callable[[Any], object]]


class EarlyStopping:
    """Ends a training once it no longer improves, and puts the best weights back, bit for bit.

    >>> stopping = EarlyStopping("val_loss", patience=5, restore=model)
    >>> for epoch in range(100):
    ...     train(model)
    ...     if stopping.step(validate(model)):
    ...         break
    >>> stopping.restore_best()

    The weights are copied whenever a value is the best so far: by itself, whatever ``min_delta`` makes of it. The copy
    lies in the host's memory, so that a GPU loses none; while one is made, there are two. As one of the
    ``others`` of a ``Checkpointer`` it is resumed exactly, with the weights that it keeps.

    Where torch's processes train together, each calls ``step()``: the value of rank 0 decides for all, and the others
    may give None.

    Args:
        metric: its name, as in ``log_metric``.
        patience: values in a row without an improvement after which it ends.
        min_delta: an improvement is more than this, in the metric's own unit.
        higher_is_better: which of two values is the better one; without it the name tells, as with ``log_metric``.
        every: epochs (or steps, of a training in steps) from one value to the next, for forecasts and what it says.
        unit: that it says: ``epoch`` or ``step``.
        restore: what gets its best state back: an object with ``state_dict`` and ``load_state_dict``, such as a module
            of torch; or functions ``(save, restore)``, such as a Keras model's ``get_weights`` and ``set_weights``.
        tracker: a ``Tracker``, which logs the rule, each value and the end.

    Attributes:
        rule: that ends the training.
        best_value: the best value so far; None before the first that is a number.
        best_at: the number of values when it was the best; None likewise.
        has_stopped: the training is to end.

    Raises:
        UsageError: where a rule cannot be meant, it is not known if a larger value is better, or something cannot be
            restored.
    """

    def __init__(
        self,
        metric: str = "val_loss",
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        higher_is_better: bool | None = None,
        every: int = 1,
        unit: str = "epoch",
        restore: Any = None,
        tracker: Any = None,
    ) -> None:
        is_larger_better = direction_of(str(metric)) if higher_is_better is None else higher_is_better
        if is_larger_better is None:
            raise UsageError(
                f"is a larger or a smaller {metric} the better one? Its name does not tell: say {{argument=}}True or "
                "False",
                argument="higher_is_better",
            )
        self.rule = StoppingRule(metric, patience, min_delta, is_larger_better, every)
        self._pair = None if restore is None else _pair(restore)
        self._best: Any = None  # the state of what is restored, as ``_copied`` made it
        self._ranks: Any = None  # made with the first value: all ranks are there then
        self._tracker = tracker
        self._unit = unit
        self._is_restored = False
        self._begin()
        if tracker is not None:
            tracker.expect_stop(self.rule)

    def _begin(self) -> None:
        self._values: list[float] = []
        self.best_value: float | None = None
        self.best_at: int | None = None
        self.has_stopped = False

    @property
    def best_epoch(self) -> int | None:
        """The epoch of the best value, where one comes every ``every`` epochs; None before the first."""
        if self.best_at is None:
            return None
        return self.best_at * self.rule.every

    def step(self, value: Any) -> bool:
        """Take the next value of the metric, and copy the weights where it is the best so far.

        Args:
            value: a number, or a scalar of NumPy or torch; None on ranks other than 0.

        Returns:
            True where the training is to end now.

        Raises:
            UsageError: where it is no number, or the training has ended before.
        """
        if self.has_stopped:
            raise UsageError(
                f"early stopping ended this training after {plural(len(self._values), 'value')} of "
                f"{self.rule.metric}: leave the loop where step() returns True"
            )
        number = self._number(value)
        if self._tracker is not None:
            self._tracker.log_metric(self.rule.metric, number, higher_is_better=self.rule.higher_is_better)
        if self._is_best(number):  # copied first: an error or Ctrl-C here leaves what was the best until now
            self._best = _copied(self._pair[0]()) if self._pair else None
        self.has_stopped = self._add(number)
        if self.has_stopped and self._tracker is not None:
            self._tracker.log_early_stop(self.best_epoch)
        return self.has_stopped

    def _number(self, value: Any) -> float:
        """Return the value that decides: the own one, or that of rank 0.

        Raises:
            UsageError: where it is no number.
        """
        number = number_of(value)
        if torch_group()[1] > 1:
            from greenlove_tracker.checkpointing.distributed import RankAgreement

            self._ranks = self._ranks or RankAgreement()
            number = self._ranks.gathered(number)[0]
        if number is None:
            raise UsageError(f"step() takes a number, the {self.rule.metric} of now, and not {value!r}")
        return number

    def _add(self, number: float) -> bool:
        """Take a value; return True where the training ends with it."""
        self._values.append(number)
        self._is_restored = False
        if self._is_best(number):
            self.best_value = number
            self.best_at = len(self._values)
        return self.rule.first_stop(self._values) is not None

    def _is_best(self, number: float) -> bool:
        return math.isfinite(number) and (self.best_value is None or self.rule.gain(number, self.best_value) > 0)

    def restore_best(self) -> bool:
        """Put the best weights back, as they were.

        Returns:
            True where they are those of an earlier value; False where the last one was the best.

        Raises:
            UsageError: where no weights are kept.
        """
        if not self._pair:
            raise UsageError("nothing can be put back: say what with {argument=}model", argument="restore")
        if self._best is None:
            raise UsageError(f"no weights are kept: {self.rule.metric} was no number so far, or restore= was not given")
        self._pair[1](_copied(self._best))
        self._is_restored = True
        return self.best_at != len(self._values)

    @property
    def note(self) -> str:
        """The outcome of the training, as a sentence without a full stop; empty before the first value."""
        if not self._values:
            return ""
        after = len(self._values) * self.rule.every
        end = f"ended after {self._unit} {after:,}" if self.has_stopped else "not ended early"
        if self.best_epoch is None or self.best_value is None:
            return f"{end}: no {self.rule.metric} was a number"
        whose = "with the weights of" if self._is_restored else "the best was"
        return f"{end}, {whose} {self._unit} {self.best_epoch:,} ({self.rule.metric} {significant(self.best_value)})"

    def state_dict(self) -> dict[str, Any]:
        """Return the values so far and the best weights, for ``load_state_dict``."""
        followed = {"metric": self.rule.metric, "higher_is_better": self.rule.higher_is_better}
        return {**followed, "values": list(self._values), "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the rule looks at its values again, so that a rule with more patience goes on with it.

        Args:
            state: of ``state_dict``.

        Raises:
            UsageError: where it is of another metric.
        """
        there = (state["metric"], state["higher_is_better"])
        here = (self.rule.metric, self.rule.higher_is_better)
        if there != here:
            raise UsageError(f"the state is of {there[0]}, and early stopping follows {here[0]} (or in its direction)")
        self._begin()
        for value in state["values"]:
            self.has_stopped = self._add(value)
        self._best = copy.deepcopy(state["best"])


# -- what is restored --


def _pair(thing: Any) -> Pair:
    """Return functions that give the state of a thing, and put one back.

    Raises:
        UsageError: where it has none that is known.
    """
    if isinstance(thing, tuple) and len(thing) == 2 and all(map(callable, thing)):
        return thing
    if not inspect.isclass(thing) and hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return partial(_state_of, thing), thing.load_state_dict
    raise UsageError(
        f"{{argument}} is {thing!r}, and its state is unknown: give a module, or functions (save, restore)",
        argument="restore",
    )


def _state_of(thing: Any) -> Any:
    if hasattr(thing, "modules") and "torch" in sys.modules:
        from greenlove_tracker.checkpointing.training_state import is_sharded

        if is_sharded(thing):
            raise UsageError(
                "the model is sharded (FSDP), so no rank has all of it to copy: leave {argument} out, and take the "
                "best weights from a checkpoint",
                argument="restore",
            )
    return thing.state_dict()


def _copied(state: Any) -> Any:
    if "torch" not in sys.modules:
        return copy.deepcopy(state)
    from greenlove_tracker.exploration.random_state import copied

    return copied(state)


# -- the technique --


def technique(
    name: str,
    value: str | None,
    *,
    metric: str | None = None,
    patience: int = _DEFAULT_PATIENCE,
    min_delta: float = 0.0,
    higher_is_better: bool | None = None,
) -> Technique:
    """Return ``early-stopping=N``; without a number, with a patience of 5.

    Args:
        name: of the technique.
        value: its patience, in evaluations.
        metric: ``train_loss`` or what the task's ``eval_fn`` returns; None: ``val_loss`` where it returns that, else
            the first of which the name tells the better value.
        patience: where there is no value.
        min_delta: as of ``EarlyStopping``.
        higher_is_better: likewise.

    Raises:
        UsageError: where a rule cannot be meant.
    """
    if value is not None:
        patience = whole_value(name, value, "a number of evaluations without a better one", 0)
    StoppingRule(metric or "val_loss", patience, min_delta, higher_is_better or False)  # a bad option is refused now
    options = {"patience": patience, "min_delta": min_delta, "higher_is_better": higher_is_better}
    apply = partial(_with_early_stopping, metric=metric, options=options)
    # Behind what may replace the model.
    return Technique(name, apply, Stage.SCHEDULE, note=_NOTE, is_of_whole=True)


def _with_early_stopping(parts: Parts, *, metric: str | None, options: Mapping[str, Any]) -> Parts:
    """Put an ``EarlyStopping`` that restores the model into the parts, for the loop that trains them.

    Raises:
        NotApplicableError: where nothing that it could follow comes in the course of the training.
    """
    is_in_steps = parts.get("total_steps") is not None
    if is_in_steps and not parts.get("eval_every"):
        raise NotApplicableError("this training in steps is evaluated only at its end: let the task give eval_every")
    stopping = EarlyStopping(
        metric if metric == TRAIN_LOSS else _metric_of(parts, metric),
        every=parts.get("eval_every") or 1,
        unit="step" if is_in_steps else "epoch",
        restore=parts["model"],
        **options,
    )
    return with_note({**parts, "early_stopping": stopping}, lambda: stopping.note)


def _metric_of(parts: Parts, metric: str | None) -> str:
    """Return the metric to be followed, of those that one evaluation gives; each layer keeps its mode.

    Raises:
        NotApplicableError: where there is no evaluation, or it gives no such metric.
    """
    if parts.get("eval_fn") is None:
        raise NotApplicableError("the task has no eval_fn, which says how good the model is")
    found = evaluated(parts["eval_fn"], parts["model"])
    names = list(map(str, found)) if isinstance(found, Mapping) else [ACCURACY]
    known = [name for name in names if direction_of(name) is not None]
    chosen = metric or ("val_loss" if "val_loss" in names else next(iter(known), None))
    if chosen not in names:
        there = ", ".join([*names, TRAIN_LOSS])
        raise NotApplicableError(f"eval_fn gives no {metric or 'val_loss'}: say with metric which to follow of {there}")
    return chosen


def evaluated(eval_fn: Callable[[Any], Any], model: Any) -> Any:
    """Return what an evaluation returns, and leave each layer in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        return eval_fn(model)
    finally:
        for module, is_training in modes:
            module.training = is_training
