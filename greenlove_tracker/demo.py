"""The whole story in a minute, without torch: a training is expected, tracked, looked at elsewhere and reported.

A small network learns scikit-learn's handwritten digits. The lines marked with an arrow are what a script of your own
needs; the rest puts the story on one screen. ``examples/`` tells it with PyTorch.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from greenlove_tracker import Estimate, Tracker, TrainingPlan, explore_callable
from greenlove_tracker import format as fmt
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import StatusLine, bar, say
from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.grid.place import resolve_place
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.logs.uncertainty import forecast_with_meter_error
from greenlove_tracker.projection.comparison import compare_run
from greenlove_tracker.projection.decision import decide
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.rendering.document import Block, Heading, Paragraph
from greenlove_tracker.rendering.terminal import columns, wrap
from greenlove_tracker.report.build import write_document
from greenlove_tracker.report.exploration_report import exploration_blocks
from greenlove_tracker.report.projection_report import advice, projection_blocks
from greenlove_tracker.report.run_report import run_document
from greenlove_tracker.report.wording import measured_sentence

EPOCHS = 12
BUDGET_S = 7.0  # of the exploration
SAMPLES = 25_600  # of an epoch: the 1,438 digits to learn from, some 18 times each
BATCH = 50
EXAMPLE_COUNTRY = "DE"
EXAMPLE_RUN = Path(__file__).parent / "data" / "example_run"  # docs/write_example_run.py
EXAMPLE_GPU = "RTX 4090"
_INDENT = " " * 15


class Digits:
    """Handwritten digits to learn from, and others to test on."""

    def __init__(self, samples: int) -> None:
        found = load_digits()
        order = np.random.default_rng(0).permutation(len(found.target))
        images, labels = found.data[order].astype(np.float32) / 16, found.target[order]
        kept = len(order) // 5
        self.held_back = images[:kept], labels[:kept]
        repeated = np.resize(np.arange(kept, len(order)), samples)
        self.images, self.labels = images[repeated], labels[repeated]

    def epochs(self, samples: int) -> Iterator[float]:
        """Train a new network on the first so many; yield its accuracy on what was held back, epoch by epoch."""
        network = MLPClassifier((512, 256), batch_size=BATCH, random_state=0)
        while True:
            network.partial_fit(self.images[:samples], self.labels[:samples], classes=range(10))
            yield float(network.score(*self.held_back))


def main(output: str = "demo.pdf", country: str | None = None, log_dir: str | None = None) -> None:
    """Tell the story.

    Args:
        output: the report to write, a PDF; the same as HTML stands beside it.
        country: where this runs; without one that the settings name either, Germany, for example.
        log_dir: where the runs are written.

    Raises:
        GreenloveError: where the training was not tracked, with the reason.
    """
    place = load_settings({"country": country}).country
    where = place or EXAMPLE_COUNTRY
    settings: dict[str, Any] = {"country": where, "log_dir": log_dir, "project": "demo", "verbose": 0}
    found, note = resolve_place(where), "" if place else " (for example)"
    say(f"A network learns handwritten digits on this machine, in {found.name if found else where}{note}.\n")
    digits = Digits(SAMPLES)
    with threadpool_limits(1):  # several wait for one another: on a machine that others use, many times as long
        exploration = explore_callable(  # <--
            lambda n: next(digits.epochs(n)), samples=SAMPLES, budget_s=BUDGET_S, **settings
        )
        expected = exploration.forecast_for(TrainingPlan(samples=SAMPLES, batch_size=1, epochs=EPOCHS))  # <--
        sizes = {trial.sample_size for trial in exploration.trials}
        spent = f"{len(exploration.trials)} trials on {len(sizes)} sizes, {fmt.duration(exploration.spent_s)}"
        _step(1, "explore", f"an epoch on parts of scikit-learn's digits: {spent}")
        amounts = _amounts(exploration.run_dir, expected.energy_kwh, expected.emissions_kgco2e, expected.cost_usd)
        _step("", "expected", f"{fmt.interval(expected.duration_s, fmt.duration)}   {amounts}")
        tracker = Tracker(EPOCHS, prior=expected, **settings)  # <--
        accuracy = _train(digits, tracker)
    if tracker.run_dir is None:
        raise GreenloveError("the training was not tracked, so there is nothing to report: the warning above says why")
    run = Run(tracker.run_dir)
    _step(2, "train", f"{EPOCHS} epochs, accuracy {accuracy:.3f} on digits that were held back")
    _step("", "took", _took(run, expected.duration_s))
    _step("", "", measured_sentence(run))
    elsewhere = _elsewhere(where)
    document = run_document(run)
    explored = (
        Heading("What was expected before"),
        *exploration_blocks(forecast_with_meter_error(expected, run), exploration.trials),
    )
    document = replace(document, blocks=(*document.blocks, *explored, *elsewhere))
    pages = [write_document(document, Path(output).with_suffix(suffix)) for suffix in (".pdf", ".html")]
    _step(4, "report", "   ".join(map(str, pages)))
    say(f"\nnext  greenlove run --country {shlex.quote(where)} your_train.py        greenlove explore --help")


def _train(digits: Digits, tracker: Tracker) -> float:
    """Train on all digits with a live line, and return the accuracy in the end."""
    line, epochs, accuracy = StatusLine(), digits.epochs(SAMPLES), 0.0
    with tracker:
        for epoch in range(1, EPOCHS + 1):
            forecast = tracker.forecast
            takes = "" if forecast is None else f" · takes {fmt.interval(forecast.duration_s, fmt.duration)}"
            share = bar((epoch - 1) / EPOCHS, width=12)
            line.draw(f" 2  train      epoch {epoch}/{EPOCHS} {share}{takes} · accuracy {accuracy:.2f}")
            tracker.epoch_start()  # <--
            accuracy = next(epochs)
            tracker.step(n_samples=SAMPLES, n_batches=SAMPLES // BATCH, n_steps=SAMPLES // BATCH)  # <-- may be left out
            tracker.epoch_end()  # <--
    line.clear()
    return accuracy


def _took(run: Run, expected: Estimate) -> str:
    """Write what the training took, and how that compares with what was expected."""
    summary = run.summary
    amounts = _amounts(run.path, summary.energy_kwh, run.emissions_kgco2e, summary.cost_usd)
    error = summary.duration_s / expected.point - 1
    is_held = expected.lower <= summary.duration_s <= expected.upper
    held = "within its range" if is_held else "OUTSIDE its range: the forecast missed"
    longer = f"{fmt.percent(abs(error))} {'longer' if error > 0 else 'shorter'}, {held}"
    return f"{fmt.duration(summary.duration_s)}   {amounts}   {longer}"


def _amounts(run_dir: Path | LogPath, *values: Estimate | float | None) -> str:
    """Write energy, CO2e and cost; with a tilde unless all of the run's energy was measured."""
    mark = "" if (Run(run_dir).summary.measured_share or 0.0) >= 1 else "~"
    points = [value.point if isinstance(value, Estimate) else value for value in values]
    texts = [text(point) for text, point in zip((fmt.energy, fmt.mass, fmt.money), points, strict=True)]
    energy, mass, cost = (text if text == fmt.UNKNOWN else f"{mark}{text}" for text in texts)
    return f"{energy}   {mass} CO2e   {cost}"


def _elsewhere(country: str) -> tuple[Block, ...]:
    """Say where an example's training on a GPU would best be done, and return the sections that show why."""
    found = compare_run(Run(EXAMPLE_RUN), ProjectionOptions(local_gpu=EXAMPLE_GPU, country=country))
    decision = decide(found.projections, found.options)
    what = f"an example, simulated: a language model trained for 20 h on an {EXAMPLE_GPU} here"
    _step(3, "elsewhere", what)
    _step("", "", advice(decision))
    blocks = projection_blocks(found.projections, decision=decision)
    return (Heading("Another training, elsewhere"), Paragraph(f"This is {what}."), *blocks)


def _step(number: int | str, name: str, text: str) -> None:
    width = max(60, columns())
    say("\n".join(wrap(text, f"{number:>2}  {name:<11}", _INDENT, width=width)))


if __name__ == "__main__":
    main()
