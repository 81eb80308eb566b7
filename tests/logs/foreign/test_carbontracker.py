"""carbontracker's logs as runs: those it wrote itself (recorded with 2.4.7), and those of other versions."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import only_run
from foreign_samples import END, HEAD, write_consumption, write_log

from greenlove_tracker.cli import cli
from greenlove_tracker.compat.carbontracker import parser
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.rendering import markdown
from greenlove_tracker.report.build import document
from greenlove_tracker.vocabulary.records import Flag

RECORDED = Path(__file__).parents[2] / "recorded" / "foreign" / "carbontracker"
RELEASES = Path(__file__).parents[2] / "recorded" / "carbontracker-releases"


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


@pytest.mark.parametrize(
    ("version", "energy", "grams", "duration_s", "place", "n_gpus"),
    [
        ("1.0.6", "0.000112", "0.011505", 2.407921, "Odense, Region Syddanmark, DK", 1),
        ("1.0.7", "0.000215", "0.022076", 2.0, "Aarhus, Central Jutland, DK", 2),
        ("1.1.0", "0.000263", "0.026911", 2.0, "Aalborg, North Denmark, DK", 1),
        ("1.1.1", "0.000212", "0.021756", 2.42, "Copenhagen, Capital Region, DK", 1),
        ("1.1.2", "0.000295", "0.086856", 2.41, "", 2),
        ("1.1.3", "0.000144", "0.042496", 2.42, "", 1),
        ("1.1.6", "0.000353", "0.036221", 2.43, "Roskilde, Zealand, DK", 2),
        ("1.1.7", "0.000245", "0.034697", 2.41, "São Paulo, São Paulo, BR", 1),
        ("1.2.5", "0.000344205370", "0.040959296258", 2.42, "Montréal, Quebec, CA", 2),
        ("2.0.1", "0.000188846184", "0.071941042446", 2.42, "München, Bavaria, DE", 1),
        ("2.2.0", "0.000275017990", "0.132283653142", 2.41, "", 1),
        ("2.3.1", "0.000167382060", "0.110794510827", 2.41, "Łódź, Łódź Voivodeship, PL", 1),
        ("2.4.2", "0.000262963602", "0.008084969239", 2.45, "Tromsø, Troms, NO", 1),
        ("2.4.4", "0.000176", "0.004995", 2.43, "Reykjavík, Capital Region, IS", 1),
        ("2.4.7", "0.000248536697", "0.119875253380", 2.44, "東京, Tokyo, JP", 1),
    ],
)
def test_each_release_is_read_to_the_last_digit(version, energy, grams, duration_s, place, n_gpus):
    run = only_run(RELEASES / version)
    summary = run.summary
    decimals = len(energy.partition(".")[2])
    assert f"{summary.energy_kwh:.{decimals}f}" == energy
    assert f"{summary.emissions_kgco2e * 1000:.{decimals}f}" == grams
    assert (summary.duration_s, summary.gpu_count) == (pytest.approx(duration_s), n_gpus)
    assert (run.text("meter"), run.text("location")) == (f"carbontracker {version}", place)
    assert (run.text("country"), run.problems) == (place[-2:], [])
    assert (summary.status, summary.epochs_done) == ("interrupted" if version == "2.3.1" else "finished", 2)
    (entry,) = parser.parse_all_logs(RELEASES / version)
    assert entry["actual"]["energy (kWh)"] == summary.energy_kwh
    assert entry["actual"]["co2eq (g)"] == pytest.approx(summary.emissions_kgco2e * 1000, rel=1e-15)
    assert (entry["actual"]["duration (s)"], entry["early_stop"]) == (summary.duration_s, version == "2.3.1")


def test_before_1_0_5_a_log_has_no_total_of_its_own():
    run = only_run(RELEASES / "1.0.4")
    watts = [149 + 134.1356, 149 + 135.78775]  # the mean of each epoch's readings of two GPUs
    assert run.summary.energy.gpu_kwh == pytest.approx(sum(watts) * 1.2 / 3.6e6, rel=0.05)
    assert (run.summary.duration_s, run.carbon_intensity.value) == (pytest.approx(2.41, abs=0.01), 102.5)
    assert (run.text("location"), run.summary.pue, run.problems) == ("Copenhagen, Capital Region, DK", 1.0, [])


def test_since_2_0_carbontracker_counts_the_mean_of_two_gpus_which_is_told():
    run = only_run(RELEASES / "2.1.2")
    assert run.summary.energy_kwh == pytest.approx(2 * 0.000149658475, rel=0.01)
    assert run.summary.emissions_kgco2e == pytest.approx(2 * 0.000005214507724, rel=0.01)
    assert "its total of 0.000149658475 kWh is not that of its devices and epochs" in str(run.problems[0])


TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    loss.backward()
RuntimeError: CUDA error: 700 at 2026-11-29 - Epoch 9:
 200.5
2026-11-29 18:00:00 - Ignored error: Traceback (most recent call last):
"""


