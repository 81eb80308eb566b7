"""Methods, factors, endings, scopes and sums in words, the same in every report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from greenlove_tracker.logs.aggregate import Totals
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.overlaps import overlapping
from greenlove_tracker.logs.run import SIMULATED_METERS, Run
from greenlove_tracker.logs.run_rows import COMPARISON, EXPLORATION, TRAINING
from greenlove_tracker.rendering.document import Column, KeyFigure, Table, Texts, columns
from greenlove_tracker.tables.equivalents import equivalents
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import COMPONENTS, Consumption, Factor, Flag, Method, RunStatus, RunSummary
from greenlove_tracker.vocabulary.version import __version__
from greenlove_tracker.vocabulary.workloads import WORKLOADS

Key = TypeVar("Key")
Value = TypeVar("Value")
NOT_COUNTED = ("screen", "disks", "network", "making of the hardware")
METER_STARTING = "no metered row is logged yet"
FIELD_WIDTH = 160  # of a text from a log, in running text or a table of two columns
STAR = "*"
TILDE = "~"
AT_LEAST = "≥ "
_LONGEST = 1000  # of a sentence, in characters
STAMP = "SIMULATED"
_OF_ENERGY = ("energy_kwh", "emissions_kgco2e")  # what is measured or modelled
_EVERYDAY = ("car_eu_new_2024_km", "phone_charge")

_METHODS: Mapping[str, str] = {
    Method.COUNTER: "counter",
    Method.SAMPLED_POWER: "power readings",
    Method.TDP_MODEL: "modelled (by load and TDP)",
    Method.CONSTANT: "constant",
    Method.ASSUMED: "assumed",
}

# Mean powers of whole trainings: SMC in v4.0 (mlcommons/training_results_v4.0 @6fe95437, smc-ac-power, 8 × H100 of
# 700 W: 1.22 to 1.30), Lenovo in v5.0 (training_results_v5.0 @0fdc28f0, 8 × B200 of 1000 W: 1.20 to 1.26).
_AT_THE_WALL = (
    "Nodes of 8 H100 or B200 drew 20 to 30% more at the wall than their GPUs' limits (MLPerf Training v4, v5)."
)

_FLAGS_OF_ENERGY: Mapping[str, str] = {
    Flag.METER_FAILED: "The meter failed: the energy after that is estimated at the mean power before.",
    Flag.GPU_UNREAD: "The GPUs could not be read for a part of the run: their energy there is estimated.",
    Flag.GPU_MISSING: "Energy, CO2e and electricity are at least this: a GPU could not be read all the time.",
}
_FLAGS: Mapping[str, str] = {
    Flag.PREDICTED: "Not all epochs were monitored: the totals hold carbontracker's prediction for the rest.",
    Flag.CLOCK_JUMP: "The clock jumped: the times of some epochs are doubtful.",
    Flag.NOT_ENDED: "Some epochs were not ended by epoch_end(): they last until the next one began.",
    Flag.HUNG: "The training hung and was ended by SIGTERM: the energy of its last part is estimated.",
}

_ENDINGS: Mapping[str, str] = {
    RunStatus.EXITED: RunStatus.EXITED.meaning,
    RunStatus.FAILED: "ended by an exception or a non-zero exit",
    RunStatus.INTERRUPTED: "ended by Ctrl-C, or killed",
    RunStatus.TERMINATED: "ended by SIGTERM",
    RunStatus.STOPPED: "ended by its own budget, or by the answer to its question",
    RunStatus.SUPERSEDED: RunStatus.SUPERSEDED.meaning,
    RunStatus.RUNNING: "had not ended when this was written",
}


def sentence(text: str) -> str:
    """Write a clause as a sentence, in one line without what cannot be seen: names may come from a log or a file."""
    text = fmt.shortened(text, _LONGEST).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def footer(*parts: str) -> str:
    """Return what stands on every page: the version of this package, and what the page is of."""
    return " · ".join(filter(None, (f"greenlove_tracker {__version__}", *parts)))


def joined(words: Sequence[str], most: int | None = None) -> str:
    """Write ``a, b and c``, or ``a, b and 4 more``; nothing of none."""
    shown = list(words[:most])
    if len(words) > len(shown):
        shown.append(f"{len(words) - len(shown):,} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def are(number: int) -> str:
    """Return the verb after a number of things."""
    return "is" if number == 1 else "are"


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in the order of the pairs."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def facts_table(rows: Iterable[Texts]) -> Table:
    """Return a table without a head: what is said of, and what is said."""
    return Table((Column(""), Column("", 4)), list(rows))


def field_text(run: Run, name: str, width: int = FIELD_WIDTH) -> str:
    """Return a field of ``run.csv`` in one line."""
    return fmt.shortened(run.text(name), width)


def tile(
    quantity: str, value: float | None, known: Estimate | None, note: str, missing: str, tilde: str = ""
) -> KeyFigure:
    """Return a quantity as a key figure.

    Args:
        quantity: one of ``format.QUANTITIES``.
        value: None where it is not known.
        known: its interval.
        note: how it is known.
        missing: why it is not.
        tilde: what stands before an energy or a CO2e that no hardware measured.
    """
    label, text = fmt.QUANTITIES[quantity]
    if value is None:
        return KeyFigure(label, fmt.UNKNOWN, missing)
    shown = text(value)
    if quantity in _OF_ENERGY:
        shown = tilde + shown
    if known is None or not known.has_interval or text(known.lower) == text(known.upper):
        return KeyFigure(label, shown, note)
    at = (known.point - known.lower) / (known.upper - known.lower)
    return KeyFigure(label, shown, note, fmt.bounds(known, text), at)


def forecast_tile(quantity: str, estimate: Estimate | None, missing: str, tilde: str = "") -> KeyFigure:
    """Return a quantity that is forecast as a key figure; ``missing`` is why it is not."""
    value = None if estimate is None else estimate.point
    return tile(quantity, value, estimate, "forecast", missing, tilde)


# -- Runs --


def run_label(run_id: str, name: str = "") -> str:
    """Write a run in short: ``04 Nov 17:12 · lr=0.1``; one of another tool by its id.

    Args:
        run_id: its id.
        name: what tells it apart for people: its tags, project or script.
    """
    try:
        began = datetime.strptime(f"{run_id[:15]}Z", "%Y%m%dT%H%M%S%z")
    except ValueError:
        return fmt.shortened("/".join(filter(None, (name, run_id))), 34)
    label = f"{began:%d %b %H:%M}"
    if name:
        label += f" · {fmt.shortened(name, 32)}"
    return label


def runs_text(numbers: Mapping[str, int]) -> str:
    """Write ``12 training runs, 2 explorations and 1 comparison``, from the number of each kind."""
    parts = [fmt.plural(numbers.get(TRAINING, 0), "training run")]
    parts += [fmt.plural(numbers[kind], kind) for kind in (EXPLORATION, COMPARISON) if numbers.get(kind)]
    return joined(parts)


def progress(run: Run) -> str:
    """Write ``n of m epochs`` or steps; that none were marked is not the same as that none were made."""
    summary = run.summary
    planned_steps = run.total_steps_planned
    planned = summary.epochs_planned
    n_steps = summary.counts.steps or 0
    if planned_steps is not None:
        return f"{n_steps:,} of {planned_steps:,} steps{_before(run.first_step)}"
    if run.text("loops_seen") == "steps":
        return fmt.plural(n_steps, "step")
    earlier = _before(run.first_epoch)
    if planned is not None:
        stopped = "" if run.stopped_early_after is None else ", stopped early"
        return f"{summary.epochs_done:,} of {planned:,} epochs{earlier}{stopped}"
    if run.epochs:  # which take long to put together, where there are many
        return f"{fmt.plural(summary.epochs_done, 'epoch')}{earlier}"
    return f"no epochs{earlier}" if earlier else "epochs not marked"


def _before(n_earlier: int) -> str:
    return f", {n_earlier:,} before" if n_earlier else ""


def early_stop_sentence(run: Run) -> str:
    """Say after which epoch early stopping ended the run, and which was the best; empty where it did not."""
    after = run.stopped_early_after
    if after is None:
        return ""
    text = f"stopped early after {after:,}"
    planned = run.summary.epochs_planned
    if planned is not None and after <= run.first_epoch + planned:
        text += f" of {run.first_epoch + planned:,}"
    text += " epochs"
    best = run.amount("best_epoch")
    if best is not None:
        text += f"; best: epoch {best:,.0f}"
    rule = field_text(run, "stopping_rule")
    if rule:
        text += f" ({rule})"
    return text


def why_incomplete(summary: RunSummary) -> str:
    """Explain why a run did not finish; empty where it did."""
    ending = _ENDINGS.get(summary.status, "")
    if summary.exit_code is not None and ending:
        return f"{ending}, exit {summary.exit_code}"
    return ending


def loops_sentence(run: Run) -> str:
    """Say what was found in a script that marks no epochs itself; empty of any other run."""
    seen = run.text("loops_seen")
    counts = run.summary.counts
    if seen in ("epochs", "steps"):
        found = fmt.plural(counts.steps or 0, "optimizer step")
        known = ""
        if seen == "epochs":
            found = f"{fmt.plural(run.summary.epochs_done, 'epoch')} and {found}"
            known = "; no forecast without their number: greenlove run --epochs N"
        source = run.text("plan_source")
        if source:
            known = f"; length from {source}"
        return f"found {found} in the script's PyTorch loop{known}"
    if not seen or run.epochs or run.summary.epochs_done:
        return ""
    if seen == "not looked for":
        return "no epochs are looked for in a command after --: start it as python -m greenlove_tracker train.py"
    why = "PyTorch made no optimizer step that can be seen"
    if seen == "no torch":
        why = "PyTorch was not used"
    return f"no epochs were seen: {why}; a Tracker or a callback of greenlove_tracker.integrations marks them"


def wait_sentence(run: Run) -> str:
    """Say how long the run was held back for a cleaner grid, and what that came to; empty where nothing waited."""
    wait_s = run.amount("wait_s")
    if wait_s is None:
        return ""
    if wait_s < 1:
        return "started without waiting"
    before = run.amount("intensity_at_request_gco2e_per_kwh")
    after = run.amount("intensity_at_start_gco2e_per_kwh")
    grid = ""
    if before is not None and after is not None:
        grid = f"; the grid went from {before:.0f} to {after:.0f} gCO2e/kWh"
    return f"waited {fmt.duration(wait_s)} before the start{grid}"


def kind_sentence(run: Run) -> str:
    """Say which precision the run computed in, and of which class its model is; empty where neither is known."""
    precision = field_text(run, "precision")
    workload = run.text("workload")
    kinds = {name: f"a {name} model" for name in WORKLOADS} | {"other": "a model of another class"}
    parts = []
    if precision:
        parts.append(f"computed in {precision}{_basis(run, 'precision')}")
    if workload in kinds:
        parts.append(f"{kinds[workload]}{_basis(run, 'workload')}")
    return "; ".join(parts)


def _basis(run: Run, name: str) -> str:
    basis = field_text(run, f"{name}_basis")
    return f" ({basis})" if basis else ""


# -- How it is known --


def method(joined_methods: str | None, constant_w: str = "", tdp_w: str = "") -> str:
    """Put one or more methods joined by ``+`` into words."""
    if not joined_methods:
        return "method not in the log"
    known = _METHODS
    if tdp_w:
        known = {**_METHODS, Method.TDP_MODEL: f"modelled (by load, {tdp_w} W rated)"}
    text = " and ".join(known.get(name, fmt.shortened(name, 30)) for name in joined_methods.split("+"))
    if constant_w and joined_methods == Method.CONSTANT:
        return f"{text} ({constant_w} W)"
    return text


def badge(share: float | None) -> str:
    """Write how an energy is known, in a word or two: ``measured``, ``98% measured``, ``modelled``."""
    if share is None:
        return ""
    if share >= 1:
        return "measured"
    if share <= 0:
        return "modelled"
    return f"{fmt.percent(share)} measured"


def measured_sentence(run: Run) -> str:
    """Say how much of the energy hardware measured, and what of the machine could not be; without a full stop."""
    share = run.summary.measured_share
    note = field_text(run, "meter_note")
    doctor = ". See greenlove doctor"
    if run.text("meter") in SIMULATED_METERS:
        doctor = ""
    if run.calibration is not None:
        return f"Calibrated, PUE included: {run.calibration.text}"
    if share is None and run.summary.energy_kwh is not None:
        return f"how much of this energy was measured is not known: {note or 'its log does not say'}"
    if share is None:
        if _ended_too_soon(run):
            doctor = ""
        return f"no energy was measured: {why_no_energy(run)}{doctor}"
    chosen = [c for c in run.text("left_out").split() if c in COMPONENTS]
    missing = [c for c in run.text("unmeasured").split() if c in COMPONENTS and c not in chosen]
    left_out = f"; {joined(missing)} could not be measured" if missing else ""
    asked = f"; {joined(chosen)} left out, as asked" if chosen else ""
    if share == 0:
        modelled = f"~ Energy is modelled{left_out}"
        if note:
            modelled += f": {note}"
        return f"{modelled}{asked}{doctor}"
    measured = f"{fmt.percent(share)} of the energy"
    if run.summary.pue != 1:
        measured += " before PUE"
    return f"{measured} was measured{left_out}{asked}"


def node_text(run: Run) -> str:
    """Write what the energy beyond the meters stands for: ``assumed for the rest of the node (1.25 × its GPUs)``."""
    if run.calibration is not None:
        return "difference to a wall meter"
    factor = run.factor("node_overhead")
    times = f" ({fmt.significant(factor.value)} × its GPUs)" if factor else ""
    return f"{method(Method.ASSUMED)} for the rest of the node{times}"


def beyond_gpus(node_overhead: float | None, *, counts_host: bool) -> str:
    """Say what the counters of GPUs leave out, and whether it is in the total.

    Args:
        node_overhead: as it was set.
        counts_host: whether CPU or memory are in the total.
    """
    rest = "The rest of the node"
    if node_overhead is not None:
        taken = f"is assumed: {fmt.significant(node_overhead)} times the GPUs' energy for the whole node"
    else:
        taken = "is in no figure: node_overhead=1.25, say, would assume it"
        if counts_host:
            rest = "CPU and memory are counted beside it; what else the node draws, fans and power supplies,"
    return f"A GPU's counter sees the GPU alone. {rest} {taken}. {_AT_THE_WALL}"


def intensity(factor: Factor) -> str:
    """Write a carbon intensity with its basis, year and source; the source without its details in brackets."""
    source = fmt.shortened(factor.source, FIELD_WIDTH).partition(" (")[0]
    parts = [f"{fmt.significant(factor.value)} g/kWh", fmt.shortened(factor.year, 20), source]
    if factor.basis != "as given":
        parts.insert(0, fmt.shortened(factor.basis, 60))
    return ", ".join(filter(None, parts))


def why_no_energy(run: Run) -> str:
    """Explain why the energy of a run is not known."""
    if _ended_too_soon(run):  # what the meter notes is why it would have modelled, and not measured
        if run.summary.status == RunStatus.RUNNING:
            return METER_STARTING
        return "the run ended before the meter was up"
    note = field_text(run, "meter_note")
    if note:
        return note
    if Flag.METER_FAILED in run.summary.flags:
        return "the meter failed"
    if run.text("meter") == "none":
        return "no meter was running"
    return "nothing was metered"


def _ended_too_soon(run: Run) -> bool:
    """Return True where there is no energy because the meter came up too late."""
    flags = run.summary.flags
    return Flag.METER_STARTING in flags and Flag.METER_FAILED not in flags and run.text("meter") != "none"


def why_no_cost(run: Run) -> str:
    """Explain why the cost of a run is not known."""
    if run.electricity_price is not None:
        whose = " of the GPUs" if run.lacks_gpus else ""
        return f"the energy{whose} is unknown"
    country = field_text(run, "country", 40)
    if country:
        return f"no openly licensed electricity price for {country}"
    return "no country, so no electricity price"


def nodes_sentence(run: Run) -> str:
    """Say of how many of the job's nodes the energy is; empty where it is of all."""
    n_nodes = run.summary.n_nodes
    n_job_nodes = run.amount("job_nodes") or 1
    if n_job_nodes <= n_nodes:
        return ""
    first = "the first" if n_nodes == 1 else f"{n_nodes}"
    return f"its energy is of {first} of {n_job_nodes:.0f} nodes: srun greenlove run … measures each"


