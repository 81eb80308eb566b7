"""Services of carbon intensity: NESO (Great Britain), EIA (USA), Energy-Charts (Europe), Electricity Maps (the world).

The first three answer without a key. What their answers look like was read in public documents and recorded answers,
which each class names; nothing here was tried against the services themselves. Each says by ``_slots`` what it knows of
a stretch of time; the rest is common to all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from greenlove_tracker.grid.live.fuel_mix import intensities
from greenlove_tracker.grid.live.http_client import HttpClient, RequestFailed, check_address
from greenlove_tracker.grid.live.intensity import (
    MOST_AGE,
    IntensityPoint,
    IntensityUnavailable,
    PointKind,
    Scope,
    checked_range,
    floor_time,
    is_plausible,
    newest,
    utc_time,
    within,
)
from greenlove_tracker.grid.place import GridPlace, alpha2
from greenlove_tracker.tables.electricity import fuel_factors

_HALF_HOUR = timedelta(minutes=30)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_SETTLED_AGE_S = 86400.0  # for how long an answer on a past day stands

Slot = tuple[datetime, datetime, float, PointKind]  # start, end, gCO2e/kWh
Slots = list[Slot]
Told = tuple[Slots, Scope]  # and the emissions that they count


def _slot(start: datetime, length: timedelta, value: Any, kind: PointKind) -> Slot:
    """Return a figure of an answer.

    Raises:
        ValueError: where it is none: the answer then has another shape, or another unit.
    """
    if not is_plausible(value) or length <= timedelta(0):
        raise ValueError(f"no figure: {value!r}")
    return start, start + length, float(value), kind


class Service(ABC):
    """A service: an address that a setting can replace, and answers that become points.

    Args:
        client: what asks the network.
        base_url: instead of the service's own address.
        key: where the service takes one.
    """

    name: str
    title: str  # for people
    own_url: str
    young_s: float = 900.0  # for how long an answer on this day stands
    key_variable: str = ""  # of the environment
    needs_key: bool = False

    def __init__(self, client: HttpClient, base_url: str = "", key: str = "") -> None:
        self.client = client
        self._key = key
        self._base_url = (base_url or self.own_url).rstrip("/")
        check_address(self._base_url, has_secrets=bool(key))

    @staticmethod
    @abstractmethod
    def zone_of(place: GridPlace) -> str:
        """Return its name for the zone of a place; empty where it knows none. No network is asked."""

    @abstractmethod
    def _slots(self, zone: str, since: datetime, until: datetime) -> Told:
        """Return what it says of a stretch of time, and perhaps of more, and which emissions that counts.

        Raises:
            IntensityUnavailable: where it does not answer.
        """

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity in force, or the newest that is known."""
        now = self.client.now()
        return newest(self.name, self._points(place, now - MOST_AGE, now), now)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what was measured."""
        since, until = checked_range(since, until)
        points = self._points(place, since, until)
        return within(self.name, [point for point in points if point.kind != PointKind.FORECAST], since, until)

    def _points(self, place: GridPlace, since: datetime, until: datetime) -> list[IntensityPoint]:
        zone = self.zone_of(place)
        slots, scope = self._slots(zone, since, until)
        source = f"{self.title}, {zone}"
        now = self.client.now()
        return [
            IntensityPoint(value, start, end, self.name, source, scope, kind, now) for start, end, value, kind in slots
        ]

    def _get(self, path: str, *parameters: tuple[str, str], until: datetime, **options: Any) -> Any:
        """Return what is made of an answer on a time that ends; ``options`` are those of ``HttpClient.get_json``."""
        if until < self.client.now() - 2 * _DAY:
            max_age_s = _SETTLED_AGE_S
        else:
            max_age_s = self.young_s
        try:
            return self.client.get_json(f"{self._base_url}/{path}", parameters, max_age_s=max_age_s, **options)
        except RequestFailed as failure:
            raise IntensityUnavailable(self.name, str(failure)) from None


class Neso(Service):
    """The Carbon Intensity API of the National Energy System Operator: Great Britain; CC BY 4.0.

    Direct emissions, imports included (its methodology; recalled). Answers: its public documentation.
    """

    name = "neso"
    title = "NESO Carbon Intensity API (CC BY 4.0)"
    own_url = "https://api.carbonintensity.org.uk"

    _LONGEST = 12 * _DAY  # 14 are refused

    @staticmethod
    def zone_of(place: GridPlace) -> str:
        """Return Great Britain for all of the United Kingdom."""
        return "Great Britain" if place.iso3 == "GBR" else ""

    def _slots(self, zone: str, since: datetime, until: datetime) -> Told:
        start = floor_time(since, _HALF_HOUR)
        until = floor_time(until, _HALF_HOUR) + _HALF_HOUR
        slots: Slots = []
        while start < until:
            end = min(start + self._LONGEST, until)
            path = f"intensity/{start:%Y-%m-%dT%H:%MZ}/{end:%Y-%m-%dT%H:%MZ}"
            slots += self._get(path, until=end, parse=_neso_slots)
            start = end
        return slots, Scope.DIRECT


def _neso_slots(found: Any) -> Slots:
    slots = []
    for row in found["data"]:
        said = row["intensity"]
        value = said.get("actual")
        kind = PointKind.MEASURED
        if value is None:
            value = said.get("forecast")
            kind = PointKind.FORECAST
        if value is not None:
            start = utc_time(row["from"])
            slots.append(_slot(start, utc_time(row["to"]) - start, value, kind))
    return slots


# Form EIA-930's codes. Storage (BAT, PS, OES, UES) is left out; SNB and WNB are solar and wind with a battery behind
# the same meter (recalled, as are OES and UES); any other has no factor.
_EIA_FUELS = {
    "COL": "coal",
    "NG": "gas",
    "NUC": "nuclear",
    "OIL": "oil",
    "WAT": "hydro",
    "SUN": "solar",
    "WND": "wind",
    "GEO": "geothermal",
    "BM": "biomass",
    "SNB": "solar",
    "WNB": "wind",
}
_EIA_STORAGE = frozenset(["BAT", "PS", "OES", "UES"])


class Eia(Service):
    """Hourly generation by fuel of the USA's balancing authorities (Form EIA-930, US public domain) times factors.

    An hour is known 1 to 3 hours after it ended. There is no forecast. Its ``period`` is the hour's end in UTC, a
    ``value`` is a text or a number. Answers: the recorded ones of electricitymaps-contrib @ b354f28a
    (``parsers/tests/mocks/EIA``), and public notes on newer ones.
    """

    name = "eia"
    title = "EIA-930 generation by fuel, lifecycle factors"
    own_url = "https://api.eia.gov/v2"
    young_s = 2700.0
    key_variable = "EIA_API_KEY"

    _ROWS = 5000  # the most that it gives at once
    _MOST_PAGES = 30
    DEMO_KEY = "DEMO_KEY"  # 30 requests an hour and 50 a day (api.data.gov, developer manual); no secret

    @staticmethod
    def zone_of(place: GridPlace) -> str:
        return place.codes.get("eia", "")

    def _slots(self, zone: str, since: datetime, until: datetime) -> Told:
        def parse(found: Any) -> list[Any]:
            """Return the number of all rows, and those of this page: the hour's start, the code, MWh."""
            response = found["response"]
            rows = []
            for row in response["data"]:
                if row["respondent"] != zone:
                    raise ValueError(f"of another balancing authority: {row['respondent']!r}")
                mwh = None if row["value"] in (None, "") else float(row["value"])
                if mwh is not None and not math.isfinite(mwh):
                    raise ValueError(f"no generation: {mwh!r}")
                rows.append((utc_time(row["period"]) - _HOUR, row["fueltype"], mwh))
            return [int(response["total"]), rows]

        # A day at least: what an hour misses shows beside the others.
        start = floor_time(min(since, until - _DAY), _HOUR)
        end = floor_time(until, _HOUR) + _HOUR
        parameters = [
            ("frequency", "hourly"),
            ("data[0]", "value"),
            ("facets[respondent][]", zone),
            ("start", f"{start + _HOUR:%Y-%m-%dT%H}"),
            ("end", f"{end + _HOUR:%Y-%m-%dT%H}"),
            ("sort[0][column]", "period"),
            ("sort[0][direction]", "desc"),
            ("length", str(self._ROWS)),
            ("api_key", self._key or self.DEMO_KEY),
        ]
        made: dict[datetime, dict[str, float | None]] = {}
        for page in range(self._MOST_PAGES):
            total, rows = self._get(
                "electricity/rto/fuel-type-data/data/",
                *parameters,
                ("offset", str(page * self._ROWS)),
                until=until,
                parse=parse,
            )
            for hour, code, mwh in rows:
                if code not in _EIA_STORAGE:
                    fuels = made.setdefault(hour, {})
                    fuel = _EIA_FUELS.get(code, "other")
                    before = fuels.get(fuel)
                    fuels[fuel] = before if mwh is None else mwh + (before or 0.0)
            if not rows or (page + 1) * self._ROWS >= total:
                break
        factors = fuel_factors(Scope.LIFECYCLE, "USA")
        slots = [_slot(hour, _HOUR, value, PointKind.MEASURED) for hour, value in intensities(made, factors)]
        return slots, Scope.LIFECYCLE


