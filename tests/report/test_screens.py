from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock, make_tracker, session, train
from report_samples import GPU_FIELDS, cpu_energy, demo_run, epoch_row, gpu_run, write_run

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate, read_logs
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.run import Run
from greenlove_tracker.phases import phases_from
from greenlove_tracker.records import Flag, RowKind, RunStatus
from greenlove_tracker.report.declarations import cite
from greenlove_tracker.report.exploration_report import exploration_document
from greenlove_tracker.report.screens import end_screen, forecast_screen, summary_table
from greenlove_tracker.stopping import ExpectedStop

DEMO_SCREEN = """\
greenlove  demo/20261121T034044-7f3a   finished   12 of 12 epochs   exit 0

  time        25.3 s   12 × 1.86 s, and 2.95 s outside epochs (setup, validation, saving)
  energy    0.199 Wh   95% range 0.118 Wh – 0.403 Wh · cpu 0.056 modelled (load × TDP) · ram 0.133
                       constant (20 W) · 0.010 estimated for 1.30 s before the meter was up · PUE
                       1.0
  CO2e      0.0913 g   95% range 0.0539 g – 0.184 g, from the energy alone · location-based,
                       lifecycle, 458 g/kWh, 2025, world average: no country set
  cost       unknown   no country, so no electricity price

  0% of this energy was measured: a virtual machine without counters (greenlove doctor)

  wrote   logs/20261121T034044-7f3a/   demo.pdf
  next    greenlove run --country DE your_train.py"""

GPU_SCREEN = """\
greenlove  thesis/20261121T101502-c41e   finished   30 of 30 epochs

  time   41 min 12 s   30 × 1 min 17 s, and 2 min 45 s outside epochs (setup, validation, saving)
  energy     95.9 Wh   95% range 89.6 Wh – 109 Wh · gpu 60.7 counter · cpu 12.4 counter · ram 6.9
                       constant (10 W) · all × PUE 1.2
  CO2e        36.6 g   95% range 34.1 g – 41.5 g, from the energy alone · location-based, lifecycle,
                       381 g/kWh, 2023, Germany, Our World in Data
  cost        $0.040   95% range $0.038 – $0.046, from the energy alone · electricity at 0.419
                       $/kWh, household, 2025-S1; no machine price set
  compute 0.69 GPU-h   1 × NVIDIA GeForce RTX 3060 Laptop GPU, mean 88.4 W of 115 W, peak memory
                       4.10 GB

  Before PUE 91% measured, 9% modelled. Not counted: screen, disks, network, making of the hardware"""


def assert_fits(screen: str) -> None:
    assert max(len(line) for line in screen.splitlines()) <= 100


def test_the_screen_of_the_demo_is_as_drawn(tmp_path: Path) -> None:
    wrote = ("logs/20261121T034044-7f3a/", "demo.pdf")
    screen = end_screen(
        demo_run(tmp_path), exit_code=0, wrote=wrote, next_command="greenlove run --country DE your_train.py"
    )
    assert screen == DEMO_SCREEN
    assert_fits(screen)


def test_the_screen_of_a_gpu_run_shows_the_compute_line(tmp_path: Path) -> None:
    screen = end_screen(gpu_run(tmp_path), exit_code=None)
    assert screen == GPU_SCREEN
    assert_fits(screen)


def test_unknown_is_said_with_its_reason_and_never_as_zero(tmp_path: Path) -> None:
    fields = {"meter": "none", "meter_note": "RAPL is not readable"}
    run = write_run(tmp_path, [epoch_row(1, 2.0)], fields=fields, intensity=None)
    screen = end_screen(run, exit_code=0)
    assert "energy     unknown   RAPL is not readable" in screen
    assert "CO2e       unknown   no carbon intensity in the log" in screen
    assert "No energy was measured: RAPL is not readable (greenlove doctor)" in screen


def test_a_run_that_ended_before_the_meter_was_up_is_told_what_to_do(tmp_path: Path) -> None:
    fields = {"meter": "codecarbon 3.3.2", "meter_note": "a virtual machine without counters"}
    run = write_run(tmp_path, [epoch_row(1, 2.0, flags=[Flag.METER_STARTING])], fields=fields)
    screen = " ".join(end_screen(run, exit_code=0).split())
    assert "energy unknown the run ended before the meter was up CO2e" in screen
    assert "the meter was up; call tracker.wait_ready(30) before the first epoch, or run longer" in screen
    assert "doctor" not in screen


