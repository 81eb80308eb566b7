from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes import ScriptedMeter, gpu_energy, make_tracker, only_run, session, status_text, tick, train
from intensity_server import Reply, serving

from greenlove_tracker import Tracker, read_logs
from greenlove_tracker.grid.live.fallback import IntensityFallbacks
from greenlove_tracker.grid.live.intensity import IntensityPoint, IntensityUnavailable, PointKind, Scope
from greenlove_tracker.grid.live.offline import TableIntensity
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.logs.schema import EPOCHS
from greenlove_tracker.machine.job import Ranks
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text import format as fmt
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import RowKind, RunStatus

KWH = 0.001  # of an epoch: 360 W for 10 s
FILE = "utc,gco2e_per_kwh\n"


pytestmark = pytest.mark.usefixtures("bare_environment")


class Scripted:
    """A service that gives these figures in turn, each of the five minutes that hold its time; None: no answer."""

    name = "scripted"

    def __init__(self, clock, figures):
        self.clock, self.figures = clock, list(figures)
        self.asked_s = []

    def covers(self, place):
        return True

    def now(self, place):
        self.asked_s.append(self.clock.now_s)
        figure = self.figures.pop(0) if len(self.figures) > 1 else self.figures[0]
        if figure is None:
            raise IntensityUnavailable(self.name, "timed out")
        return point_of(figure, self.clock.utc_s())


def point_of(figure, utc_s, length_s=300):
    now = datetime.fromtimestamp(utc_s, UTC)
    end = now + timedelta(seconds=length_s)
    kind, scope = PointKind.MEASURED, Scope.DIRECT
    return IntensityPoint(figure, now, end, "scripted", "a test", scope, kind, now)


def fallbacks(*providers):
    return IntensityFallbacks(grid_place("DE"), providers)


def write_file(clock, *figures, step_s=10):
    """A file with a figure for each ``step_s`` from the clock's present time on."""
    at = [datetime.fromtimestamp(clock.utc_s() + step_s * n, UTC).isoformat() for n in range(len(figures))]
    rows = "".join(f"{when},{figure}\n" for when, figure in zip(at, figures, strict=True))
    Path("own.csv").write_text(FILE + rows)


def test_each_epoch_counts_with_the_intensity_of_its_time(clock, tmp_path):
    write_file(clock, 100, 300)
    with make_tracker(clock, tmp_path / "logs", intensity="own.csv", pue=2.0) as tracker:
        train(tracker, clock, 2)
    run = only_run("logs")
    first, second, _ = run.rows[0]
    assert [row.carbon_intensity_gco2e_per_kwh for row in (first, second)] == [100, 300]
    assert first.carbon_intensity_source == "own.csv given"
    assert [row.emissions_gco2e for row in (first, second)] == pytest.approx([KWH * 100 * 2, KWH * 300 * 2])
    assert run.summary.energy_kwh == pytest.approx(2 * KWH * 2)
    assert run.summary.emissions_kgco2e == pytest.approx((100 + 300) * KWH * 2 / 1000)
    assert run.summary.carbon_intensity_gco2e_per_kwh == pytest.approx(200)
    assert run.added_up() == run.summary  # one function for the tracker and the parser
    assert tracker.summary == run.summary


def test_the_gap_counts_with_its_row(clock, tmp_path):
    write_file(clock, 100, 300)
    with make_tracker(clock, tmp_path / "logs", intensity="own.csv") as tracker:
        clock.pass_s(10)
        tick()
        tracker.epoch_start()
        clock.pass_s(10)
        tracker.epoch_end()
    run = only_run("logs")
    assert run.rows[0][0].carbon_intensity_gco2e_per_kwh == 300  # in force at its end
    assert run.summary.emissions_kgco2e == pytest.approx(2 * KWH * 300 / 1000)


def test_what_was_not_metered_counts_at_the_mean(clock, tmp_path):
    write_file(clock, 100, 300, 900)
    of_gap = gpu_energy(0.0)
    readings = [of_gap, gpu_energy(KWH), of_gap, gpu_energy(3 * KWH), *[RuntimeError("broken")] * 9]
    meter = ScriptedMeter(readings)
    with make_tracker(clock, tmp_path / "logs", meter=meter, intensity="own.csv") as tracker:
        train(tracker, clock, 3)
    summary = only_run("logs").summary
    mean = (100 * 1 + 300 * 3) / 4
    assert summary.unmetered_estimate_kwh == pytest.approx(2 * KWH)
    assert summary.carbon_intensity_gco2e_per_kwh == pytest.approx(mean)
    assert summary.emissions_kgco2e == pytest.approx(6 * KWH * mean / 1000)


