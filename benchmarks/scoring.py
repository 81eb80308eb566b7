"""Scores of forecasts: coverage with its binomial error, error, width and interval score."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LEVELS = (0.5, 0.8, 0.95)
Intervals = Mapping[float, tuple[float, float]]


@dataclass
class Score:
    """The scores of one method in one scenario."""

    covered: dict[float, list[bool]] = field(default_factory=lambda: {level: [] for level in LEVELS})
    errors: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def add(self, intervals: Intervals, point_s: float, truth_s: float) -> None:
        """Add one forecast; a method without intervals gives none."""
        self.errors.append(abs(point_s / truth_s - 1))
        for level, (lower, upper) in intervals.items():
            self.covered[level].append(lower <= truth_s <= upper)
        if 0.95 in intervals:
            lower, upper = intervals[0.95]
            self.widths.append((upper - lower) / truth_s)
            miss = max(lower - truth_s, 0.0) + max(truth_s - upper, 0.0)
            self.scores.append((upper - lower + 2 / 0.05 * miss) / truth_s)

    def cells(self) -> list[str]:
        """Return coverage at each level, median error, mean width and mean interval score."""
        covers = [coverage(self.covered[level]) for level in LEVELS]
        width = f"{np.mean(self.widths) * 100:.2f}%" if self.widths else "none"
        score = f"{np.mean(self.scores):.4f}" if self.scores else "none"
        return [*covers, f"{np.median(self.errors) * 100:.2f}%", width, score]


COLUMNS = ("covers 50%", "80%", "95%", "median error", "width", "interval score")


def coverage(hits: list[bool]) -> str:
    """Return the share of hits in per cent, with the half-width of its 95% binomial interval."""
    if not hits:
        return "none"
    share = float(np.mean(hits))
    error = math.sqrt(max(share * (1 - share), 0.25 / len(hits)) / len(hits))
    return f"{share * 100:.1f} ±{1.96 * error * 100:.1f}"


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table; the first two columns are words, the others numbers."""
    lines = [
        "| " + " | ".join(heads) + " |",
        "|" + "|".join("---" if i < 2 else "--:" for i in range(len(heads))) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def told(text: str, page: Path | None, begin: str, end: str) -> None:
    """Print a text, and put it between the marks of a page where one is given."""
    print(text)
    if page:
        put_into(page, text, begin, end)


def tell_of_recordings(doc: str, report: Callable[[Path], str], begin: str, end: str) -> None:
    """Run a script of the command line: print its report of a folder of recordings, and put it into a page if asked."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the recordings")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    arguments = parser.parse_args()
    told(report(arguments.runs), arguments.into, begin, end)


def put_into(page: Path, text: str, begin: str, end: str) -> None:
    """Replace what is between the two marks of a page."""
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        raise SystemExit(f"{page} lacks the marks {begin} and {end}")
    page.write_text(f"{old.partition(begin)[0]}{begin}\n{text}\n{end}{old.partition(end)[2]}", encoding="utf-8")
