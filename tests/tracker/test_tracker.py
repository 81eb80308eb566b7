from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import time
from dataclasses import astuple
from types import SimpleNamespace

import psutil
import pytest
from fakes import FakeClock, ScriptedMeter, gpu_energy, only_run, session, status_text, tick

from greenlove_tracker import Consumption, Tracker, read_logs
from greenlove_tracker.logs import writer
from greenlove_tracker.logs import writer as writer_module
from greenlove_tracker.meter import NullMeter, SimulatedMeter
from greenlove_tracker.text import format as fmt
from greenlove_tracker.tracker import background
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.vocabulary.errors import MeterError, UsageError
from greenlove_tracker.vocabulary.records import Energy, Flag, SystemClock
from greenlove_tracker.vocabulary.workloads import Seen

pytestmark = pytest.mark.usefixtures("bare_environment")


def make(clock, meter=None, **arguments) -> Tracker:
    meter = meter or SimulatedMeter(clock, gpu_w=360.0)
    return Tracker(meter=meter, clock=clock, **{"verbose": 0, **arguments})


def train(tracker: Tracker, clock: FakeClock, epochs: int = 3, epoch_s: float = 10.0, gap_s: float = 1.0) -> None:
    for _ in range(epochs):
        clock.pass_s(gap_s)
        tracker.epoch_start()
        clock.pass_s(epoch_s)
        tracker.epoch_end()


def test_a_run_is_written_as_it_was(clock):
    with make(clock, epochs=3, project="thesis", country="DE", tags=["final", "b"]) as tracker:
        train(tracker, clock)
        clock.pass_s(2.0)
    run = only_run()
    assert run.summary == tracker.summary
    assert run.added_up() == tracker.summary
    assert [e.energy.gpu_kwh for e in run.epochs] == [0.001] * 3
    assert [e.gap_before_s for e in run.epochs] == [1.0] * 3
    assert (run.summary.status, run.summary.duration_s, run.summary.between_s) == ("finished", 35.0, 5.0)
    assert run.summary.energy_kwh == pytest.approx(0.0035, rel=1e-12)
    assert run.carbon_intensity.value == 342.06 and run.carbon_intensity.year == "2024"
    assert run.summary.emissions_kgco2e == pytest.approx(0.0035 * 342.06 / 1000)
    assert (run.text("project"), run.text("tags"), run.text("epochs_planned")) == ("thesis", "final,b", "3")
    assert run.problems == []


def test_pue_is_applied_once(clock):
    with make(clock, pue=1.5, carbon_intensity_gco2e_per_kwh=100.0, electricity_price_usd_per_kwh=0.2) as tracker:
        train(tracker, clock, epochs=1, gap_s=0.0)
    assert tracker.summary.energy.total_kwh == 0.001
    assert tracker.summary.energy_kwh == pytest.approx(0.0015)
    assert tracker.summary.emissions_kgco2e == pytest.approx(0.00015)
    assert tracker.summary.cost_usd == pytest.approx(0.0003)
    assert only_run().epochs[0].emissions_gco2e == pytest.approx(0.15)


def test_the_price_of_the_machine_replaces_that_of_electricity(clock):
    with make(clock, price_usd_per_gpu_hour=3.6, electricity_price_usd_per_kwh=0.2) as tracker:
        train(tracker, clock, epochs=1, epoch_s=1000.0, gap_s=0.0)
    assert (tracker.summary.cost_usd, tracker.summary.cost_basis) == (pytest.approx(1.0), "machine")


def test_steps_without_epochs_are_one_epoch(clock):
    with make(clock, total_steps=100) as tracker:
        for _ in range(100):
            clock.pass_s(2.0)
            tracker.step(n_samples=8, n_tokens=4096)
            tick()
    run = only_run()
    assert len(run.epochs) == 1 and run.epochs[0].is_complete
    assert run.epochs[0].n_segments == 5  # one for the first power, then 192 s in segments of a minute
    assert (run.summary.counts.steps, run.summary.counts.tokens, run.summary.counts.samples) == (100, 409600, 800)
    assert run.summary.epochs_done == 1


