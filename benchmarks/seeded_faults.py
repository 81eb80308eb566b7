"""Sixty seeded faults: each changes one line of the package, and a test that is named must fail then.

    python benchmarks/seeded_faults.py                  # all of them: which are caught, which are missed
    python benchmarks/seeded_faults.py --room logs --only 3
    python benchmarks/seeded_faults.py --golden         # by all golden cases alone, whatever tests are named

The repository is copied to a temporary directory, a fault is applied there, its tests run, and the file is put back.
The exit code is 1 where a fault is missed, or where its text is not found once in its file.

A fault stands for a promise to users (a sum, a unit, an interval, a file that is whole), not for a line. Where a line
is rewritten, write its fault anew in the new words, with the same harm; ``tests/test_benchmarks.py`` says which texts
are gone. Tests at public interfaces are named first, the golden cases above all: they outlive a rewritten room.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
PACKAGE = "greenlove_tracker"
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "docs", "site", "build", "dist", "*.egg-info")
GOLDEN = "tests/golden/test_golden.py"
MOST_S = 300


@dataclass(frozen=True)
class Fault:
    """A line that is wrong.

    Attributes:
        room: of docs/architecture.md that it is in.
        file: below the package.
        text: found once in the file.
        instead: the same, wrong.
        breaks: what users would see.
        tests: that catch it, as pytest names them.
    """

    room: str
    file: str
    text: str
    instead: str
    breaks: str
    tests: tuple[str, ...]


def golden(*cases: str) -> tuple[str, ...]:
    return tuple(f"{GOLDEN}::test_golden[{case}]" for case in cases)


FAULTS = (
    # -- the root --
    Fault(
        "vocabulary",
        "vocabulary/records.py",
        "return math.fsum(known) if known else None",
        "return max(known) if known else None",
        "the energy is that of the largest component",
        golden("summary-by-project"),
    ),
    Fault(
        "vocabulary",
        "vocabulary/records.py",
        "if self.higher_is_better:",
        "if not self.higher_is_better:",
        "the worst value of a metric counts as its best",
        golden("summary-metrics"),
    ),
    Fault(
        "vocabulary",
        "vocabulary/pricing.py",
        'return _times(energy_kwh, intensity, "kgCO2e", GRAMS_PER_KG)',
        'return _times(energy_kwh, intensity, "kgCO2e", 1.0)',
        "grams of CO2e are called kilograms",
        golden("run-that-failed"),
    ),
    Fault(
        "vocabulary",
        "vocabulary/pricing.py",
        "factor = self.price_usd_per_gpu_hour * gpu_count",
        "factor = self.price_usd_per_gpu_hour",
        "a machine of several GPUs costs what one does",
        golden("summary-by-project"),
    ),
    Fault(
        "vocabulary",
        "vocabulary/phases.py",
        "return (1.0 / work, 1.0) if is_same_data else (1.0, work)",
        "return (1.0, work)",
        "epochs of larger batches are forecast as if they had as many steps",
        ("tests/vocabulary/test_phases.py",),
    ),
    Fault(
        "text",
        "text/format.py",
        '(1, "kWh"), (1e3, "Wh")',
        '(1, "kWh"), (1e2, "Wh")',
        "energies are shown as a tenth of what they are",
        golden("report-gpu"),
    ),
    Fault(
        "files",
        "files/writing.py",
        "draft.replace(path)",
        "path.write_bytes(draft.read_bytes())",
        "a report or a summary can be seen half written",
        ("tests/logs/test_writer.py",),
    ),
    Fault(
        "vocabulary",
        "vocabulary/stopping.py",
        "if self.higher_is_better:",
        "if not self.higher_is_better:",
        "early stopping follows the metric the wrong way",
        golden("early-stopping"),
    ),
    # -- tables, meter --
    Fault(
        "tables",
        "tables/offers.py",
        "usd_per_gpu_hour=None if price is None else price / gpus,",
        "usd_per_gpu_hour=None if price is None else price / max(sizes),",
        "a price per GPU is taken for one of the whole machine",
        golden("gpus"),
    ),
    Fault(
        "meter",
        "meter/codecarbon.py",
        '"ram": self._share.ram}',
        '"ram": 1.0}',
        "a job in a quarter of a machine is charged for all of its memory",
        ("tests/meter/test_codecarbon.py",),
    ),
    # -- tracker --
    Fault(
        "tracker",
        "tracker/recorder.py",
        "self.epoch = self._epochs_before + self.epochs_begun",
        "self.epoch = self._epochs_before + self.epochs_begun - 1",
        "epochs are counted from 0",
        golden("run"),
    ),
    Fault(
        "tracker",
        "tracker/recorder.py",
        "self._gap = self._no_span()\n        counts",
        "counts",
        "the gap before an epoch counts once for each of its segments",
        golden("run-in-segments"),
    ),
    Fault(
        "tracker",
        "tracker/recorder.py",
        "if was_failing:",
        "if False:",
        "behind a reading that failed an epoch has the energy of two",
        ("tests/tracker/test_recorder.py",),
    ),
    Fault(
        "tracker",
        "tracker/budget_monitor.py",
        "if used_now is not None and used_now > limit:",
        "if used_now is not None and used_now > 1e3 * limit:",
        "a budget that is used up stops nothing",
        ("tests/tracker/test_budgets.py",),
    ),
    Fault(
        "tracker",
        "tracker/forecaster.py",
        "self._between_s += row.gap_before_s",
        "pass",
        "forecasts leave out what lies between epochs",
        golden("run"),
    ),
    # -- logs --
    Fault(
        "logs",
        "logs/totals.py",
        "(total_kwh + (assumed_kwh or 0.0)) * terms.pue",
        "(total_kwh + (assumed_kwh or 0.0)) * terms.pue**2",
        "PUE is counted twice",
        golden("run-with-machine-price"),
    ),
    Fault(
        "logs",
        "logs/totals.py",
        'duration_s = max((found.sum("total_s") for found in timed), default=0.0)',
        'duration_s = min((found.sum("total_s") for found in timed), default=0.0)',
        "a run takes as long as its fastest rank",
        golden("summary-ranks"),
    ),
    Fault(
        "logs",
        "logs/totals.py",
        "steps=sum((found.counts for found in lead), Counts()).steps",
        "steps=everyone.steps",
        "an optimizer step counts once for each rank",
        golden("rows-of-ranks"),
    ),
    Fault(
        "logs",
        "logs/totals.py",
        "self.sum(component) / known_s * max(0.0, total_s - known_s)",
        "0.0",
        "time without a meter costs nothing",
        golden("summary-by-project"),
    ),
    Fault(
        "logs",
        "logs/selection.py",
        "return max(0.0, min(end_s, to_s) - max(start_s, from_s)) / (end_s - start_s)",
        "return float(start_s >= from_s)",
        "a row across the end of a month counts wholly to the first one",
        golden("summary-by-day-and-status"),
    ),
    Fault(
        "logs",
        "logs/measurement_errors.py",
        "return energy_kwh * (1 - least), energy_kwh * math.hypot(self.upper - 1, sampling)",
        "return energy_kwh * below, 0.0",
        "the upper side of every range is lost",
        golden("summary-by-project"),
    ),
    Fault(
        "logs",
        "logs/csvio.py",
        'if not line.endswith(("\\n", "\\r")):',
        "if len(line) == _LONGEST_LINE:",
        "a line that a crash cut off is read as a whole one",
        ("tests/logs/test_directory.py",),
    ),
    Fault(
        "logs",
        "logs/writer.py",
        "return os.dup(self._handle)",
        "return None",
        "a power failure takes rows that were written long before",
        ("tests/tracker/test_tracker.py::test_rows_are_on_the_disk_with_the_next_tick",),
    ),
    Fault(
        "logs",
        "logs/foreign/carbontracker.py",
        "(1, 60, 3600, 86_400)",
        "(0, 60, 3600, 86_400)",
        "carbontracker's epochs lose their seconds",
        golden("summary-foreign"),
    ),
    # -- extrapolation --
    Fault(
        "extrapolation",
        "extrapolation/regression.py",
        "plan.n_epochs * m * self.per_batch) * self.of_run",
        "(plan.n_epochs - 1) * m * self.per_batch) * self.of_run",
        "a forecast leaves out an epoch",
        golden("extrapolate"),
    ),
    Fault(
        "extrapolation",
        "extrapolation/regression.py",
        "of_run = np.sqrt((1.0 + _RUN_TO_RUN**2) * between_trials + run_variance)",
        "of_run = 0.0 * between_trials",
        "intervals leave out how runs differ from each other",
        golden("extrapolate"),
    ),
    Fault(
        "extrapolation",
        "extrapolation/extrapolate.py",
        "overhead_s = np.full(N + 1, one_off.point)",
        "overhead_s = np.zeros(N + 1)",
        "a cold start is left out of the forecast",
        golden("explore"),
    ),
    Fault(
        "extrapolation",
        "extrapolation/live.py",
        'estimate(progress.used_kwh + each_kwh * left_s, "kWh")',
        'estimate(each_kwh * left_s, "kWh")',
        "the energy forecast leaves out what is used already",
        golden("run"),
    ),
    Fault(
        "extrapolation",
        "extrapolation/draws.py",
        "np.quantile(draws, [(1 - level) / 2, 0.5, (1 + level) / 2])",
        "np.quantile(draws, [1 - level, 0.5, level])",
        "95% intervals of live forecasts are 90% ones",
        golden("run"),
    ),
    # -- exploration --
    Fault(
        "exploration",
        "exploration/snapshot.py",
        'self._undos += [("values", _storage_undo(storage)) for storage in copied.values()]',
        "",
        "the training begins with the weights of its exploration",
        golden("explore"),
    ),
    Fault(
        "exploration",
        "exploration/trials.py",
        "first = source.first(request.batches)",
        "first = iter(source)",
        "a trial trains on a whole epoch and not on its sample",
        golden("explore"),
    ),
    Fault(
        "exploration",
        "exploration/trial_session.py",
        "return sum_energies(energies)",
        "return Energy(gpu_kwh=sum_energies(energies).gpu_kwh)",
        "of a trial's energy that of the GPU alone is kept",
        golden("explore"),
    ),
    # -- projection --
    Fault(
        "projection",
        "projection/rows.py",
        ".over(faster.ratio.times(gain))",
        ".over(faster.ratio)",
        "eight GPUs are as fast as one",
        golden("project-log"),
    ),
    Fault(
        "projection",
        "projection/rows.py",
        "n_gpus = target.billed_gpus",
        "n_gpus = target.wanted_gpus",
        "a machine of eight GPUs costs what the one that is wanted does",
        golden("project"),
    ),
    Fault(
        "projection",
        "projection/uncertain.py",
        "up = math.hypot(*(max(above, -below, 0.0)",
        "up = max(*(max(above, -below, 0.0)",
        "the range of a projection holds only its largest error",
        golden("project"),
    ),
    Fault(
        "projection",
        "projection/preemptions.py",
        "return math.sqrt(2 * terms.checkpoint_s / terms.per_s)",
        "return math.sqrt(terms.checkpoint_s / terms.per_s)",
        "Young's interval between checkpoints is wrong",
        golden("project-spot"),
    ),
    # -- techniques --
    Fault(
        "techniques",
        "techniques/compare.py",
        "cost_ratio = time_ratio",
        "cost_ratio = energy_ratio",
        "a saving of energy is told as one of rent",
        ("tests/techniques/test_compare.py::test_a_machine_with_a_price_costs_by_its_time",),
    ),
    Fault(
        "techniques",
        "techniques/trial_schedule.py",
        "return tuple(name for name in reversed(self._last) if name in arms)",
        "return tuple(name for name in self._last if name in arms)",
        "drift of the machine counts for the technique that runs last",
        ("tests/techniques/test_trial_schedule.py",),
    ),
    Fault(
        "techniques",
        "techniques/step.py",
        "share = 1 if self._is_sum else (end - begin) / size",
        "share = 1",
        "accumulated gradients are as many times too large",
        ("tests/techniques/test_grad_accumulation.py",),
    ),
    Fault(
        "techniques",
        "techniques/lr_schedule.py",
        "return (step + 1) / (warmup + 1)",
        "return step / (warmup + 1)",
        "the first step of a warm-up has no learning rate",
        ("tests/techniques/test_lr_schedule.py",),
    ),
    # -- checkpointing --
    Fault(
        "checkpointing",
        "checkpointing/training_state.py",
        "self._whole[name].put_back(copied(saved))  # it may be put back once more",
        "pass",
        "a resume has none of the states that were saved",
        golden("checkpointer"),
    ),
    Fault(
        "checkpointing",
        "checkpointing/checkpoint_files.py",
        "_sha256(path) != file.sha256:",
        "not _sha256(path):",
        "a damaged checkpoint is resumed from",
        golden("checkpoints"),
    ),
    Fault(
        "checkpointing",
        "checkpointing/checkpoint_files.py",
        "kept_last >= self._keep_last",
        "kept_last > self._keep_last",
        "old checkpoints fill the disk",
        golden("checkpointer"),
    ),
    # -- experiments --
    Fault(
        "experiments",
        "experiments/definition.py",
        "if (n_seed + n_combination) % 2 == 1:",
        "if False:",
        "one arm is always first, and drift is taken for its effect",
        golden("experiment"),
    ),
    Fault(
        "experiments",
        "experiments/definition.py",
        '"seed": run.seed,',
        "",
        "a second seed is taken for done",
        golden("experiment"),
    ),
    # -- scheduling, grid --
    Fault(
        "scheduling",
        "scheduling/start_windows.py",
        "least = sums <= float(np.nanmin(sums)) * (1 + 1e-9)",
        "least = sums >= float(sums.max()) * (1 - 1e-9)",
        "the advice is to start when the grid is dirtiest",
        golden("plan-csv"),
    ),
    Fault(
        "scheduling",
        "scheduling/start_windows.py",
        "max(0.0, point + min(0.0, lower)), point + max(0.0, upper)",
        "max(0.0, point + min(0.0, lower)), point",
        "hours ahead are shown as if they were known",
        golden("plan-csv"),
    ),
    Fault(
        "grid",
        "grid/tariff.py",
        "local = at.astimezone(self.time_zone)",
        "local = at",
        "a tariff's hours are taken for UTC",
        golden("plan-cost"),
    ),
    Fault(
        "grid",
        "grid/factors.py",
        'value = g_per_kwh_from_lb_per_mwh(float(row["emissions"]))',
        'value = float(row["emissions"])',
        "pounds are taken for grams in US states",
        golden("tables"),
    ),
    # -- integrations --
    Fault(
        "integrations",
        "integrations/exporters/prometheus.py",
        "joules = times(run.energy_kwh, JOULES_PER_KWH)",
        "joules = run.energy_kwh",
        "kilowatt-hours are exported as joules",
        golden("prometheus"),
    ),
    Fault(
        "integrations",
        "integrations/boosted_rounds.py",
        "self._adapter.step()\n        self._adapter.log_metrics_of_step(",
        "self._adapter.log_metrics_of_step(",
        "boosting rounds are not counted",
        ("tests/integrations/test_xgboost.py::test_totals_are_those_of_a_tracker_placed_by_hand",),
    ),
    # -- report, rendering --
    Fault(
        "report",
        "report/declarations.py",
        "rate_g=(operational_kg * GRAMS_PER_KG + (embodied_gco2e or 0.0)) / count,",
        "rate_g=(operational_kg * GRAMS_PER_KG + (embodied_gco2e or 0.0)),",
        "the SCI of a run is that of all runs",
        golden("report-sci"),
    ),
    Fault(
        "report",
        "report/method.py",
        "overhead_kwh = whole_kwh - math.fsum(kwh or 0.0 for _, kwh, _ in parts)",
        "overhead_kwh = 0.0",
        "the parts of an energy are without PUE",
        ("tests/rendering/test_pdf.py",),
    ),
    Fault(
        "report",
        "report/run_report.py",
        "return slowest, slowest.mean_s / median_s - 1.0",
        "return slowest, 1.0 - slowest.mean_s / median_s",
        "the slowest rank is said to be ahead",
        ("tests/report/test_ranks.py",),
    ),
    Fault(
        "rendering",
        "rendering/html.py",
        "autoescape=is_page",
        "autoescape=False",
        "a name in a log runs as script in the report",
        ("tests/rendering/test_html.py",),
    ),
    Fault(
        "rendering",
        "rendering/axes.py",
        "(value - self.low) / ((self.high",
        "(self.high - value) / ((self.high",
        "charts are drawn upside down",
        ("tests/rendering/test_html.py",),
    ),
    Fault(
        "rendering",
        "rendering/escapes.py",
        r', r"\\\g<0>", ',
        r', r"\g<0>", ',
        "a name in a log is read as Markdown",
        ("tests/rendering/test_markdown.py",),
    ),
    # -- cli, compat --
    Fault(
        "cli",
        "cli/checkpoints.py",
        "ctx.exit(0 if newest else 1)",
        "ctx.exit(0)",
        "a script goes on without a whole checkpoint",
        golden("checkpoints-damaged"),
    ),
    Fault(
        "cli",
        "cli/run.py",
        "sys.exit(outcome.exit_code)",
        "sys.exit(0)",
        "a failed training looks finished to the scheduler",
        golden("run-of-a-script"),
    ),
    Fault(
        "compat",
        "compat/carbontracker/parser.py",
        "_car_km(grams / GRAMS_PER_KG)",
        "_car_km(grams)",
        "carbontracker's kilometres are a thousand times too many",
        golden("carbontracker"),
    ),
)


def occurrences(fault: Fault, root: Path = ROOT) -> int:
    """Return how often its text stands in its file; 0 without the file."""
    path = root / PACKAGE / fault.file
    return path.read_text("utf-8").count(fault.text) if path.exists() else 0


class Copy:
    """A copy of the repository in which faults are tried, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "repository"
        self._n_written = 0
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT)

    def outcome(self, fault: Fault, tests: Sequence[str]) -> str:
        """Return whether the tests fail with the fault."""
        if (n := occurrences(fault, self.root)) != 1:
            return f"text found {n} times"
        path = self.root / PACKAGE / fault.file
        whole = path.read_text("utf-8")
        try:
            self._write(path, whole.replace(fault.text, fault.instead))
            return self._run(tests)
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time of its own: Python takes one of the same second and length for unchanged."""
        self._n_written += 1
        path.write_text(text, "utf-8")
        os.utime(path, (self._n_written, self._n_written))

    def _run(self, tests: Sequence[str]) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=MOST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {MOST_S} s"
        if done.returncode in (0, 1):
            return "caught" if done.returncode else "missed"
        return f"pytest could not run: {(done.stdout or done.stderr).strip().splitlines()[-1]}"


def tried(faults: Sequence[Fault], *, only_golden: bool, jobs: int) -> Iterator[tuple[Fault, str, float]]:
    """Yield each fault with its outcome and the seconds that it took."""
    with tempfile.TemporaryDirectory() as directory:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for n in range(jobs):
            copies.put(Copy(Path(directory, str(n))))

        def one(fault: Fault) -> tuple[Fault, str, float]:
            copy, began_s = copies.get(), time.perf_counter()
            try:
                outcome = copy.outcome(fault, (GOLDEN,) if only_golden else fault.tests)
            finally:
                copies.put(copy)
            return fault, outcome, time.perf_counter() - began_s

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--room", help="only faults of this room")
    parser.add_argument("--only", type=int, metavar="N", help="only the N-th of these, from 1")
    parser.add_argument(
        "--golden", action="store_true", help="run all golden cases instead of the tests that are named"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at a time; default 1")
    arguments = parser.parse_args()
    chosen = [fault for fault in FAULTS if arguments.room in (None, fault.room)]
    chosen = chosen if arguments.only is None else chosen[arguments.only - 1 : arguments.only]
    outcomes = []
    for fault, outcome, seconds in tried(chosen, only_golden=arguments.golden, jobs=arguments.jobs):
        print(f"{outcome:<8} {seconds:4.0f} s  {fault.room:<14} {fault.file}: {fault.breaks}", flush=True)
        outcomes.append(outcome)
    n_caught = outcomes.count("caught")
    print(f"{n_caught} of {len(outcomes)} caught, {outcomes.count('missed')} missed")
    return 0 if n_caught == len(outcomes) and outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
