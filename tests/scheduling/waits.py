"""A machine whose clocks are set, that is suspended, and that nobody waits for; and a provider by the hour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta

from greenlove_tracker.grid.live.fallback import IntensityFallbacks
from greenlove_tracker.grid.live.intensity import IntensityPoint, IntensityUnavailable, PointKind, Scope
from greenlove_tracker.grid.live.offline import TableIntensity
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.scheduling.wait_loop import Outlook, Wait, WaitClocks, WaitResult

NOW = datetime(2026, 11, 22, 15, 10, tzinfo=UTC)
HOUR_S = 3600.0


class FakeMachine:
    """Both clocks of a machine; what happens at a moment is told by ``at``.

    Attributes:
        utc: by the wall clock.
        true_s: seconds that passed in truth since the beginning, which the steady clock shows.
        slept: each sleep that was asked for.
    """

    def __init__(self, now: datetime = NOW) -> None:
        self.utc = now.timestamp()
        self.true_s = 0.0
        self.slept: list[float] = []
        self.answer_within_s = 5.0  # of real time, for the thread that asks
        self._events: list[tuple[float, Callable[[], None]]] = []

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.utc, UTC)

    def at(self, true_s: float, what: Callable[[], None]) -> None:
        self._events = sorted([*self._events, (true_s, what)], key=lambda event: event[0])

    def set_clock(self, by_s: float) -> Callable[[], None]:
        def change() -> None:
            self.utc += by_s

        return change

    def suspend(self, for_s: float) -> Callable[[], None]:
        """Let the machine be suspended: both clocks go on, but a sleep does not count that time."""

        def change() -> None:
            self.utc += for_s
            self.true_s += for_s

        return change

    def _pass(self, seconds: float) -> None:
        left = seconds
        while self._events and self._events[0][0] <= self.true_s + left:
            when, what = self._events.pop(0)
            until = max(0.0, when - self.true_s)
            left -= until
            self.utc += until
            self.true_s += until
            what()
        self.utc += left
        self.true_s += left

    def sleep(self, seconds: float, until: Future[Outlook] | None) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 200_000, "the wait hangs"
        if until is not None and wait([until], self.answer_within_s).done:
            self._pass(0.05)
        else:
            self._pass(max(seconds, 1e-3))

    @property
    def clocks(self) -> WaitClocks:
        return WaitClocks(lambda: self.utc, lambda: 5e4 + self.true_s, self.sleep)


class HourlyProvider:
    """Answers with the value of the hour; None: it fails; a function: it is called."""

    name = "hourly"

    def __init__(
        self, machine: FakeMachine, values: Sequence[float | Callable[[], None] | None], first: datetime = NOW
    ):
        self._machine, self._values = machine, values
        self._first = NOW.replace(minute=0)
        self.n_asked = 0

    def now(self, place: object) -> IntensityPoint:
        self.n_asked += 1
        hour = int((self._machine.now - self._first).total_seconds() // HOUR_S)
        value = self._values[min(max(hour, 0), len(self._values) - 1)]
        if callable(value):
            value()
            raise IntensityUnavailable(self.name, "it came to nothing")
        if value is None:
            raise IntensityUnavailable(self.name, "it is down")
        start = self._first + timedelta(hours=hour)
        return IntensityPoint(
            value, start, start + timedelta(hours=1), self.name, "Hourly", Scope.DIRECT,
            PointKind.MEASURED, self._machine.now,
        )  # fmt: skip

    def history(self, place: object, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        raise IntensityUnavailable(self.name, "it has no history")


def with_table(machine: FakeMachine, provider: HourlyProvider, place: str = "DE") -> IntensityFallbacks:
    return IntensityFallbacks(grid_place(place), (provider, TableIntensity(lambda: machine.now)))


def until(machine: FakeMachine, start: datetime, max_wait_s: float | None = None) -> WaitResult:
    """Wait for a time, with nobody to ask."""
    arrival = ("start time", "the time has come")
    options = {"start_utc_s": start.timestamp(), "max_wait_s": max_wait_s, "clocks": machine.clocks}
    return Wait(lambda now, before: Outlook(), "for a time", arrival, **options).hold()