def test_a_long_epoch_and_a_long_gap_are_written_in_segments(clock):
    tracker = make(clock)
    for _ in range(150):
        clock.pass_s(1.0)
        tick()
    tracker.epoch_start()
    for _ in range(150):
        clock.pass_s(1.0)
        tick()
    rows = only_run().rows[0]  # what a kill would leave at this moment
    assert [r.kind for r in rows] == ["gap", "gap", "segment", "segment"]
    assert only_run().epochs[0].flags == {Flag.UNFINISHED}
    tracker.epoch_end()
    tracker.stop()
    epoch = only_run().epochs[0]
    assert (epoch.duration_s, epoch.gap_before_s, epoch.n_segments) == (150.0, 150.0, 3)
    assert epoch.energy.gpu_kwh == pytest.approx(0.015)
    assert epoch.gap_before.gpu_kwh == pytest.approx(0.015)


def test_bad_arguments_are_errors_that_say_what_to_do(clock):
    for bad in (0, -1, 2.5, True, "3"):
        with pytest.raises(UsageError, match="epochs must be"):
            make(clock, epochs=bad)
    with pytest.raises(UsageError, match="Germany"):
        make(clock, country="Germny")
    with pytest.raises(UsageError, match="no such state"):
        make(clock, country="US-XX")
    with pytest.raises(UsageError, match=r"no such setting: epoch; did you mean epochs\?"):
        Tracker(epoch=3)
    with pytest.raises(UsageError, match="no such setting: contry"):
        make(clock, contry="DE")
    with pytest.raises(UsageError, match="pue must be a number"):
        make(clock, pue="abc")


def test_calls_out_of_order_warn_once_and_the_training_goes_on(clock, caplog):
    tracker = make(clock)
    for _ in range(3):
        tracker.epoch_end()
        tracker.step()
        tracker.pause()
        tracker.resume()
    train(tracker, clock, epochs=2)
    tracker.epoch_end()
    tracker.stop()
    tracker.stop()
    for method in ("epoch_start", "step", "pause", "resume", "epoch_end"):
        getattr(tracker, method)()
    text = caplog.text
    assert [text.count(word) for word in ("epoch_end() without", "step() outside", "pause() outside")] == [1, 1, 1]
    assert (text.count("make a new Tracker"), text.count("own")) == (1, 0)
    assert only_run().summary.epochs_done == 2 and only_run().problems == []


def test_a_continue_between_start_and_end_costs_a_warning_and_a_flag(clock, caplog):
    with make(clock, epochs=4) as tracker:
        for epoch in range(4):
            tracker.epoch_start()
            clock.pass_s(10.0)
            if epoch in (1, 2):
                tracker.pause()
                clock.pass_s(5.0)
                continue
            tracker.epoch_end()
            tick()
    run = only_run()
    assert caplog.text.count("before a `continue` too") == 1 and "own" not in caplog.text
    assert [(e.epoch, e.is_complete, Flag.NOT_ENDED in e.flags) for e in run.epochs] == [
        (1, True, False),
        (2, True, True),
        (3, True, True),
        (4, True, False),
    ]
    assert run.summary == tracker.summary and run.summary.epochs_done == 4
    assert Flag.NOT_ENDED in run.summary.flags


def test_an_epoch_that_was_not_ended_counts_in_the_forecast(clock):
    with make(clock, epochs=10) as tracker:
        for _ in range(3):
            tracker.epoch_start()
            clock.pass_s(10.0)
        assert tracker.forecast.duration_s.point == pytest.approx(100.0, rel=0.05)  # of 2 that are done
        assert session().recorder.epochs_done == 2


def test_more_epochs_than_planned_are_said(clock, capsys):
    with make(clock, epochs=2, verbose=1) as tracker:
        train(tracker, clock, epochs=2)
        train(tracker, clock, epochs=2)
        assert "epoch 4/2 planned" in status_text()
    assert "4 of 2 epochs" in " ".join(capsys.readouterr().err.split())


