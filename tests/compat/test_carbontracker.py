"""carbontracker's names over our parts: its documented examples with the import changed, and its known defects."""

import io
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import epoch_row
from fakes import FakeClock, ScriptedMeter, gpu_energy, only_run
from foreign_samples import END, write_log

from greenlove_tracker import Tracker
from greenlove_tracker.compat.carbontracker import parser
from greenlove_tracker.compat.carbontracker.report import generate_report_from_log
from greenlove_tracker.compat.carbontracker.tracker import CarbonTracker
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.vocabulary.errors import UsageError

RECORDED = Path(__file__).parents[1] / "recorded" / "foreign" / "carbontracker"
SIM_CPU = {"sim_cpu": "AMD EPYC", "sim_cpu_tdp": 120.0}
SIM_GPU = {"sim_gpu": "NVIDIA A100", "sim_gpu_watts": 400, "sim_gpu_util": 0.75}


@pytest.fixture
def log_dir(tmp_path):
    return tmp_path / "logs"


def train(tracker, epochs, clock=None, epoch_s=10.0):
    for _ in range(epochs):
        tracker.epoch_start()
        if clock is not None:
            clock.pass_s(epoch_s)
        tracker.epoch_end()


# -- its documented examples -------------------------------------------------------------------------------------------


def test_the_example_of_its_readme(log_dir):
    max_epochs = 3
    tracker = CarbonTracker(epochs=max_epochs, log_dir=str(log_dir), **SIM_CPU, **SIM_GPU)
    for _epoch in range(max_epochs):
        tracker.epoch_start()
        tracker.epoch_end()
    tracker.stop()
    run = only_run(log_dir)
    assert (run.summary.status, run.summary.epochs_done) == ("finished", 3)
    assert run.text("meter") == "simulated" and run.summary.energy.gpu_method == "tdp_model"
    ratio = run.summary.energy.gpu_kwh / run.summary.energy.cpu_kwh
    assert ratio == pytest.approx(300 / 60)  # the CPU at 50%, as carbontracker has it


TRACKED = """
from carbontracker.tracker import CarbonTracker

n_epochs = 2
tracker = CarbonTracker(epochs=n_epochs, update_interval=10, interpretable=True, log_dir="./logs/", verbose=2)
for epoch in range(n_epochs):
    tracker.epoch_start()
    sum(range(100_000))
    tracker.epoch_end()
tracker.stop()
"""
PARSED = """
from carbontracker import parser
from carbontracker.report import generate_report_from_log

parser.print_aggregate(log_dir="./logs/")
first = parser.parse_all_logs(log_dir="./logs/")[0]
for key in ("output_filename", "standard_filename", "early_stop", "actual", "pred"):
    print(key, first[key])
print("devices", {name: part["devices"] for name, part in first["components"].items()})
print("epochs", len(next(iter(parser.parse_logs("./logs/").values()))["epoch_durations (s)"]))
generate_report_from_log(first["standard_filename"], "report.pdf")
"""


