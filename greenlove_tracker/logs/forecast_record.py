"""How the forecasts of many runs came out, counted: as much for a million runs as for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from greenlove_tracker.logs.run import Run

_MAX_ERROR = 10.0  # a forecast that is farther off counts as off by this


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """How runs' own forecasts of their time came out; of each run one is told, which makes them independent.

    Attributes:
        n_held: runs whose interval held.
        errors: by |error| to a thousandth, the number of runs.
        levels: by the level of the interval, the number of runs.
    """

    n_held: int = 0
    errors: Mapping[float, int] = field(default_factory=dict)
    levels: Mapping[float, int] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> ForecastRecord:
        """Of one run; nothing of one that made no forecast, or did not do what it forecast."""
        told = run.told()
        if told is None:
            return cls()
        return cls(int(told.has_held), {round(min(abs(told.error), _MAX_ERROR), 3): 1}, {told.estimate.level: 1})

    @classmethod
    def merged(cls, records: Iterable[ForecastRecord]) -> ForecastRecord:
        """Of all these runs."""
        n_held = 0
        errors: Counter[float] = Counter()
        levels: Counter[float] = Counter()
        for record in records:
            n_held += record.n_held
            errors.update(record.errors)
            levels.update(record.levels)
        return cls(n_held, dict(errors), dict(levels))

    @property
    def n_runs(self) -> int:
        """Runs that did what they forecast."""
        return sum(self.errors.values())

    @property
    def median_error(self) -> float | None:
        """The median of |error|, to a thousandth; of two in the middle, the smaller."""
        middle, seen = (self.n_runs + 1) // 2, 0
        for error, n in sorted(self.errors.items()):
            seen += n
            if seen >= middle:
                return error
        return None
