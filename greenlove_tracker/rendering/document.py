"""The parts of a document, without a style. Every text in them is data: whoever draws them escapes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BarStyle(StrEnum):
    """The styles of bars, which differ without colour too."""

    PLAIN = "plain"
    MEASURED = "measured"
    MODELLED = "modelled"
    ESTIMATED = "estimated"
    OVERHEAD = "overhead"
    PROJECTED = "projected"

    @property
    def meaning(self) -> str:
        """The name in a legend; a plain bar needs none."""
        return _MEANINGS.get(self, self.value)


_MEANINGS = {
    BarStyle.PLAIN: "",
    BarStyle.OVERHEAD: "cooling and power supply (PUE)",
    BarStyle.PROJECTED: "projected onto another machine; the thin line is its 90% range",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of running text; a note is set smaller."""

    text: str
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure with how it was obtained; of one that is "unknown" ``how`` says why."""

    label: str
    value: str
    how: tuple[str, ...]

    @property
    def how_text(self) -> str:
        """The parts of ``how`` as one line."""
        return " · ".join(self.how)


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The figures at the head of a report."""

    figures: tuple[KeyFigure, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: ``weight`` is its share of the width."""

    title: str
    weight: float = 1.0
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; with ``has_total`` its last row is the sum of the others; without titles it has no head."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    has_total: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart, with its name in the legend; one alone needs none."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line over a number axis, or several; the y axis begins at 0.

    Attributes:
        points: of the first line, at least one, in ascending order of x.
        dots: single measurements beside it, each (x, y).
        band: of the line's uncertainty, each (x, lower, upper), in ascending order of x.
        level: a height that is marked across the chart, with its name.
        name: of the first line, where there are others.
        others: further lines.
    """

    title: str
    x_label: str
    y_label: str
    points: tuple[tuple[float, float], ...]
    dots: tuple[tuple[float, float], ...] = ()
    band: tuple[tuple[float, float, float], ...] = ()
    level: tuple[float, str] | None = None
    name: str = ""
    others: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines."""
        return (Line(self.name, self.points), *self.others)

    @property
    def x_values(self) -> tuple[float, ...]:
        """The x of everything drawn."""
        of_others = (point for line in self.others for point in line.points)
        return tuple(values[0] for values in (*self.points, *of_others, *self.dots, *self.band))

    @property
    def highest(self) -> float:
        """The highest y of everything drawn."""
        of_others = (point for line in self.others for point in line.points)
        drawn = (*self.points, *of_others, *self.dots, *self.band)
        return max(*(values[-1] for values in drawn), self.level[0] if self.level else 0)

    @property
    def is_by_epoch(self) -> bool:
        """True where x is the number of an epoch, of the run or of a trial."""
        return self.x_label.partition(" ")[0] == "epoch"


@dataclass(frozen=True, slots=True)
class ChartRow:
    """Charts side by side."""

    charts: tuple[LineChart, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, with the text that stands behind it.

    Attributes:
        value: its length; None: it is not known, and no bar is drawn.
        range: lower and upper end of its interval, drawn as a line over its end.
    """

    label: str
    value: float | None
    text: str
    style: BarStyle = BarStyle.PLAIN
    range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars from 0, in the order given."""

    bars: tuple[Bar, ...]
    title: str = ""

    @property
    def longest(self) -> float:
        """The end of the longest bar, or of its interval."""
        ends = (bar.range[1] if bar.range else bar.value or 0.0 for bar in self.bars)
        return max(ends, default=0.0) or 1.0

    @property
    def styles(self) -> tuple[BarStyle, ...]:
        """The styles that need a legend, in its order."""
        return tuple(style for style in BarStyle if style.meaning and any(bar.style is style for bar in self.bars))


@dataclass(frozen=True, slots=True)
class Calculation:
    """Arithmetic that a reader can repeat: ``expression`` comes to ``result``, as both are printed."""

    label: str
    expression: str
    result: str

    @property
    def text(self) -> str:
        """The arithmetic as one line."""
        return f"{self.expression} = {self.result}"


@dataclass(frozen=True, slots=True)
class Calculations:
    """Calculations, one below the other."""

    lines: tuple[Calculation, ...]


Block = Heading | Paragraph | KeyFigures | Table | ChartRow | BarChart | Calculations


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. ``footer`` stands on every page."""

    title: str
    subtitle: str
    footer: str
    blocks: tuple[Block, ...]
