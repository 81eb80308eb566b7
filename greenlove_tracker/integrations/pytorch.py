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
import math
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
# Of a loader whose samples nobody knows, as sample_counter() says it.
_UNCOUNTED: tuple[float, int | None, Callable[[int, Any], int | None]] = (math.inf, None, lambda number, batch: None)


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
        self._n_inside = 0  # iterators of such loaders, of all threads
        self._collecting: set[int] = set()  # threads in a run of the garbage collector
        self._restore: list[Callable[[], object]] = []
        self._watcher: ImportWatcher | None = None
        self._iterator_class: type | tuple[()] = ()  # torch's, once it is there
        self._end: BaseException | None = None  # to be raised where the script sees it
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
        detector.is_within_itself = _steps_within_itself

        def ended(optimizer: object, args: object, kwargs: object) -> None:
            if self._is_on:
                try:
                    detector.step_ended(optimizer)
                except BudgetExceeded:
                    raise
                except Exception as error:  # ours
                    self._fail(error)
                if self._end is not None:
                    self._end_if_asked()

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
        before = loader_class.__dict__.get("__init_subclass__")

        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            if before is None:
                super(loader_class, cls).__init_subclass__(**kwargs)
            else:
                before.__get__(None, cls)(**kwargs)
            if self._is_on:
                self._hook_subclass(cls)

        loader_class.__init_subclass__ = classmethod(init_subclass)
        restored = (lambda: setattr(loader_class, "__init_subclass__", before)) if before is not None else None
        self._restore.append(restored or (lambda: delattr(loader_class, "__init_subclass__")))

    # -- what stands in place of torch's own ---------------------------------------------------------------------

    def _loader_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if not self._is_on or self._depth:
                return original(loader)
            self._end_if_asked()
            new = self._opening(loader) or self._tell(self._detector.begin, loader)
            iterator = original(loader)
            if new is not None:
                self._tell(self._follow, loader, iterator, new)
            return iterator

        return __iter__

    def _subclass_iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if not self._is_on or self._depth or self._opening(loader) is not None:
                return original(loader)
            self._end_if_asked()
            new: LoaderPass | None = self._tell(self._detector.begin, loader)
            self._inside.opening = (loader, new) if new is not None else None
            try:
                iterator = original(loader)
            finally:
                self._inside.opening = None
            if new is not None and isinstance(iterator, types.GeneratorType):
                return self._counted(loader, iterator, new)
            if new is not None and isinstance(iterator, self._iterator_class):
                followed = iterator.__dict__.get(_FOLLOWED)  # already, where torch's own __iter__ was called
                if followed is None or (followed[0] is not new and followed[0].loader() is loader):
                    self._tell(self._follow, loader, iterator, new)
            return iterator

        return __iter__

    def _iterator_next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        detector = self._detector

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            followed = iterator.__dict__.get(_FOLLOWED)
            if followed is None or not self._is_on or (self._n_inside and self._depth):
                return original(iterator)
            current, n_full, size, n_samples_in = followed
            if detector.is_waiting:
                self._tell(detector.requested, current)
            try:
                batch = original(iterator)
            except StopIteration:
                self._tell(detector.end, current)
                raise
            quiet: Any = detector.quiet_pass
            if quiet is current and quiet.batches < n_full:
                quiet.batches += 1
                quiet.samples += size
                return batch
            try:
                detector.batch(current, size if current.batches < n_full else n_samples_in(current.batches, batch))
            except BudgetExceeded:
                raise
            except Exception as error:  # ours
                self._fail(error)
            return batch

        return __next__

    def _counted(self, loader: Any, inner: Generator[Any, Any, Any], current: LoaderPass) -> Generator[Any, None, Any]:
        """Hand on what a subclass's own generator does, and tell of it."""
        inside, detector = self._inside, self._detector
        n_full, size, n_samples_in = self._tell(sample_counter, loader) or _UNCOUNTED
        self._n_inside += 1
        try:
            while True:
                if detector.is_waiting:
                    self._tell(detector.requested, current)
                inside.depth = self._depth + 1
                try:
                    batch = next(inner)
                except StopIteration as stop:
                    if self._is_on:
                        self._tell(detector.end, current)
                    return stop.value
                finally:
                    inside.depth -= 1
                if self._is_on:
                    n_samples = size if current.batches < n_full else self._tell(n_samples_in, current.batches, batch)
                    self._tell(detector.batch, current, n_samples)
                yield batch
        finally:
            self._n_inside -= 1
            inner.close()
            if not current.is_over and self._is_on:
                self._gone(current)

    @property
    def _depth(self) -> int:
        depth: int = self._inside.__dict__.get("depth", 0)
        return depth

    def _opening(self, loader: object) -> LoaderPass | None:
        """Return the pass of a subclass's ``__iter__`` that is under way and has called torch's own."""
        opening = self._inside.__dict__.get("opening")
        return opening[1] if opening is not None and opening[0] is loader else None

    def _follow(self, loader: Any, iterator: Any, new: LoaderPass) -> None:
        followed = iterator.__dict__.get(_FOLLOWED)
        if followed is None:
            followed = iterator.__dict__[_FOLLOWED] = []
            weakref.finalize(iterator, self._iterator_gone, followed).atexit = False
        elif not followed[0].is_over:
            self._detector.gone(followed[0])  # persistent workers keep one iterator for all passes
        followed[:] = [new, *sample_counter(loader)]

    def _iterator_gone(self, followed: list[Any]) -> None:
        current: LoaderPass = followed[0]
        if self._is_on and not current.is_over:
            self._gone(current)

    def _gone(self, current: LoaderPass) -> None:
        if threading.get_ident() in self._collecting:
            self._detector.gone_later(current)
            return
        try:
            self._tell(self._detector.gone, current)
        except (BudgetExceeded, SystemExit) as end:  # nobody would see it here
            self._end = end

    def _end_if_asked(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            raise end

    def _note_collection(self, phase: str, info: object) -> None:
        (self._collecting.add if phase == "start" else self._collecting.discard)(threading.get_ident())

    # -- nothing of ours hurts the training ----------------------------------------------------------------------

    def _tell(self, hear: Callable[..., Any], *args: Any) -> Any:
        """Call the detector; what it raises for the user's sake goes on, and an error of ours is the last."""
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


def _steps_within_itself(optimizer: object) -> bool:
    """Return True in a hook of a step that lies within another step of the same optimizer."""
    frame: types.FrameType | None = sys._getframe(1)
    wrapper: types.CodeType | None = None  # torch's, around each step(); it calls the hooks
    while frame is not None:
        is_of_torch = frame.f_globals.get("__name__") == _OPTIMIZERS and frame.f_locals.get("self") is optimizer
        if is_of_torch and wrapper is None:
            wrapper = frame.f_code
        elif is_of_torch and frame.f_code is wrapper:
            return True
        frame = frame.f_back
    return False


def sample_counter(loader: Any) -> tuple[float, int | None, Callable[[int, Any], int | None]]:
    """Return how many full batches a pass begins with, their samples, and what tells the samples of any other batch.

    That is told by the batch's number in the pass and itself; None where it is not known. torch's own batch sampler
    over its own samplers says it; else the first tensor of a batch that torch collated.
    """
    sampler_module = sys.modules.get("torch.utils.data.sampler")
    batch_sampler: Any = getattr(loader, "batch_sampler", None)
    sampler: Any = getattr(loader, "sampler", None)
    is_listed = getattr(loader, "_dataset_kind", None) == 0  # not iterable
    if is_listed and type(batch_sampler) is getattr(sampler_module, "BatchSampler", None):
        size = int(batch_sampler.batch_size)
        if batch_sampler.drop_last:
            return math.inf, size, lambda number, batch: size
        if type(sampler).__module__.startswith("torch.utils.data."):
            n_full, rest = divmod(len(sampler), size)
            return n_full, size, lambda number, batch: rest
    collate = getattr(loader, "collate_fn", None)
    most = getattr(loader, "batch_size", None)
    if getattr(collate, "__module__", "") == "torch.utils.data._utils.collate":
        return 0, None, lambda number, batch: _length_of_first_tensor(batch, most)
    return _UNCOUNTED


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
