"""What waiting for a cleaner hour saves: ours, simple rules, persistence and the oracle, on a year of grids.

    python benchmarks/carbon_windows.py --series DIR [--into docs/carbon-windows.md] [--refit-days 7] [--clock-hours 24]

DIR holds a year of each grid: `em_*.csv` (`utc,direct_g_per_kwh,lifecycle_g_per_kwh`) and `eia_*.csv` (`utc` and
generation by fuel in MWh, from which the intensity is made with IPCC's lifecycle factors). Every hour of the year from
the fifth week on is asked for the best start of jobs of 1, 4, 12 and 24 h with 6 to 48 h of slack; whatever is decided
is decided from the hours before. The regressions are fitted anew each week (in use: at each question).
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from scoring import markdown, told

from greenlove_tracker.scheduling.intensity_forecast import (
    HorizonRegression,
    HourlyIntensity,
    PastFeatures,
    WindowMeans,
)
from greenlove_tracker.scheduling.windows import (
    _LEAST_CHOICES,
    LEAST_PROBABILITY,
    LEAST_SAVING,
    RunLength,
    past_choices,
)

BEGIN, END = "<!-- carbon_windows begins -->", "<!-- carbon_windows ends -->"
LENGTHS_H, SLACKS_H = (1, 4, 12, 24), (6, 12, 24, 48)
AHEAD_H = max(LENGTHS_H) + max(SLACKS_H)
STARTS = np.arange(max(SLACKS_H) + 1.0)
WARM_UP_D = 28
NIGHT_H = 1  # local standard time, at which jobs of a night begin
LEAST_ORACLE = 0.10
RULES = (
    "run now",
    "night, 01:00",
    "below 300 g",
    "below 200 g",
    "persistence",
    "seasonal mean",
    "ours, once",
    "ours, where worth it",
    "ours, each hour",
    "oracle",
)
# Medians of lifecycle emissions in gCO2e/kWh: IPCC AR5 WG III (2014), Annex III, table A.III.2; oil, which is not in
# it: IPCC SRREN (2011), Annex II, table A.II.4; what EIA calls other is taken for biomass.
FUELS = {"wind": 11, "solar": 48, "hydro": 24, "oil": 840, "gas": 490, "coal": 820, "nuclear": 12, "other": 230}
# Of the local standard time to UTC, in hours; only the fixed start at night needs it.
UTC_OFFSETS = {
    "BPAT": -8,
    "CISO": -8,
    "US-CAL-CISO": -8,
    "ERCO": -6,
    "PJM": -5,
    "US-MIDA-PJM": -5,
    "DE-LU": 1,
    "GB": 0,
    "ZA": 2,
}


def read_series(path: Path) -> HourlyIntensity:
    """Return a year of a grid; hours without generation are not known."""
    points = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            when = datetime.fromisoformat(row["utc"]).replace(tzinfo=UTC)
            if "lifecycle_g_per_kwh" in row:
                value = float(row["lifecycle_g_per_kwh"]) if row["lifecycle_g_per_kwh"] else None
            else:
                mwh = {fuel: max(0.0, float(row[f"{fuel}_mwh"] or 0)) for fuel in FUELS}
                total = sum(mwh.values())
                value = sum(FUELS[fuel] * mwh[fuel] for fuel in FUELS) / total if total > 0 else None
            points.append((when, value))
    return HourlyIntensity.of(points)


@dataclass
class Cell:
    """One length and slack of one series."""

    series: str
    length_h: int
    slack_h: int
    now: np.ndarray  # gCO2e/kWh, mean over the run
    costs: dict[str, np.ndarray]
    stated: list[tuple[float, float, float, float]] = field(default_factory=list)  # saving: point, lower, upper, came
    right: list[bool] = field(default_factory=list)
    right_of_worth: list[bool] = field(default_factory=list)  # of these, where it was said to be worth it
    right_of_later: list[bool] = field(default_factory=list)  # where the best start was later than now

    def saved(self, rule: str) -> float:
        """Return the share of running now."""
        return 1.0 - float(self.costs[rule].sum() / self.now.sum())

    def saved_g(self, rule: str) -> float:
        return float(self.now.mean() - self.costs[rule].mean())


def first_true(flags: np.ndarray, otherwise: int) -> np.ndarray:
    """Return the first column that is true in each row."""
    return np.where(flags.any(axis=1), flags.argmax(axis=1), otherwise)


class Series:
    """One grid: its forecasts at every hour, and the starts that follow from them."""

    def __init__(self, path: Path, refit_days: int, clock_hours: int) -> None:
        self.name = path.stem.split("_")[1] + " " + path.stem.split("_")[2]
        zone = path.stem.split("_")[1]
        history = read_series(path)
        self.values = history.values
        self.features = PastFeatures(history.values, history.first_hour)
        n = len(self.values)
        self.first, self.last = WARM_UP_D * 24, n - AHEAD_H
        self.expected = np.full((n + 1, AHEAD_H), np.nan)
        self.local = (history.first_hour + np.arange(n) + UTC_OFFSETS.get(zone, 0)) % 24
        self.asked = np.arange(24) * clock_hours // 24 != (np.arange(24) - 1) * clock_hours // 24
        self.refit_days = refit_days

    def run(self) -> list[Cell]:
        """Return the cells of the series, every hour of the year decided."""
        actual = np.lib.stride_tricks.sliding_window_view(self.values, AHEAD_H)
        self.origins = np.arange(self.first, self.last)
        self.origins = self.origins[np.isfinite(actual[self.origins]).all(axis=1)]
        means = WindowMeans(actual[: self.last])
        self.truth = {length: means.of(STARTS, float(length)) for length in LENGTHS_H}
        self.forecast_all()
        usual = self.features.usual(self.origins, AHEAD_H)
        day = self.values[self.origins[:, None] - 24 + np.arange(AHEAD_H) % 24]
        self.paths = {"persistence": np.where(np.isnan(day), usual, day), "seasonal mean": usual}
        self.paths["ours, once"] = self.expected[self.origins]
        return [self.cell(length, slack) for length in LENGTHS_H for slack in SLACKS_H]

    def forecast_all(self) -> None:
        """Forecast from every hour, and ask what each start would save, fitting anew each so many days."""
        self.answers: dict[tuple[int, int], list[tuple]] = {(n, slack): [] for n in LENGTHS_H for slack in SLACKS_H}
        is_scored = np.zeros(len(self.values), bool)
        is_scored[self.origins] = True
        for begin in range(self.first, len(self.values) - max(LENGTHS_H), 24 * self.refit_days):
            for hour in range(24):
                origins = begin + hour + 24 * np.arange(self.refit_days)
                origins = origins[origins < len(self.values)]
                if origins.size:
                    fit = HorizonRegression(self.features, int(origins[0]), AHEAD_H)
                    self.expected[origins] = fit.expected(origins)
                    if self.asked[hour] and is_scored[origins].any():
                        self.ask(fit, origins[is_scored[origins]])

    def cell(self, length: int, slack: int) -> Cell:
        """Return what each rule emits for one length and slack, and how the stated savings fared."""
        origins, came = self.origins, self.truth[length][self.origins]
        last_known = self.values[origins[:, None] - 1 + np.arange(slack + 1)]
        to_night = (NIGHT_H - self.local[origins]) % 24
        starts = {
            "run now": np.zeros(len(origins), int),
            "night, 01:00": np.where(to_night <= slack, to_night, 0),
            "below 300 g": first_true(last_known < 300, slack),
            "below 200 g": first_true(last_known < 200, slack),
            "oracle": came[:, : slack + 1].argmin(axis=1),
            "ours, each hour": self.replanned(WindowMeans(self.expected).of(STARTS, float(length)), origins, slack),
        }
        for name, path in self.paths.items():
            starts[name] = WindowMeans(path).of(STARTS[: slack + 1], float(length)).argmin(axis=1)
        cell = Cell(self.name, length, slack, came[:, 0], {})
        where_worth = np.zeros(len(self.values), int)
        for origin, start, point, lower, upper, probability in self.answers[length, slack]:
            saving = 1.0 - self.truth[length][origin, start] / self.truth[length][origin, 0]
            is_worth = point >= LEAST_SAVING and probability >= LEAST_PROBABILITY
            where_worth[origin] = start if is_worth else 0
            cell.right.append(bool(saving > 0 if is_worth else saving < LEAST_SAVING))
            if is_worth:
                cell.right_of_worth.append(cell.right[-1])
            if start > 0:
                cell.stated.append((point, lower, upper, saving))
                cell.right_of_later.append(cell.right[-1])
        if len(self.answers[length, slack]) == len(origins):
            starts["ours, where worth it"] = where_worth[origins]
        rows = np.arange(len(origins))
        cell.costs |= {name: came[rows, start] for name, start in starts.items()}
        return cell

    def ask(self, fit: HorizonRegression, asked: np.ndarray) -> None:
        """Ask for the best starts of some hours, as `best_start` does."""
        expected, past, came = (WindowMeans(p) for p in (self.expected[asked], fit.past_expected, fit.past_actual))
        for length, slack in self.answers:
            run, starts = RunLength.of(length), STARTS[: slack + 1]
            promises = run.expected_sum(expected, starts)
            best = promises.argmin(axis=1)
            open_choice = past_choices([past], [came], fit.weights, run, starts)
            for o, b, promise in zip(asked, best, promises, strict=True):
                choices = open_choice
                if b and len(choices.promised) < _LEAST_CHOICES:
                    choices = past_choices([past], [came], fit.weights, run, starts, int(b))
                saving, probability = choices.saving(1.0 - promise[b] / max(promise[0], 1e-9))
                self.answers[length, slack].append((o, b, saving.point, saving.lower, saving.upper, probability))

    @staticmethod
    def replanned(mine: np.ndarray, origins: np.ndarray, slack: int) -> np.ndarray:
        """Return the starts where every hour it is asked again whether to start now."""
        least_later = np.minimum.accumulate(mine[:, 1:], axis=1)
        started = np.full(len(origins), -1)
        for waited in range(slack + 1):
            left = slack - waited
            at = origins + waited
            is_now = np.ones(len(at), bool) if left == 0 else mine[at, 0] <= least_later[at, left - 1]
            started = np.where((started < 0) & is_now, waited, started)
        return started


def kept(cells: Sequence[Cell], rule: str) -> float:
    """Return the share of what the oracle saves, summed over cells."""
    return sum(cell.saved(rule) for cell in cells) / sum(cell.saved("oracle") for cell in cells)


def tables(cells: list[Cell]) -> str:
    rules = [rule for rule in RULES if all(rule in cell.costs for cell in cells)]
    names = list(dict.fromkeys(cell.series for cell in cells))
    counted = [cell for cell in cells if cell.saved("oracle") >= LEAST_ORACLE]
    rows = []
    for rule in rules:
        per_series = [np.mean([cell.saved(rule) for cell in cells if cell.series == name]) for name in names]
        grams = sum(c.saved_g(rule) for c in counted) / sum(c.saved_g("oracle") for c in counted)
        rows.append([rule, f"{kept(counted, rule):.1%}", f"{grams:.1%}", *(f"{value:.1%}" for value in per_series)])
    first = markdown(["start", "kept", "kept, in g", *names], rows)
    rows = []
    for name in [*names, "all"]:
        mine = [cell for cell in cells if name in (cell.series, "all")]
        over = [cell for cell in mine if cell.saved("oracle") >= LEAST_ORACLE]
        stated = np.array([answer for cell in mine for answer in cell.stated])
        point, lower, upper, came = stated.T
        right = np.mean([right for cell in mine for right in cell.right])
        rows.append(
            [
                name,
                str(len(over)),
                *(
                    f"{kept(over, rule):.1%}" if over else "–"
                    for rule in ("persistence", "ours, once", "ours, each hour")
                ),
                f"{np.mean((lower <= came) & (came <= upper)):.1%}",
                f"{np.mean(upper - lower):.1%}",
                f"{100 * np.mean(point):.2f}",
                f"{100 * np.mean(came):.2f}",
                f"{right:.1%}",
                f"{np.mean([right for cell in mine for right in cell.right_of_worth] or [np.nan]):.1%}",
                f"{np.mean([right for cell in mine for right in cell.right_of_later]):.1%}",
            ]
        )
    head = ["series", "cells", "kept: persistence", "ours, once", "ours, each hour", "in the 90% interval", "its width"]
    second = markdown(
        [*head, "stated saving, %", "came, %", "`is_worth_waiting` right", "where true", "of later starts"], rows
    )
    rows = []
    for length in LENGTHS_H:
        for slack in SLACKS_H:
            mine = [c for c in cells if (c.length_h, c.slack_h) == (length, slack)]
            stated = np.array([answer for cell in mine for answer in cell.stated])
            point, lower, upper, came = stated.T
            rows.append(
                [
                    f"{length} h within {slack} h more",
                    *(
                        f"{np.mean([c.saved(r) for c in mine]):.1%}"
                        for r in ("persistence", "ours, once", "ours, each hour", "oracle")
                    ),
                    f"{np.mean((lower <= came) & (came <= upper)):.1%}",
                    f"{100 * np.mean(point - came):+.2f}",
                    f"{np.mean([r for cell in mine for r in cell.right]):.1%}",
                ]
            )
    third = markdown(
        [
            "job",
            "persistence",
            "ours, once",
            "ours, each hour",
            "oracle",
            "in the interval",
            "stated - came, points",
            "right",
        ],
        rows,
    )
    return "\n\n".join((first, second, third))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of series, such as GB")
    parser.add_argument("--refit-days", type=int, default=7)
    parser.add_argument("--clock-hours", type=int, default=24, help="hours of the day whose stated savings are scored")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    cells: list[Cell] = []
    for path in sorted(options.series.glob("*.csv")):
        if options.only and not any(f"_{name}_" in path.name for name in options.only):
            continue
        began_s = time.perf_counter()
        cells += Series(path, options.refit_days, options.clock_hours).run()
        print(f"{path.stem}: {time.perf_counter() - began_s:.0f} s", flush=True)
    told(tables(cells), options.into, BEGIN, END)


if __name__ == "__main__":
    main()
