"""The parts of a document, without style. Every text in them is data, which a renderer escapes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

Texts = Sequence[str]  # of a row, or of a column
Point = tuple[float, float]  # x and y
Points = Sequence[Point]

NO_BREAK = "\N{NO-BREAK SPACE}"
_AMOUNT = r"(?<![\w.])\d[\d.,]* (?:d|h|min|m?s|[mkM]?Wh|k?W|m?g|kg|t)\b(?: \d+ (?:h|min|s)\b)*"
_WHOLE = re.compile(rf"{_AMOUNT}|\[[^][]{{1,40}}\]")


def unbroken(text: str) -> str:
    """Put no-break spaces within an amount and its unit, and within an interval."""
    return _WHOLE.sub(lambda found: found[0].replace(" ", NO_BREAK), text)


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of running text; a note is set smaller."""

    text: str
    is_note: bool = False


Note = partial(Paragraph, is_note=True)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A key figure, shown as a tile.

    Attributes:
        label: the quantity.
        value: the printed value.
        note: how it is known, in a word or two; why it is unknown.
        range: the printed interval; empty if there is none.
        at: where the value lies in the interval, 0 to 1.
    """

    label: str
    value: str
    note: str = ""
    range: str = ""
    at: float | None = None

    @property
    def brief_text(self) -> str:
        """The value, with its range for time and energy, from which those of others follow, and with a needed label."""
        text = self.value
        if self.range and self.label in ("time", "energy"):
            text += f" [{self.range}]"
        is_told_by_unit = self.label != "CO2e" and any(map(str.isdigit, self.value))
        return text if is_told_by_unit else f"{text} {self.label}"

    @property
    def is_modelled(self) -> bool:
        """True if no hardware measured it, so that it is marked as modelled."""
        return self.note in ("modelled", "simulated", "forecast")


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The figures at the head of a report."""

    figures: Sequence[KeyFigure]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: ``weight`` is its share of the width."""

    title: str
    weight: float = 1.0
    is_number: bool = False


def columns(texts: Mapping[str, float], numbers: Iterable[str] = (), weight: float = 1.0) -> list[Column]:
    """Return columns: texts by their titles, each with its weight; then numbers, all of one weight."""
    return [
        *itertools.starmap(Column, texts.items()),
        *(Column(title, weight, is_number=True) for title in numbers),
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; without titles it has no head.

    Attributes:
        has_total: True if the last row is the sum of the others.
        is_whole: True if the brief screen of a terminal shows all rows.
    """

    columns: Sequence[Column]
    rows: Sequence[Texts]
    has_total: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart, with its name in the legend; a single line needs no name."""

    name: str
    points: Points


@dataclass(frozen=True, slots=True)
class ShadedSpan:
    """A shaded stretch of a chart's x axis, with or without a name."""

    begin: float
    end: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line over a number axis, or several.

    Attributes:
        lines: at least one, each with a point or more, in ascending order of x.
        band: of the first line's uncertainty, each (x, lower, upper), in ascending order of x.
        level: a height that is marked across the chart, with its name.
        is_from_0: the y axis begins at 0, so that heights can be compared; else below the lowest point.
        spans: stretches of x that are shaded.
        x_names: what stands at the ticks of the x axis; empty: round numbers.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    band: Sequence[tuple[float, float, float]] = ()
    level: tuple[float, str] | None = None
    is_from_0: bool = True
    spans: Sequence[ShadedSpan] = ()
    x_names: Sequence[tuple[float, str]] = ()

    @property
    def is_by_number(self) -> bool:
        """True if x is the number of an epoch or a trial."""
        return self.x_label.partition(" ")[0] in ("epoch", "trial")


@dataclass(frozen=True, slots=True)
class MarkedPoint:
    """A point with the ranges of both values. The chosen point and this machine are shown with their names."""

    name: str
    x: float
    y: float
    x_range: Point | None = None
    y_range: Point | None = None
    is_named: bool = False
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class MarkChart:
    """Points by two quantities. Both axes begin at 0; with ``is_from_0=False`` the y axis does not."""

    title: str
    x_label: str
    y_label: str
    marks: Sequence[MarkedPoint]
    is_from_0: bool = True


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Columns side by side, each a stack: ``series`` are (name, a height for each label), the first at the bottom."""

    title: str
    y_label: str
    labels: Texts
    series: Sequence[tuple[str, Sequence[float]]]


Chart = LineChart | MarkChart | ColumnChart


@dataclass(frozen=True, slots=True)
class ChartRow:
    """Charts side by side."""

    charts: Sequence[Chart]


Block = Heading | Paragraph | KeyFigures | Table | ChartRow
Blocks = list[Block]
BlockIterator = Iterator[Block]  # of a part of a document


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report.

    Attributes:
        title: the name of what it is about.
        subtitle: further facts to know it by.
        footer: stands on every page.
        blocks: its parts.
        verdict: the answer in a sentence or two, which stands before all else.
        stamp: a word that stands across each page, such as SIMULATED; empty: none.
        next_steps: commands that somebody at a terminal would type next, each with what it is for.
    """

    title: str
    subtitle: str = ""
    footer: str = ""
    blocks: Sequence[Block] = ()
    verdict: str = ""
    stamp: str = ""
    next_steps: Texts = ()

    @property
    def brief_blocks(self) -> Iterable[Block]:
        """The blocks before the first heading, which hold the answer."""
        return itertools.takewhile(lambda block: not isinstance(block, Heading), self.blocks)
