"""The findings of a comparison, on the terminal and as plain values for JSON and CSV; the report has its words."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.comparisons import Comparison, ComparisonRow, Verdict, WholeRun, is_modelled
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.terminal import MARGIN, WIDTH, display_width, wrap
from greenlove_tracker.report import wording
from greenlove_tracker.report.projection_screen import interval_fields

_LEAST_WIDTH = 36
_LABEL = 11  # columns
_LONGEST_NAME = 34  # columns of an arm's name in a table
_MOST_SAID = 3  # arms that the headline goes through where none saves
_ONE_DECIMAL = (
    0.01  # of the baseline: intervals that reach no farther from their middle are told to a tenth of a percent
)
_ONE_OFF_TOLD = 0.01  # share of the whole from which what is spent once has a column

QUANTITIES = {
    "time_ratio": "time",
    "energy_ratio": "energy",
    "co2e_ratio": "CO2e",
    "cost_ratio": "cost",
    "memory_ratio": "peak memory",
}
"""What is compared: its short name, by the field of the ratio."""

# -- What the screen and the page say in the same words --


def change_text(ratio: Estimate | None) -> str:
    """Write a ratio to the baseline as a change with its interval: ``−31% (−35 to −27)``; ``unknown`` without one."""
    if ratio is None or not math.isfinite(ratio.point):
        return fmt.UNKNOWN
    decimals = _decimals(ratio)
    lower, point, upper = (_signed(end - 1, decimals) for end in (ratio.lower, ratio.point, ratio.upper))
    if not ratio.has_interval or lower == point == upper:
        return f"{point}%"
    return f"{point}% ({lower} to {upper})"


def _decimals(ratio: Estimate) -> int:
    return int(0 < ratio.upper - ratio.lower < 2 * _ONE_DECIMAL or 0 < abs(ratio.point - 1) < _ONE_DECIMAL / 2)


def _signed(change: float, decimals: int) -> str:
    if not math.isfinite(change):
        return fmt.UNKNOWN
    text = f"{change * 100:+,.{decimals}f}"
    return "0" if not float(text.replace(",", "")) else text.replace("-", "−")


def share_text(ratio: Estimate, of_what: str) -> str:
    """Write what is saved or spent more: ``31% of the energy (27 to 35%)``, ``14% more time (12 to 16%)``."""
    decimals, is_saved = _decimals(ratio), ratio.point < 1
    ends = (1 - ratio.upper, 1 - ratio.lower) if is_saved else (ratio.lower - 1, ratio.upper - 1)
    share, lower, upper = (f"{value * 100:,.{decimals}f}" for value in (abs(1 - ratio.point), *ends))
    interval = f" ({lower} to {upper}%)" if ratio.has_interval and not lower == share == upper else ""
    return f"{share}% {'of the' if is_saved else 'more'} {of_what}{interval}"


def headline(comparison: Comparison) -> str:
    """Return the answer in one sentence: what saves most, and how sure that is; or that nothing does."""
    rows = comparison.rows
    ran = [row for row in rows if row.verdict is not Verdict.NOT_RUN]
    saving = [row for row in ran if row.verdict is Verdict.SAVES]
    if not rows:
        return f"Nothing was compared with {comparison.baseline.name}"
    if not ran:
        if len(rows) == 1:
            return f"{rows[0].name} was not run: {rows[0].reason}"
        return f"None of the {len(rows)} techniques could be run; the reasons are below"
    if saving:
        return _saving_headline(comparison, saving)
    if len(ran) == 1:
        return _row_sentence(comparison, ran[0])
    if all(row.verdict is Verdict.TOO_SHORT for row in ran):
        return f"{Verdict.TOO_SHORT.value.capitalize()}: {_what_would_tell(comparison, ran)}"
    return ". ".join(["No technique shows a saving", *_not_saving(comparison, ran)])


def _saving_headline(comparison: Comparison, saving: Sequence[ComparisonRow]) -> str:
    first, others = saving[0], saving[1:]
    is_of_time = first.energy_ratio is None or is_modelled(comparison.energy_method)
    field = "time_ratio" if is_of_time else "energy_ratio"
    most: Estimate | None = getattr(first, field)
    tied = [row.name for row in others if most and (own := getattr(row, field)) and own.lower <= most.upper]
    less = [row.name for row in others if row.name not in tied]
    text = _row_sentence(comparison, first)
    if first.learns_otherwise:
        text += f"; {first.learns_otherwise}"
    if tied:
        text += f"; {_listed(tied)} may save as much, as the intervals overlap"
    if less:
        text += f"; {_listed(less)} {'saves' if len(less) == 1 else 'save'} less"
    return text


def _not_saving(comparison: Comparison, rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a sentence for each arm that costs more or does not differ, and one for all that were too short."""
    short = [row for row in rows if row.verdict is Verdict.TOO_SHORT]
    told = [_row_sentence(comparison, row) for row in rows if row not in short]
    more = [f"{len(told) - _MOST_SAID} more below"] if len(told) > _MOST_SAID else []
    of_short = f"{_listed([row.name for row in short])}: {Verdict.TOO_SHORT}" if short else ""
    return [*told[:_MOST_SAID], *more, *([of_short] if of_short else [])]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _row_sentence(comparison: Comparison, row: ComparisonRow) -> str:
    """Return what an arm does: ``amp-bf16 saves 31% of the energy (27 to 35%) and 38% of the time (36 to 40%)``."""
    if row.verdict is Verdict.TOO_SHORT:
        return f"{row.name}: {too_short_text(comparison, row)}"
    named = {
        f"{'modelled ' if is_modelled(comparison.energy_method) else ''}energy": row.energy_ratio,
        "time": row.time_ratio,
    }
    if is_modelled(comparison.energy_method):
        named = dict(reversed(named.items()))
    known = {name: ratio for name, ratio in named.items() if ratio is not None}
    saved = [share_text(ratio, name) for name, ratio in known.items() if ratio.upper < 1]
    spent = [share_text(ratio, name) for name, ratio in known.items() if ratio.lower > 1]
    same = [name for name, ratio in known.items() if ratio.lower <= 1 <= ratio.upper]
    memory = row.memory_ratio
    is_smaller = memory is not None and memory.upper < 1
    if not saved and not spent:
        text = f"{row.name}: {Verdict.NO_DIFFERENCE} in {' and '.join(same) or 'anything'}"
        return f"{text}, but it saves {share_text(memory, 'peak memory')}" if memory and is_smaller else text
    text = f"{row.name} " + ", but ".join(
        f"{verb} {' and '.join(shares)}" for verb, shares in (("saves", saved), ("takes", spent)) if shares
    )
    if same:
        text += f", with {Verdict.NO_DIFFERENCE} in {' and '.join(same)}"
    if spent and memory and is_smaller:
        text += f", and saves {share_text(memory, 'peak memory')}"
    return text


