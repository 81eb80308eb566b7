"""What a run tells its exporters, on which thread, and that nothing they do reaches the training."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fakes import ScriptedMeter, gpu_energy, make_tracker, tick, train

from greenlove_tracker import Tracker, read_logs
from greenlove_tracker.integrations.exporters.scalars import report_html
from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.runner import run_script
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.tracker import session as session_module
from greenlove_tracker.tracker.events import (
    ExportedRun,
    ExportEvent,
    RowWritten,
    RunEnded,
)
from greenlove_tracker.vocabulary.errors import MissingExtraError, UsageError
from greenlove_tracker.vocabulary.records import RowKind, SystemClock


class Recording:
    """Keeps what it is given; ``during`` is called in each method first."""

    def __init__(self, during: Callable[[str], object] = lambda method: None) -> None:
        self.during = during
        self.runs: list[ExportedRun] = []
        self.events: list[ExportEvent] = []
        self.endings: list[RunEnded] = []
        self.has_row, self.is_over = threading.Event(), threading.Event()

    def start(self, run: ExportedRun) -> None:
        self.during("start")
        self.runs.append(run)

    def export(self, events: Sequence[ExportEvent]) -> None:
        self.during("export")
        self.events += events
        if self.rows():
            self.has_row.set()

    def end(self, ending: RunEnded) -> None:
        self.during("end")
        self.endings.append(ending)
        self.is_over.set()

    def of(self, kind: type) -> list[ExportEvent]:
        return [e for e in self.events if isinstance(e.what, kind)]

    def rows(self, kind: RowKind = RowKind.EPOCH) -> list[RowWritten]:
        return [e.what for e in self.of(RowWritten) if e.what.row.kind is kind]


def real_tracker(logs: Path, *exporters: object, **settings: object) -> Tracker:
    meter = SimulatedMeter(SystemClock(), gpu_w=360.0)
    return Tracker(20, log_dir=logs, verbose=0, meter=meter, exporters=list(exporters), **settings)


# -- what is told --


def test_a_run_is_told_from_start_to_end_with_its_figures(clock, logs):
    exporter = Recording()
    settings = {"country": "DE", "pue": 1.5, "project": "thesis", "exporters": [exporter]}
    tracker = make_tracker(clock, logs, epochs=4, **settings)
    with tracker:
        for _ in range(4):
            clock.pass_s(2.0)
            tracker.epoch_start()
            tracker.step(n_samples=32)
            clock.pass_s(10.0)
            tracker.epoch_end()
            tick()
        tracker.log_metric("accuracy", 0.93)
        tick()
    (run,), (ending,) = exporter.runs, exporter.endings
    assert (run.project, run.run_dir, run.is_in_steps) == ("thesis", tracker.run_dir, False)
    assert run.facts["country"] == "DE" and run.facts["epochs_planned"] == "4" and run.facts["pue"] == "1.5"
    assert run.facts["gpu_models"] and "Germany" in run.facts["carbon_intensity_source"]
    rows = exporter.rows()
    assert [
        (e.position, e.what.row.epoch, e.what.of_run.epochs_done) for e in exporter.of(RowWritten) if e.what in rows
    ] == [(n, n, n) for n in (1, 2, 3, 4)]
    last, terms = rows[-1], read_logs(logs).runs[0].terms
    assert last.row.duration_s == last.of_epoch.duration_s == 10.0 and last.row.counts.samples == 32
    assert last.row.energy.gpu_kwh == pytest.approx(0.001) and last.row.energy.gpu_method == "tdp_model"
    assert last.of_epoch.energy.total_kwh * last.energy_factor == pytest.approx(0.0015)
    assert last.of_run.duration_s == 48.0 and last.of_run.energy_kwh == pytest.approx(0.0072)
    assert last.of_run.emissions_kgco2e == pytest.approx(0.0072 * terms.carbon_intensity.value / 1000)
    assert last.of_run.cost_usd == pytest.approx(0.0072 * terms.electricity_price.value)
    (metric,) = exporter.of(MetricRecord)
    assert (metric.position, metric.what.name, metric.what.value) == (4, "accuracy", 0.93)
    forecasts = [e.what for e in exporter.of(IssuedForecast)]
    assert forecasts and all(f.estimates["energy_kwh"].has_interval for f in forecasts)
    assert ending.summary == tracker.summary and ending.status == "finished"
    assert last.of_run.energy_kwh == pytest.approx(ending.summary.energy_kwh)
    html = report_html(ending)
    assert html.startswith("<!doctype html>") and run.run_dir.name in html


def test_nothing_of_the_user_the_command_or_the_host_is_told(clock, logs):
    exporter = Recording()
    with make_tracker(clock, logs, log_user=True, exporters=[exporter]) as tracker:
        train(tracker, clock, 1)
    assert set(exporter.runs[0].facts).isdisjoint({"user", "command", "host", "pid", "git_commit", "log_dir"})


def test_segments_of_an_epoch_add_up_and_a_part_without_energy_leaves_that_of_the_epoch_unknown(clock, logs):
    exporter = Recording()
    readings = [gpu_energy(0.0), gpu_energy(0.001), gpu_energy(0.001), gpu_energy(0.0), *[ValueError("broken")] * 4]
    tracker = make_tracker(clock, logs, exporters=[exporter], meter=ScriptedMeter(readings))
    with tracker:
        for _ in range(2):
            tracker.epoch_start()
            clock.pass_s(70.0)
            tick()  # a segment
            clock.pass_s(30.0)
            tracker.epoch_end()
    first, second = exporter.rows()
    assert first.row.duration_s == 30.0 and first.of_epoch.duration_s == 100.0
    assert first.of_epoch.energy.total_kwh == pytest.approx(0.002) == 2 * first.row.energy.total_kwh
    assert second.of_epoch.duration_s == 100.0 and second.of_epoch.energy.total_kwh is None


def test_a_training_in_steps_has_steps_as_position(clock, logs):
    exporter = Recording()
    with make_tracker(clock, logs, epochs=None, total_steps=300, exporters=[exporter]) as tracker:
        for n in range(300):
            clock.pass_s(1.0)
            tracker.step()
            if n % 30 == 0:
                tick()
    assert exporter.runs[0].is_in_steps
    written = exporter.of(RowWritten)
    segments = [e.position for e in written if e.what.row.kind is RowKind.SEGMENT]
    assert segments == sorted(segments) and len(segments) >= 4 and written[-1].position == 300
    positions = [e.position for e in exporter.of(IssuedForecast)]
    assert positions and positions == sorted(positions)


def test_one_exporter_serves_two_runs(clock, logs):
    exporter = Recording()
    for _ in range(2):
        with make_tracker(clock, logs, exporters=[exporter]) as tracker:
            train(tracker, clock, 2)
    assert len({run.run_dir for run in exporter.runs}) == 2 == len(exporter.endings) and len(exporter.rows()) == 4


def test_only_the_first_rank_exports(clock, logs, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_PORT": "1234"}.items():
        monkeypatch.setenv(name, value)
    exporter = Recording()
    with make_tracker(clock, logs, exporters=[exporter], export="nonsense") as tracker:
        train(tracker, clock, 1)
    assert not exporter.runs and not exporter.endings


# -- the runner --

PLAIN = """
import torch
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
loader = torch.utils.data.DataLoader(torch.ones(8, 2), 2)
for _ in range(3):
    for batch in loader:
        opt.zero_grad(); net(batch).sum().backward(); opt.step()
