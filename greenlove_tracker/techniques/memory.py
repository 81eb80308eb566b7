"""The memory that a training takes on a GPU, by technique, before it runs there."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence

from greenlove_tracker.comparisons import BASELINE, MemoryRow
from greenlove_tracker.exploration.peak_memory import (
    MOST_BATCHES,
    PeakMemory,
    TrainingStep,
    estimated_peak,
    measured_peak,
)
from greenlove_tracker.exploration.snapshot import preserved
from greenlove_tracker.techniques.arm import Arm, Task, build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, Technique, technique_named

_META_S = 120.0  # that the steps without data may take; ResNet-50 takes a few seconds
_COMPILED = "what compiling saves is only seen where it runs: greenlove compare measures it"


def estimate_memory(
    task: Task,
    techniques: Sequence[str | Technique] = (),
    *,
    as_on_gpu: bool = True,
    seed: int = 0,
    perf_s: Callable[[], float] = time.perf_counter,
) -> tuple[MemoryRow, ...]:
    """Return the memory of a training at the peak of its steps: as it is, and with each technique.

    Nothing is computed where the step can be made with tensors that hold no data (method ``meta``); where it cannot,
    two real steps are made and followed (``measured step``). All is left as it was.

    Args:
        task: a function without arguments that returns ``(model, optimizer, criterion, train_dataset)``, or a dict of
            those and of more arguments of ``Estimator``; it is called for each row. A model on ``meta`` is taken too.
        techniques: names, such as ``amp-bf16`` or ``amp-bf16+activation-checkpointing``, or techniques of one's own.
        as_on_gpu: count as on a GPU, also where the model is on the CPU: with its blocks of memory, and with the
            optimizer that takes all parameters at once. False: as on the CPU.
        seed: of the random states, before the task is called.
        perf_s: a clock.

    Raises:
        UsageError: where the task returns something else than a task does, or no technique is called so.
    """
    chosen = [technique_named(t) if isinstance(t, str) else t for t in techniques]
    rows = []
    with preserved(()):
        for technique in (None, *chosen):
            try:
                rows.append(_row_of(build_arm(task, technique, seed=seed), as_on_gpu=as_on_gpu, perf_s=perf_s))
            except NotApplicableError as error:
                rows.append(_unknown(technique.name if technique else BASELINE, str(error)))
            except Exception as error:
                if technique is None:
                    raise
                rows.append(_unknown(technique.name, f"it fails here: {error!r}"))
    return tuple(rows)


def _unknown(name: str, reason: str) -> MemoryRow:
    return MemoryRow(name, None, None, None, None, None, "", reason)


def _row_of(arm: Arm, *, as_on_gpu: bool, perf_s: Callable[[], float]) -> MemoryRow:
    try:
        training = arm.training_step()
        if training.is_compiled:
            return _unknown(arm.name, _COMPILED)
        with arm.active():
            found = _peak_of(arm, training, as_on_gpu=as_on_gpu, perf_s=perf_s)
    finally:
        arm.source.close()
    return MemoryRow(
        name=arm.name,
        parameters_bytes=found.parameters_bytes,
        gradients_bytes=found.gradients_bytes,
        optimizer_bytes=found.optimizer_bytes,
        activations_bytes=found.activations_bytes,
        peak_bytes=found.peak_bytes,
        method=found.method,
        batch_size=arm.source.batch_size,
    )


def _peak_of(arm: Arm, training: TrainingStep, *, as_on_gpu: bool, perf_s: Callable[[], float]) -> PeakMemory:
    deadline_s = perf_s() + _META_S
    arm.parts["model"].train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what has no meaning for tensors without data
        try:
            batches = arm.source.first(MOST_BATCHES)
            return estimated_peak(training, batches, as_on_gpu=as_on_gpu, is_late=lambda: perf_s() > deadline_s)
        except Exception:  # whatever it is: real steps tell, and raise what is the training's own
            if arm.device.type == "meta":
                raise
    with preserved(training.modules, arm.parts["optimizer"]):
        return measured_peak(training, arm.source.first(MOST_BATCHES), as_on_gpu=as_on_gpu)
