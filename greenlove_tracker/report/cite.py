"""The sentence and the table for a paper, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import RunStatus
from greenlove_tracker.report import wording
from greenlove_tracker.report.figures import gpu_hours, measured_share
from greenlove_tracker.report.groups import STAR, STAR_NOTE, Group, group
from greenlove_tracker.report.scale import time_scale

_FAILED = frozenset({RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.TERMINATED})
_MAX_NAMED = 4


def cite(aggregate: Aggregate) -> str:
    """Energy, CO2e, GPU-hours, hardware and time over final, preliminary and failed runs.

    Final are the runs tagged ``final`` that did not fail; failed those that failed, were interrupted or terminated;
    exploratory those that only made a forecast; preliminary the rest. Where no run is tagged, all that did not fail
    are one group, and a note says so.
    """
    if not aggregate.runs:
        return "No run could be read: there is nothing to cite."
    runs = list(aggregate.runs)  # each look at them reads them again
    groups, note = _groups(runs)
    every = group(runs)
    table = [_row(name, members) for name, members in groups]
    rows = [*table, *([_row("total", every)] if len(table) > 1 else [])]
    has_star = any(STAR in row for row in rows)
    parts = [
        " ".join(_sentences(every, groups)),
        "\n".join(["| runs | number | time | GPU-hours | energy | CO2e |", "|:--|--:|--:|--:|--:|--:|", *rows]),
        "\\" + STAR_NOTE if has_star else "",
        note,
    ]
    return "\n\n".join(part for part in parts if part)


def _groups(runs: Sequence[Run]) -> tuple[list[tuple[str, Group]], str]:
    failed = [run for run in runs if run.summary.status in _FAILED]
    well = [run for run in runs if run.summary.status not in _FAILED]
    explored = [run for run in well if is_exploration(run.fields)]
    others = [run for run in well if not is_exploration(run.fields)]
    final = [run for run in others if "final" in _tags(run)]
    if final:
        rest = [run for run in others if "final" not in _tags(run)]
        named, note = [("final", final), ("preliminary", rest)], ""
    else:
        named = [("runs", others)]
        note = 'No run is tagged "final": all that did not fail are counted as one group.'
    named += [("exploratory", explored), ("failed or interrupted", failed)]
    return [(name, group(members)) for name, members in named if members], note


def _tags(run: Run) -> set[str]:
    return {tag.strip() for tag in run.text("tags").split(",")}


def _sentences(every: Group, groups: Sequence[tuple[str, Group]]) -> list[str]:
    totals, runs = every.totals, every.runs
    counts = _listed([f"{members.totals.n_runs:,} {name}" for name, members in groups if name != "runs"])
    detail = f" ({counts})" if counts else ""
    compute = f" and {gpu_hours(totals.gpu_hours)}" if totals.gpu_hours else ""
    sentences = [
        f"The experiments took {fmt.plural(totals.n_runs, 'run')}{detail} on {_hardware(runs)}, "
        f"{_time(totals.duration_s)} of wall time{compute}.",
        _energy_sentence(every),
        _intensity_sentence(runs),
        _measured_sentence(runs),
        _tool_sentence(runs),
    ]
    return [sentence for sentence in sentences if sentence]


def _time(duration_s: float) -> str:
    scale = time_scale(duration_s)
    return f"{fmt.significant(scale.value(duration_s))} {scale.unit}"


def _energy_sentence(every: Group) -> str:
    totals = every.totals
    if totals.energy_kwh is None:
        return "Their energy is unknown, and so are their emissions."
    pues = sorted({run.summary.pue for run in every.runs if run.summary.energy_kwh is not None})
    pue = f"PUE {pues[0]}" if len(pues) == 1 else f"PUE {pues[0]} to {pues[-1]}"
    energy = f"{fmt.energy(totals.energy_kwh)} (including {pue}{_unknown_for(totals.n_unknown_energy)})"
    if every.emissions_kgco2e is None:
        return f"They used {energy}; the emissions are unknown."
    emissions = fmt.mass(every.emissions_kgco2e)
    missing = _unknown_for(every.n_unknown_emissions).removeprefix("; ")
    return f"They used {energy} and emitted {emissions} of CO2e{f' ({missing})' if missing else ''}."


def _unknown_for(n_runs: int) -> str:
    return f"; unknown for {fmt.plural(n_runs, 'run')}" if n_runs else ""


def _hardware(runs: Sequence[Run]) -> str:
    names = {wording.data(r, "gpu_models", 60) or wording.data(r, "cpu_model", 60) for r in runs} - {""}
    return _listed([wording.in_markdown(name) for name in sorted(names)]) or "hardware that the logs do not name"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        shown.append(f"{len(names) - _MAX_NAMED:,} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _intensity_sentence(runs: Sequence[Run]) -> str:
    known = [run.carbon_intensity for run in runs if wording.intensity_is_known(run)]
    if not known:
        return "No carbon intensity is in the logs."
    names = [
        wording.in_markdown(wording.intensity(factor).replace("g/kWh", "gCO2e/kWh")) for factor in dict.fromkeys(known)
    ]
    return f"Carbon intensity: {'; '.join(names[:_MAX_NAMED])}{'; and others' if len(names) > _MAX_NAMED else ''}."


def _measured_sentence(runs: Sequence[Run]) -> str:
    share = measured_share(runs)
    if share is None:
        return ""
    rest = f", {fmt.percent(1 - share)} modelled or estimated" if share < 1 else ""
    left_out = ", ".join(wording.NOT_COUNTED)
    return f"Of the energy {fmt.percent(share)} was measured by hardware{rest}; not counted: {left_out}."


def _tool_sentence(runs: Sequence[Run]) -> str:
    numbers = {wording.in_markdown(wording.data(run, "greenlove_version", 20)) for run in runs} - {""}
    versions = [f"greenlove_tracker {version}" for version in sorted(numbers)] or ["greenlove_tracker"]
    meters = {wording.in_markdown(wording.data(run, "meter", 40)) for run in runs} - {"", "none"}
    return f"Recorded with {_listed([*versions, *sorted(meters)])}."


def _row(name: str, members: Group) -> str:
    time, energy, emissions, _ = members.cells
    totals = members.totals
    hours = fmt.significant(totals.gpu_hours)
    cells = (name, f"{totals.n_runs:,}", time, hours, energy, emissions)
    return "| " + " | ".join(cell.replace(STAR, "\\" + STAR) for cell in cells) + " |"
