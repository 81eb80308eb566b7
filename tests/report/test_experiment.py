"""The page of an experiment: what its verdict says, and every training on it."""

from __future__ import annotations

import pytest
from experiment_samples import record, training, two_arms
from fakes import FakeClock

from greenlove_tracker.experiments.whole_training import whole_training
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import Heading, Table
from greenlove_tracker.report.checkpoint_report import training_interruptions
from greenlove_tracker.report.comparison import ExperimentRecord, experiment_document


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


def test_what_counts_of_a_stopped_training_is_its_best_epoch_and_of_another_its_last(experiment):
    row = tables(experiment)["The trainings"][-1]
    run = dict(experiment.groups)["optimised"][-1]
    (kept,) = (r.value for r in run.metric_values[0] if (r.name, r.epoch) == ("val_loss", 6))
    assert float(row["final val_loss"]) == pytest.approx(kept, rel=1e-3)
    whole = dict(experiment.groups)["baseline"][0]
    assert float(tables(experiment)["The trainings"][0]["final val_loss"]) == pytest.approx(
        whole.metrics["val_loss"].last, rel=1e-3
    )


def test_a_carbon_intensity_that_is_invented_is_marked(tmp_path):
    made = experiment_document(record(("baseline", [training(tmp_path, intensity="mock")])))
    assert "! MOCK: the carbon intensity is invented" in terminal.render(made)


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


def test_what_was_lost_is_told(interrupted, tmp_path):
    first, _ = interrupted
    whole = whole_training([first, training(tmp_path, fields={"seed": "0"})])
    assert whole.metrics["accuracy"].n_values == 12
    assert training_interruptions(whole)[0].lost_s == pytest.approx(first.summary.duration_s, abs=0.01)
    assert tables(record(("baseline", [whole])))["The trainings"][0]["status"] == "finished, 2 runs"