def broken(*_, **__):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "where", ["_emit", "_close_span", "_wait_for_device", "_now", "count", "budget", "row", "end_epoch"]
)
@pytest.mark.parametrize("at", ["epoch_start", "step", "pause", "resume", "epoch_end"])
def test_after_an_error_of_our_own_the_next_calls_work(clock, monkeypatch, caplog, where, at):
    """Whichever part of ours fails, once and in whichever call: the epochs after it are whole."""
    tracker = make(clock, epochs=9, max_energy_kwh=1e9)
    run = session()

    def call(method):
        with monkeypatch.context() as patch:
            if method == at and run.recorder.epochs_begun == (2 if at == "epoch_start" else 3):
                if where == "budget":
                    patch.setattr("greenlove_tracker.tracker.budget_monitor.budget_outlooks", broken)
                elif where == "row":
                    patch.setattr(run.writer, "write_row", broken)
                else:
                    patch.setattr(run.recorder, where, broken)
            getattr(tracker, method)()
        clock.pass_s(1.0)

    for _ in range(5):
        for method in ("epoch_start", "step", "pause", "resume", "step", "epoch_end"):
            call(method)
    tracker.stop()
    assert caplog.text.count("own") <= 1
    epochs = {e.epoch: e for e in only_run().epochs}
    assert [(epochs[n].duration_s, epochs[n].steps) for n in (1, 2, 5)] == [(4.0, 2)] * 3
    assert only_run().summary.epochs_done >= 4


# -- a tracker that cannot begin: settings are in test_bad_settings.py --


def test_an_error_of_our_own_at_the_start_leaves_the_training_untracked(clock, monkeypatch, caplog):
    monkeypatch.setattr("greenlove_tracker.tracker.session.run_fields", broken)
    train(make(clock), clock)
    assert "not tracked: an error of greenlove_tracker's own: ZeroDivisionError()" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "number"),
    [
        (SystemExit(3), "failed", 3),
        (SystemExit(0), "finished", 0),
        (SystemExit("no"), "failed", 1),
        (KeyboardInterrupt(), "interrupted", None),
        (ZeroDivisionError(), "failed", 1),
    ],
)
def test_what_ends_the_block_ends_the_run(clock, error, status, number):
    with pytest.raises(type(error)), make(clock):
        raise error
    assert (only_run().summary.status, only_run().summary.exit_code) == (status, number)


