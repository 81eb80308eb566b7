"""A picture of forecasts as three recorded GPU trainings went on, each with its 95% band.

    python benchmarks/forecast_picture.py --runs DIR --into docs/images/forecasts.svg

``DIR`` as for ``backtest_gpu.py``: the first run of a constant cost, the first whose window warms up, and the first
whose batch grows, with its phases given and without.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib
from backtest_gpu import CONSTANT, PLAN, WARMS_UP, StepRun, replay_steps, step_runs

from greenlove_tracker import Forecast

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "greenlove", "font.size": 8, "svg.fonttype": "none"}
from matplotlib import pyplot as plt  # noqa: E402  # once the backend is chosen

_TENTHS = tuple(n / 2 for n in range(1, 20))
_GREEN, _GREY = "#1f7a5a", "#6b7280"


def _draw(axes: Any, run: StepRun, color: str, label: str, **options: object) -> None:
    made: list[tuple[float, Forecast]] = list(replay_steps(run, _TENTHS, **options))
    truth_s = run.elapsed_s[-1]
    at = [tenth * 10 for tenth, _ in made]
    times = [forecast.duration_s for _, forecast in made]
    lower, upper = [t.lower / truth_s * 100 for t in times], [t.upper / truth_s * 100 for t in times]
    axes.fill_between(at, lower, upper, color=color, alpha=0.2, linewidth=0)
    axes.plot(at, [t.point / truth_s * 100 for t in times], color=color, linewidth=1.2, label=label)


def picture(folder: Path) -> Any:
    """Return the figure."""
    runs = step_runs(folder)
    figure, each = plt.subplots(1, 3, figsize=(9.0, 2.6), sharey=True, layout="constrained")
    for axes, kind in zip(each, (CONSTANT, WARMS_UP, PLAN), strict=True):
        run = next(r for r in runs if r.kind == kind and (r.phases or kind != PLAN))
        if run.phases:
            _draw(axes, run, _GREY, "without its plan")
            _draw(axes, run, _GREEN, "phases given", phases=run.plan)
            axes.legend(frameon=False, loc="lower right")
        else:
            _draw(axes, run, _GREEN, "")
        axes.axhline(100, color="black", linewidth=0.8, linestyle=(0, (3, 2)))
        axes.set(title=f"{kind}, {run.elapsed_s[-1] / 60:.0f} min", xlabel="% of the steps done", ylim=(40, 140))
        axes.spines[["top", "right"]].set_visible(False)
    each[0].set_ylabel("forecast, % of what it came to")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the recordings")
    parser.add_argument("--into", type=Path, required=True, help="the picture")
    arguments = parser.parse_args()
    picture(arguments.runs).savefig(arguments.into, metadata={"Date": None})


if __name__ == "__main__":
    main()
