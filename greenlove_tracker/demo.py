"""The whole story in a minute, without torch: a training is expected, tracked, looked at elsewhere and reported.

A small network learns scikit-learn's handwritten digits. The lines marked with an arrow are what a script of your own
needs. ``examples/`` tells the story with PyTorch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from greenlove_tracker import Tracker, TrainingPlan, explore_callable
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.uncertainty import forecast_with_meter_error
from greenlove_tracker.projection.decision import decide
from greenlove_tracker.projection.from_log import compare_run
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.rendering.document import Heading, Paragraph
from greenlove_tracker.rendering.terminal import columns, wrap
from greenlove_tracker.report.build import write_document
from greenlove_tracker.report.exploration_report import exploration_document
from greenlove_tracker.report.projection_report import projection_document
from greenlove_tracker.report.run_report import run_document
from greenlove_tracker.report.wording import energy_mark
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import say
from greenlove_tracker.vocabulary.errors import GreenloveError

EPOCHS = 6  # all of it takes under a minute, also beside two other processes on two cores
BUDGET_S = 7.0  # of the exploration
SAMPLES = 25_600  # of an epoch: the 1,438 digits to learn from, some 18 times each
BATCH = 50
EXAMPLE_COUNTRY = "DE"
EXAMPLE_RUN = Path(__file__).parent / "data" / "example_run"  # docs/write_example_run.py
EXAMPLE_GPU = "RTX 4090"
EXAMPLE = f"an example, simulated: a language model trained for 20 h on an {EXAMPLE_GPU} here"


@cache
def digits() -> tuple[Any, Any]:
    """Return the images of handwritten digits and what they are, in a random order that is always the same."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    return found.data[order].astype(np.float32) / 16, found.target[order]


def epochs(samples: int) -> Iterator[float]:
    """Train a new network on so many digits, epoch by epoch, and yield its accuracy on others that were held back."""
    images, labels = digits()
    n_held_back = len(labels) // 5
    learned = np.resize(np.arange(n_held_back, len(labels)), samples)
    network = MLPClassifier((512, 256), batch_size=BATCH, random_state=0)
    while True:
        network.partial_fit(images[learned], labels[learned], classes=range(10))
        yield float(network.score(images[:n_held_back], labels[:n_held_back]))


def main(output: str = "demo.pdf", country: str | None = None, log_dir: str | None = None) -> None:
    """Tell the story.

    Args:
        output: the report to write, a PDF; the same as HTML stands beside it.
        country: where this runs; without one that the settings name either, Germany, for example.
        log_dir: where the runs are written.

    Raises:
        GreenloveError: where the training was not tracked, with the reason.
    """
    given = load_settings({"country": country}).country
    where = given or EXAMPLE_COUNTRY
    settings: dict[str, Any] = {"country": where, "log_dir": log_dir, "project": "demo"}
    digits()
    with threadpool_limits(1):  # several wait for one another: on a machine that others use, many times as long
        exploration = explore_callable(  # <--
            lambda n: next(epochs(n)), samples=SAMPLES, budget_s=BUDGET_S, verbose=0, **settings
        )
        expected = exploration.forecast_for(TrainingPlan(samples=SAMPLES, batch_size=1, epochs=EPOCHS))  # <--
        tried = f"{len(exploration.trials)} trials on parts of the data, {fmt.duration(exploration.spent_s)}"
        _step(1, "explore", f"handwritten digits, {where}{'' if given else ' (for example)'}: {tried}")
        _step("", "expected", fmt.interval(expected.duration_s, fmt.duration))
        _step(2, "train", f"a small network, {EPOCHS} epochs")
        network = epochs(SAMPLES)
        with Tracker(EPOCHS, prior=expected, **settings) as tracker:  # <--
            for _ in range(EPOCHS):
                tracker.epoch_start()  # <--
                accuracy = next(network)
                tracker.step(n_samples=SAMPLES, n_batches=SAMPLES // BATCH, n_steps=SAMPLES // BATCH)  # <-- may go
                tracker.epoch_end()  # <--
                tracker.log_metric("accuracy", accuracy)
    if tracker.run_dir is None:
        raise GreenloveError("the training was not tracked, so there is nothing to report: the warning above says why")
    run = Run(tracker.run_dir)
    compared = compare_run(Run(EXAMPLE_RUN), ProjectionOptions(local_gpu=EXAMPLE_GPU, country=where))
    elsewhere = projection_document(compared.projections, decision=decide(compared.projections, compared.options))
    _step(3, "elsewhere", EXAMPLE)
    _step("", "", elsewhere.verdict)
    before = exploration_document(forecast_with_meter_error(expected, run), exploration.trials, tilde=energy_mark(run))
    took = run_document(run)
    story = replace(
        took,
        blocks=(
            *took.brief_blocks,
            Heading("What was expected before"),
            *before.brief_blocks,
            Heading("Another training, elsewhere"),
            Paragraph(f"This is {EXAMPLE}."),
            Paragraph(elsewhere.verdict),
            *elsewhere.brief_blocks,
            Paragraph(f"This is the story in short. The whole report: greenlove report {run.path}", is_note=True),
        ),
    )
    pages = [write_document(story, Path(output).with_suffix(suffix)) for suffix in (".pdf", ".html")]
    _step(4, "report", "   ".join(map(str, pages)))
    say(f"\nnext  greenlove run --country {shlex.quote(where)} your_train.py        greenlove explore --help")


def _step(number: int | str, name: str, text: str) -> None:
    say("\n".join(wrap(text, f"{number:>2}  {name:<11}", " " * 15, width=max(60, columns()))))


if __name__ == "__main__":
    main()
