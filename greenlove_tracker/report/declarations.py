"""What others ask for in forms of their own: a model card, SCI, the energy line of the EU's AI Act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import time_scale
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.mapreduce import KEYS, TRAINING
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.sums import Contribution, ExactTotals, contribution
from greenlove_tracker.records import COMPONENTS, Factor, RunStatus
from greenlove_tracker.rendering.markdown import in_markdown
from greenlove_tracker.report import wording
from greenlove_tracker.report.directory_report import Sums
from greenlove_tracker.report.run_report import gpu_hours
from greenlove_tracker.report.wording import STAR, STAR_NOTE
from greenlove_tracker.units import GRAMS_PER_KG

UNITS = ("run", "epoch", "step", "sample", "token")


def model_card(aggregate: Aggregate, training_type: str = "") -> str:
    """The block of a Hugging Face model card's metadata, YAML; what is not known is left out.

    The fields are those of huggingface.co/docs/hub/model-cards-co2: emissions in grams.

    Args:
        aggregate: the runs of the model.
        training_type: ``pre-training`` or ``fine-tuning``.

    Raises:
        UsageError: where the emissions of a run are not known.
    """
    facts = facts_of(aggregate.runs)
    grams = _emissions_kgco2e(facts) * GRAMS_PER_KG
    places, hardware = sorted(facts.places - {""}), sorted(facts.hardware - {""})
    fields = {
        "emissions": f"{grams:.6g}",
        "source": _quoted(_tools(facts)),
        "training_type": _quoted(training_type) if training_type else "",
        "geographical_location": _quoted(", ".join(places)) if places else "",
        "hardware_used": _quoted(", ".join(hardware)) if hardware else "",
    }
    lines = ["co2_eq_emissions:", *(f"  {name}: {text}" for name, text in fields.items() if text)]
    left_out = _left_out(aggregate)
    return "\n".join([*lines, *([f"  # {left_out}"] if left_out else [])])


def sci(aggregate: Aggregate, unit: str, embodied_gco2e: float | None = None) -> str:
    """The Software Carbon Intensity of the runs: (E × I + M) / R, ISO/IEC 21031:2024.

    Args:
        aggregate: the runs.
        unit: the functional unit R, one of ``UNITS``.
        embodied_gco2e: M, of all runs together; None: it is not declared, and not taken for nothing.

    Raises:
        UsageError: where emissions or the number of units of a run are not known.
    """
    if unit not in UNITS:
        raise UsageError(f"the functional unit must be one of {', '.join(UNITS)}, not {unit!r}")
    facts, count = Facts(), 0
    for run in aggregate.runs:
        facts.add(run)
        if not run.is_exploration:  # explorations are emitted for, not counted
            count += _units(run, unit)
    operational_g = _emissions_kgco2e(facts) * GRAMS_PER_KG
    n_trainings = facts.kinds[TRAINING]
    if not count:
        raise UsageError(f"none of the runs did a whole {unit}: choose another --unit")
    rate_g = (operational_g + (embodied_gco2e or 0.0)) / count
    embodied = "not declared" if embodied_gco2e is None else fmt.mass(embodied_gco2e / GRAMS_PER_KG)
    kwh = facts.sums.totals.energy_kwh
    return "\n".join(
        [
            f"SCI = {fmt.significant(rate_g, 4)} gCO2e per {unit}"
            + (", operational emissions only" if embodied_gco2e is None else ""),
            f"  E × I   {fmt.energy(kwh)} came to {fmt.mass(operational_g / GRAMS_PER_KG)} CO2e, location-based, in "
            f"{wording.runs_text(facts.kinds)}",
            f"  M       embodied emissions {embodied}",
            f"  R       {fmt.plural(count, unit)} in {fmt.plural(n_trainings, 'training run')}",
            *([f"  {left_out}"] if (left_out := _left_out(aggregate)) else []),
            "  ISO/IEC 21031:2024: SCI = (E × I + M) / R; contracts and certificates are not in it",
        ]
    )


def ai_act(aggregate: Aggregate) -> str:
    """The line on energy that the technical documentation of a general-purpose model needs.

    Regulation (EU) 2024/1689, Annex XI, section 1, point 2 (e): known or estimated energy consumption of the model.
    It says ``measured`` only where hardware measured all of it.

    Raises:
        UsageError: where the energy of a run is not known.
    """
    facts = facts_of(aggregate.runs)
    totals = facts.sums.totals
    _check_there_are_trainings(facts)
    if totals.energy_kwh is None or totals.n_unknown_energy:
        raise UsageError(_unknown("energy", "is", totals.n_unknown_energy, facts.without_energy))
    return (
        f"Energy consumption (Regulation (EU) 2024/1689, Annex XI, section 1, 2 (e)): {fmt.energy(totals.energy_kwh)}, "
        f"{_how(facts)}; {wording.runs_text(facts.kinds)}, {facts.pue_text} included, recorded with {_tools(facts)}"
        f"{f'; {left_out}' if (left_out := _left_out(aggregate)) else ''}"
    )


def _how(facts: Facts) -> str:
    """Measured, where hardware measured all of every component; else estimated, and how much of it was measured."""
    totals, missing = facts.sums.totals, ", ".join(sorted(facts.unmeasured))
    share, n_silent = totals.measured_share, totals.n_unknown_measured
    if share is None:
        return "estimated, and nothing is known of how much was measured"
    if share >= 1.0 and not missing and not n_silent:
        return "measured"
    silent = f" in the {fmt.plural(totals.n_runs - n_silent, 'run')} whose logs say it" if n_silent else ""
    lacks = f", {missing} of some runs not in it" if missing else ""
    return f"estimated, {fmt.percent(share)} of it{facts.before_pue} measured by hardware{silent}{lacks}"


def _check_there_are_trainings(facts: Facts) -> None:
    if not facts.n_runs:
        raise UsageError("no run could be read: there is nothing to declare")
    if not facts.kinds[TRAINING]:
        raise UsageError("these are explorations alone: there is no training to declare")


def _unknown(what: str, verb: str, n: int, names: Sequence[str]) -> str:
    more = f" and {n - len(names):,} more" if n > len(names) else ""
    return (
        f"the {what} of {fmt.plural(n, 'run')} {verb} not known ({', '.join(names)}{more}): what they took would be "
        "missing. Declare the directories of single runs, or move these elsewhere"
    )


def _emissions_kgco2e(facts: Facts) -> float:
    _check_there_are_trainings(facts)
    totals = facts.sums.totals
    if totals.emissions_kgco2e is None or totals.n_unknown_emissions:
        raise UsageError(_unknown("emissions", "are", totals.n_unknown_emissions, facts.without_emissions))
    return totals.emissions_kgco2e


def _units(run: Run, unit: str) -> int:
    """How many a run did; none is a number, as of a run that failed at once."""
    if unit == "run":
        return 1
    summary = run.summary
    if unit == "epoch":
        count = None if not summary.epochs_done and summary.epochs_planned is None else summary.epochs_done
    else:
        count = getattr(summary.counts, f"{unit}s")
    if count is None:
        raise UsageError(f"{run.path} counted no {unit}s: choose another --unit, or count them with tracker.step()")
    return int(count)


def _left_out(aggregate: Aggregate) -> str:
    """What is missing from a declaration; empty where all could be read."""
    n = len(aggregate.problems)
    parts = f"{fmt.plural(n, 'part')} of the logs could not be read"
    return f"{parts} and {'is' if n == 1 else 'are'} not in it" if n else ""


def _tools(facts: Facts) -> str:
    names = {f"greenlove_tracker {version}" for version in facts.versions if version}
    return ", ".join([*sorted(names), *sorted(facts.meters - {"", "none"})])


def _quoted(text: str) -> str:
    """A YAML string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# -- The sentence and the table for a paper, as Markdown --