def test_a_short_run_without_code_of_its_own_is_not_told_to_call_anything(tmp_path: Path) -> None:
    rows = [replace(epoch_row(1, 2.0, flags=[Flag.METER_STARTING]), kind=RowKind.TAIL, epoch=None)]
    fields = {"meter": "codecarbon 3.3.2", "epochs_planned": ""}
    run = write_run(tmp_path, rows, fields=fields)
    screen = " ".join(end_screen(run, exit_code=0).split())
    assert "before the meter was up; a longer run would be measured" in screen and "wait_ready" not in screen


def test_one_batch_is_one_batch() -> None:
    trials = [Trial(64, 64, (0.01 * (1 + 0.01 * i), 0.01)) for i in range(3)]
    screen = forecast_screen(extrapolate(trials, TrainingPlan(samples=64, batch_size=64, epochs=9)), trials, 0.0)
    assert "1 batch × " in screen and "at 1 size, 1 batch" in screen and "1 batches" not in screen


def test_each_phase_is_shown_with_its_share() -> None:
    trials = [Trial(64 * m, 64, (0.01 + 0.1 * m,) * 4) for m in (4, 4, 8, 16, 16)]
    phases = phases_from("500x64samples,name=warm-up 500x128samples,eval_every=100,eval_s=3 100x64samples")
    screen = forecast_screen(extrapolate(trials, TrainingPlan(phases=phases)), trials, 0.0)
    assert_fits(screen)
    lines = screen.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("  phases    500 steps  warm-up"))
    assert "128 samples" in lines[first + 1] and lines[first + 1].endswith("and 5 evaluations")
    assert lines[first + 2].strip().startswith("100 steps") and "64 samples" in lines[first + 2]
    shares = [int(word[:-1]) for line in lines[first : first + 3] for word in line.split() if word.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=1) and shares[1] > shares[0] > shares[2]
    many = TrainingPlan(phases=tuple(Phase(10, samples_per_step=64 + i) for i in range(20)))
    assert "and 12 more" in forecast_screen(extrapolate(trials, many), trials, 0.0)


def test_a_run_without_a_row_has_no_time(tmp_path: Path) -> None:
    screen = end_screen(write_run(tmp_path, []), exit_code=None)
    assert "time       unknown   nothing was recorded" in screen and "0 s" not in screen
    assert summary_table(aggregate(tmp_path), ["project"]).splitlines()[-1].split()[:3] == ["total", "1", "unknown"]


def test_missing_carbon_intensity_leaves_the_emissions_unknown(tmp_path: Path) -> None:
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], intensity=None)
    assert "CO2e       unknown" in end_screen(run, exit_code=0)
    table = summary_table(aggregate(tmp_path), ["project"])
    assert table.splitlines()[4].split()[-2:] == ["unknown", "unknown"]


def test_an_unfinished_epoch_is_told_apart(tmp_path: Path) -> None:
    rows = [
        epoch_row(1, 2.0, cpu_energy(2.0)),
        epoch_row(2, 3.0, cpu_energy(3.0)),
        epoch_row(3, 1.0, cpu_energy(1.0), kind=RowKind.SEGMENT, flags=[Flag.METER_FAILED]),
    ]
    screen = end_screen(write_run(tmp_path, rows, status="terminated", exit_code=143), exit_code=143)
    assert "terminated   2 of 3 epochs   exit 143" in screen
    assert "2 epochs of 2.00 s to 3.00 s, mean 2.50 s, 1.00 s of an unfinished one" in screen
    assert "The meter failed during the run" in screen


def test_a_machine_price_is_the_cost(tmp_path: Path) -> None:
    rows = [epoch_row(1, 3600.0, cpu_energy(3600.0))]
    run = write_run(tmp_path, rows, fields={**GPU_FIELDS, "price_usd_per_gpu_hour": "3.9"})
    assert "cost         $3.90   machine at 3.90 $ per GPU-hour, as set" in end_screen(run, exit_code=0)