def place_sentence(run: Run) -> str:
    """Say that a figure of the world stands for the place's own; empty where the log has one of its own."""
    is_of_table = bool(run.carbon_intensity.table_sha256) and not run.intensity_sources
    if run.text("country") or not is_of_table:
        return ""
    return "no country is set: CO2e is at the world's average intensity (--country, or country=)"


def unmetered_text(run: Run) -> str:
    """Write the time that an estimate stands for: ``1.30 s before the meter was up``."""
    flags = run.summary.flags
    what = "that was not metered"
    if Flag.PREDICTED in flags:
        what = "of epochs that carbontracker predicted"
    elif Flag.METER_STARTING in flags and not flags & {Flag.METER_FAILED, Flag.GPU_UNREAD}:
        what = "before the meter was up"
    return f"{fmt.duration(max(0.0, run.summary.duration_s - run.summary.metered_s))} {what}"


def warnings(run: Run) -> Iterator[str]:
    """Yield what spoils the figures of a run, one sentence each."""
    if run.text("meter") in SIMULATED_METERS:
        yield "The hardware was simulated: the energy is not this machine's."
    flags = run.summary.flags
    if run.summary.energy_kwh is not None or not run.summary.duration_s:
        yield from (text for flag, text in _FLAGS_OF_ENERGY.items() if flag in flags)
    yield from (text for flag, text in _FLAGS.items() if flag in flags)
    if run.text("gpu_note"):
        yield sentence(f"not read: {field_text(run, 'gpu_note')}")
    if run.text("gpu_doubt"):
        yield sentence(field_text(run, "gpu_doubt"))
    if is_mock(run.intensity_sources):
        yield "MOCK: the carbon intensity is invented, and so is the CO2e."
    fallbacks = [source for source in run.intensity_sources if source.is_fallback]
    if fallbacks:
        names = " and ".join(dict.fromkeys(source.described for source in fallbacks))
        why = fmt.shortened(fallbacks[-1].reason, 80)
        yield f"For a part of the time {names} stood in for the intensity ({why})."
    if not run.has_summary and run.summary.status != RunStatus.RUNNING:
        yield "No summary was written: the totals are added up from the rows."
    cut_off = run.cut_off_ranks
    if cut_off:
        which = f"Rank {cut_off[0]}" if len(cut_off) == 1 else f"{len(cut_off):,} of {run.summary.n_ranks:,} ranks"
        yield f"{which} recorded no end: the last work is missing from every figure."
    n_unread = len(run.problems)
    if n_unread:
        yield f"{fmt.plural(n_unread, 'part')} of the log could not be read and {are(n_unread)} left out."


