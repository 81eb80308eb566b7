"""``metrics-<rank>.csv``: what a training logs of itself, such as its accuracy; and the last and best value of each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.vocabulary.records import MetricSummary

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
_LOSSES = ("loss", "error")  # logloss, mlogloss and merror of XGBoost, softmaxloss
LARGER_IS_BETTER, SMALLER_IS_BETTER = (
    frozenset(text.split()) for text in (_LARGER_IS_BETTER_TEXT, _SMALLER_IS_BETTER_TEXT)
)


def number_of(value: Any) -> float | None:
    """Return a number, NumPy's and torch's scalars and arrays of one element too; None where it is none.

    A tensor on a GPU is waited for (``.item()``): without, its value is not known, and it may be overwritten later.
    """
    if type(value) is float:
        return value
    try:
        number = value.item() if hasattr(value, "item") else value
        # float() would read a text
        if isinstance(number, str | bytes | bytearray):
            return None
        return float(number)
    except Exception:  # a foreign object's own conversion, and a number too large
        return None


@lru_cache(maxsize=1024)
def metric_name(name: str) -> str:
    """Return the name as the log has it: on one line, cut where it is very long, its secrets masked."""
    return mask_secrets(" ".join(name.replace("\x00", "").split()))[:_LONGEST_NAME]


@lru_cache(maxsize=1024)
def direction_of(name: str) -> bool | None:
    """Return True where larger values of a metric of this name are better, False where smaller; None: not known."""
    for word in reversed(words_of(name)):
        if word in LARGER_IS_BETTER:
            return True
        if word in SMALLER_IS_BETTER or word.endswith(_LOSSES):
            return False
    return None


def words_of(name: str) -> list[str]:
    """Return the words of a metric's name, in small letters."""
    split_camel_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[a-z0-9]+", split_camel_case.lower())


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
        given = record.higher_is_better
        value = record.value
        lowest = before.lowest
        highest = before.highest
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
