"""Charts as inline SVG: they fill any width without a script; the page's CSS gives colours.

Across, positions are shares of the width; downwards they are pixels. So text keeps its size on a phone and on paper.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from greenlove_tracker.rendering.axes import Plot, Shape, plot
from greenlove_tracker.rendering.document import Chart, ColumnChart, KeyFigure, LineChart

_TOP_PX, _PLOT_PX, _HEIGHT_PX = 24.0, 160.0, 224.0
_CHARACTER_PX = 7.0  # of a tick's label; a little more than any common font takes


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
        *(_x_tick(share, label, is_odd=i % 2 == 1) for i, (share, label) in enumerate(of.x_ticks)),
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


def _x_tick(share: float, label: str, *, is_odd: bool) -> Markup:
    bottom_px, x = _TOP_PX + _PLOT_PX, f"{share:.2%}"
    line = element("line", x1=x, x2=x, y1=bottom_px, y2=bottom_px + 4, class_="axis")
    return line + element("text", label, x=x, y=bottom_px + 18, class_="middle odd" if is_odd else "middle")


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
