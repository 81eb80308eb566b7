"""The records of a run as frozen dataclasses that do no more than add up, and the clocks.

None means not measured; zero means measured zero. Energies here are as metered at the component, before PUE.

A field that is a column of the log has its meaning in ``Annotated``; ``logs/schema.py`` makes the rest of it: how it is
written, read, checked and described.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol, Self

from greenlove_tracker.vocabulary.errors import BudgetExceeded, TrainingInterrupted
from greenlove_tracker.vocabulary.worded import Worded

COMPONENTS = ("cpu", "gpu", "ram")


class DescribedStr(StrEnum):
    """Words of a log, each with its meaning. A member equals its word.

    Attributes:
        meaning: what the word means, as part of a sentence.
    """

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        """Make a member from its word and its meaning."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class Method(DescribedStr):
    """The way in which an energy was obtained; the first two are measurements, the next two are models."""

    COUNTER = "counter", "an energy counter of the hardware (RAPL, NVML)"
    SAMPLED_POWER = "sampled_power", "power readings of the hardware, integrated"
    TDP_MODEL = "tdp_model", "a model, by the load and the rated power"
    CONSTANT = "constant", "a model: a fixed power, such as memory by its size"
    ASSUMED = "assumed", "an assumption of the user's: `node_overhead`, of `node_assumed_kwh` alone"


MEASURED_METHODS = frozenset({Method.COUNTER, Method.SAMPLED_POWER})


class Flag(DescribedStr):
    """A reason to trust a row less."""

    METER_STARTING = "meter_starting", "the meter was not up yet: no energy"
    METER_FAILED = "meter_failed", "the meter had failed: no energy"
    NO_METER = "no_meter", "another rank of this node carries the meter: no energy"
    GPU_UNREAD = "gpu_unread", "the GPUs' energy could not be read any more"
    GPU_MISSING = "gpu_missing", "one of several GPUs could not be read: the energy is without it"
    CLOCK_JUMP = (
        "clock_jump",
        "wall clock and steady clock disagree by over 2 s and 1%: suspended, or the clock was set",
    )
    LOADING = (
        "loading",
        "greenlove itself was still loading beside it for a tenth of the time or more, and may have slowed it down",
    )
    SHORT = "short", "under 100 ms: the energy of this row is noise, its sum over rows is not"
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

    cpu_kwh: Annotated[float | None, "energy of the CPU"] = None
    gpu_kwh: Annotated[float | None, "energy of all GPUs together"] = None
    ram_kwh: Annotated[float | None, "energy of memory"] = None
    cpu_method: Annotated[str | None, "how the CPU's energy was obtained", Method] = None
    gpu_method: Annotated[str | None, "how the GPUs' energy was obtained", Method] = None
    ram_method: Annotated[str | None, "how the memory's energy was obtained", Method] = None

    def component_kwh(self, component: str) -> float | None:
        """Return the energy of ``cpu``, ``gpu`` or ``ram`` in kWh."""
        value: float | None = getattr(self, f"{component}_kwh")
        return value

    def component_method(self, component: str) -> str | None:
        """Return the method of the energy of ``cpu``, ``gpu`` or ``ram``; several are joined by ``+``."""
        value: str | None = getattr(self, f"{component}_method")
        return value

    @property
    def total_kwh(self) -> float | None:
        """The sum over the known components; None if none is known."""
        return sum_known((self.cpu_kwh, self.gpu_kwh, self.ram_kwh))

    @property
    def is_known(self) -> bool:
        """True if any component is known."""
        return self.total_kwh is not None

    def __add__(self, other: Energy) -> Energy:
        return sum_energies((self, other))


UNKNOWN_ENERGY = Energy()


def joined_methods(methods: Iterable[str | None]) -> str | None:
    """Return all methods joined by ``+``, each once; None if there are none."""
    names = sorted({name for joined in methods if joined for name in joined.split("+")})
    return "+".join(names) if names else None


def sum_energies(energies: Iterable[Energy]) -> Energy:
    """Return the sum by component, exactly rounded. A component that no row knows stays None."""
    rows = list(energies)
    if len(rows) == 1:
        return rows[0]
    amounts: list[Any] = []
    methods: list[Any] = []
    for component in COMPONENTS:
        amounts.append(sum_known(row.component_kwh(component) for row in rows))
        methods.append(joined_methods({row.component_method(component) for row in rows}))
    return Energy(*amounts, *methods)


