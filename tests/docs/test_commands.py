"""Every command of README, tutorial, guides and method runs as it stands, on recorded logs and a small script."""

from __future__ import annotations

import ast
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import greenlove_tracker
from greenlove_tracker import read_logs
from greenlove_tracker.cli import cli

ROOT = Path(__file__).parents[2]
GIVEN = ROOT / "tests" / "golden" / "given"
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "docs" / "method").glob("*.md")),
]

# What does not run here, and why. Its options are checked all the same.
NOT_RUN = {
    "it tries for seconds to minutes, with torch": (
        "greenlove checkpoints rehearse",
        "greenlove compare train.py:task",
        "greenlove experiment run",
        "greenlove explore train.py:task",
        "greenlove project --memory train.py:task",
    ),
    "it asks the network": ("--intensity live", "s3://", "greenlove plan --threshold 200 --max-wait 6h --country GB"),
    "it needs a launcher": ("torchrun",),
    "it waits until tomorrow, or until Ctrl-C": ('--start "tomorrow 03:00"', "greenlove watch greenlove_logs"),
    "it needs a service or a directory of the system": ("--export wandb",),
    "its exit code is the machine's": ("greenlove doctor",),
}
RUN_ALL_THE_SAME = {"greenlove watch greenlove_logs --once", "greenlove doctor --print-udev"}
OF_PROCESSES = ("greenlove run", "greenlove plan --threshold")  # they replace or end the process

SCRIPT = """
import sys


def task():
    raise SystemExit("not trained here")


if __name__ == "__main__":
    total = 0.0
    for epoch in range(3):
        total += sum(range(1000))
    print("done", sys.argv[1:])
"""


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language; of plain ones, and the output of commands, that is empty."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^\1``` *$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, named, text in fences if named == language]


def commands() -> list[str]:
    """Return the commands of all pages, once each: lines of code, and the cells of README's table."""
    found = re.findall(r"\| `(greenlove [^`]*)`", PAGES[0].read_text("utf-8"))
    for page in PAGES:
        for block in blocks(page, ""):
            lines = re.findall(r"^(?:[A-Z_]+=\S+ |srun )*greenlove [^ \n:].*$", block, re.MULTILINE)
            found += [re.sub(r"\s{2,}#.*$", "", line) for line in lines]
    return list(dict.fromkeys(found))


