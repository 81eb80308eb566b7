"""The status line of a training on a fake clock: 10 s an epoch, 360 W."""

from __future__ import annotations

from fakes import ScriptedMeter, gpu_energy, make_tracker, session, train


def lines(capsys) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("greenlove  epoch")]


def test_without_a_terminal_a_plain_line_tells_the_forecast_now_and_then(clock, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with make_tracker(clock, tmp_path, verbose=1, country="DE", epochs_before_pred=2) as tracker:
        train(tracker, clock, 19)
        told = lines(capsys)
    assert [line.split()[2] for line in told] == ["2/20", "8/20", "14/20"]  # a minute apart
    assert "forecast 3:20 [" in told[1] and "20.0 Wh" in told[1] and "g CO2e" in told[1] and "$" in told[1]
    assert "ends " in told[1] and "--time" not in told[1]


def test_in_a_slurm_job_the_line_names_the_time_to_ask_for(clock, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 10)
        assert "--time=00:0" in lines(capsys)[-1]


def test_nothing_is_said_at_verbose_0(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=0) as tracker:
        train(tracker, clock, 10)
    assert capsys.readouterr().err == ""


def test_a_stuck_epoch_is_overdue(clock, tmp_path, capsys):
    with make_tracker(clock, tmp_path, verbose=1) as tracker:
        train(tracker, clock, 10)
        tracker.epoch_start()
        clock.pass_s(5000.0)
        assert "overdue" in session().status_text()


def test_a_meter_that_has_just_come_up_leaves_energy_out_of_the_status_line(clock, tmp_path):
    meter = ScriptedMeter([gpu_energy(0.0), gpu_energy(0.001)])
    meter.resolution_s = 0.1
    with make_tracker(clock, tmp_path, meter=meter) as tracker:
        clock.pass_s(0.001)
        tracker.epoch_start()
        assert "kWh" not in session().status_text() and "CO2e" not in session().status_text()
        clock.pass_s(10.0)
        tracker.epoch_end()
        assert "1.00 Wh" in session().status_text()