def totals(run):
    summary = run.summary
    amounts = (summary.energy_kwh, summary.emissions_kgco2e, summary.duration_s)
    return summary.epochs_done, summary.status, run.text("location"), *amounts


@pytest.mark.parametrize("version", ["1.0.6", "1.1.6", "2.4.7"])
@pytest.mark.parametrize("name", ["carbontracker.log", "carbontracker_output.log"])
def test_text_in_the_middle_of_a_log_costs_nothing_around_it(tmp_path, version, name):
    for file in (RELEASES / version).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = totals(only_run(tmp_path))
    file = next(tmp_path.glob(f"*_{name}"))
    lines = file.read_text().splitlines(keepends=True)
    for at in range(len(lines) + 1):
        file.write_text("".join([*lines[:at], TRACEBACK, *lines[at:]]))
        run = only_run(tmp_path)
        assert totals(run) == whole
        assert [p.message[:25] for p in run.problems] == ["6 lines not understood: l"]
    file.write_text("".join(lines).replace("\n", "\r\n"), newline="")
    assert totals(only_run(tmp_path)) == whole


@pytest.mark.parametrize("version", ["1.0.6", "1.1.6", "2.4.7"])
def test_a_log_that_is_cut_anywhere_keeps_its_whole_epochs(tmp_path, version):
    source = next(f for f in (RELEASES / version).iterdir() if not f.name.endswith("_output.log"))
    text = source.read_text()
    last_power = "Power usages" if version == "1.0.6" else "Average power"
    for end in range(len(text) - 1, 300, -1):
        (tmp_path / source.name).write_text(text[:end])
        run = only_run(tmp_path)
        kept = text[:end].rpartition("\n")[0]
        n_devices = 2 if "CPU with" in text else 1
        assert sum(epoch.energy.is_known for epoch in run.epochs) >= kept.count(last_power) // n_devices
        assert run.problems or text[end - 1] == "\n"


def test_what_a_later_tracker_of_the_same_process_logged_counts_in_its_own_log(tmp_path):
    """1.x adds a handler for each tracker, so that the first log holds them all; to 1.1.2 one log has lines twice."""
    first = write_log(tmp_path, "GPU with device(s) A.", [("1:00:00.00", "gpu: [100.]")], name="2020-07-01T100000Z")
    text = first.read_text()
    later = text.replace("02:55:4", "04:00:0")
    (tmp_path / "2020-07-01T110000Z_carbontracker.log").write_text(later)
    doubled = "".join(f"{line}\n{line}\n" for line in later.splitlines())
    first.write_text(text + doubled)
    write_consumption(first, "Actual consumption for 1 epoch(s)", "1:00:00", "0.158000", "70.31")
    runs = list(read_logs(tmp_path).readable())
    assert [run.summary.energy_kwh for run in runs] == [pytest.approx(0.158)] * 2
    assert "from 2026-11-21 04:00:00 on of another tracker, and left out" in str(runs[0].problems[0])


