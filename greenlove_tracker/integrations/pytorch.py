"""Hears what a plain PyTorch script does, without touching it: passes over its ``DataLoader``s, and optimizer steps.

Nothing is imported: the hooks are put in place while the script itself imports torch. Optimizers have hooks of their
own for this. Data loaders have none: ``DataLoader.__iter__`` and the ``__next__`` of its iterators are replaced by ones
that call them and tell of it, and so is the ``__iter__`` of a subclass where it is a generator. What they return, raise
and draw from a random state is torch's own.

Batches count where they reach the script. A subclass that fetches ahead in its own ``__iter__``, as accelerate's do, is
heard where it hands a batch on, and the loader inside it is not.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

from greenlove_tracker.errors import BudgetExceeded
from greenlove_tracker.integrations.automatic import ImportWatcher
from greenlove_tracker.integrations.training_loops import LoaderPass, LoopDetector

_LOADERS, _OPTIMIZERS = "torch.utils.data.dataloader", "torch.optim.optimizer"
_FOLLOWED = "_greenlove_followed"  # in a loader's iterator: its pass, and what counts its samples

SampleCounter = Callable[[int, Any], int | None]


class PyTorchHooks:
    """The hooks of this process; they are put in place when torch is imported, and do nothing in a child of it.

    Args:
        detector: is told what happens.
        on_error: called once with an error of ours; nothing is heard any more then.

    Attributes:
        has_torch: torch was imported.
    """

    def __init__(self, detector: LoopDetector, on_error: Callable[[Exception], None]) -> None:
        self._detector, self._on_error = detector, on_error
        self._is_on = False
        self._inside = threading.local()  # depth: how many loaders of subclasses are fetching on this thread
        self._collecting: set[int] = set()  # threads in a run of the garbage collector
        self._restore: list[Callable[[], object]] = []
        self._watcher: ImportWatcher | None = None
        self._iterator_class: type | tuple[()] = ()  # torch's, once it is there
        self.has_torch = False

    def __enter__(self) -> Self:
        self._is_on = True
        targets: dict[str, Callable[[types.ModuleType], None]] = {
            _LOADERS: functools.partial(self._tell, self._hook_loaders),
            _OPTIMIZERS: functools.partial(self._tell, self._hook_optimizers),
        }
        self._watcher = ImportWatcher(targets)
        self._watcher.start()
        gc.callbacks.append(self._note_collection)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_child)  # one that imports torch itself, too
        return self

    def __exit__(self, *error: object) -> None:
        self._is_on = False
        if self._watcher is not None:
            self._watcher.stop()
        if self._note_collection in gc.callbacks:
            gc.callbacks.remove(self._note_collection)
        while self._restore:
            self._restore.pop()()

    # -- where the hooks are -------------------------------------------------------------------------------------

    def _hook_optimizers(self, module: types.ModuleType) -> None:
        self.has_torch = True

        detector = self._detector

        def ended(optimizer: object, args: object, kwargs: object) -> None:
            if self._is_on:
                try:
                    detector.step_ended(optimizer)
                except BudgetExceeded:
                    raise
                except Exception as error:  # ours
                    self._fail(error)

        for register, hook in (
            (module.register_optimizer_step_pre_hook, detector.step_begins),  # it cannot fail
            (module.register_optimizer_step_post_hook, ended),
        ):
            self._restore.append(register(hook).remove)

    def _hook_loaders(self, module: types.ModuleType) -> None:
        self.has_torch = True
        loader_class, iterator_class = module.DataLoader, module._BaseDataLoaderIter
        self._iterator_class = iterator_class
        self._replace(loader_class, "__iter__", self._loader_iter(loader_class.__iter__))
        self._replace(iterator_class, "__next__", self._iterator_next(iterator_class.__next__))
        for subclass in _subclasses(loader_class):
            self._hook_subclass(subclass)
        self._hook_new_subclasses(loader_class)

    def _replace(self, owner: type, name: str, new: Any) -> None:
        before = owner.__dict__[name]
        setattr(owner, name, new)
        self._restore.append(lambda: setattr(owner, name, before))

    def _hook_subclass(self, subclass: type) -> None:
        """Replace the ``__iter__`` of a subclass that has one of its own."""
        own = subclass.__dict__.get("__iter__")
        if isinstance(own, types.FunctionType):
            self._replace(subclass, "__iter__", self._subclass_iter(own))

    def _hook_new_subclasses(self, loader_class: Any) -> None:
        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            super(loader_class, cls).__init_subclass__(**kwargs)
            if self._is_on:
                self._hook_subclass(cls)

        loader_class.__init_subclass__ = classmethod(init_subclass)
        self._restore.append(lambda: delattr(loader_class, "__init_subclass__"))

    # -- what stands in place of torch's own ---------------------------------------------------------------------

    def _loader_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if not self._is_on or self._depth:
                return original(loader)
            new: LoaderPass | None = self._tell(self._detector.begin, loader)
            iterator = original(loader)
            if new is not None:
                self._tell(self._follow, loader, iterator, new)
            return iterator

        return __iter__

    def _subclass_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Follow what a subclass hands out: its own generator, or an iterator of torch's that it made itself."""

        @functools.wraps(original)
        def of_generator(loader: Any) -> Any:
            is_heard = self._is_on and not self._depth
            new: LoaderPass | None = self._tell(self._detector.begin, loader) if is_heard else None
            return original(loader) if new is None else self._counted(loader, original(loader), new)

        @functools.wraps(original)
        def of_iterator(loader: Any) -> Any:
            iterator = original(loader)
            if self._is_on and not self._depth and isinstance(iterator, self._iterator_class):
                followed = iterator.__dict__.get(_FOLLOWED)
                if followed is None or followed[0].batches:  # else torch's own __iter__ was called in it
                    new = self._tell(self._detector.begin, loader)
                    if new is not None:
                        self._tell(self._follow, loader, iterator, new)
            return iterator

        return of_generator if inspect.isgeneratorfunction(original) else of_iterator

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
            try:
                detector.batch(current, n_samples_in(current.batches, batch))
            except BudgetExceeded:
                raise
            except Exception as error:  # ours
                self._fail(error)
            return batch

        return __next__

    def _counted(self, loader: Any, inner: Generator[Any, Any, Any], current: LoaderPass) -> Generator[Any, None, Any]:
        """Hand on what a subclass's own generator does, and tell of it."""
        inside, detector = self._inside, self._detector
        n_samples_in = self._tell(sample_counter, loader)
        try:
            while True:
                inside.depth = self._depth + 1
                try:
                    batch = next(inner)
                except StopIteration as stop:
                    self._tell(detector.end, current)
                    return stop.value
                finally:
                    inside.depth -= 1
                self._tell(self._hand, current, n_samples_in, batch)
                yield batch
        finally:
            inner.close()
            self._gone(current)

    def _hand(self, current: LoaderPass, n_samples_in: SampleCounter, batch: Any) -> None:
        self._detector.batch(current, n_samples_in(current.batches, batch))

    @property
    def _depth(self) -> int:
        depth: int = self._inside.__dict__.get("depth", 0)
        return depth

    def _follow(self, loader: Any, iterator: Any, new: LoaderPass) -> None:
        followed = iterator.__dict__.get(_FOLLOWED)
        if followed is None:
            followed = iterator.__dict__[_FOLLOWED] = []
            weakref.finalize(iterator, lambda: self._gone(followed[0])).atexit = False
        else:
            self._gone(followed[0])  # persistent workers keep one iterator for all passes
        followed[:] = [new, sample_counter(loader)]

    def _gone(self, current: LoaderPass) -> None:
        if not current.is_over:
            may_act = threading.get_ident() not in self._collecting
            self._tell(functools.partial(self._detector.gone, may_act=may_act), current)

    def _note_collection(self, phase: str, info: object) -> None:
        (self._collecting.add if phase == "start" else self._collecting.discard)(threading.get_ident())

    # -- nothing of ours hurts the training ----------------------------------------------------------------------

    def _tell(self, hear: Callable[..., Any], *args: Any) -> Any:
        """Call the detector; what it raises for the user's sake goes on, and an error of ours is the last."""
        if not self._is_on:
            return None
        try:
            return hear(*args)
        except BudgetExceeded:
            raise
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        if self._is_on:
            self._is_on = False
            self._on_error(error)

    def _leave_child(self) -> None:
        self._is_on = False


