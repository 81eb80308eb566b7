from __future__ import annotations

from pathlib import Path

import pytest
from report_samples import STARTED_S, demo_rows, demo_run, epoch_row, issued, running, write_run

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import clock_time
from greenlove_tracker.logs.directory import FollowedDirectory
from greenlove_tracker.rendering.terminal import display_width
from greenlove_tracker.report.watch_screen import watch_screen

NOW_S = STARTED_S + 25.0


@pytest.fixture(autouse=True)
def _process_is_there(monkeypatch):
    """The runs' files are of another time than this process."""
    monkeypatch.setattr("greenlove_tracker.logs.run._is_running", lambda run, _: run["pid"].value != "1")


def screen(logs: Path, n_ended: int = 5, now_s: float = NOW_S, **more) -> str:
    return watch_screen(FollowedDirectory(logs).look(n_ended), now_s, **more)


def test_a_run_is_shown_with_all_that_is_known_of_it(tmp_path):
    energy = Estimate(4e-4, 3e-4, 5e-4, 0.95, "kWh")
    running(tmp_path, forecast=issued(12.0, point=40.0, half=2.0, energy_kwh=energy), command="train.py --lr 3e-4")
    demo_run(tmp_path)
    write_run(tmp_path, demo_rows(2), "20261121T000000-b", status=None, fields={"pid": "1", "epochs_planned": "9"})
    heading, *lines = screen(tmp_path).splitlines()
    assert heading.startswith(f"greenlove watch  {tmp_path}"[:30])
    assert "  1 running · 1 seems dead · 1 ended · " in heading
    ends = clock_time(NOW_S + 15.0, NOW_S)
    assert lines[:6] == [
        "",
        "  demo/20261121T000001-a   running · train.py --lr 3e-4",
        "    ━━━━━━━━╌╌╌╌╌╌╌╌ 50%  6 of 12 epochs · 60 steps · 25.0 s so far",
        f"    left 15.0 s [13.0 s – 17.0 s] (95%) · ends {ends} · the whole 40.0 s [38.0 s – 42.0 s]",
        "    28.4 W now · 0.104 Wh, 0.0477 g CO2e so far · 0.400 Wh in all",
        "",
    ]
    assert lines[6] == "  ended, latest first"
    assert lines[7].startswith("    demo/20261121T034044-7f3a   finished · 12 of 12 epochs · 25.3 s · ")
    assert lines[8].startswith("    demo/20261121T000000-b   seems dead · 2 of 9 epochs · ")
    assert lines[9].startswith("      no end was written, and nothing was written for ")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 300])
def test_it_fits_the_terminal(tmp_path, width):
    running(tmp_path, forecast=issued(12.0, point=40.0), project="a-project-with-a-long-name" * 3, command="x " * 200)
    running(tmp_path, run_id="20261121T000002-b", host="node-of-a-cluster" * 4, pid="1", epochs_planned="")
    write_run(tmp_path, demo_rows(1), "20261121T000002-z", fields={"schema_version": "99", "project": "p" * 90})
    for now_s in (NOW_S, NOW_S + 9999.0):
        text = screen(tmp_path, width=width, now_s=now_s)
        assert max(map(display_width, text.splitlines())) <= min(max(width, 40), 100), text
        assert "running" in text and "newer than" in text.replace("…", "newer than")


def test_of_what_is_not_known_nothing_is_invented(tmp_path):
    running(tmp_path, [epoch_row(1, 2.0)], epochs_planned="")
    text = screen(tmp_path)
    assert "energy unknown so far" in text and "no forecast: its length is unknown" in text
    assert "%" not in text and "1 epoch · 10 steps · 25.0 s so far" in text
    running(tmp_path, run_id="20261121T000002-b")
    assert "no forecast yet" in screen(tmp_path)


def test_a_run_that_is_overdue_or_may_hang_says_so(tmp_path):
    running(tmp_path, forecast=issued(12.0, point=40.0, half=2.0))
    text = screen(tmp_path, now_s=STARTED_S + 50.0)
    assert "overdue: the latest forecast was 40.0 s [38.0 s – 42.0 s]" in text and "left" not in text
    text = screen(tmp_path, now_s=STARTED_S + 624.0)
    assert "    ! its process is there, but nothing was written for 10 min: it may hang" in text
    assert "power now unknown" in text


@pytest.mark.slow
def test_of_many_runs_those_that_fit_are_shown_and_the_others_counted(tmp_path):
    for i in range(20):
        running(tmp_path, run_id=f"20261121T0001{i:02d}-a")
    for i in range(180):
        write_run(tmp_path, [], f"20261121T00{2 + i // 60:02d}{i % 60:02d}-b", fields={"epochs_planned": ""})
    text = screen(tmp_path, height=24)
    lines = text.splitlines()
    assert len(lines) <= 24 and "20 running · 180 ended" in lines[0]
    n_shown = sum("   running" in line for line in lines)
    assert 1 <= n_shown < 20 and f"  and {20 - n_shown} more that run" in lines
    assert lines[-1] == "    and 175 more"
    assert sum("   running" in line for line in screen(tmp_path).splitlines()) == 20
