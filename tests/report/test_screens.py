from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes import FakeClock, make_tracker, train
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker import read_logs
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.report.run_report import end_screen


def assert_fits(screen: str) -> None:
    assert max(len(line) for line in screen.splitlines()) <= 100


def test_what_is_unknown_is_never_zero(tmp_path: Path) -> None:
    fields = {"meter": "none", "meter_note": "RAPL is not readable"}
    screen = end_screen(write_run(tmp_path, [epoch_row(1, 2.0)], fields=fields, intensity=None), exit_code=0)
    assert "unknown energy  unknown CO2e  unknown cost" in screen


def test_hostile_names_neither_break_lines_nor_steer_the_terminal(tmp_path: Path) -> None:
    fields = {"project": "\x1b[31m" + "ü" * 5000 + "\n[bold]x", "meter_note": "a\nb\x07" + "c" * 900}
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], fields=fields)
    for screen in (end_screen(run, exit_code=0), terminal.render(summary_document(aggregate(tmp_path), ["project"]))):
        assert_fits(screen)
        assert "\x1b" not in screen
        assert "\x07" not in screen


def test_the_screen_at_the_end_of_a_run_loads_nothing_of_projections_or_pandas(tmp_path):
    code = (
        "import sys\n"
        "from greenlove_tracker import Tracker\n"
        "with Tracker(sim_cpu_tdp_w=50) as t:\n"
        "    t.epoch_start(); t.epoch_end()\n"
        "slow = ('greenlove_tracker.projection', 'pandas', 'scipy', 'numpy')\n"
        "slow = {module for module in sys.modules if module.startswith(slow)}\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_limit_that_the_log_has_damaged_is_left_out_by_name(tmp_path: Path) -> None:
    clock = FakeClock()
    with make_tracker(clock, tmp_path, max_hours=1.0) as tracker:
        train(tracker, clock, 20)
    file = tracker.run_dir / "run.csv"
    file.write_text(file.read_text().replace("time_limit_s,3600.0", "time_limit_s,36x"))
    (run,) = read_logs(tmp_path).runs
    assert "limit" not in end_screen(run, exit_code=0)
    assert any("time_limit_s" in str(problem) for problem in run.problems)
