"""What is not a torch loop: fits on the first n samples, in virtual time."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys

import pytest
from fakes import FakeClock

from greenlove_tracker import explore_callable, read_logs
from greenlove_tracker.meter import NullMeter
from greenlove_tracker.vocabulary.errors import UsageError


def explored(tmp_path, cost_s, *, samples=100_000, cold_s=0.0, **arguments):
    clock, calls, order = FakeClock(), itertools.count(), random.Random(4)
    sizes = []

    def fit(n):
        sizes.append(n)
        clock.pass_s(cost_s(n) * (1 + 0.02 * order.random()) + (cold_s if next(calls) == 0 else 0.0))

    settings = {"clock": clock, "meter": NullMeter(), "log_dir": tmp_path, "verbose": 0}
    return explore_callable(fit, samples=samples, **(settings | arguments)), clock.now_s, sizes


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.8, 2.0])
def test_the_exponent_and_the_whole_are_found(tmp_path, exponent):
    true_s = 500.0
    estimation, _, _ = explored(tmp_path, lambda n: true_s * (n / 100_000) ** exponent, budget_s=600)
    forecast = estimation.forecast
    assert forecast.method == "power" and forecast.duration_s.point == pytest.approx(1.01 * true_s, rel=0.05)
    assert forecast.duration_s.lower < 1.01 * true_s < forecast.duration_s.upper
    assert any(f"n^{exponent:.2f}"[:5] in w.message for w in forecast.warnings if w.name == "POWER_LAW")


def test_the_first_fit_is_not_counted_but_paid_once(tmp_path):
    estimation, _, sizes = explored(tmp_path, lambda n: 1e-4 * n, cold_s=9.0)
    assert sizes[0] == sizes[1] == 100
    assert max(t.total_s for t in estimation.trials if t.sample_size == 100) < 0.2
    assert read_logs(tmp_path).runs[0].text("cold_start_s").startswith("9.")
    assert estimation.forecast.one_off_s.point == pytest.approx(9.0, rel=0.01)
    assert estimation.forecast.duration_s.point == pytest.approx(9.0 + 10.1, rel=0.02)


@pytest.mark.parametrize("budget_s", [2.0, 30.0])
def test_the_budget_is_overrun_by_one_fit_at_most(tmp_path, budget_s):
    _, took_s, sizes = explored(tmp_path, lambda n: 1e-8 * n**2, budget_s=budget_s)
    assert took_s <= budget_s + max(1.02 * 1e-8 * n**2 for n in sizes)
    assert max(1e-8 * n**2 for n in sizes) < 0.5 * budget_s  # a size that would take it all is left out


def test_a_small_budget_holds_three_sizes_where_the_smallest_takes_a_twentieth_of_it(tmp_path):
    estimation, took_s, _ = explored(tmp_path, lambda n: 0.4 * n / 50, samples=400, budget_s=7.0)
    assert len({t.sample_size for t in estimation.trials}) >= 3 and took_s <= 7.0


def test_sizes_are_the_users_where_given(tmp_path):
    estimation, _, sizes = explored(tmp_path, lambda n: 1e-4 * n, sizes=[300, 100, 200, 100])
    assert set(sizes) == {100, 200, 300} and len(estimation.trials) == 9


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"sizes": [100, 200]}, "three different ones"),
        ({"sizes": [0, 100, 200]}, "three different ones"),
        ({"sizes": [100, 200, 200_000]}, "three different ones"),
        ({"samples": 2}, "samples must be"),
        ({"samples": 10.5}, "samples must be"),
        ({"budget_s": 0}, "budget_s must be positive"),
        ({"budget_s": 0.5, "sizes": [9_000, 20_000, 50_000]}, "three are needed"),
        ({"on_no_terminal": "ask"}, "on_no_terminal"),
    ],
)
def test_what_cannot_be_explored_is_refused(tmp_path, arguments, says):
    with pytest.raises(UsageError, match=says):
        explored(tmp_path, lambda n: 1e-4 * n, **arguments)


def test_an_error_of_the_fit_stays_the_users_and_the_run_is_failed(tmp_path):
    def fit(n):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        explore_callable(fit, samples=1000, clock=FakeClock(), meter=NullMeter(), log_dir=tmp_path, verbose=0)
    assert read_logs(tmp_path).runs[0].summary.status == "failed"


@pytest.mark.slow
def test_neither_torch_nor_a_terminal_is_needed(tmp_path):
    code = (
        "import sys, time\nfrom greenlove_tracker import explore_callable\n"
        "explore_callable(lambda n: time.sleep(n * 1e-5), samples=10_000, budget_s=3, sim_cpu_tdp_w=50.0)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "time grows as n^" in done.stderr and "10,000 samples" in done.stderr


def test_ctrl_c_keeps_the_fits_that_were_timed(tmp_path, capsys):
    clock = FakeClock()

    def fit(n):
        clock.pass_s(1e-4 * n)
        if n > 1_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore_callable(fit, samples=100_000, clock=clock, meter=NullMeter(), log_dir=tmp_path, verbose=1)
    (run,) = read_logs(tmp_path).runs
    assert [t.sample_size for t in run.trials] == [100, 200, 400, 800] and run.summary.status == "interrupted"
    assert run.text("method") == "power"
    assert capsys.readouterr().err.splitlines()[-1] == "stopped by Ctrl-C after 4 trials"
