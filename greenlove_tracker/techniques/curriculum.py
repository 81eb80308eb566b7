"""``curriculum=linear``: the first epochs have the easiest samples only, and the last ones have them all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Literal, cast

import numpy
import torch
from torch import distributed, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.exploration.random_state import random_states
from greenlove_tracker.exploration.trials import DEFAULT_BATCH_SIZE, LoaderSource, copied_loader
from greenlove_tracker.format import plural
from greenlove_tracker.phases import Phase
from greenlove_tracker.techniques.arm import batches_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_PACINGS = ("linear", "exponential", "step")
_ROUNDING = 1e-9  # of shares and epochs: 0.1 * 30 is a little more than 3


class Curriculum:
    """Trains on the easiest samples first, and on all of them from some epoch on.

    ::

        curriculum = Curriculum(difficulty, epochs=30)
        loader = DataLoader(train_set, batch_size=64, sampler=curriculum.sampler)
        with Tracker(30, phases=curriculum.phases()) as tracker:
            for epoch in range(30):
                curriculum.set_epoch(epoch)
                for batch in loader: ...

    Samples are put in bins of about the same size by the quantiles of their difficulty, equal ones in the same bin. An
    epoch has the fewest bins, from the easiest, that hold its share. The order within follows from seed and epoch.

    Args:
        difficulty: a number for each sample of the data set, in its order; harder is larger.
        epochs: of the whole training.
        pacing: how the share grows with the epoch, t = epoch / (full_after * epochs): ``linear`` start + (1 - start) t;
            ``exponential`` start^(1 - t); ``step`` stays at ``start`` until t = 1. Linear and step are pacing functions
            of Wu, Dyer and Neyshabur, "When Do Curricula Work?" (ICLR 2021, arXiv:2012.03107); step and exponential
            are of Hacohen and Weinshall, "On The Power of Curriculum Learning" (ICML 2019, arXiv:1904.03626), the
            latter without its stairs, which the bins make. To begin with what is easy: Bengio et al., "Curriculum
            Learning" (ICML 2009).
        start: share of the samples in the first epoch.
        full_after: share of the epochs after which all samples are there.
        bins: at most.
        seed: of the order.
        groups: a label for each sample, such as its class: each bin has as large a part of every group. Without, the
            easiest samples may all be of a few classes.

    Attributes:
        epochs: of the whole training.
        n_bins: that the difficulty gave: fewer where many samples are equal.

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
        bins: int = 10,
        seed: int = 0,
        groups: Sequence[Any] | None = None,
    ) -> None:
        if pacing not in _PACINGS:
            raise UsageError(f"{{argument}} must be one of {', '.join(_PACINGS)}, not {pacing!r}", argument="pacing")
        self.epochs = whole_number("epochs", epochs)
        self._pacing, self._start = pacing, _positive_share("start", start)
        self._full_after, self._seed = _positive_share("full_after", full_after), whole_number("seed", seed, 0)
        bin_of = _bins_of(_numbers(difficulty), whole_number("bins", bins), groups)
        self._order = numpy.argsort(bin_of, kind="stable")
        self._ends = numpy.cumsum(numpy.bincount(bin_of))  # samples of the first bin, of the first two, …
        self.n_bins = len(self._ends)
        if self.n_bins == 1 and bins > 1 and len(bin_of) > 1:
            warnings.warn("all samples are equally difficult, so every epoch has all of them", stacklevel=2)
        self._sampler = CurriculumSampler(self)

    def __len__(self) -> int:
        """Return the samples of the data set."""
        return len(self._order)

    def n_samples(self, epoch: int) -> int:
        """Return the samples of an epoch, counted from 0; after the last one all of them."""
        wanted = self._paced(whole_number("epoch", epoch, 0)) * len(self)
        return int(self._ends[numpy.searchsorted(self._ends, wanted * (1 - _ROUNDING))])

    def share(self, epoch: int) -> float:
        """Return the share of the samples that an epoch has, counted from 0: that of whole bins."""
        return self.n_samples(epoch) / len(self)

    def n_batches(self, epoch: int, batch_size: int, *, drop_last: bool = False) -> int:
        """Return the batches of an epoch, which a schedule of the learning rate adds up.

        Args:
            epoch: counted from 0.
            batch_size: of all ranks together.
            drop_last: as of the ``DataLoader``.
        """
        whole, rest = divmod(self.n_samples(epoch), batch_size)
        return whole if drop_last or not rest else whole + 1

    def indices(self, epoch: int) -> list[int]:
        """Return the samples of an epoch, in the order in which it takes them: the same at each call."""
        easiest = self._order[: self.n_samples(epoch)]
        return cast("list[int]", numpy.random.default_rng([self._seed, epoch]).permutation(easiest).tolist())

    @property
    def sampler(self) -> CurriculumSampler:
        """The sampler for a ``DataLoader``; one for the whole training."""
        return self._sampler

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch begins, counted from 0."""
        self._sampler.set_epoch(epoch)

    def phases(self) -> tuple[Phase, ...]:
        """Return the training as a forecast takes it: epochs of the same share, whose work is the share."""
        runs = groupby(self.share(epoch) for epoch in range(self.epochs))
        return tuple(Phase(epochs=len(list(run)), data_share=share) for share, run in runs)

    def _paced(self, epoch: int) -> float:
        """Return the share that an epoch is to have at least."""
        progress = epoch / (self._full_after * self.epochs)
        if progress >= 1 - _ROUNDING:
            return 1.0
        if self._pacing == "step":
            return self._start
        if self._pacing == "linear":
            return self._start + (1 - self._start) * progress
        return float(self._start ** (1 - progress))


class CurriculumSampler(Sampler[int]):  # type: ignore[misc]
    """Draws the samples of a curriculum's epoch; under ``torch.distributed`` this rank's part of them.

    Without ``set_epoch`` each pass is the next epoch; one that was left before its half, such as a look at the first
    batch, is begun again. Its only state is ``epoch``, of the next pass.

    Its length is that of an epoch with all samples: whoever asks once, as trainers do, would else end all epochs as
    early as the first.

    Args:
        curriculum: whose samples it draws.
    """

    def __init__(self, curriculum: Curriculum) -> None:
        self.epoch = 0
        self._curriculum = curriculum

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is, counted from 0."""
        self.epoch = whole_number("epoch", epoch, 0)

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        indices = self._curriculum.indices(epoch)
        rank, n_ranks = _rank_and_ranks()
        if n_ranks > 1:  # as DistributedSampler: ranks with the same number of samples, the first ones again at the end
            indices += (indices * n_ranks)[: -len(indices) % n_ranks]
            indices = indices[rank::n_ranks]
        for n, index in enumerate(indices):
            if n == len(indices) // 2:
                self.epoch = epoch + 1
            yield index

    def __len__(self) -> int:
        """Return the samples of an epoch with all of them."""
        return -(-len(self._curriculum) // _rank_and_ranks()[1])


def _rank_and_ranks() -> tuple[int, int]:
    """Return the rank of this process, and how many there are.

    Raises:
        UsageError: in a process of torchrun's that has not joined its group: each rank would train on all samples.
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("each rank would train on all samples: call init_process_group() before the first epoch")
    return 0, 1


def _positive_share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise UsageError(f"{{argument}} must be a share above 0, 1 at most, not {value!r}", argument=name)
    return float(value)


def _numbers(difficulty: Any) -> numpy.ndarray[Any, Any]:
    """Return the difficulty as an array.

    Raises:
        UsageError: where it is no list of numbers, or holds NaN.
    """
    if isinstance(difficulty, torch.Tensor):
        difficulty = difficulty.detach().cpu().double().numpy()
    try:
        values = numpy.asarray(difficulty, dtype=numpy.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{{argument}} must be numbers, one a sample: {error}", argument="difficulty") from error
    if values.ndim != 1 or not len(values):
        raise UsageError(
            f"{{argument}} must be one number a sample, and its shape is {values.shape}", argument="difficulty"
        )
    if n_nan := int(numpy.isnan(values).sum()):
        first = int(numpy.flatnonzero(numpy.isnan(values))[0])
        raise UsageError(
            f"{{argument}} is NaN for {plural(n_nan, 'sample')}, the first with index {first}: nobody knows where "
            "they belong",
            argument="difficulty",
        )
    return values


def _bins_of(values: numpy.ndarray[Any, Any], bins: int, groups: Any) -> numpy.ndarray[Any, Any]:
    """Return the bin of each sample, from the easiest, without empty ones: by the share of its group that is easier.

    Raises:
        UsageError: where there is another number of groups than of samples.
    """
    labels = numpy.zeros(len(values), dtype=numpy.int64) if groups is None else _codes(groups, len(values))
    found = numpy.zeros(len(values), dtype=numpy.int64)
    for label in numpy.unique(labels):
        of_group = labels == label
        own = values[of_group]
        n_easier = numpy.searchsorted(numpy.sort(own), own, side="left")
        found[of_group] = bins * n_easier // len(own)
    return cast("numpy.ndarray[Any, Any]", numpy.unique(found, return_inverse=True)[1])


def _codes(groups: Any, n_samples: int) -> numpy.ndarray[Any, Any]:
    try:
        labels = groups.tolist() if hasattr(groups, "tolist") else list(groups)
        codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    except TypeError as error:
        raise UsageError(f"{{argument}} must be a label for each sample: {error}", argument="groups") from error
    if len(labels) != n_samples:
        raise UsageError(
            f"{{argument}} has {plural(len(labels), 'label')} for {plural(n_samples, 'sample')}", argument="groups"
        )
    return numpy.array([codes[label] for label in labels])


def difficulty_by_loss(
    model: nn.Module,
    dataset: Any,
    *,
    loss: Callable[[Any, Any], torch.Tensor] | None = None,
    batch_size: int = 256,
    collate_fn: Callable[[Any], Any] | None = None,
) -> torch.Tensor:
    """Return the loss of each sample, which a curriculum takes for its difficulty.

    The model is one that has learnt something: trained briefly, or on other data. It is called in evaluation mode, and
    left as it was; so are the random states.

    Args:
        model: to score with, of (inputs) alone.
        dataset: of (input, target), with a length and an index.
        loss: of (outputs, targets), one number a sample; default: the cross-entropy.
        batch_size: of the scoring.
        collate_fn: as of the ``DataLoader``.

    Raises:
        UsageError: where the loss is not one number a sample.
    """
    loss = loss or nn.CrossEntropyLoss(reduction="none")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in model.modules()]
    states = random_states()
    for state in states:
        state.copy()
    losses = []
    try:
        model.eval()
        for inputs, targets in DataLoader(dataset, batch_size, collate_fn=collate_fn):
            with torch.no_grad():
                found = loss(model(inputs.to(device)), targets.to(device))
            if found.ndim == 0 or len(found) != len(targets):
                raise UsageError(
                    f"{{argument}} must give a number for each of {plural(len(targets), 'sample')}, and gave a tensor "
                    f'of {tuple(found.shape)}: make it with reduction="none"',
                    argument="loss",
                )
            losses.append(found.float().flatten(1).mean(1) if found.ndim > 1 else found.float())
    finally:
        for module, was_training in modes:
            module.training = was_training
        for state in states:
            state.restore()
    return torch.cat(losses).cpu()


# ---- the technique


def technique(
    name: str,
    value: str | None,
    *,
    pacing: str | None = None,
    start: float = 0.25,
    full_after: float = 0.8,
    bins: int = 10,
    seed: int | None = None,
) -> Technique:
    """Return ``curriculum=PACING``.

    The task gives ``difficulty``, a number a sample or a function of the data set that returns them, and may give
    ``difficulty_groups``, a label a sample.

    Args:
        name: of the technique.
        value: the pacing; None: as ``pacing``, else ``linear``.
        pacing: likewise, as an option.
        start: as of ``Curriculum``.
        full_after: as of ``Curriculum``.
        bins: as of ``Curriculum``.
        seed: of the order; None: the training's own.

    Raises:
        UsageError: where a value cannot be.
    """
    if value is not None and pacing is not None and value != pacing:
        raise UsageError(f"{name}={value} and pacing: {pacing} contradict each other: give one of them")
    chosen: Any = value or pacing or "linear"
    if chosen not in _PACINGS:
        raise UsageError(f"{name}={chosen}: the pacing is one of {', '.join(_PACINGS)}, such as {name}=linear")
    options = {"pacing": chosen, "start": start, "full_after": full_after, "bins": bins}
    Curriculum([0.0, 1.0], 1, seed=seed or 0, **options)  # refuses what cannot be before anything is built
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
    loader = _loader_of(parts)
    difficulty = parts["difficulty"](loader.dataset) if callable(parts["difficulty"]) else parts["difficulty"]
    groups = parts.get("difficulty_groups")
    seed = torch.initial_seed() if seed is None else seed
    try:
        curriculum = Curriculum(difficulty, parts["total_epochs"], seed=seed, groups=groups, **options)
    except UsageError as error:
        raise NotApplicableError(str(error)) from error
    if len(curriculum) != len(loader.dataset):
        raise NotApplicableError(
            f"difficulty has {plural(len(curriculum), 'number')} for {plural(len(loader.dataset), 'sample')}"
        )
    if not curriculum.n_batches(0, int(loader.batch_size or 1), drop_last=loader.drop_last):
        raise NotApplicableError(
            f"its first epoch has {plural(curriculum.n_samples(0), 'sample')}, too few for a batch of "
            f"{loader.batch_size}, and drop_last drops a smaller one: give a larger start"
        )
    copied = copied_loader(loader, sampler=curriculum.sampler)
    notes = [*parts.get("technique_notes", ()), partial(_note, curriculum)]
    changes = {"curriculum": curriculum, "phases": curriculum.phases(), "technique_notes": notes}
    return {**parts, "train_dataset": copied, **changes}


def _note(curriculum: Curriculum) -> str:
    """Return what the training saves in samples, as a sentence."""
    mean = sum(map(curriculum.share, range(curriculum.epochs))) / curriculum.epochs
    return f"its {plural(curriculum.epochs, 'epoch')} have {mean:.0%} of the samples of a training without a curriculum"


def _loader_of(parts: Parts) -> DataLoader[Any]:
    """Return the training's loader, whose sampler may be replaced; a data set becomes one.

    Raises:
        NotApplicableError: where the samples have no index, or something of the user's chooses them.
    """
    data = parts["train_dataset"]
    if not isinstance(batches_of(parts), LoaderSource):
        kind = type(data.dataset if type(data) is DataLoader else data).__name__
        raise NotApplicableError(f"the data are a stream ({kind}), whose samples cannot be chosen: give a data set")
    if not isinstance(data, DataLoader):
        return DataLoader(data, batch_size=parts.get("batch_size") or DEFAULT_BATCH_SIZE, shuffle=True)
    in_use = data.sampler if type(data.batch_sampler) is BatchSampler and data.batch_size else data.batch_sampler
    is_all = type(in_use) is SequentialSampler or (
        type(in_use) is RandomSampler and not in_use.replacement and in_use.num_samples == len(data.dataset)
    )
    if not is_all:
        raise NotApplicableError(
            f"the samples are chosen by a {type(in_use).__name__}, which a curriculum would replace: give the loader "
            "shuffle=True instead"
        )
    return data
