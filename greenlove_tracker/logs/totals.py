"""The totals of a run from its rows, for the tracker that writes them and the parser that checks them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from types import MappingProxyType

from greenlove_tracker.vocabulary.pricing import MeanRates, Rates, RunFactors
from greenlove_tracker.vocabulary.records import (
    COMPONENTS,
    MEASURED_METHODS,
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    EpochRecord,
    Flag,
    Row,
    RowKind,
    RunSummary,
    joined_methods,
    part_of_energy,
    sum_energies,
    sum_known,
)
from greenlove_tracker.vocabulary.units import h_from_s, w_from_kwh_s

Rows = Sequence[Row]
LEAST_METERED_S = 0.1  # no counter moves sooner: nothing read of less is not known to be nothing


@dataclass(frozen=True, slots=True)
class Ending:
    """How and when a run ended."""

    status: str
    exit_code: int | None
    ended_at: str


@dataclass(frozen=True, slots=True)
class _NodeEnergy:
    duration_s: float
    metered: Energy
    measured_kwh: float | None
    estimate_kwh: float | None
    metered_s: float

    @property
    def total_kwh(self) -> float | None:
        """The metered and the estimated energy, before PUE."""
        metered_kwh = self.metered.total_kwh
        if metered_kwh is None:
            return None
        return metered_kwh + (self.estimate_kwh or 0.0)


@cache
def is_measured(methods: str | None) -> bool:
    """Return True if hardware measured an energy of these methods, joined by ``+``."""
    return set((methods or "").split("+")) <= MEASURED_METHODS


_MOST_TERMS = 512  # that are held of a sum


class RowTotals:
    """The totals of the rows of one stream, added one by one.

    Its sums are those of ``math.fsum`` over all rows, in constant memory.

    Args:
        mean: the mean of their rates, to which the rows are added.

    Attributes:
        n_rows: the rows added.
        epochs_done: the epochs that ended.
        counts: the counts of all rows.
        flags: the flags of any row.
        is_metered: True if any row is of a stream with a meter.
        sources: the cells that name the sources of its carbon intensities, in order.
    """

    def __init__(self, mean: MeanRates) -> None:
        self.mean = mean
        self.n_rows = 0
        self.epochs_done = 0
        self.counts = Counts()
        self.is_metered = False
        self.flags = set[str]()
        self.sources = dict[str, None]()
        self.terms: defaultdict[str, list[float]] = defaultdict(list)
        self._methods: dict[str, set[str | None]] = {component: set() for component in COMPONENTS}

    def add(self, row: Row) -> None:
        """Add a row, with its gap."""
        terms = self.terms
        terms["epochs_s"].append(row.duration_s)
        for duration_s, energy in ((row.gap_before_s, row.gap_before), (row.duration_s, row.energy)):
            terms["total_s"].append(duration_s)
            if energy.is_known:
                terms["known_s"].append(duration_s)
            for component in COMPONENTS:
                kwh = energy.component_kwh(component)
                method = energy.component_method(component)
                self._methods[component].add(method)
                if kwh is not None:
                    terms[component].append(kwh)
                    terms[f"{component}_s"].append(duration_s)
                    if is_measured(method):
                        terms["measured"].append(kwh)
        self.mean.add(row)
        self.counts += row.counts
        self.flags |= row.flags
        self.is_metered = self.is_metered or Flag.NO_METER not in row.flags
        if row.kind is RowKind.EPOCH and Flag.UNFINISHED not in row.flags:
            self.epochs_done += 1
        if row.carbon_intensity_source:
            self.sources.setdefault(row.carbon_intensity_source)
        self.n_rows += 1
        if self.n_rows % _MOST_TERMS == 0:
            self.terms = defaultdict(list, {name: _shortened(found) for name, found in terms.items()})

    @classmethod
    def of(cls, rows: Iterable[Row], mean: MeanRates) -> RowTotals:
        """Return the totals of rows."""
        found = cls(mean)
        for row in rows:
            found.add(row)
        return found

    def sum(self, name: str) -> float:
        """Return one of its sums."""
        return math.fsum(self.terms[name])

    @property
    def node(self) -> _NodeEnergy:
        """The energy of one rank with a meter; unmetered time is estimated at the mean metered power."""
        total_s = self.sum("total_s")
        kwh = {component: self.sum(component) if self.terms[component] else None for component in COMPONENTS}
        methods = (joined_methods(self._methods[component]) for component in COMPONENTS)
        metered = Energy(kwh["cpu"], kwh["gpu"], kwh["ram"], *methods)
        if metered.total_kwh == 0 and self.sum("known_s") < LEAST_METERED_S:
            metered = UNKNOWN_ENERGY
        covered_s = {c: self.sum(f"{c}_s") for c in COMPONENTS if metered.component_kwh(c) is not None}
        estimates = [
            self.sum(component) / known_s * max(0.0, total_s - known_s)
            for component, known_s in covered_s.items()
            if known_s > 0
        ]
        return _NodeEnergy(
            duration_s=total_s,
            metered=metered,
            measured_kwh=self.sum("measured") if covered_s else None,
            estimate_kwh=sum_known(estimates),
            metered_s=min(covered_s.values(), default=0.0),
        )


def _shortened(terms: list[float]) -> list[float]:
    """Return a few numbers with the same exact sum as many."""
    found = [math.fsum(terms)]
    while rest := math.fsum([*terms, *(-number for number in found)]):
        found.append(rest)
    return found


def _sum_nodes(nodes: Sequence[_NodeEnergy]) -> _NodeEnergy:
    """Return all nodes together; a node without a meter is estimated at the mean power of the others."""
    known = [node for node in nodes if node.metered.is_known]
    estimates = [node.estimate_kwh for node in known]
    known_s = math.fsum(node.duration_s for node in known)
    silent_s = math.fsum(node.duration_s for node in nodes if not node.metered.is_known)
    if known_s > 0 and silent_s > 0:
        estimates.append(math.fsum(node.total_kwh or 0.0 for node in known) / known_s * silent_s)
    return _NodeEnergy(
        duration_s=max((node.duration_s for node in nodes), default=0.0),
        metered=sum_energies(node.metered for node in known),
        measured_kwh=sum_known(node.measured_kwh for node in known),
        estimate_kwh=sum_known(estimates),
        metered_s=min((node.metered_s for node in nodes), default=0.0),
    )


def total_duration_s(rows: Rows) -> float:
    """Return the wall time of one rank: its rows and the gaps between them."""
    return math.fsum(row.gap_before_s + row.duration_s for row in rows)


def mean_w(rows: Iterable[Row], component: str) -> float | None:
    """Return the mean power of a component over the rows that metered it; None if none did."""
    found = RowTotals.of(rows, MeanRates(Rates()))
    return w_from_kwh_s(found.sum(component), found.sum(f"{component}_s"))


def training_rows(rows: Rows) -> Rows:
    """Return the rows of the training itself, which a forecast can be compared with.

    An evaluation may follow the last epoch as any other: at most the longest gap between two epochs counts.

    Args:
        rows: the rows of one rank.
    """
    last = max((at for at, row in enumerate(rows) if row.kind is RowKind.EPOCH), default=None)
    if last is None:
        return rows
    kept = list(rows[: last + 1])
    left_s = max([epoch.gap_before_s for epoch in merge_epochs(kept, 0)[1:]], default=0.0)  # the first is loading
    for row in rows[last + 1 :]:
        if row.epoch is None and left_s > 0 and row.gap_before_s > 0:
            share = min(1.0, left_s / row.gap_before_s)
            gap = part_of_energy(row.gap_before, share)
            kept.append(replace(row, gap_before_s=row.gap_before_s * share, gap_before=gap))
            left_s -= row.gap_before_s
    return kept


TIMESTAMP_S = 0.002  # rows note their beginning to the millisecond


def utc(text: str) -> datetime:
    """Return a time or date in ISO 8601; in UTC unless it says otherwise.

    Raises:
        ValueError: if it is neither.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo:
        return moment
    return moment.replace(tzinfo=UTC)


