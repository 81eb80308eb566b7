"""Declarations as others ask for them: a paper (Markdown or LaTeX), a model card, SCI. Their texts are templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from greenlove_tracker.logs.aggregate import Aggregate, Totals
from greenlove_tracker.logs.run_rows import INCOMPLETE, TRAINING, RunRow
from greenlove_tracker.rendering.html import fill
from greenlove_tracker.report import wording
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import COMPONENTS, RunStatus
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG
from greenlove_tracker.vocabulary.version import __version__

_names = partial(wording.joined, most=10)  # of runs
UNITS = ("run", "epoch", "step", "sample", "token")

_FAILED = frozenset({RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.TERMINATED})
_FINAL = "final"
_OTHER = "preliminary"
_EXPLORATORY = "exploratory"
_UNDONE = "failed or interrupted"
_GROUPS = (_FINAL, _OTHER, _EXPLORATORY, _UNDONE)
_MOST_LISTED = 4  # names in a sentence
_HEADS = ["group", "runs", "time", "GPU-hours", "energy", "CO2e"]


def model_card(aggregate: Aggregate) -> str:
    """Return the block of a Hugging Face model card's metadata, YAML; what is not known is left out.

    The fields are those of huggingface.co/docs/hub/model-cards-co2: emissions in grams. Runs that did not come to a
    good end and of which no emissions are known are left out by name.

    Raises:
        UsageError: where the emissions of another run are not known.
    """
    facts = _Facts(aggregate, leaves_out=True)
    return fill(
        "model-card.txt",
        facts=facts,
        grams=_emissions_kgco2e(facts) * GRAMS_PER_KG,
        source="; ".join(filter(None, (", ".join(facts.tools), facts.period, *_mocked(facts)))),
        left_out=_left_out(facts),
    )


def sci(aggregate: Aggregate, unit: str, embodied_gco2e: float | None = None) -> str:
    """Return the Software Carbon Intensity of the runs: (E × I + M) / R, ISO/IEC 21031:2024.

    Args:
        aggregate: the runs.
        unit: the functional unit R, one of ``UNITS``.
        embodied_gco2e: M, of all runs together; None: it is not declared, and not taken for nothing.

    Raises:
        UsageError: where emissions or the number of units of a run are not known.
    """
    if unit not in UNITS:
        raise UsageError(f"the functional unit must be one of {', '.join(UNITS)}, not {unit!r}")
    facts = _Facts(aggregate, leaves_out=True)
    # others are emitted for, not counted
    count = sum(_n_units(row, unit) for row in facts.totals.rows if row.facts.kind == TRAINING)
    operational_kg = _emissions_kgco2e(facts)
    if not count:
        raise UsageError(f"none of the runs did a whole {unit}: choose another --unit")
    return fill(
        "sci.txt",
        facts=facts,
        unit=unit,
        count=count,
        rate_g=(operational_kg * GRAMS_PER_KG + (embodied_gco2e or 0.0)) / count,
        operational_kg=operational_kg,
        embodied_kg=None if embodied_gco2e is None else embodied_gco2e / GRAMS_PER_KG,
        runs=wording.runs_text(facts.kinds),
        notes=(*_mocked(facts), *_left_out(facts)),
    )


def _n_units(row: RunRow, unit: str) -> int:
    """Return how many units a run did; 0 is a number, as of a run that failed at once."""
    if unit == "run":
        return 1
    count = row.epochs_done if unit == "epoch" else getattr(row.counts, f"{unit}s")
    if unit == "epoch" and not count and row.epochs_planned is None:  # none were marked
        count = None
    if count is None:
        raise UsageError(f"{row.path} counted no {unit}s: choose another --unit, or count them with tracker.step()")
    return int(count)


def _emissions_kgco2e(facts: _Facts) -> float:
    """Return the sum that is declared; refuse one that lacks runs.

    Raises:
        UsageError: where it does, or there is no training.
    """
    unknown = [row.run for row in facts.totals.rows if row.emissions_kgco2e is None]
    if unknown:
        raise UsageError(
            f"the emissions of {fmt.plural(len(unknown), 'run')} are not known ({_names(unknown)}): what they took "
            "would be missing. Declare the directories of single runs, or move these elsewhere"
        )
    if facts.totals.emissions_kgco2e is None or not facts.kinds[TRAINING]:
        raise UsageError("no training has known emissions to declare")
    return facts.totals.emissions_kgco2e


def _left_out(facts: _Facts) -> Iterator[str]:
    """Yield what is missing from a declaration; nothing where all runs are in it."""
    if facts.left_out:
        runs = f"{fmt.plural(len(facts.left_out), 'run')}, {_names(facts.left_out)}"
        yield f"not in it, as they did not finish well and their emissions are not known: {runs}"
    if facts.aggregate.n_left_out:
        yield wording.left_out(facts.aggregate.n_left_out)
    n = len(facts.aggregate.problems)
    if n:
        yield f"{fmt.plural(n, 'part')} of the logs could not be read and {wording.are(n)} not in it"


def _mocked(facts: _Facts) -> Iterator[str]:
    """Yield that runs are simulated, and that emissions are of an invented carbon intensity; nothing where none are."""
    simulated = fmt.plural(facts.totals.n_simulated, "run")
    mocked = fmt.plural(facts.totals.n_mock_intensity, "run")
    if facts.totals.n_simulated:
        yield f"SIMULATED: {simulated} of simulated hardware or an invented carbon intensity in it"
    if facts.totals.n_mock_intensity:
        yield f"MOCK: the carbon intensity of {mocked} is invented, and so is the CO2e"


def cite(aggregate: Aggregate, *, latex: bool = False) -> str:
    """Return energy, CO2e, GPU-hours, hardware and time over final, preliminary and failed runs, as Markdown.

    Final are the runs tagged ``final`` that did not fail; failed those that failed, were interrupted or terminated;
    exploratory those that only made a forecast; preliminary the rest. Where no run is tagged, all that did not fail
    are one group, and a note says so.

    Args:
        aggregate: the runs.
        latex: a paragraph, a table and BibTeX entries for a LaTeX paper instead.
    """
    facts = _Facts(aggregate)
    totals = facts.totals
    if not totals.n_runs:
        return "No run could be read: there is nothing to cite."
    by_group = wording.grouped((_group(row), row) for row in totals.rows)
    other = _OTHER
    hints = []  # to who writes the paper
    if _FINAL not in by_group:
        other = "runs"
        hints.append('No run is tagged "final" (--tags final): all that did not fail are counted as one group.')
    groups = [(other if name == _OTHER else name, Totals(by_group[name])) for name in _GROUPS if name in by_group]
    rows = [_cells(name, of) for name, of in groups]
    if len(groups) > 1:
        rows.append(_cells("total", totals))
    duration_s = totals.duration_s or 0.0
    scale = fmt.time_scale(duration_s)
    intensities = (wording.intensity(factor).replace("g/kWh", "gCO2e/kWh") for factor in facts.intensities)
    return fill(
        "citation.tex" if latex else "citation.md",
        facts=facts,
        has_pue=bool(facts.pues - {1.0}),
        compute=wording.gpu_hours(totals.gpu_hours),
        counts=[f"{of.n_runs:,} {name}" for name, of in groups if name != "runs"],
        wall_time=f"{fmt.significant(scale.value(duration_s))} {scale.unit}",
        range_of=partial(_range, totals),
        intensities=list(dict.fromkeys(intensities)),
        not_counted=wording.NOT_COUNTED,
        listed=partial(wording.joined, most=_MOST_LISTED),
        heads=_HEADS,
        rows=rows,
        notes=[*wording.sum_notes(totals), *map(wording.sentence, _mocked(facts))],
        hints=[*hints, *map(wording.sentence, _left_out(facts))],
        has_codecarbon=any(meter.startswith("codecarbon") for meter in facts.meters),
        version=__version__,
    )


def _group(row: RunRow) -> str:
    if row.status in _FAILED:
        return _UNDONE
    if row.facts.kind != TRAINING:
        return _EXPLORATORY
    if "final" in {tag.strip() for tag in row.facts.tags.split(",")}:
        return _FINAL
    return _OTHER


def _range(totals: Totals, quantity: str) -> str:
    """Write how far a total may be off: ``95% range 3.18 kWh – 3.52 kWh``; empty where that is not known."""
    estimate = totals.bounds(quantity)
    if estimate is None:
        return ""
    return f"{estimate.level:.0%} range {fmt.bounds(estimate, fmt.QUANTITIES[quantity][1])}"


def _cells(name: str, totals: Totals) -> list[str]:
    return [name, f"{totals.n_runs:,}", *wording.sum_cells(totals)[:4]]


class _Facts:
    """The facts of many runs that a declaration states.

    Args:
        aggregate: the runs.
        leaves_out: without runs whose emissions are not known and that did not come to a good end.

    Attributes:
        totals: of the runs that are declared.
        left_out: those that are left out, with their status.
        days: on which a run began, UTC, ISO 8601.
    """

    def __init__(self, aggregate: Aggregate, *, leaves_out: bool = False) -> None:
        self.aggregate = aggregate
        declared = []
        self.left_out = []
        for row in aggregate.total.rows:
            if leaves_out and row.emissions_kgco2e is None and row.status in INCOMPLETE:
                self.left_out.append(f"{row.run} ({row.status})")
            else:
                declared.append(row)
        self.totals = Totals(declared)
        self.kinds = Counter(row.facts.kind for row in declared)
        self.days = sorted(_texts(declared, "day", 30))
        self.hardware = _texts(declared, "device", 60)
        self.places = _texts(declared, "country", 40)
        self.versions = _texts(declared, "greenlove_version", 20)
        self.meters = _texts(declared, "meter", 40) - {"none"}
        unmeasured = {name for row in declared for name in row.facts.unmeasured.split()}
        self.unmeasured = unmeasured.intersection(COMPONENTS)
        self.pues = {row.pue for row in declared if row.energy_kwh is not None}
        intensities = (row.facts.carbon_intensity for row in declared)
        self.intensities = dict.fromkeys(factor for factor in intensities if factor is not None)

    @property
    def period(self) -> str:
        """The time that the runs are of: what was asked for, else from the first to the last day; maybe unknown."""
        period = self.aggregate.selection.period
        if not period.is_everything:
            return period.text
        if not self.days:
            return ""
        if self.days[0] == self.days[-1]:
            return f"on {self.days[0]} (UTC)"
        return f"from {self.days[0]} to {self.days[-1]} (UTC)"

    @property
    def tools(self) -> list[str]:
        """The package and the meters that recorded them, with their versions."""
        return [*(f"greenlove_tracker {version}" for version in sorted(self.versions)), *sorted(self.meters)]


def _texts(rows: Sequence[RunRow], column: str, width: int) -> set[str]:
    return {fmt.shortened(row.text(column), width) for row in rows} - {""}