# -- What it took, and in which scope --

_NOT_IN_IT = "Hardware manufacturing is excluded."
_UPSTREAM = {
    "": "Whether upstream emissions are in the carbon intensity is not known.",
    "direct": "Upstream emissions, which are scope 3, are excluded.",
    "lifecycle": "The lifecycle intensity includes upstream emissions, which are scope 3.",
    "direct+lifecycle": "A part of it includes upstream emissions, which are scope 3.",
}


def took(of: Consumption | RunSummary | Totals, tilde: str = "") -> str:
    """Write ``41 min 12 s, 95.9 Wh, 36.6 g of CO2e and $0.04``, with the tilde of a modelled energy."""
    time = "an unknown time"
    energy = "an unknown energy"
    if of.duration_s:
        time = fmt.duration(of.duration_s)
    if of.energy_kwh is not None:
        energy = f"{tilde}{fmt.energy(of.energy_kwh)}"
    known = [time, energy]
    if of.emissions_kgco2e is not None:
        known.append(f"{tilde}{fmt.mass(of.emissions_kgco2e)} of CO2e")
    if of.cost_usd is not None:
        known.append(fmt.money(of.cost_usd))
    return joined(known)


def as_much_as(kgco2e: float, *, has_sources: bool = False) -> str:
    """Say which everyday amounts emit as much: ``as much CO2e as 12 km by new EU car or 103 smartphone charges``."""
    amounts = []
    for everyday in equivalents():
        if everyday.key in _EVERYDAY:
            amount = f"{fmt.significant(kgco2e / everyday.kgco2e_per_unit)} {everyday.label}"
            if has_sources:
                amount += f" ({everyday.source})"
            amounts.append(amount)
    return f"as much CO2e as {' or '.join(amounts)}"


