"""The parts of a document, without a style. Every text in them is data: whoever draws them escapes it."""

from __future__ import annotations

import itertools
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
    SAVES = "saves"
    COSTS_MORE = "costs_more"
    UNCLEAR = "unclear"

    @property
    def meaning(self) -> str:
        """The name in a legend; a plain bar needs none."""
        return _MEANINGS.get(self, self.value)


_MEANINGS = {
    BarStyle.PLAIN: "",
    BarStyle.OVERHEAD: "cooling and power supply (PUE)",
    BarStyle.PROJECTED: "projected onto another machine; the thin line is its 90% range",
    BarStyle.COSTS_MORE: "costs more",
    BarStyle.UNCLEAR: "no difference seen: the interval holds the baseline",
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
    """A figure, as a tile of its own.

    Attributes:
        label: what it is.
        value: as it is printed.
        note: how it is known, in a word or two; of one that is "unknown" why.
        range: both ends of its interval, as it is printed; empty: none is known.
        at: where the value lies between them, 0..1.
    """

    label: str
    value: str
    note: str = ""
    range: str = ""
    at: float | None = None

    @property
    def is_modelled(self) -> bool:
        """True where no hardware measured it, for the accent of models."""
        return self.note in ("modelled", "simulated", "forecast")

    @property
    def how(self) -> str:
        """The note and the range in one line."""
        return " · ".join(filter(None, (self.note, f"95% range {self.range}" if self.range else "")))


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
    """A table; without titles it has no head.

    Attributes:
        has_total: the last row is the sum of the others.
        is_whole: the brief screen of a terminal shows all rows too.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    has_total: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart, with its name in the legend; one alone needs none."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class ShadedSpan:
    """A stretch of a chart's x axis that is shaded, with a name or without."""

    begin: float
    end: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line over a number axis, or several.

    Attributes:
        points: of the first line, at least one, in ascending order of x.
        dots: single measurements beside it, each (x, y).
        band: of the line's uncertainty, each (x, lower, upper), in ascending order of x.
        level: a height that is marked across the chart, with its name.
        name: of the first line, where there are others.
        others: further lines.
        is_from_0: the y axis begins at 0, so that heights can be compared; else below the lowest point.
        spans: stretches of x that are shaded.
        x_names: what stands at the ticks of the x axis; empty: round numbers.
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
    is_from_0: bool = True
    spans: tuple[ShadedSpan, ...] = ()
    x_names: tuple[tuple[float, str], ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines."""
        return (Line(self.name, self.points), *self.others)

    @property
    def is_by_number(self) -> bool:
        """True where x is the number of an epoch or of a trial."""
        return self.x_label.partition(" ")[0] in ("epoch", "trial")


@dataclass(frozen=True, slots=True)
class MarkedPoint:
    """A point with the ranges of both its values; one that is the choice, or this machine, stands out by its name."""

    name: str
    x: float
    y: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    is_named: bool = False
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class MarkChart:
    """Points by two quantities, both from 0 on unless ``is_from_0`` is False, of the y axis."""

    title: str
    x_label: str
    y_label: str
    marks: tuple[MarkedPoint, ...]
    is_from_0: bool = True


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Columns side by side, each a stack: ``series`` are (name, a height for each label), the first at the bottom."""

    title: str
    y_label: str
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]


Chart = LineChart | MarkChart | ColumnChart


@dataclass(frozen=True, slots=True)
class ChartRow:
    """Charts side by side."""

    charts: tuple[Chart, ...]


_MOST_OF_BASELINE = 2.0  # that intervals are drawn to
_EXTENT_MARGIN = 0.03  # beside the longest bars
_LEAST_EXTENT = 0.01  # of the baseline, to both sides where nothing differs from it


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
    """Horizontal bars, in the order given: from 0, or to both sides of a baseline.

    Attributes:
        baseline: the value that bars begin at, which is marked; 0: they begin at the left edge.
        baseline_name: what stands below it, beside the changes from it in percent.
    """

    bars: tuple[Bar, ...]
    title: str = ""
    baseline: float = 0.0
    baseline_name: str = "baseline"

    @property
    def longest(self) -> float:
        """The end of the longest bar, or of its interval."""
        ends = (bar.range[1] if bar.range else bar.value or 0.0 for bar in self.bars)
        return max(ends, default=0.0) or 1.0

    @property
    def extent(self) -> tuple[float, float]:
        """The values at both edges; around a baseline an interval that reaches beyond twice of it is cut off."""
        if not self.baseline:
            return 0.0, self.longest
        values = [bar.value for bar in self.bars if bar.value is not None]
        ranges = [end for bar in self.bars for end in bar.range or ()]
        most = max([_MOST_OF_BASELINE * self.baseline, *values])
        low, high = (
            min([self.baseline, *values, *ranges]),
            max([self.baseline, *values, *(min(r, most) for r in ranges)]),
        )
        margin = max(_EXTENT_MARGIN * (high - low), _LEAST_EXTENT * self.baseline - (high - low))
        return max(0.0, low - margin), high + margin

    def share(self, value: float) -> float:
        """Return where a value lies between both edges, from 0 to 1."""
        low, high = self.extent
        return min(1.0, max(0.0, (value - low) / (high - low)))

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


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that are shown as they are, their indentation included, such as those of a file."""

    text: str


Block = Heading | Paragraph | KeyFigures | Table | ChartRow | BarChart | Calculations | Verbatim


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
    subtitle: str
    footer: str
    blocks: tuple[Block, ...]
    verdict: str = ""
    stamp: str = ""
    next_steps: tuple[str, ...] = ()

    @property
    def brief_blocks(self) -> tuple[Block, ...]:
        """What stands before the first heading: the answer, without what is behind it."""
        return tuple(itertools.takewhile(lambda block: not isinstance(block, Heading), self.blocks))
