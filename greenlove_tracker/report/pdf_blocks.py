"""The blocks of a report as reportlab draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

from reportlab.lib.units import mm
from reportlab.platypus import CondPageBreak, Flowable, Spacer
from reportlab.platypus import Paragraph as Text
from reportlab.platypus import Table as Grid

from greenlove_tracker.format import plural
from greenlove_tracker.report import fonts
from greenlove_tracker.report import typography as look
from greenlove_tracker.report.charts import bar_chart, line_chart
from greenlove_tracker.report.document import (
    BarChart,
    Block,
    Calculations,
    ChartRow,
    Document,
    Heading,
    KeyFigures,
    Paragraph,
    Table,
)

_SHORT_TABLE_ROWS = 14  # up to so many, a table stays on the page of its heading as a whole
_SHORT_TABLE = 1000  # of so many characters at most
_TABLE_BEGINS_PT = 130.0  # what of a longer one stays with its heading
_BETWEEN_CHARTS_PT = 18.0
_BELOW_BARS_PT = 8.0
_FEW_PAGES = 2  # need no contents


@dataclass(frozen=True, slots=True)
class Pages:
    """How many there are, and on which each heading stands."""

    count: int = 0
    of_headings: tuple[int, ...] = ()


class HeadingText(Text):
    """The title of a section, which the contents lead to."""

    def __init__(self, title: str, number: int) -> None:
        super().__init__(look.markup(title), look.HEADING)
        self.title, self.anchor = title, _anchor(number)


def _anchor(number: int) -> str:
    return f"s{number}"


def story(content: Document, width_pt: float, pages: Pages) -> list[Flowable]:
    """All of a document; its contents name the pages that an earlier layout found.

    Args:
        content: the document.
        width_pt: of the text.
        pages: of that layout; the first one has none.
    """
    flowables: list[Flowable] = [
        Text(look.markup(content.title), look.TITLE),
        Text(look.markup(content.subtitle), look.SUBTITLE),
        *_spelt_note(content),
    ]
    numbers = count()
    for block, following in zip_longest(content.blocks, content.blocks[1:]):
        may_split = isinstance(following, Table) and not _is_short(following)
        if may_split:
            flowables.append(CondPageBreak(_TABLE_BEGINS_PT))
        if isinstance(block, Heading):
            number = next(numbers)
            flowables += _contents(content, pages) if number == 0 else []
            heading = HeadingText(block.text, number)
            heading.keepWithNext = not may_split
            flowables.append(heading)
        else:
            flowables += _flowables(block, width_pt)
        if isinstance(block, Table) and _is_short(block) and _is_note(following):
            flowables[-1].keepWithNext = 1
    return flowables


def _is_short(table: Table) -> bool:
    return len(table.rows) <= _SHORT_TABLE_ROWS and sum(len(cell) for row in table.rows for cell in row) <= _SHORT_TABLE


def _is_note(block: Block | None) -> bool:
    return isinstance(block, Paragraph) and block.is_note


def _spelt_note(content: Document) -> list[Flowable]:
    missing = fonts.undrawable(repr(content))
    if not missing:
        return []
    text = (
        f"{plural(len(missing), 'character')} of this report that no font found here has: written as code points, such "
        f"as {look.markup(min(missing))}. A font such as WenQuanYi Zen Hei (fonts-wqy-zenhei) shows more; the page of "
        "HTML shows all."
    )
    return [Text(text, look.NOTE)]


def _contents(content: Document, pages: Pages) -> list[Flowable]:
    """The headings with their pages, in one paragraph; nothing in a short report."""
    titles = [block.text for block in content.blocks if isinstance(block, Heading)]
    if pages.count <= _FEW_PAGES or len(titles) != len(pages.of_headings):
        return []
    entries = []
    for number, (title, page) in enumerate(zip(titles, pages.of_headings, strict=True)):
        at = f'\N{NO-BREAK SPACE}<font name="{fonts.BOLD}">{page}</font>'
        entries.append(f'<link href="#{_anchor(number)}">{look.markup(title)}</link>{at}')
    return [Text(f"Contents: {' · '.join(entries)}", look.NOTE)]


def _flowables(block: Block, width_pt: float) -> list[Flowable]:
    match block:
        case Heading():
            return []  # story() sees to them
        case Paragraph():
            return [Text(look.markup(block.text), look.NOTE if block.is_note else look.BODY)]
        case KeyFigures():
            return [_key_figures(block, width_pt)]
        case Table():
            return [_table(block, width_pt)]
        case BarChart():
            return _bar_chart(block, width_pt)
        case ChartRow():
            return [_chart_row(block, width_pt)]
        case Calculations():
            return [_calculations(block, width_pt)]


def _bar_chart(block: BarChart, width_pt: float) -> list[Flowable]:
    """The bars, kept together with their title where they have one."""
    if not block.title:
        return [bar_chart(block, width_pt)]
    title = Text(look.markup(block.title), look.CHART_TITLE)
    title.keepWithNext = 1
    return [title, bar_chart(block, width_pt), Spacer(1, _BELOW_BARS_PT)]


def _grid(rows: Sequence[Sequence[Any]], widths_pt: Sequence[float], extra: Sequence[Any], **more: Any) -> Grid:
    base: list[Any] = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("LEFTPADDING", (0, 0), (-1, -1), 0),
        ("RIGHTPADDING", (0, 0), (-1, -1), 7),
        ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
        ("TOPPADDING", (0, 0), (-1, -1), 3),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 3.5),
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, look.RULE),
    ]
    return Grid(
        [list(row) for row in rows],
        colWidths=list(widths_pt),
        style=[*base, *extra],
        hAlign="LEFT",
        spaceAfter=6,
        **more,
    )


def _chart_row(block: ChartRow, width_pt: float) -> Grid:
    each_pt = (width_pt - _BETWEEN_CHARTS_PT * (len(block.charts) - 1)) / len(block.charts)
    cells = [[Text(look.markup(c.title), look.CHART_TITLE), line_chart(c, each_pt)] for c in block.charts]
    widths_pt = [each_pt + _BETWEEN_CHARTS_PT] * (len(cells) - 1) + [each_pt]
    style = [("LINEBELOW", (0, 0), (-1, -1), 0, look.WHITE), ("RIGHTPADDING", (0, 0), (-1, -1), 0)]
    return _grid([cells], widths_pt, style)


def _key_figures(block: KeyFigures, width_pt: float) -> Grid:
    rows = [
        [
            Text(look.markup(figure.label), look.FIGURE_LABEL),
            Text(look.markup(figure.value), look.FIGURE_VALUE),
            Text(look.markup(figure.how_text), look.FIGURE_HOW),
        ]
        for figure in block.figures
    ]
    widths_pt = (20 * mm, 43 * mm, width_pt - 63 * mm)
    spacing = [("TOPPADDING", (0, 0), (-1, -1), 5), ("LINEABOVE", (0, 0), (-1, 0), 1.2, look.GREEN)]
    return _grid(
        rows, widths_pt, [*spacing, ("TOPPADDING", (0, 0), (0, -1), 7.5), ("TOPPADDING", (2, 0), (2, -1), 8.5)]
    )


def _table(block: Table, width_pt: float) -> Grid:
    has_head = any(column.title for column in block.columns)
    rows = []
    if has_head:
        styles = [look.CELL_NUMBER_HEAD if c.is_number else look.CELL_HEAD for c in block.columns]
        heads = zip(block.columns, styles, strict=True)
        rows.append([Text(look.markup(column.title), style) for column, style in heads])
    for i, cells in enumerate(block.rows):
        is_total = block.has_total and i == len(block.rows) - 1
        rows.append(
            [_cell(cell, column.is_number, is_total) for cell, column in zip(cells, block.columns, strict=True)]
        )
    unit_pt = width_pt / sum(column.weight for column in block.columns)
    extra = [("LINEBELOW", (0, 0), (-1, 0), 0.8, look.GREY)] if has_head else []
    if block.has_total:
        extra.append(("LINEABOVE", (0, -1), (-1, -1), 0.8, look.GREY))
    widths_pt = [column.weight * unit_pt for column in block.columns]
    return _grid(rows, widths_pt, extra, repeatRows=int(has_head))


def _cell(text: str, is_number: bool, is_total: bool) -> Text:
    styles = {
        (False, False): look.CELL,
        (False, True): look.CELL_BOLD,
        (True, False): look.CELL_NUMBER,
        (True, True): look.CELL_NUMBER_BOLD,
    }
    return Text(look.markup(text), styles[is_number, is_total])


def _calculations(block: Calculations, width_pt: float) -> Grid:
    rows = [
        [Text(look.markup(line.label), look.CELL_HEAD), Text(look.markup(line.text), look.CELL)] for line in block.lines
    ]
    box = [
        ("BACKGROUND", (0, 0), (-1, -1), look.PALE),
        ("LEFTPADDING", (0, 0), (0, -1), 8),
        ("LINEBELOW", (0, 0), (-1, -1), 0.4, look.WHITE),
    ]
    return _grid(rows, (58 * mm, width_pt - 58 * mm), box)