def test_ctrl_c_in_a_notebook_leaves_the_tracker_usable(clock, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    tracker = make(clock, epochs=3)
    tracker.epoch_start()
    clock.pass_s(4.0)
    train(tracker, clock, epochs=1, gap_s=0.0)  # the cell was interrupted, and is run again
    tracker.stop()
    run = only_run()
    assert [(e.epoch, e.duration_s, e.is_complete) for e in run.epochs] == [(1, 4.0, False), (2, 10.0, True)]
    assert run.summary.epochs_done == 1


class CountedMeter(SimulatedMeter):
    """Knows how many of its kind measure now, and the most that ever did."""

    lock = threading.Lock()
    n_measuring = n_at_most = 0

    def start(self):
        kind = type(self)
        with kind.lock:
            kind.n_measuring += 1
            kind.n_at_most = max(kind.n_at_most, kind.n_measuring)
        return super().start()

    def stop(self):
        with type(self).lock:
            type(self).n_measuring -= 1
        super().stop()


def test_of_trackers_that_begin_together_in_threads_one_is_open_and_one_measures(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)
    begun = []

    def begin():
        together.wait()
        begun.append(Tracker(1, meter=CountedMeter(SystemClock(), gpu_w=1.0), verbose=0))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    closed = [tracker.summary.status for tracker in begun if tracker.summary]
    assert closed == ["superseded"] * 7
    assert (CountedMeter.n_measuring, CountedMeter.n_at_most) == (1, 1)
    for tracker in begun:
        tracker.stop()
    assert guard.current is None


def test_a_new_tracker_supersedes_an_open_one(clock, caplog):
    old = make(clock)
    train(old, clock, epochs=2)
    new = make(clock)
    train(new, clock, epochs=1)
    old.epoch_end()  # a leftover call does no harm
    new.stop()
    first, second = read_logs("greenlove_logs").runs
    assert {first.summary.status, second.summary.status} == {"superseded", "finished"}
    assert old.summary.epochs_done == 2 and new.summary.epochs_done == 1
    assert "superseded" in caplog.text


def test_a_forked_or_pickled_copy_is_inert(clock, monkeypatch):
    tracker = make(clock)
    copy = pickle.loads(pickle.dumps(tracker))
    copy.epoch_start()
    copy.epoch_end()
    copy.stop()
    assert copy.summary is None and copy.run_dir is None and not copy.wait_ready(0.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)  # what the parent's tracker sees after a fork
    tracker.epoch_end()
    tracker.stop()
    monkeypatch.undo()
    assert tracker.summary is None


def test_a_tracker_in_a_dataloader_worker_does_nothing(clock, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.data", SimpleNamespace(get_worker_info=lambda: object()))
    tracker = make(clock)
    tracker.epoch_start()
    tracker.stop()
    assert not (tmp_path / "greenlove_logs").exists()


def test_no_meter_is_unknown_energy_not_zero(clock):
    with make(clock, NullMeter()) as tracker:
        train(tracker, clock)
    assert tracker.summary.energy_kwh is None and tracker.summary.emissions_kgco2e is None
    assert only_run().summary.energy.total_kwh is None


def test_a_meter_that_cannot_start_warns_once_and_training_goes_on(clock, caplog):
    with make(clock, ScriptedMeter([], MeterError("no hardware was found"))) as tracker:
        train(tracker, clock)
    run = only_run()
    assert caplog.text.count("no hardware was found") == 1
    assert run.text("meter") == "none" and "no hardware" in run.text("meter_note")
    assert run.summary.energy_kwh is None and run.summary.epochs_done == 3
    assert all(Flag.METER_FAILED in e.flags for e in run.epochs)


def test_a_meter_that_dies_midway_leaves_an_estimate_that_is_labelled(clock, caplog):
    readings: list[Energy | Exception] = [gpu_energy(0.001)] * 4
    meter = ScriptedMeter([*readings, RuntimeError("NVML: GPU is lost")])
    with make(clock, meter) as tracker:
        train(tracker, clock, epochs=4, gap_s=10.0)
    summary = tracker.summary
    assert caplog.text.count("GPU is lost") == 1
    assert summary.energy.gpu_kwh == pytest.approx(0.004)
    assert summary.metered_s == 40.0 and summary.duration_s == 80.0
    assert summary.unmetered_estimate_kwh == pytest.approx(0.004)
    assert summary.measured_share == pytest.approx(0.5)


def test_a_full_disk_is_said_and_nothing_is_lost(clock, caplog, monkeypatch):
    tracker = make(clock)
    real_write = os.write

    def full(handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    train(tracker, clock, epochs=2)
    monkeypatch.setattr(os, "write", real_write)
    train(tracker, clock, epochs=1)
    tracker.stop()
    assert caplog.text.count("No space left") == 1
    assert [e.epoch for e in only_run().epochs] == [1, 2, 3]


def test_a_meter_that_takes_its_time_holds_nothing_else_up(clock, monkeypatch):
    may_start, has_ticked = threading.Event(), threading.Event()

    class Slow(SimulatedMeter):
        starts_at_once = False

        def start(self):
            may_start.wait(10)
            return super().start()

    monkeypatch.setattr(background, "TICK_S", 0.01)
    monkeypatch.setattr(Session, "tick", lambda self: has_ticked.set())
    with Tracker(meter=Slow(clock, gpu_w=1.0), verbose=0) as tracker:
        assert has_ticked.wait(10) and not tracker.wait_ready(0)
        may_start.set()
        assert tracker.wait_ready(10)


@pytest.mark.parametrize("epochs_before", [0, 1])
def test_a_disk_that_stays_full_leaves_the_final_screen_as_it_would_have_been(
    clock, capsys, caplog, monkeypatch, epochs_before
):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch", raising=False)  # a training in torch has a line of run.csv more at its end
        if not epochs_before:
            patch.setattr(os, "write", full)
            patch.setattr(writer, "write_atomically", full)
        with make(clock, epochs=3, project="thesis", verbose=1) as tracker:
            train(tracker, clock, epochs=epochs_before)
            patch.setattr(os, "write", full)
            patch.setattr(writer_module, "write_atomically", full)
            train(tracker, clock, epochs=3 - epochs_before)
    screen = " ".join(capsys.readouterr().err.split())
    assert f"greenlove thesis/{tracker.run_dir.name} · finished · 3 of 3 epochs" in screen
    assert f"33.0 s ~{fmt.energy(tracker.summary.energy_kwh)}" in screen
    assert "is not complete" in caplog.text and "epochs-0.csv: [Errno 28] No space left on device" in caplog.text
    assert "wrote" not in screen and "could not be read" not in screen


def test_a_cuda_error_at_a_boundary_is_the_trainings_own(clock, monkeypatch, caplog):
    def broken():
        raise RuntimeError("CUDA error: device-side assert triggered")

    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=broken, max_memory_allocated=lambda i: 0)
    cuda.device_count = lambda: 1
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with make(clock) as tracker:
        train(tracker, clock)
    assert caplog.text.count("could not be synchronised") == 1
    assert tracker.summary.epochs_done == 3


def test_only_local_rank_0_carries_a_meter_and_nodes_are_summed(clock, monkeypatch, caplog):
    launch = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "MASTER_PORT": "1"}
    for name, value in launch.items():
        monkeypatch.setenv(name, value)
    for rank in (1, 0, 3, 2):
        guard.forget()  # as if each were a process of its own
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank % 2))
        settings = {"sim_gpu_w": 360.0, "sim_gpu_count": 2}
        with Tracker(epochs=2, clock=clock, verbose=0, **settings) as tracker:
            train(tracker, clock, epochs=2, gap_s=0.0)
    run = only_run()
    assert sorted(run.rows) == [0, 1, 2, 3]
    assert run.summary.n_ranks == 4 and run.summary.n_nodes == 2
    assert run.summary.energy.gpu_kwh == pytest.approx(2 * 2 * 0.002)
    assert run.summary.gpu_count == 4
    assert run.summary.duration_s == 20.0
    assert run.summary.epochs_done == 2


