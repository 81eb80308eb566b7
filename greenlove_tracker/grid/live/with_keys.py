"""Services that need a key: Electricity Maps (average) and WattTime (marginal, and never mixed with an average).

Keys come from environment variables only, and are in no message, log or file of ours. What the answers look like is
from the services' public documentation; nothing here was tried against the services themselves.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from greenlove_tracker.grid.live.http_client import HttpClient, RequestFailed
from greenlove_tracker.grid.live.intensity import (
    IntensityPoint,
    IntensityUnavailable,
    PointKind,
    Scope,
    Signal,
    checked_range,
    floor_time,
    newest,
    utc_time,
    within,
)
from greenlove_tracker.grid.live.keyless import SETTLED_AGE_S, HttpProvider, Slot, slot
from greenlove_tracker.grid.live.places import GridPlace
from greenlove_tracker.grid.place import alpha2
from greenlove_tracker.units import g_per_kwh_from_lb_per_mwh

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


class WattTime(HttpProvider):
    """WattTime v3: marginal operating emissions every 5 minutes, with a forecast; its free plan has CAISO_NORTH only.

    ``/v3/historical`` is taken to answer as ``/v3/forecast`` does; that is untested.

    Args:
        user: of ``WATTTIME_USERNAME``.
        password: of ``WATTTIME_PASSWORD``.
    """

    name = "watttime"
    signal = Signal.MARGINAL
    scope = Scope.DIRECT
    service = "WattTime, marginal"
    base_url = "https://api.watttime.org"

    _LOGIN_S = 25 * 60.0  # a token of its login holds for 30 minutes
    _LONGEST = 30 * _DAY  # 32 are allowed
    _MOST_HOURS = 72

    def __init__(self, client: HttpClient, user: str, password: str, base_url: str = "") -> None:
        super().__init__(client, base_url)
        self._basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._password = password
        self._token, self._token_until_s = "", 0.0

    def covers(self, place: GridPlace) -> bool:
        """Return whether a region of its is known for the place."""
        return self.name in place.codes

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the marginal intensity of these 5 minutes, the first that it forecasts."""
        return newest(self.name, self._forecast(place, 1), self.client.now())

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return its forecast of up to 72 hours."""
        return self.future(self._forecast(place, min(self._MOST_HOURS, max(1, int(hours) + 1))), hours)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what was."""
        since, until = checked_range(since, until)
        points: list[IntensityPoint] = []
        start, last = floor_time(since, _HOUR), floor_time(until, _HOUR) + _HOUR
        while start < last:
            end = min(start + self._LONGEST, last)
            age_s = SETTLED_AGE_S if end < self.client.now() - 2 * _DAY else 900.0
            span = [("start", f"{start:%Y-%m-%dT%H:%MZ}"), ("end", f"{end:%Y-%m-%dT%H:%MZ}")]
            points += self._asked("historical", place, span, PointKind.MEASURED, age_s)
            start = end
        return within(self.name, points, since, until)

    def _forecast(self, place: GridPlace, hours: int) -> list[IntensityPoint]:
        return self._asked("forecast", place, [("horizon_hours", str(hours))], PointKind.FORECAST, 300)

    def _asked(
        self, what: str, place: GridPlace, span: list[tuple[str, str]], kind: PointKind, max_age_s: float
    ) -> list[IntensityPoint]:
        region = place.codes[self.name]

        def parse(found: Any) -> list[Slot]:
            meta = found["meta"]
            if meta["units"] != "lbs_co2_per_mwh" or meta.get("region", region) != region:
                raise ValueError("of another unit or region")
            step = timedelta(seconds=meta["data_point_period_seconds"])
            slots = []
            for row in found["data"]:
                if (value := row["value"]) is not None:
                    start = utc_time(row["point_time"])
                    slots.append(slot(start, start + step, g_per_kwh_from_lb_per_mwh(float(value)), kind))
            return slots

        query = [("region", region), ("signal_type", "co2_moer"), *span]
        answer = self._with_token(f"v3/{what}", query, parse, max_age_s)
        return self.points(answer, answer.data, region)

    def _with_token(
        self, path: str, query: list[tuple[str, str]], parse: Callable[[Any], list[Slot]], max_age_s: float
    ) -> Any:
        """Ask with a token of the login; once more with a new one where it is refused."""
        for is_last in (False, True):
            is_new = self._log_in()
            try:
                # Two logins have two tokens: the answer on the disk belongs to the user, who is in its name.
                return self.client.get_json(
                    f"{self.base_url}/{path}",
                    query,
                    parse=parse,
                    max_age_s=max_age_s,
                    headers={"Authorization": f"Bearer {self._token}"},
                    secrets=[self._token, self._password],
                    owner=self._basic,
                )
            except RequestFailed as failure:
                if failure.status != 401 or is_new or is_last:
                    raise IntensityUnavailable(self.name, str(failure)) from None
            self._token = ""
        raise AssertionError("the second try returns or raises")

    def _log_in(self) -> bool:
        """Get a token where there is none that still holds; return whether it is new."""
        if self._token and self.client.monotonic_s() < self._token_until_s:
            return False
        answer = self.get(
            "login",
            parse=lambda found: _text(found["token"]),
            max_age_s=0,
            headers={"Authorization": f"Basic {self._basic}"},
            secrets=[self._basic, self._password],
        )
        self._token, self._token_until_s = answer.data, self.client.monotonic_s() + self._LOGIN_S
        return True


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text")
    return value
