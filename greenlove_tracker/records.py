"""The records of a run: frozen dataclasses, without behaviour beyond sums; and the clocks they are timed by.

None means not measured; zero means measured zero. Energies here are as metered at the component, before PUE.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, Self

COMPONENTS = ("cpu", "gpu", "ram")


class DescribedStr(StrEnum):
    """Words that stand in a log, each with its meaning; a member equals its word.

    Attributes:
        meaning: the word in a sentence's part, for people.
    """

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        """Make a member of its word and what that means."""
        member = str.__new__(cls, word)
        member._value_, member.meaning = word, meaning
        return member


class Method(DescribedStr):
    """The way in which an energy was obtained; the first two are measurements, the next two are models."""

    COUNTER = "counter", "an energy counter of the hardware (RAPL, NVML)"
    SAMPLED_POWER = "sampled_power", "power readings of the hardware, integrated"
    TDP_MODEL = "tdp_model", "a model: the load, times the rated power"
    CONSTANT = "constant", "a model: a fixed power, such as memory by its size"
    ASSUMED = "assumed", "an assumption of the user's: `node_overhead`, of `node_assumed_kwh` alone"


MEASURED_METHODS = frozenset({Method.COUNTER, Method.SAMPLED_POWER})


class Flag(DescribedStr):
    """A reason to trust a row less."""

    METER_STARTING = "meter_starting", "the meter was not up yet: no energy"
    METER_FAILED = "meter_failed", "the meter had failed: no energy"
    NO_METER = "no_meter", "another rank of this node carries the meter: no energy"
    GPU_UNREAD = "gpu_unread", "the GPUs' energy could not be read any more"
    POWER_HOLE = (
        "power_hole",
        "its energy is the mean of power readings, times the time, and for over 5 s within it there was none",
    )
    CLOCK_JUMP = (
        "clock_jump",
        "wall clock and steady clock disagree by over 2 s and 1%: suspended, or the clock was set",
    )
    LOADING = (
        "loading",
        "greenlove itself was still loading beside it for a tenth of the time or more, and may have slowed it down",
    )
    SHORT = "short", "under 100 ms: the energy of this row is noise, its sum over rows is not"
    WAITING = (
        "waiting",
        "a question waited for its answer, or the training for a cleaner grid: time of the run, not of its training",
    )
    UNFINISHED = "unfinished", "the epoch was cut off before its end"
    NOT_ENDED = "not_ended", "epoch_end() was not called: the epoch was closed where the next one began"
    HUNG = "hung", "the training hung and was ended by SIGTERM: no energy, for the device was not asked any more"
    PREDICTED = "predicted", "carbontracker monitored only some epochs; the totals hold its prediction for the rest"


class RowKind(DescribedStr):
    """The stretch of time that a row of ``epochs-<rank>.csv`` stands for."""

    EPOCH = "epoch", "an epoch, or its last segment"
    SEGMENT = "segment", "a part of an epoch that was not over: written each minute, and where the meter comes up"
    GAP = "gap", "a part of the time between epochs, written each minute, and where the meter comes up"
    TAIL = "tail", "what came after the last epoch; always the last row of a run that was closed"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy by component in kWh, each with the method that gave it; None where not measured."""

    cpu_kwh: float | None = None
    gpu_kwh: float | None = None
    ram_kwh: float | None = None
    cpu_method: str | None = None
    gpu_method: str | None = None
    ram_method: str | None = None

    def component_kwh(self, component: str) -> float | None:
        """Return the energy of ``cpu``, ``gpu`` or ``ram`` in kWh."""
        value: float | None = getattr(self, f"{component}_kwh")
        return value

    def component_method(self, component: str) -> str | None:
        """Return the method behind the energy of ``cpu``, ``gpu`` or ``ram``; several are joined by ``+``."""
        value: str | None = getattr(self, f"{component}_method")
        return value

    @property
    def total_kwh(self) -> float | None:
        """The sum over the components that are known; None where none is."""
        known = [e for e in (self.cpu_kwh, self.gpu_kwh, self.ram_kwh) if e is not None]
        return math.fsum(known) if known else None

    @property
    def is_known(self) -> bool:
        """True where any component was measured."""
        return self.total_kwh is not None

    def __add__(self, other: Energy) -> Energy:
        return sum_energies((self, other))


