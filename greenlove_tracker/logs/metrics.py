"""``metrics-<rank>.csv``: what a training logs of itself, such as its accuracy; and the last and best value of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.vocabulary.metrics import direction_of
from greenlove_tracker.vocabulary.records import MetricSummary

MAX_NAMES = 1000  # which stand in summary.csv
_LONGEST_NAME = 200


@lru_cache(maxsize=1024)
def metric_name(name: str) -> str:
    """Return the name as the log has it: on one line, cut where it is very long, its secrets masked."""
    return mask_secrets(" ".join(name.replace("\x00", "").split()))[:_LONGEST_NAME]


class MetricTotals:
    """The last value of each metric and its extremes, ``by_name``, kept up as values are logged."""

    def __init__(self) -> None:
        self.by_name: dict[str, MetricSummary] = {}

    def add(self, record: MetricRecord) -> bool:
        """Add a value; return False where it is of one metric too many, and was left out."""
        before = self.by_name.get(record.name)
        if before is None:
            if len(self.by_name) >= MAX_NAMES:
                return False
            before = MetricSummary(record.name, math.nan, None, None, 0, direction_of(record.name))
        numbers = (before.lowest, before.highest, record.value)
        known = [number for number in numbers if number is not None and math.isfinite(number)]
        direction = record.higher_is_better
        if direction is None:
            direction = before.higher_is_better
        self.by_name[record.name] = MetricSummary(
            record.name,
            record.value,
            min(known, default=None),
            max(known, default=None),
            before.n_values + 1,
            direction,
        )
        return True

    @property
    def summaries(self) -> tuple[MetricSummary, ...]:
        """The summary of each metric, in the order in which they were first logged."""
        return tuple(self.by_name.values())


def summarise_metrics(by_stream: Mapping[int, Iterable[MetricRecord]]) -> tuple[MetricSummary, ...]:
    """Return what each metric came to; of one that several ranks logged, what the first of them did."""
    found: dict[str, MetricSummary] = {}
    for _, records in sorted(by_stream.items()):
        totals = MetricTotals()
        for record in records:
            totals.add(record)
        found = totals.by_name | found
    return tuple(found.values())
