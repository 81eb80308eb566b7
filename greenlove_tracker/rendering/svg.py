"""Charts as inline SVG from chart descriptions: they fill any width without a script; the page's CSS gives colours.

Across, positions are shares of the width; downwards they are pixels. So text keeps its size on a phone and on paper.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from greenlove_tracker.format import plural
from greenlove_tracker.rendering.axes import change_ticks, nice_ticks, point_number, stretches, tick_labels, y_ticks
from greenlove_tracker.rendering.document import Bar, BarChart, BarStyle, LineChart

_TOP_PX, _PLOT_PX, _HEIGHT_PX = 24.0, 124.0, 188.0
_BAR_PX = 16.0
_CHARACTER_PX = 7.0  # of a tick's label; a little more than any common font takes
_MAX_DOTS = 40  # of points that are marked one by one
N_LINE_STYLES = 5  # that differ without colour; further lines begin anew
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


def line_chart(chart: LineChart, chart_id: str) -> Markup:
    """Draw lines over a number axis; what is said of their points lies over it (``points``)."""
    x_low, x_high = min(chart.x_values), max(chart.x_values)
    ticks = y_ticks(chart)

    def down(y: float) -> float:
        return (ticks[-1] - y) / (ticks[-1] - ticks[0])

    def spot(x: float, y: float) -> tuple[float, float]:
        return (x - x_low) / (x_high - x_low or 1.0) * 100, _TOP_PX + _PLOT_PX * down(y)

    lines = [[spot(x, y) for x, y in line.points] for line in chart.lines]
    band = [spot(x, low) for x, low, _ in chart.band] + [spot(x, high) for x, _, high in reversed(chart.band)]
    labels = tick_labels(ticks)
    left_px = _left_px(labels)
    x_ticks = nice_ticks(x_low, x_high, 6, only_whole=chart.is_by_number)
    return element(
        "svg",
        element("title", chart.title, id=f"{chart_id}-title"),
        element("desc", _description(chart), id=f"{chart_id}-desc"),
        *(_y_tick(down(tick), label) for tick, label in zip(ticks, labels, strict=True)),
        *(_x_tick(spot(t, ticks[0])[0], label) for t, label in zip(x_ticks, tick_labels(x_ticks), strict=True)),
        element("text", chart.y_label, x=-left_px, y=12),
        element("text", chart.x_label, x="100%", y=_HEIGHT_PX - 6, class_="end"),
        _stretched(
            *([_shape("polygon", band)] if band else []),
            *(_shape("polyline", spots, i) for i, spots in enumerate(lines)),
        ),
        *([] if chart.level is None else [_level(down(chart.level[0]), chart.level[1])]),
        *(dot for i, spots in enumerate(lines) for dot in _dots(chart, spots, i)),
        *_measured(chart, [spot(x, y) for x, y in chart.dots]),
        class_="line-chart",
        role="img",
        height=_HEIGHT_PX,
        aria_labelledby=f"{chart_id}-title",
        aria_describedby=f"{chart_id}-desc",
    )


def _left_px(labels: Sequence[str]) -> float:
    return 12 + _CHARACTER_PX * max(map(len, labels))


def margin(chart: LineChart) -> Markup:
    """Return the room that the labels of the y axis take, for the element around a chart."""
    left_px = _left_px(tick_labels(y_ticks(chart)))
    return Markup(f"--left:{left_px:.0f}px")  # noqa: S704  # a number


def points(chart: LineChart, group: str) -> Markup:
    """Return what can be pointed at, touched, or reached by Tab and the arrow keys: radio buttons of one group.

    Each lies over its part of the chart, unseen, and shows its numbers while it has the pointer or the focus.
    """
    return Markup().join(
        element(
            "label",
            Markup(f'<input type="radio" name="{escape(group)}">'),  # noqa: S704  # it has no end tag
            *([] if part.y is None else [element("i", style=f"top:{_TOP_PX + _PLOT_PX * (1 - part.y):.1f}px")]),
            element("span", part.text),
            style=f"--l:{part.left:.2%};--w:{part.right - part.left:.2%};--x:{part.x:.2%}",
        )
        for part in stretches(chart)
    )


def _y_tick(share: float, label: str) -> Markup:
    y_px = _TOP_PX + _PLOT_PX * share
    line = element("line", x1=-3, x2="100%", y1=y_px, y2=y_px, class_="rule" if share < 1 else "axis")
    return line + element("text", label, x=-8, y=y_px + 4, class_="end")


def _x_tick(percent: float, label: str) -> Markup:
    bottom_px, x = _TOP_PX + _PLOT_PX, f"{percent:.2f}%"
    line = element("line", x1=x, x2=x, y1=bottom_px, y2=bottom_px + 4, class_="axis")
    return line + element("text", label, x=x, y=bottom_px + 18, class_="middle")


def _level(share: float, name: str) -> Markup:
    """Draw a height that is marked across, and its name above the plot."""
    y_px = _TOP_PX + _PLOT_PX * share
    line = element("line", x1="0%", x2="100%", y1=y_px, y2=y_px, class_="level")
    return line + element("text", name, x="100%", y=12, class_="end level-name")


def _shape(name: str, spots: Sequence[tuple[float, float]], number: int = 0) -> Markup:
    look = {"class_": _line_class(number)} if number else {}
    return element(name, points=" ".join(f"{x * 10:.1f},{y:.1f}" for x, y in spots), **look)


def _line_class(number: int) -> str:
    return f"line-{number % N_LINE_STYLES}"


def line_swatch(number: int) -> Markup:
    """Draw a piece of a line in its style, for the legend."""
    line = element("polyline", points="0,5 26,5", class_=_line_class(number))
    return element("svg", line, class_="swatch", width=26, height=10, aria_hidden="true")


def _stretched(*shapes: Markup) -> Markup:
    """Draw shapes as wide as the chart: positions across are thousandths of its width."""
    return element(
        "svg",
        *shapes,
        width="100%",
        height=_HEIGHT_PX,
        viewBox=f"0 0 1000 {_HEIGHT_PX:.0f}",
        preserveAspectRatio="none",
    )


def _dots(chart: LineChart, spots: Sequence[tuple[float, float]], number: int) -> list[Markup]:
    """Mark few epochs one by one."""
    if not chart.is_by_number or len(spots) > _MAX_DOTS:
        return []
    style = f"dot dot-{number % N_LINE_STYLES}" if number else "dot"
    return [element("circle", cx=f"{left:.2f}%", cy=top, r=2.6, class_=style) for left, top in spots]


def _measured(chart: LineChart, spots: Sequence[tuple[float, float]]) -> list[Markup]:
    """Draw the single measurements, each with its numbers."""
    return [
        element("circle", element("title", _point_text(chart, *dot)), cx=f"{x:.2f}%", cy=y, r=3.4, class_="measured")
        for dot, (x, y) in zip(chart.dots, spots, strict=True)
    ]


def _point_text(chart: LineChart, x: float, y: float) -> str:
    return f"{chart.x_label}: {point_number(x)} · {point_number(y)} {chart.y_label}"


def _description(chart: LineChart) -> str:
    if chart.others:
        ends = "; ".join(f"{line.name} ends at {point_number(line.points[-1][1])}" for line in chart.lines)
        return f"{plural(len(chart.lines), 'line')} over {chart.x_label}. In {chart.y_label}: {ends}."
    values = [y for _, y in chart.points]
    (x_first, _), (x_last, y_last) = chart.points[0], chart.points[-1]
    besides = [f" With {plural(len(chart.dots), 'single measurement')}."] if chart.dots else []
    if chart.band:
        _, low, high = chart.band[-1]
        besides.append(f" The band around it ends at {point_number(low)} to {point_number(high)}.")
    if chart.level:
        besides.append(f" Marked across: {chart.level[1]}.")
    lowest, highest, last = (point_number(value) for value in (min(values), max(values), y_last))
    return (
        f"A line over {chart.x_label}, from {point_number(x_first)} to {point_number(x_last)}. In {chart.y_label}: "
        f"lowest {lowest}, highest {highest}, last {last}.{''.join(besides)}"
    )


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


def _whisker(ends: tuple[float, float], chart: BarChart) -> list[Markup]:
    """Draw the line of an interval, with a rim that parts it from its bar; an end that is cut off has no cap."""
    middle = _BAR_PX / 2
    x1, x2 = (f"{chart.share(end):.2%}" for end in ends)
    shapes = [element("line", x1=x1, x2=x2, y1=middle, y2=middle, class_=name) for name in ("rim", "whisker")]
    low, high = chart.extent
    caps = [f"{chart.share(end):.2%}" for end in ends if low <= end <= high]
    return [*shapes, *(element("line", x1=x, x2=x, y1=middle - 4, y2=middle + 4, class_="whisker") for x in caps)]


def swatch(style: BarStyle) -> Markup:
    """Draw a small box in the style of a bar, for the legend."""
    return element("svg", _box("100%", 8, style), class_="swatch", width=16, height=10, aria_hidden="true")


def _box(width: str, height_px: float, style: BarStyle, left_percent: float = 0.0) -> Markup:
    place = {"x": f"{left_percent:.2f}%"} if left_percent else {}
    return element("rect", **place, y=1, width=width, height=height_px, class_=f"look-{style}")