def test_hostile_names_neither_break_lines_nor_steer_the_terminal(tmp_path: Path) -> None:
    fields = {"project": "\x1b[31m" + "ü" * 5000 + "\n[bold]x", "meter_note": "a\nb\x07" + "c" * 900}
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], fields=fields)
    for screen in (end_screen(run, exit_code=0), summary_table(aggregate(tmp_path), ["project"])):
        assert_fits(screen)
        assert "\x1b" not in screen
        assert "\x07" not in screen


def test_paths_are_never_shortened(tmp_path: Path) -> None:
    paths = ("a" * 90 + "/", "b" * 120)
    screen = end_screen(demo_run(tmp_path), exit_code=0, wrote=paths)
    assert all(path in screen for path in paths)


def test_the_summary_is_one_table_with_its_total(tmp_path: Path) -> None:
    demo_run(tmp_path)
    gpu_run(tmp_path)
    write_run(tmp_path, [epoch_row(1, 1.0)], "20261122T000000-aaaa", fields={"project": ""})
    (tmp_path / "junk").mkdir()
    lines = summary_table(aggregate(tmp_path), ["project"]).splitlines()
    assert lines[0].split() == ["project", "runs", "time", "GPU-h", "energy", "CO2e", "cost"]
    assert lines[2].split() == ["(none)", "1", "1.00", "s", "–", "unknown", "unknown", "unknown"]
    assert lines[6].split() == ["total", "3", "41", "min", "38", "s", "0.687", "96.1", "Wh*", "36.6", "g*", "$0.040*"]
    assert lines[8] == "95% range of the total: energy 89.8 Wh – 109 Wh, CO2e 34.2 g – 41.7 g, cost $0.038 – $0.046"
    assert lines[10] == "* without the runs for which it is unknown"
    assert " ".join("\n".join(lines).split()).endswith("junk: is not a run: no run.csv")  # a long path wraps
    assert len({len(line) for line in lines[:7]}) == 1


def test_the_summary_keeps_its_width_with_many_keys_and_wide_characters(tmp_path: Path) -> None:
    write_run(
        tmp_path, [epoch_row(1, 1.0)], fields={"project": "模型" * 40, "account": "x" * 80, "cpu_model": "y" * 80}
    )
    table = summary_table(aggregate(tmp_path), ["project", "account", "device"])
    assert_fits(table)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    demo_run(tmp_path)
    with pytest.raises(UsageError, match="cannot group by colour"):
        summary_table(aggregate(tmp_path), ["colour"])


def test_an_empty_directory_has_an_empty_table(tmp_path: Path) -> None:
    assert summary_table(aggregate(tmp_path), ["project"]) == "no runs"


def test_cite_tells_final_preliminary_and_failed_apart(tmp_path: Path) -> None:
    for i, (tags, status) in enumerate([("final, a", "finished"), ("", "finished"), ("final", "failed")]):
        write_run(tmp_path, [epoch_row(1, 60.0, cpu_energy(60.0))], f"run-{i}", fields={"tags": tags}, status=status)
    text = cite(aggregate(tmp_path))
    assert "(1 final, 1 preliminary and 1 failed or interrupted) on Xeon" in text
    assert "| final | 1 | 1 min | – | 0.473 Wh | 0.217 g |" in text
    assert "| total | 3 | 3 min | – | 1.42 Wh | 0.650 g |" in text
    assert "458 gCO2e/kWh, 2025, world average" in text
    assert "PUE 1.0" in text
    assert "Hardware measured none of the energy; it is modelled or estimated." in text


def test_cite_without_a_final_run_says_so(tmp_path: Path) -> None:
    gpu_run(tmp_path)
    write_run(tmp_path, [epoch_row(1, 60.0)], "run-2", fields={"cpu_model": "A|B\n*c*"})
    text = cite(aggregate(tmp_path))
    assert 'No run is tagged "final"' in text
    assert "A\\|B \\*c\\*" in text
    assert "unknown for 1 run" in text
    assert "Hardware measured 91% of the energy before PUE; the rest is modelled" in text


def test_cite_of_nothing_says_so(tmp_path: Path) -> None:
    assert cite(aggregate(tmp_path)) == "No run could be read: there is nothing to cite."


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


