"""Services that answer without a key: NESO (Great Britain), EIA (USA), Energy-Charts (Europe).

What their answers look like was read in public documents and recorded answers, which each class names; nothing here
was tried against the services themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from greenlove_tracker.grid.live.fuel_mix import Generation, intensities
from greenlove_tracker.grid.live.http_client import Answer, HttpClient, RequestFailed, check_address
from greenlove_tracker.grid.live.intensity import (
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
from greenlove_tracker.grid.live.places import GridPlace
from greenlove_tracker.grid.place import alpha2
from greenlove_tracker.tables.power import fuel_factors

_HALF_HOUR, _HOUR, _DAY = timedelta(minutes=30), timedelta(hours=1), timedelta(days=1)
SETTLED_AGE_S = 86400.0  # for how long an answer on a past day stands


class Slot(NamedTuple):
    """One figure of an answer."""

    start_utc: datetime
    end_utc: datetime
    gco2e_per_kwh: float
    kind: PointKind


def slot(start_utc: datetime, end_utc: datetime, value: Any, kind: PointKind) -> Slot:
    """Return a figure of an answer.

    Raises:
        ValueError: where it is none: the answer then has another shape, or another unit.
    """
    if not is_plausible(value) or not start_utc < end_utc:
        raise ValueError(f"no figure: {value!r}")
    return Slot(start_utc, end_utc, float(value), kind)


class HttpProvider:
    """The common part of all services: an address that a setting can replace, and answers that become points."""

    name: str
    scope: Scope
    service: str  # for people
    base_url: str

    def __init__(self, client: HttpClient, base_url: str = "") -> None:
        self.client = client
        self.base_url = (base_url or self.base_url).rstrip("/")
        check_address(self.base_url)

    def get(self, path: str, parameters: Sequence[tuple[str, str]] = (), **options: Any) -> Answer[Any]:
        """Return what ``options["parse"]`` makes of an answer; ``options`` are those of ``HttpClient.get_json``.

        Raises:
            IntensityUnavailable: where there is none.
        """
        try:
            return self.client.get_json(f"{self.base_url}/{path}", parameters, **options)
        except RequestFailed as failure:
            raise IntensityUnavailable(self.name, str(failure)) from None

    def points(self, answer: Answer[Any], slots: Iterable[Slot], zone: str, **changes: Any) -> list[IntensityPoint]:
        """Return the figures of an answer as points; ``changes`` are other fields of theirs."""
        common: dict[str, Any] = {
            "provider": self.name,
            "source": f"{self.service}, {zone}",
            "zone": zone,
            "scope": self.scope,
            "known_utc": answer.known_utc,
            "stale_reason": answer.stale_reason,
            **changes,
        }
        return [IntensityPoint(s.gco2e_per_kwh, s.start_utc, s.end_utc, kind=s.kind, **common) for s in slots]

    def future(self, points: Iterable[IntensityPoint], hours: float) -> Sequence[IntensityPoint]:
        """Return the points from now until so many hours from now."""
        now = self.client.now()
        return within(self.name, points, now, now + timedelta(hours=hours))


class Neso(HttpProvider):
    """The Carbon Intensity API of the National Energy System Operator: Great Britain; CC BY 4.0.

    Direct emissions, imports included (its methodology; recalled). Answers: its public documentation.
    """

    name = "neso"
    scope = Scope.DIRECT
    service = "NESO Carbon Intensity API (CC BY 4.0)"
    base_url = "https://api.carbonintensity.org.uk"

    _LONGEST = 12 * _DAY  # 14 are refused

    def covers(self, place: GridPlace) -> bool:
        """Return whether it lies in the United Kingdom."""
        return place.iso3 == "GBR"

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity of this half hour."""
        return newest(self.name, self._asked("intensity", 600, PointKind.FORECAST), self.client.now())

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return its forecast of up to 48 hours."""
        start = floor_time(self.client.now(), _HALF_HOUR)
        path = self._path(start, "fw24h" if hours <= 24 else "fw48h")
        return self.future(self._asked(path, 1800, PointKind.FORECAST), hours)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what it measured."""
        since, until = checked_range(since, until)
        until = min(until, self.client.now())
        points: list[IntensityPoint] = []
        start = floor_time(since, _HALF_HOUR)
        while start < until:
            end = min(start + self._LONGEST, floor_time(until, _HALF_HOUR) + _HALF_HOUR)
            age_s = SETTLED_AGE_S if end < self.client.now() - _DAY else 1800.0
            points += self._asked(self._path(start, f"{end:%Y-%m-%dT%H:%MZ}"), age_s, None)
            start = end
        return within(self.name, points, since, until)

    @staticmethod
    def _path(start: datetime, until: str) -> str:
        return f"intensity/{start:%Y-%m-%dT%H:%MZ}/{until}"

    def _asked(self, path: str, max_age_s: float, of_forecasts: PointKind | None) -> list[IntensityPoint]:
        """Return the half hours of an answer; without ``of_forecasts`` those alone that were measured."""

        def parse(found: Any) -> list[Slot]:
            slots = []
            for row in found["data"]:
                said = row["intensity"]
                actual, expected = said.get("actual"), said.get("forecast")
                value, kind = (expected, of_forecasts) if actual is None else (actual, PointKind.MEASURED)
                if value is not None and kind is not None:
                    slots.append(slot(utc_time(row["from"]), utc_time(row["to"]), value, kind))
            return slots

        answer = self.get(path, parse=parse, max_age_s=max_age_s)
        return self.points(answer, answer.data, "Great Britain")


