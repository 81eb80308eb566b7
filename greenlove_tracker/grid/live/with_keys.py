"""The service that needs a key: Electricity Maps.

Its key comes from an environment variable only, and is in no message, log or file of ours. What the answers look like
is from its public documentation; nothing here was tried against the service itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    PointKind,
    Scope,
    checked_range,
    newest,
    utc_time,
    within,
)
from greenlove_tracker.grid.live.keyless import HttpProvider, Slot, slot
from greenlove_tracker.grid.live.places import GridPlace
from greenlove_tracker.grid.place import alpha2

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


class ElectricityMaps(HttpProvider):
    """Electricity Maps: flow-traced averages of most of the world; its free plan has one zone and no forecast.

    Args:
        token: of ``ELECTRICITY_MAPS_API_KEY``.
        version: of its interface, part of the address.
    """

    name = "electricity_maps"
    scope = Scope.NOT_STATED  # each answer says which
    service = "Electricity Maps"
    base_url = "https://api.electricitymaps.com"

    _HORIZONS = (24, 48, 72)

    def __init__(self, client: HttpClient, token: str, base_url: str = "", version: str = "v3") -> None:
        super().__init__(client, base_url)
        self._token = token
        self._version = version

    def covers(self, place: GridPlace) -> bool:
        """Return whether a zone of its is known for the place."""
        return bool(self._zone(place))

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity of this hour, or the newest."""

        def parse(found: Any) -> tuple[Scope, list[Slot]]:
            self._check_zone(found, place)
            return _scope(found), _hours([found], PointKind.MEASURED)

        return newest(self.name, self._asked("latest", place, parse, 600), self.client.now())

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return its forecast, which its free plan does not have."""

        def parse(found: Any) -> tuple[Scope, list[Slot]]:
            self._check_zone(found, place)
            rows = found["forecast"] if "forecast" in found else found["data"]
            return _scope(found), _hours(rows, PointKind.FORECAST)

        horizon = next((h for h in self._HORIZONS if h >= hours), self._HORIZONS[-1])
        return self.future(self._asked("forecast", place, parse, 1800, ("horizonHours", str(horizon))), hours)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what was in the last 24 hours; it gives no more at this address."""
        since, until = checked_range(since, until)

        def parse(found: Any) -> tuple[Scope, list[Slot]]:
            self._check_zone(found, place)
            rows = found["history"] if "history" in found else found["data"]
            scopes = {_scope(row) for row in rows} if rows else set()
            return scopes.pop() if len(scopes) == 1 else _scope(found), _hours(rows, PointKind.MEASURED)

        return within(self.name, self._asked("history", place, parse, 900), since, until)

    def _asked(
        self,
        what: str,
        place: GridPlace,
        parse: Callable[[Any], tuple[Scope, list[Slot]]],
        max_age_s: float,
        *parameters: tuple[str, str],
    ) -> list[IntensityPoint]:
        zone = self._zone(place)
        # Without the last one an unknown zone is silently that of the caller's own IP address.
        query = [("zone", zone), *parameters, ("shouldUseFallbackCallerLookup", "false")]
        answer = self.get(
            f"{self._version}/carbon-intensity/{what}",
            query,
            parse=parse,
            max_age_s=max_age_s,
            headers={"auth-token": self._token},
            secrets=[self._token],
        )
        scope, slots = answer.data
        return self.points(answer, slots, zone, scope=scope)

    def _zone(self, place: GridPlace) -> str:
        if self.name in place.codes:
            return place.codes[self.name]
        is_country = place.place is not None and not place.place.region
        return alpha2(place.iso3) if is_country else ""

    def _check_zone(self, found: Any, place: GridPlace) -> None:
        if found["zone"] != self._zone(place):
            raise ValueError(f"of another zone: {found['zone']!r}")


def _scope(found: Any) -> Scope:
    said = found.get("emissionFactorType")
    return Scope(said) if said in (Scope.DIRECT, Scope.LIFECYCLE) else Scope.NOT_STATED


def _hours(rows: Any, kind: PointKind) -> list[Slot]:
    slots = []
    for row in rows:
        if (value := row["carbonIntensity"]) is not None:
            start = utc_time(row["datetime"])
            is_estimated = kind == PointKind.MEASURED and row.get("isEstimated") is True
            slots.append(slot(start, start + _HOUR, value, PointKind.ESTIMATED if is_estimated else kind))
    return slots