UNKNOWN_ENERGY = Energy()


def _joined_methods(methods: Iterable[str | None]) -> str | None:
    names = sorted({name for joined in methods if joined for name in joined.split("+")})
    return "+".join(names) if names else None


def sum_energies(energies: Iterable[Energy]) -> Energy:
    """Sum by component, exactly rounded; a component that is nowhere known stays None."""
    rows = list(energies)
    if len(rows) == 1:
        return rows[0]
    values: dict[str, float | None] = {}
    methods: dict[str, str | None] = {}
    for component in COMPONENTS:
        known = [e for row in rows if (e := row.component_kwh(component)) is not None]
        values[f"{component}_kwh"] = math.fsum(known) if known else None
        methods[f"{component}_method"] = _joined_methods({row.component_method(component) for row in rows})
    return Energy(
        values["cpu_kwh"],
        values["gpu_kwh"],
        values["ram_kwh"],
        methods["cpu_method"],
        methods["gpu_method"],
        methods["ram_method"],
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """The work of a stretch of training; None where the loop did not say."""

    steps: int | None = None  # optimizer steps
    batches: int | None = None
    samples: int | None = None
    tokens: int | None = None

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            _add_counts(self.steps, other.steps),
            _add_counts(self.batches, other.batches),
            _add_counts(self.samples, other.samples),
            _add_counts(self.tokens, other.tokens),
        )


