"""Check the errors of finished energies against meters at the wall, and compute those that the package ships.

    python benchmarks/energy_errors.py --tables DIR [--wall DIR] [--check] [--into benchmarks/tables/uncertainty.md]

``--tables`` is a folder with ``gpu-runs/``: MLPerf's nodes with their wall power, and Zeus's traces. ``--wall`` is the
folder ``results`` of github.com/raphischer/ai-energy-validation: CodeCarbon and a wall meter on one workstation.

1. Readings now and then: GPUs whose sensor sees 25 of each 100 ms, and one reading a second, on loads that alternate.
2. The power limit as a model: what trainings drew of it.
3. Nodes: what the power limit of eight GPUs and a node overhead say, with its interval, against the wall; and the same
   calibrated by one run.
4. Meters that are off at random, within what the table says: how often the interval of a sum over runs holds.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scoring import coverage, markdown, told

from greenlove_tracker.logs import totals
from greenlove_tracker.logs.aggregate import Totals
from greenlove_tracker.logs.measurement_errors import LEVEL, error_of
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import run_row
from greenlove_tracker.logs.schema import SUMMARY_FILE
from greenlove_tracker.logs.uncertainty import run_interval
from greenlove_tracker.meter.wall import add_measurement, measured_at_the_wall
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import Counts, Energy, Factor, Method, Row, RowKind, RunStatus
from greenlove_tracker.vocabulary.units import kwh_from_w_s

Array = NDArray[np.float64]
BEGIN, END = "<!-- energy errors begin -->", "<!-- energy errors end -->"
N_GPUS, LIMIT_W, NODE_OVERHEAD = 8, 700.0, 1.25  # H100 SXM5; the overhead that the documentation names
WITHIN = 0.03  # that a calibrated run is to lie within
N_SIMULATED, N_RUNS = 2000, 20
STARTED = "2026-11-23T10:00:00.000Z"


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends that hold ``LEVEL`` of the values."""
    lower, upper = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(lower), float(upper)


# -- 1. Readings now and then --


def sampled_error(duration_s: float, window_s: float, period_s: float, n: int = 2000) -> float:
    """Return the half-width of the error of a mean power, as a share, of a sensor that averages a window each period.

    The load alternates between all of the power and 20 to 60% of it. A step takes 20 ms to 2 s, is busy for 30 to 95%
    of that, and varies by 2%.
    """
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(n):
        step_s, busy, low = math.exp(rng.uniform(math.log(0.02), math.log(2))), rng.uniform(0.3, 0.95), 0.0
        low = rng.uniform(0.2, 0.6)
        n_steps = int(duration_s / step_s * 1.1) + 60
        ends = np.cumsum(step_s * np.exp(0.02 * rng.standard_normal(n_steps)))
        energy_at = _energy_of(ends, busy, low)
        starts = np.arange(rng.uniform(0, period_s), duration_s - window_s, period_s)
        if not len(starts):
            continue
        seen = float(np.mean(energy_at(starts + window_s) - energy_at(starts))) / window_s
        errors.append(float(energy_at(np.array([duration_s]))[0]) / duration_s / seen - 1)
    return float(np.quantile(np.abs(errors), LEVEL))


def _energy_of(ends: Array, busy: float, low: float) -> Callable[[Array], Array]:
    """Return the energy up to any time of steps that are busy first, and wait then."""
    starts = np.concatenate([[0.0], ends[:-1]])
    before = np.concatenate([[0.0], np.cumsum((busy + low * (1 - busy)) * (ends - starts))])

    def energy_at(times_s: Array) -> Array:
        at = np.minimum(np.searchsorted(ends, times_s, side="right"), len(ends) - 1)
        inside, busy_s = times_s - starts[at], busy * (ends[at] - starts[at])
        return before[at] + np.where(inside < busy_s, inside, busy_s + low * (inside - busy_s))

    return energy_at


# -- 2. The power limit as a model --


def shares_of_limit(tables: Path) -> list[float]:
    """Return the mean power of each training of Zeus's, in its GPU's power limit, at the limit that it came with."""
    shares = []
    for path in sorted((tables / "gpu-runs").glob("zeus_power_*.csv")):
        found = [(float(r["power_limit"]), float(r["average_power"])) for r in _rows_of(path)]
        limit_w = max(limit for limit, _ in found)
        shares += [power_w / limit_w for limit, power_w in found if limit == limit_w]
    return shares