def test_a_service_that_fails_midway_is_warned_of_once_and_the_table_counts(clock, tmp_path, caplog):
    service = Scripted(clock, [100, None, None, 200])
    source = fallbacks(service, TableIntensity(lambda: datetime.fromtimestamp(clock.utc_s(), UTC)))
    with make_tracker(clock, tmp_path / "logs", country="DE", intensity=source) as tracker:
        train(tracker, clock, 4, epoch_s=300)
    run = only_run("logs")
    assert service.asked_s == [0, 300, 600, 900, 1200]
    rows = [row for row in run.rows[0] if row.kind is RowKind.EPOCH]
    table = run.terms.carbon_intensity.value
    assert [row.carbon_intensity_gco2e_per_kwh for row in rows] == [100, table, table, 200]
    assert rows[0].carbon_intensity_source == "scripted measured direct"
    assert rows[1].carbon_intensity_source == "table lifecycle (fallback: scripted: timed out)"
    assert rows[3].carbon_intensity_source == "scripted measured direct"
    warned = [r.getMessage() for r in caplog.records if "carbon intensity" in r.getMessage()]
    assert len(warned) == 1 and "not known (scripted: timed out)" in warned[0] and f"{table:.0f} gCO2e/kWh" in warned[0]
    assert run.summary.emissions_kgco2e == pytest.approx(30 * KWH * (300 + 2 * table) / 1000)
    assert run.text("intensity_order") == "scripted, table"


def test_a_figure_stands_while_its_own_time_goes_on(clock, tmp_path):
    service = Scripted(clock, [100, None, None])
    service.now = lambda place, ask=service.now: ask(place) and point_of(100, clock.wall_offset_s, 3600)
    with make_tracker(clock, tmp_path / "logs", intensity=fallbacks(service)) as tracker:
        train(tracker, clock, 13, epoch_s=300)
    rows = [row for row in only_run("logs").rows[0] if row.kind is RowKind.EPOCH]
    assert {row.carbon_intensity_source for row in rows[:12]} == {"scripted measured direct"}
    assert "fallback" in rows[12].carbon_intensity_source


def test_a_provider_that_raises_anything_never_reaches_the_training(clock, tmp_path):
    service = Scripted(clock, [100])
    service.now = lambda place: 1 / 0
    with make_tracker(clock, tmp_path / "logs", intensity=fallbacks(service)) as tracker:
        train(tracker, clock, 1)
    run = only_run("logs")
    row = run.rows[0][0]
    assert row.carbon_intensity_source == "table lifecycle (fallback: division by zero)"
    assert row.carbon_intensity_gco2e_per_kwh == run.terms.carbon_intensity.value


def test_a_process_ends_though_a_service_has_not_answered(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from greenlove_tracker import Tracker\n"
        "with Tracker(1, sim_gpu_w=300, verbose=0, intensity='neso', country='GB') as tracker:\n"
        "    tracker.epoch_start()\n"
        "    tracker.epoch_end()\n"
    )
    with serving() as server:
        server.always(Reply(b"{}", delay_s=600))
        env = {**os.environ, "GREENLOVE_INTENSITY_URLS": f"neso={server.url}"}
        done = subprocess.run([sys.executable, str(script)], env=env, timeout=120, check=True, capture_output=True)
    assert b"Traceback" not in done.stderr
    (cell,) = {row.carbon_intensity_source for row in only_run("greenlove_logs").rows[0]}
    assert cell == "table lifecycle (fallback: no answer yet)"


def test_a_late_first_answer_counts_from_the_start_of_what_is_open(tmp_path):
    asked, released = threading.Event(), threading.Event()
    service = Scripted(None, [100])

    def now(place):
        asked.set()
        assert released.wait(60)
        return point_of(100, time.time() - 1)

    service.now = now
    with make_tracker(None, tmp_path / "logs", intensity=fallbacks(service), sim_gpu_w=360.0) as tracker:
        tracker.epoch_start()
        tracker.epoch_end()
        assert asked.wait(60)
        tracker.epoch_start()
        released.set()
        until_s = time.monotonic() + 60
        while session().state.rates_in_force.intensity.in_force[0] != 100 and time.monotonic() < until_s:
            time.sleep(0.001)
        tracker.epoch_end()
    first, second = [row for row in only_run("logs").rows[0] if row.kind is RowKind.EPOCH]
    assert "no answer yet" in first.carbon_intensity_source
    assert second.carbon_intensity_gco2e_per_kwh == 100
    assert second.carbon_intensity_source == "scripted measured direct"


