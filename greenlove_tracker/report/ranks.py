"""The ranks of a run beside one another: the time of each one's epochs, and how far the slowest is behind."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import EpochRecord
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report.wording import sentence

_MOST_ROWS = 16
_NUMBERS = (doc.Column("epochs", 1, is_number=True), doc.Column("mean epoch", 1, is_number=True))
_SPOKEN_OF = 0.02  # behind the median rank: a straggler by less is noise


class RankTimes(NamedTuple):
    """A rank, the number of epochs that it finished, and the mean time of those that all ranks finished."""

    rank: int
    n_epochs: int
    mean_s: float


def rank_times(run: Run) -> tuple[RankTimes, ...]:
    """Return the times of each rank that finished an epoch, by number; none where there are fewer than two."""
    finished: dict[int, dict[int, EpochRecord]] = {}
    for stream in run.rows if len(run.rows) > 1 else ():
        rank = run.joined.get(stream, stream)
        epochs = {epoch.epoch: epoch for epoch in run.epochs_of(stream) if epoch.is_complete}
        if epochs and rank in finished:
            return ()  # a command that trained several times: its streams are no ranks of one training
        if epochs:
            finished[rank] = epochs
    if len(finished) < 2:
        return ()
    common = frozenset.intersection(*(frozenset(epochs) for epochs in finished.values()))
    times = []
    for rank, epochs in sorted(finished.items()):
        compared = [epoch.duration_s for number, epoch in epochs.items() if number in common or not common]
        times.append(RankTimes(rank, len(epochs), math.fsum(compared) / len(compared)))
    return tuple(times)


def behind(times: Sequence[RankTimes]) -> tuple[RankTimes, float]:
    """Return the slowest rank, and by how much more than the median rank it takes, as a share."""
    slowest = max(times, key=lambda of_rank: of_rank.mean_s)
    median_s = statistics.median(of_rank.mean_s for of_rank in times)
    return slowest, slowest.mean_s / median_s - 1.0 if median_s else 0.0


def ranks_sentence(run: Run) -> str:
    """Say which rank is behind, and how far; empty where none is by more than noise, or there is one rank."""
    times = rank_times(run)
    if not times:
        return ""
    slowest, share = behind(times)
    if share < _SPOKEN_OF:
        return ""
    more = f"{fmt.percent(share)} more than the median rank"
    return f"rank {slowest.rank} is behind: {fmt.duration(slowest.mean_s)} an epoch, {more}"


def rank_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the mean epoch of each rank the slowest first; nothing of a run with one rank."""
    times = sorted(rank_times(run), key=lambda of_rank: -of_rank.mean_s)
    if not times:
        return ()
    rows = tuple((f"rank {of.rank}", f"{of.n_epochs:,}", fmt.duration(of.mean_s)) for of in times[:_MOST_ROWS])
    said = ranks_sentence(run) or f"no rank is behind: all are within {fmt.percent(behind(times)[1], 1)} of the median"
    heads = (doc.Column("the slowest first" if len(times) > _MOST_ROWS else "rank", 2), *_NUMBERS)
    return (doc.Heading("Ranks"), doc.Paragraph(sentence(said)), doc.Table(heads, rows))