def sum_known(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of the known amounts, exactly rounded; None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return math.fsum(known) if known else None


def times(amount: float | None, factor: float) -> float | None:
    """Return an amount times a factor; None if the amount is unknown."""
    if amount is None:
        return None
    return amount * factor


def part_of_energy(energy: Energy, share: float) -> Energy:
    """Return a share of an energy."""
    return replace(
        energy,
        cpu_kwh=times(energy.cpu_kwh, share),
        gpu_kwh=times(energy.gpu_kwh, share),
        ram_kwh=times(energy.ram_kwh, share),
    )


@dataclass(frozen=True, slots=True)
class LoggedGpuEnergy:
    """The energy of one GPU of a run.

    Attributes:
        index: its number on its node.
        kwh: its metered energy, before PUE; None if it was never read.
        is_whole: True if every reading succeeded.
    """

    index: int
    kwh: float | None
    is_whole: bool

    def __str__(self) -> str:
        """Write it as ``0=0.1234``; ``0=0.1234+`` if a reading failed, ``0=`` if it was never read."""
        energy = "" if self.kwh is None else f"{self.kwh:.9g}"
        return f"{self.index}={energy}{'' if self.is_whole or not energy else '+'}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Read such a text.

        Raises:
            ValueError: if the text has another form.
        """
        index, _, energy = text.partition("=")
        if not energy:
            return cls(int(index), None, is_whole=False)
        return cls(int(index), float(energy.removesuffix("+")), is_whole=not energy.endswith("+"))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a stretch of training; None where the loop did not count."""

    steps: Annotated[int | None, "optimizer steps, as counted by `step()`"] = None
    batches: Annotated[int | None, "batches, as counted by `step()`"] = None
    samples: Annotated[int | None, "samples of this rank, as counted by `step(n_samples=…)`"] = None
    tokens: Annotated[int | None, "tokens of this rank, as counted by `step(n_tokens=…)`"] = None

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(_add_counts(getattr(self, name), getattr(other, name)) for name in Counts.__slots__))


