"""What waiting for a cleaner hour saves: ours, simple rules, persistence and the oracle, on a year of grids.

    python benchmarks/carbon_windows.py --series DIR [--refit-days 7] [--clock-hours 24] [--into PAGE]
    python benchmarks/carbon_windows.py --series DIR --settings
    python benchmarks/carbon_windows.py --series DIR --statsmodels 5

DIR holds a year of each grid: `em_*.csv` (`utc,direct_g_per_kwh,lifecycle_g_per_kwh`) and `eia_*.csv` (`utc` and
generation by fuel in MWh, from which the intensity is made as that of EIA's live data is). Every hour of the year from
the fifth week on is asked for the best start of jobs of 1, 4, 12 and 24 h with 6 to 48 h of slack; whatever is decided
is decided from the hours before. The regressions are fitted anew each week (in use: at each question).

`--settings` scores other settings of the forecast, and what those chosen on the series of one year keep on the series
of the other. `--statsmodels` compares with models of statsmodels, on each so many-th day, since these are slow.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from scoring import markdown, told

from greenlove_tracker.grid.live.fuel_mix import intensities
from greenlove_tracker.scheduling import intensity_forecast
from greenlove_tracker.scheduling.intensity_forecast import (
    HorizonRegression,
    HourlyIntensity,
    PastFeatures,
    WindowMeans,
)
from greenlove_tracker.scheduling.start_windows import (
    _LEAST_CHOICES,
    LEAST_PROBABILITY,
    LEAST_SAVING,
    RunLength,
    past_choices,
)
from greenlove_tracker.tables.electricity import fuel_factors

BEGIN, END = "<!-- carbon_windows begins -->", "<!-- carbon_windows ends -->"
SETTINGS_MARKS = "<!-- carbon_windows settings begin -->", "<!-- carbon_windows settings end -->"
STATSMODELS_MARKS = "<!-- carbon_windows statsmodels begin -->", "<!-- carbon_windows statsmodels end -->"
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
    generation: dict[datetime, dict[str, float | None]] = {}
    points: list[tuple[datetime, float | None]] = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            when = datetime.fromisoformat(row["utc"]).replace(tzinfo=UTC)
            if "lifecycle_g_per_kwh" in row:
                points.append((when, _number(row["lifecycle_g_per_kwh"])))
            else:
                generation[when] = {
                    name.removesuffix("_mwh"): _number(row[name]) for name in row if name.endswith("_mwh")
                }
    return HourlyIntensity.of(points or intensities(generation, fuel_factors("lifecycle", "USA")))


def _number(text: str) -> float | None:
    return float(text) if text else None


@dataclass
class Cell:
    """One length and slack of one series."""

    series: str
    length_h: int
    slack_h: int
    now: np.ndarray  # gCO2e/kWh, mean over the run
    costs: dict[str, np.ndarray]
    starts: dict[str, np.ndarray] = field(default_factory=dict)  # hours from the hour that is asked at
    # Of starts later than now: the saving (point, lower, upper), its probability, what came, and the hour.
    stated: list[tuple[float, float, float, float, float, int]] = field(default_factory=list)
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
        self.open()
        self.forecast_all()
        usual = self.features.usual(self.origins, AHEAD_H)
        day = self.values[self.origins[:, None] - 24 + np.arange(AHEAD_H) % 24]
        self.paths = {"persistence": np.where(np.isnan(day), usual, day), "seasonal mean": usual}
        self.paths["ours, once"] = self.expected[self.origins]
        return [self.cell(length, slack) for length in LENGTHS_H for slack in SLACKS_H]

    def open(self) -> None:
        """Find the hours at which all that follows is known, and what each start would have emitted."""
        actual = np.lib.stride_tricks.sliding_window_view(self.values, AHEAD_H)
        self.origins = np.arange(self.first, self.last)
        self.origins = self.origins[np.isfinite(actual[self.origins]).all(axis=1)]
        means = WindowMeans(actual[: self.last])
        self.truth = {length: means.of(STARTS, float(length)) for length in LENGTHS_H}

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
                cell.stated.append((point, lower, upper, probability, saving, origin))
                cell.right_of_later.append(cell.right[-1])
        if len(self.answers[length, slack]) == len(origins):
            starts["ours, where worth it"] = where_worth[origins]
        rows = np.arange(len(origins))
        cell.starts |= starts
        cell.costs |= {name: came[rows, start] for name, start in starts.items()}
        return cell

    def ask(self, fit: HorizonRegression, asked: np.ndarray) -> None:
        """Ask for the best starts of some hours, as `best_start` does."""
        expected, past, came = (WindowMeans(p) for p in (self.expected[asked], fit.past_expected, fit.past_actual))
        for length, slack in self.answers:
            run, starts = RunLength.of(length), STARTS[: slack + 1]
            promises = run.expected_sum(expected, starts)
            best = promises.argmin(axis=1)
            open_choice = past_choices(past, came, fit.weights, run, starts)
            for o, b, promise in zip(asked, best, promises, strict=True):
                choices = open_choice
                if b and len(choices.promised) < _LEAST_CHOICES:
                    choices = past_choices(past, came, fit.weights, run, starts, int(b))
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


def counted(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of which the oracle saves enough for a share of it to mean something."""
    return [cell for cell in cells if cell.saved("oracle") >= LEAST_ORACLE]