def gpu_hours(value_h: float | None) -> str:
    """Write GPU-hours."""
    if value_h is None:
        return fmt.UNKNOWN
    return f"{fmt.significant(value_h, 2 if value_h < 1 else 3)} GPU-h"


def scope_sentence(*, is_rented: bool, coverage: str) -> str:
    """Say in which scope of the GHG Protocol the electricity is, what is in none, and what of upstream is in it.

    Args:
        is_rented: the machine is somebody else's.
        coverage: of the carbon intensity, as ``Factor`` and ``Totals`` have it.
    """
    of = "Scope 3: electricity of a rented machine" if is_rented else "Scope 2: electricity of an owned machine"
    return f"{of}. {_NOT_IN_IT} {_UPSTREAM[coverage]}"


def stamp(n_simulated: int, n_runs: int) -> str:
    """Return what stands across each page: that runs were simulated, and how many of several."""
    if not n_simulated:
        return ""
    return STAMP if n_simulated == n_runs else f"{STAMP}: {n_simulated:,} of {n_runs:,} runs"


def left_out(n_simulated: int) -> str:
    """Say that simulated runs are in no figure; empty where none was left out."""
    if n_simulated:
        return f"{fmt.plural(n_simulated, 'simulated run')} {are(n_simulated)} left out"
    return ""