# Form EIA-930's codes. Storage (BAT, PS, OES, UES) is left out; SNB and WNB are solar and wind with a battery behind
# the same meter (recalled, as are OES and UES); OTH and UNK have no factor.
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
    "OTH": "other",
    "UNK": "other",
}
_EIA_STORAGE = frozenset(["BAT", "PS", "OES", "UES"])


class Eia(HttpProvider):
    """Hourly generation by fuel of the USA's balancing authorities (Form EIA-930, US public domain) times factors.

    An hour is known 1 to 3 hours after it ended. There is no forecast. Its ``period`` is the hour's end in UTC, a
    ``value`` is a text or a number, and the answer repeats the key. Answers: the recorded ones of
    electricitymaps-contrib @ b354f28a (``parsers/tests/mocks/EIA``), and public notes on newer ones.
    """

    name = "eia"
    service = "EIA-930 generation by fuel"
    base_url = "https://api.eia.gov/v2"

    _ROWS = 5000  # the most that it gives at once
    _MOST_PAGES = 30
    DEMO_KEY = "DEMO_KEY"  # 30 requests an hour and 50 a day (api.data.gov, developer manual)

    def __init__(self, client: HttpClient, base_url: str = "", key: str = "", scope: Scope = Scope.LIFECYCLE) -> None:
        super().__init__(client, base_url)
        self.scope = scope
        self._key = key or self.DEMO_KEY

    def covers(self, place: GridPlace) -> bool:
        """Return whether its balancing authority is known."""
        return "eia" in place.codes

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity of the newest hour that is wholly reported."""
        now = self.client.now()
        hour = floor_time(now, _HOUR)
        return newest(self.name, self._hours(place, hour - _DAY, hour + _HOUR, 2700), now)

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Raise, since EIA forecasts demand only."""
        raise IntensityUnavailable(self.name, "it publishes no forecast of generation by fuel")

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return the hours that are wholly reported."""
        since, until = checked_range(since, until)
        age_s = SETTLED_AGE_S if until < self.client.now() - 2 * _DAY else 2700.0
        points = self._hours(place, floor_time(since, _HOUR), floor_time(until, _HOUR) + _HOUR, age_s)
        return within(self.name, points, since, until)

    def _hours(self, place: GridPlace, start: datetime, end: datetime, max_age_s: float) -> list[IntensityPoint]:
        zone = place.codes["eia"]

        def parse(found: Any) -> tuple[int, list[tuple[datetime, str, float | None]]]:
            response = found["response"]
            rows = []
            for row in response["data"]:
                if row["respondent"] != zone:
                    raise ValueError(f"of another balancing authority: {row['respondent']!r}")
                value = row["value"]
                made = None if value is None or value == "" else float(value)
                if made is not None and not math.isfinite(made):
                    raise ValueError(f"no generation: {value!r}")
                rows.append((utc_time(row["period"]) - _HOUR, row["fueltype"], made))
            return int(response["total"]), rows

        parameters = [
            ("frequency", "hourly"),
            ("data[0]", "value"),
            ("facets[respondent][]", zone),
            ("start", f"{start + _HOUR:%Y-%m-%dT%H}"),
            ("end", f"{end + _HOUR:%Y-%m-%dT%H}"),
            ("sort[0][column]", "period"),
            ("sort[0][direction]", "desc"),
            ("length", str(self._ROWS)),
        ]
        # The demonstration key is public; hiding it would take it for a secret and out of addresses that are not
        # encrypted, such as that of a proxy.
        is_secret = self._key != self.DEMO_KEY
        made: dict[datetime, dict[str, float | None]] = {}
        for page in range(self._MOST_PAGES):
            query = [*parameters, ("offset", str(page * self._ROWS))]
            key = [("api_key", self._key)]
            answer = self.get(
                "electricity/rto/fuel-type-data/data/",
                query if is_secret else query + key,
                secret_parameters=key if is_secret else (),
                parse=parse,
                max_age_s=max_age_s,
            )
            total, rows = answer.data
            for hour, code, value in rows:
                _add(made.setdefault(hour, {}), code, value)
            if not rows or (page + 1) * self._ROWS >= total:
                break
        factors = fuel_factors(self.scope, "USA")
        slots = [slot(hour, hour + _HOUR, value, PointKind.MEASURED) for hour, value in intensities(made, factors)]
        return self.points(answer, slots, zone, source=f"{self.service}, {zone}, {self.scope} factors")


def _add(made: dict[str, float | None], code: str, value: float | None) -> None:
    """Add a fuel's generation to an hour's; a fuel of no known code has no factor."""
    if code in _EIA_STORAGE:
        return
    fuel = _EIA_FUELS.get(code, "other")
    before = made.get(fuel)
    made[fuel] = value if before is None else before if value is None else before + value


# Energy-Charts' production types; what is not here is no generation (load, shares, trading, consumption of storage).
_CHARTS_FUELS = {
    "Fossil hard coal": "coal",
    "Fossil brown coal / lignite": "lignite",
    "Fossil gas": "gas",
    "Fossil oil": "oil",
    "Nuclear": "nuclear",
    "Biomass": "biomass",
    "Geothermal": "geothermal",
    "Solar": "solar",
    "Hydro Run-of-River": "hydro",
    "Hydro water reservoir": "hydro",
    "Wind onshore": "wind",
    "Wind offshore": "wind_offshore",
    **dict.fromkeys(("Fossil coal-derived gas", "Fossil oil shale", "Fossil peat", "Waste", "Others"), "other"),
}
# The countries that its clients list, by their ISO 3166 alpha-3 codes.
_CHARTS_COUNTRIES = frozenset(
    [
        "AUT",
        "BEL",
        "BGR",
        "CHE",
        "CZE",
        "DEU",
        "DNK",
        "EST",
        "ESP",
        "FIN",
        "FRA",
        "GRC",
        "HRV",
        "HUN",
        "ITA",
        "LTU",
        "LVA",
        "NLD",
        "NOR",
        "POL",
        "PRT",
        "ROU",
        "SWE",
        "SVN",
        "SVK",
    ]
)


class EnergyCharts(HttpProvider):
    """Energy-Charts of Fraunhofer ISE: countries of Europe; its terms and licence are on energy-charts.info.

    By default its own figure, which has a forecast; with a scope, its generation by fuel times factors, which has none.
    Answers: fields and samples in public clients (``unix_seconds``, ``co2eq``, ``co2eq_forecast``;
    ``production_types``); that ``end`` may lie in the future is untested.
    """

    name = "energy_charts"
    scope = Scope.NOT_STATED
    service = "Energy-Charts (Fraunhofer ISE)"
    base_url = "https://api.energy-charts.info"

    def __init__(self, client: HttpClient, base_url: str = "", scope: Scope = Scope.NOT_STATED) -> None:
        super().__init__(client, base_url)
        self.scope = scope

    def covers(self, place: GridPlace) -> bool:
        """Return whether its country is one of those that it has."""
        return place.iso3 in _CHARTS_COUNTRIES and not place.codes

    def now(self, place: GridPlace) -> IntensityPoint:
        """Return the intensity of this quarter of an hour or hour, or the newest."""
        now = self.client.now()
        day = floor_time(now, _HOUR)
        return newest(self.name, self._asked(place, day - 6 * _HOUR, day + _HOUR, 900), now)

    def forecast(self, place: GridPlace, hours: float) -> Sequence[IntensityPoint]:
        """Return its own forecast."""
        if self.scope != Scope.NOT_STATED:
            raise IntensityUnavailable(self.name, "it publishes no forecast of generation by fuel here")
        start = floor_time(self.client.now(), _HOUR)
        end = start + timedelta(hours=int(hours) + 2)
        return self.future(self._asked(place, start, end, 1800), hours)

    def history(self, place: GridPlace, since: datetime, until: datetime) -> Sequence[IntensityPoint]:
        """Return what was measured."""
        since, until = checked_range(since, until)
        age_s = SETTLED_AGE_S if until < self.client.now() - 2 * _DAY else 900.0
        points = self._asked(place, floor_time(since, _HOUR), floor_time(until, _HOUR) + _HOUR, age_s)
        return within(self.name, [p for p in points if p.kind != PointKind.FORECAST], since, until)

    def _asked(self, place: GridPlace, start: datetime, end: datetime, max_age_s: float) -> list[IntensityPoint]:
        zone = alpha2(place.iso3).lower()
        is_own = self.scope == Scope.NOT_STATED
        answer = self.get(
            "co2eq" if is_own else "public_power",
            [("country", zone), ("start", f"{start:%Y-%m-%dT%H:%MZ}"), ("end", f"{end:%Y-%m-%dT%H:%MZ}")],
            parse=_charts_own if is_own else self._charts_mix,
            max_age_s=max_age_s,
        )
        source = f"{self.service}, {zone.upper()}" + ("" if is_own else f", {self.scope} factors")
        return self.points(answer, answer.data, zone.upper(), source=source)

    def _charts_mix(self, found: Any) -> list[Slot]:
        starts, step = _unix_times(found)
        made: dict[datetime, dict[str, float | None]] = {start: {} for start in starts}
        for series in found["production_types"]:
            if (fuel := _CHARTS_FUELS.get(series["name"])) is None:
                continue
            for start, value in zip(starts, series["data"], strict=True):
                before = made[start].get(fuel)
                power_w = None if value is None else float(value)
                made[start][fuel] = power_w if before is None else before if power_w is None else before + power_w
        generation: dict[datetime, Generation] = dict(made)
        factors = fuel_factors(self.scope)
        return [slot(at, at + step, value, PointKind.MEASURED) for at, value in intensities(generation, factors)]


def _unix_times(found: Any) -> tuple[list[datetime], timedelta]:
    starts = [datetime.fromtimestamp(second, UTC) for second in found["unix_seconds"]]
    step = min((b - a for a, b in pairwise(starts)), default=_HOUR)
    if step <= timedelta(0):
        raise ValueError("times that do not rise")
    return starts, step


def _charts_own(found: Any) -> list[Slot]:
    starts, step = _unix_times(found)
    slots = []
    for key, kind in (("co2eq_forecast", PointKind.FORECAST), ("co2eq", PointKind.MEASURED)):  # the latter replaces
        values = found[key] if key == "co2eq" else found.get(key) or [None] * len(starts)
        pairs = zip(starts, values, strict=True)
        slots += [slot(start, start + step, value, kind) for start, value in pairs if value is not None]
    return slots
