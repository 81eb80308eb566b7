"""The ranks of a run beside one another: the time of each one's epochs, and how far the slowest is behind."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import EpochRecord
from greenlove_tracker.rendering import document as doc

_MOST_BARS = 16  # of ranks in a chart
_SPOKEN_OF = 0.02  # behind the median rank: a straggler by less is noise


@dataclass(frozen=True, slots=True)
class RankTimes:
    """The epochs of one rank.

    Attributes:
        rank: its number.
        n_epochs: that it finished, all of them.
        n_compared: of these, those that ``mean_s`` is of.
        mean_s: of the epochs that all ranks finished; of all its own where there is none.
    """

    rank: int
    n_epochs: int
    n_compared: int
    mean_s: float


def rank_times(run: Run) -> tuple[RankTimes, ...]:
    """Return the times of each rank that finished an epoch, by number; none where there are fewer than two."""
    finished: dict[int, dict[int, EpochRecord]] = {}
    for stream in run.rows:
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
        times.append(RankTimes(rank, len(epochs), len(compared), math.fsum(compared) / len(compared)))
    return tuple(times)


def behind(times: Sequence[RankTimes]) -> tuple[RankTimes, float]:
    """Return the slowest rank, and by how much more than the median rank it takes, as a share."""
    slowest = max(times, key=lambda of_rank: of_rank.mean_s)
    median_s = statistics.median(of_rank.mean_s for of_rank in times)
    return slowest, slowest.mean_s / median_s - 1.0 if median_s else 0.0


def ranks_sentence(run: Run) -> str:
    """Say which rank is behind, and how far; empty where none is by more than noise, or there is one rank."""
    times = rank_times(run) if len(run.rows) > 1 else ()
    if not times:
        return ""
    slowest, share = behind(times)
    if share < _SPOKEN_OF:
        return ""
    return f"rank {slowest.rank} is behind: {fmt.duration(slowest.mean_s)} an epoch, {_more(share)} the median rank"


def _more(share: float) -> str:
    return f"{fmt.percent(share)} more than"


def rank_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the mean epoch of each rank as bars, the slowest named; nothing of a run with one rank."""
    times = rank_times(run) if len(run.rows) > 1 else ()
    if not times:
        return ()
    slowest, share = behind(times)
    is_common = len({of_rank.n_compared for of_rank in times}) == 1
    compared = f"over the {fmt.plural(slowest.n_compared, 'epoch')} that all of them finished"
    what = compared if is_common else "over its own epochs: none was finished by all of them"
    shown = sorted(times, key=lambda of_rank: -of_rank.mean_s)[:_MOST_BARS] if len(times) > _MOST_BARS else times
    text = (
        f"The slowest of {len(times):,} ranks is rank {slowest.rank}: its epochs take {fmt.duration(slowest.mean_s)} "
        f"on the mean, {_more(share)} those of the median rank; the mean is {what}."
    )
    if share < _SPOKEN_OF:
        text = (
            f"No rank is behind: the mean epochs of {len(times):,} ranks, {what}, are within {fmt.percent(share, 1)} of"
            " the median rank's."
        )
    note = (
        "Ranks that exchange gradients at each step wait for one another, and then all are as slow as the slowest: a "
        "rank that is behind here does work beside that."
    )
    hidden = f" The {_MOST_BARS} slowest of {len(times):,} are drawn." if len(shown) < len(times) else ""
    return (
        doc.Heading("Ranks"),
        doc.Paragraph(text + hidden),
        doc.BarChart(tuple(_bar(of_rank, slowest.n_epochs) for of_rank in shown), "Mean epoch of each rank"),
        doc.Paragraph(note, is_note=True),
    )


def _bar(times: RankTimes, n_usual: int) -> doc.Bar:
    done = "" if times.n_epochs == n_usual else f" · {fmt.plural(times.n_epochs, 'epoch')} finished"
    return doc.Bar(f"rank {times.rank}", times.mean_s, f"{fmt.duration(times.mean_s)}{done}")
