"""The sentence and the table for a paper, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import RunStatus
from greenlove_tracker.report import wording
from greenlove_tracker.report.facts import Facts
from greenlove_tracker.report.figures import gpu_hours
from greenlove_tracker.report.groups import STAR, STAR_NOTE, Sums
from greenlove_tracker.report.scale import time_scale

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
    if is_exploration(run.fields):
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
    return [wording.in_markdown(name) for name in sorted(names) if name]


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
    names = [wording.in_markdown(text) for text in dict.fromkeys(texts)]
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
