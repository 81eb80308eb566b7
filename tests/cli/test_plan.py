"""``greenlove plan``: what it asks for, what it says, and what it prints for whom."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from intensity_server import Reply, serving
from projection_samples import explored

from greenlove_tracker.cli import cli
from greenlove_tracker.cli import plan as plan_module
from greenlove_tracker.grid.live import fallback

NOW = datetime(2026, 11, 22, 15, 3, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(plan_module, "_utc_now", lambda: NOW)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def call(*arguments: str):
    return CliRunner().invoke(cli, ["plan", *arguments])


def csv_file(path: Path, level: float = 300.0, swing: float = 100.0) -> Path:
    """Six weeks of days that are alike, dirtiest at 18:00 UTC."""
    first = NOW.replace(minute=0, second=0) - timedelta(days=42)
    hours = [first + n * HOUR for n in range(42 * 24)]
    value = [level + swing * math.cos((h.hour - 18) * math.tau / 24) + 3 * math.sin(n) for n, h in enumerate(hours)]
    rows = "".join(f"{h:%Y-%m-%dT%H:%MZ},{v:.2f}\n" for h, v in zip(hours, value, strict=True))
    path.write_text("utc,gco2e_per_kwh\n" + rows)
    return path


def test_a_mock_is_labelled_on_the_screen_and_the_page(tmp_path: Path) -> None:
    result = call("--hours", "4", "--within", "24h", "--intensity", "mock", "-o", "plan.html")
    assert "! MOCK" in result.stdout
    assert "The intensities are invented" in (tmp_path / "plan.html").read_text()
    assert "wrote plan.html" in result.stderr


def test_no_network_is_asked_unless_a_service_is_named(monkeypatch) -> None:
    result = call("--hours", "4", "--within", "24h")
    assert result.exit_code == 1 and "give --intensity: live asks the network" in result.stderr
    where = call("--hours", "4", "--within", "24h", "--intensity", "live")
    assert where.exit_code == 1 and "live needs to know where: give --country" in where.stderr
    monkeypatch.setenv("GREENLOVE_INTENSITY", "mock")
    assert "MOCK" in call("--hours", "4", "--within", "24h").stdout


def test_live_answers_and_where_it_fails_the_table_is_no_reason_to_wait(monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    arguments = ("--hours", "4", "--kwh", "2", "--within", "24h", "--intensity", "live", "--country", "GB,DE")
    with serving() as server:
        server.always(Reply(status=503))
        urls = ",".join(f"{name}={server.url}" for name in fallback.SERVICES)
        monkeypatch.setenv("GREENLOVE_INTENSITY_URLS", urls)
        result = call(*arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith("No advice: GB: neso: HTTP 503 from 127.0.0.1; DE: energy_charts: HTTP 503")
    assert server.asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hours", "4", "--intensity", "mock"], "give --within"),
        (["--hours", "4", "--intensity", "mock", "--within", "soon"], "--within is a length of time"),
        (["--hours", "4", "--intensity", "mock", "--within", "2020-01-01T00:00Z"], "has passed"),
        (["--within", "1h", "--intensity", "mock"], "without a log give --hours"),
        (["--hours", "4", "--within", "9h", "--intensity", "teh-grid"], "no such source of carbon intensity"),
        (
            ["--hours", "4", "--within", "9h", "--intensity", "table", "--country", "Atlantis"],
            "--country 'Atlantis'",
        ),
        (["--hours", "4", "--within", "9h", "--intensity", "eia", "--country", "DE"], "eia knows no zone for DE"),
        (["--hours", "4", "--within", "9h", "--by", "cost"], "--by cost needs --tariff"),
        (["--hours", "4", "--within", "9h", "--intensity", "mock", "--emit", "slurm"], "a command goes with --emit"),
        (["--hours", "4", "--within", "9h", "--intensity", "mock", "--emit", "cronjob", "--", "x"], "and --image"),
        (["--hours", "4", "--within", "9h", "--intensity", "mock", "--", "x"], "a command goes with --emit"),
        (["--hours", "4", "--within", "9h", "--intensity", "mock", "-o", "plan.txt"], "can be written"),
        (["logs", "--hours", "4", "--within", "9h"], "leave it out"),
        (["--jobs", "jobs.csv", "--hours", "4", "--within", "9h", "--intensity", "mock"], "leave out the log"),
        (["--jobs", "nowhere.csv", "--within", "9h", "--intensity", "mock"], "cannot read nowhere.csv"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(arguments: list[str], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 1, result.output
    assert said in result.stderr and result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_log_says_how_long_it_takes_and_what_it_draws(logs: Path, tmp_path: Path) -> None:
    run = explored(logs, trials_kwh="0.0001")
    path = csv_file(tmp_path / "grid.csv")
    arguments = (str(logs), "--within", "24h", "--intensity", str(path), "--json")
    record = json.loads(call(*arguments).stdout)
    assert record["about"].startswith(run.run_id[:15]) or "forecast from an exploration" in record["about"]
    assert record["duration_s"] > 0 and record["energy_kwh"] > 0
    assert record["region"] == run.text("country") or record["region"] is None
    assert json.loads(call(*arguments, "--kwh", "9").stdout)["energy_kwh"] == 9


def test_a_schedulers_file_is_all_of_stdout(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "grid.csv")
    words = ["python", "train.py", "--name", "it's $HOME", "--", "--json"]
    arguments = ["--hours", "4", "--within", "24h", "--intensity", str(path), "--emit"]
    slurm = call(*arguments, "slurm", "--", *words)
    assert slurm.exit_code == 0, slurm.output
    assert slurm.stdout.startswith("#!/bin/sh") and "sbatch --begin=" in slurm.stdout
    assert "2026-11-23 04:00:00 UTC" in slurm.stdout and "it's $HOME" not in slurm.stdout.replace("'\"'\"'", "'")[:40]
    assert slurm.stderr.startswith("Start at 04:00 tomorrow")
    kubernetes = call(*arguments, "cronjob", "--image", "me/train", "--", *words)
    assert "kind: CronJob" in kubernetes.stdout and 'schedule: "0 4 23 11 *"' in kubernetes.stdout
    assert kubernetes.stderr == slurm.stderr and "it's $$HOME" in kubernetes.stdout
    now = call("--hours", "4", "--within", "5h", "--intensity", str(path), "--emit", "slurm", "--", "x")
    assert "2026-11-22 15:03:20 UTC" in now.stdout  # not worth waiting: it starts now


def test_the_answer_names_the_clean_country_once() -> None:
    result = call("--hours", "4", "--kwh", "2", "--within", "24h", "--intensity", "table", "--country", "DE,FR")
    first = result.stdout.splitlines()[0]
    assert first.startswith("Start now in France (FR): ") and first.endswith("% less CO2e.")
    assert result.stdout.count("France") == 1 and "No advice" not in result.stdout
    named = call("--hours", "4", "--within", "24h", "--intensity", "table", "--country", "Germany,France").stdout
    assert named.startswith("Start now in France: ")


@pytest.mark.parametrize(
    ("prices", "kwh", "said"),
    [
        ((0.0, -0.05), "3", "$0.15 less cost."),
        ((-0.01, -0.05), "3", "$0.12 less cost."),
        ((0.20, -0.05), "3", "$0.75 less cost."),
        ((0.20, 0.0), "", "$0.20 less cost per kWh."),
        ((0.20, 0.05), "3", "75% less cost."),
    ],
)
def test_a_price_of_zero_or_below_is_told_in_dollars(prices: tuple[float, float], kwh: str, said: str) -> None:
    tariff = f"base {prices[0]}; low {prices[1]} 3-4"
    energy = ("--kwh", kwh) if kwh else ()
    arguments = ("--hours", "1", *energy, "--within", "24h", "--by", "cost", "--tariff", tariff)
    result = call(*arguments)
    assert result.stdout.splitlines()[0] == f"Start at 03:00 tomorrow (in 11 h 57 min): {said}"
    amount = said.split()[0]
    assert f"saves {amount}" in json.loads(call(*arguments, "--json").stdout)["reason"]


def test_the_age_of_an_old_history_is_on_the_screen(tmp_path: Path) -> None:
    lines = csv_file(tmp_path / "grid.csv").read_text().splitlines()
    old = tmp_path / "old.csv"
    old.write_text("\n".join(lines[:-36]) + "\n")
    result = call("--hours", "4", "--within", "24h", "--intensity", str(old))
    assert result.stdout.startswith(
        "Start at "
    ) and "old.csv, given by the user: the newest figure is 1 d 12 h old." in (result.stdout)


# -- Several jobs --

JOBS = "name,hours,kwh,within\nbert,2,3,\nresnet,1,0.8,+5h\nllm,4,60,13h\n"


def test_jobs_together_emit_as_little_as_any_choice_of_starts(tmp_path: Path) -> None:
    """Against each combination of starts, on a grid whose hours to come are given."""
    level = [410, 300, 330, 120, 380, 210, 90, 260, 150, 340, 70, 230, 180, 400]
    rows = [f"{NOW.replace(minute=0, second=0) + n * HOUR:%Y-%m-%dT%H:%MZ},{v}\n" for n, v in enumerate(level)]
    (tmp_path / "grid.csv").write_text("utc,gco2e_per_kwh\n" + "".join(rows))
    (tmp_path / "jobs.csv").write_text(JOBS)
    into = (NOW.minute * 60 + NOW.second) / 3600

    def gco2e(kwh: float, hours: int, start: float) -> float:
        shares = [max(0.0, min(start + hours, n + 1) - max(start, n)) for n in range(len(level))]
        return kwh / hours * sum(share * v for share, v in zip(shares, level, strict=True))

    choices = []
    for kwh, hours, within_h in ((3, 2, 12), (0.8, 1, 5), (60, 4, 13)):
        starts = [into, *range(1, len(level))]
        choices.append([gco2e(kwh, hours, start) for start in starts if start + hours <= into + within_h])
    least = min(map(sum, itertools.product(*choices)))
    result = call("--jobs", "jobs.csv", "--within", "12h", "--intensity", "grid.csv", "--json")
    record = json.loads(result.stdout)
    assert [job["name"] for job in record["jobs"]] == ["bert", "resnet", "llm"]
    assert 1000 * sum(job["emissions_kgco2e"] for job in record["jobs"]) == pytest.approx(least)
    assert 1000 * sum(job["emissions_now_kgco2e"] for job in record["jobs"]) == pytest.approx(
        sum(c[0] for c in choices)
    )


def test_jobs_are_given_regions_and_starts_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    arguments = ("--jobs", "jobs.csv", "--within", "24h", "--country", "DE,FR", "--by", "cost")
    shown = call(*arguments, "--tariff", "base 0.20; low 0.10 20-24", "-o", "jobs.html")
    first = "3 jobs, each at its best start, against all now: 2.82 kg of CO2e instead of 21.8 kg, $6.46 of cost"
    assert shown.stdout.replace("\n", " ").replace("   ", " ").startswith(first), shown.output
    assert "instead of $12.76." in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if "resnet" in line)
    assert line.split()[1:3] == ["FR", "now"] and line.endswith(" 0%")  # over before the price falls
    assert "20:00" in next(line for line in shown.stdout.splitlines() if "llm" in line)
    assert "When to start" in (tmp_path / "jobs.html").read_text()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("name,hours\nbert,4\n", "jobs.csv needs the columns name,hours,kwh; it has name, hours"),
        ("name,hours,kwh\nbert,4\n", "jobs.csv, line 2: kwh is empty"),
        ("name,hours,kwh\nbert,four,3\n", "jobs.csv, line 2: could not convert"),
        ("name,hours,kwh\nbert,4,3\nresnet,-1,3\n", "jobs.csv, line 3: duration is"),
        ("name,hours,kwh,within\nbert,4,3,soon\n", "jobs.csv, line 2: --within is a length of time"),
        ("name,hours,kwh\n", "jobs.csv holds no job"),
    ],
)
def test_a_job_that_cannot_be_meant_is_named_by_its_line(tmp_path: Path, rows: str, said: str) -> None:
    (tmp_path / "jobs.csv").write_text(rows)
    result = call("--jobs", "jobs.csv", "--within", "24h", "--intensity", "mock")
    assert result.exit_code == 1 and said in result.stderr and result.stderr.count("\n") == 1


def test_help_loads_no_numpy() -> None:
    code = (
        "import sys; from greenlove_tracker.cli import cli; cli.main(['plan', '--help'], standalone_mode=False); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, timeout=60).returncode == 0
