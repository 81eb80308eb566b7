"""Spans within a run: how their time and energy add up, and that epochs are what they were without them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from fakes import FakeClock, ScriptedMeter, gpu_energy, make_tracker, only_run, session, tick

from greenlove_tracker import Tracker, track
from greenlove_tracker.logs.tables import SpanFlag
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.report.spans import span_summaries
from greenlove_tracker.tracker import tracker as tracker_module
from greenlove_tracker.vocabulary.errors import MeterError, UsageError
from greenlove_tracker.vocabulary.records import Flag, RunStatus

KWH_PER_S = 1e-4  # of the simulated GPU of 360 W


@pytest.fixture(autouse=True)
def _no_span_is_open(bare_environment):
    tracker_module._entered.set(())


def spans_of(log_dir):
    return {" > ".join(span.path): span for span in span_summaries(only_run(log_dir))}


def close(value):
    return pytest.approx(value, rel=1e-9)


def test_a_span_has_its_time_and_energy(clock, tmp_path):
    with make_tracker(clock, tmp_path, carbon_intensity_gco2e_per_kwh=500, pue=2.0):
        clock.pass_s(3.0)
        with track("preprocessing"):
            clock.pass_s(5.0)
        clock.pass_s(2.0)
    (span,) = span_summaries(only_run(tmp_path))
    assert (span.path, span.calls, span.failed, span.duration_s, span.own_s) == (("preprocessing",), 1, 0, 5.0, 5.0)
    assert span.energy.gpu_kwh == close(5 * KWH_PER_S) and span.energy.gpu_method == "tdp_model"
    (row,) = only_run(tmp_path).span_rows[0]
    assert row.emissions_gco2e == close(5 * KWH_PER_S * 500 * 2)
    assert (row.started_at[-5:], row.flags) == ("3.000Z"[-5:], frozenset())


def test_nested_spans_add_up_once(clock, tmp_path):
    with make_tracker(clock, tmp_path):
        with track("evaluation"):
            clock.pass_s(1.0)
            for _ in range(3):
                with track("batch"):
                    clock.pass_s(2.0)
                    with track("forward"):
                        clock.pass_s(0.5)
        with track("batch"):
            clock.pass_s(4.0)
    run = only_run(tmp_path)
    spans = spans_of(tmp_path)
    outer, batch, forward = (spans[p] for p in ("evaluation", "evaluation > batch", "evaluation > batch > forward"))
    assert (outer.duration_s, outer.own_s, outer.calls) == (close(8.5), close(1.0), 1)
    assert (batch.duration_s, batch.own_s, batch.calls) == (close(7.5), close(6.0), 3)
    assert (forward.duration_s, forward.own_s, forward.calls) == (close(1.5), close(1.5), 3)
    assert outer.energy.gpu_kwh == close(8.5 * KWH_PER_S)
    assert batch.energy.gpu_kwh == close(7.5 * KWH_PER_S)
    assert spans["batch"].duration_s == close(4.0)
    rows = run.span_rows[0]
    assert (
        sum(row.energy.gpu_kwh or 0.0 for row in rows) == close(run.summary.energy.gpu_kwh) == close(12.5 * KWH_PER_S)
    )
    assert sum(row.own_s for row in rows) == close(12.5)
    assert list(spans) == ["evaluation", "evaluation > batch", "evaluation > batch > forward", "batch"]


def test_epochs_are_what_they_are_without_spans(clock, tmp_path):
    def run_with(log_dir, span):
        clock = FakeClock()
        with make_tracker(clock, log_dir) as tracker:
            for _ in range(3):
                with span("validation"):
                    clock.pass_s(2.0)
                tracker.epoch_start()
                for _ in range(5):
                    with span("batch"):
                        clock.pass_s(7.0)
                    clock.pass_s(9.0)
                tick()
                tracker.step(4)
                tracker.epoch_end()
        return only_run(log_dir)

    class Nothing:
        def __init__(self, name):
            pass

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    without, with_spans = run_with(tmp_path / "a", Nothing), run_with(tmp_path / "b", track)
    assert span_summaries(with_spans) and not span_summaries(without)
    for a, b in zip(without.rows[0], with_spans.rows[0], strict=True):
        assert (a.kind, a.epoch, a.gap_before_s, a.duration_s, a.counts, a.flags) == (
            (b.kind, b.epoch, b.gap_before_s, b.duration_s, b.counts, b.flags)
        )
        for x, y in ((a.energy, b.energy), (a.gap_before, b.gap_before)):
            assert (x.gpu_kwh, x.gpu_method) == (y.gpu_kwh if y.gpu_kwh is None else close(y.gpu_kwh), y.gpu_method)
    assert with_spans.summary.energy_kwh == close(without.summary.energy_kwh)


def test_a_reading_at_the_ends_of_a_span_tells_it_from_what_lies_around_it(clock, tmp_path):
    readings = [
        gpu_energy(kwh) for kwh in (0.1, 7.0, 0.2, 0.0, 0.0)
    ]  # before, evaluation, rest of the span, epoch, tail
    with make_tracker(clock, tmp_path, meter=ScriptedMeter([gpu_energy(0.0), *readings])) as tracker:
        tracker.epoch_start()
        clock.pass_s(10.0)
        with track("outer"):
            with track("evaluation"):
                clock.pass_s(10.0)
            clock.pass_s(10.0)
        tracker.epoch_end()
    run = only_run(tmp_path)
    assert run.epochs[0].energy.gpu_kwh == close(7.3)
    assert spans_of(tmp_path)["outer > evaluation"].energy.gpu_kwh == close(7.0)
    assert run.summary.energy.gpu_kwh == close(7.3)


def test_short_spans_share_a_row_and_have_their_part_by_time(clock, tmp_path):
    with make_tracker(clock, tmp_path):
        for _ in range(1000):
            with track("batch"):
                clock.pass_s(0.002)
            clock.pass_s(0.008)
    rows, (span,) = only_run(tmp_path).span_rows[0], span_summaries(only_run(tmp_path))
    assert len(rows) <= 11  # in 10 s
    assert (span.calls, span.duration_s) == (1000, close(2.0))
    assert span.energy.gpu_kwh == close(2.0 * KWH_PER_S)
    assert all(row.flags == {SpanFlag.BY_TIME} for row in rows)


def test_a_long_span_is_written_as_it_goes_on_and_is_unfinished_where_the_run_ends(clock, tmp_path):
    tracker = make_tracker(clock, tmp_path)
    span = track("hours")
    span.__enter__()
    for _ in range(130):
        clock.pass_s(1.0)
        tick()
    (span_so_far,) = span_summaries(only_run(tmp_path))
    assert span_so_far.calls == 0 and 125.0 < span_so_far.duration_s <= 130.0
    tracker.stop()
    clock.pass_s(9.0)
    span.__exit__(None, None, None)
    (whole,) = span_summaries(only_run(tmp_path))
    assert (whole.calls, whole.duration_s, whole.flags) == (0, close(130.0), {SpanFlag.UNFINISHED})
    assert whole.energy.gpu_kwh == close(130 * KWH_PER_S)


def test_an_exception_ends_a_span_and_is_counted(clock, tmp_path):
    with make_tracker(clock, tmp_path):
        for error in (ValueError, None):
            with pytest.raises(ValueError) if error else track("other"), track("part"):
                clock.pass_s(1.0)
                if error:
                    raise error("mine")
    part = spans_of(tmp_path)["part"]
    assert (part.calls, part.failed, part.duration_s) == (1, 1, 1.0)
    assert spans_of(tmp_path)["other > part"].failed == 0


def test_recursion_counts_its_time_once(clock, tmp_path):
    @track
    def even(n):
        clock.pass_s(1.0)
        return n == 0 or odd(n - 1)

    @track
    def odd(n):
        clock.pass_s(2.0)
        return n != 0 and even(n - 1)

    with make_tracker(clock, tmp_path):
        assert even(5) is False
    spans = spans_of(tmp_path)
    assert list(spans) == ["even", "even > odd"]
    assert (spans["even"].calls, spans["even"].duration_s, spans["even"].own_s) == (1, close(9.0), close(1.0))
    assert (spans["even > odd"].calls, spans["even > odd"].own_s) == (1, close(8.0))


def test_each_thread_has_spans_of_its_own_and_energy_is_shared_once(clock, tmp_path):
    with make_tracker(clock, tmp_path):
        inside, out = threading.Event(), threading.Event()

        def work():
            with track("loader"):
                inside.set()
                out.wait(10)

        with track("main"):
            clock.pass_s(2.0)
            thread = threading.Thread(target=work)
            thread.start()
            assert inside.wait(10)
            clock.pass_s(4.0)
            out.set()
            thread.join()
    spans = spans_of(tmp_path)
    assert set(spans) == {"main", "loader"}
    assert (spans["main"].own_s, spans["loader"].own_s) == (close(6.0), close(4.0))
    assert spans["main"].energy.gpu_kwh == close(4 * KWH_PER_S)  # 2 s alone, and half of 4 s
    assert spans["loader"].energy.gpu_kwh == close(2 * KWH_PER_S)


def test_tasks_that_take_turns_lie_in_the_span_that_they_were_made_in(clock, tmp_path):
    async def fetch(first, then):
        with track("fetch"):
            clock.pass_s(1.0)
            first.set()
            await then.wait()

    async def both():
        a, b = asyncio.Event(), asyncio.Event()
        with track("gather"):
            await asyncio.gather(fetch(a, b), fetch(b, a))

    with make_tracker(clock, tmp_path):
        asyncio.run(both())
    spans = spans_of(tmp_path)
    name = "gather > fetch"
    assert set(spans) == {"gather", name}
    assert (spans[name].calls, spans["gather"].duration_s) == (2, close(2.0))
    assert spans["gather"].energy.gpu_kwh == close(2 * KWH_PER_S)


def test_a_function_that_yields_is_refused():
    def batches():
        yield 1

    async def later():
        return 1

    for function in (batches, later):
        with pytest.raises(UsageError, match="yields or awaits"):
            track(function)


def test_what_is_no_name_is_refused():
    for target in (3, ""):
        with pytest.raises(UsageError, match="wants a name"), track(target):
            pass


def test_where_no_tracker_is_open_nothing_is_measured_and_that_is_said(clock, tmp_path, caplog):
    for _ in range(2):
        with track("alone"):
            pass
    assert caplog.text.count("track() measures nothing without an open Tracker") == 1
    with make_tracker(clock, tmp_path), track("within"):
        clock.pass_s(1.0)
    assert set(spans_of(tmp_path)) == {"within"}


def test_time_before_the_meter_is_up_has_no_energy_and_says_so(clock, tmp_path):
    meter = SimulatedMeter(clock, gpu_w=360.0)
    with make_tracker(clock, tmp_path) as tracker:
        recorder = session().recorder
        recorder.detach_meter(Flag.METER_STARTING)
        with track("loading"):
            clock.pass_s(3.0)
            meter.start()
            recorder.attach_meter(meter)
            clock.pass_s(5.0)
        assert tracker.run_dir is not None
    span = spans_of(tmp_path)["loading"]
    assert (span.duration_s, span.unmetered_s) == (8.0, 3.0)
    assert span.energy.gpu_kwh == close(5 * KWH_PER_S)
    unmetered, metered = only_run(tmp_path).span_rows[0]
    assert (unmetered.own_s, unmetered.flags) == (3.0, {SpanFlag.UNMETERED})
    assert (metered.own_s, metered.flags) == (5.0, frozenset())
    assert unmetered.calls + metered.calls == 1


def test_a_reading_that_fails_within_an_epoch_leaves_its_row_without_energy(clock, tmp_path, caplog):
    broken = MeterError("gone")
    readings = [gpu_energy(0.0), gpu_energy(1.0), broken, broken, gpu_energy(2.0), gpu_energy(3.0), gpu_energy(4.0)]
    with make_tracker(clock, tmp_path, meter=ScriptedMeter(readings)) as tracker:
        tracker.epoch_start()
        for _ in range(2):
            with track("part"):
                clock.pass_s(10.0)  # read at its end: 1.0, then the failure
        clock.pass_s(10.0)
        tracker.epoch_end()  # what it read is of the failed one too
    (epoch,) = only_run(tmp_path).epochs
    assert epoch.energy.total_kwh is None and Flag.METER_FAILED in epoch.flags
    part = spans_of(tmp_path)["part"]
    assert (part.energy.gpu_kwh, part.unmetered_s) == (1.0, 10.0)
    assert "the energy meter failed" in caplog.text


def test_spans_around_and_in_a_tracker_under_the_runner_are_of_one_run(clock, tmp_path):
    from greenlove_tracker.machine.job import Ranks
    from greenlove_tracker.settings.config import load_settings
    from greenlove_tracker.tracker.session import Session
    from greenlove_tracker.tracker.state import RunMode
    from greenlove_tracker.vocabulary.phases import Plan

    settings = load_settings({"log_dir": str(tmp_path), "verbose": 0})
    meter = SimulatedMeter(clock, gpu_w=360.0)
    job = Session(settings, Plan(), Ranks(), clock, meter, mode=RunMode.RUNNER)
    with track("script"):
        clock.pass_s(1.0)
        with Tracker(clock=clock, verbose=0), track("part"):
            clock.pass_s(10.0)
        clock.pass_s(2.0)
    job.finish(RunStatus.FINISHED)
    run = only_run(tmp_path)
    script, part = span_summaries(run)
    assert script.own_s == close(3.0) and script.energy.gpu_kwh == close(13 * KWH_PER_S)
    assert (part.path[-1], part.energy.gpu_kwh) == ("part", close(10 * KWH_PER_S))
    assert run.summary.energy.gpu_kwh == close(13 * KWH_PER_S)


def test_a_run_that_is_killed_has_the_spans_that_were_written(tmp_path):
    script = f"""