_FAILED = frozenset({RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.TERMINATED})
_FINAL, _OTHER, _EXPLORATORY, _UNDONE = _NAMES = ("final", "preliminary", "exploratory", "failed or interrupted")
_MAX_NAMED = 4


def cite(aggregate: Aggregate) -> str:
    """Energy, CO2e, GPU-hours, hardware and time over final, preliminary and failed runs.

    Final are the runs tagged ``final`` that did not fail; failed those that failed, were interrupted or terminated;
    exploratory those that only made a forecast; preliminary the rest. Where no run is tagged, all that did not fail
    are one group, and a note says so.
    """
    every, by_name = Facts(), {name: Facts() for name in _NAMES}
    for run in aggregate.runs:
        every.add(run)
        by_name[_name(run)].add(run)
    if not every.n_runs:
        return "No run could be read: there is nothing to cite."
    groups = [(name, facts.sums) for name, facts in by_name.items() if facts.n_runs]
    note = ""
    if not by_name[_FINAL].n_runs:
        groups = [("runs" if name == _OTHER else name, sums) for name, sums in groups]
        note = 'No run is tagged "final": all that did not fail are counted as one group.'
    table = [_row(name, sums) for name, sums in groups]
    rows = [*table, *([_row("total", every.sums)] if len(table) > 1 else [])]
    has_star = any(STAR in row for row in rows)
    parts = [
        " ".join(_sentences(every, groups)),
        "\n".join(["| runs | number | time | GPU-hours | energy | CO2e |", "|:--|--:|--:|--:|--:|--:|", *rows]),
        "\\" + STAR_NOTE if has_star else "",
        note,
        _problems(aggregate),
    ]
    return "\n\n".join(part for part in parts if part)