# -- Sums --

SUM_COLUMNS = [
    Column("time", 1.5, is_number=True),
    Column("GPU-h", is_number=True),
    *columns({}, ["energy", "CO2e", "cost"], 1.2),
]


def sum_cells(totals: Totals) -> tuple[str, str, str, str, str]:
    """Write the sums of ``SUM_COLUMNS``.

    One that lacks runs carries a star, ``sum_mark`` stands before an energy, and GPU-hours are a dash of no GPU.
    """
    hours = totals.gpu_hours
    mark = sum_mark(totals)
    hours_text = "–"
    if hours is None:
        hours_text = fmt.UNKNOWN
    elif hours:
        hours_text = fmt.significant(hours)
    return (
        fmt.duration(totals.duration_s or None),
        _starred(hours_text, hours, totals.n_unknown_gpu_hours),
        mark + _starred(fmt.energy(totals.energy_kwh), totals.energy_kwh, totals.n_unknown_energy),
        mark + _starred(fmt.mass(totals.emissions_kgco2e), totals.emissions_kgco2e, totals.n_unknown_emissions),
        _starred(fmt.money(totals.cost_usd), totals.cost_usd, totals.n_unknown_cost),
    )


def energy_mark(run: Run) -> str:
    """Return what stands before the energy of a run: ``≥`` where a GPU's is missing, ``~`` where all is modelled."""
    mark = ""
    if run.lacks_energy_of_gpu and not (run.calibration and run.lacks_gpus):  # it holds what is never read
        mark = AT_LEAST
    if not (run.calibration or run.summary.measured_share):
        mark += TILDE
    return mark