def test_the_examples_of_its_readme_run_with_nothing_but_the_import_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for script in (TRACKED, PARSED):
            exec(script.replace("from carbontracker", "from greenlove_tracker.compat.carbontracker"), {})
    printed = capsys.readouterr()
    assert "finished · 2 of 2 epochs" in printed.err and "counted: " in printed.err
    assert "early_stop False" in printed.out and "'epochs': 2" in printed.out and "\nepochs 2\n" in printed.out
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_components_of_one_run_are_those_of_the_log_that_is_named_else_of_the_latest(log_dir):
    for name, epochs in (("first", 2), ("second", 3)):
        train(CarbonTracker(epochs, log_dir=log_dir, log_file_prefix=name, verbose=0, **SIM_GPU), epochs)
    first, second = parser.parse_all_logs(log_dir)
    assert len(parser.parse_logs(log_dir)["gpu"]["epoch_durations (s)"]) == 3
    named = parser.parse_logs(log_dir, first["standard_filename"], first["output_filename"])
    assert named["gpu"]["devices"] == second["components"]["gpu"]["devices"]
    assert len(named["gpu"]["epoch_durations (s)"]) == 2
    (log_dir.parent / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no"):
        parser.parse_logs(log_dir.parent / "empty")


def summed(capsys, directory):
    """Return the energy in kWh and the CO2e in kg that the sentence for a paper gives."""
    capsys.readouterr()
    parser.print_aggregate(directory)
    found = re.findall(r"([\d.e-]+) (?:kWh|kg)\b", capsys.readouterr().out)
    return [float(number) for number in found]


def test_where_a_part_is_monitored_the_prediction_counts(log_dir, capsys):
    clock = FakeClock()
    meter = SimulatedMeter(clock, gpu_w=300.0)
    arguments = {"epochs_before_pred": 2, "monitor_epochs": 3, "log_dir": log_dir, "clock": clock, "meter": meter}
    tracker = CarbonTracker(200, **arguments)
    train(tracker, 20, clock)  # 10 s at 300 W; 200 of them are 0.1667 kWh
    tracker.stop()
    (entry,) = parser.parse_all_logs(log_dir)
    assert (entry["early_stop"], entry["actual"]["epochs"], entry["pred"]["epochs"]) == (False, 3, 200)
    assert entry["actual"]["energy (kWh)"] == pytest.approx(300 * 30 / 3.6e6)
    assert entry["pred"]["energy (kWh)"] == pytest.approx(300 * 2000 / 3.6e6, rel=0.02)
    assert summed(capsys, log_dir)[0] == pytest.approx(entry["pred"]["energy (kWh)"], rel=1e-5)
    run = only_run(log_dir)
    assert (run.summary.status, run.summary.duration_s) == ("finished", pytest.approx(30.0))
    assert run.forecasts[-1].epochs_done == 3  # of what is not monitored nothing else is known


def test_a_run_that_is_stopped_within_its_monitored_part_is_stopped_early(log_dir, capsys):
    clock = FakeClock()
    meter = SimulatedMeter(clock, gpu_w=300.0)
    tracker = CarbonTracker(200, monitor_epochs=5, log_dir=log_dir, verbose=0, clock=clock, meter=meter)
    train(tracker, 2, clock)
    tracker.stop()
    (entry,) = parser.parse_all_logs(log_dir)
    assert (entry["early_stop"], entry["actual"]["epochs"]) == (True, 2)
    assert summed(capsys, log_dir)[0] == pytest.approx(entry["actual"]["energy (kWh)"], rel=1e-5)


def test_logs_as_dictionaries(log_dir, capsys):
    train(CarbonTracker(2, log_dir=log_dir, verbose=0, **SIM_GPU, **SIM_CPU), 2)
    for directory in (log_dir, RECORDED):
        first_log = parser.parse_all_logs(log_dir=str(directory))[0]
        assert list(first_log) == ["output_filename", "standard_filename", "components", "early_stop", "actual", "pred"]
        assert Path(first_log["output_filename"]).exists() and Path(first_log["standard_filename"]).exists()
        assert (first_log["early_stop"], first_log["actual"]["epochs"]) == (False, 2)
        shape = ["epochs", "duration (s)", "energy (kWh)", "co2eq (g)", "equivalents"]
        assert list(first_log["actual"]) == shape and list(first_log["actual"]["equivalents"]) == [
            "km travelled by car"
        ]
        assert len(first_log["components"]["gpu"]["devices"]) == 1
        parser.print_aggregate(log_dir=str(directory))
        assert "kWh of electricity" in capsys.readouterr().out
    actual = parser.parse_all_logs(RECORDED)[0]["actual"]
    assert actual["energy (kWh)"] == pytest.approx(0.000379251322, rel=1e-12)  # its log's own
    assert actual["co2eq (g)"] == pytest.approx(0.168766838198, rel=1e-12)


def test_what_cannot_be_read_is_warned_of_by_name(tmp_path, capsys):
    (tmp_path / "1_carbontracker.log").write_text("nothing\n")
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("1:00:00.00", "cpu: 100.0")])
    with pytest.warns(UserWarning, match=r"1_carbontracker.log: is no log of carbontracker"):
        assert summed(capsys, tmp_path)[:2] == [0.158, pytest.approx(0.158 * 0.445)]
    with pytest.raises(UsageError, match=r"there is no .*: track a run first"):
        parser.print_aggregate(tmp_path / "gone")