def _problems(aggregate: Aggregate) -> str:
    n = len(aggregate.problems)
    return f"{fmt.plural(n, 'part')} of the logs could not be read; greenlove summary names them." if n else ""


def _name(run: Run) -> str:
    if run.summary.status in _FAILED:
        return _UNDONE
    if run.is_exploration:
        return _EXPLORATORY
    return _FINAL if "final" in {tag.strip() for tag in run.text("tags").split(",")} else _OTHER


def _sentences(every: Facts, groups: Sequence[tuple[str, Sums]]) -> list[str]:
    totals = every.sums.totals
    counts = _listed([f"{sums.totals.n_runs:,} {name}" for name, sums in groups if name != "runs"])
    detail = f" ({counts})" if counts else ""
    compute = f" and {gpu_hours(totals.gpu_hours)}" if totals.gpu_hours else ""
    hardware = _listed(_escaped(every.hardware)) or "hardware that the logs do not name"
    sentences = [
        f"The experiments took {fmt.plural(totals.n_runs, 'run')}{detail} on {hardware}, "
        f"{_time(totals.duration_s)} of wall time{compute}.",
        _energy_sentence(every),
        _intensity_sentence(every),
        _measured_sentence(every),
        _tool_sentence(every),
    ]
    return [sentence for sentence in sentences if sentence]


def _escaped(names: Iterable[str]) -> list[str]:
    return [in_markdown(name) for name in sorted(names) if name]


def _time(duration_s: float) -> str:
    scale = time_scale(duration_s)
    return f"{fmt.significant(scale.value(duration_s))} {scale.unit}"


def _energy_sentence(every: Facts) -> str:
    totals = every.sums.totals
    if totals.energy_kwh is None:
        return "Their energy is unknown, and so are their emissions."
    energy = f"{fmt.energy(totals.energy_kwh)} (including {every.pue_text}{_unknown_for(totals.n_unknown_energy)})"
    if totals.emissions_kgco2e is None:
        return f"They used {energy}; the emissions are unknown."
    missing = _unknown_for(totals.n_unknown_emissions).removeprefix("; ")
    emitted = f"emitted {fmt.mass(totals.emissions_kgco2e)} of CO2e{f' ({missing})' if missing else ''}"
    return f"They used {energy} and {emitted}."