def too_short_text(comparison: Comparison, row: ComparisonRow) -> str:
    """Return that the trials were too short, and what would tell."""
    return f"{Verdict.TOO_SHORT}: {_what_would_tell(comparison, [row])}"


def _what_would_tell(comparison: Comparison, rows: Sequence[ComparisonRow]) -> str:
    budgets_s = [row.budget_s for row in rows if row.budget_s is not None]
    if comparison.is_of_runs:
        return "more runs of each may tell"
    return f"try --budget {math.ceil(max(budgets_s))}" if budgets_s else "try a longer --budget"


def energy_caveat(comparison: Comparison) -> str:
    """Return what a model in the energy means for its ratio; empty where all of it was measured, or none."""
    methods = set(filter(None, comparison.energy_method.split("+")))
    if not any(map(is_modelled, methods)) or all(row.energy_ratio is None for row in comparison.rows):
        return ""
    words = wording.method(comparison.energy_method)
    if is_modelled(comparison.energy_method):
        return f"{words}: a ratio of modelled energies says little beyond the ratio of the times"
    return f"in part a model ({words}): that part depends on time alone"


def how_measured(comparison: Comparison) -> str:
    """Return in one line how it was measured: ``12 trials of 5.2 s in 6 blocks · residual 1.8% · energy: counter``."""
    trials = comparison.trials
    parts = []
    if trials:
        noun = "run" if comparison.is_of_runs else "trial"
        lengths_s = [trial.duration_s for trial in trials]
        length = fmt.duration(statistics.median(lengths_s))
        if comparison.is_of_runs and max(lengths_s) > 1.1 * min(lengths_s):
            length = f"{fmt.duration(min(lengths_s))} to {fmt.duration(max(lengths_s))}"
        blocks = fmt.plural(len({trial.block for trial in trials}), "block")
        parts.append(f"{fmt.plural(len(trials), noun)} of {length}{'' if comparison.is_of_runs else f' in {blocks}'}")
    if comparison.residual_cv is not None:
        parts.append(f"residual {fmt.percent(comparison.residual_cv, 1)}")
    energy = wording.method(comparison.energy_method) if comparison.energy_method else "not measured"
    parts.append(f"energy: {energy}")
    if comparison.budget_s is not None:
        parts.append(f"took {fmt.duration(comparison.spent_s)} of {fmt.duration(comparison.budget_s)}")
    return " · ".join(parts)