# -- its arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"monitor_epochs": 0}, "monitor_epochs cannot be 0"),
        ({"monitor_epochs": 1, "epochs_before_pred": 2}, "cannot be less than epochs_before_pred"),
        ({"sim_cpu": "AMD EPYC"}, "give sim_cpu_tdp"),
        ({"sim_gpu": "A100"}, "give sim_gpu_watts"),
        ({**SIM_GPU, "sim_gpu_util": 70}, "sim_gpu_util must be"),
        ({**SIM_CPU, "sim_cpu_tdp": -1}, "sim_cpu_tdp_w must be"),
        ({"components": "tpu"}, "components must be"),
        ({"api_keys": {"electricitymaps": "k"}}, "needs the place"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_value_errors(log_dir, arguments, message):
    with pytest.raises(ValueError, match=message):
        CarbonTracker(**{"epochs": 3, "log_dir": log_dir, **arguments})
    assert not log_dir.exists()


def test_the_usual_arguments_do_not_warn(log_dir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker = CarbonTracker(1, 1, -1, 1, True, False, False, "all", False, log_dir, "bert", 0, 12, None, "c", 10.0)
    train(tracker, 1)
    run = only_run(log_dir)
    assert run.summary.project == "bert"


def test_the_run_is_closed_after_the_last_monitored_epoch(log_dir):
    tracker = CarbonTracker(5, monitor_epochs=2, log_dir=log_dir, verbose=0, **SIM_CPU)
    train(tracker, 5)
    assert (only_run(log_dir).summary.epochs_done, only_run(log_dir).has_summary) == (2, True)
    tracker.stop()
    train(tracker, 1)  # as carbontracker: nothing more is measured, and nothing is raised
    assert only_run(log_dir).summary.epochs_done == 2


def test_the_components_come_to_the_total_where_nothing_lies_between_epochs(log_dir):
    clock = FakeClock()
    meter = SimulatedMeter(clock, gpu_w=100.0, cpu_tdp_w=50.0, ram_w=20.0)
    with Tracker(3, clock=clock, meter=meter, verbose=0, log_dir=log_dir, pue=1.5) as tracker:
        train(tracker, 3, clock)
    (entry,) = parser.parse_all_logs(log_dir)
    watts = {name: found["avg_power_usages (W)"].tolist() for name, found in entry["components"].items()}
    assert watts == {"gpu": [[pytest.approx(100.0)]] * 3, "cpu": [[pytest.approx(25.0 + 20.0)]] * 3}
    joules = sum(found["avg_energy_usages (J)"].sum() for found in entry["components"].values())
    assert entry["actual"]["energy (kWh)"] == pytest.approx(1.5 * joules / 3.6e6)


@pytest.fixture
def terminal_answer(monkeypatch):
    """Return what has somebody at a terminal type an answer; None: nobody sits there."""

    def answer_with(text):
        monkeypatch.setattr("greenlove_tracker.text.console.can_ask", lambda: text is not None)
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))

    return answer_with


@pytest.mark.parametrize(
    ("answer", "epochs_done", "status"), [("y", 3, "finished"), ("n", 1, "stopped"), (None, 3, "finished")]
)
def test_stop_and_confirm_asks_after_the_prediction_where_there_is_a_terminal(
    log_dir, terminal_answer, capsys, answer, epochs_done, status
):
    clock = FakeClock()
    terminal_answer(answer)
    meter = SimulatedMeter(clock, gpu_w=300.0)
    tracker = CarbonTracker(3, stop_and_confirm=True, log_dir=log_dir, clock=clock, meter=meter)
    if answer == "n":
        with pytest.raises(SystemExit) as ended:
            train(tracker, 3, clock)
        assert ended.value.code == 0
    else:
        train(tracker, 3, clock)
    run = only_run(log_dir)
    assert (run.summary.epochs_done, run.summary.status) == (epochs_done, status)
    assert re.search(r"predicted: [\d.]+ s \[.*Wh \[", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("components", "known"), [("all", {"cpu", "gpu"}), ("gpu", {"gpu"}), ("cpu", {"cpu"}), ("gpu,cpu", {"cpu", "gpu"})]
)
def test_components_are_those_that_were_chosen(log_dir, components, known):
    clock = FakeClock()
    tracker = CarbonTracker(2, components=components, log_dir=log_dir, verbose=0, clock=clock, **SIM_CPU, **SIM_GPU)
    train(tracker, 2, clock)
    run = only_run(log_dir)
    energy = run.summary.energy
    assert {c for c in ("cpu", "gpu", "ram") if energy.component_kwh(c) is not None} == known
    watts = {"cpu": 60.0, "gpu": 300.0}
    assert run.summary.energy_kwh == pytest.approx(sum(watts[c] for c in known) * 20 / 3.6e6)