def _add_counts(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``epochs-<rank>.csv``; it never changes once written.

    ``gap_before`` is what lay between the row before and this one (validation, checkpoints, loading). A row's
    time is either wholly metered or not at all: the tracker cuts a row where the meter comes up. The rates of its
    time are there only where a run asked for them; without, the factors of the run count.
    """

    kind: RowKind
    epoch: int | None  # from 1; None for gap and tail rows
    started_at: str  # UTC, ISO 8601, of the row's own duration
    gap_before_s: float
    gap_before: Energy
    duration_s: float
    counts: Counts
    energy: Energy
    emissions_gco2e: float | None  # of the row's own duration, PUE included
    flags: frozenset[str] = frozenset()
    carbon_intensity_gco2e_per_kwh: float | None = None  # mean over the time of the row and its gap
    carbon_intensity_source: str = ""
    electricity_price_usd_per_kwh: float | None = None  # likewise a mean


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of one rank, put together from its segments."""

    epoch: int
    rank: int
    started_at: str
    gap_before_s: float
    gap_before: Energy
    duration_s: float
    steps: int | None
    batches: int | None
    samples: int | None
    tokens: int | None
    energy: Energy  # empty where a part of the epoch was not metered
    emissions_gco2e: float | None
    flags: frozenset[str]
    n_segments: int

    @property
    def is_complete(self) -> bool:
        """True where the epoch ran to its end."""
        return Flag.UNFINISHED not in self.flags


INTENSITY_COVERAGES = ("direct", "lifecycle")


@dataclass(frozen=True, slots=True)
class Factor:
    """A number that a total was multiplied with, and where it comes from."""

    name: str
    value: float
    unit: str
    source: str
    year: str = ""
    basis: str = ""  # location-based or market-based, direct or lifecycle, given by the user
    table_sha256: str = ""

    @property
    def coverage(self) -> str:
        """``direct``, of a power plant's own stack, or ``lifecycle``; empty where a carbon intensity does not say."""
        return next((word for word in INTENSITY_COVERAGES if word in self.basis), "")


@dataclass(frozen=True, slots=True)
class Field:
    """One line of ``run.csv``."""

    name: str
    value: str
    unit: str = ""


class RunStatus(DescribedStr):
    """The way in which a run ended."""

    FINISHED = "finished", "stopped, or its block or script ended normally"
    EXITED = "exited", "the process ended without saying how"
    FAILED = "failed", "by an exception or a non-zero exit code"
    INTERRUPTED = "interrupted", "by Ctrl-C; or without a summary: killed, or the power failed"
    TERMINATED = "terminated", "by a signal"
    STOPPED = "stopped", "by a budget of its own before that was exceeded, or by the answer to its question"
    SUPERSEDED = "superseded", "another run was begun in the same process"
    RUNNING = "running", "not over yet (never written, found by the parser)"


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """The values of one metric that a training logged.

    Attributes:
        name: of the metric.
        last: the last value; NaN or infinite where it was.
        lowest: of the finite values; None where there was none.
        highest: likewise.
        n_values: values that were logged.
        higher_is_better: larger values are better, or smaller ones; None where that is not known.
    """

    name: str
    last: float
    lowest: float | None
    highest: float | None
    n_values: int
    higher_is_better: bool | None

    @property
    def best(self) -> float | None:
        """The best value; None where it is not known which is better, or no value was finite."""
        if self.higher_is_better is None:
            return None
        return self.highest if self.higher_is_better else self.lowest


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The totals of a run over all its nodes.

    ``energy`` is what was metered, by component, before PUE. ``unmetered_estimate_kwh`` stands for the time that
    was not metered, at the mean power of the time that was. ``node_assumed_kwh`` is what the user's ``node_overhead``
    adds for what no component's meter sees; None where it adds nothing. ``energy_kwh`` is all together, times ``pue``.
    """

    run_id: str
    project: str
    status: str
    exit_code: int | None
    started_at: str
    ended_at: str
    epochs_done: int
    epochs_planned: int | None
    counts: Counts
    duration_s: float
    epochs_duration_s: float
    metered_s: float
    energy: Energy
    measured_kwh: float | None  # the part of ``energy`` from counters and sampled power
    unmetered_estimate_kwh: float | None
    pue: float
    energy_kwh: float | None
    carbon_intensity_gco2e_per_kwh: float
    emissions_kgco2e: float | None
    cost_usd: float | None
    cost_basis: str  # "machine", "electricity" or ""
    gpu_count: int
    gpu_hours: float
    n_ranks: int = 1
    n_nodes: int = 1
    flags: frozenset[str] = field(default_factory=frozenset)
    node_assumed_kwh: float | None = None
    metrics: tuple[MetricSummary, ...] = ()

    @property
    def between_s(self) -> float:
        """Time outside epochs: loading, validation, checkpoints."""
        return max(0.0, self.duration_s - self.epochs_duration_s)

    @property
    def before_pue_kwh(self) -> float | None:
        """The energy before PUE: metered, estimated and assumed; None where nothing was metered."""
        metered_kwh = self.energy.total_kwh
        if metered_kwh is None:
            return None
        return metered_kwh + (self.unmetered_estimate_kwh or 0.0) + (self.node_assumed_kwh or 0.0)

    @property
    def measured_share(self) -> float | None:
        """The share of the energy that hardware measured, in 0..1; models, estimates and assumptions are the rest."""
        whole_kwh = self.before_pue_kwh
        if self.measured_kwh is None or whole_kwh is None:
            return None
        return self.measured_kwh / whole_kwh if whole_kwh > 0 else 0.0


class Clock(Protocol):
    """The two clocks a tracker reads; tests pass their own."""

    def perf_s(self) -> float:
        """Return the seconds of a steady clock, for durations."""

    def utc_s(self) -> float:
        """Return the seconds since the Unix epoch, for timestamps only."""


class SystemClock:
    """The real clocks: ``time.perf_counter``, unmoved by changes of the date, and UTC."""

    def perf_s(self) -> float:
        """Return the seconds of a steady clock, for durations."""
        return time.perf_counter()

    def utc_s(self) -> float:
        """Return the seconds since the Unix epoch, for timestamps only."""
        return time.time()
