"""In a notebook: a real IPython shows our types as tables."""

from __future__ import annotations

import subprocess
import sys

import pytest
from report_samples import GERMANY, epoch_row, gpu_energy, write_run

from greenlove_tracker.report.notebook import shown, summary_screen


def test_a_summary_says_how_much_was_measured(tmp_path):
    run = write_run(tmp_path, [epoch_row(1, 3600.0, gpu_energy(3600.0))], "<b>x", intensity=GERMANY)
    html = shown(summary_screen(run.summary))
    assert "92% measured" in html and "120 Wh" in html and "&lt;b&gt;x" in html


@pytest.mark.slow
def test_ipython_shows_them_by_itself(tmp_path):
    pytest.importorskip("IPython")
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import sys
import greenlove_tracker
from greenlove_tracker import TrainingPlan, Trial, extrapolate, project
f = extrapolate([Trial(m * 10, 10, (0.1 * m,) * 3) for m in (10, 20, 40, 80)], TrainingPlan(10_000, 10, 50))
show = shell.display_formatter.formatters["text/html"]
assert "95%" not in show(f) and " min [" in show(f)
rows = project(f, local_gpu="RTX 4090", country="DE")
assert "machine" in show(rows) and show(rows).count("\\n") > 5
assert "here" in show(rows[0]) and show([1, 2]) is None and show(("a",)) is None
print("shown")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.strip().endswith("shown"), done.stderr