@pytest.mark.parametrize(
    ("blocks", "kwh", "intensity", "told"),
    [
        ([("Actual consumption", "0.3174", "31.74")], 0.3174, 100.0, ""),  # rounding alone: as it says
        ([("Actual consumption for 1 epoch(s)", "0.0", "0.0")], 0.316, 445.0, "its total of 0.0 kWh is not"),
        ([("Actual consumption for 1 epochs", "0.5", "50.0")], 0.316, 100.0, "its total of 0.5 kWh is not"),
        ([("Predicted consumption for 2 epoch(s)", "0.316", "31.6")], 0.316, 445.0, ""),
        ([("Actual consumption", "0.158", "1.0"), ("Actual consumption", "0.316", "31.6")], 0.316, 100.0, ""),
    ],
)
def test_which_totals_count(tmp_path, blocks, kwh, intensity, told):
    log = write_log(tmp_path, "GPU with device(s) A.", [("1:00:00.00", "gpu: [100.]")] * 2)
    for which, energy, grams in blocks:
        write_consumption(log, which, "2:00:00", energy, grams)
    run = only_run(tmp_path)
    assert run.summary.energy_kwh == pytest.approx(kwh) and run.carbon_intensity.value == pytest.approx(intensity)
    assert told in "".join(p.message for p in run.problems) and bool(told) == bool(run.problems)


def test_of_a_log_without_an_end_the_prediction_has_the_intensity(tmp_path):
    log = write_log(tmp_path, "GPU with device(s) A.", [("1:00:00.00", "gpu: [100.]")] * 2, END[:0])
    write_consumption(log, "Predicted consumption for 3 epoch(s)", "3:00:00", "0.474", "47.4")
    run = only_run(tmp_path)
    assert (run.summary.status, run.summary.emissions_kgco2e) == ("interrupted", pytest.approx(0.0316))
    assert parser.parse_all_logs(tmp_path)[0]["pred"]["co2eq (g)"] == 47.4
    log.write_text(log.read_text() + "2026-11-21 03:55:49 - Epoch 3:\n2026-11-21 03:55:49 - Duration: 1:00:00.00\n")
    assert only_run(tmp_path).summary.status == "finished"  # 2.3 may write no end


@pytest.fixture
def monitored_in_part(tmp_path):
    """Two of 100 epochs were monitored, on a GPU and a CPU: 4 h of 100 h, 2 of 50 kWh before PUE."""
    epochs = [("2:00:00.00", "gpu: 400.0", "cpu: 100.0")] * 2
    write_log(tmp_path, "GPU with device(s) NVIDIA H100 80GB HBM3. CPU with device(s) cpu:0.", epochs)
    log = next(tmp_path.glob("*_carbontracker.log"))
    for which, hours, kwh in (("Predicted consumption for 100 epoch(s)", 200, 158), ("Actual consumption", 4, 3.16)):
        write_consumption(log, which, f"{hours}:00:00", kwh, kwh * 445)
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
        ("GPU with device(s) A, B, C.", ["[200.\n 136.86\n  45.]"], 381.86),
        ("GPU with device(s) A, B.", ["[149.   136.86]"], 285.86),
        ("GPU with device(s) A, B.", ["[1.5e+02 4.0e+01]"], 190.0),
        ("GPU with device(s) A.", ["[np.float64(200.0)]"], 200.0),
        ("GPU with device(s) A, B.", ["[np.float64(200.0), np.float64(20.5)]"], 220.5),
        ("GPU with device(s) A, B.", ["[nan nan]"], None),
        ("GPU with device(s) A.", ["nan"], None),
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


@pytest.mark.parametrize("reading", ["[36\t99122]", "[36 99122]", "[36,99122]"])
def test_a_damaged_point_does_not_make_two_devices_of_one(tmp_path, reading):
    powers = f"cpu: [[36.5], {reading}]"
    write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0"), ("0:00:10.00", powers)], [])
    run = only_run(tmp_path)
    assert run.summary.energy.cpu_kwh == pytest.approx(0.0001)
    assert any("not understood" in problem.message for problem in run.problems)


def test_runs_of_one_minute_whose_names_tell_no_process_are_two_and_a_copy_is_one(tmp_path):
    releases = Path(__file__).parents[2] / "recorded" / "carbontracker-releases"
    for place, release in (("a", "1.0.4"), ("b", "1.1.1"), ("copy", "1.0.4")):
        shutil.copytree(releases / release, tmp_path / place)
    logs = read_logs(tmp_path)
    assert len(logs.runs) == 2
    (problem,) = [str(problem) for problem in logs.problems if "the same run" in str(problem)]
    assert "copy" in problem