import os, signal, time
from greenlove_tracker import Tracker, track
tracker = Tracker(log_dir={str(tmp_path)!r}, verbose=0, sim_cpu_tdp_w=50)
with track("long"):
    time.sleep(1.2)
with track("open"):
    time.sleep(2.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    spans = spans_of(tmp_path)
    assert spans["long"].calls == 1 and spans["long"].energy.cpu_kwh > 0
    assert spans["open"].calls == 0 and spans["open"].duration_s > 1.0


def test_each_rank_writes_its_own_spans_and_metrics_and_the_first_stands_for_the_run(tmp_path):
    script = f"""
import os, time
from greenlove_tracker import Tracker, track
rank = int(os.environ["RANK"])
with Tracker(epochs=1, log_dir={str(tmp_path)!r}, verbose=0, sim_cpu_tdp_w=50) as tracker:
    tracker.epoch_start()
    with track("work"):
        time.sleep(0.3)
    tracker.log_metric("accuracy", 0.5 + rank / 10)
    tracker.epoch_end()
"""
    launch = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29555", "TORCHELASTIC_RUN_ID": "spans"}
    env = os.environ | launch
    ranks = [
        subprocess.Popen([sys.executable, "-c", script], env=env | {"RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(2)
    ]
    assert [rank.wait(180) for rank in ranks] == [0, 0]
    run = only_run(tmp_path)
    assert set(run.span_rows) == set(run.metric_values) == {0, 1}
    assert run.metrics["accuracy"].last == 0.5 and run.summary.n_ranks == 2
    (span,) = span_summaries(run)
    assert span.calls == 1 and span.energy.cpu_kwh > 0
    (without_meter,) = run.span_rows[1]
    assert without_meter.flags == {SpanFlag.UNMETERED} and without_meter.own_s >= 0.3