def _add_counts(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


RATES = "rates"  # columns that a file of rows has only where a run asked for the rates of its time


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``epochs-<rank>.csv``; it never changes once written.

    ``gap_before`` is the time between the row before and this one (validation, checkpoints, loading). A row is either
    metered or not: the tracker ends a row when the meter comes up. The rates by time are there only if the run asked
    for them; else the factors of the run count.
    """

    kind: Annotated[RowKind, "what the row stands for, see below"]
    epoch: Annotated[int | None, "number of the epoch in the training, from 1; empty in `gap` and `tail` rows"]
    started_at: Annotated[
        str, "UTC, ISO 8601: where the epoch or segment began (`gap` and `tail`: where the gap began)"
    ]
    gap_before_s: Annotated[float, "time between the row before and this one: loading, validation, checkpoints"]
    gap_before: Annotated[
        Energy,
        "gap_before_{}",
        "{}, in the gap",
        ("gap_before_kwh", "energy of that time, the sum of the three that follow"),
    ]
    duration_s: Annotated[float, "time of the epoch or segment itself; 0 in `gap` and `tail` rows"]
    counts: Counts
    energy: Annotated[
        Energy,
        "{}",
        "{}",
        ("energy_kwh", "energy of the duration, the sum of the three that follow, as metered, before PUE"),
    ]
    emissions_gco2e: Annotated[float | None, "of the duration: energy × PUE × carbon intensity"]
    flags: Annotated[frozenset[str], "what spoils the row, separated by spaces, see below"] = frozenset()
    carbon_intensity_gco2e_per_kwh: Annotated[
        float | None,
        "that was in force, the last known when the row ends; the row's energies count with it",
        "",
        RATES,
    ] = None
    carbon_intensity_source: Annotated[
        str,
        "who gave it, measured, estimated or forecast, direct or lifecycle, how old it was when it was asked for, and "
        "why it stands in for what was asked for: `neso measured direct, 12 min old`, "
        "`table lifecycle (fallback: neso: it did not answer)`, `mock`; several with `;` between them",
        "",
        RATES,
    ] = ""
    electricity_price_usd_per_kwh: Annotated[
        float | None, "of a tariff, mean over the same time; empty where the tariff does not say", "finite", RATES
    ] = None


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of one rank, put together from its segments."""

    epoch: int
    rank: int
    started_at: str
    gap_before_s: float
    gap_before: Annotated[Energy, "gap_before_{}", "{}"]
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
        """True if the epoch ran to its end."""
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
        """``direct`` (emissions of the power plants) or ``lifecycle``; empty if the carbon intensity does not say."""
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


def status_of(error: type[BaseException] | None, value: BaseException | None) -> tuple[RunStatus, int | None]:
    """Return status and exit code of a run whose block or script ended with this exception."""
    if error is None or issubclass(error, GeneratorExit):  # a generator that its caller left with break
        return RunStatus.FINISHED, 0
    if issubclass(error, SystemExit):
        code = getattr(value, "code", None)
        number = code if isinstance(code, int) else int(code is not None)  # a text is told, and is a 1
        if issubclass(error, TrainingInterrupted):
            return RunStatus.TERMINATED, number
        return (RunStatus.FAILED if number else RunStatus.FINISHED), number
    if issubclass(error, KeyboardInterrupt) or error.__name__ == "CancelledError":  # asyncio's Ctrl-C
        return RunStatus.INTERRUPTED, None
    return (RunStatus.STOPPED if issubclass(error, BudgetExceeded) else RunStatus.FAILED), 1


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """The values of one metric that a training logged."""

    name: Annotated[str, "of the metric"]
    last: Annotated[float, "the last value; NaN or infinite where it was", "any"]
    lowest: Annotated[float | None, "of the finite values; None where there was none", "finite"]
    highest: Annotated[float | None, "likewise", "finite"]
    n_values: Annotated[int, "values that were logged"]
    higher_is_better: Annotated[bool | None, "larger values are better, or smaller ones; None where that is not known"]

    @property
    def best(self) -> float | None:
        """The best value; None if the better direction is unknown, or no value was finite."""
        if self.higher_is_better is None:
            return None
        if self.higher_is_better:
            return self.highest
        return self.lowest


@dataclass(frozen=True, slots=True)
class Consumption:
    """The consumption of a run so far, on this rank's node, as ``tracker.consumption`` gives it.

    The energy is what was metered, with the PUE. The time before the meter is up is estimated once the run is closed:
    then it is that of ``tracker.summary``.

    Attributes:
        duration_s: wall time, in seconds.
        energy_kwh: energy, in kWh.
        emissions_kgco2e: operational emissions, in kg of CO2 equivalent.
        cost_usd: cost, in US dollars: the machine's where its price is set, else that of the electricity.
    """

    duration_s: float | None = None
    energy_kwh: float | None = None
    emissions_kgco2e: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class RunSummary(Worded):
    """The totals of a run over all its nodes.

    ``energy`` is what was metered, by component, before PUE. ``unmetered_estimate_kwh`` stands for the time that
    was not metered, at the mean power of the time that was. ``node_assumed_kwh`` is what the user's ``node_overhead``
    adds for what no component's meter sees; None where it adds nothing. Where a wall meter calibrates the totals, it
    is the difference to the wall, and may be negative. ``energy_kwh`` is all together, times ``pue``.
    """

    run_id: Annotated[str, "the directory's name"]
    project: Annotated[str, "as given"]
    status: Annotated[str, "how the run ended, see below"]
    exit_code: Annotated[int | None, "of the process, where it is known; negative: the number of a signal", "finite"]
    started_at: Annotated[str, "UTC, ISO 8601"]
    ended_at: Annotated[str, "UTC, ISO 8601"]
    epochs_done: Annotated[int, "epochs that ran to their end"]
    epochs_planned: Annotated[int | None, "as given, less those that were done before the run"]
    counts: Counts
    duration_s: Annotated[float, "wall time of the whole run"]
    epochs_duration_s: Annotated[float, "part of `duration_s` inside epochs"]
    metered_s: Annotated[float, "part of `duration_s` while every known component was metered"]
    energy: Annotated[Energy, "{}", "{}, as metered, before PUE"]
    measured_kwh: Annotated[
        float | None, "the part of the metered energy that counters and sampled power gave; the rest is modelled"
    ]
    unmetered_estimate_kwh: Annotated[
        float | None, "estimate for the time that was not metered, at the mean power of the time that was"
    ]
    pue: Annotated[float, "power usage effectiveness", "from 1"]
    energy_kwh: Annotated[float | None, "(metered energy + estimate + assumed) × PUE"]
    carbon_intensity_gco2e_per_kwh: Annotated[
        float, "as in `run.csv`, with its source there; where rows have their own, the mean over the energy"
    ]
    emissions_kgco2e: Annotated[float | None, "energy × carbon intensity"]
    cost_usd: Annotated[float | None, "see `cost_basis`; at prices of an exchange it may be negative", "finite"]
    cost_basis: Annotated[
        str, "`machine`: price per GPU-hour × GPUs × time; `electricity`: price × energy; empty: no price known"
    ]
    gpu_count: Annotated[int, "GPUs of all nodes"]
    gpu_hours: Annotated[float, "GPUs × wall time"]
    n_ranks: Annotated[int, "processes that wrote rows"] = 1
    n_nodes: Annotated[int, "processes that carry a meter, one a node"] = 1
    flags: Annotated[frozenset[str], "all flags of all rows"] = field(default_factory=frozenset)
    node_assumed_kwh: Annotated[
        float | None, "what `node_overhead` adds for the rest of the node, an assumption; not in older logs"
    ] = None
    metrics: Annotated[tuple[MetricSummary, ...], None] = ()  # no column: each has lines of its own

    @property
    def consumption(self) -> Consumption:
        """Its time, energy, CO2e and cost."""
        return Consumption(self.duration_s, self.energy_kwh, self.emissions_kgco2e, self.cost_usd)

    @property
    def between_s(self) -> float:
        """Time outside epochs: loading, validation, checkpoints."""
        return max(0.0, self.duration_s - self.epochs_duration_s)

    @property
    def before_pue_kwh(self) -> float | None:
        """The energy before PUE: metered, estimated and assumed; None if nothing was metered."""
        metered_kwh = self.energy.total_kwh
        if metered_kwh is None:
            return None
        return metered_kwh + (self.unmetered_estimate_kwh or 0.0) + (self.node_assumed_kwh or 0.0)

    @property
    def measured_share(self) -> float | None:
        """The share of the energy that hardware measured, 0 to 1. The rest is modelled, estimated or assumed."""
        whole_kwh = self.before_pue_kwh
        if self.measured_kwh is None or whole_kwh is None:
            return None
        if whole_kwh > 0:
            return self.measured_kwh / whole_kwh
        return 0.0


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