def test_verbose_2_says_what_is_counted_the_intensity_and_the_prediction(log_dir, capsys):
    clock = FakeClock()
    tracker = CarbonTracker(
        3, verbose=2, components="gpu", log_dir=log_dir, clock=clock, country="DE", **SIM_CPU, **SIM_GPU
    )
    train(tracker, 3, clock)
    said = capsys.readouterr().err
    assert "counted: 1 × simulated GPU" in said and "CPU" not in said.partition("counted:")[2].splitlines()[0]
    assert re.search(r"carbon intensity, now and expected to the end: .*[\d.]+ g/kWh, .*Germany", said)
    assert re.search(r"predicted: [\d.]+ s \[.*Wh \[.*\b(g|mg) \[", said)
    assert "km by new EU car" in said


def test_interpretable_is_a_line_that_can_be_left_out(log_dir, capsys):
    for interpretable in (True, False):
        clock = FakeClock()
        tracker = CarbonTracker(1, interpretable=interpretable, log_dir=log_dir, clock=clock, **SIM_GPU)
        train(tracker, 1, clock)
        assert ("km by new EU car" in capsys.readouterr().err) is interpretable


def test_the_report_of_a_log_is_a_pdf(tmp_path):
    log = next(RECORDED.glob("*_carbontracker.log"))
    generate_report_from_log(log, tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_key_of_electricity_maps_asks_it(log_dir, electricity_maps):
    clock = FakeClock()
    clock.wall_offset_s = time.time()
    tracker = CarbonTracker(
        2, api_keys={"electricitymaps": "s3cret"}, country="DE", log_dir=log_dir, verbose=0, clock=clock, **SIM_GPU
    )
    train(tracker, 2, clock)
    assert electricity_maps.asked[0].headers["auth-token"] == "s3cret"
    run = only_run(log_dir)
    assert run.summary.emissions_kgco2e == pytest.approx(run.summary.energy_kwh * 0.322)
    assert "s3cret" not in "".join(path.read_text() for path in run.path.iterdir())


# -- its defects -------------------------------------------------------------------------------------------------------


def test_1_devices_are_summed_not_averaged(tmp_path):
    write_log(tmp_path, "GPU with device(s) H100, H100, H100, H100.", [("1:00:00.00", "gpu: 300.0")])
    name = "7.1_2026-11-21T025543Z_carbontracker_output.log"
    block = "\tTime:\t1:00:00\n\tEnergy:\t{} kWh\n\tCO2eq:\t{} g\n"
    (tmp_path / name).write_text(
        "2026-11-21 02:55:47 - CarbonTracker: \nPredicted consumption for 10 epoch(s):\n"
        + block.format(4.74, 2109.3)
        + "2026-11-21 02:55:47 - CarbonTracker: \nActual consumption for 1 epoch(s):\n"
        + block.format(0.474, 210.93)
        + "2026-11-21 02:55:47 - CarbonTracker: Finished monitoring.\n"
    )
    run = only_run(tmp_path)
    assert (run.summary.energy.gpu_kwh, run.summary.gpu_hours) == (pytest.approx(1.2), 40.0)
    (entry,) = parser.parse_all_logs(tmp_path)
    assert entry["actual"]["energy (kWh)"] == pytest.approx(1.2 * 1.58)
    assert entry["pred"]["energy (kWh)"] == pytest.approx(12 * 1.58)
    assert entry["components"]["gpu"]["avg_power_usages (W)"].tolist() == [[300.0] * 4]


def test_3_the_measurement_counts_not_the_prediction(capsys):
    whole, early = parser.parse_all_logs(RECORDED)
    assert (whole["actual"]["epochs"], whole["pred"]["epochs"], early["actual"]["epochs"]) == (2, 2, 2)
    energy_kwh, kilograms = summed(capsys, RECORDED)
    assert energy_kwh == pytest.approx(0.000379251322 + 0.000063208472, rel=1e-5)  # 5 epochs were predicted: 0.000158
    assert kilograms == pytest.approx((0.168766838198 + 0.028127770046) / 1000, rel=1e-5)


def test_what_is_unknown_is_no_zero_in_the_sums(make_run, capsys):
    unknown = make_run("20261101T120000-unknown", rows=[epoch_row(1, None)])
    parser.print_aggregate(unknown.parent)
    text = "an unknown amount of electricity and emitted an unknown amount of CO2e (greenlove"
    assert text in capsys.readouterr().out
    make_run("20261101T130000-known")
    parser.print_aggregate(unknown.parent)
    assert "0.002 kWh of electricity" in (out := capsys.readouterr().out)
    assert ", without 1 of 2 runs, of which it is unknown" in out


def test_5_device_names_and_arrays_are_whole(tmp_path):
    powers = [("0:00:10.00", "gpu: [ 17.5 45.2]"), ("0:00:10.00", "gpu: [ 18.5 46.2]"), ("0:00:10.00", "gpu: None")]
    write_log(tmp_path, "GPU with device(s) Foo v1.2, Bar 3.0.", powers)
    gpu = parser.parse_all_logs(tmp_path)[0]["components"]["gpu"]
    assert gpu["devices"] == ["Foo v1.2", "Bar 3.0"]
    expected = [[17.5, 45.2], [18.5, 46.2], [np.nan, np.nan]]
    np.testing.assert_array_equal(gpu["avg_power_usages (W)"], expected)
    np.testing.assert_allclose(gpu["avg_energy_usages (J)"], np.array(expected) * 10)


def test_7_a_counter_that_cannot_be_read_is_no_0_w(tmp_path, log_dir):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 0.0"), ("0:00:10.00", "cpu: 36.0")])
    run = only_run(tmp_path)
    assert [epoch.energy.cpu_kwh for epoch in run.epochs] == [None, pytest.approx(0.0001)]
    assert run.summary.energy_kwh == pytest.approx(0.0002 * 1.58)  # the first epoch at the power of the second
    clock = FakeClock()
    meter = ScriptedMeter([gpu_energy(None), gpu_energy(0.001), gpu_energy(None), gpu_energy(None), gpu_energy(None)])
    train(CarbonTracker(2, log_dir=log_dir, verbose=0, clock=clock, meter=meter), 2, clock)
    assert only_run(log_dir).summary.energy_kwh == pytest.approx(0.002)


def test_9_the_prediction_has_an_interval_and_knows_the_time_between_epochs(log_dir):
    clock = FakeClock()
    meter = ScriptedMeter([gpu_energy(0.001)] * 99)
    tracker = CarbonTracker(10, log_dir=log_dir, verbose=0, clock=clock, meter=meter)
    for n in range(4):
        train(tracker, 1, clock, 10.0 + n % 2)
        clock.pass_s(5.0)  # validation
    duration = tracker.tracker.forecast.duration_s
    assert duration.lower < duration.point < duration.upper
    assert duration.point == pytest.approx(10 * 10.5 + 9 * 5.0, rel=0.1)  # carbontracker: 100 s, after one epoch
    tracker.stop()


def test_11_a_killed_run_of_carbontracker_counts_and_so_does_stop_between_epochs(tmp_path, capsys):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("1:00:00.00", "cpu: 100.0")] * 2, END[:0])
    (entry,) = parser.parse_all_logs(tmp_path)
    assert (entry["early_stop"], entry["actual"]["epochs"]) == (True, 2)
    assert summed(capsys, tmp_path) == [0.316]  # no intensity without an end, so no CO2e
    output = next(RECORDED.glob("early*_output.log")).read_text()
    assert "Actual consumption for 1 epoch(s)" in output  # of the two that it measured
    assert parser.parse_all_logs(RECORDED)[1]["actual"]["epochs"] == 2
