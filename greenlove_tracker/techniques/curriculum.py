"""A curriculum: the first epochs have the easiest samples only, and the last ones have them all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Literal

import torch
from torch.utils.data import Sampler

from greenlove_tracker.machine.job import torch_group
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, whole_value
from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.metrics import number_of
from greenlove_tracker.vocabulary.phases import Phase

_PACINGS = ("linear", "exponential", "step")
_TENTHS = 10  # of the share: a forecast sees so many kinds of epochs at most
_NO_DIFFICULTY = (
    "nobody says how difficult the samples are: let the data set have an attribute difficulty, a number for each "
    "sample, harder is larger"
)
_ROUNDING = 1e-9  # of shares and epochs: 0.1 * 30 is a little more than 3


class Curriculum(Sampler[int]):  # type: ignore[misc]
    """A sampler that draws the easiest samples first, and from some epoch on all samples.

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
        stairs: shares that it takes, from ``start`` to all samples, each for as many epochs: 4 from a quarter on are
            0.25, 0.5, 0.75 and 1. They are not rounded. Default: two with ``step``, else as many as there are tenths.
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
        stairs: int | None = None,
        start: float = 0.25,
        full_after: float = 0.8,
        seed: int = 0,
    ) -> None:
        if pacing not in _PACINGS:
            raise UsageError(f"{{argument}} must be one of {', '.join(_PACINGS)}, not {pacing!r}", argument="pacing")
        self.epochs = whole_number("epochs", epochs)
        self.epoch = 0
        self._pacing = pacing
        self._stairs = None if stairs is None else whole_number("stairs", stairs, 2)
        self._start = _positive_share("start", start)
        self._full_after = _positive_share("full_after", full_after)
        self._seed = whole_number("seed", seed, 0)
        self._order = torch.argsort(_numbers(difficulty), stable=True)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is, counted from 0."""
        self.epoch = whole_number("epoch", epoch, 0)

    def share(self, epoch: int) -> float:
        """Return the share of the samples that an epoch has, counted from 0; after the last one all of them."""
        progress = whole_number("epoch", epoch, 0) / (self._full_after * self.epochs)
        if progress >= 1 - _ROUNDING:
            return 1.0
        stairs = self._stairs
        if stairs is None and self._pacing == "step":
            stairs = 2
        if stairs is not None:
            progress = math.floor(progress * (stairs - 1) + _ROUNDING) / (stairs - 1)
        paced = self._start + (1 - self._start) * progress
        if self._pacing == "exponential":
            paced = math.pow(self._start, 1 - progress)
        if self._stairs is not None:
            return paced
        return math.ceil(_TENTHS * paced - _ROUNDING) / _TENTHS

    def n_samples(self, epoch: int) -> int:
        """Return the samples of an epoch, counted from 0."""
        return math.ceil(self.share(epoch) * len(self._order) - _ROUNDING)

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases for a forecast: epochs with the same share of the samples, which is their work."""
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
    share = number_of(value)
    if share is None or not 0 < share <= 1:
        raise UsageError(f"{{argument}} must be a share above 0, 1 at most, not {value!r}", argument=name)
    return share


def _numbers(difficulty: Any) -> torch.Tensor:
    """Return the difficulty as a tensor.

    Raises:
        UsageError: where it is no list of numbers, or holds NaN.
    """
    values = torch.as_tensor(difficulty if hasattr(difficulty, "dtype") else list(difficulty)).detach().cpu()
    if values.ndim != 1 or not len(values) or values.isnan().any():
        raise UsageError("{argument} must be one number a sample, and none of them NaN", argument="difficulty")
    return values


# ---- the technique


def technique(
    name: str,
    value: str | None,
    *,
    pacing: Any = "linear",
    stairs: int | None = None,
    start: float = 0.25,
    full_after: float = 0.8,
) -> Technique:
    """Return ``curriculum=STAIRS``.

    Args:
        name: of the technique.
        value: the number of stairs.
        pacing: as of ``Curriculum``.
        stairs: likewise, where there is no value.
        start: likewise.
        full_after: likewise.

    Raises:
        UsageError: where a value cannot be.
    """
    if value is not None:
        stairs = whole_value(name, value, "a number of stairs", 2)
    options = {"pacing": pacing, "stairs": stairs, "start": start, "full_after": full_after}
    Curriculum([0], 1, **options)  # a bad option is refused now
    return Technique(
        name,
        partial(_with_curriculum, options=options),
        Stage.DATA,
        note="the first epochs have the easiest samples only, so it learns differently",
        is_of_whole=True,
    )


def _with_curriculum(parts: Parts, *, options: Mapping[str, Any]) -> Parts:
    """Draw the samples by a curriculum, which the loop that trains them tells its epochs.

    Raises:
        NotApplicableError: where the length of the training or the difficulty of its samples is not known.
    """
    from greenlove_tracker.exploration.trials import copied_loader
    from greenlove_tracker.techniques.loading import loader_of  # whoever has a loop of their own needs none of it

    loader = loader_of(parts)
    difficulty = getattr(loader.dataset, "difficulty", None)
    if difficulty is None:
        raise NotApplicableError(_NO_DIFFICULTY)
    if not parts.get("total_epochs"):
        raise NotApplicableError("a curriculum counts epochs: let the task give total_epochs")
    seed = torch.initial_seed() % 2**31  # that of all random states
    curriculum = Curriculum(difficulty, parts["total_epochs"], seed=seed, **options)
    by_difficulty = copied_loader(loader, sampler=curriculum)
    return {**parts, "train_dataset": by_difficulty, "curriculum": curriculum, "phases": curriculum.phases()}
