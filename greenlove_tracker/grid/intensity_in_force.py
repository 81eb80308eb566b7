"""The carbon intensity in force while a run is tracked, as the services last said.

The services are asked beside the training, at the start and then every five minutes, or where the stretch of time of
the last figure ends. Nothing waits for them: until the first answer, and where there is none, the factor of the
offline table is in force, and the rows say so. One process of a node asks, the one that carries the meter: the rows of
the others have no energy to multiply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from greenlove_tracker.logs.intensity_sources import MOCK, TABLE, IntensitySource
from greenlove_tracker.vocabulary.records import Clock, Factor

if TYPE_CHECKING:  # it is loaded only where it is asked for
    from greenlove_tracker.grid.live.fallback import IntensityAnswer, IntensityFallbacks

ASK_EVERY_S = 300.0
_LEAST_WAIT_S = 1.0  # between two questions, where figures are of shorter stretches of time


@dataclass(frozen=True, slots=True)
class _Figure:
    """A value in force, and the end of the stretch of time that it is of, in seconds since the Unix epoch."""

    gco2e_per_kwh: float
    source: IntensitySource
    end_utc_s: float = -math.inf


class LiveIntensity:
    """The carbon intensity in force, as the services last said.

    A row counts with what is in force at its end; rows are of a minute at most. A figure stays until the next one, also
    where the services fail, while its own stretch of time goes on; then the fall-back counts.

    Args:
        source: the services, in their order.
        table: the factor that counts where none answers.
        clock: of the run.
        on_fallback: told once why the first choice did not answer, with what counts instead.

    Attributes:
        order: the services in the order in which they are asked: ``neso, table``.
    """

    def __init__(
        self, source: IntensityFallbacks, table: Factor, clock: Clock, on_fallback: Callable[[str], None]
    ) -> None:
        self._source = source
        self.order = source.order
        self._clock = clock
        self._on_fallback = on_fallback
        self._table = table
        self._figure = self._of_table("no answer yet")
        self._asked_utc_s = self._due_utc_s = -math.inf

    def tick(self, beside: Callable[[str, Callable[[], None]], None]) -> None:
        """Ask where it is time to.

        Args:
            beside: does something beside the training, by a name.
        """
        now_s = self._clock.utc_s()
        if not self._asked_utc_s <= now_s < self._due_utc_s:  # before: the clock was set back
            self._asked_utc_s = now_s
            self._due_utc_s = now_s + ASK_EVERY_S
            beside("greenlove-intensity", self._ask)

    def _ask(self) -> None:
        try:
            figure = _figure_of(self._source.now(), self._clock.utc_s())
        except Exception as error:  # of a network, of a provider of the user's own: the training goes on
            figure = self._of_table(getattr(error, "reason", "") or str(error) or repr(error))
        now_s = self._clock.utc_s()
        self._take(figure, now_s)
        end_s = self._figure.end_utc_s
        if now_s < end_s:
            self._due_utc_s = min(self._due_utc_s, max(end_s, now_s + _LEAST_WAIT_S))

    def _take(self, figure: _Figure, now_s: float) -> None:
        """Take a figure; one that was not asked for only once the stretch of time of the last one is over."""
        if figure.source.is_fallback:
            self._on_fallback(
                f"the carbon intensity that was asked for is not known ({figure.source.reason}): until it is, "
                f"{figure.source.described} stands in with {figure.gco2e_per_kwh:.0f} gCO2e/kWh, and the rows say so"
            )
            if not self._figure.source.is_fallback and now_s < self._figure.end_utc_s:
                return
        self._figure = figure

    def _of_table(self, reason: str) -> _Figure:
        return _Figure(self._table.value, IntensitySource(TABLE, coverage=self._table.coverage, reason=reason))

    @property
    def in_force(self) -> tuple[float, str]:
        """The value in force now, and its source as a cell of the log has it."""
        figure = self._figure
        return figure.gco2e_per_kwh, figure.source.text


def _figure_of(answer: IntensityAnswer, now_s: float) -> _Figure:
    point = answer.point
    start_s = point.start_utc.timestamp()
    end_s = point.end_utc.timestamp()
    coverage = str(point.scope) if point.scope in ("direct", "lifecycle") else ""
    kind = "" if point.kind in ("table", "mock") else str(point.kind)
    age_s = point.age_s(datetime.fromtimestamp(now_s, UTC)) or 0.0
    # A file of the user's own is known by its name, which is the first word of its source.
    name = point.source.partition(",")[0] if kind == "given" else point.provider
    provider = MOCK if point.kind == "mock" else "_".join(name.replace(";", ",").split())  # one word of a cell
    source = IntensitySource(provider, kind, coverage, round(age_s / 60), ", ".join(answer.failures))
    return _Figure(point.gco2e_per_kwh, source, end_s if start_s <= now_s else now_s)
