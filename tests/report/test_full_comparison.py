"""What is said of logged runs beside a baseline: totals, what was learnt, curves, and what else differed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock, make_tracker, tick

from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import Field
from greenlove_tracker.rendering import html, pdf
from greenlove_tracker.rendering.document import ChartRow, Document, Heading, LineChart, Paragraph, Table
from greenlove_tracker.report.full_comparison import learnt_differences, run_blocks, run_lines
from greenlove_tracker.report.run_report import cumulative_energy_kwh
from greenlove_tracker.tracker.metadata import WAIT_VARIABLE, WaitFacts
from greenlove_tracker.tracker.session import open_run

EPOCH_S, EVAL_S = 60.0, 6.0


def trained(
    log_dir: Path,
    epoch_s: float = EPOCH_S,
    accuracies: Sequence[float] = (0.5, 0.8, 0.9),
    *,
    watts: float | None = 360.0,
    fields: dict[str, str] | None = None,
    **settings: Any,
) -> Run:
    """A run of an epoch for each accuracy; its meter knows nothing where there are no watts."""
    clock = FakeClock()
    meter = SimulatedMeter(clock, ram_w=watts)
    tracker = make_tracker(clock, log_dir, meter=meter, epochs=len(accuracies), **settings)
    session = open_run()
    assert session is not None
    session.write_fields([Field(name, value) for name, value in (fields or {}).items()])
    with tracker:
        for epoch, accuracy in enumerate(accuracies):
            tracker.epoch_start()
            clock.pass_s(epoch_s)
            tracker.step(640, n_steps=10)
            tracker.epoch_end()
            tick()
            tracker.log_metric("train_loss", 2.0 / (epoch + 1))
            clock.pass_s(EVAL_S)
            tracker.log_metric("accuracy", accuracy)
    assert tracker.run_dir is not None
    return Run(tracker.run_dir)


def texts(groups: Any) -> str:
    return " ".join(block.text for block in run_blocks(groups) if isinstance(block, Paragraph))


def tables(groups: Any) -> dict[str, list[dict[str, str]]]:
    """The rows of the tables by heading, each by column."""
    found: dict[str, list[dict[str, str]]] = {}
    heading = ""
    for block in run_blocks(groups):
        if isinstance(block, Heading):
            heading = block.text
        elif isinstance(block, Table):
            titles = [column.title for column in block.columns]
            found[heading] = [dict(zip(titles, row, strict=True)) for row in block.rows]
    return found


def charts(groups: Any) -> dict[str, LineChart]:
    rows = [block for block in run_blocks(groups) if isinstance(block, ChartRow)]
    return {chart.title: chart for row in rows for chart in row.charts}


@pytest.fixture
def pair(tmp_path):
    baseline = trained(tmp_path, country="DE", fields={"technique": "baseline", "peak_gpu_memory_gb": "4.00"})
    fast = trained(
        tmp_path,
        EPOCH_S / 2,
        (0.4, 0.8, 0.894),
        country="DE",
        fields={"technique": "amp-bf16", "peak_memory_gb": "0.512", "technique_note": "a loss scale of 65,536"},
    )
    return [("baseline", [baseline]), ("amp-bf16", [fast])]


def test_totals_stand_side_by_side(pair):
    first, second = tables(pair)["Whole runs"]
    assert first["time"] == "3 min 18 s"
    assert second["time"] == "1 min 48 s"
    assert first["energy"] == "19.8 Wh"
    assert second["energy"] == "10.8 Wh"
    assert first["of it measured"] == "none, modelled"
    assert first["cost"].startswith("$")
    first, second = tables(pair)["Memory, waits and carbon intensity"]
    assert first["peak memory"] == "4.00 GiB"
    assert second["peak memory"] == "0.512 GiB, process"
    assert first["waited"] == "–"
    assert first["g/kWh at start"] == "–"  # a mean of a year says nothing of the moment
    assert float(first["g/kWh, mean"]) > 300
    assert "Germany" in first["location-based, from"]


def test_what_was_learnt_is_a_clause_for_the_headline(pair):
    assert learnt_differences(pair) == {
        "amp-bf16": "its best accuracy is 0.60 points lower (0.8940, the baseline's 0.9000)"
    }
    same = [pair[0], ("again", pair[0][1])]
    assert learnt_differences(same) == {}


def test_the_trade_off_is_a_sentence(pair):
    assert (
        "In one run each, amp-bf16 used 45% less modelled energy and took 45% less time, and its best accuracy is 0.60 "
        "points lower (0.8940, the baseline's 0.9000)." in texts(pair)
    )
    assert "amp-bf16: a loss scale of 65,536." in texts(pair)
    assert "One run says nothing about chance" in texts(pair)
    assert "Machine, versions and settings are the same in all of these runs" in texts(pair)


def test_what_was_learnt(pair):
    first, second = tables(pair)["Model quality"]
    assert first == {
        "": "baseline",
        "trained": "3 of 3 epochs",
        "best accuracy": "0.9000",
        "last train_loss": "0.6667",
    }
    assert second["best accuracy"] == "0.8940"


def test_curves_by_epoch_and_by_energy(pair):
    found = charts(pair)
    by_epoch, by_energy = found["accuracy"], found["accuracy, by the energy that it took"]
    assert [line.name for line in by_epoch.lines] == ["baseline", "amp-bf16"]
    assert by_epoch.x_label == "epoch"
    assert by_epoch.points == ((1, 0.5), (2, 0.8), (3, 0.9))
    assert not by_epoch.is_from_0 and not by_energy.is_from_0  # so that close accuracies are told apart
    assert found["Duration of each epoch"].is_from_0
    assert by_energy.x_label == "energy so far, Wh"
    assert by_energy.points[-1] == (pytest.approx(19.8), 0.9)  # its evaluation included
    assert by_energy.others[0].points[-1] == (pytest.approx(10.8), 0.894)
    loss = found["train_loss, by the energy that it took"]
    assert loss.points[0] == (pytest.approx(6.0, rel=1e-3), 2.0)  # logged before the evaluation
    assert found["Duration of each epoch"].others[0].points == ((1, 30), (2, 30), (3, 30))
    assert "Energy of each epoch, before PUE" in found


def test_energy_so_far_ends_with_the_total(pair):
    for _, (run,) in pair:
        elapsed_s, energy_kwh = cumulative_energy_kwh(run)[-1]
        assert elapsed_s == pytest.approx(run.summary.duration_s)
        assert energy_kwh == pytest.approx(run.summary.energy_kwh)


def test_several_runs_are_a_mean_and_a_range(tmp_path):
    groups = [
        ("old", [trained(tmp_path, 60, (0.5, 0.90)), trained(tmp_path, 70, (0.5, 0.92))]),
        ("new", [trained(tmp_path, 50, (0.5, 0.91)), trained(tmp_path, 54, (0.5, 0.93))]),
    ]
    first, _ = tables(groups)["Whole runs"]
    assert first["runs"] == "2"
    assert first["time"] == "2 min 22 s (2 min 12 s to 2 min 32 s)"
    text = texts(groups)
    assert "new used on average 18% less modelled energy and took 18% less time" in text
    assert (
        "its best accuracy is 1.0 points higher (0.9200, the baseline's 0.9100; the ranges of their runs overlap)"
        in text
    )
    assert "A line of several runs is their mean" in text
    assert "What one run learnt" not in text
    assert charts(groups)["accuracy"].points == ((1, 0.5), (2, pytest.approx(0.91)))


def test_what_is_unknown_is_a_dash_and_never_0(tmp_path):
    groups = [("a", [trained(tmp_path, watts=None)]), ("b", [trained(tmp_path, 30, watts=None)]), ("c", [])]
    first, _, missing = tables(groups)["Whole runs"]
    assert first["energy"] == first["CO2e"] == first["cost"] == first["of it measured"] == "–"
    assert set(missing.values()) == {"c", "0", "–"}
    text = texts(groups)
    assert (
        "b took 45% less time (the energy of a and b is unknown), and its best accuracy is the same (0.9000)." in text
    )
    assert "c did not finish." in text
    by_time = charts(groups)["accuracy, by the time that it took"]
    assert by_time.x_label == "time since the start, min"
    assert by_time.points[-1] == (pytest.approx(198 / 60), 0.9)


def test_without_a_baseline_nothing_is_compared(tmp_path):
    groups = [("baseline", []), ("smaller", [trained(tmp_path)])]
    assert "Without a baseline nothing can be compared with it." in texts(groups)
    assert tables(groups)["Model quality"][1]["best accuracy"] == "0.9000"
    assert run_blocks([("baseline", []), ("b", [])]) == ()
    assert run_lines([("baseline", []), ("b", [])]) == []


def test_without_a_metric_that_is_said(tmp_path):
    clock = FakeClock()
    runs = []
    for _ in range(2):
        with make_tracker(clock, tmp_path, epochs=1) as tracker:
            tracker.epoch_start()
            clock.pass_s(60)
            tracker.epoch_end()
        runs.append(Run(tracker.run_dir))
    text = texts([("a", runs[:1]), ("b", runs[1:])])
    assert (
        "In one run each, b used as much modelled energy and took as much time; no metric says what it learnt for that."
        in text
    )
    assert "Model quality is not in the logs" in text


def test_another_machine_is_said_first(tmp_path):
    fields = {"host": "node7", "cpu_model": "Xeon", "torch_version": "2.5.1", "batch_size": "64"}
    groups = [("a", [trained(tmp_path, fields=fields)]), ("b", [trained(tmp_path, fields={**fields, "host": "node8"})])]
    first = next(block for block in run_blocks(groups) if isinstance(block, Paragraph))
    assert first.text.startswith("Machine or meter are not the same in all of these runs (host)")
    differed = tables(groups)["What differed between the runs"]
    assert differed == [{"": "host", "a": "node7", "b": "node8"}]


def test_other_settings_are_listed_and_alone_make_no_warning(tmp_path):
    runs = [trained(tmp_path, fields={"batch_size": size, "torch_version": "2.6.0"}) for size in ("64", "128", "")]
    groups = [("a", runs[:1]), ("b", runs[1:])]
    assert tables(groups)["What differed between the runs"] == [{"": "batch size", "a": "64", "b": "128, –"}]
    assert "Machine or meter" not in texts(groups)


def test_runs_of_other_lengths_are_no_comparison(tmp_path):
    groups = [("a", [trained(tmp_path)]), ("b", [trained(tmp_path, accuracies=(0.5, 0.9))])]
    assert "They did not train equally long (a: 1,920 samples; b: 1,280 samples)" in texts(groups)


def test_waits_and_intensities(tmp_path, monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "")
    WaitFacts(600.0, "clean enough", 410.0, 180.0).hand_over(FakeClock().utc_s())
    waited = trained(tmp_path, carbon_intensity_gco2e_per_kwh=200)
    monkeypatch.setenv(WAIT_VARIABLE, "")
    groups = [("at once", [trained(tmp_path, carbon_intensity_gco2e_per_kwh=400)]), ("later", [waited])]
    _, later = tables(groups)["Memory, waits and carbon intensity"]
    assert later["waited"] == "10 min"
    assert later["g/kWh at start"] == "180"
    assert later["g/kWh, mean"] == "200"
    text = texts(groups)
    assert (
        "later waited 10 min before the start (clean enough); the grid went from 410 to 180 gCO2e/kWh meanwhile."
        in text
    )


def test_intensities_by_the_hour_are_those_of_the_rows(tmp_path):
    series = tmp_path / "intensity.csv"
    series.write_text(
        "utc,gco2e_per_kwh\n2026-09-21T12:00:00Z,100\n2026-09-21T14:30:00Z,300\n2027-01-01T00:00:00Z,300\n"
    )
    runs = [trained(tmp_path / "logs", 3600.0, intensity=str(series)) for _ in range(2)]
    row = tables([("a", runs[:1]), ("b", runs[1:])])["Memory, waits and carbon intensity"][0]
    rows = runs[0].metered_rows
    assert float(row["g/kWh at start"]) == pytest.approx(rows[0].carbon_intensity_gco2e_per_kwh, rel=0.01)
    assert float(row["g/kWh, mean"]) > float(row["g/kWh at start"])
    assert row["location-based, from"].startswith("intensity.csv")


def test_a_run_that_was_cut_off_is_named_and_left_out(tmp_path):
    clock = FakeClock()
    with pytest.raises(RuntimeError), make_tracker(clock, tmp_path, epochs=3) as tracker:
        tracker.epoch_start()
        clock.pass_s(60)
        raise RuntimeError
    run = Run(tracker.run_dir)
    groups = [("whole", [trained(tmp_path)]), ("cut", [run])]
    assert f"cut: {run.run_id} is left out (failed, 0 of 3 epochs)." in texts(groups)
    assert "cut did not finish." in texts(groups)
    assert tables(groups)["Whole runs"][1]["time"] == "–"


def test_metrics_that_were_held_out_come_first(tmp_path):
    def logged(*names: str) -> Run:
        clock = FakeClock()
        with make_tracker(clock, tmp_path, epochs=2) as tracker:
            for epoch in range(2):
                tracker.epoch_start()
                clock.pass_s(60)
                tracker.epoch_end()
                for name in names:
                    tracker.log_metric(name, 0.5 + epoch / 10)
        return Run(tracker.run_dir)

    names = ("train_acc", "train_loss", "learning_rate", "val_loss", "val_f1", "val_acc")
    columns = tables([("a", [logged(*names)]), ("b", [logged(*names[:-1])])])["Model quality"][0]
    assert list(columns)[2:] == ["best val_f1", "last val_loss", "best train_acc"]


def test_steps_are_the_axis_where_epochs_are_none(tmp_path):
    clock = FakeClock()
    runs = []
    for _ in range(2):
        with make_tracker(clock, tmp_path, epochs=None, total_steps=4) as tracker:
            for step in range(4):
                clock.pass_s(60)
                tracker.step(8)
                tracker.log_metric("loss", 4.0 - step)
        runs.append(Run(tracker.run_dir))
    chart = charts([("a", runs[:1]), ("b", runs[1:])])["loss"]
    assert chart.x_label == "step"
    assert chart.points == ((1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0))


def test_a_metric_below_0_has_a_chart_and_one_that_is_not_finite_no_point(tmp_path):
    clock = FakeClock()
    with make_tracker(clock, tmp_path, epochs=3) as tracker:
        for value in (1.0, float("nan"), 0.5):
            tracker.epoch_start()
            clock.pass_s(60)
            tracker.epoch_end()
            tracker.log_metric("loss", value)
            tracker.log_metric("nll", -value)
    run = Run(tracker.run_dir)
    found = charts([("a", [run]), ("b", [run])])
    assert found["loss"].points == ((1, 1.0), (3, 0.5))
    assert found["nll"].points == ((1, -1.0), (3, -0.5))


def test_the_screen_has_a_line_each_and_the_sentences(pair):
    lines = run_lines([*pair, ("adam-8bit", [])])
    assert lines[0].split() == ["time", "energy", "CO2e", "peak", "memory", "best", "accuracy"]
    assert lines[1].split()[:7] == ["baseline", "3", "min", "18", "s", "19.8", "Wh"]
    assert lines[3].split() == ["adam-8bit", "–", "–", "–", "–", "–"]
    assert max(map(len, lines)) <= 100
    assert "  In one run each, amp-bf16 used 45% less modelled energy and took 45% less time" in "\n".join(lines)


def test_it_is_drawn_as_a_page_and_a_pdf(pair):
    document = Document("Comparison", "two runs", "footer", run_blocks([*pair, ("<b>&", [])]))
    page = html.render(document)
    assert "&lt;b&gt;&amp;" in page
    assert pdf.render(document).startswith(b"%PDF")
