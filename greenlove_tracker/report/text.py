"""The terminal's screens: plain text within 100 columns, without markup."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.judged import title
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.report import wording
from greenlove_tracker.report.document import KeyFigure
from greenlove_tracker.report.figures import run_figures
from greenlove_tracker.report.forecasts import outcome_sentence
from greenlove_tracker.report.groups import STAR, STAR_NOTE, Sums

WIDTH = 100
_VALUE_ENDS = 18  # the column, after the margin, where label and value end
_MARGIN = "  "
_MAX_PROBLEMS = 10


def end_screen(run: Run, *, exit_code: int | None, wrote: Sequence[str] = (), next_command: str = "") -> str:
    """What a tracked run says at its end.

    Args:
        run: the run, from its directory.
        exit_code: of the script; None where there is none to tell.
        wrote: the paths written, never shortened.
        next_command: what to type next, never shortened.
    """
    figures = [f for f in run_figures(run) if f.label != "compute" or run.summary.gpu_count]
    lines = [_first_line(run, exit_code), ""]
    lines += [line for figure in figures for line in _figure_lines(figure)]
    lines.append("")
    if outcome := outcome_sentence(run):
        lines += textwrap.wrap(outcome, WIDTH, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    for text in (wording.measured_sentence(run), *wording.warnings(run)):
        lines += textwrap.wrap(text, WIDTH, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    if wrote or next_command:
        lines.append("")
    lines += _wrote_lines(wrote)
    if next_command:
        lines.append(f"{_MARGIN}next    {next_command}")
    return "\n".join(lines)


def _first_line(run: Run, exit_code: int | None) -> str:
    done = wording.progress(run)
    code = f"exit {exit_code}" if exit_code is not None else ""
    ending = "   ".join(part for part in (fmt.shortened(run.summary.status, 16), done, code) if part)
    return f"greenlove  {title(run, WIDTH - len('greenlove  ') - len(ending) - 3)}   {ending}"


def _figure_lines(figure: KeyFigure) -> list[str]:
    value = figure.value.rjust(_VALUE_ENDS - len(figure.label) - 1)
    head = f"{_MARGIN}{figure.label} {value}   "
    indent = " " * (len(_MARGIN) + _VALUE_ENDS + 3)
    return textwrap.wrap(
        figure.how_text, WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    ) or [head.rstrip()]


def _wrote_lines(wrote: Sequence[str]) -> list[str]:
    """In one line where they fit; else one below the other, whole, because paths are there to be copied."""
    if not wrote:
        return []
    line = f"{_MARGIN}wrote   " + "   ".join(wrote)
    if len(line) <= WIDTH:
        return [line]
    return [f"{_MARGIN}{'wrote' if i == 0 else '     '}   {path}" for i, path in enumerate(wrote)]


def summary_table(aggregate: Aggregate, keys: Sequence[str]) -> str:
    """The sums by ``keys`` as one table with its total, then what verifying found and what could not be read, by name.

    Raises:
        UsageError: for a key that does not exist.
    """
    groups = {values: Sums(partial) for values, partial in aggregate.partials_by(*keys).items()}
    if not groups:
        return "\n".join(["no runs", *_problem_lines(aggregate)])
    every = Sums(aggregate.partial)
    body = [([_name(v) for v in values], _number_cells(g)) for values, g in groups.items()]
    body.append((["total", *("" for _ in keys[1:])], _number_cells(every)))
    heads = ["runs", "time", "GPU-h", "energy", "CO2e", "cost"]
    widths = [max(len(heads[i]), *(len(numbers[i]) for _, numbers in body)) for i in range(len(heads))]
    name_widths = _name_widths([list(keys), *(names for names, _ in body)], WIDTH - sum(widths) - 2 * len(widths))
    lines = [_table_line(list(keys), heads, name_widths, widths)]
    lines += [_table_line(names, numbers, name_widths, widths) for names, numbers in body]
    lines.insert(1, "─" * max(map(len, lines)))
    lines.insert(len(lines) - 1, lines[1])
    if any(cell.endswith(STAR) for _, numbers in body for cell in numbers):
        lines += ["", STAR_NOTE]
    return "\n".join(line.rstrip() for line in [*lines, *_verified_lines(aggregate), *_problem_lines(aggregate)])


def _verified_lines(aggregate: Aggregate) -> list[str]:
    found = aggregate.verified
    if found is None:
        return []
    n_verified = found.n_agreeing + found.n_differing
    n_others = aggregate.total.n_runs - n_verified
    others = f"; {n_others:,} with no totals of their own to verify" if n_others else ""
    if not n_verified:
        return ["", f"no run could be verified{others}"]
    differing = {0: "none differs", 1: "1 differs"}.get(found.n_differing, f"{found.n_differing:,} differ")
    return ["", f"{fmt.plural(n_verified, 'run')} verified, {differing}{others}"]


def _number_cells(sums: Sums) -> list[str]:
    time, *others = sums.cells
    return [f"{sums.totals.n_runs:,}", time, sums.gpu_hours, *others]


def _name(value: str) -> str:
    return fmt.shortened(value, WIDTH) or "(none)"


def _name_widths(rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """What each column of names needs, or an equal share of what there is."""
    needed = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    if sum(needed) + 2 * (len(needed) - 1) <= available:
        return needed
    share = max(4, (available - 2 * (len(needed) - 1)) // len(needed))
    return [min(width, share) for width in needed]


def _columns(text: str) -> int:
    """The columns of a terminal that ``text`` takes: two for East Asian wide characters, none for combining ones."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def _table_line(names: Sequence[str], numbers: Sequence[str], name_widths: list[int], widths: list[int]) -> str:
    left = [_fitted(name, width) for name, width in zip(names, name_widths, strict=True)]
    right = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=True)]
    return "  ".join([*left, *right])


def _fitted(name: str, width: int) -> str:
    cut = name
    for length in range(width, 0, -1):
        cut = fmt.shortened(name, length)
        if _columns(cut) <= width:
            break
    return cut + " " * (width - _columns(cut))


def _problem_lines(aggregate: Aggregate) -> list[str]:
    problems = aggregate.problems
    if not problems:
        return []
    lines = [fmt.shortened(str(problem), WIDTH - 2) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS:,} more")
    differs = aggregate.verified is not None and aggregate.verified.n_differing
    heading = "differs from its epochs, or could not be read:" if differs else "could not be read:"
    return ["", heading, *(_MARGIN + line for line in lines)]
