"""carbontracker's logs as runs: those it wrote itself (recorded with 2.4.7), and those of other versions."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import only_run
from foreign_samples import END, HEAD, write_log

from greenlove_tracker.cli import cli
from greenlove_tracker.compat.carbontracker import parser
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.rendering import markdown
from greenlove_tracker.report.build import document
from greenlove_tracker.vocabulary.records import Flag

RECORDED = Path(__file__).parents[2] / "recorded" / "foreign" / "carbontracker"


def test_the_recorded_logs():
    logs = read_logs(RECORDED)
    both, early = logs.readable()
    assert logs.problems == []
    assert both.run_id == "20261121T123208-carbontracker-29137.24809" and both.text("meter") == "carbontracker 2.4.7"
    summary = both.summary
    assert (summary.status, summary.epochs_done, summary.epochs_planned) == ("finished", 2, 2)
    assert (summary.duration_s, summary.gpu_count, summary.pue) == (pytest.approx(2.4), 1, 1.58)
    assert summary.energy_kwh == pytest.approx(0.000379251322, rel=1e-12)  # as its output log says
    assert summary.emissions_kgco2e == pytest.approx(0.000168766838198, rel=1e-12)
    assert (summary.energy.gpu_kwh, summary.energy.ram_kwh) == (pytest.approx(300 * 2.4 / 3.6e6, rel=1e-3), None)
    assert (summary.energy.cpu_method, summary.energy.gpu_method, summary.measured_kwh) == ("tdp_model", "tdp_model", 0)
    assert both.carbon_intensity.value == pytest.approx(445.0) and "carbontracker 2.4.7" in both.carbon_intensity.source
    assert "Daniel Bizo, 2023" in both.text("pue.source") and both.text("unmeasured") == "ram"
    assert both.trials == () and both.text("gpu_models") == "1 × NVIDIA A100-SXM4-40GB"
    assert (early.summary.status, early.summary.epochs_done, early.summary.epochs_planned) == ("interrupted", 2, 5)
    assert (early.text("project"), early.summary.energy.gpu_kwh, early.summary.gpu_count) == ("early", None, 0)


@pytest.fixture
def monitored_in_part(tmp_path):
    """Two of 100 epochs were monitored, on a GPU and a CPU: 4 h of 100 h, 2 of 50 kWh before PUE."""
    epochs = [("2:00:00.00", "gpu: 400.0", "cpu: 100.0")] * 2
    write_log(tmp_path, "GPU with device(s) NVIDIA H100 80GB HBM3. CPU with device(s) cpu:0.", epochs)
    block = "\tTime:\t{}:00:00\n\tEnergy:\t{} kWh\n\tCO2eq:\t{} g\n"
    (tmp_path / "7.1_2026-11-21T025543Z_carbontracker_output.log").write_text(
        "2026-11-21 02:55:47 - CarbonTracker: \nPredicted consumption for 100 epoch(s):\n"
        + block.format(200, 100 * 1.58, 100 * 1.58 * 445)
        + "2026-11-21 02:55:49 - CarbonTracker: \nActual consumption for 2 epoch(s):\n"
        + block.format(4, 2 * 1.58, 2 * 1.58 * 445)
        + "2026-11-21 02:55:49 - CarbonTracker: Finished monitoring.\n"
    )
    return tmp_path


def test_what_was_not_to_be_monitored_counts_as_predicted_and_is_flagged(monitored_in_part):
    (run,) = read_logs(monitored_in_part).readable()
    summary = run.summary
    assert (summary.status, summary.epochs_done, summary.epochs_planned) == ("finished", 2, 100)
    assert summary.energy_kwh == pytest.approx(158.0) and summary.emissions_kgco2e == pytest.approx(158.0 * 0.445)
    assert (summary.duration_s, summary.gpu_hours) == (200 * 3600.0, 200.0)
    assert Flag.PREDICTED in summary.flags and not run.is_complete
    assert parser.parse_all_logs(monitored_in_part)[0]["actual"]["energy (kWh)"] == pytest.approx(3.16)
    assert (summary.energy.total_kwh, summary.unmetered_estimate_kwh) == (pytest.approx(2.0), pytest.approx(98.0))


def test_the_verbs_flag_what_carbontracker_predicted(monitored_in_part):
    def text(*arguments):
        done = CliRunner().invoke(cli, [*arguments], env={"COLUMNS": "100"})
        assert done.exit_code == 0, done.output
        return done.output

    table = text("report", str(monitored_in_part), "--text")
    assert "158 kWh" in table and "The sums hold carbontracker's prediction" in table
    rows = json.loads(text("report", str(monitored_in_part), "--json"))["groups"]
    assert (rows[0]["energy_kwh"], rows[0]["predicted"]) == (pytest.approx(158.0), 1)
    report = markdown.render(document(monitored_in_part))
    assert "Not all epochs were monitored" in report


def test_run_ids_are_the_same_each_time_and_a_copy_counts_once(tmp_path):
    file = write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")])
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / file.name).write_bytes(file.read_bytes())
    logs = read_logs(tmp_path)
    assert [run.run_id for run in logs.runs] == ["20261121T025543-carbontracker-7.1"]
    assert "left out: the same run as in" in str(logs.problems[0])


@pytest.mark.parametrize(
    ("found", "powers", "watts"),
    [
        ("GPU with device(s) A, A, A, A.", ["300.0"], 1200.0),  # a mean over devices
        ("GPU with device(s) A, B.", ["[ 17.5 45.2]"], 62.7),
        ("GPU with device(s) A.", ["[136.86]"], 136.86),
        ("GPU with device(s) GPU, ANE.", ["12.5"], 12.5),  # Apple's: their sum already
        ("GPU with device(s) A, B.", ["[ 17.5\n 45.2]"], 62.7),  # numpy breaks long lines
        ("GPU with device(s) A.", ["None"], None),
        ("GPU with device(s) A.", ["[None]"], None),
        ("GPU with device(s) A.", ["0.0"], None),  # could not be read: not a measured zero
    ],
)
def test_powers_of_every_version(tmp_path, found, powers, watts):
    write_log(tmp_path, found, [("1:00:00.00", *(f"gpu: {p}" for p in powers))])
    run = only_run(tmp_path)
    expected = None if watts is None else pytest.approx(watts / 1000)
    assert (run.summary.energy.gpu_kwh, run.problems) == (expected, [])


@pytest.mark.parametrize(
    ("found", "powers", "method"),
    [
        ("CPU with device(s) cpu:0, dram:0:2.", ["cpu: 36.0", "cpu: 36.0"], "sampled_power"),
        ("CPU with device(s) AMD EPYC.", ["cpu: 36.0", "cpu: 36.5"], "tdp_model"),
        ("GPU with device(s) H100.", ["gpu: 301.5", "gpu: 299.25"], "sampled_power"),
        ("GPU with device(s) H100.", ["gpu: 300.0", "gpu: 300.0"], "tdp_model"),  # what never moves was given
        ("GPU with device(s) H100.", ["gpu: 300.0"], None),  # may be either
    ],
)
def test_the_method_says_what_the_tool_did(tmp_path, found, powers, method):
    write_log(tmp_path, found, [("0:00:10.00", power) for power in powers])
    energy = only_run(tmp_path).summary.energy
    assert (energy.cpu_method or energy.gpu_method) == method


def test_a_method_that_is_not_known_is_no_share_of_measurements(tmp_path):
    write_log(tmp_path, "GPU with device(s) H100.", [("0:00:10.00", "gpu: 300.0")])
    assert only_run(tmp_path).summary.measured_kwh is None


def test_an_epoch_too_short_to_be_measured_is_estimated_not_zero(tmp_path):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0"), ("0:00:10.00", "cpu: None")])
    run = only_run(tmp_path)
    assert run.epochs[1].energy.total_kwh is None
    assert run.summary.unmetered_estimate_kwh == pytest.approx(0.0001)
    assert run.summary.energy_kwh == pytest.approx(0.0002 * 1.58)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (END, "finished"),
        (END[:1], "interrupted"),  # killed: no last line
        (["Training was interrupted before all 9 epochs were monitored.", *END], "interrupted"),
        (["Session ended by user.", *END], "stopped"),
    ],
)
def test_how_it_ended(tmp_path, end, status):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")], end)
    run = only_run(tmp_path)
    assert (run.summary.status, run.has_summary) == (status, end[-1] == END[-1])
    assert run.summary.epochs_planned == (9 if "9" in end[0] else None)


@pytest.mark.parametrize(
    "line",
    [
        "Average carbon intensity during training was 82.00 gCO2eq/kWh at detected location: Copenhagen, Capital, DK.",
        "Average carbon intensity during training was 82.00 gCO2eq/kWh at detected location Copenhagen, Capital, DK.",
    ],
)
def test_the_place_with_and_without_its_colon(tmp_path, line):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")], [line, END[1]])
    run = only_run(tmp_path)
    assert (run.text("country"), run.text("location"), run.carbon_intensity.value) == (
        "DK",
        "Copenhagen, Capital, DK",
        82,
    )


def test_what_the_log_does_not_say_is_empty(tmp_path):
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")], END[1:], head=HEAD[:1])
    run = only_run(tmp_path)
    assert run.summary.emissions_kgco2e is None and run.carbon_intensity.unit == ""
    assert [p.message for p in run.problems] == ["names no PUE: counted without"]
    assert (run.text("country"), run.summary.cost_usd, run.summary.exit_code) == ("", None, None)


def test_an_output_log_alone_is_named(tmp_path):
    source = next(RECORDED.glob("29137*_output.log"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    logs = read_logs(tmp_path)
    assert list(logs.runs) == [] and "its standard log is missing" in str(logs.problems[0])


@pytest.mark.parametrize("name", ["10151_2024-03-26T105926Z", "2020-05-17T19:02Z", ""])
def test_older_names(tmp_path, name):
    file = write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")], name=name)
    if not name:
        file.rename(tmp_path / "carbontracker.log")
    assert only_run(tmp_path).summary.epochs_done == 1


def test_a_line_cut_off_counts_for_nothing(tmp_path):
    file = write_log(
        tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0"), ("0:00:10.00", "cpu: 36.0")], []
    )
    file.write_bytes(file.read_bytes()[:-3])
    run = only_run(tmp_path)
    assert run.summary.energy.cpu_kwh == pytest.approx(0.0001)
    assert "last line was cut off" in str(run.problems[0])
