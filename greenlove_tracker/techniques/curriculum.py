"""``curriculum=linear``: the first epochs have the easiest samples only, and the last ones have them all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any, Literal

import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.exploration.trials import copied_loader
from greenlove_tracker.format import plural
from greenlove_tracker.job import torch_group
from greenlove_tracker.phases import Phase
from greenlove_tracker.techniques.loading import loader_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_PACINGS = ("linear", "exponential", "step")
_STAIRS = 10  # of the share: a forecast sees so many kinds of epochs at most
_ROUNDING = 1e-9  # of shares and epochs: 0.1 * 30 is a little more than 3


class Curriculum(Sampler[int]):  # type: ignore[misc]
    """A sampler that draws the easiest samples first, and all of them from some epoch on.

    ::

        curriculum = Curriculum(difficulty, epochs=30)
        loader = DataLoader(train_set, batch_size=64, sampler=curriculum)
        with Tracker(30, phases=curriculum.phases()) as tracker:
            for epoch in range(30):
                curriculum.set_epoch(epoch)
                for batch in loader: ...

    The order within an epoch follows from seed and epoch. Without ``set_epoch`` each pass is the next epoch; one that
    was left before its half, such as a look at the first batch, is begun again. Under ``torch.distributed`` it draws
    this rank's part. Its only state is ``epoch``, of the next pass.

    Args:
        difficulty: a number for each sample of the data set, in its order; harder is larger.
        epochs: of the whole training.
        pacing: how the share grows with the epoch, t = epoch / (full_after * epochs): ``linear`` start + (1 - start) t;
            ``exponential`` start^(1 - t); ``step`` stays at ``start`` until t = 1; rounded up to a tenth. Linear and
            step are pacing functions of Wu, Dyer and Neyshabur, "When Do Curricula Work?" (ICLR 2021,
            arXiv:2012.03107), exponential is of Hacohen and Weinshall, "On The Power of Curriculum Learning" (ICML
            2019, arXiv:1904.03626). To begin with what is easy: Bengio et al., "Curriculum Learning" (ICML 2009).
        start: share of the samples in the first epoch.
        full_after: share of the epochs after which all samples are there.
        seed: of the order.

    Attributes:
        epochs: of the whole training.

    Raises:
        UsageError: on a bad argument.
    """

    def __init__(
        self,
        difficulty: Any,
        epochs: int,
        *,
        pacing: Literal["linear", "exponential", "step"] = "linear",
        start: float = 0.25,
        full_after: float = 0.8,
        seed: int = 0,
    ) -> None:
        if pacing not in _PACINGS:
            raise UsageError(f"{{argument}} must be one of {', '.join(_PACINGS)}, not {pacing!r}", argument="pacing")
        self.epochs = whole_number("epochs", epochs)
        self.epoch = 0
        self._pacing, self._start = pacing, _positive_share("start", start)
        self._full_after, self._seed = _positive_share("full_after", full_after), whole_number("seed", seed, 0)
        self._order = torch.argsort(_numbers(difficulty), stable=True)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is, counted from 0."""
        self.epoch = whole_number("epoch", epoch, 0)

    def share(self, epoch: int) -> float:
        """Return the share of the samples that an epoch has, counted from 0; after the last one all of them."""
        progress = whole_number("epoch", epoch, 0) / (self._full_after * self.epochs)
        if progress >= 1 - _ROUNDING:
            return 1.0
        if self._pacing == "step":
            paced = self._start
        elif self._pacing == "linear":
            paced = self._start + (1 - self._start) * progress
        else:
            paced = self._start ** (1 - progress)
        return math.ceil(_STAIRS * paced - _ROUNDING) / _STAIRS

    def n_samples(self, epoch: int) -> int:
        """Return the samples of an epoch, counted from 0."""
        return math.ceil(self.share(epoch) * len(self._order) - _ROUNDING)

    def n_batches(self, epoch: int, batch_size: int, *, drop_last: bool = False) -> int:
        """Return the batches of an epoch, which a schedule of the learning rate adds up.

        Args:
            epoch: counted from 0.
            batch_size: of all ranks together.
            drop_last: as of the ``DataLoader``.
        """
        whole, rest = divmod(self.n_samples(epoch), batch_size)
        return whole if drop_last or not rest else whole + 1

    def phases(self) -> tuple[Phase, ...]:
        """Return the training as a forecast takes it: epochs of the same share, whose work is the share."""
        runs = groupby(self.share(epoch) for epoch in range(self.epochs))
        return tuple(Phase(epochs=len(list(run)), data_share=share) for share, run in runs)

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        easiest = self._order[: self.n_samples(epoch)]
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + epoch) % 2**63)
        indices = easiest[torch.randperm(len(easiest), generator=generator)].tolist()
        rank, n_ranks = torch_group()
        if n_ranks > 1:  # as DistributedSampler: ranks with the same number of samples, the first ones again at the end
            indices += (indices * n_ranks)[: -len(indices) % n_ranks]
            indices = indices[rank::n_ranks]
        for n, index in enumerate(indices):
            if n == len(indices) // 2:
                self.epoch = epoch + 1
            yield index

    def __len__(self) -> int:
        """Return the samples of an epoch with all of them: whoever asks once, as trainers do, would else end early."""
        return -(-len(self._order) // max(1, torch_group()[1]))


def _positive_share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise UsageError(f"{{argument}} must be a share above 0, 1 at most, not {value!r}", argument=name)
    return float(value)


def _numbers(difficulty: Any) -> torch.Tensor:
    """Return the difficulty as a tensor.

    Raises:
        UsageError: where it is no list of numbers, or holds NaN.
    """
    try:
        values = torch.as_tensor(difficulty if hasattr(difficulty, "dtype") else list(difficulty)).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{{argument}} must be numbers, one a sample: {error}", argument="difficulty") from error
    if values.ndim != 1 or not len(values):
        shape = tuple(values.shape)
        raise UsageError(f"{{argument}} must be one number a sample, and its shape is {shape}", argument="difficulty")
    if n_nan := int(values.isnan().sum()):
        raise UsageError(f"{{argument}} is NaN for {plural(n_nan, 'sample')}", argument="difficulty")
    return values


# ---- the technique


def technique(
    name: str,
    value: str | None,
    *,
    pacing: str | None = None,
    start: float = 0.25,
    full_after: float = 0.8,
    seed: int | None = None,
) -> Technique:
    """Return ``curriculum=PACING``.

    The task gives ``difficulty``, a number a sample or a function of the data set that returns them.

    Args:
        name: of the technique.
        value: the pacing; None: as ``pacing``, else ``linear``.
        pacing: likewise, as an option.
        start: as of ``Curriculum``.
        full_after: as of ``Curriculum``.
        seed: of the order; None: the training's own.

    Raises:
        UsageError: where a value cannot be.
    """
    if value is not None and pacing is not None and value != pacing:
        raise UsageError(f"{name}={value} and pacing: {pacing} contradict each other: give one of them")
    options: dict[str, Any] = {"pacing": value or pacing or "linear", "start": start, "full_after": full_after}
    Curriculum([0.0], 1, seed=seed or 0, **options)  # refuses what cannot be before anything is built
    return Technique(
        name if value is None else f"{name}={value}",
        partial(_with_curriculum, seed=seed, options=options),
        Stage.DATA,
        name,
        note="its first epochs have the easiest samples only",
        is_of_whole=True,
    )


def _with_curriculum(parts: Parts, *, seed: int | None, options: dict[str, Any]) -> Parts:
    """Draw the samples as a curriculum has them.

    Raises:
        NotApplicableError: where the difficulty or the length of the training is not known, or something else of the
            user's chooses the samples.
    """
    if parts.get("difficulty") is None:
        raise NotApplicableError(
            "nobody knows which samples are hard: let the task give difficulty, a number for each sample or a function "
            "of the data set that returns them"
        )
    if parts.get("total_epochs") is None:
        raise NotApplicableError("a curriculum goes by epochs: let the task say how many there are, with total_epochs")
    if parts.get("phases"):
        raise NotApplicableError("the task has phases, and a curriculum makes its own: leave one of the two out")
    loader = loader_of(parts)
    in_use = loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler
    is_all = type(in_use) is SequentialSampler or (
        type(in_use) is RandomSampler and not in_use.replacement and in_use.num_samples == len(loader.dataset)
    )
    if not is_all:
        raise NotApplicableError(
            f"the samples are chosen by a {type(in_use).__name__}, which a curriculum would replace: give the loader "
            "shuffle=True instead"
        )
    difficulty = parts["difficulty"](loader.dataset) if callable(parts["difficulty"]) else parts["difficulty"]
    seed = torch.initial_seed() if seed is None else seed
    try:
        curriculum = Curriculum(difficulty, parts["total_epochs"], seed=seed, **options)
    except UsageError as error:
        raise NotApplicableError(str(error)) from error
    if (n_samples := curriculum.n_samples(curriculum.epochs)) != len(loader.dataset):
        raise NotApplicableError(f"difficulty has {n_samples} numbers for {plural(len(loader.dataset), 'sample')}")
    mean = sum(map(curriculum.share, range(curriculum.epochs))) / curriculum.epochs
    epochs = plural(curriculum.epochs, "epoch")
    said = f"its {epochs} have {mean:.0%} of the samples of a training without a curriculum"
    changes = {"curriculum": curriculum, "phases": curriculum.phases()}
    notes = [*parts.get("technique_notes", ()), lambda: said]
    return {**parts, "train_dataset": copied_loader(loader, sampler=curriculum), **changes, "technique_notes": notes}