def _unknown_for(n_runs: int) -> str:
    return f"; unknown for {fmt.plural(n_runs, 'run')}" if n_runs else ""


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        shown.append(f"{len(names) - _MAX_NAMED:,} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _intensity_sentence(every: Facts) -> str:
    if not every.intensities:
        return "No carbon intensity is in the logs."
    texts = (wording.intensity(factor).replace("g/kWh", "gCO2e/kWh") for factor in every.intensities)
    names = [in_markdown(text) for text in dict.fromkeys(texts)]
    return f"Carbon intensity: {'; '.join(names[:_MAX_NAMED])}{'; and others' if len(names) > _MAX_NAMED else ''}."


def _measured_sentence(every: Facts) -> str:
    totals = every.sums.totals
    share, n_silent = totals.measured_share, totals.n_unknown_measured
    if share is None:
        return ""
    runs = f" of the {fmt.plural(totals.n_runs - n_silent, 'run')} whose logs say it" if n_silent else ""
    rest = f", {fmt.percent(1 - share)} modelled or estimated" if share < 1 else ""
    missing = [f"{component} of some runs, which could not be measured" for component in sorted(every.unmeasured)]
    left_out = ", ".join([*missing, *wording.NOT_COUNTED])
    whose = f"Of the energy{runs}{every.before_pue}"
    return f"{whose} {fmt.percent(share)} was measured by hardware{rest}; not counted: {left_out}."


def _tool_sentence(every: Facts) -> str:
    versions = [f"greenlove_tracker {version}" for version in _escaped(every.versions)]
    tools = _listed([*versions, *_escaped(every.meters - {"none"})])
    return f"Recorded with {tools}." if tools else ""


def _row(name: str, sums: Sums) -> str:
    time, energy, emissions, _ = sums.cells
    totals = sums.totals
    cells = (name, f"{totals.n_runs:,}", time, sums.gpu_hours, energy, emissions)
    return "| " + " | ".join(cell.replace(STAR, "\\" + STAR) for cell in cells) + " |"


# -- What is told of many runs together, gathered in one look at each; nothing of a single run is kept --

_NAMED = 3
_AT_ONCE = 1000  # runs that are added up together


@dataclass(slots=True)
class Facts:
    """Of some runs.

    Attributes:
        kinds: how many trainings and explorations they are.
        hardware: GPUs, or where there is none CPUs.
        places: countries, as given.
        pues: of those whose energy is known.
        intensities: those known, in the order in which they were met.
        versions: of this package.
        meters: that measured.
        unmeasured: components that could not be, in one of them at least.
        without_energy: the first few runs whose energy is not known.
        without_emissions: the same of emissions.
    """

    _sum: ExactTotals = field(default_factory=ExactTotals)
    _latest: list[Contribution] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    hardware: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    pues: set[float] = field(default_factory=set)
    intensities: dict[Factor, None] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    meters: set[str] = field(default_factory=set)
    unmeasured: set[str] = field(default_factory=set)
    without_energy: list[str] = field(default_factory=list)
    without_emissions: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """One more run."""
        self._latest.append(contribution(run))
        if len(self._latest) == _AT_ONCE:
            self._sum, self._latest = self.sums.partial, []
        self.kinds[KEYS["kind"](run)] += 1
        self.hardware.add(wording.data(run, "gpu_models", 60) or wording.data(run, "cpu_model", 60))
        self.places.add(wording.data(run, "country", 40))
        self.versions.add(wording.data(run, "greenlove_version", 20))
        self.meters.add(wording.data(run, "meter", 40))
        self.unmeasured.update(c for c in run.text("unmeasured").split() if c in COMPONENTS)
        if run.summary.energy_kwh is not None:
            self.pues.add(run.summary.pue)
        elif len(self.without_energy) < _NAMED:
            self.without_energy.append(run.run_id)
        if run.emissions_kgco2e is None and len(self.without_emissions) < _NAMED:
            self.without_emissions.append(run.run_id)
        if run.knows_carbon_intensity:
            self.intensities[run.carbon_intensity] = None

    @property
    def sums(self) -> Sums:
        """What they come to."""
        return Sums(ExactTotals.merged([self._sum, ExactTotals.of(self._latest)]))

    @property
    def n_runs(self) -> int:
        """How many they are."""
        return self.kinds.total()

    @property
    def before_pue(self) -> str:
        """What a share measured is of, where a PUE adds to it; empty where none does."""
        return " before PUE" if self.pues - {1.0} else ""

    @property
    def pue_text(self) -> str:
        """``PUE 1.2``, or from the least to the greatest."""
        least, greatest = min(self.pues), max(self.pues)
        return f"PUE {least}" if least == greatest else f"PUE {least} to {greatest}"


def facts_of(runs: Iterable[Run]) -> Facts:
    """Of these runs."""
    facts = Facts()
    for run in runs:
        facts.add(run)
    return facts