def utc_s(text: str) -> float | None:
    """Return a time of the log in seconds since the Unix epoch; None if it is none."""
    try:
        return utc(text).timestamp()
    except ValueError:
        return None


def merge_epochs(rows: Rows, rank: int) -> list[EpochRecord]:
    """Return one record per epoch, from its segments; an epoch without a closing row is unfinished."""
    parts: dict[int, list[Row]] = {}
    since_last: dict[int, list[Row]] = {}  # the first row of each epoch, and the gap rows before it
    pending: list[Row] = []
    for row in rows:
        pending.append(row)
        if row.epoch is not None:
            parts.setdefault(row.epoch, []).append(row)
            since_last.setdefault(row.epoch, pending)
            pending = []
    return [_merge_epoch(number, rank, group, since_last[number]) for number, group in parts.items()]


def _energy_of_all(stretches: Sequence[tuple[float, Energy]]) -> Energy:
    """Return the energy of several intervals; unknown if different components were metered in them."""
    known = {(e.cpu_kwh is None, e.gpu_kwh is None, e.ram_kwh is None) for seconds, e in stretches if seconds > 0}
    if len(known) <= 1:
        return sum_energies(energy for _, energy in stretches)
    return UNKNOWN_ENERGY


def _merge_epoch(number: int, rank: int, group: Rows, since_last: Rows) -> EpochRecord:
    counts = sum((row.counts for row in group), Counts())
    flags = frozenset[str]().union(*(row.flags for row in group))
    if group[-1].kind is not RowKind.EPOCH:
        flags |= {Flag.UNFINISHED.value}
    energy = _energy_of_all([(row.duration_s, row.energy) for row in group])
    emissions = [row.emissions_gco2e for row in group]
    return EpochRecord(
        epoch=number,
        rank=rank,
        started_at=group[0].started_at,
        gap_before_s=math.fsum(row.gap_before_s for row in since_last),
        gap_before=_energy_of_all([(row.gap_before_s, row.gap_before) for row in since_last]),
        duration_s=math.fsum(row.duration_s for row in group),
        **asdict(counts),
        energy=energy,
        emissions_gco2e=sum_known(emissions) if energy.is_known and None not in emissions else None,
        flags=flags,
        n_segments=len(group),
    )


