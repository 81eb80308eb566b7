"""Render a document as plain text for a terminal, within 100 columns.

It is the document that HTML and PDF show, without its charts. The brief screen leaves notes out, puts key figures in
one line, and cuts long tables.
"""

from __future__ import annotations

import itertools
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from greenlove_tracker.rendering import document as doc
from greenlove_tracker.text.format import printable

WIDTH = 100
MARGIN = "  "
_GAP = "  "  # between columns

_BRIEF_ROWS = 8  # of a table
_LEAST_TEXT = 12  # columns that texts of a table are wrapped to


def columns() -> int:
    """Return the width of a screen: that of the terminal, at most ``WIDTH``."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def render(document: doc.Document, *, brief: bool = True) -> str:
    """Return a document as text.

    Args:
        document: the document.
        brief: only the verdict, the blocks before the first heading, and the next steps.
    """
    about = " · ".join(filter(None, (document.title, document.subtitle)))
    heads = [about, document.verdict]
    blocks: Iterable[doc.Block] = document.blocks
    if brief:
        heads = [document.verdict or about]
        blocks = document.brief_blocks
    parts = [wrap(head, "", MARGIN, width=columns()) for head in heads]
    if document.stamp:
        parts.append([f"! {document.stamp}"])
    for kind, alike in itertools.groupby(blocks, type):
        drawn = [_block(block, brief=brief) for block in alike]
        if brief and kind is doc.Paragraph:  # no blank line between them
            parts.append(list(itertools.chain.from_iterable(drawn)))
        else:
            parts += drawn
    parts.append(_next_lines(document.next_steps))
    return printable("\n\n".join("\n".join(lines) for lines in parts if lines))


def _block(block: doc.Block, *, brief: bool) -> list[str]:
    match block:
        case doc.Heading():
            return [block.text, "─" * display_width(block.text)]
        case doc.Paragraph():
            if brief and block.is_note:
                return []
            return wrap(block.text, MARGIN, MARGIN, breaks_hyphens=False, width=columns())
        case doc.KeyFigures():
            return _figures(block, brief=brief)
        case doc.Table():
            is_cut = brief and not block.is_whole
            return _table(block, _BRIEF_ROWS if is_cut else len(block.rows))
        case doc.ChartRow():
            return []  # pages draw them


def _figures(block: doc.KeyFigures, *, brief: bool) -> list[str]:
    """Write each key figure in a line with how it was obtained; in the brief screen all in one line."""
    if not brief:
        rows = []
        for figure in block.figures:
            text = figure.value
            if figure.range:
                text += f" [{figure.range}]"
            rows.append((figure.label, text, figure.note))
        heads = (doc.Column(""), doc.Column("", is_number=True), doc.Column(""))
        return _table(doc.Table(heads, rows), len(rows))
    texts = [figure.brief_text.replace(" ", doc.NO_BREAK) for figure in block.figures]
    return wrap("  ".join(texts), MARGIN, MARGIN, width=columns())


def _table(block: doc.Table, most_rows: int) -> list[str]:
    """Lay out a table. If it does not fit, the widest texts are wrapped, numbers never."""
    heads = [column.title for column in block.columns]
    n_body = len(block.rows) - block.has_total
    rows = [*block.rows[: min(n_body, most_rows)], *block.rows[n_body:]]
    if any(heads):
        rows.insert(0, heads)
    widths = _widths(rows)
    gaps = len(_GAP) * (len(widths) - 1)
    room = columns() - len(MARGIN)
    numbers = [column.is_number for column in block.columns]
    while sum(widths) + gaps > room:
        wide = [i for i, is_number in enumerate(numbers) if not is_number and widths[i] > _LEAST_TEXT]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    ends = [end + len(_GAP) * i for i, end in enumerate(itertools.accumulate(widths))]
    n_fitting = max(2, sum(end <= room for end in ends))
    if n_fitting < len(widths):  # the columns that do not fit stand below, beside the names again
        first = _columns_of(block, range(n_fitting))
        others = _columns_of(block, [0, *range(n_fitting, len(widths))])
        return [*_table(first, most_rows), "", *_table(others, most_rows)]
    lines = [_line(cells, widths, numbers) for row in rows for cells in _wrapped(row, widths)]
    if block.has_total:
        lines.insert(-1, "─" * (sum(widths) + gaps))
    if n_body > most_rows:
        lines.append(f"…  {n_body - most_rows:,} more: --verbose")
    return [MARGIN + line for line in lines]


def _columns_of(block: doc.Table, chosen: Sequence[int]) -> doc.Table:
    rows = [[row[i] for i in chosen] for row in block.rows]
    return replace(block, columns=[block.columns[i] for i in chosen], rows=rows)


def _wrapped(row: doc.Texts, widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the lines of a row, with long cells wrapped to their columns."""
    cells = []
    for cell, width in zip(row, widths, strict=True):
        needed = display_width(cell)
        if needed > width:
            cells.append(wrap(cell, width=max(1, width * len(cell) // needed)))
        else:
            cells.append([cell])
    return list(itertools.zip_longest(*cells, fillvalue=""))


def _next_lines(steps: doc.Texts) -> list[str]:
    if not steps:
        return []
    joined = f"{MARGIN}next  {'        '.join(steps)}"
    if len(joined) <= columns():
        return [joined]
    first, *others = steps
    return [f"{MARGIN}next  {first}", *(f"{MARGIN}      {step}" for step in others)]


# -- Lines of what is not a document yet --


def wrap(
    text: str, first: str = "", further: str = "", *, breaks_hyphens: bool = True, width: int = WIDTH
) -> list[str]:
    """Break a text into lines. Amounts, such as 1 h 2 min, and intervals are not broken.

    Args:
        text: the text; a blank text gives no line.
        first: the indentation of the first line.
        further: the indentation of the other lines.
        breaks_hyphens: whether a line may end at a hyphen; not for names and paths that people copy.
        width: the columns of a line.
    """
    text = doc.unbroken(text)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=further, break_on_hyphens=breaks_hyphens)
    return [line.replace(doc.NO_BREAK, " ") for line in lines]


def display_width(text: str) -> int:
    """Return the columns that ``text`` takes: two for East Asian wide characters, none for combining ones."""
    n_wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    n_combining = sum(unicodedata.combining(c) != 0 for c in text)
    return len(text) + n_wide - n_combining


def table(rows: Sequence[doc.Texts]) -> list[str]:
    """Lay out rows of texts, each column as wide as its longest cell."""
    widths = _widths(rows)
    return [_line(row, widths, [False] * len(widths)) for row in rows]


def _widths(rows: Sequence[doc.Texts]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(*rows, strict=True)]


def _line(cells: doc.Texts, widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = []
    for cell, width, is_number in zip(cells, widths, numbers, strict=True):
        padding = " " * (width - display_width(cell))
        padded.append(padding + cell if is_number else cell + padding)
    return _GAP.join(padded).rstrip()
