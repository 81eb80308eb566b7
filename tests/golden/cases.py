"""The golden cases, one line each: a command, or a function of public names, run in a copy of ``given/``.

``CASES`` are numbers and codes. ``SCREENS`` are what a person reads, one command for each screen or page.

``given/`` holds logs and checkpoints as the tool wrote them before, in the log format that stays: they are never
written anew. Beside them lie ``foreign/`` (carbontracker, CodeCarbon) and ``recorded/`` (six trainings) of
``tests/recorded``. What a case returns is kept in ``expected/``, which ``make golden`` writes.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from golden import trainings

import greenlove_tracker as greenlove
from greenlove_tracker.cli import cli
from greenlove_tracker.compat.carbontracker import parser
from greenlove_tracker.experiments.definition import read_experiment
from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.settings.config import load_settings

NOW = datetime(2026, 11, 30, 15, 3, 20, tzinfo=UTC)
SPOT = "project explored --spot --preemptions 0.05 --spot-price 1.2 --price 3 --checkpoint-s 5 --restart-s 60"
RUNS = ("tracked/20260921T130000-0001", "tracked/20260921T140000-0002")
TARIFF = "base 0.20; peak 0.32 17-21; zone Europe/Berlin"
Case = Callable[[Path], Any]


# -- Commands --


def invoked(command: str) -> tuple[int, str]:
    """Return the exit code and stdout of ``greenlove COMMAND``."""
    result = CliRunner().invoke(cli, shlex.split(command))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def printed(command: str, place: Path) -> tuple[int, str]:
    """Return the exit code of a command, and what it prints or writes to the file after ``-o``."""
    code, text = invoked(command)
    if " -o " in command:
        text = (place / command.split(" -o ")[1].split()[0]).read_text("utf-8-sig")
    return code, text


def verb(command: str, only: str = "") -> Case:
    """A command: its exit code and the data that it prints, or that it writes to the file after ``-o``."""

    def case(place: Path) -> dict[str, Any]:
        code, text = printed(command, place)
        data = parsed(text)
        return {"exit_code": code, "data": data[only] if only else data}

    return case


def parsed(text: str) -> Any:
    """Return the data of JSON, of CSV, or of the tables in Markdown; of other text nothing."""
    if text.startswith(("{", "[")):
        return json.loads(text)
    lines = text.splitlines()
    if any(line.startswith("|") for line in lines):
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    if all(line.count(",") == lines[0].count(",") > 1 for line in lines):
        return table(text)
    return [[number(text) for text in found] for line in lines if (found := re.findall(r"[0-9.]*[0-9]", line))]


def table(text: str) -> Any:
    """Return the rows of a CSV file, numbers as numbers; of one of fields and values a dict."""
    rows = list(csv.DictReader(io.StringIO(text)))
    if rows and list(rows[0]) == ["field", "value", "unit"]:
        return {row["field"]: number(row["value"]) for row in rows}
    return [{name: number(cell) for name, cell in row.items() if cell} for row in rows]


def number(cell: Any) -> Any:
    try:
        return float(cell) if "." in cell or "e" in cell else int(cell)
    except (TypeError, ValueError, AttributeError):
        return cell


# -- Functions --


def exit_codes(*commands: str) -> Case:
    return lambda place: {command: invoked(command)[0] for command in commands}


def files(tracker: greenlove.Tracker, pattern: str = "*.csv") -> dict[str, Any]:
    """Return the CSV files of a run; its id is random."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(tracker.run_dir.glob(pattern))}
    return {name: table(text.replace(tracker.run_dir.name, "RUN")) for name, text in texts.items()}


def summary(tracker: greenlove.Tracker) -> Any:
    return replace(tracker.summary, run_id="RUN")


def forecast_of(n_sizes: int = 5, kwh_per_batch: float | None = 1.2e-5, **options: Any) -> greenlove.Forecast:
    """Extrapolate trials of 0.4 s and 60 ms a batch, with some noise."""
    sizes = (10, 20, 40, 80, 40)[:n_sizes]
    trials = [
        greenlove.Trial(
            128 * batches,
            128,
            tuple(0.4 + 0.06 * batches * (1 + 0.02 * ((i * 7 + batches) % 5 - 2)) for i in range(4)),
            None if kwh_per_batch is None else kwh_per_batch * batches,
        )
        for batches in sizes
    ]
    plan = options.pop("plan", greenlove.TrainingPlan(samples=50_000, batch_size=128, epochs=100))
    return greenlove.extrapolate(trials, plan, **options)


def projected(place: Path) -> Any:
    rows = greenlove.project(forecast_of(), local_gpu="RTX 3090", country="DE", utilization=0.8, today=NOW.date())
    return [(row.name, row.billed_gpus, row.duration_s, row.cost_usd, row.emissions_kgco2e) for row in rows]