def test_job_and_user_are_written_down(clock, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    monkeypatch.setenv("SLURM_JOB_ACCOUNT", "physics")
    monkeypatch.setenv("LOGNAME", "ada")
    make(clock, continues="20260101T000000-abcdef").stop()
    run = only_run()
    assert (run.text("job_id"), run.text("account"), run.text("user")) == ("123", "physics", "")
    assert run.text("continues") == "20260101T000000-abcdef"
    make(clock, log_user=True, log_dir="other").stop()
    assert only_run("other").text("user") == psutil.Process().username() != "ada"  # whatever the environment says


def test_the_final_screen_goes_to_stderr(clock, capsys):
    with make(clock, epochs=1, verbose=1, project="thesis") as tracker:
        train(tracker, clock, epochs=1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "thesis/" in captured.err and "1 of 1 epochs" in captured.err


def test_silent_at_verbose_0(clock, capsys, caplog):
    caplog.set_level(logging.WARNING)
    with make(clock, epochs=1) as tracker:
        train(tracker, clock, epochs=1)
    assert capsys.readouterr() == ("", "") and caplog.text == ""


def test_a_script_may_change_its_directory(clock, tmp_path, monkeypatch):
    tracker = make(clock)
    train(tracker, clock, epochs=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(tracker, clock, epochs=1)
    tracker.stop()
    run = read_logs(tmp_path / "greenlove_logs").runs[0]
    assert run.has_summary and run.summary.epochs_done == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_meter_that_cannot_be_stopped_costs_no_summary(clock, caplog):
    class Stubborn(SimulatedMeter):
        def stop(self):
            raise OSError("busy")

    with make(clock, Stubborn(clock, gpu_w=360.0)) as tracker:
        train(tracker, clock)
    assert tracker.summary is not None and only_run().has_summary
    assert "could not be stopped" in caplog.text


def test_no_thread_to_be_had_does_not_break_training(monkeypatch, caplog):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    with Tracker(2, verbose=0) as tracker:
        began_s = time.perf_counter()
        assert not tracker.wait_ready(180)
        assert time.perf_counter() - began_s < 90  # there is nothing to wait for
        for _ in range(2):
            tracker.epoch_start()
            tracker.epoch_end()
    assert tracker.summary.epochs_done == 2 and "new thread" in caplog.text


def test_stopping_in_the_middle_of_a_call_waits_for_its_row(clock):
    tracker = make(clock)
    tracker.epoch_start()
    clock.pass_s(10.0)
    synchronise = session().recorder._wait_for_device
    session().recorder._wait_for_device = lambda: (tracker.stop(), synchronise())  # as a signal handler of the user's
    tracker.epoch_end()
    run = only_run()
    assert [r.kind for r in run.rows[0]] == ["epoch", "tail"]
    assert run.summary.epochs_done == 1


def test_the_first_steps_time_belongs_to_the_epoch_of_a_training_in_steps(clock):
    with make(clock, total_steps=4) as tracker:
        for _ in range(4):
            clock.pass_s(0.5)
            tracker.step()
    assert only_run().epochs[0].duration_s == 2.0 and only_run().epochs[0].steps == 4


def test_the_consumption_so_far_is_as_of_now_and_at_the_end_the_summarys(clock):
    kwh_each_s = 360.0 / 3_600_000
    with make(clock, epochs=5, country="DE", electricity_price_usd_per_kwh=0.4, pue=1.5) as tracker:
        for epoch in range(5):
            tracker.epoch_start()
            clock.pass_s(4.0)
            within = tracker.consumption
            assert within.duration_s == pytest.approx(10.0 * epoch + 4.0)
            assert within.energy_kwh == pytest.approx(within.duration_s * kwh_each_s * 1.5)
            clock.pass_s(6.0)
            tracker.epoch_end()
            between = tracker.consumption
            energy_kwh = 10.0 * (epoch + 1) * kwh_each_s * 1.5
            assert astuple(between) == pytest.approx(
                (10.0 * (epoch + 1), energy_kwh, energy_kwh * 0.34206, energy_kwh * 0.4)
            )
        copied = pickle.loads(pickle.dumps(tracker))
    total = tracker.summary
    assert tracker.consumption == Consumption(
        total.duration_s, total.energy_kwh, total.emissions_kgco2e, total.cost_usd
    )
    assert tracker.consumption == between
    assert copied.consumption == Consumption(None, None, None, None)
    assert [epoch.energy.total_kwh for epoch in only_run().epochs] == pytest.approx([10.0 * kwh_each_s] * 5)


def test_the_consumption_of_what_no_meter_tells_is_unknown_and_not_zero(clock):
    with make(clock, ScriptedMeter([], MeterError("no sensor"))) as tracker:
        train(tracker, clock, 2)
        assert tracker.consumption == Consumption(duration_s=22.0)


def test_the_rest_of_the_node_is_in_every_total_and_named_as_an_assumption(clock):
    readings = [gpu_energy(0.0), *[gpu_energy(0.1, 0.005), gpu_energy(0.0, 0.0)] * 9]
    with make(clock, ScriptedMeter(readings), epochs=10, node_overhead=1.25, pue=1.1, country="DE") as tracker:
        for _ in range(5):
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
            tick()
        used = tracker.consumption
        assert used.energy_kwh == pytest.approx(5 * 0.1 * 1.25 * 1.1)
        assert tracker.forecast.energy_kwh.point == pytest.approx(10 * 0.1 * 1.25 * 1.1, rel=0.01)
    run = only_run()
    assert run.summary == tracker.summary == run.added_up()
    assert run.summary.energy_kwh == used.energy_kwh
    assert run.summary.node_assumed_kwh == pytest.approx(5 * 0.02)
    assert run.epochs[0].energy.gpu_kwh == 0.1  # rows hold what was metered
    assert (run.text("node_overhead"), run.text("node_overhead.basis")) == ("1.25", "an assumption")
    assert run.summary.emissions_kgco2e == pytest.approx(run.summary.energy_kwh * 0.34206)


def test_what_is_given_of_the_training_stands_in_the_log_and_nothing_seen_replaces_it(clock):
    with make(clock, epochs=2, precision="amp", workload="vision") as tracker:
        session().note_kind(Seen("tf32", "matrix products in TF32"), Seen("language", "attention in 2 layers"))
        train(tracker, clock, 2)
    run = only_run()
    assert (run.text("precision"), run.text("precision_basis")) == ("bf16", "given")
    assert (run.text("workload"), run.text("workload_basis")) == ("vision", "given")


def test_what_is_seen_of_the_training_stands_in_the_log(clock):
    with make(clock, epochs=2) as tracker:
        session().note_kind(Seen("tf32", "matrix products in TF32"), Seen())
        train(tracker, clock, 2)
    run = only_run()
    assert (run.text("precision"), run.text("precision_basis")) == ("tf32", "matrix products in TF32")
    assert "workload" not in run.lines


def test_rows_are_on_the_disk_with_the_next_tick(clock, monkeypatch):
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.add(os.fstat(handle).st_ino), fsync(handle)))
    with make(clock, epochs=3) as tracker:
        train(tracker, clock, 1)
        tick()
        assert (tracker.run_dir / "epochs-0.csv").stat().st_ino in synced
