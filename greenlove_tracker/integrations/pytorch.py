"""Watch a plain PyTorch script without changing it: passes over its ``DataLoader``s, and optimizer steps.

Nothing is imported: the hooks are put in place while the script itself imports torch. Optimizers have hooks of their
own for this. Data loaders have none: three methods of their iterators are replaced by ones that call them and tell of
it. What they return, raise and draw from a random state is torch's own.
"""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Callable
from typing import Any, Self

from greenlove_tracker.integrations.automatic import ImportWatcher
from greenlove_tracker.integrations.batch_sizes import samples_by_batch
from greenlove_tracker.integrations.training_loops import LoopDetector
from greenlove_tracker.vocabulary.errors import BudgetExceeded

_LOADERS = "torch.utils.data.dataloader"
_OPTIMIZERS = "torch.optim.optimizer"
_FOLLOWED = "_greenlove_followed"  # in a loader's iterator: its pass, and what tells the samples of a batch


class PyTorchHooks:
    """The hooks of this process. They are set when torch is imported, and do nothing in child processes.

    Args:
        detector: is called with passes, batches and steps.
        on_error: called once with an error of ours, after which the hooks do nothing.

    Attributes:
        has_torch: True once torch is imported.
    """

    def __init__(self, detector: LoopDetector, on_error: Callable[[Exception], None]) -> None:
        self._detector = detector
        self._on_error = on_error
        self._is_on = self.has_torch = False
        self._restore: list[Callable[[], object]] = []
        on_loaders = functools.partial(self._tell, self._hook_loaders)
        on_optimizers = functools.partial(self._tell, self._hook_optimizers)
        self._watcher = ImportWatcher({_LOADERS: on_loaders, _OPTIMIZERS: on_optimizers})

    def __enter__(self) -> Self:
        self._is_on = True
        self._watcher.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_child)  # one that imports torch itself, too
        return self

    def __exit__(self, *error: object) -> None:
        self._is_on = False
        self._watcher.stop()
        while self._restore:
            self._restore.pop()()

    def _hook_optimizers(self, module: types.ModuleType) -> None:
        self.has_torch = True
        detector = self._detector

        def ended(optimizer: object, args: object, kwargs: object) -> None:
            self._tell(detector.step_ended, optimizer)

        before = module.register_optimizer_step_pre_hook(detector.step_begins)  # it cannot fail
        after = module.register_optimizer_step_post_hook(ended)
        self._restore += [before.remove, after.remove]

    def _hook_loaders(self, module: types.ModuleType) -> None:
        iterators = module._BaseDataLoaderIter
        self._replace(iterators, "__init__", self._iterator_begins)
        self._replace(iterators, "_reset", self._iterator_begins)
        self._replace(iterators, "__next__", self._iterator_next)

    def _replace(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        before = owner.__dict__[name]
        setattr(owner, name, make(before))
        self._restore.append(lambda: setattr(owner, name, before))

    def _iterator_begins(self, original: Callable[..., None]) -> Callable[..., None]:
        """Follow a new or restarted iterator: with persistent workers one iterator serves all passes."""

        @functools.wraps(original)
        def begin(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if first_iter:  # it has just been made, and was followed then
                original(iterator, loader, first_iter)
            else:
                self._tell(self._follow, iterator, loader)
                original(iterator, loader)

        return begin

    def _follow(self, iterator: Any, loader: Any) -> None:
        if _FOLLOWED in iterator.__dict__:
            iterator.__dict__[_FOLLOWED][0].iterator = lambda: None  # nobody has that pass any more
        new = self._detector.begin(loader)
        if new is not None:
            new.iterator = weakref.ref(iterator)
            iterator.__dict__[_FOLLOWED] = new, samples_by_batch(loader)

    def _iterator_next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        detector = self._detector

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            followed = iterator.__dict__.get(_FOLLOWED)
            if followed is None or not self._is_on:
                return original(iterator)
            current, n_samples_in = followed
            try:
                batch = original(iterator)
            except StopIteration:
                self._tell(detector.end, current)
                raise
            self._tell(detector.batch, current, n_samples_in(current.batches))
            return batch

        return __next__

    # -- nothing of ours hurts the training ----------------------------------------------------------------------

    def _tell(self, hear: Callable[..., Any], *args: Any) -> Any:
        """Call the detector. Pass on what it raises for the user; stop after an error of ours."""
        if not self._is_on:
            return None
        try:
            return hear(*args)
        except BudgetExceeded:
            raise
        except Exception as error:
            self._is_on = False
            self._on_error(error)
            return None

    def _leave_child(self) -> None:
        self._is_on = False