# -- a time limit -------------------------------------------------------------------------------------------------


def limited(tmp_path: Path, clock: FakeClock, n_done: int, *, ends: bool = True, **settings: object) -> Run:
    """A run of 20 epochs of 10 s, after ``n_done`` of which it is ended by SIGTERM."""
    tracker = make_tracker(clock, tmp_path, **settings)
    train(tracker, clock, n_done)
    if ends:
        tracker.stop()
    else:
        session().finish(RunStatus.TERMINATED)
    return read_logs(tmp_path).runs[-1]


@pytest.fixture
def clock(monkeypatch) -> FakeClock:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    return FakeClock()


def test_a_limit_that_was_kept_or_missed_is_said_at_the_end(tmp_path: Path, clock: FakeClock) -> None:
    kept = end_screen(limited(tmp_path, clock, 20, max_hours=1.0), exit_code=0)
    assert "  time limit of 1 h kept, 56 min 40 s to spare" in kept.splitlines()
    clock.pass_s(5.0)
    missed = limited(tmp_path, clock, 20, deadline_utc="2026-09-21T14:18:00")
    assert "  deadline after 1 min 15 s missed by 2 min 5 s" in end_screen(missed, exit_code=0).splitlines()
    late = limited(tmp_path, clock, 20, deadline_utc="2020-01-01")
    assert "  the deadline had passed before the run began" in end_screen(late, exit_code=0).splitlines()
    assert "limit" not in end_screen(demo_run(tmp_path), exit_code=0)


def test_a_run_that_ended_before_it_was_done_says_how_it_would_have_fitted(tmp_path: Path, clock: FakeClock) -> None:
    run = limited(tmp_path, clock, 8, ends=False, max_hours=120 / 3600)
    screen = end_screen(run, exit_code=None)
    assert (
        "  time limit of 2 min: fits with under 1%; 11 epochs fit with 95%; the whole takes about 3 min 20 s" in screen
    )
    assert_fits(screen)
    cut = end_screen(limited(tmp_path, clock, 12, ends=False, max_hours=120 / 3600), exit_code=1)
    assert "  time limit of 2 min: missed, with 12 of 20 epochs; the whole takes about 3 min 2" in cut


def test_of_a_run_whose_epochs_are_not_monitored_to_the_end_the_whole_is_said_to_fit(
    tmp_path: Path, clock: FakeClock
) -> None:
    run = limited(tmp_path, clock, 5, max_hours=1.0, monitor_epochs=5)
    assert run.summary.status == "finished" and "limit of 1 h: fits with over 99%;" in end_screen(run, exit_code=0)


def test_a_limit_that_the_log_has_damaged_is_left_out_by_name(tmp_path: Path, clock: FakeClock) -> None:
    run = limited(tmp_path, clock, 20, max_hours=1.0)
    text = (run.path / "run.csv").read_text().replace("time_limit_s,3600.0", "time_limit_s,36x")
    (run.path / "run.csv").write_text(text)
    run = read_logs(tmp_path).runs[-1]
    assert "limit" not in end_screen(run, exit_code=0)
    assert any("time_limit_s" in str(problem) for problem in run.problems)


def test_a_forecast_with_early_stopping_says_where_it_ends_and_what_all_epochs_would_take():
    trials = [Trial(64 * m, 64, (0.1 * m,) * 5) for m in (5, 10, 20, 40)]
    stop = ExpectedStop(((9, 0.1), (14, 0.6), (22, 0.3)), 50, 0.0, "3 earlier runs")
    plan = TrainingPlan(samples=6400, batch_size=64, epochs=50, stop=stop)
    forecast = extrapolate(trials, plan, level=0.9)
    screen = forecast_screen(forecast, trials, 0.0)
    assert "stops after about 14 of 50 epochs (90%: 9 to 22); from 3 earlier runs" in screen
    assert "all 50 epochs would take 8 min 20 s" in screen and max(map(len, screen.splitlines())) <= 100
    paragraph = (
        "It stops after about 14 of 50 epochs (90%: 9 to 22); from 3 earlier runs. All 50 epochs would take 8 min 20 s"
    )
    assert paragraph in str(exploration_document(forecast, trials))
