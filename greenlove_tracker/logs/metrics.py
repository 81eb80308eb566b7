"""``metrics-<rank>.csv``: what a training logs of itself, such as its accuracy; and the last and best value of each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.secret_masking import mask_secrets

MAX_ROWS = 500_000  # of a file: what is drawn of it is all in memory
MAX_NAMES = 1000  # which stand in summary.csv
_LONGEST_NAME = 200

# The last of these words in a name decides: an accuracy_loss is a loss. As they are usually minimised or maximised;
# of most others (learning_rate, grad_norm, entropy) neither can be said.
_LARGER_IS_BETTER_TEXT = (
    "acc accuracies accuracy ap ap50 auc auprc auroc bleu chrf dice f1 iou jaccard kappa map map50 mcc meteor miou mrr "
    "ndcg precision psnr r2 recall reward rouge rouge1 rouge2 rougel sacrebleu sensitivity specificity ssim top1 top5"
)
_SMALLER_IS_BETTER_TEXT = (
    "bpb bpc brier cer ece err error errors fid loss losses mae mape mse nll perplexity ppl rmse smape ter wer"
)
# Scores from 0 to 1, often given in percent: a hundredth of one is a point
_IN_POINTS_TEXT = (
    "acc accuracies accuracy ap ap50 auc auprc auroc dice f1 iou jaccard map map50 miou precision recall sensitivity "
    "specificity top1 top5"
)
_LOSSES = ("loss", "error")  # logloss, mlogloss and merror of XGBoost, softmaxloss
_LARGER_IS_BETTER, _SMALLER_IS_BETTER, _IN_POINTS = (
    frozenset(text.split()) for text in (_LARGER_IS_BETTER_TEXT, _SMALLER_IS_BETTER_TEXT, _IN_POINTS_TEXT)
)


def number_of(value: Any) -> float | None:
    """Return a number, NumPy's and torch's scalars and arrays of one element too; None where it is none.

    A tensor on a GPU is waited for (``.item()``): without, its value is not known, and it may be overwritten later.
    """
    if type(value) is float:
        return value
    try:
        number = value.item() if hasattr(value, "item") else value
        return None if isinstance(number, str | bytes | bytearray) else float(number)  # float() would read a text
    except Exception:  # a foreign object's own conversion, and a number too large
        return None


@lru_cache(maxsize=1024)
def metric_name(name: str) -> str:
    """Return the name as the log has it: on one line, cut where it is very long, its secrets masked."""
    return mask_secrets(" ".join(name.replace("\x00", "").split()))[:_LONGEST_NAME]


@lru_cache(maxsize=1024)
def direction_of(name: str) -> bool | None:
    """Return True where larger values of a metric of this name are better, False where smaller; None: not known."""
    for word in reversed(_words(name)):
        if word in _LARGER_IS_BETTER:
            return True
        if word in _SMALLER_IS_BETTER or word.endswith(_LOSSES):
            return False
    return None


def _words(name: str) -> list[str]:
    split_camel_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z0-9]+", split_camel_case.lower())


def points(metric: MetricSummary) -> float | None:
    """Return the best value of a score from 0 to 1 in points, which are hundredths; None of any other metric.

    Where a value above 1 was logged, the metric is taken to be in points, that is in percent, already.
    """
    best, highest = metric.best, metric.highest
    words = [word for word in _words(metric.name) if word in _LARGER_IS_BETTER | _SMALLER_IS_BETTER]
    if not words or words[-1] not in _IN_POINTS or not metric.higher_is_better or best is None or highest is None:
        return None
    if not 0 < best <= 100:
        return None
    return best if highest > 1 else 100.0 * best


def kwh_per_point(metric: MetricSummary, energy_kwh: float | None) -> float | None:
    """Return the energy of a run, PUE included, divided by the points of its best score; None where one is unknown."""
    best_points = points(metric)
    return None if best_points is None or energy_kwh is None else energy_kwh / best_points


class MetricTotals:
    """The last value of each metric and its extremes, kept up as values are logged."""

    def __init__(self) -> None:
        self._by_name: dict[str, MetricSummary] = {}

    def add(self, record: MetricRecord) -> bool:
        """Add a value; return False where it is of one metric too many, and was left out."""
        before = self._by_name.get(record.name)
        if before is None:
            if len(self._by_name) >= MAX_NAMES:
                return False
            before = MetricSummary(record.name, math.nan, None, None, 0, direction_of(record.name))
        given, value = record.higher_is_better, record.value
        lowest, highest = before.lowest, before.highest
        if math.isfinite(value):
            lowest = value if lowest is None else min(lowest, value)
            highest = value if highest is None else max(highest, value)
        direction = before.higher_is_better if given is None else given
        self._by_name[record.name] = MetricSummary(record.name, value, lowest, highest, before.n_values + 1, direction)
        return True

    @property
    def summaries(self) -> tuple[MetricSummary, ...]:
        """The summary of each metric, in the order in which they were first logged."""
        return tuple(self._by_name.values())


def summarise_metrics(by_stream: Mapping[int, Iterable[MetricRecord]]) -> tuple[MetricSummary, ...]:
    """Return what each metric came to; of one that several ranks logged, what the first of them did."""
    found: dict[str, MetricSummary] = {}
    for _, records in sorted(by_stream.items()):
        totals = MetricTotals()
        for record in records:
            totals.add(record)
        found = {summary.name: summary for summary in totals.summaries} | found
    return tuple(found.values())
