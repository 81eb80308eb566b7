"""The services, against answers as they stand in public documents (see the classes' docstrings)."""

from datetime import UTC, datetime, timedelta

import pytest
from intensity_server import NOW, Reply

from greenlove_tracker.grid.live.intensity import IntensityUnavailable, PointKind, Scope
from greenlove_tracker.grid.live.services import Eia, ElectricityMaps, EnergyCharts, Neso
from greenlove_tracker.grid.place import grid_place

GB, DE, CISO = map(grid_place, ("GB", "DE", "US-CA"))
HOUR = timedelta(hours=1)


def at(hour: float, day: int = 22) -> datetime:
    return datetime(2026, 11, day, tzinfo=UTC) + timedelta(hours=hour)


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


def test_neso_now_is_what_was_measured_or_else_expected(client, server):
    neso = Neso(client, server.url)
    server.always(Reply(half_hours(at(12), (266, 263))))
    point = neso.now(GB)
    assert (point.gco2e_per_kwh, point.start_utc, point.end_utc) == (263, at(12), at(12.5))
    assert (point.kind, point.scope) == (PointKind.MEASURED, Scope.DIRECT)
    assert point.source == "NESO Carbon Intensity API (CC BY 4.0), Great Britain" and point.age_s(NOW) == 0
    assert server.asked[0].path == "/intensity/2026-11-22T06:00Z/2026-11-22T12:30Z"


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


def test_eia_reads_all_pages(client, server, monkeypatch):
    monkeypatch.setattr(Eia, "_ROWS", 4)
    rows = [(f"2026-11-21T{hour:02d}", fuel, value) for hour in range(3, 6) for fuel, value in MIX[:3]]

    def reply(asked):
        offset = int(asked.query["offset"][0])
        return Reply(eia(rows[offset : offset + 4], total=len(rows)))

    server.reply = reply
    points = Eia(client, server.url).history(CISO, at(2, day=21), at(5, day=21))
    assert [p.start_utc for p in points] == [at(h, day=21) for h in (2, 3, 4)] and len(server.asked) == 3


def test_an_old_hour_is_not_now(client, server):
    server.always(Reply(eia([("2026-11-22T04", fuel, value) for fuel, value in MIX])))
    with pytest.raises(IntensityUnavailable, match="newest figure is 8 h old"):
        Eia(client, server.url).now(CISO)


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
    assert [p.gco2e_per_kwh for p in service.history(DE, at(11.5), at(13))] == [491.5, 497.4, 502.6]
    assert (server.asked[0].path, server.asked[0].query["country"]) == ("/co2eq", ["de"])


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
    return ElectricityMaps(client, server.url, "em-token-12345")


def test_electricity_maps_latest(client, server):
    server.by_path({"/v3/carbon-intensity/latest": hour_of_maps(at(12), 322, isEstimated=True)})
    point = maps(client, server).now(DE)
    assert (point.gco2e_per_kwh, point.scope, point.kind) == (322, Scope.LIFECYCLE, PointKind.ESTIMATED)
    assert server.asked[0].headers["auth-token"] == "em-token-12345"
    assert server.asked[0].query == {"zone": ["DE"], "shouldUseFallbackCallerLookup": ["false"]}


@pytest.mark.parametrize("key", ["history", "data"])
def test_electricity_maps_history_leaves_gaps(client, server, key):
    rows = [hour_of_maps(at(9), 300), hour_of_maps(at(10), None), hour_of_maps(at(11), 310)]
    server.by_path({"/v3/carbon-intensity/history": {"zone": "DE", key: rows}})
    points = maps(client, server).history(DE, at(0), at(12))
    assert [p.gco2e_per_kwh for p in points] == [300, 310] and points[0].scope == Scope.LIFECYCLE


# all of them


def opened(client, server):
    return [*(kind(client, server.url) for kind in (Neso, Eia, EnergyCharts)), maps(client, server)]


PLACES = {"neso": GB, "eia": CISO}


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    "reply",
    [Reply(b"<html>"), Reply({}), Reply([]), Reply({"data": 7, "records": "x"}), Reply(status=500), Reply("ok")],
)
def test_whatever_a_service_says_the_failure_is_named(client, server, number, reply):
    server.always(reply)
    service = opened(client, server)[number]
    place = PLACES.get(service.name, DE)
    assert service.zone_of(place)
    for ask in (
        lambda: service.now(place),
        lambda: service.history(place, at(0), at(12)),
    ):
        with pytest.raises(IntensityUnavailable, match=f"^{service.name}: ") as caught:
            ask()
        assert caught.value.provider == service.name
