"""Every file of ``examples/`` runs as it stands, without a network, and shows what it says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

import greenlove_tracker
from greenlove_tracker import aggregate, read_logs
from greenlove_tracker.logs.run import Run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TIME_LIMIT_S = 120  # far above what any takes: this is no measurement

# A file that is tested elsewhere, and where.
ELSEWHERE = {
    "experiments/carbon_sweep.yaml": "tests/experiments/test_definition_reading.py",
    "experiments/digits.yaml": "tests/experiments/test_definition_reading.py",
    "experiments/pipeline.yaml": "tests/experiments/test_pipeline.py",
    "notebook.ipynb": "tests/test_notebook.py",
    "spot_notice.sh": "tests/checkpointing/test_termination.py",
}
NO_NETWORK = """
import socket

def refuse(*address, **_):
    open({witness!r}, "a").write(f"{{address}}\\n")
    raise OSError("no network here")

socket.socket.connect = socket.getaddrinfo = refuse
"""


@dataclass(frozen=True)
class Shown:
    """What an example left behind: what it printed, and its directory."""

    printed: str
    cwd: Path

    def the_run(self) -> Run:
        logs = read_logs(self.cwd / "greenlove_logs")
        assert logs.problems == []
        (run,) = logs.runs
        assert run.summary.status == "finished"
        return run

    def number(self, pattern: str) -> float:
        (found,) = re.findall(pattern, self.printed)
        return float(found)


def shows_a_tracked_training(shown: Shown) -> None:
    run = shown.the_run()
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, 13)) and run.text("project") == "digits"
    assert run.summary.duration_s > 0 and run.summary.energy_kwh > 0
    assert shown.number(r"held back: (0\.\d+)") > 0.85  # chance: 0.1
    assert "12 of 12 epochs" in shown.printed and "modelled" in shown.printed


def shows_a_forecast(shown: Shown) -> None:
    run = shown.the_run()
    assert len({trial.sample_size for trial in run.trials}) >= 3
    point, lower, upper = map(
        float, re.findall(r"take (\d+) s, with 95% probability (\d+) to (\d+) s", shown.printed)[0]
    )
    assert 0 < lower <= point <= upper and lower < upper
    assert "with 95% probability" in shown.printed and (run.path / "dashboard.html").is_file()


def shows_a_power_law(shown: Shown) -> None:
    shows_a_forecast(shown)
    assert shown.number(r"time grows as n\^(\d\.\d+)") > 1.2  # faster than the data; some 2, on a quiet machine


def shows_an_explored_task(shown: Shown) -> None:
    run = shown.the_run()
    assert run.text("plan_epochs") == "300"
    assert re.search(r"300 epochs: \S.* \[\S.* – ", shown.printed) and "no evaluation was timed" not in shown.printed


def shows_a_comparison(shown: Shown) -> None:
    assert shown.the_run().text("compared") == "fused-optimizer" and "fused-optimizer" in shown.printed


def shows_a_callback(shown: Shown) -> None:
    run = shown.the_run()
    assert [epoch.epoch for epoch in run.epochs] == [1, 2, 3, 4]
    assert run.summary.counts.steps == 4 * 224 // 16
    assert run.metrics["eval_loss"].last < 2.5 and run.metrics["loss"].last < 2.5  # ln 64 = 4.2 before it has learnt


def shows_machines(shown: Shown) -> None:
    rows = re.findall(r"^(\S.*?) +([18–])((?: +\S+ \[\S+–\S+\]){3})  (\S.*)$", shown.printed, re.MULTILINE)
    assert [rows[0][0], rows[0][3]] == ["this machine", "here"]
    assert {"L40S", "H100 SXM5 80GB"} <= {name for name, *_ in rows} and {how for *_, how in rows[1:]} == {
        "on demand",
        "reserved",
    }
    costs = []
    for *_, cells, _ in rows:
        for point, lower, upper in re.findall(r"(\S+) \[([^–]+)–([^]]+)\]", cells):
            assert 0 < float(lower) <= float(point) <= float(upper)
        costs.append(float(re.findall(r"(\S+) \[", cells)[1]))
    assert all(cheaper <= dearer for cheaper, dearer in pairwise(costs[1:]))


def shows_a_report(shown: Shown) -> None:
    totals = {
        project: total.n_runs for (project,), total in aggregate(shown.cwd / "greenlove_logs").by("project").items()
    }
    assert totals == {"logistic-regression": 2, "svm": 1}
    assert (shown.cwd / "report.pdf").read_bytes().startswith(b"%PDF")
    page = (shown.cwd / "report.html").read_text(encoding="utf-8")
    assert "</html>" in page and all(project in page for project in totals)
    assert "svm: runs 1" in shown.printed


def shows_found_epochs(shown: Shown) -> None:
    run = shown.the_run()
    assert len(run.epochs) == 2 and "Found 2 epochs and 90 optimizer steps" in shown.printed


def shows_checkpoints(shown: Shown) -> None:
    assert len(shown.the_run().epochs) == 2
    assert re.search(r"^weights: [0-9a-f]{16}$", shown.printed, re.MULTILINE)
    assert any((shown.cwd / "digits-checkpoints").iterdir())


# An example's name, what stands before it on the command line and after it, and what it is to show.
RUN: list[tuple[str, Sequence[str], Sequence[str], Callable[[Shown], None]]] = [
    ("track_digits.py", [], [], shows_a_tracked_training),
    ("explore_digits.py", [], [], shows_a_forecast),
    (
        "explore_digits.py:task",
        ["-c", "from greenlove_tracker.cli import main; main()", "explore", "--country", "DE"],
        ["--budget", "2"],
        shows_an_explored_task,
    ),
    (
        "compare_digits.py:task",
        ["-c", "from greenlove_tracker.cli import main; main()", "compare", "--techniques", "fused-optimizer"],
        ["--budget", "5"],
        shows_a_comparison,
    ),
    ("scikit_learn_fit.py", [], [], shows_a_power_law),
    ("huggingface_callback.py", [], [], shows_a_callback),
    ("compare_with_crusoe.py", [], [], shows_machines),
    ("report_of_a_directory.py", [], [], shows_a_report),
    ("plain_pytorch.py", ["-m", "greenlove_tracker", "--country", "DE"], ["--epochs", "2"], shows_found_epochs),
    ("checkpointed_digits.py", [], ["--epochs", "2"], shows_checkpoints),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "before", "after", "check"), RUN, ids=[name for name, *_ in RUN])
def test_an_example_runs_and_shows_what_it_says(name, before, after, check, no_settings, tmp_path) -> None:
    if name == "huggingface_callback.py":
        pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
    witness = tmp_path / "network"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK.format(witness=str(witness)))
    cwd = tmp_path / "work"
    cwd.mkdir()
    own = {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    left_out = ("HF_HUB_OFFLINE", "RANK", "LOCAL_RANK", "WORLD_SIZE")
    run = subprocess.run(
        [sys.executable, *before, str(EXAMPLES / name), *after],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in left_out} | own,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert not witness.exists(), witness.read_text()
    check(Shown(run.stdout + run.stderr, cwd))


def _names() -> set[str]:
    """Return every example, by its path in ``examples/``, as the directory has it."""
    files = (path for path in EXAMPLES.rglob("*") if path.suffix in (".ipynb", ".py", ".yaml", ".sh"))
    return {path.relative_to(EXAMPLES).as_posix() for path in files}


def test_no_example_is_left_out() -> None:
    run_here = {name.partition(":")[0] for name, *_ in RUN}
    assert run_here.isdisjoint(ELSEWHERE) and run_here | set(ELSEWHERE) == _names()
    for name, test in ELSEWHERE.items():
        assert Path(name).stem in (ROOT / test).read_text(encoding="utf-8")


def test_every_example_is_in_the_readme() -> None:
    linked = re.findall(r"\]\(([\w/]+\.(?:ipynb|py|yaml|sh))\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert len(linked) == len(set(linked)) and set(linked) == _names()


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_an_example_uses_public_names_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module == "greenlove_tracker":
            assert {name.name for name in node.names} <= set(greenlove_tracker.__all__)
        else:
            assert not module.startswith("greenlove_tracker.") or module.startswith("greenlove_tracker.integrations.")
    assert f"examples/{path.name}" in text.partition('"""\n\n')[0]