def test_a_run_that_was_killed_is_added_up_by_the_same_rule(clock, tmp_path):
    write_file(clock, 100, 300)
    tracker = make_tracker(clock, tmp_path / "logs", intensity="own.csv")
    train(tracker, clock, 2)
    shutil.copytree(tmp_path / "logs", tmp_path / "killed")
    run = only_run("killed")
    assert not run.has_summary
    assert run.summary.emissions_kgco2e == pytest.approx((100 + 300) * KWH / 1000)
    tracker.stop()
    assert only_run("logs").summary.emissions_kgco2e == pytest.approx((100 + 300) * KWH / 1000)


def test_live_totals_and_budgets_count_by_time(clock, tmp_path):
    write_file(clock, 100, 300)
    with make_tracker(clock, tmp_path / "logs", intensity="own.csv", max_kgco2e=1.0) as tracker:
        assert session().state.rates.carbon_intensity == 100
        train(tracker, clock, 2)
        used = tracker.consumption
        assert used.emissions_kgco2e == pytest.approx((100 + 300) * KWH / 1000)
        forecast = tracker.forecast
        assert forecast.emissions_kgco2e.point == pytest.approx(forecast.energy_kwh.point * 200 / 1000)


def test_a_tariff_makes_the_cost_by_the_hour(clock, tmp_path):
    clock.wall_offset_s = datetime(2026, 11, 23, 16, 59, 50, tzinfo=UTC).timestamp()
    tariff = "base 0.20; peak 0.50 17-21; zone UTC"
    with make_tracker(clock, tmp_path / "logs", electricity_tariff=tariff) as tracker:
        train(tracker, clock, 2)
    run = only_run("logs")
    rows = run.rows[0]
    assert [row.electricity_price_usd_per_kwh for row in rows[:2]] == [0.20, 0.50]
    assert rows[0].carbon_intensity_gco2e_per_kwh is None
    assert run.summary.cost_usd == pytest.approx((0.20 + 0.50) * KWH)
    assert run.summary.cost_basis == "electricity"
    assert run.added_up() == run.summary
    assert run.summary.carbon_intensity_gco2e_per_kwh == run.carbon_intensity.value
    assert "base 0.20; peak 0.50 17-21" in run.text("electricity_tariff")


@pytest.mark.parametrize("country", ["", "DE"])
def test_what_is_paid_for_is_forecast_and_read_back(clock, tmp_path, country):
    with make_tracker(clock, tmp_path / "logs", electricity_tariff="base -0.05", country=country) as tracker:
        train(tracker, clock, 8)
        cost = session().forecast().cost_usd
        assert cost.lower <= cost.point <= cost.upper < 0
        assert cost.point == pytest.approx(20 * KWH * -0.05, rel=0.1)
        assert f"CO2e · {fmt.money(cost.point)}" in status_text()
    run = only_run("logs")
    assert run.summary.cost_usd == pytest.approx(8 * KWH * -0.05) and run.added_up() == run.summary
    assert run.electricity_price.value == pytest.approx(-0.05)
    assert run.electricity_price.source.startswith("tariff")  # and not the table's
    assert run.forecasts[-1].estimates["cost_usd"].point < 0 and run.problems == []


def test_hours_that_a_tariff_lacks_count_at_the_price_of_the_country(clock, tmp_path):
    Path("prices.csv").write_text("utc,usd_per_kwh\n2020-01-01T00:00,0.9\n2020-01-01T01:00,0.9\n")
    with make_tracker(clock, tmp_path / "logs", electricity_tariff="prices.csv", country="DE") as tracker:
        train(tracker, clock, 1)
    run = only_run("logs")
    assert run.rows[0][0].electricity_price_usd_per_kwh is None
    assert "household" in run.electricity_price.source
    assert run.summary.cost_usd == pytest.approx(KWH * run.electricity_price.value)