def ratio_columns(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the changes that are known of any arm that ran, with their titles; what is alike stands in one column.

    CO2e goes with energy, and cost with energy or time, wherever their factors are the same for all arms. A star is of
    energies that a model gave.
    """
    ran = rows_that_ran(comparison)
    star = wording.STAR if energy_caveat(comparison) else ""
    found: dict[tuple[str, ...], list[str]] = {}
    for field, name in QUANTITIES.items():
        cells = tuple(change_text(getattr(row, field)) for row in ran)
        if any(cell != fmt.UNKNOWN for cell in cells):
            is_of_energy = field in ("energy_ratio", "co2e_ratio") or (
                field == "cost_ratio" and cells == tuple(change_text(row.energy_ratio) for row in ran)
            )
            found.setdefault(cells, []).append(f"{name}{star if is_of_energy else ''}")
    return [(", ".join(names), list(cells)) for cells, names in found.items()]


def unknown_text(comparison: Comparison) -> str:
    """Return which quantities are not known of any arm; empty where each is known of one."""
    ran = rows_that_ran(comparison)
    missing = [name for field, name in QUANTITIES.items() if all(getattr(row, field) is None for row in ran)]
    if not missing or not ran:
        return ""
    why = ": no energy was measured for long enough" if "energy" in missing and not comparison.is_of_runs else ""
    return f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} {fmt.UNKNOWN}{why}"


def whole_columns(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return what the whole training takes by each arm that ran, after the baseline; nothing that is not known."""
    rows = (comparison.baseline, *rows_that_ran(comparison))
    columns = []
    for field, (name, _) in fmt.QUANTITIES.items():
        estimates: list[Estimate | None] = [getattr(row.whole_run, field) for row in rows]
        known = [estimate for estimate in estimates if estimate is not None]
        if known:
            unit, text = fmt.in_one_unit(field, known[0].point)
            cells = [_whole_cell(estimate, text) for estimate in estimates]
            columns.append((f"{name}, {unit}", cells))
    if columns and any(_is_told_once(row) for row in rows):
        cells = [fmt.duration(row.one_off_s) if row.one_off_s else "" for row in rows]
        columns.append(("one-off part", cells))
    return columns


def _is_told_once(row: ComparisonRow) -> bool:
    whole = row.whole_run.duration_s
    return whole is not None and (row.one_off_s or 0.0) > _ONE_OFF_TOLD * whole.point


def _whole_cell(estimate: Estimate | None, text: fmt.Text) -> str:
    if estimate is None:
        return fmt.UNKNOWN
    return fmt.interval(estimate, text) if estimate.lower < estimate.upper else text(estimate.point)


def loss_text(comparison: Comparison) -> str:
    """Return the losses at the end of the trials, each after as many samples; empty where none is known."""
    rows = (comparison.baseline, *rows_that_ran(comparison))
    losses = [f"{row.name} {fmt.significant(row.final_loss, 4)}" for row in rows if row.final_loss is not None]
    return f"after as many samples: {' · '.join(losses)}" if losses else ""


def rows_that_ran(comparison: Comparison) -> list[ComparisonRow]:
    """Return the arms beside the baseline that ran, in their order."""
    return [row for row in comparison.rows if row.verdict is not Verdict.NOT_RUN]


def remarks(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what else there is to know, each with its label: what was not run, notes, and what is not as before."""
    found = [("not run", f"{row.name}: {row.reason}") for row in comparison.rows if row.verdict is Verdict.NOT_RUN]
    found += [("unknown", text)] if (text := unknown_text(comparison)) else []
    found += [(wording.STAR, text)] if (text := energy_caveat(comparison)) else []
    found += [("loss", text)] if (text := loss_text(comparison)) else []
    label = "learnt" if comparison.is_of_runs else "! loss"
    found += [(label, f"{row.name}: {row.learns_otherwise}") for row in comparison.rows if row.learns_otherwise]
    for name, note in notes_by_arm(comparison):
        found.append(("note", f"{name}: {_continued(note)}"))
    found += [("note", note) for note in comparison.notes]
    return found


def notes_by_arm(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the notes of the baseline and of the arms that ran, each with the name of its arm."""
    rows = (comparison.baseline, *rows_that_ran(comparison))
    return [(row.name, note.removeprefix(f"{row.name}: ")) for row in rows for note in row.notes]


def _continued(sentence: str) -> str:
    """Write a sentence behind a name and a colon: without its capital, unless that is of an abbreviation."""
    first, _, _ = sentence.partition(" ")
    return sentence[:1].lower() + sentence[1:] if first[1:].islower() else sentence


# -- The screen --


def comparison_screen(
    comparison: Comparison, *, pages: Sequence[str | os.PathLike[str]] = (), width: int = WIDTH
) -> str:
    """Return the answer, the arms in a table, what else there is to know, and how it was measured.

    Args:
        comparison: of techniques, or of logged runs.
        pages: the reports that were written of it.
        width: columns of the terminal; what does not fit beside the names stands in a further table.
    """
    width = min(max(width, _LEAST_WIDTH), WIDTH)
    ran = rows_that_ran(comparison)
    lines = [*wrap(headline(comparison), "", MARGIN, breaks_hyphens=False, width=width), ""]
    if ran:
        names = [row.name for row in ran]
        verdicts = ("", [str(row.verdict) for row in ran])
        lines += _tables(f"against {comparison.baseline.name}", names, [verdicts, *ratio_columns(comparison)], width)
        too_short = [row for row in ran if row.verdict is Verdict.TOO_SHORT]
        for row in too_short if len(ran) > 1 else ():
            lines += _labelled("too short", f"{row.name}: {_what_would_tell(comparison, [row])}", width)
        lines += [""] if too_short and len(ran) > 1 else []
    whole = whole_columns(comparison)
    if whole and ran:
        lines += _tables("whole training", [comparison.baseline.name, *(row.name for row in ran)], whole, width)
    said = remarks(comparison)
    for label, text in said:
        lines += _labelled(label, text, width)
    lines += [""] if said else []
    lines += _labelled("measured", how_measured(comparison), width)
    saved = pages or ([] if comparison.run_dir is None else [comparison.run_dir])
    for i, path in enumerate(saved):  # whole, to be copied
        lines.append(f"{MARGIN}{'' if i else 'saved':<{_LABEL}}{os.fspath(path)}")
    for text in comparison.left_changed:
        lines += wrap(f"NOT PUT BACK: {text}", "! ", "  ", width=width)
    return "\n".join(lines)


def _labelled(label: str, text: str, width: int) -> list[str]:
    return wrap(text, f"{MARGIN}{label:<{_LABEL}}", MARGIN + " " * _LABEL, breaks_hyphens=False, width=width)


def _tables(title: str, names: Sequence[str], columns: Sequence[tuple[str, list[str]]], width: int) -> list[str]:
    """Lay out columns beside names: as many in one table as fit, the others in further ones; each ends with a line.

    Where even one does not fit, the cells of each name stand below it.
    """
    longest = max(_LONGEST_NAME if width == WIDTH else width // 2, 8)
    room = min(longest, max(display_width(text) for text in (title, *names)))
    if max(display_width(text) for head, cells in columns for text in (head, *cells)) > width - room - 2 * len(MARGIN):
        return _stacked(title, names, columns, width)
    groups: list[list[tuple[str, list[str]]]] = [[]]
    taken = room + len(MARGIN)
    for column in columns:
        needed = len(MARGIN) + max(map(display_width, (column[0], *column[1])))
        if groups[-1] and taken + needed > width:
            groups.append([])
            taken = room + len(MARGIN)
        groups[-1].append(column)
        taken += needed
    lines = []
    for group in filter(None, groups):
        heads = (title, *(head for head, _ in group))
        rows = [heads, *zip(names, *(cells for _, cells in group), strict=True)]
        alignment = "<" + "".join("<" if not head else ">" for head in heads[1:])
        lines += [f"{MARGIN}{line}" for line in terminal.table(rows, alignment, widths=[room])]
        lines.append("")
    return lines


def _stacked(title: str, names: Sequence[str], columns: Sequence[tuple[str, list[str]]], width: int) -> list[str]:
    lines = wrap(f"{title}:", MARGIN, MARGIN, width=width)
    for i, name in enumerate(names):
        lines += wrap(name, MARGIN, MARGIN * 2, breaks_hyphens=False, width=width)
        for head, cells in columns:
            text = f"{head}: {cells[i]}" if head else cells[i]
            lines += wrap(text, MARGIN * 2, MARGIN * 3, breaks_hyphens=False, width=width)
    return [*lines, ""]


# -- Plain values --


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Return all of a comparison as one object for JSON; what is not known is null, not zero."""
    return {"says": headline(comparison), **_plain(asdict(comparison))}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: no path, no tuple, and no number that is none."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case PurePath():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case str():
            return str(value)
    return value


def comparison_csv(comparison: Comparison) -> str:
    """Return one row an arm, the baseline first; what is not known is empty, not zero."""
    rows = [_row_values(row) for row in (comparison.baseline, *comparison.rows)]
    return csv_text(list(rows[0]), rows)


def _row_values(row: ComparisonRow) -> dict[str, Any]:
    whole: WholeRun = row.whole_run
    return {
        "name": row.name,
        "verdict": str(row.verdict),
        **{
            key: value for field in QUANTITIES for key, value in interval_fields(field, "", getattr(row, field)).items()
        },
        "n_trials": row.n_trials,
        "duration_s_per_sample": row.duration_s_per_sample,
        "peak_memory_gb": row.peak_memory_gb,
        "one_off_s": row.one_off_s,
        "final_loss": row.final_loss,
        **interval_fields("whole_duration", "_s", whole.duration_s),
        **interval_fields("whole_energy", "_kwh", whole.energy_kwh),
        **interval_fields("whole_emissions", "_kgco2e", whole.emissions_kgco2e),
        **interval_fields("whole_cost", "_usd", whole.cost_usd),
        "budget_s": row.budget_s,
        "reason": row.reason,
        "notes": "; ".join(row.notes),
        "learns_otherwise": row.learns_otherwise,
    }