class EnergyCharts(Service):
    """Energy-Charts of Fraunhofer ISE: countries of Europe; its terms and licence are on energy-charts.info.

    Answers: fields and samples in public clients (``unix_seconds``, ``co2eq``, ``co2eq_forecast``); that ``end`` may
    lie in the future is untested.
    """

    name = "energy_charts"
    title = "Energy-Charts (Fraunhofer ISE)"
    own_url = "https://api.energy-charts.info"

    # The countries that its clients list, by their ISO 3166 alpha-3 codes.
    _COUNTRIES = "AUT BEL BGR CHE CZE DEU DNK EST ESP FIN FRA GRC HRV HUN ITA LTU LVA NLD NOR POL PRT ROU SWE SVN SVK"

    @staticmethod
    def zone_of(place: GridPlace) -> str:
        """Return the code of a country that it has, of no part of one."""
        if place.iso3 in EnergyCharts._COUNTRIES.split() and not place.codes:
            return alpha2(place.iso3)
        return ""

    def _slots(self, zone: str, since: datetime, until: datetime) -> Told:
        start = floor_time(since, _HOUR)
        end = floor_time(until, _HOUR) + _HOUR
        span = ("start", f"{start:%Y-%m-%dT%H:%MZ}"), ("end", f"{end:%Y-%m-%dT%H:%MZ}")
        slots: Slots = self._get("co2eq", ("country", zone.lower()), *span, until=until, parse=_charts_slots)
        return slots, Scope.NOT_STATED