def test_a_forecast_knows_what_the_tariff_says_of_the_rest(clock, tmp_path):
    clock.wall_offset_s = datetime(2026, 11, 23, 16, 59, 0, tzinfo=UTC).timestamp()
    tariff = "base 0.20; peak 0.50 17-21; zone UTC"
    with make_tracker(clock, tmp_path / "logs", electricity_tariff=tariff) as tracker:
        train(tracker, clock, 6)  # of 20: a minute at 0.20, and then 140 s at 0.50
        forecast = tracker.forecast
    assert forecast.duration_s.point == pytest.approx(200, rel=0.02)
    expected = (0.20 * 60 + 0.50 * 140) / 200
    assert forecast.cost_usd.point / forecast.energy_kwh.point == pytest.approx(expected, rel=0.02)
    assert only_run("logs").electricity_price.value == pytest.approx(0.20)


def test_a_tracker_goes_on_with_the_intensity_of_the_runners_run_until_the_end_of_that(clock, tmp_path):
    write_file(clock, 100, 300, 500)
    settings = load_settings({"intensity": "own.csv", "log_dir": str(tmp_path / "logs"), "verbose": 0})
    meter = SimulatedMeter(clock, gpu_w=360.0)
    job = Session(settings, Plan(), Ranks(), clock, meter, mode=RunMode.RUNNER)
    asked = job.state.rates_in_force.intensity
    with Tracker(20, clock=clock, log_dir=tmp_path / "logs", verbose=0, project="own") as tracker:
        assert session() is job
        train(tracker, clock, 1)
    assert job.state.rates_in_force.intensity is asked
    job.finish(RunStatus.FINISHED)
    assert only_run("logs").text("intensity_order") == "csv" and only_run("logs").text("project") == "own"


def test_a_tracker_with_another_intensity_is_a_run_of_its_own_and_without_any_start_up_has_the_trackers(
    clock, tmp_path
):
    write_file(clock, 100, 100, 100)
    meter = SimulatedMeter(clock, gpu_w=360.0)
    for given in ({"intensity": "own.csv"}, {}):
        log_dir = tmp_path / f"logs{len(given)}"
        settings = load_settings({**given, "log_dir": str(log_dir), "verbose": 0})
        job = Session(settings, Plan(), Ranks(), clock, meter, mode=RunMode.RUNNER)
        clock.pass_s(100.0)
        own = {"carbon_intensity_gco2e_per_kwh": 500, "intensity": "", "sim_gpu_w": 360.0 if given else None}
        with Tracker(20, clock=clock, log_dir=log_dir, verbose=0, **own) as tracker:
            train(tracker, clock, 10)
        job.finish(RunStatus.FINISHED)
        found = sorted(run.emissions_kgco2e for run in read_logs(log_dir).runs)
        assert found == pytest.approx([0.01 * 0.1, 0.01 * 0.5] if given else [0.02 * 0.5])


