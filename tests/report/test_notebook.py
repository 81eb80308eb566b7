"""In a notebook: a real IPython shows forecasts and summaries as cards, and the rest as tables; print says them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from report_samples import GERMANY, epoch_row, gpu_energy, write_run

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.report.notebook import card
from greenlove_tracker.vocabulary.records import Energy


def test_a_summary_is_a_card_and_prints_as_sentences(tmp_path):
    run = write_run(tmp_path, [epoch_row(1, 3600.0, gpu_energy(3600.0))], "<b>x", intensity=GERMANY)
    html = card(run.summary).replace("\N{NO-BREAK SPACE}", " ")
    assert "92% measured" in html and ">120 Wh<" in html and "&lt;b&gt;x" in html and "<b>x" not in html
    assert f"{run.summary}" == (
        "<b>x (finished) took 1 h, 120 Wh, 45.7 g CO2e and unknown cost. Its energy is 92% measured."
    )


def test_a_tilde_stands_before_what_is_modelled(tmp_path):
    modelled = Energy(cpu_kwh=0.12, cpu_method="tdp_model")
    run = write_run(tmp_path, [epoch_row(1, 3600.0, modelled)], intensity=GERMANY)
    assert " took 1 h, ~120 Wh, ~45.7 g CO2e and unknown cost. Its energy is modelled." in f"{run.summary}"
    assert ">~120" in card(run.summary) and ">~1\N{NO-BREAK SPACE}h" not in card(run.summary)


def test_of_an_energy_that_is_unknown_nothing_more_is_said(tmp_path):
    run = write_run(tmp_path, [epoch_row(1, 60.0)], intensity=GERMANY)
    assert f"{run.summary}".endswith(" took 1 min, unknown energy, unknown CO2e and unknown cost.")


def test_a_forecast_is_a_card_and_prints_as_sentences():
    trials = [Trial(m * 10, 10, (0.1 * m,) * 3, 0.001 * m) for m in (10, 20, 40)]
    forecast = extrapolate(trials, TrainingPlan(10_000, 10, 50))
    said = f"{forecast}"
    assert said.startswith("Forecast of 10,000 samples · batch 10 · 50 epochs: 1 h 23 min [1 h 2")
    assert " kWh [" in said and "~" not in said  # nobody says how their energy is known
    assert "Forecast(" in repr(forecast)


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
assert "<div" in show(f) and "1\N{NO-BREAK SPACE}h\N{NO-BREAK SPACE}2" in show(f)
assert shell.display_formatter.formatters["text/plain"](f) == str(f)
rows = project(f, local_gpu="RTX 4090", country="DE")
assert "machine" in show(rows) and show(rows).count("\\n") > 5
assert "here" in show(rows[0]) and show([1, 2]) is None and show(("a",)) is None
print("shown")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout.strip().endswith("shown"), done.stderr