def error_by_weeks(differences: np.ndarray, hours: np.ndarray) -> float:
    """Return the standard error of a mean whose terms go together within a week, and are independent between weeks."""
    weeks, index = np.unique(hours // (7 * 24), return_inverse=True)
    sums = np.bincount(index, differences - differences.mean())
    return float(np.sqrt(np.sum(sums**2) * len(weeks) / max(1, len(weeks) - 1)) / len(differences))


def calibration(cells: Sequence[Cell]) -> str:
    """Return how often something was saved, by the probability of it that was stated."""
    stated = np.array([answer for cell in cells for answer in cell.stated])
    probability, came = stated[:, 3], stated[:, 4]
    edges = [0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]
    rows = []
    for low, high in pairwise(edges):
        mine = (probability >= low) & ((probability < high) | (high == 1.0))
        if mine.any():
            rows.append(
                [
                    f"{low:.0%} to {high:.0%}",
                    f"{mine.mean():.1%}",
                    f"{probability[mine].mean():.1%}",
                    f"{(came[mine] > 0).mean():.1%}",
                ]
            )
    return markdown(["probability of any saving", "of the statements", "mean", "saved"], rows)


def tables(cells: list[Cell]) -> str:
    rules = [rule for rule in RULES if all(rule in cell.costs for cell in cells)]
    names = list(dict.fromkeys(cell.series for cell in cells))
    enough = counted(cells)
    rows = []
    for rule in rules:
        per_series = [np.mean([cell.saved(rule) for cell in cells if cell.series == name]) for name in names]
        grams = sum(c.saved_g(rule) for c in enough) / sum(c.saved_g("oracle") for c in enough)
        rows.append([rule, f"{kept(enough, rule):.1%}", f"{grams:.1%}", *(f"{value:.1%}" for value in per_series)])
    first = markdown(["start", "kept", "kept, in g", *names], rows)
    rows = []
    for name in [*names, "all"]:
        mine = [cell for cell in cells if name in (cell.series, "all")]
        over = counted(mine)
        stated = np.array([answer for cell in mine for answer in cell.stated])
        point, lower, upper, _, came, hours = stated.T
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
                f"{100 * error_by_weeks(point - came, hours):.2f}",
                f"{right:.1%}",
                f"{np.mean([right for cell in mine for right in cell.right_of_worth] or [np.nan]):.1%}",
                f"{np.mean([right for cell in mine for right in cell.right_of_later]):.1%}",
            ]
        )
    head = ["series", "cells", "kept: persistence", "ours, once", "ours, each hour", "in the 90% interval", "its width"]
    head += ["stated saving, %", "came, %", "± of the difference", "`is_worth_waiting` right", "where true"]
    second = markdown([*head, "of later starts"], rows)
    rows = []
    for length in LENGTHS_H:
        for slack in SLACKS_H:
            mine = [c for c in cells if (c.length_h, c.slack_h) == (length, slack)]
            stated = np.array([answer for cell in mine for answer in cell.stated])
            point, lower, upper, _, came, _ = stated.T
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
    return "\n\n".join((first, second, third, calibration(cells)))