"""
WITH_TRACKER = """
import time
from greenlove_tracker import Tracker
with Tracker(2, verbose=0) as tracker:
    for _ in range(2):
        tracker.epoch_start(); time.sleep(0.01); tracker.epoch_end()
"""


@pytest.mark.parametrize("script, epochs", [(PLAIN, 3), (WITH_TRACKER, 2), ("pass", 0)])
def test_a_script_is_told_once_whether_it_has_trackers_or_not(no_settings, monkeypatch, logs, script, epochs):
    monkeypatch.setenv("GREENLOVE_RUN_DIR", "")  # these four are what the runner sets
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    made: list[Recording] = []

    def make(text: str) -> Recording:
        assert text == "recording"
        made.append(Recording())
        return made[-1]

    monkeypatch.setattr("greenlove_tracker.integrations.exporters.exporter_from", make)
    Path("train.py").write_text(script)
    settings = load_settings({"export": "recording", "log_dir": str(logs), "verbose": 0, "sim_gpu_w": 100.0})
    run_script("train.py", [], settings)
    (told,) = [exporter for exporter in made if exporter.runs]
    assert len(told.endings) == 1 and len(told.rows()) == epochs
    assert [e.of_run.duration_s > 0 for e in told.rows()] == [True] * epochs


# -- threads --


def test_they_are_called_on_one_thread_of_theirs_without_the_lock_of_the_run(logs):
    threads, owned = set(), []

    def during(method: str) -> None:
        threads.add(threading.current_thread().name)
        lock = tracker._session.state.lock
        owned.append(lock._is_owned())

    exporter = Recording(during)
    with real_tracker(logs, exporter) as tracker:
        for _ in range(3):
            tracker.epoch_start()
            tracker.epoch_end()
        assert exporter.has_row.wait(60.0)
    assert threads == {"greenlove-exporters"} and len(owned) >= 3 and not any(owned)
    assert len(exporter.rows()) == 3 and len(exporter.endings) == 1


def test_one_that_hangs_holds_up_neither_the_training_nor_its_end(logs, monkeypatch, caplog):
    monkeypatch.setattr(session_module, "_END_S", 0.5)
    goes_on = threading.Event()
    hanging, behind = Recording(lambda method: goes_on.wait(120.0)), Recording()
    tracker = real_tracker(logs, hanging, behind, max_hours=10)
    for _ in range(3):
        tracker.epoch_start()
        tracker.epoch_end()
    tracker.stop()
    monkeypatch.setattr(session_module, "_END_S", 1e6)
    tracker.stop()  # as at the end of a block whose last line was stop()
    assert not hanging.runs  # it hangs still: nobody has waited for it
    goes_on.set()
    assert not behind.runs and not hanging.endings
    assert caplog.text.count("exporters did not finish within 0.5 s of the run's end") == 1
    summary = read_logs(logs).runs[0].summary
    assert (summary.status, summary.epochs_done) == ("finished", 3)


@pytest.mark.parametrize("failing", ["start", "export", "end"])
def test_one_that_fails_is_warned_of_once_and_left_out(clock, logs, caplog, failing):
    calls: list[str] = []

    def during(method: str) -> None:
        calls.append(method)
        if method == failing:
            raise ConnectionError("no route to https://user:secret@host")

    with caplog.at_level(logging.WARNING), make_tracker(clock, logs, exporters=[bad := Recording(during)]) as tracker:
        train(tracker, clock, 3)
    assert caplog.text.count("Recording failed, and is left out from now on") == 1 and "no route" in caplog.text
    assert "secret" not in caplog.text
    assert calls.count(failing) == 1 and calls[-1] == failing and not bad.endings
    summary = read_logs(logs).runs[0].summary
    assert (summary.status, summary.epochs_done) == ("finished", 3)


# -- bad arguments --


@pytest.mark.parametrize("bad", ["mlflow", [Recording], [object()], Recording(), ["wandb"]])
def test_what_is_no_exporter_is_a_usage_error(clock, logs, bad):
    with pytest.raises(UsageError, match="export"):
        make_tracker(clock, logs, exporters=bad)


def test_a_name_is_an_error_in_code_and_a_warning_in_a_variable(clock, logs, no_settings, monkeypatch, caplog):
    with pytest.raises(UsageError, match="there are mlflow"):
        make_tracker(clock, logs, export="mlfow")
    monkeypatch.setenv("GREENLOVE_EXPORT", "mlfow")
    with make_tracker(clock, logs) as tracker:
        train(tracker, clock, 2)
    assert tracker.summary.epochs_done == 2 and caplog.text.count("nothing is exported") == 1


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard", "prometheus"])
def test_a_package_that_is_not_there_is_said_with_its_installation(clock, logs, no_settings, monkeypatch, name):
    from greenlove_tracker.integrations import exporters as registry

    monkeypatch.setattr("greenlove_tracker.vocabulary.errors.find_spec", lambda package: None)
    with pytest.raises(UsageError, match=rf'pip install "greenlove-tracker\[{name}\]"'):
        make_tracker(clock, logs, export=name)
    with pytest.raises(MissingExtraError):
        registry.exporter_from(name)
    assert not logs.exists()  # it is said before a run is begun


@pytest.mark.slow
def test_a_service_that_hangs_does_not_keep_sigterm_from_ending_the_process(tmp_path):
    code = """
import time
from greenlove_tracker import Tracker

class Hanging:
    def start(self, run): print("hangs", flush=True); time.sleep(600)
    def export(self, events): pass
    def end(self, ending): pass

tracker = Tracker(1000, verbose=0, log_dir="logs", sim_gpu_w=100.0, exporters=[Hanging()])
while True:
    tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GREENLOVE_")}
    running = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None and running.stdout.readline() == "hangs\n"
        running.terminate()
        assert running.wait(120.0) == -signal.SIGTERM
    finally:
        running.kill()
    summary = read_logs(tmp_path / "logs").runs[0].summary
    assert summary.status == "terminated" and summary.epochs_done >= 1
