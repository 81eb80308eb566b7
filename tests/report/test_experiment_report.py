"""The page of an experiment: what its verdict says, and every training on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from experiment_samples import TEXT, record, training, two_arms, waited
from fakes import FakeClock

from greenlove_tracker.logs.lost_work import training_interruptions
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.whole_training import whole_training
from greenlove_tracker.rendering import html, markdown, pdf
from greenlove_tracker.rendering.document import BarChart, ChartRow, Heading, KeyFigures, Paragraph, Table, Verbatim
from greenlove_tracker.report.experiment_report import ExperimentRecord, experiment_document, experiment_lines


def texts(of: ExperimentRecord) -> list[str]:
    return [block.text for block in experiment_document(of).blocks if isinstance(block, Paragraph)]


def tables(of: ExperimentRecord) -> dict[str, list[dict[str, str]]]:
    """The rows of the last table under each heading, each by column."""
    found: dict[str, list[dict[str, str]]] = {}
    heading = ""
    for block in experiment_document(of).blocks:
        if isinstance(block, Heading):
            heading = block.text
        elif isinstance(block, Table):
            titles = [column.title for column in block.columns]
            found[heading] = [dict(zip(titles, row, strict=True)) for row in block.rows]
    return found


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> ExperimentRecord:
    not_run = (("optimised, seed 3", "the budget is used"),)
    return two_arms(tmp_path_factory.mktemp("logs"), not_run=not_run, budget={"energy_kwh": (0.06, 0.2)})


@pytest.mark.slow
def test_the_verdict_comes_first_with_interval_and_trade_off(experiment):
    first, second, third, *_ = texts(experiment)
    assert first.startswith("optimised saved 45.5% of the modelled energy, CO2e, cost and time (45.")
    assert "against baseline (1 min 13 s instead of 2 min 13 s, 7.3 instead of 13.3 Wh, geometric means)." in first
    assert "Its final accuracy is 0.47 points lower (0.9463, the baseline's 0.9509)." in first
    assert second.startswith("In parentheses: 95% intervals, from how much the 3 trainings of a group differ")
    assert third == "Of 7 trainings, 1 was not run."


def test_a_shorter_training_saves_by_being_shorter(experiment):
    assert any("The trainings differ in length" in cell for row in tables(experiment)["Notes"] for cell in row.values())
    (chart,) = [block for block in experiment_document(experiment).blocks if isinstance(block, BarChart)]
    assert chart.bars[0].value == pytest.approx(0.545, abs=0.002)  # of wholes: 8 of 12 epochs, each 20% shorter


def test_every_training_has_a_row(experiment):
    rows = tables(experiment)["The trainings"]
    assert [row[""] for row in rows] == [
        f"{arm}, seed {seed}" for arm in ("baseline", "optimised") for seed in (0, 1, 2)
    ]
    assert rows[0]["trained"] == "12 of 12 epochs"
    assert rows[-1]["trained"] == "8 of 12 epochs, stopped early"
    assert rows[-1]["final val_loss"]  # weights of the best epoch are kept, so the last value is not the result
    assert {row["status"] for row in rows} == {"finished"}


def test_what_counts_of_a_stopped_training_is_its_best_epoch_and_of_another_its_last(experiment):
    row = tables(experiment)["The trainings"][-1]
    run = dict(experiment.groups)["optimised"][-1]
    (kept,) = (r.value for r in run.metric_values[0] if (r.name, r.epoch) == ("val_loss", 6))
    assert float(row["final val_loss"]) == pytest.approx(kept, rel=1e-3)
    whole = dict(experiment.groups)["baseline"][0]
    assert float(tables(experiment)["The trainings"][0]["final val_loss"]) == pytest.approx(
        whole.metrics["val_loss"].last, rel=1e-3
    )


def test_the_page_holds_curves_budget_what_was_not_run_and_the_file(experiment):
    blocks = experiment_document(experiment).blocks
    titles = [chart.title for block in blocks if isinstance(block, ChartRow) for chart in block.charts]
    assert {"accuracy", "val_loss", "learning_rate", "Duration of each epoch"} <= set(titles)
    assert tables(experiment)["Budget"] == [{"": "energy", "used": "60.0 Wh", "limit": "200 Wh", "share": "30%"}]
    assert tables(experiment)["Not run"] == [{"": "optimised, seed 3", "reason": "the budget is used"}]
    assert blocks[-1] == Verbatim(TEXT)
    assert "ab" * 32 in texts(experiment)[-1]


def test_it_is_drawn_in_every_format(experiment):
    document = experiment_document(replace(experiment, name="<b>&", text="arms:\n  ```: <script>\n"))
    page = html.render(document)
    assert "<script>" not in page and "&lt;b&gt;&amp;" in page and "  ```: &lt;script&gt;" in page
    assert pdf.render(document).startswith(b"%PDF")
    assert "````text\narms:\n  ```: <script>\n````" in markdown.render(document)


def test_a_secret_that_was_written_into_the_file_is_masked(experiment):
    document = experiment_document(
        replace(experiment, text="settings: {intensity_urls: 'https://x.org/?token=s3cr3t99'}")
    )
    assert "s3cr3t99" not in repr(document)


def test_the_screen_says_the_same_in_short(experiment):
    lines = experiment_lines(experiment)
    screen = "\n".join(lines)
    assert lines[0].startswith("greenlove experiment   digits   6 of 7 trainings finished · 2 groups")
    assert "optimised saved 45.5% of the modelled energy" in screen
    assert "not run  optimised, seed 3: the budget is used" in screen
    assert "budget   60.0 Wh of 200 Wh" in screen
    assert max(map(len, lines)) <= 100


def test_one_training_each_is_an_assumption_and_says_so(tmp_path):
    found = texts(two_arms(tmp_path, seeds=[0]))
    assert any("they assume how much" in text for text in found)
    assert any("One run says nothing about chance" in text for text in found)


def test_without_a_finished_baseline_nothing_is_compared(tmp_path):
    cut = training(tmp_path, epochs=3, planned=12, is_cut_off=True)
    of = record(("baseline", [cut]), ("optimised", [training(tmp_path)]))
    assert texts(of)[:2] == [
        "Nothing can be compared: no training of baseline has finished.",
        "Of 2 trainings, 1 did not finish.",
    ]
    row = tables(of)["The trainings"][0]
    assert (row["trained"], row["status"]) == ("3 of 12 epochs", "interrupted")
    assert not any(isinstance(block, KeyFigures) for block in experiment_document(of).blocks)


def test_an_experiment_of_which_nothing_was_run(tmp_path):
    of = record(("baseline", []), not_run=(("baseline, seed 0", "not begun"),))
    assert texts(of)[0] == "Nothing can be compared: no training of baseline has finished."
    assert "not run  baseline, seed 0: not begun" in "\n".join(experiment_lines(of))
    assert pdf.render(experiment_document(of)).startswith(b"%PDF")
    assert texts(record())[0] == "No training has been run."


def sweep(log_dir: Path, seeds: tuple[int, ...], step: float = 0.02) -> ExperimentRecord:
    groups = []
    for arm in ("baseline", "optimised"):
        for at, size in enumerate((32, 64)):
            runs = [training(log_dir, s, epochs=3, best=0.9 + step * at, fields={"arm": arm}) for s in seeds]
            groups.append((f"{arm}, batch_size={size}", runs))
    return record(*groups)


def test_a_sweep_is_ranked_and_chance_is_said(tmp_path):
    of = sweep(tmp_path, (0, 1))
    text = " ".join(texts(of))
    assert "baseline, batch_size=64 has the best accuracy" in text
    assert "Its range over seeds overlaps with those of optimised, batch_size=64: which of them" in text
    grid = tables(of)["The combinations, the best first"]
    assert [list(row)[0:3] for row in grid] == [["", "32", "64"]] * 2
    assert [row[""] for row in grid] == ["baseline", "optimised"]
    assert grid[0]["64"].startswith("0.8") or grid[0]["64"].startswith("0.9")


def test_of_one_training_each_the_best_may_be_chance(tmp_path):
    assert "With one training each this may be chance" in " ".join(texts(sweep(tmp_path, (0,))))


@pytest.mark.slow
def test_no_chance_is_invented_where_the_ranges_are_apart(tmp_path):
    runs = {
        name: [training(tmp_path, s, best=best) for s in (0, 1)] for name, best in (("a", 0.8), ("b", 0.9), ("c", 0.7))
    }
    assert "No other group's range over seeds reaches it." in " ".join(texts(record(*runs.items())))


# -- Waits, and a carbon intensity that is invented --


@pytest.fixture
def series(tmp_path) -> str:
    file = tmp_path / "intensity.csv"
    file.write_text("utc,gco2e_per_kwh\n2026-09-21T12:00:00Z,200\n2027-01-01T00:00:00Z,200\n")
    return str(file)


def test_what_waiting_saved_is_an_estimate_against_the_grid_when_it_began(tmp_path, monkeypatch, series):
    waited(monkeypatch, 600.0, 400.0, 200.0)
    run = training(tmp_path / "logs", intensity=series)
    (text,) = [t for t in texts(record(("baseline", [run]))) if "in all." in t]
    assert text.startswith("1 training waited for a cleaner grid, 10 min in all. It emitted 2.6")
    assert "waiting saved 50%. This is an estimate:" in text
    (row,) = tables(record(("baseline", [run])))["Memory, waits and carbon intensity"]
    assert (row["waited"], row["g/kWh at start"], row["g/kWh, mean"]) == ("10 min", "200", "200")


def test_without_an_intensity_by_time_nothing_was_saved_as_far_as_is_known(tmp_path, monkeypatch):
    waited(monkeypatch, 600.0, 400.0, 200.0)
    run = training(tmp_path, country="DE")
    (text,) = [t for t in texts(record(("baseline", [run]))) if "waited for a cleaner grid" in t]
    assert "what that saved is not known" in text


def test_a_mock_is_marked_wherever_it_counts(tmp_path, monkeypatch):
    waited(monkeypatch, 600.0, 400.0, 200.0)
    of = record(("baseline", [training(tmp_path, intensity="mock")]))
    marked = [text for text in texts(of) if text.startswith("MOCK: ")]
    assert len(marked) == 2  # the verdict's, and that of the waits
    assert tables(of)["Memory, waits and carbon intensity"][0]["location-based, from"].startswith("MOCK: ")
    assert "MOCK: the carbon intensity is invented" in "\n".join(experiment_lines(of))


# -- A training of several runs --


@pytest.fixture
def interrupted(tmp_path) -> tuple[Run, Run]:
    """6 of 12 epochs, and from the fifth on to the end 100 s later."""
    clock = FakeClock()
    first = training(tmp_path, clock=clock, epochs=6, planned=12, is_cut_off=True, fields={"peak_memory_gb": "0.6"})
    clock.pass_s(100)
    second = training(tmp_path, clock=clock, planned=12, first_epoch=4, continues=first.run_id)
    return first, second


def test_a_training_of_several_runs_is_one(interrupted):
    first, second = interrupted
    whole = whole_training([second, first])
    assert whole.parts == (first, second)
    for quantity in ("duration_s", "energy_kwh", "emissions_kgco2e"):
        assert getattr(whole.summary, quantity) == pytest.approx(
            getattr(first.summary, quantity) + getattr(second.summary, quantity)
        )
    assert (whole.summary.epochs_done, whole.summary.epochs_planned, whole.first_epoch) == (12, 12, 0)
    assert whole.summary.status == "finished"
    assert whole.text("peak_memory_gb") == "0.6"
    assert whole.metrics["accuracy"].n_values == 12  # epochs 5 and 6 of the first run are lost
    assert whole_training([first]) is first


def test_its_curves_go_on_without_the_time_between_its_runs(interrupted):
    whole = whole_training(interrupted)
    of = record(("baseline", [whole]), ("other", [training(whole.path.parent)]))
    charts = {c.title: c for b in experiment_document(of).blocks if isinstance(b, ChartRow) for c in b.charts}
    assert [x for x, _ in charts["accuracy"].points] == list(range(1, 13))
    by_energy = charts["accuracy, by the energy that it took"]
    assert by_energy.points[-1][0] == pytest.approx(whole.summary.energy_kwh * 1000, rel=1e-3)
    assert [x for x, _ in by_energy.points] == sorted(x for x, _ in by_energy.points)


def test_what_was_lost_is_named(interrupted, tmp_path):
    first, _ = interrupted
    anew = training(tmp_path, fields={"seed": "0"})
    whole = whole_training([first, anew])
    assert whole.metrics["accuracy"].n_values == 12
    assert training_interruptions(whole).lost_s == pytest.approx(first.summary.duration_s, abs=0.01)
    of = record(("baseline", [whole]))
    assert any(t.startswith("baseline, seed 0 took 2 runs. 1 interruption: ") for t in texts(of))
    assert tables(of)["The trainings"][0]["status"] == "finished, 2 runs"


def test_a_run_that_metered_nothing_counts_at_the_mean_of_the_others(interrupted):
    first, second = interrupted
    blind = Run.from_memory(
        first.path, first.fields, {}, replace(first.summary, energy_kwh=None, emissions_kgco2e=None, cost_usd=None)
    )
    whole = whole_training([blind, second]).summary
    assert whole.energy_kwh == pytest.approx(second.summary.energy_kwh * whole.duration_s / second.summary.duration_s)


@pytest.mark.slow
def test_several_arms_are_compared_within_each_combination(tmp_path):
    groups = []
    for size, epoch_s in ((32, 10.0), (64, 5.0)):
        for arm, share in (("baseline", 1.0), ("optimised", 0.8)):
            runs = [training(tmp_path, s, epochs=4, epoch_s=epoch_s * share, fields={"arm": arm}) for s in (0, 1, 2)]
            groups.append((f"{arm}, batch_size={size}", runs))
    found = texts(record(*groups))
    for size in (32, 64):
        assert any(
            t.startswith(f"optimised, batch_size={size} saved") and f"against baseline, batch_size={size} (" in t
            for t in found
        )
    assert not any("baseline, batch_size=64 saved" in text for text in found)


def test_of_one_arm_the_groups_go_by_what_is_swept(tmp_path):
    groups = [
        (
            f"baseline, batch_size={size}",
            [training(tmp_path, s, epochs=4, epoch_s=320.0 / size, fields={"arm": "baseline"}) for s in (0, 1, 2)],
        )
        for size in (32, 64)
    ]
    first = texts(record(*groups))[0]
    assert first.startswith("batch_size=64 saved") and "against batch_size=32 (" in first


def test_groups_that_charts_have_no_room_for_are_named(tmp_path):
    groups = [
        (f"baseline, batch_size={size}", [training(tmp_path, epochs=3, fields={"arm": "baseline"})])
        for size in (8, 16, 32, 64, 128, 256)
    ]
    assert any(text.startswith("Not drawn, for want of room: batch_size=") for text in texts(record(*groups)))
