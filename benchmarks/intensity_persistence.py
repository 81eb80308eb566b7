"""How far the carbon intensity of the next hours is from that of the last ones, on hourly series of real grids.

    python benchmarks/intensity_persistence.py --series DIR

The forecast of a run's CO2e takes the mean intensity so far for the rest. For each length of what is done and what is
left this prints, over all hours of all series, the bound that 95% of |log(mean of the rest / mean so far)| are within,
and how many of them are within the bound that forecasts use (grid/intensity_in_force.py).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from carbon_windows import read_series

from greenlove_tracker.vocabulary.pricing import persistence_error

DONE_H = (1, 2, 4, 8, 12, 24, 48)
LEFT_H = (1, 2, 4, 8, 12, 24, 48, 72)


def log_ratios(values: np.ndarray, done_h: int, left_h: int) -> np.ndarray:
    """Return log(mean of the next hours / mean of the last ones) of each hour at which all of them are known.

    Args:
        values: by the hour, gCO2e/kWh; NaN where it is not known.
    """
    known = np.concatenate([[0], np.cumsum(np.isfinite(values))])
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values))])
    at = np.arange(done_h, len(values) - left_h + 1)
    whole = (known[at + left_h] - known[at - done_h]) == done_h + left_h
    at = at[whole]
    return np.log((sums[at + left_h] - sums[at]) / left_h) - np.log((sums[at] - sums[at - done_h]) / done_h)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--series", type=Path, required=True, help="directory of hourly series, a CSV file each")
    paths = sorted(parser.parse_args().series.glob("*.csv"))
    series = [read_series(path).values for path in paths]
    print(f"{len(series)} series: {', '.join(path.stem for path in paths)}")
    print("done h  left h   95% within   bound used   within it")
    shares = []
    for done_h in DONE_H:
        for left_h in LEFT_H:
            found = np.abs(np.concatenate([log_ratios(values, done_h, left_h) for values in series]))
            bound = persistence_error(3600.0 * (done_h + left_h))
            shares.append(float(np.mean(found <= bound)))
            print(f"{done_h:6d}  {left_h:6d}   {np.quantile(found, 0.95):10.2f}   {bound:10.2f}   {shares[-1]:9.1%}")
    print(f"within it, mean of all lengths: {math.fsum(shares) / len(shares):.1%}")


if __name__ == "__main__":
    main()