def tables_of(place: Path) -> Any:
    places = ("DE", "GB", "FR", "US-CA", "CA-QC", "us-east-1", "eu-iceland1-a")
    found = {name: resolve_place(name) for name in places}
    return {name: (where, carbon_intensity(where), electricity_price(where)) for name, where in found.items()}


def best_start(place: Path) -> Any:
    source = str(place / "grid.csv")
    return greenlove.best_start(
        forecast_of(), intensity=source, deadline=NOW + timedelta(hours=30), now=NOW, energy_kwh=3.0
    )


def settings(place: Path) -> Any:
    (place / "greenlove.toml").write_text('country = "DE"\npue = 1.3\nproject = "file"\n')
    found = load_settings({"pue": 1.4}, {"GREENLOVE_PROJECT": "environment", "HOME": str(place)})
    return {name: getattr(found, name) for name in ("country", "pue", "project", "max_kgco2e", "log_dir")}


def doctor_shape(place: Path) -> Any:
    found = json.loads(invoked("doctor --json")[1])  # its exit code and figures are the machine's
    return {"keys": sorted(found), "finding": sorted(found["findings"][0])}


def early_stopping(place: Path) -> Any:
    stopping = greenlove.EarlyStopping("accuracy", patience=3, min_delta=0.01)
    ends = [stopping.step(value) for value in (0.5, 0.6, 0.7, 0.705, 0.69, 0.7)]
    return {"ends": ends, "best": stopping.best_value, "best_epoch": stopping.best_epoch}


def experiment(place: Path) -> Any:
    (place / "train.py").write_text("def task():\n    pass\n")
    arms = "arms:\n  plain: []\n  fast: [amp-bf16]\nseeds: [0, 1]\nepochs: 4\n"
    (place / "experiment.yaml").write_text(f"name: digits\ntask: train.py:task\n{arms}")
    return [(run.name, run.key, run.seed, run.epochs) for run in read_experiment(place / "experiment.yaml").runs]