def _rows_of(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


# -- 3. Nodes at the wall --


def node_run(log_dir: Path, run_id: str, host: str, duration_s: float, energy: Energy, overhead: float | None) -> Run:
    """Return a finished run that metered this energy, as if it had been read from a log directory."""
    fields = {
        "host": host,
        "gpu_models": f"{N_GPUS} × NVIDIA H100 80GB HBM3",
        "gpu_count": str(N_GPUS),
        "started_at": STARTED,
        **({} if overhead is None else {"node_overhead": str(overhead)}),
    }
    terms = RunFactors(run_id, "", STARTED, None, Factor("", math.nan, "", ""), node_overhead=overhead)
    row = Row(RowKind.EPOCH, 1, STARTED, 0.0, Energy(), duration_s, Counts(), energy, None)
    ending = totals.Ending(RunStatus.FINISHED, 0, "")
    summary = totals.summarise(terms, {0: [row]}, ending, gpu_count=N_GPUS)
    known = {n: (v, "") for n, v in fields.items()}
    ended = {"metered_summary": summary, "file_names": [SUMMARY_FILE], "stated": None, "command_rows": None}
    return Run(log_dir / run_id, lines=known, own_lines=known, rows={0: [row]}, **ended)


def by_limit(log_dir: Path, run_id: str, duration_s: float, overhead: float | None = NODE_OVERHEAD) -> Run:
    """Return a run whose energy is the power limit of its GPUs times its time."""
    energy = Energy(gpu_kwh=kwh_from_w_s(N_GPUS * LIMIT_W, duration_s), gpu_method=Method.TDP_MODEL)
    return node_run(log_dir, run_id, "node", duration_s, energy, overhead)


def mlperf_runs(tables: Path) -> dict[str, tuple[float, float]]:
    """Return time in s and energy at the wall in kWh of each run with power."""
    path = tables / "gpu-runs" / "mlperf_power_runs.csv"
    return {r["run"]: (float(r["total_s"]), float(r["wall_kwh_by_trapezoid"])) for r in _rows_of(path)}


def task_of(run_id: str) -> str:
    """Return the benchmark of a run such as ``bert-0``."""
    return run_id.rpartition("-")[0]


def calibrated_errors(runs: Mapping[str, tuple[float, float]]) -> dict[bool, list[tuple[float, bool]]]:
    """Calibrate with each run, and return the error of each other one and whether its interval held, by same task."""
    found: dict[bool, list[tuple[float, bool]]] = defaultdict(list)
    for one, other in permutations(runs, 2):
        with tempfile.TemporaryDirectory() as directory:
            log_dir = Path(directory)
            wall_kwh = runs[one][1]
            known = by_limit(log_dir, one, runs[one][0])
            measurement = measured_at_the_wall(known, wall_kwh, meter_error=0.01, source="MLPerf", added_at=STARTED)
            add_measurement(log_dir, measurement)
            estimate = run_interval(by_limit(log_dir, other, runs[other][0]))
            assert estimate is not None
            truth = runs[other][1]
            held = estimate.lower <= truth <= estimate.upper
            found[task_of(one) == task_of(other)].append((estimate.point / truth - 1, held))
    return found


def workstation_ratios(results: Path) -> dict[str, float]:
    """Return the energy at the wall, in CodeCarbon's, of each run of 15 minutes on the workstation's GPU."""
    found = {}
    for path in sorted(results.glob("ollama_*[0-9].csv")):
        at: dict[tuple[str, str], float] = {}
        for row in _rows_of(path.with_name(f"{path.stem}_image_analysis.csv")):
            if match := re.search(r"([0-9a-f]{32})_capture_(start|stop)\.jpg", row[""]):
                at[match[1], match[2]] = float(row["value"] or "nan")
        for row in _rows_of(path):
            run_id, joules = row["run_id"], row["metrics.power_draw_total"]
            wall_kwh = at.get((run_id, "stop"), math.nan) - at.get((run_id, "start"), math.nan)
            if joules and 0 < wall_kwh < 1:
                found[run_id] = wall_kwh / kwh_from_w_s(1.0, float(joules))
    return found


# -- 4. Meters that are off at random --

_METERS = (("gpu", Method.COUNTER), ("cpu", Method.COUNTER), ("cpu", Method.TDP_MODEL), ("ram", Method.CONSTANT))


def simulated_coverage() -> tuple[list[bool], list[bool]]:
    """Return how often the interval of one run holds, and that of a sum over runs on hosts of several kinds.

    The truth is the figure times a factor of its method: either side of the table's range is half a normal
    distribution, and all runs of one method share it, as the sensors of one maker do.
    """
    rng, z95 = np.random.default_rng(0), NormalDist().inv_cdf((1 + LEVEL) / 2)
    of_one, of_sum = [], []
    for _ in range(N_SIMULATED):
        factors = {}
        for component, method in _METERS:
            error = error_of(component, method)
            assert error is not None
            z = rng.standard_normal() / z95
            factors[component, method] = 1 + z * ((error.upper - 1) if z > 0 else (1 - error.lower))
        rows, truths = [], []
        for number in range(N_RUNS):
            gpu, cpu, ram = (float(x) for x in rng.lognormal((0.0, -1.5, -2.5), 0.7))
            cpu_method = Method.COUNTER if number % 2 else Method.TDP_MODEL
            energy = Energy(cpu, gpu, ram, cpu_method, Method.COUNTER, Method.CONSTANT)
            run = node_run(Path("logs"), f"run-{number}", f"host-{number % 5}", 36000.0, energy, None)
            rows.append(run_row(run))
            truths.append(
                gpu * factors["gpu", Method.COUNTER]
                + cpu * factors["cpu", cpu_method]
                + ram * factors["ram", Method.CONSTANT]
            )
        for chosen, held in ((slice(0, 1), of_one), (slice(None), of_sum)):
            total = Totals(rows[chosen])
            assert total.energy_kwh_lower is not None and total.energy_kwh_upper is not None
            held.append(total.energy_kwh_lower <= math.fsum(truths[chosen]) <= total.energy_kwh_upper)
    return of_one, of_sum


# -- What came out --


def report(tables: Path, wall: Path | None) -> tuple[str, list[str]]:
    """Return the tables as text, and what does not hold."""
    wrong, rows = [], []
    for name, window_s, period_s in (("25 of each 100 ms", 0.025, 0.1), ("one reading a second", 0.001, 1.0)):
        errors = {t: sampled_error(t, window_s, period_s) for t in (5.0, 60.0, 600.0)}
        ships = error_of("gpu", Method.COUNTER if period_s < 1 else Method.SAMPLED_POWER, "NVIDIA H100")
        assert ships is not None
        cells = [f"±{e:.1%} (±{ships.after_1_s / math.sqrt(t):.1%})" for t, e in errors.items()]
        rows.append([name, "error of the mean power (shipped)", *cells])
        if any(e > 1.1 * ships.after_1_s / math.sqrt(t) for t, e in errors.items()):
            wrong.append(f"{name}: the error is larger than the table says")
    text = [markdown(["sensor sees", "", "5 s", "60 s", "600 s"], rows)]
    shares = shares_of_limit(tables)
    lower, upper = quantiles(shares)
    text.append(f"Trainings drew {lower:.2f} to {upper:.2f} of their GPU's power limit (95% of {len(shares)}).")
    runs = mlperf_runs(tables)
    held, overs = [], []
    for run_id, (duration_s, wall_kwh) in runs.items():
        estimate = run_interval(by_limit(Path("logs"), run_id, duration_s))
        assert estimate is not None
        held.append(estimate.lower <= wall_kwh <= estimate.upper)
        overs.append(estimate.point / wall_kwh - 1)
    calibrated = calibrated_errors(runs)
    rows = [["GPU limit × 1.25", f"{len(held)} runs", coverage(held), f"{max(map(abs, overs)):.1%}", ""]]
    for is_same, name in ((True, "calibrated by a run of the same task"), (False, "by a run of another task")):
        errors = [error for error, _ in calibrated[is_same]]
        within = sum(abs(e) <= WITHIN for e in errors) / len(errors)
        hits = [h for _, h in calibrated[is_same]]
        rows.append([name, f"{len(errors)} pairs", coverage(hits), f"{max(map(abs, errors)):.1%}", f"{within:.0%}"])
        if np.mean(hits) < LEVEL - 0.03:
            wrong.append(f"{name}: the interval holds in {np.mean(hits):.1%}")
    if max(abs(e) for e, _ in calibrated[True]) > WITHIN:
        wrong.append("a calibrated run of the same task is further off than 3%")
    if wall is not None:
        ratios = list(workstation_ratios(wall).values())
        errors = [a / b - 1 for a, b in permutations(ratios, 2)]
        ships_host = error_of("host", "calibrated")
        assert ships_host is not None
        hits = [abs(e) <= ships_host.upper - 1 for e in errors]
        within = sum(abs(e) <= WITHIN for e in errors) / len(errors)
        name = "workstation, by a run of another model"
        rows.append([name, f"{len(ratios)} runs", coverage(hits), f"{max(map(abs, errors)):.1%}", f"{within:.0%}"])
    text.append(markdown(["energy at the wall", "of", "95% interval holds", "worst error", "within 3%"], rows))
    of_one, of_sum = simulated_coverage()
    rows = [["one run", "", coverage(of_one)], [f"a sum over {N_RUNS} runs", "", coverage(of_sum)]]
    text.append(markdown(["meters off at random", "", "95% interval holds"], rows))
    for name, hits in (("one run", of_one), ("a sum", of_sum)):
        if abs(np.mean(hits) - LEVEL) > 0.02:
            wrong.append(f"simulated meters, {name}: the interval holds in {np.mean(hits):.1%}")
    return "\n\n".join(text), wrong


def main() -> None:
    """Print the tables, and put them into a page if asked; with ``--check`` the exit code is 1 where one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="the folder of reference tables")
    parser.add_argument("--wall", type=Path, help="the results of ai-energy-validation")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    parser.add_argument("--check", action="store_true", help="fail where an error is larger than stated")
    arguments = parser.parse_args()
    text, wrong = report(arguments.tables, arguments.wall)
    told(text, arguments.into, BEGIN, END)
    if wrong:
        print("\n".join(["", *wrong]), file=sys.stderr)
    sys.exit(1 if wrong and arguments.check else 0)


if __name__ == "__main__":
    main()