def summarise(
    terms: RunFactors,
    rows_by_rank: Mapping[int, Iterable[Row] | RowTotals],
    ending: Ending,
    *,
    gpu_count: int,
    command_rows: Iterable[Row] | None = None,
    joined: Mapping[int, int] = MappingProxyType({}),
) -> RunSummary:
    """Return the totals of a run.

    Time is that of the slowest rank. Energy is summed over nodes, never over ranks of one node. Epochs and steps are
    rank 0's; samples and tokens are those of all ranks.

    Args:
        terms: the factors and names of the run.
        rows_by_rank: the rows of each rank, read once, or their totals; ranks flagged ``no_meter`` share the meter of
            their node's first.
        ending: how the run ended.
        gpu_count: the GPUs of all nodes together.
        command_rows: the rows of a whole command that was measured from outside: they hold the totals of its node.
        joined: streams of processes that another process on their node measures, with their rank: they count epochs,
            and no energy.
    """
    mean = MeanRates(terms.rates)
    command = RowTotals.of(command_rows or (), mean)
    streams: dict[int, RowTotals] = {}
    for stream, rows in rows_by_rank.items():
        is_counted = stream not in joined or (joined.keys() >= rows_by_rank.keys() and not command.n_rows)
        of_stream = deepcopy(mean) if is_counted else MeanRates(terms.rates)
        if isinstance(rows, RowTotals):
            streams[stream] = rows
        else:
            streams[stream] = RowTotals.of(rows, of_stream)
        if is_counted and streams[stream].is_metered:
            mean = streams[stream].mean
    own = {stream: found for stream, found in streams.items() if stream not in joined}
    lead = [streams[stream] for stream, rank in joined.items() if rank == 0 and stream in streams]
    timed = list(own.values())
    if not (command.n_rows and lead):
        lead = [*timed[:1], *lead]
    if command.n_rows:
        timed.insert(0, command)
    timed = timed or list(streams.values())
    carriers = [found for found in timed if found.is_metered]
    all_nodes = _sum_nodes([found.node for found in carriers])
    duration_s = max((found.sum("total_s") for found in timed), default=0.0)
    total_kwh = all_nodes.total_kwh
    assumed_kwh = None
    energy_kwh = None
    if total_kwh is not None:
        assumed_kwh = total_kwh * (terms.node_factor(all_nodes.metered) - 1.0) or None
        energy_kwh = (total_kwh + (assumed_kwh or 0.0)) * terms.pue
    rates = mean.counted_with(terms.rates)
    cost_usd, cost_basis = rates.cost(duration_s or None, energy_kwh, gpu_count)  # no time is known of no rows
    carbon_intensity = rates.carbon_intensity
    if carbon_intensity is None:
        carbon_intensity = terms.carbon_intensity.value
    every = [*streams.values(), command]
    return RunSummary(
        run_id=terms.run_id,
        project=terms.project,
        started_at=terms.started_at,
        epochs_planned=terms.epochs_planned,
        **asdict(ending),
        epochs_done=sum(found.epochs_done for found in lead),
        counts=_counts(lead, every),
        duration_s=duration_s,
        epochs_duration_s=math.fsum(chain.from_iterable(found.terms["epochs_s"] for found in lead)),
        metered_s=all_nodes.metered_s,
        energy=all_nodes.metered,
        measured_kwh=all_nodes.measured_kwh,
        unmetered_estimate_kwh=all_nodes.estimate_kwh,
        pue=terms.pue,
        energy_kwh=energy_kwh,
        carbon_intensity_gco2e_per_kwh=carbon_intensity,
        emissions_kgco2e=rates.emissions(energy_kwh),
        cost_usd=cost_usd,
        cost_basis=cost_basis,
        gpu_count=gpu_count,
        gpu_hours=gpu_count * h_from_s(duration_s),
        n_ranks=max(1, len(own), len(set(joined.values()))),
        n_nodes=max(1, len(carriers)),
        flags=frozenset[str]().union(*(found.flags for found in every)) - {Flag.NO_METER.value},
        node_assumed_kwh=assumed_kwh,
    )


def _counts(lead: Iterable[RowTotals], every: Iterable[RowTotals]) -> Counts:
    """Sum counts: all ranks take steps together, but batches, samples and tokens are each rank's own."""
    everyone = sum((found.counts for found in every), Counts())
    return replace(everyone, steps=sum((found.counts for found in lead), Counts()).steps)