def _charts_slots(found: Any) -> Slots:
    starts = [datetime.fromtimestamp(second, UTC) for second in found["unix_seconds"]]
    step = min((b - a for a, b in pairwise(starts)), default=_HOUR)
    slots = []
    expected = found.get("co2eq_forecast") or [None] * len(starts)
    for values, kind in ((expected, PointKind.FORECAST), (found["co2eq"], PointKind.MEASURED)):  # the latter replaces
        pairs = zip(starts, values, strict=True)
        slots += [_slot(start, step, value, kind) for start, value in pairs if value is not None]
    return slots


class ElectricityMaps(Service):
    """Electricity Maps: flow-traced averages of most of the world; its free plan has one zone and no forecast.

    Its history is of the last 24 hours. Answers: its public documentation.
    """

    name = "electricity_maps"
    title = "Electricity Maps"
    own_url = "https://api.electricitymaps.com"
    key_variable = "ELECTRICITY_MAPS_API_KEY"
    needs_key = True

    @staticmethod
    def zone_of(place: GridPlace) -> str:
        """Return its zone, or the country."""
        if "electricity_maps" in place.codes:
            return place.codes["electricity_maps"]
        if place.place and not place.place.region:
            return alpha2(place.iso3)
        return ""

    def _slots(self, zone: str, since: datetime, until: datetime) -> Told:
        what = "latest" if until - since <= MOST_AGE else "history"

        def parse(found: Any) -> tuple[str, Slots]:
            if found["zone"] != zone:
                raise ValueError(f"of another zone: {found['zone']!r}")
            if what == "latest":
                rows = [found]
            else:
                rows = found.get("history") or found["data"]
            said = [row.get("emissionFactorType") for row in (found, *rows[:1])]
            return next(filter(None, said), ""), _maps_slots(rows)

        scope, slots = self._get(
            f"v3/carbon-intensity/{what}",
            ("zone", zone),
            ("shouldUseFallbackCallerLookup", "false"),  # else an unknown zone is that of the caller's own address
            until=self.client.now(),
            parse=parse,
            headers={"auth-token": self._key},
        )
        return slots, Scope(scope) if scope in (Scope.DIRECT, Scope.LIFECYCLE) else Scope.NOT_STATED


def _maps_slots(rows: Iterable[Any]) -> Slots:
    slots = []
    for row in rows:
        if row["carbonIntensity"] is not None:
            kind = PointKind.ESTIMATED if row.get("isEstimated") is True else PointKind.MEASURED
            slots.append(_slot(utc_time(row["datetime"]), _HOUR, row["carbonIntensity"], kind))
    return slots