def test_without_them_a_log_is_as_it_was(clock, tmp_path):
    with make_tracker(clock, tmp_path / "logs") as tracker:
        train(tracker, clock, 1)
    (path,) = (tmp_path / "logs").glob("*/epochs-0.csv")
    assert path.read_text().splitlines()[0] == ",".join(EPOCHS.least)
    assert "intensity_order" not in only_run("logs").lines
    assert "greenlove-intensity" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ((*EPOCHS.columns, "of_a_later_version"), 100),
        ((*EPOCHS.least, "of_a_later_version", EPOCHS.columns[-3]), 100),
        ((*EPOCHS.least, "of_a_later_version", "and", "more"), None),
    ],
)
def test_rates_are_read_by_the_names_of_their_columns(clock, tmp_path, header, expected):
    write_file(clock, 100)
    with make_tracker(clock, tmp_path / "logs", intensity="own.csv") as tracker:
        train(tracker, clock, 1)
    (path,) = (tmp_path / "logs").glob("*/epochs-0.csv")
    old, *lines = [line.split(",") for line in path.read_text().splitlines()]
    cells = [dict(zip(old, line, strict=True)) for line in lines]
    lines = [header, *([row.get(column, "7") for column in header] for row in cells)]
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    run = only_run("logs")
    assert run.rows[0][0].carbon_intensity_gco2e_per_kwh == expected
    assert run.rows[0][0].electricity_price_usd_per_kwh is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intensity": "nso"}, "no such source"),
        ({"intensity": "neso", "country": "DE"}, "neso knows no zone for DE"),
        ({"intensity": "live"}, "no service without a key knows an unknown place"),
        ({"intensity": "electricity_maps", "country": "DE"}, "ELECTRICITY_MAPS_API_KEY"),
        ({"intensity": "missing.csv"}, "cannot read missing.csv"),
        ({"intensity": "mock", "carbon_intensity_gco2e_per_kwh": 400}, "not both"),
        ({"intensity": "mock", "intensity_urls": "neso"}, "is not service=address"),
        ({"electricity_tariff": "peak 0.3 17-21"}, "no price for Monday"),
        ({"electricity_tariff": "base 0.3", "electricity_price_usd_per_kwh": 0.2}, "not both"),
    ],
)
def test_what_cannot_be_is_said_before_only_run(clock, tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        make_tracker(clock, tmp_path / "logs", **arguments)
    assert not (tmp_path / "logs").exists()


def test_a_bad_variable_is_warned_of_and_the_run_tracked(clock, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GREENLOVE_INTENSITY", "neso")
    monkeypatch.setenv("GREENLOVE_COUNTRY", "DE")
    monkeypatch.setenv("GREENLOVE_ELECTRICITY_TARIFF", "0,3")
    with make_tracker(clock, tmp_path / "logs") as tracker:
        train(tracker, clock, 1)
    assert only_run("logs").summary.epochs_done == 1
    text = caplog.text
    assert "neso knows no zone for DE" in text and "with a point" in text


def test_only_the_rank_with_the_meter_asks(clock, tmp_path, monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    service = Scripted(clock, [100])
    with make_tracker(clock, tmp_path / "logs", intensity=fallbacks(service)) as tracker:
        train(tracker, clock, 1)
    assert service.asked_s == []


def test_two_nodes_are_added_up_by_their_own_intensities(clock, tmp_path, monkeypatch):
    for rank, figure, watts in (("0", 100, 360.0), ("1", 400, 720.0)):
        for name, value in {"RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MASTER_ADDR", "here")
        source = fallbacks(Scripted(clock, [figure]))
        meter = SimulatedMeter(clock, gpu_w=watts)
        with make_tracker(clock, tmp_path / "logs", meter=meter, intensity=source) as tracker:
            train(tracker, clock, 1)
    run = only_run("logs")
    assert run.summary.n_nodes == 2
    assert run.summary.emissions_kgco2e == pytest.approx((KWH * 100 + 2 * KWH * 400) / 1000)


def test_the_interval_of_a_forecast_has_what_the_intensity_of_the_rest_may_be(clock, tmp_path):
    """Of 20 hours 4 are done: the rest may be 63% of the mean so far, or 160% of it."""
    with make_tracker(clock, tmp_path, intensity=fallbacks(Scripted(clock, [200])), epochs=20) as tracker:
        train(tracker, clock, 4, epoch_s=3600.0)
        forecast = tracker.forecast
    energy, emissions = forecast.energy_kwh, forecast.emissions_kgco2e
    ratio = math.exp(0.47 * (1 - math.exp(-forecast.duration_s.point / 3600 / 5)))
    rest = 1 - 4 * 3600 / forecast.duration_s.point
    of_energy = (energy.upper / energy.point - 1, energy.point / energy.lower - 1)
    upper, lower = emissions.upper / emissions.point - 1, emissions.point / emissions.lower - 1
    assert upper == pytest.approx(math.hypot(of_energy[0], rest * (ratio - 1)), rel=1e-6)
    assert lower == pytest.approx(math.hypot(of_energy[1], 1 / (1 - rest * (1 - 1 / ratio)) - 1), rel=1e-6)
    assert upper > 0.4 and emissions.kind == energy.kind and emissions.level == energy.level


def test_without_an_intensity_of_its_time_the_interval_is_of_the_energy_alone(clock, tmp_path):
    with make_tracker(clock, tmp_path, electricity_tariff="base 0.2", country="DE", epochs=20) as tracker:
        train(tracker, clock, 4, epoch_s=3600.0)
        forecast = tracker.forecast
    assert forecast.emissions_kgco2e.relative_width == pytest.approx(forecast.energy_kwh.relative_width)


def test_a_service_that_the_job_asks_and_the_scripts_country_lacks_leaves_the_table(clock, tmp_path, caplog):
    settings = load_settings({"log_dir": str(tmp_path), "verbose": 0, "intensity": "neso", "country": "GB"})
    job = Session(settings, Plan(), Ranks(), clock, SimulatedMeter(clock, gpu_w=360.0), mode=RunMode.RUNNER)
    with make_tracker(clock, tmp_path, country="FR") as tracker:
        train(tracker, clock, 1)
    job.finish(RunStatus.FINISHED, 0)
    assert tracker.summary.epochs_done == 1 and "neso knows no zone for FR" in caplog.text
