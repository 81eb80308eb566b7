"""The memory that a training takes on a GPU, by technique, before it runs there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from greenlove_tracker.exploration.peak_memory import MOST_BATCHES, peak_of_steps
from greenlove_tracker.exploration.snapshot import Snapshot
from greenlove_tracker.techniques.arm import Arm, Task, build_arm
from greenlove_tracker.techniques.compare import reason_of
from greenlove_tracker.techniques.technique import Technique, technique_named
from greenlove_tracker.vocabulary.comparisons import MemoryRow

_COMPILED = "what compiling saves is only seen where it runs: greenlove compare measures it"


def estimate_memory(
    task: Task,
    techniques: Sequence[str | Technique] = (),
    *,
    as_on_gpu: bool = True,
    seed: int = 0,
) -> tuple[MemoryRow, ...]:
    """Return the memory of a training at the peak of its steps: as it is, and with each technique.

    Two steps are made and followed (``measured step``), and all is left as it was. Of a model on ``meta`` nothing is
    computed (method ``meta``).

    Args:
        task: a function without arguments that returns ``(model, optimizer, criterion, train_dataset)``, or a dict of
            those and of more arguments of ``Estimator``; it is called for each row. A model on ``meta`` is taken too.
        techniques: names, such as ``amp-bf16`` or ``amp-bf16+activation-checkpointing``, or techniques of one's own.
        as_on_gpu: count as on a GPU, also where the model is on the CPU: with the optimizer that takes all parameters
            at once. False: as on the CPU.
        seed: of the random states, before the task is called.

    Raises:
        UsageError: where the task returns something else than a task does, or no technique is called so.
    """
    chosen = [technique_named(t) if isinstance(t, str) else t for t in techniques]
    rows = []
    with Snapshot(()):
        for technique in (None, *chosen):
            try:
                rows.append(_row_of(build_arm(task, technique, seed=seed), as_on_gpu=as_on_gpu))
            except Exception as error:
                if technique is None:
                    raise
                rows.append(MemoryRow(technique.name, reason=reason_of(error)))
    return tuple(rows)


def _row_of(arm: Arm, *, as_on_gpu: bool) -> MemoryRow:
    training = arm.training_step()
    if training.is_compiled:
        return MemoryRow(arm.name, reason=_COMPILED)
    arm.parts["model"].train()
    with (
        closing(arm.source),
        arm.active(),
        warnings.catch_warnings(),
        Snapshot(training.modules, arm.parts["optimizer"]),
    ):
        warnings.simplefilter("ignore")  # of what has no meaning for tensors without data
        found = peak_of_steps(training, arm.source.first(MOST_BATCHES), as_on_gpu=as_on_gpu)
    return replace(found, name=arm.name, batch_size=arm.source.batch_size)