def _subclasses(of: Any) -> Iterator[type]:
    for subclass in of.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def sample_counter(loader: Any) -> SampleCounter:
    """Return what tells the samples of a batch, by its number in the pass and itself; None where they are not known.

    torch's own batch sampler over its own samplers says it; else the first tensor of a batch that torch collated.
    """
    sampler_module = sys.modules.get("torch.utils.data.sampler")
    batch_sampler: Any = getattr(loader, "batch_sampler", None)
    sampler: Any = getattr(loader, "sampler", None)
    is_listed = getattr(loader, "_dataset_kind", None) == 0  # not iterable
    if is_listed and type(batch_sampler) is getattr(sampler_module, "BatchSampler", None):
        size = int(batch_sampler.batch_size)
        if batch_sampler.drop_last:
            return lambda number, batch: size
        if type(sampler).__module__.startswith("torch.utils.data."):
            n_full, rest = divmod(len(sampler), size)
            return lambda number, batch: size if number < n_full else rest
    collate = getattr(loader, "collate_fn", None)
    most = getattr(loader, "batch_size", None)
    if getattr(collate, "__module__", "") == "torch.utils.data._utils.collate":
        return lambda number, batch: _length_of_first_tensor(batch, most)
    return lambda number, batch: None


def _length_of_first_tensor(batch: Any, most: int | None) -> int | None:
    tensor_class = getattr(sys.modules.get("torch"), "Tensor", ())
    while not isinstance(batch, tensor_class):
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, list | tuple) and batch:
            batch = batch[0]
        else:
            return None
    n_samples = int(batch.shape[0]) if batch.dim() else 1
    return n_samples if most is None or n_samples <= most else most