def end_of_a_run(place: Path) -> str:
    """What is printed below a training whose time is limited: its forecasts, then what it took."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        tracker = trainings.tracked(place, verbose=1, pue=1.5, max_hours=0.05, project="demo")
    _, head, screen = said.getvalue().rpartition("greenlove  demo/")  # below the line that was rewritten
    return (head + screen).replace(tracker.run_dir.name, "RUN").replace(f"{place}/", "")


def page_of_an_experiment(place: Path) -> str:
    """The screen and the page, made again from the logs."""
    screen = invoked("experiment report experiment/digits.yaml")[1]
    return screen + (place / "experiment/outputs/report.md").read_text("utf-8")


def prometheus(place: Path) -> Any:
    trainings.tracked(place, export=f"prometheus={place / 'run.prom'}", pue=1.5)
    lines = (place / "run.prom").read_text("utf-8").splitlines()
    return [(line.split("{")[0], number(line.split()[-1])) for line in lines if not line.startswith("#")]


CASES: dict[str, Case] = {
    "summary-by-project": verb("report several --json"),
    "summary-by-day-and-status": verb("report several --by day,status --json"),
    "summary-of-a-month-as-csv": verb("report several --since 2026-11 --group thesis --group night --csv"),
    "summary-metrics": verb("report tracked --format metrics --json"),
    "summary-ledger": verb("report several --format ledger"),
    "summary-ranks": verb("report ranks --json"),
    "summary-foreign": verb("report foreign --by project --json"),
    "summary-recorded": verb("report recorded --by project --json"),
    "report-gpu": verb("report gpu -o report.md"),
    "report-several": verb("report several -o report.md"),
    "report-compared": verb("report compared -o report.md"),
    "report-sci": verb("report several --format sci"),
    "forecast-outcomes": verb("report tracked --format forecasts --json"),
    "forecast-of-200-runs": verb("report recorded --runs 200 --json"),
    "forecast-again": verb("explore explored --epochs 30 --json"),
    "project-log": verb("project explored --csv"),
    "project-decision": verb("project --gpu T4 --hours 20 --country DE --within 8h --max-cost 40 --json", "decision"),
    "project-spot": verb(
        "project explored --spot --preemptions 0.05 --spot-price 1.2 --price 3 --checkpoint-s 5 --restart-s 60 --json"
    ),
    "speedup": verb('project --speedups --gpu "RTX 3090" --target L40S --target "H200 SXM" --workload language --json'),
    "gpus": verb("project --list H100 --json"),
    "compare-runs": verb("compare gpu cpu --json"),
    "plan-csv": verb("plan --hours 4 --kwh 3 --within 36h --intensity grid.csv --json"),
    "plan-cost": verb(f'plan --hours 4 --kwh 3 --within 24h --by cost --tariff "{TARIFF}" --json'),
    "plan-mock": verb("plan explored --within 24h --intensity mock --json"),
    "plan-slurm": verb("plan --hours 4 --kwh 3 --within 36h --intensity grid.csv --emit slurm -- python train.py"),
    "export-csv": verb("export tracked -o epochs.csv"),
    "export-json": verb("export ranks -o epochs.json"),
    "checkpoints": verb("checkpoints saved --json"),
    "checkpoints-damaged": verb("checkpoints damaged --json"),
    "exit-codes": exit_codes(
        "report missing",
        "report missing --text",
        "report several --text --since nonsense",
        "checkpoints several",
        "compare compared",
        "config check",
        "export missing",
        "report gpu --format forecasts",
        "import foreign",
        "plan --hours 4",
        "project --gpu nonsense --hours 2",
        "project --speedups --gpu A100",
        "nonsense",
        "--version",
    ),
    "run": lambda place: files(trainings.tracked(place, pue=1.5)),
    "run-in-segments": lambda place: files(trainings.tracked(place, (150.0, 100.0)), "epochs*"),
    "run-that-failed": lambda place: summary(
        trainings.tracked(place, error=ValueError("a mistake"), node_overhead=1.3)
    ),
    "run-with-machine-price": lambda place: summary(trainings.tracked(place, price_usd_per_gpu_hour=2.5, pue=1.2)),
    "run-over-budget": lambda place: summary(trainings.tracked(place, max_hours=0.01, on_overrun="stop")),
    "run-of-a-script": trainings.script,
    "forecasts-of-a-recorded-run": lambda place: files(trainings.replayed(place))["forecasts.csv"][::4],
    "extrapolate": lambda place: forecast_of(carbon_intensity=381.0, electricity_price=0.3),
    "extrapolate-power-law": lambda place: forecast_of(method="power", level=0.9),
    "extrapolate-without-energy": lambda place: forecast_of(kwh_per_batch=None),
    "extrapolate-steps": lambda place: forecast_of(plan=greenlove.TrainingPlan(steps=20_000, eval_every=1000)),
    "project": projected,
    "rows-of-a-directory": lambda place: greenlove.read_logs(place / "several").to_frame(),
    "rows-of-ranks": lambda place: greenlove.read_logs(place / "ranks").to_frame(),
    "aggregate": lambda place: greenlove.aggregate(place / "several").to_frame(),
    "best-start": best_start,
    "tables": tables_of,
    "settings": settings,
    "doctor": doctor_shape,
    "carbontracker": lambda place: parser.parse_all_logs("foreign/carbontracker"),
    "early-stopping": early_stopping,
    "experiment": experiment,
    "prometheus": prometheus,
    "explore": trainings.explored,
    "compare-techniques": trainings.compared,
    "checkpointer": trainings.resumed,
}

SCREENS: dict[str, str | Callable[[Path], str]] = {
    "summary": "report several --text",
    "summary-ranks": "report ranks --by project",
    "end-of-a-run": end_of_a_run,
    "watch": "watch several --once",
    "forecast": "report tracked --format forecasts",
    "project": 'project --gpu "RTX 4090" --hours 20 --country DE',
    "project-log": "project gpu",
    "project-limits": "project explored --within 30min --max-cost 5 --all",
    "spot": SPOT,
    "speedup": 'project --speedups --gpu "RTX 3090" --target L40S',
    "gpus": "project --list H100",
    "compare-runs": "compare gpu cpu",
    "plan": "plan --hours 4 --kwh 3 --within 36h --intensity grid.csv",
    "plan-cost": 'plan --hours 4 --kwh 3 --within 24h --by cost --tariff "base 0.20; peak 0.32 17-21"',
    "checkpoints": "checkpoints saved",
    "experiment": page_of_an_experiment,
    "cite-latex": "report gpu --format latex",
    "cite": "report gpu --format cite",
    "model-card": "report gpu --format model-card",
    "sci": "report several --format sci",
    "report-run": "report gpu -o report.md",
    "report-cpu-run": "report cpu -o report.md",
    "report-forecasts": "report tracked -o report.md",
    "report-exploration": "report explored -o report.md",
    "report-comparison": "report compared -o report.md",
    "report-directory": "report several -o report.md",
    "report-ranks": "report ranks -o report.md",
    "report-learning": "report experiment/outputs/runs/20260921T141320-0b00 -o report.md",
    "report-period": "report several --since 2026-11 -o report.md",
    "report-project": "project explored -o report.md",
    "report-spot": f"{SPOT} -o report.md",
    "report-plan": "plan --hours 4 --kwh 3 --within 36h --intensity grid.csv -o report.md",
    "report-runs": f"compare {' '.join(RUNS)} -o report.md",
}
