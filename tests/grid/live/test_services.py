"""The services, against answers as they stand in public documents (see the classes' docstrings)."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from intensity_server import NOW, Reply

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.intensity import IntensityUnavailable, PointKind, Scope, Signal
from greenlove_tracker.grid.live.keyless import Eia, EnergiDataService, EnergyCharts, Neso
from greenlove_tracker.grid.live.places import grid_place
from greenlove_tracker.grid.live.with_keys import ElectricityMaps, WattTime

GB, LONDON, DE, CISO, DK1, DK = map(grid_place, ("GB", "SW1A 1AA", "DE", "US-CA", "DK1", "Denmark"))
HOUR = timedelta(hours=1)


def at(hour: float, day: int = 22) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC) + timedelta(hours=hour)


def values(points):
    return [(p.start_utc, p.gco2e_per_kwh, p.kind) for p in points]


# NESO


def half_hours(start, *pairs):
    """The answer of /intensity, with (forecast, actual) of each half hour."""
    return {
        "data": [
            {
                "from": f"{start + n * HOUR / 2:%Y-%m-%dT%H:%MZ}",
                "to": f"{start + (n + 1) * HOUR / 2:%Y-%m-%dT%H:%MZ}",
                "intensity": {"forecast": forecast, "actual": actual, "index": "moderate"},
            }
            for n, (forecast, actual) in enumerate(pairs)
        ]
    }


def regional(data):
    rows = [
        {**row, "intensity": {"forecast": row["intensity"]["forecast"], "index": "low"}, "generationmix": []}
        for row in data["data"]
    ]
    return {"regionid": 13, "dnoregion": "UKPN London", "shortname": "London", "postcode": "SW1A", "data": rows}


def test_neso_now_is_what_was_measured_or_else_expected(client, server):
    neso = Neso(client, server.url)
    server.always(Reply(half_hours(at(12), (266, 263))))
    point = neso.now(GB)
    assert (point.gco2e_per_kwh, point.start_utc, point.end_utc) == (263, at(12), at(12.5))
    assert (point.kind, point.signal, point.scope) == (PointKind.MEASURED, Signal.AVERAGE, Scope.DIRECT)
    assert point.source == "NESO Carbon Intensity API (CC BY 4.0), Great Britain" and point.age_s(NOW) == 0
    assert server.asked[0].path == "/intensity"


def test_neso_now_of_a_half_hour_that_is_not_measured_yet(client, server):
    server.always(Reply(half_hours(at(12), (266, None))))
    assert Neso(client, server.url).now(GB).kind == PointKind.FORECAST


def test_neso_by_postcode(client, server):
    day = half_hours(at(12), (80, None), (90, None))
    server.by_path(
        {
            "/regional/postcode/SW1A": {"data": [regional(half_hours(at(12), (77, None)))]},
            "/regional/intensity/2026-11-22T12:00Z/fw24h/postcode/SW1A": {"data": regional(day)},
            "/regional/intensity/2026-11-22T10:00Z/2026-11-22T11:30Z/postcode/SW1A": {
                "data": regional(half_hours(at(10), (70, None), (71, None)))
            },
        }
    )
    neso = Neso(client, server.url)
    assert neso.now(LONDON).gco2e_per_kwh == 77 and neso.now(LONDON).zone == "postcode SW1A"
    assert [p.gco2e_per_kwh for p in neso.forecast(LONDON, 1)] == [80, 90]
    assert {p.kind for p in neso.history(LONDON, at(10), at(11))} == {PointKind.ESTIMATED}


def test_neso_forecast_of_two_days_begins_now(client, server):
    server.by_path({"/intensity/2026-11-22T12:00Z/fw48h": half_hours(at(11.5), *[(100 + n, None) for n in range(96)])})
    points = Neso(client, server.url).forecast(GB, 30)
    assert points[0].start_utc == at(12) and points[-1].end_utc == NOW.replace(minute=30) + 30 * HOUR
    assert {p.kind for p in points} == {PointKind.FORECAST} and len(points) == 61


def test_neso_history_is_asked_for_in_pieces_and_leaves_gaps(client, server):
    def reply(asked):
        start = datetime.fromisoformat(asked.path.split("/")[2])
        end = datetime.fromisoformat(asked.path.split("/")[3])
        assert end - start <= timedelta(days=13)  # more is refused
        count = int((end - start) / (HOUR / 2)) + 1
        return Reply(half_hours(start - HOUR / 2, *[(50, None if n == 3 else n) for n in range(count)]))

    server.reply = reply
    since = at(0, day=1) - timedelta(days=10)
    points = Neso(client, server.url).history(GB, since, at(5, day=20))
    assert len(server.asked) == 3
    starts = [p.start_utc for p in points]
    assert starts == sorted(set(starts)) and {p.kind for p in points} == {PointKind.MEASURED}
    assert starts[0] == since and since + HOUR / 2 in starts and since + HOUR not in starts


def test_nesos_error_is_told(client, server):
    error = {"error": {"code": "400 Bad Request", "message": "Please enter a valid UK postcode."}}
    server.always(Reply(error, status=400))
    with pytest.raises(IntensityUnavailable, match=r"^neso: HTTP 400 .*Please enter a valid UK postcode"):
        Neso(client, server.url).now(LONDON)


# EIA


def eia(rows, total=None, respondent="CISO"):
    """The answer of /v2/electricity/rto/fuel-type-data/data/, with (period, fuel, value) of each row."""
    return {
        "response": {
            "total": str(len(rows) if total is None else total),
            "dateFormat": 'YYYY-MM-DD"T"HH24',
            "frequency": "hourly",
            "data": [
                {
                    "period": period,
                    "respondent": respondent,
                    "respondent-name": "California Independent System Operator",
                    "fueltype": fuel,
                    "type-name": fuel,
                    "value": value,
                    "value-units": "megawatthours",
                }
                for period, fuel, value in rows
            ],
        },
        "request": {"command": "/v2/…", "params": {"api_key": "my-own-eia-key"}},
        "apiVersion": "2.1.12",
    }


MIX = [("NG", "500"), ("WND", 300), ("SUN", "200"), ("BAT", "-400"), ("PS", 100)]


def test_eia_is_the_mix_of_the_newest_whole_hour(client, server):
    rows = [("2026-11-22T12", "NG", "500")]  # the rest of it is not there yet
    rows += [("2026-11-22T11", fuel, value) for fuel, value in MIX]
    server.always(Reply(eia(rows)))
    point = Eia(client, f"{server.url}/v2").now(CISO)
    assert point.gco2e_per_kwh == pytest.approx((500 * 490 + 300 * 11 + 200 * 48) / 1000)
    assert (point.start_utc, point.end_utc) == (at(10), at(11))  # EIA names an hour by its end
    assert (point.scope, point.kind, point.age_s(NOW)) == (Scope.LIFECYCLE, PointKind.MEASURED, 4200)
    asked = server.asked[0]
    assert asked.path == "/v2/electricity/rto/fuel-type-data/data/"
    assert asked.query["facets[respondent][]"] == ["CISO"] and asked.query["api_key"] == ["DEMO_KEY"]


def test_eia_direct_emissions_are_those_of_the_us_fleet(client, server):
    server.always(Reply(eia([("2026-11-22T11", fuel, value) for fuel, value in MIX])))
    point = Eia(client, server.url, scope=Scope.DIRECT).now(CISO)
    assert point.gco2e_per_kwh == pytest.approx(0.5 * 435.4) and "direct factors" in point.source


def test_eia_reads_all_pages(client, server, monkeypatch):
    monkeypatch.setattr(Eia, "_ROWS", 4)
    rows = [(f"2026-11-21T{hour:02d}", fuel, value) for hour in range(3, 6) for fuel, value in MIX[:3]]

    def reply(asked):
        offset = int(asked.query["offset"][0])
        return Reply(eia(rows[offset : offset + 4], total=len(rows)))

    server.reply = reply
    points = Eia(client, server.url).history(CISO, at(2, day=21), at(5, day=21))
    assert [p.start_utc for p in points] == [at(h, day=21) for h in (2, 3, 4)] and len(server.asked) == 3


def test_an_hour_without_generation_is_unknown_and_not_0_g(client, server):
    rows = [("2026-11-22T10", fuel, value) for fuel, value in MIX]
    rows += [("2026-11-22T11", fuel, 0) for fuel, _ in MIX]
    rows += [("2026-11-22T12", fuel, None) for fuel, _ in MIX]
    server.always(Reply(eia(rows)))
    assert [p.start_utc for p in Eia(client, server.url).history(CISO, at(8), at(12))] == [at(9)]


def test_an_old_hour_is_not_now(client, server):
    server.always(Reply(eia([("2026-11-22T04", fuel, value) for fuel, value in MIX])))
    with pytest.raises(IntensityUnavailable, match="newest figure is 8 h old"):
        Eia(client, server.url).now(CISO)


def test_eia_forecasts_nothing(client, server):
    with pytest.raises(IntensityUnavailable, match="no forecast"):
        Eia(client, server.url).forecast(CISO, 24)
    assert server.asked == []


@pytest.mark.parametrize("spoil", [{"value": "much"}, {"value": "inf"}, {"period": "noon"}, {"respondent": "PJM"}])
def test_eias_answer_of_another_shape(client, server, spoil):
    found = eia([("2026-11-22T11", fuel, value) for fuel, value in MIX])
    found["response"]["data"][0].update(spoil)
    server.always(Reply(found))
    with pytest.raises(IntensityUnavailable, match=r"eia: (the answer of .* has another shape|it has no figure)"):
        Eia(client, server.url).now(CISO)


def test_ones_own_eia_key_is_in_no_file(client, server):
    server.always(Reply(eia([("2026-11-22T11", fuel, value) for fuel, value in MIX])))
    Eia(client, server.url, key="my-own-eia-key").now(CISO)
    assert server.asked[0].query["api_key"] == ["my-own-eia-key"]
    assert [f for f in client.cache_dir.glob("*") if "my-own-eia-key" in f.read_text()] == []


# Energy-Charts


def charts(start, measured, forecast):
    times = [int(start.timestamp()) + 900 * n for n in range(len(measured))]
    return {"unix_seconds": times, "co2eq": measured, "co2eq_forecast": forecast, "deprecated": False}


def test_energy_charts_own_figure(client, server):
    server.always(Reply(charts(at(11.5), [491.5, 497.4, 502.6, None], [None, None, 500.0, 505.0])))
    service = EnergyCharts(client, server.url)
    point = service.now(DE)
    assert (point.gco2e_per_kwh, point.start_utc, point.kind) == (502.6, at(12), PointKind.MEASURED)
    assert point.scope == Scope.NOT_STATED and point.end_utc == at(12.25)
    assert values(service.forecast(DE, 1)) == [
        (at(12), 502.6, PointKind.MEASURED),
        (at(12.25), 505.0, PointKind.FORECAST),
    ]
    assert [p.gco2e_per_kwh for p in service.history(DE, at(11.5), at(13))] == [491.5, 497.4, 502.6]
    assert (server.asked[0].path, server.asked[0].query["country"]) == ("/co2eq", ["de"])


def test_energy_charts_mix_with_our_factors(client, server):
    found = {
        "unix_seconds": [int(at(11).timestamp()), int(at(12).timestamp())],
        "production_types": [
            {"name": "Hydro pumped storage consumption", "data": [-900, -900]},
            {"name": "Fossil brown coal / lignite", "data": [400, 100]},
            {"name": "Wind onshore", "data": [500, 900]},
            {"name": "Others", "data": [100, None]},
            {"name": "Load", "data": [1000, 1100]},
            {"name": "Renewable share of load", "data": [50.0, 90.0]},
        ],
        "deprecated": False,
    }
    server.always(Reply(found))
    service = EnergyCharts(client, server.url, scope=Scope.DIRECT)
    points = service.history(DE, at(11), at(13))
    assert [(p.start_utc, round(p.gco2e_per_kwh, 3)) for p in points] == [(at(11), round(400 * 1010 / 900, 3))]
    assert server.asked[0].path == "/public_power"
    with pytest.raises(IntensityUnavailable, match="no forecast"):
        service.forecast(DE, 24)


@pytest.mark.parametrize(
    "spoil", [{"co2eq": [1]}, {"co2eq": None}, {"unix_seconds": [5, 5, 5, 5]}, {"co2eq": ["a"] * 4}]
)
def test_energy_charts_of_another_shape(client, server, spoil):
    server.always(Reply({**charts(at(11.5), [491.5, 497.4, 502.6, None], [None] * 4), **spoil}))
    with pytest.raises(IntensityUnavailable, match="another shape"):
        EnergyCharts(client, server.url).now(DE)


# Energi Data Service


def energinet(dataset, start, **by_area):
    records = [
        {
            "Minutes5UTC": f"{start + n * timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}",
            "Minutes5DK": f"{start + HOUR + n * timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}",
            "PriceArea": area,
            "CO2Emission": value,
        }
        for area, found in by_area.items()
        for n, value in enumerate(found)
    ]
    return {"total": len(records), "filters": "{}", "sort": "Minutes5UTC asc", "dataset": dataset, "records": records}


def test_energinet_of_an_area_and_its_forecast(client, server):
    server.by_path(
        {
            "/dataset/CO2Emis": energinet("CO2Emis", at(12), DK1=[101.0, 102.0]),
            "/dataset/CO2EmisProg": energinet("CO2EmisProg", at(12), DK1=list(range(20))),
        }
    )
    service = EnergiDataService(client, server.url)
    point = service.now(DK1)
    assert (point.gco2e_per_kwh, point.start_utc, point.zone) == (102.0, NOW - timedelta(minutes=5), "DK1")
    assert point.age_s(NOW) == 0 and json.loads(server.asked[0].query["filter"][0]) == {"PriceArea": ["DK1"]}
    forecast = service.forecast(DK1, 1)
    assert forecast[0].start_utc == NOW and len(forecast) == 12 and forecast[0].kind == PointKind.FORECAST


def test_denmark_without_an_area_is_the_mean_of_both_where_both_are_there(client, server):
    server.always(Reply(energinet("CO2Emis", at(11), DK1=[100.0, 110.0, None], DK2=[200.0, 130.0, 140.0])))
    points = EnergiDataService(client, server.url).history(DK, at(11), at(12))
    assert [p.gco2e_per_kwh for p in points] == [150.0, 120.0] and points[0].zone == "mean of DK1 and DK2"


# Electricity Maps


def hour_of_maps(start, value, **more):
    return {
        "zone": "DE",
        "carbonIntensity": value,
        "datetime": f"{start:%Y-%m-%dT%H:%M:%S.000Z}",
        "updatedAt": "2026-11-22T12:05:00.000Z",
        "createdAt": "2026-11-19T12:05:00.000Z",
        "emissionFactorType": "lifecycle",
        "isEstimated": False,
        "estimationMethod": None,
        **more,
    }


def maps(client, server):
    return ElectricityMaps(client, "em-token-12345", server.url)


def test_electricity_maps_latest(client, server):
    server.by_path({"/v3/carbon-intensity/latest": hour_of_maps(at(12), 322, isEstimated=True)})
    point = maps(client, server).now(DE)
    assert (point.gco2e_per_kwh, point.scope, point.kind) == (322, Scope.LIFECYCLE, PointKind.ESTIMATED)
    assert server.asked[0].headers["auth-token"] == "em-token-12345"
    assert server.asked[0].query == {"zone": ["DE"], "shouldUseFallbackCallerLookup": ["false"]}


def test_electricity_maps_of_another_zone_is_refused(client, server):
    server.always(Reply(hour_of_maps(at(12), 322, zone="US-CAL-CISO")))
    with pytest.raises(IntensityUnavailable, match="another shape"):
        maps(client, server).now(DE)


@pytest.mark.parametrize("key", ["history", "data"])
def test_electricity_maps_history_leaves_gaps(client, server, key):
    rows = [hour_of_maps(at(9), 300), hour_of_maps(at(10), None), hour_of_maps(at(11), 310)]
    server.by_path({"/v3/carbon-intensity/history": {"zone": "DE", key: rows}})
    points = maps(client, server).history(DE, at(0), at(12))
    assert [p.gco2e_per_kwh for p in points] == [300, 310] and points[0].scope == Scope.LIFECYCLE


@pytest.mark.parametrize("key", ["forecast", "data"])
def test_electricity_maps_forecast(client, server, key):
    rows = [{"carbonIntensity": 200 + n, "datetime": f"{at(12 + n):%Y-%m-%dT%H:%M:%SZ}"} for n in range(49)]
    server.by_path({"/v3/carbon-intensity/forecast": {"zone": "DE", key: rows, "updatedAt": "2026-11-22T12:05:00Z"}})
    points = maps(client, server).forecast(DE, 30)
    assert len(points) == 31 and points[0].gco2e_per_kwh == 200
    assert server.asked[0].query["horizonHours"] == ["48"]


def test_a_plan_without_a_forecast_is_told(client, server):
    server.always(Reply({"message": "Request unauthorized for zoneKey=DE"}, status=403))
    with pytest.raises(IntensityUnavailable, match=r"not allowed .* Request unauthorized"):
        maps(client, server).forecast(DE, 24)


# WattTime


def moer(start, *found, period_s=300, units="lbs_co2_per_mwh"):
    rows = [
        {"point_time": f"{start + n * timedelta(seconds=period_s):%Y-%m-%dT%H:%M:%S+00:00}", "value": value}
        for n, value in enumerate(found)
    ]
    meta = {"units": units, "data_point_period_seconds": period_s, "region": "CAISO_NORTH", "signal_type": "co2_moer"}
    return {"data": rows, "meta": meta}


def watttime(client, server):
    return WattTime(client, "ann", "her-password", server.url)


def test_watttime_is_marginal(client, server):
    server.by_path({"/login": {"token": "t0ken-of-login"}, "/v3/forecast": moer(NOW, 870.0, 880.0)})
    point = watttime(client, server).now(CISO)
    assert point.gco2e_per_kwh == pytest.approx(870 * 0.45359237)
    assert (point.signal, point.scope) == (Signal.MARGINAL, Scope.DIRECT)
    login, forecast = server.asked
    assert login.headers["authorization"] == "Basic " + base64.b64encode(b"ann:her-password").decode()
    assert forecast.headers["authorization"] == "Bearer t0ken-of-login"
    assert (forecast.query["region"], forecast.query["signal_type"]) == (["CAISO_NORTH"], ["co2_moer"])


def test_watttime_logs_in_once_and_again_where_its_token_is_refused(client, server, fake_time):
    tokens = iter(["first-token", "second-token", "third-token"])

    def reply(asked):
        if asked.path == "/login":
            return Reply({"token": next(tokens)})
        is_old = asked.headers["authorization"] == "Bearer first-token" and len(server.asked) > 2
        return Reply(status=401) if is_old else Reply(moer(NOW - HOUR, *range(40)))

    server.reply = reply
    service = watttime(client, server)
    service.now(CISO)
    fake_time.pass_by(400)
    service.now(CISO)
    assert [a.path for a in server.asked] == ["/login", "/v3/forecast", "/v3/forecast", "/login", "/v3/forecast"]
    fake_time.pass_by(26 * 60)
    service.now(CISO)
    assert [a.path for a in server.asked][5:] == ["/login", "/v3/forecast"]


def test_watttime_with_a_wrong_password(client, server):
    server.always(Reply({"error": "her-password is wrong"}, status=401))
    with pytest.raises(IntensityUnavailable, match=r"watttime: HTTP 401, the token is refused .*MASKED is wrong"):
        watttime(client, server).now(CISO)
    assert len(server.asked) == 1


def test_watttime_in_another_unit_is_refused(client, server):
    server.by_path({"/login": {"token": "t0ken-of-login"}, "/v3/forecast": moer(NOW, 870.0, units="g_per_kwh")})
    with pytest.raises(IntensityUnavailable, match="another shape"):
        watttime(client, server).now(CISO)


def test_watttime_history(client, server):
    server.by_path({"/login": {"token": "t0ken-of-login"}, "/v3/historical": moer(at(10), *range(12))})
    assert len(watttime(client, server).history(CISO, at(10), at(11))) == 12


# all of them


def opened(client, server):
    simple = [kind(client, server.url) for kind in (Neso, Eia, EnergyCharts, EnergiDataService)]
    return [*simple, maps(client, server), watttime(client, server)]


PLACES = {"neso": GB, "eia": CISO, "energi_data_service": DK1, "watttime": CISO}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize(
    "reply",
    [Reply(b"<html>"), Reply({}), Reply([]), Reply({"data": 7, "records": "x"}), Reply(status=500), Reply("ok")],
)
def test_whatever_a_service_says_the_failure_is_named(client, server, number, reply):
    server.always(reply)
    service = opened(client, server)[number]
    place = PLACES.get(service.name, DE)
    assert service.covers(place)
    for ask in (
        lambda: service.now(place),
        lambda: service.forecast(place, 24),
        lambda: service.history(place, at(0), at(12)),
    ):
        with pytest.raises(IntensityUnavailable, match=f"^{service.name}: ") as caught:
            ask()
        assert caught.value.provider == service.name


@pytest.mark.parametrize("number", range(6))
def test_times_need_their_zone_and_an_order(client, server, number):
    service = opened(client, server)[number]
    place = PLACES.get(service.name, DE)
    with pytest.raises(UsageError, match="with its zone"):
        service.history(place, datetime(2026, 11, 1), datetime(2026, 11, 2))
    with pytest.raises(UsageError, match="nothing lies between"):
        service.history(place, at(2), at(2))
    assert server.asked == []
