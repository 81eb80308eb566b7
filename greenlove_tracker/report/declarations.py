"""Declarations in the forms that others ask for: a paper, a model card, SCI."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.highlights import INCOMPLETE
from greenlove_tracker.logs.mapreduce import COMPARISON, EXPLORATION, KEYS, OVERHEAD, TRAINING
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.sums import Contribution, ExactTotals, contribution
from greenlove_tracker.logs.uncertainty import QUANTITIES as MEASURED
from greenlove_tracker.records import COMPONENTS, Factor, RunStatus
from greenlove_tracker.rendering.markdown import in_markdown
from greenlove_tracker.report import wording
from greenlove_tracker.report.run_report import gpu_hours
from greenlove_tracker.report.wording import Sums
from greenlove_tracker.units import GRAMS_PER_KG

UNITS = ("run", "epoch", "step", "sample", "token")

_FAILED = frozenset({RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.TERMINATED})
_FINAL, _OTHER, _EXPLORATORY, _UNDONE = ("final", "preliminary", "exploratory", "failed or interrupted")
_OUTSIDE = "outside the trackers"  # of a script: no runs of its own
_GROUPS = (_FINAL, _OTHER, _EXPLORATORY, _UNDONE, _OUTSIDE)
_MAX_LISTED = 4  # names in a sentence
_MAX_RUN_IDS = 3  # in an error
_MAX_LEFT_OUT = 10  # by name in a declaration
_AT_ONCE = 1000  # runs that are added up together


def model_card(aggregate: Aggregate, training_type: str = "", *, needs_all: bool = False) -> str:
    """Return the block of a Hugging Face model card's metadata, YAML; what is not known is left out.

    The fields are those of huggingface.co/docs/hub/model-cards-co2: emissions in grams.

    Args:
        aggregate: the runs of the model.
        training_type: ``pre-training`` or ``fine-tuning``.
        needs_all: refuse where the emissions of any training are not known; else those that did not come to a good
            end are left out by name.

    Raises:
        UsageError: where the emissions of a run are not known.
    """
    facts = Facts.of(aggregate, needs="emissions", needs_all=needs_all)
    grams = _emissions_kgco2e(facts) * GRAMS_PER_KG
    places, hardware = sorted(facts.places - {""}), sorted(facts.hardware - {""})
    fields = {
        "emissions": f"{grams:.6g}",
        "source": _quoted("; ".join(filter(None, [_tools(facts), _period(aggregate, facts), *_mocked(facts)]))),
        "training_type": _quoted(training_type) if training_type else "",
        "geographical_location": _quoted(", ".join(places)) if places else "",
        "hardware_used": _quoted(", ".join(hardware)) if hardware else "",
    }
    lines = ["co2_eq_emissions:", *(f"  {name}: {text}" for name, text in fields.items() if text)]
    return "\n".join([*lines, *(f"  # {left_out}" for left_out in _left_out(aggregate, facts))])


def sci(aggregate: Aggregate, unit: str, embodied_gco2e: float | None = None, *, needs_all: bool = False) -> str:
    """Return the Software Carbon Intensity of the runs: (E × I + M) / R, ISO/IEC 21031:2024.

    Args:
        aggregate: the runs.
        unit: the functional unit R, one of ``UNITS``.
        embodied_gco2e: M, of all runs together; None: it is not declared, and not taken for nothing.
        needs_all: as for ``model_card``.

    Raises:
        UsageError: where emissions or the number of units of a run are not known.
    """
    if unit not in UNITS:
        raise UsageError(f"the functional unit must be one of {', '.join(UNITS)}, not {unit!r}")
    count = 0

    def add_units(run: Run) -> None:
        nonlocal count
        if KEYS["kind"](run) == TRAINING:  # others are emitted for, not counted
            count += _n_units(run, unit)

    facts = Facts.of(aggregate, add_units, needs="emissions", needs_all=needs_all)
    operational_g = _emissions_kgco2e(facts) * GRAMS_PER_KG
    energy = fmt.energy(facts.sums.totals.energy_kwh)
    if not count:
        raise UsageError(f"none of the runs did a whole {unit}: choose another --unit")
    rate_g = (operational_g + (embodied_gco2e or 0.0)) / count
    embodied = "not declared" if embodied_gco2e is None else fmt.mass(embodied_gco2e / GRAMS_PER_KG)
    return "\n".join(
        [
            f"SCI = {fmt.significant(rate_g, 4)} gCO2e per {unit}"
            + (", operational emissions only" if embodied_gco2e is None else ""),
            f"  E × I   {energy} emitted {fmt.mass(operational_g / GRAMS_PER_KG)} CO2e, location-based, in "
            f"{wording.runs_text(facts.kinds)}",
            f"  M       embodied emissions {embodied}",
            f"  R       {_units_text(count, unit, facts.kinds[TRAINING])}",
            *([f"  period  {period}"] if (period := _period(aggregate, facts)) else []),
            *(f"  {text}" for text in (*_mocked(facts), *_left_out(aggregate, facts))),
            "  ISO/IEC 21031:2024: SCI = (E × I + M) / R; contracts and certificates are not in it",
        ]
    )


def _n_units(run: Run, unit: str) -> int:
    """Return how many units a run did; 0 is a number, as of a run that failed at once."""
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


def _emissions_kgco2e(facts: Facts) -> float:
    totals = facts.sums.totals
    _check_is_known(facts, totals.emissions_kgco2e, totals.n_unknown_emissions, "emissions are")
    return totals.emissions_kgco2e or 0.0


def _check_is_known(facts: Facts, value: float | None, n_unknown: int, what: str) -> None:
    """Refuse to declare a sum that lacks runs.

    Raises:
        UsageError: where it does, or there is no training.
    """
    run_ids, n = facts.unknown, n_unknown
    if not facts.sums.totals.n_runs and facts.n_left_out:
        run_ids, n = facts.left_out, facts.n_left_out  # nothing else is there
    elif not facts.kinds.total():
        raise UsageError("no run could be read: there is nothing to declare")
    elif not facts.kinds[TRAINING]:
        which = "only comparisons" if facts.kinds[COMPARISON] else "only explorations"
        which = "what a script did outside its trackers" if facts.kinds[OVERHEAD] else which
        raise UsageError(f"these runs are {which}: there is no training to declare")
    elif value is not None and not n_unknown:
        return
    name, verb = what.split()
    more = f" and {n - len(run_ids):,} more" if n > len(run_ids) else ""
    raise UsageError(
        f"the {name} of {fmt.plural(n, 'run')} {verb} not known ({', '.join(run_ids)}{more}): what they took would be "
        "missing. Declare the directories of single runs, or move these elsewhere"
    )


def _left_out(aggregate: Aggregate, facts: Facts) -> Iterator[str]:
    """Yield what is missing from a declaration; nothing where all runs are in it."""
    if n := facts.n_left_out:
        more = f" and {n - len(facts.left_out):,} more" if n > len(facts.left_out) else ""
        are, its = ("is", "its") if n == 1 else ("are", "their")
        known = "is" if facts.needs == "energy" else "are"
        yield (
            f"{fmt.plural(n, 'run')} that did not finish well {are} not in it, {its} {facts.needs} {known} not "
            f"known: {', '.join(facts.left_out)}{more}"
        )
    yield from _unknown_overhead(facts)
    if left := wording.left_out(aggregate.n_left_out):
        yield left
    n = len(aggregate.problems)
    if n:
        yield f"{fmt.plural(n, 'part')} of the logs could not be read and {'is' if n == 1 else 'are'} not in it"


def _units_text(count: int, unit: str, n_runs: int) -> str:
    runs = fmt.plural(n_runs, "training run")
    return runs if unit == "run" else f"{fmt.plural(count, unit)} in {runs}"


def _mocked(facts: Facts) -> Iterator[str]:
    """Yield that runs are simulated, and that emissions are of an invented carbon intensity; nothing where none are."""
    if n := facts.sums.totals.n_simulated:
        yield f"SIMULATED: {fmt.plural(n, 'run')} of simulated hardware or an invented carbon intensity in it"
    if n := facts.sums.totals.n_mock:
        yield f"MOCK: the carbon intensity of {fmt.plural(n, 'run')} is invented, and so is the CO2e"


def _unknown_overhead(facts: Facts) -> Iterator[str]:
    """Yield what scripts did outside their trackers without its energy being known; nothing where all is known."""
    if n := facts.n_unknown_overhead:
        whose, time = "a script" if n == 1 else f"{n:,} scripts", fmt.duration(facts.unknown_overhead_s)
        theirs, needs = "its" if n == 1 else "their", facts.needs or "energy"
        verb = "is" if needs == "energy" else "are"
        yield f"what {whose} did outside {theirs} trackers, {time}, is not in it: the {needs} of that {verb} not known"


def _tools(facts: Facts) -> str:
    names = {f"greenlove_tracker {version}" for version in facts.versions if version}
    return ", ".join([*sorted(names), *sorted(facts.meters - {"", "none"})])


def _quoted(text: str) -> str:
    """Return a YAML string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def cite(aggregate: Aggregate, *, latex: bool = False) -> str:
    """Return energy, CO2e, GPU-hours, hardware and time over final, preliminary and failed runs, as Markdown.

    Final are the runs tagged ``final`` that did not fail; failed those that failed, were interrupted or terminated;
    exploratory those that only made a forecast; preliminary the rest. Where no run is tagged, all that did not fail
    are one group, and a note says so.

    Args:
        aggregate: the runs.
        latex: a paragraph, a table and BibTeX entries for a LaTeX paper instead.
    """
    by_group: defaultdict[str, _GroupSums] = defaultdict(_GroupSums)
    facts = Facts.of(aggregate, lambda run: by_group[_group(run)].add(contribution(run)))
    if not facts.sums.totals.n_runs:
        return "No run could be read: there is nothing to cite."
    groups = [(name, by_group[name].sums) for name in _GROUPS if name in by_group]
    note = ""
    if _FINAL not in by_group:
        groups = [("runs" if name == _OTHER else name, sums) for name, sums in groups]
        note = 'No run is tagged "final" (--tags final): all that did not fail are counted as one group.'
    table = [_cells(name, sums, None if name == _OUTSIDE else sums.totals.n_runs) for name, sums in groups]
    rows = [*table, *([_cells("total", facts.sums, facts.n_runs)] if len(table) > 1 else [])]
    in_cells = "".join(cell for row in rows for cell in row)
    marks = [text.partition(": greenlove ")[0] for mark, text in wording.MARKS.items() if mark in in_cells]
    n_problems = len(aggregate.problems)
    problems = f"{fmt.plural(n_problems, 'part')} of the logs could not be read; greenlove summary names them."
    more = [f"{text[0].upper()}{text[1:]}." for text in (*_mocked(facts), *_unknown_overhead(facts))]
    left = wording.left_out(aggregate.n_left_out)
    hints = [note, problems if n_problems else "", f"{left}." if left else ""]  # to who writes the paper
    text = " ".join(_sentences(aggregate, facts, groups))
    if latex:
        return _in_latex(facts, text, rows, [*marks, *more], hints)
    shown = "\n".join(["| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in rows])
    head = f"| {' | '.join(_HEADS)} |\n|:--|{'--:|' * (len(_HEADS) - 1)}"
    parts = [in_markdown(text), f"{head}\n{shown}", *map(in_markdown, (*marks, *more, *hints))]
    return "\n\n".join(part for part in parts if part)


_HEADS = ("group", "runs", "time", "GPU-hours", "energy", "CO2e")


def _in_latex(
    facts: Facts, text: str, rows: Sequence[Sequence[str]], notes: Sequence[str], hints: Sequence[str]
) -> str:
    """Return a paragraph that cites the tools, a table, and BibTeX entries behind a line of comment."""
    from greenlove_tracker.rendering.latex import bibtex, in_latex, tabular

    versions, meters = sorted(facts.versions - {""}), sorted(facts.meters - {"", "none"})
    codecarbon = [meter.partition(" ")[2] for meter in meters if meter.startswith("codecarbon")]
    ours = {
        "title": "greenlove_tracker: what a training run costs in hours, kWh, dollars and CO2",
        "author": "greenlove_tracker developers",
        "version": ", ".join(versions),
        "year": facts.days[1][:4] if facts.days else "",
    }
    theirs = {
        "title": "CodeCarbon",
        "author": "CodeCarbon contributors",
        "version": ", ".join(codecarbon),
        "url": "https://codecarbon.io",
    }
    keys = ["greenlove_tracker", *(["codecarbon"] if codecarbon else [])]
    entries = [bibtex("greenlove_tracker", ours), *([bibtex("codecarbon", theirs)] if codecarbon else [])]
    paragraph = f"{in_latex(text)} \\cite{{{','.join(keys)}}}"
    below = [*map(in_latex, notes), *(f"% {hint}" for hint in hints if hint)]
    return "\n\n".join([paragraph, tabular(_HEADS, rows), *below, "% BibTeX:", *entries])


def _group(run: Run) -> str:
    if KEYS["kind"](run) == OVERHEAD:
        return _OUTSIDE
    if run.summary.status in _FAILED:
        return _UNDONE
    if run.is_exploration:
        return _EXPLORATORY
    return _FINAL if "final" in {tag.strip() for tag in run.text("tags").split(",")} else _OTHER


class _GroupSums:
    """The sums of a group of runs, added up a thousand at a time."""

    def __init__(self) -> None:
        self._partial, self._latest = ExactTotals(), list[Contribution]()

    def add(self, added: Contribution) -> None:
        """Add one run."""
        self._latest.append(added)
        if len(self._latest) == _AT_ONCE:
            self._partial, self._latest = self.sums.partial, []

    @property
    def sums(self) -> Sums:
        """The sums so far."""
        return Sums(ExactTotals.merged([self._partial, ExactTotals.of(self._latest)]))


def _sentences(aggregate: Aggregate, facts: Facts, groups: Sequence[tuple[str, Sums]]) -> list[str]:
    totals = facts.sums.totals
    counts = _listed([f"{sums.totals.n_runs:,} {name}" for name, sums in groups if name not in ("runs", _OUTSIDE)])
    detail = f" ({counts})" if counts else ""
    compute = f" and {gpu_hours(totals.gpu_hours)}" if totals.gpu_hours else ""
    hardware = _listed(_sorted(facts.hardware)) or "hardware that the logs do not name"
    scale = fmt.time_scale(totals.duration_s)
    period = _joined_period(aggregate, facts)
    sentences = [
        f"The experiments comprise {fmt.plural(facts.n_runs, 'run')}{detail} on {hardware}, "
        f"{fmt.significant(scale.value(totals.duration_s))} {scale.unit} of wall time{compute}{period}.",
        _energy_sentence(facts),
        _intensity_sentence(facts),
        *_measured_sentences(facts),
        _tool_sentence(facts),
    ]
    return [sentence for sentence in sentences if sentence]


def _joined_period(aggregate: Aggregate, facts: Facts) -> str:
    return f", {text}" if (text := _period(aggregate, facts)) else ""


def _period(aggregate: Aggregate, facts: Facts) -> str:
    """Return the time that the runs are of: what was asked for, else from the first to the last day; maybe unknown."""
    period = aggregate.selection.period
    if not period.is_everything:
        return period.text
    first, last = facts.days or ("", "")
    if not first:
        return ""
    return f"on {first} (UTC)" if first == last else f"from {first} to {last} (UTC)"


def _energy_sentence(facts: Facts) -> str:
    totals = facts.sums.totals
    if totals.energy_kwh is None:
        return "Their energy is unknown, and so are their emissions."
    ranges = {name: wording.measured_bounds(name, totals.bounds(name)) for name in MEASURED}
    beside = (*ranges["energy_kwh"], f"{facts.pue_text} included", _unknown_for(totals.n_unknown_energy))
    energy = f"{fmt.energy(totals.energy_kwh)} ({'; '.join(filter(None, beside))})"
    if totals.emissions_kgco2e is None:
        return f"They used {energy}; the emissions are unknown."
    mixed = "mixing direct and lifecycle intensities" if len(totals.intensity_coverages) > 1 else ""
    beside = (*ranges["emissions_kgco2e"], mixed, _unknown_for(totals.n_unknown_emissions))
    noted = "; ".join(filter(None, beside))
    emitted = f"emitted {fmt.mass(totals.emissions_kgco2e)} of CO2e{f' ({noted})' if noted else ''}"
    return f"They used {energy} and {emitted}."


def _unknown_for(n_runs: int) -> str:
    return f"unknown for {fmt.plural(n_runs, 'run')}" if n_runs else ""


def _intensity_sentence(facts: Facts) -> str:
    if not facts.intensities:
        return "No carbon intensity is in the logs."
    texts = (wording.intensity(factor).replace("g/kWh", "gCO2e/kWh") for factor in facts.intensities)
    names = list(dict.fromkeys(texts))
    return f"Carbon intensity: {'; '.join(names[:_MAX_LISTED])}{'; and others' if len(names) > _MAX_LISTED else ''}."


def _measured_sentences(facts: Facts) -> list[str]:
    """Say how much of the energy hardware measured, and what is in no figure; nothing where the logs do not say."""
    totals = facts.sums.totals
    share, n_silent = totals.measured_share, totals.n_unknown_measured
    if share is None:
        return []
    runs = f" of the {fmt.plural(totals.n_runs - n_silent, 'run')} whose logs say it" if n_silent else ""
    how_much = "all" if share >= 1 else "none" if share <= 0 else fmt.percent(share)
    rest = f"; {'the rest' if share > 0 else 'it'} is modelled or estimated{facts.assumed}" if share < 1 else ""
    missing = [f"{component} of some runs, which could not be measured" for component in sorted(facts.unmeasured)]
    left_out = ", ".join([*missing, *wording.NOT_COUNTED])
    return [f"Hardware measured {how_much} of the energy{runs}{facts.before_pue}{rest}.", f"Not counted: {left_out}."]


def _tool_sentence(facts: Facts) -> str:
    versions = [f"greenlove_tracker {version}" for version in _sorted(facts.versions)]
    tools = _listed([*versions, *_sorted(facts.meters - {"none"})])
    return f"Recorded with {tools}." if tools else ""


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name)


def _listed(names: Sequence[str]) -> str:
    listed = list(names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        listed.append(f"{len(names) - _MAX_LISTED:,} more")
    return " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)


def _cells(name: str, sums: Sums, n_runs: int | None) -> tuple[str, ...]:
    time, energy, emissions, _ = sums.cells
    return (name, "–" if n_runs is None else f"{n_runs:,}", time, sums.gpu_hours, energy, emissions)


@dataclass(slots=True)
class Facts:
    """The facts of many runs that a declaration states; each run is read once, and nothing of a single one stays.

    Attributes:
        sums: of all of them.
        kinds: the number of trainings, of explorations and of scripts around trackers.
        hardware: GPUs, or where there is none CPUs.
        places: countries, as given.
        pues: of those whose energy is known.
        intensities: those known, in the order of the runs.
        versions: of this package.
        meters: that measured.
        unmeasured: components that could not be, in one of them at least.
        needs: ``energy`` or ``emissions``, where only runs count of which it is known.
        unknown: the first few runs of which it is not known.
        left_out: the first few of those that are in none of the facts: what is needed is not known of them, and they
            did not come to a good end; with their status.
        n_left_out: how many these are.
        n_unknown_overhead: scripts of which it is not known what they took outside their trackers; they are counted
            in ``kinds`` alone.
        unknown_overhead_s: how long that was.
        days: the first and the last day, UTC, ISO 8601, on which a run began; None where no log says.
    """

    needs: str = ""

    sums: Sums = field(default_factory=lambda: Sums(ExactTotals()))
    kinds: Counter[str] = field(default_factory=Counter)
    hardware: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    pues: set[float] = field(default_factory=set)
    intensities: dict[Factor, None] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    meters: set[str] = field(default_factory=set)
    unmeasured: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    n_left_out: int = 0
    n_unknown_overhead: int = 0
    unknown_overhead_s: float = 0.0
    days: tuple[str, str] | None = None

    @classmethod
    def of(
        cls,
        aggregate: Aggregate,
        visit: Callable[[Run], None] | None = None,
        *,
        needs: str = "",
        needs_all: bool = False,
    ) -> Facts:
        """Read the runs; ``visit`` is called with each that is not left out, too.

        Args:
            aggregate: the runs.
            visit: called with each.
            needs: what must be known of a run.
            needs_all: leave no training out.
        """
        facts, without = cls(needs), _GroupSums()

        def add(run: Run) -> None:
            is_known = (run.emissions_kgco2e if needs == "emissions" else run.summary.energy_kwh) is not None
            if not is_known and KEYS["kind"](run) == OVERHEAD:  # often too short to be measured at all
                facts.kinds[OVERHEAD] += 1
                facts.n_unknown_overhead += 1
                facts.unknown_overhead_s += run.summary.duration_s
                without.add(contribution(run))
                return
            is_known = is_known or not needs
            if not (is_known or needs_all) and run.summary.status in INCOMPLETE:
                facts.n_left_out += 1
                if len(facts.left_out) < _MAX_LEFT_OUT:
                    facts.left_out.append(f"{run.run_id} ({run.summary.status})")
                without.add(contribution(run))
                return
            if not is_known and len(facts.unknown) < _MAX_RUN_IDS:
                facts.unknown.append(run.run_id)
            facts._add(run)
            if visit is not None:
                visit(run)

        aggregate.visit(add)
        facts.sums = Sums(aggregate.exact_totals.without([without.sums.partial]))
        return facts

    def _add(self, run: Run) -> None:
        if day := fmt.shortened(run.started_at, 30)[:10]:
            first, last = self.days or (day, day)
            self.days = (min(first, day), max(last, day))
        self.kinds[KEYS["kind"](run)] += 1
        self.hardware.add(wording.field_text(run, "gpu_models", 60) or wording.field_text(run, "cpu_model", 60))
        self.places.add(wording.field_text(run, "country", 40))
        self.versions.add(wording.field_text(run, "greenlove_version", 20))
        self.meters.add(wording.field_text(run, "meter", 40))
        self.unmeasured.update(c for c in run.text("unmeasured").split() if c in COMPONENTS)
        if run.summary.energy_kwh is not None:
            self.pues.add(run.summary.pue)
        if run.knows_carbon_intensity:
            self.intensities[run.carbon_intensity] = None

    @property
    def n_runs(self) -> int:
        """Runs that trained or explored."""
        return self.kinds[TRAINING] + self.kinds[EXPLORATION] + self.kinds[COMPARISON]

    @property
    def before_pue(self) -> str:
        """`` before PUE``, of a share measured, where a PUE adds to it; empty where none does."""
        return " before PUE" if self.pues - {1.0} else ""

    @property
    def assumed(self) -> str:
        """Say how much is an assumption for the rest of nodes, before PUE; empty where nothing is."""
        assumed_kwh = self.sums.totals.node_assumed_kwh
        return (
            f", {fmt.energy(assumed_kwh)} of it for the rest of nodes (assumed node_overhead, or a wall meter)"
            if assumed_kwh
            else ""
        )

    @property
    def pue_text(self) -> str:
        """``PUE 1.2``, or from the least to the greatest."""
        least, greatest = min(self.pues), max(self.pues)
        return f"PUE {least}" if least == greatest else f"PUE {least} to {greatest}"
