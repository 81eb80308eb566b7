"""What does not go in proportion to its data: fits of scikit-learn, forecast by ``explore_callable`` and then run.

    python benchmarks/explore_callables.py [--samples 40000] [--budget 10] [--into benchmarks/tables/exploration.md]

On one thread: threads that wait for one another take any time on a machine that others use.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scoring import markdown, told
from threadpoolctl import threadpool_limits

from greenlove_tracker import explore_callable

BEGIN, END = "<!-- explore_callables begins -->", "<!-- explore_callables ends -->"


def fits() -> dict[str, Callable[[], Any]]:
    """Estimators as a user would make them."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.linear_model import SGDClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    return {
        "SVC, radial kernel": SVC,
        "RandomForestClassifier, 20 trees": lambda: RandomForestClassifier(20, random_state=0),
        "HistGradientBoostingClassifier": lambda: HistGradientBoostingClassifier(random_state=0),
        "SGDClassifier, 50 passes": lambda: SGDClassifier(max_iter=50, tol=None, random_state=0),
        "KNeighborsClassifier": KNeighborsClassifier,
        "GaussianProcessRegressor, a tenth of the samples": lambda: GaussianProcessRegressor(optimizer=None),
    }


def row(name: str, make: Callable[[], Any], x: Any, y: Any, budget_s: float) -> list[str]:
    """A line of the table: the exponent, the forecast, and what the whole fit took."""
    if name.startswith("Gaussian"):
        x, y = x[: len(x) // 10], y[: len(y) // 10]
    with tempfile.TemporaryDirectory() as directory:
        found = explore_callable(
            lambda n: make().fit(x[:n], y[:n]), samples=len(x), budget_s=budget_s, log_dir=directory, verbose=0
        )
    began_s = time.perf_counter()
    make().fit(x, y)
    took_s = time.perf_counter() - began_s
    d = found.forecast.duration_s
    grows = next(w.message for w in found.forecast.warnings if w.name == "POWER_LAW")
    exponent = grows.removeprefix("time grows as ").partition(":")[0]
    held = "held" if d.lower <= took_s <= d.upper else "missed"
    largest = max(t.sample_size for t in found.trials)
    return [
        name,
        f"{len(x):,}",
        f"{largest:,}",
        exponent,
        f"{d.point:.3g} s [{d.lower:.3g}–{d.upper:.3g}]",
        f"{took_s:.3g} s",
        f"{d.point / took_s - 1:+.0%}, {held}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=40_000)
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--into", type=Path)
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(a.samples, 20))
    y = (x[:, 0] + rng.normal(size=a.samples) > 0).astype(int)
    several = fits()  # a library that is loaded later is not limited
    with threadpool_limits(1):
        rows = [row(name, make, x, y, a.budget) for name, make in several.items()]
    heads = ["fit", "samples", "explored up to", "time grows as", "forecast", "actual", "error, 95% interval"]
    text = markdown(heads, rows)
    told(text, a.into, BEGIN, END)


if __name__ == "__main__":
    main()