def sum_mark(totals: Totals) -> str:
    """Return what stands before the energy of some runs, as ``energy_mark`` of one."""
    mark = ""
    if totals.n_partial:
        mark = AT_LEAST
    if is_all_modelled(totals):
        mark += TILDE
    return mark


def is_all_modelled(totals: Totals) -> bool:
    """Return True where no hardware measured any of a known energy, and no wall meter calibrates it."""
    return totals.measured_share == 0 and not (totals.n_unknown_measured or totals.n_calibrated)


def _starred(text: str, value: float | None, n_unknown: int) -> str:
    return text + STAR if value is not None and n_unknown else text


def sum_notes(totals: Totals) -> Iterator[str]:
    """Yield what the sums over some runs lack, assume or mix, a sentence each."""
    if any(cell.endswith(STAR) for cell in sum_cells(totals)):
        yield "* without the runs for which it is unknown."
    if is_all_modelled(totals):
        yield f"{TILDE} Energy is modelled: no hardware measured it."
    if totals.n_partial:
        runs = fmt.plural(totals.n_partial, "run")
        yield f"{AT_LEAST}In {runs} a GPU could not be read: energy, CO2e and electricity are at least this."
    at_once = [row.facts.host for row, others in zip(totals.rows, overlapping(totals.rows), strict=True) if others]
    if at_once:
        runs = f"{fmt.plural(len(at_once), 'run')} overlap on {joined(sorted(set(at_once)), 3)}"
        twice_kwh = totals.counted_twice_kwh or 0.0
        once = fmt.energy((totals.energy_kwh or 0.0) - twice_kwh)
        twice = f"Up to {fmt.energy(twice_kwh)} is counted twice; counted once, the sum is {once}"
        yield f"! {runs}: each holds what the whole machine drew. {twice}."
    placeless = [row.facts.carbon_intensity for row in totals.rows if not row.facts.country]
    n_of_world = sum(factor is not None and bool(factor.table_sha256) for factor in placeless)  # as place_sentence
    if n_of_world:
        yield f"{fmt.plural(n_of_world, 'run')} without a country: CO2e at the world's average intensity."
    if totals.n_mock_intensity:
        mocked = fmt.plural(totals.n_mock_intensity, "run")
        yield f"! MOCK: the carbon intensity of {mocked} is invented, and so is the CO2e."
    if "+" in totals.intensity_coverage:
        yield "The CO2e mixes direct and lifecycle carbon intensities."
    if totals.n_predicted:
        yield "The sums hold carbontracker's prediction for epochs that it did not monitor."
    if totals.n_calibrated:
        yield f"The energy of {fmt.plural(totals.n_calibrated, 'run')} is calibrated with a wall meter."
    elif totals.node_assumed_kwh:
        yield "The energy includes an assumed node_overhead."