def kept_of_paths(series: Series, expected: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Return the savings of the oracle and of one decision by a forecast, summed over the cells that count.

    Args:
        series: with its oracle.
        expected: forecasts from each of the origins.
        origins: hours.
    """
    total = np.zeros(2)
    means = WindowMeans(expected)
    for length in LENGTHS_H:
        promised, every, came = means.of(STARTS, float(length)), series.truth[length], series.truth[length][origins]
        rows = np.arange(len(origins))
        for slack in SLACKS_H:
            year = every[series.origins, : slack + 1]
            if 1.0 - year.min(axis=1).sum() / year[:, 0].sum() >= LEAST_ORACLE:
                start = promised[:, : slack + 1].argmin(axis=1)
                total += (
                    1.0 - np.array([came[:, : slack + 1].min(axis=1).sum(), came[rows, start].sum()]) / came[:, 0].sum()
                )
    return total


# One setting changed at a time: their effects are small, so that they hardly depend on each other.
SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"_RIDGE": 100.0},
    {"_RIDGE": 500.0},
    {"_NEAR_CLOCK_H": 2},
    {"_NEAR_CLOCK_H": 5},
    {"_RECENT_HALF_LIFE_D": 60.0},
    {"_RECENT_HALF_LIFE_D": 240.0},
    {"_USUAL_HALF_LIFE_D": 4.0},
    {"_USUAL_HALF_LIFE_D": 9.0},
)


def settings_table(paths: Sequence[Path], refit_days: int) -> str:
    """Return what each setting keeps on the series of each year, and what the choice of one keeps on the other."""
    years = sorted({path.stem.split("_")[2] for path in paths})
    found = []
    for setting in SETTINGS:
        changed = {"_BLOCKS": 1, **setting}  # errors are not asked for: no cross-validation
        before = {name: getattr(intensity_forecast, name) for name in changed}
        for name, value in changed.items():
            setattr(intensity_forecast, name, value)
        cells = [cell for path in paths for cell in Series(path, refit_days, 0).run()]
        for name, value in before.items():
            setattr(intensity_forecast, name, value)
        of_year = [counted([cell for cell in cells if cell.series.endswith(year)]) for year in years]
        found.append([[kept(mine, f"ours, {when}") for when in ("once", "each hour")] for mine in of_year])
        print(setting, found[-1], flush=True)
    rows = []
    for setting, scores in zip(SETTINGS, found, strict=True):
        name = ", ".join(f"{key.strip('_').lower()} {value:g}" for key, value in setting.items()) or "as it is"
        rows.append([name, *(f"{score:.1%}" for of_year in scores for score in of_year)])
    for chosen, year in enumerate(years):
        best = max(range(len(found)), key=lambda i: found[i][chosen][1])
        rows.append(
            [f"chosen on {year}: {rows[best][0]}"]
            + [f"{score:.1%}" if i != chosen else "–" for i in range(len(years)) for score in found[best][i]]
        )
    return markdown(["setting", *(f"{year}: {when}" for year in years for when in ("once", "each hour"))], rows)


def autoregression(values: np.ndarray, ahead: int, first_hour: int) -> np.ndarray:
    """Return the forecast of statsmodels' AutoReg: lags of a day, of two days and a week; terms by hour and week."""
    from statsmodels.tsa.ar_model import AutoReg
    from statsmodels.tsa.deterministic import DeterministicProcess, Fourier

    index = np.arange(first_hour, first_hour + len(values) + ahead)
    terms = DeterministicProcess(
        index[: len(values)], constant=True, additional_terms=[Fourier(24, 4), Fourier(168, 3)], drop=True
    )
    fitted = AutoReg(values, [*range(1, 25), 48, 168], trend="n", deterministic=terms).fit()
    return np.asarray(fitted.forecast(ahead))


def holt_winters(values: np.ndarray, ahead: int, first_hour: int) -> np.ndarray:
    """Return the forecast of statsmodels' exponential smoothing, with a season of a day and no trend."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    recent = values[-28 * 24 :]  # it forgets what is older
    model = ExponentialSmoothing(
        recent, trend=None, seasonal="add", seasonal_periods=24, initialization_method="heuristic"
    )
    return np.asarray(model.fit().forecast(ahead))


MODELS = {"AutoReg": autoregression, "Holt-Winters": holt_winters}
MODEL_HISTORY_H = 90 * 24  # what they are fitted to; more is slower, and no better


def statsmodels_table(paths: Sequence[Path], refit_days: int, every_days: int) -> str:
    """Return what one decision keeps by models of statsmodels and by ours, asked at the same hours of some days."""
    totals: dict[str, dict[str, np.ndarray]] = {}
    spent_s = dict.fromkeys([*MODELS, "ours"], 0.0)
    asked = 0
    for path in paths:
        series = Series(path, refit_days, 0)
        series.open()
        origins = series.origins[(series.origins // 24 % every_days == 0) & (series.origins % 6 == 0)]
        found = {name: np.empty((len(origins), AHEAD_H)) for name in spent_s}
        for row, origin in enumerate(origins):
            past = series.values[max(0, origin - MODEL_HISTORY_H) : origin]
            known = np.isfinite(past)
            past = np.interp(np.arange(len(past)), np.flatnonzero(known), past[known])
            for name, model in MODELS.items():
                began_s = time.perf_counter()
                found[name][row] = np.maximum(0.0, model(past, AHEAD_H, origin - len(past)))
                spent_s[name] += time.perf_counter() - began_s
            began_s = time.perf_counter()
            fit = HorizonRegression(series.features, int(origin), AHEAD_H)
            found["ours"][row] = fit.expected(origins[[row]])[0]
            spent_s["ours"] += time.perf_counter() - began_s
        asked += len(origins)
        day = series.values[origins[:, None] - 24 + np.arange(AHEAD_H) % 24]
        usual = series.features.usual(origins, AHEAD_H)
        found |= {"persistence": np.where(np.isnan(day), usual, day), "seasonal mean": usual}
        for name, expected in found.items():
            totals.setdefault(name, {})[series.name] = kept_of_paths(series, expected, origins)
        print(f"{series.name}: {len(origins)} hours", flush=True)
    names = [name for name, total in totals["ours"].items() if total[0] > 0]
    rows = []
    for model, of_series in totals.items():
        every = sum((of_series[name] for name in names), np.zeros(2))
        shares = [f"{of_series[name][1] / of_series[name][0]:.1%}" for name in names]
        ms = f"{1000 * spent_s[model] / asked:.0f}" if model in spent_s else "–"
        rows.append([model, f"{every[1] / every[0]:.1%}", *shares, ms])
    return markdown(["decided once by", "kept", *names, "ms a forecast"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of series, such as GB")
    parser.add_argument("--refit-days", type=int, default=7)
    parser.add_argument("--clock-hours", type=int, default=24, help="hours of the day whose stated savings are scored")
    parser.add_argument("--settings", action="store_true", help="score other settings of the forecast instead")
    parser.add_argument("--statsmodels", type=int, metavar="DAYS", help="score models of statsmodels each so many days")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    paths = [
        path
        for path in sorted(options.series.glob("*.csv"))
        if not options.only or any(f"_{name}_" in path.name for name in options.only)
    ]
    if options.settings:
        told(settings_table(paths, options.refit_days), options.into, *SETTINGS_MARKS)
        return
    if options.statsmodels:
        told(statsmodels_table(paths, options.refit_days, options.statsmodels), options.into, *STATSMODELS_MARKS)
        return
    cells: list[Cell] = []
    for path in paths:
        began_s = time.perf_counter()
        cells += Series(path, options.refit_days, options.clock_hours).run()
        print(f"{path.stem}: {time.perf_counter() - began_s:.0f} s", flush=True)
    told(tables(cells), options.into, BEGIN, END)


if __name__ == "__main__":
    main()
