from __future__ import annotations

import pytest

from greenlove_tracker.logs.metrics import direction_of, summarise_metrics
from greenlove_tracker.logs.tables import MetricRecord


@pytest.mark.parametrize(
    ("name", "larger"),
    [
        ("accuracy", True),
        ("val_acc", True),
        ("eval/F1", True),
        ("testAUC", True),
        ("BLEU", True),
        ("top-1", None),
        ("loss", False),
        ("Loss/train", False),
        ("valLoss", False),
        ("top5_error", False),
        ("accuracy_loss", False),
        ("perplexity", False),
        ("train-mlogloss", False),
        ("merror", False),
        ("learning_rate", None),
        ("glossary", None),
        ("", None),
    ],
)
def test_the_name_tells_which_is_better(name, larger):
    assert direction_of(name) is larger


def test_of_several_ranks_the_first_that_logged_a_metric_stands_for_it():
    def record(name: str, value: float) -> MetricRecord:
        return MetricRecord("", 1, 0, name, value)

    metrics = summarise_metrics({2: [record("loss", 9.0), record("rank 2's", 1.0)], 0: [record("loss", 0.5)]})
    assert {m.name: m.last for m in metrics} == {"rank 2's": 1.0, "loss": 0.5}
