"""``compile``: the model compiled to fewer kernels, by ``torch.compile``."""

from __future__ import annotations

from functools import partial

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.step import with_step
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # of torch.compile


def technique(name: str, value: str | None) -> Technique:
    """Return ``compile``, with a mode of ``torch.compile`` where one is given.

    Raises:
        UsageError: where there is no such mode.
    """
    if value is not None and value not in _MODES:
        raise UsageError(f"{name}={value}: the modes of torch.compile are {', '.join(_MODES)}")
    full_name = name if value is None else f"{name}={value}"
    return Technique(full_name, partial(_compiled, mode=value or "default"), Stage.STEP, name)


def _compiled(parts: Parts, *, mode: str) -> Parts:
    """Compile the model in the step: the first ones take as long as that takes.

    Raises:
        NotApplicableError: where the step is the task's own, or compiles already.
    """
    if any(getattr(m, "_compiled_call_impl", None) or hasattr(m, "_orig_mod") for m in parts["model"].modules()):
        raise NotApplicableError("the training compiles its model already")
    changed = with_step(parts, compile_mode=mode)
    source = batches_of(parts)
    if source.samples_per_epoch and (last := source.samples_per_epoch % source.batch_size):
        sizes = f"{last} samples instead of {source.batch_size}"
        said = f"the last batch of an epoch has {sizes}: at the first of them, compile works once more"
        changed["technique_notes"] = [*parts.get("technique_notes", ()), lambda: said]
    return changed