def is_left_out(command: str) -> bool:
    parts = [part for some in NOT_RUN.values() for part in some]
    return command not in RUN_ALL_THE_SAME and any(part in command for part in parts)


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """Make the directory that the pages speak of: a script, logs, checkpoints, prices, intensities by the hour."""
    place = tmp_path_factory.mktemp("docs") / "given"
    logs = place / "greenlove_logs"
    shutil.copytree(GIVEN / "tracked" / "20260921T130000-0001", logs / "before" / "20260921T130000-0001")
    shutil.copytree(GIVEN / "tracked" / "20260921T140000-0002", logs / "after" / "20260921T140000-0002")
    shutil.copytree(GIVEN / "gpu" / "20261121T101502-c41e", logs / "20261121T101502-c41e0a12")
    (explored,) = (GIVEN / "explored").iterdir()
    shutil.copytree(explored, logs / explored.name)
    shutil.copytree(explored, place / "l40s_logs" / explored.name)
    there = place / "l40s_logs" / explored.name / "run.csv"
    there.write_text(there.read_text("utf-8").replace("NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA L40S"), "utf-8")
    shutil.copytree(GIVEN / "saved", place / "checkpoints")
    shutil.copytree(GIVEN / "experiment", place / "examples" / "experiments")
    shutil.copytree(ROOT / "tests" / "recorded" / "foreign", place / "foreign")
    (place / "train.py").write_text(SCRIPT)
    (place / "package").mkdir()
    (place / "package" / "train.py").write_text(SCRIPT)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [now + timedelta(hours=hour) for hour in range(-24 * 30, 1)]
    rows = [f"{at:%Y-%m-%dT%H:%MZ},{300 + 100 * math.sin(at.hour / 24 * 2 * math.pi):.1f}" for at in hours]
    (place / "grid.csv").write_text("\n".join(["utc,gco2e_per_kwh", *rows]) + "\n")
    guide = ROOT / "docs" / "guides"
    (prices,) = [block for block in blocks(guide / "where-to-train.md", "") if block.startswith("provider,gpu")]
    (place / "offers.csv").write_text(prices)
    (jobs,) = [block for block in blocks(guide / "when-to-train.md", "") if block.startswith("name,hours")]
    (place / "jobs.csv").write_text(jobs)
    (settings,) = [block for block in blocks(guide / "slurm-and-containers.md", "toml") if "site.toml" in block]
    (place / "site.toml").write_text(settings.replace("/shared/greenlove/logs", "shared"))
    (place / "bin").mkdir()
    (place / "bin" / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (place / "bin" / "greenlove").write_text(f'#!/bin/sh\nexec {sys.executable} -m greenlove_tracker "$@"\n')
    for program in (place / "bin").iterdir():
        program.chmod(0o755)
    return place


@pytest.fixture
def place(given, tmp_path, no_settings, monkeypatch) -> Path:
    directory = tmp_path / "place"
    shutil.copytree(given, directory)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return directory


def is_a_process(command: str) -> bool:
    return command.startswith(OF_PROCESSES) or not command.startswith("greenlove")


def cases() -> list[object]:
    """Return the commands that run: those that take a process, seconds each, are slow but for README's."""
    front = PAGES[0].read_text("utf-8")
    run = [command for command in commands() if not is_left_out(command)]
    slow = pytest.mark.slow
    return [pytest.param(c, marks=slow) if is_a_process(c) and c not in front else c for c in run]


@pytest.mark.parametrize("command", cases())
def test_a_command_runs(command: str, place: Path) -> None:
    variables_and_words = shlex.split(command.partition(" > ")[0])
    if is_a_process(command):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
        code, said = done.returncode, done.stdout + done.stderr
    else:
        result = CliRunner().invoke(cli, variables_and_words[1:])
        code, said = result.exit_code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert code == 0, said
    assert "Traceback" not in said, said


@pytest.mark.parametrize("command", [command for command in commands() if is_left_out(command)])
def test_a_command_that_is_left_out_has_options_that_there_are(command: str) -> None:
    verb, *words = shlex.split(command.partition(" > ")[0])[1:]
    found = cli.commands[verb]
    while isinstance(found, click.Group):
        found = found.commands[words.pop(0)]
    found.make_context(verb, words)


def test_every_reason_to_leave_one_out_is_used() -> None:
    for parts in NOT_RUN.values():
        for part in parts:
            assert any(part in command for command in commands()), part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_in_python_is_python_and_imports_what_there_is(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block.replace(": …", ": ..."))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("greenlove_tracker"):
                assert {name.name for name in node.names} <= names_of(node.module), ast.unparse(node)


def names_of(module: str) -> set[str]:
    """Return the names that a module gives, read rather than imported: torch and frameworks take seconds."""
    if module == "greenlove_tracker":
        return set(greenlove_tracker.__all__)
    path = ROOT / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
    given = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    modules = {file.stem for file in path.glob("*.py")} if path.is_dir() else set()
    return given | modules


def test_a_site_is_rolled_out_and_its_month_reported(place: Path, monkeypatch) -> None:
    monkeypatch.setenv("GREENLOVE_CONFIG", str(place / "site.toml"))
    for name, value in {"JOB_ID": "4711", "JOB_ACCOUNT": "vision", "JOB_PARTITION": "gpu"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    (place / "job.sh").write_text("#!/bin/sh\nsrun greenlove run train.py --lr 3e-4\n")
    done = subprocess.run(["sh", "job.sh"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout == "done ['--lr', '3e-4']\n", done.stderr
    (run,) = read_logs(place / "shared").runs
    assert run.text("job_id") == "4711" and run.text("country") == "DE"
    month = f"{datetime.now(UTC):%Y-%m}"
    result = CliRunner().invoke(cli, ["report", "shared", "--month", month, "--text", "--by", "job"])
    assert result.exit_code == 0 and "4711" in result.stdout, result.output


@pytest.mark.slow
def test_the_tutorial_script_explores_and_trains(tmp_path, no_settings, monkeypatch) -> None:
    pytest.importorskip("torch")
    (script,) = blocks(ROOT / "docs" / "tutorial.md", "python")
    assert "def task():" in script and "for epoch in range(20):" in script
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["explore", "train.py:task", "--epochs", "2000", "--budget", "1"])
    assert result.exit_code == 0, result.output
    assert "2000 epochs" in result.output.replace(",", "")
