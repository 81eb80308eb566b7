"""Charts as inline SVG: they fill any width without a script; the page's CSS gives colours.

Across, positions are shares of the width; downwards they are pixels. So text keeps its size on a phone and on paper.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from greenlove_tracker.rendering.axes import Plot, Shape, change_ticks, plot
from greenlove_tracker.rendering.document import Bar, BarChart, BarStyle, Chart, ColumnChart, KeyFigure, LineChart

_TOP_PX, _PLOT_PX, _HEIGHT_PX = 24.0, 160.0, 224.0
_BAR_PX = 16.0
_CHARACTER_PX = 7.0  # of a tick's label; a little more than any common font takes
_LEAST_PERCENT = 0.3  # of a bar, so that it can be seen
_EDGE = 0.08  # of the width: labels there are not centred, and so stay within


def visible(text: str) -> str:
    """Return ``text`` in one line without control characters, overrides of direction and lone surrogates."""
    return "".join(c if c.isprintable() else " " for c in text)


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """Return an element of SVG; an underscore in an attribute's name is a hyphen, or nothing at the name's end."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"' for key, value in attributes.items()
    )
    content = "".join(escape(child if isinstance(child, Markup) else visible(child)) for child in children)
    return Markup(f"<{name}{given}>{content}</{name}>")  # noqa: S704  # every part of it is escaped


