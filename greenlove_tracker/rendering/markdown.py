"""Render a document as Markdown; charts become tables of their figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.html import fill

_MOST_ROWS = 12  # of a chart's figures


def render(document: doc.Document) -> str:
    """Return a document as Markdown."""
    return fill("page.md", document=document, line_figures=line_figures) + "\n"


def line_figures(chart: doc.LineChart) -> tuple[doc.Texts, Sequence[doc.Texts]]:
    """Return the head and the rows of a chart's lines, thinned out."""
    heads = [", ".join(filter(None, (line.name, chart.y_label))) for line in chart.lines]
    lines = [{x: f"{y:,.4g}" for x, y in line.points} for line in chart.lines]
    xs = set[float]().union(*lines)
    names = dict(chart.x_names)
    shown = sorted(xs.intersection(names)) or sorted(xs)[:: math.ceil(len(xs) / _MOST_ROWS)]
    rows = [(names.get(x, f"{x:,.6g}"), *(figures.get(x, "") for figures in lines)) for x in shown]
    return [chart.x_label, *heads], rows