def _attribute(value: str | float) -> str:
    return visible(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def definitions() -> Markup:
    """Return the definitions that the page's CSS refers to: the hatching of modelled bars."""
    line = element("path", d="M-1 1l2-2M0 6l6-6M5 7l2-2", class_="hatch-line")
    ground = element("rect", width=6, height=6, class_="hatch-ground")
    hatch = element("pattern", ground, line, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse")
    return element("svg", element("defs", hatch), class_="definitions", width=0, height=0, aria_hidden="true")


def chart(drawn: Chart, chart_id: str) -> Markup:
    """Draw a chart with its axes and its legend."""
    of = plot(drawn)
    left_px = 12 + _CHARACTER_PX * max(len(label) for _, label in of.y_ticks)
    x_label = "" if isinstance(drawn, ColumnChart) else drawn.x_label
    flat = [shape for shape in of.shapes if shape.kind in ("area", "line")]
    picture = element(
        "svg",
        element("title", f"{drawn.title}. {_description(drawn, of)}", id=f"{chart_id}-title"),
        *(_y_tick(1 - share, label) for share, label in of.y_ticks),
        *(_x_tick(share, label) for share, label in of.x_ticks),
        element("text", drawn.y_label, x=-left_px, y=12),
        element("text", x_label, x="100%", y=_HEIGHT_PX - 6, class_="end"),
        element("text", of.note, x="100%", y=12, class_="end level-name"),
        element("svg", *map(_flat, flat), **_STRETCHED),
        *(_upright(shape) for shape in of.shapes if shape.kind in ("dot", "text")),
        class_="chart",
        role="img",
        height=_HEIGHT_PX,
        aria_labelledby=f"{chart_id}-title",
    )
    room = element("div", picture, class_="plot", style=f"--left:{left_px:.0f}px")
    entries = (element("span", _swatch(kind, look), name) for kind, look, name in of.legend)
    return room + (element("p", *entries, class_="legend") if of.legend else Markup())


# As wide as the chart: positions across are thousandths of its width.
_STRETCHED: dict[str, str | float] = {
    "width": "100%",
    "height": _HEIGHT_PX,
    "viewBox": f"0 0 1000 {_HEIGHT_PX:.0f}",
    "preserveAspectRatio": "none",
}


def _flat(shape: Shape) -> Markup:
    name = "polygon" if shape.kind == "area" else "polyline"
    spots = " ".join(f"{x * 1000:.1f},{_down(y):.1f}" for x, y in shape.points)
    return element(name, points=spots, class_=shape.look)


def _upright(shape: Shape) -> Markup:
    ((x, y),) = shape.points
    left, top = f"{x:.2%}", _down(y)
    if shape.kind == "dot":
        return element("circle", element("title", shape.text), cx=left, cy=top, r=3, class_=f"dot {shape.look}")
    is_end, of_mark = shape.look.endswith("end"), shape.look.startswith("mark")
    dx, dy = -8 if is_end else 8, -6 if of_mark else 4
    return element("text", shape.text, x=left, y=top, dx=dx, dy=dy, class_=f"{'end' if is_end else 'start'} name")


def _down(share: float) -> float:
    return _TOP_PX + _PLOT_PX * (1 - share)


def _y_tick(share: float, label: str) -> Markup:
    y_px = _TOP_PX + _PLOT_PX * share
    line = element("line", x1=-3, x2="100%", y1=y_px, y2=y_px, class_="rule" if share < 1 else "axis")
    return line + element("text", label, x=-8, y=y_px + 4, class_="end")


def _x_tick(share: float, label: str) -> Markup:
    bottom_px, x = _TOP_PX + _PLOT_PX, f"{share:.2%}"
    line = element("line", x1=x, x2=x, y1=bottom_px, y2=bottom_px + 4, class_="axis")
    return line + element("text", label, x=x, y=bottom_px + 18, class_="middle")


def _swatch(kind: str, look: str) -> Markup:
    """Draw a piece of a line or of a layer in its style, for the legend."""
    shape = "polyline" if kind == "line" else "polygon"
    points = "0,5 26,5" if kind == "line" else "0,0 14,0 14,9 0,9"
    return element(
        "svg", element(shape, points=points, class_=look), class_="swatch", width=26, height=10, aria_hidden="true"
    )


def _description(drawn: Chart, of: Plot) -> str:
    if isinstance(drawn, LineChart):
        ends = "; ".join(f"{line.name or 'it'} ends at {line.points[-1][1]:,.4g}" for line in drawn.lines)
        return f"Over {drawn.x_label}, in {drawn.y_label}: {ends}"
    return f"From {of.y_ticks[0][1]} to {of.y_ticks[-1][1]} {drawn.y_label}"


def tile_range(figure: KeyFigure) -> Markup:
    """Draw the range of a key figure as a small bar, with its value marked."""
    if figure.at is None:
        return Markup()
    x = f"{figure.at:.1%}"
    bar = element("rect", x=0, y=3, width="100%", height=4, class_="extent")
    mark = element("line", x1=x, x2=x, y1=0, y2=10, class_="value")
    return element("svg", bar, mark, class_="range", height=10, aria_hidden="true")


def bar(shown: Bar, chart: BarChart, bar_id: str) -> Markup:
    """Draw one bar with its interval, from 0 or from the baseline; none where its value is not known."""
    meaning = f" ({shown.style.meaning})" if shown.style.meaning else ""
    return element(
        "svg",
        element("title", f"{shown.label}: {shown.text}{meaning}", id=bar_id),
        *([] if shown.value is None else [_bar_box(shown.value, shown.style, chart)]),
        *([] if shown.range is None else _whisker(shown.range, chart)),
        *([] if not chart.baseline else [_baseline(chart)]),
        class_="bar",
        role="img",
        height=_BAR_PX,
        aria_labelledby=bar_id,
    )


def _bar_box(value: float, style: BarStyle, chart: BarChart) -> Markup:
    left, right = (chart.share(end) * 100 for end in sorted((chart.baseline, value)))
    return _box(f"{max(_LEAST_PERCENT, right - left):.2f}%", _BAR_PX - 2, style, left)


def _baseline(chart: BarChart) -> Markup:
    x = f"{chart.share(chart.baseline):.2%}"
    return element("line", x1=x, x2=x, y1=-4, y2=_BAR_PX + 4, class_="baseline")


def bar_axis(chart: BarChart) -> Markup:
    """Draw the axis below bars around a baseline: its name, and the changes from it in percent."""
    shapes: list[Markup] = []
    for share, label in change_ticks(chart):
        x, side = f"{share:.2%}", "start" if share < _EDGE else "end" if share > 1 - _EDGE else "middle"
        shapes.append(element("line", x1=x, x2=x, y1=0, y2=4, class_="axis"))
        shapes.append(element("text", label, x=x, y=16, class_=side))
    line = element("line", x1="0%", x2="100%", y1=0, y2=0, class_="axis")
    return element("svg", line, *shapes, class_="bar", height=20, aria_hidden="true")


def _whisker(ends: Iterable[float], chart: BarChart) -> list[Markup]:
    """Draw the line of an interval, with a rim that parts it from its bar; an end that is cut off has no cap."""
    middle, (low, high) = _BAR_PX / 2, chart.extent
    x1, x2 = (f"{chart.share(end):.2%}" for end in ends)
    shapes = [element("line", x1=x1, x2=x2, y1=middle, y2=middle, class_=name) for name in ("rim", "whisker")]
    caps = [f"{chart.share(end):.2%}" for end in ends if low <= end <= high]
    return [*shapes, *(element("line", x1=x, x2=x, y1=middle - 4, y2=middle + 4, class_="whisker") for x in caps)]


def swatch(style: BarStyle) -> Markup:
    """Draw a small box in the style of a bar, for the legend."""
    return element("svg", _box("100%", 8, style), class_="swatch", width=16, height=10, aria_hidden="true")


def _box(width: str, height_px: float, style: BarStyle, left_percent: float = 0.0) -> Markup:
    place = {"x": f"{left_percent:.2f}%"} if left_percent else {}
    return element("rect", **place, y=1, width=width, height=height_px, class_=f"look-{style}")
