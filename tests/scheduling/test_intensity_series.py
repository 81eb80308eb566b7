"""What is known of a region's carbon intensity: of files, services, tables and mocks, and where they fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from intensity_server import Reply, serving

from greenlove_tracker import best_start
from greenlove_tracker.grid.live.fallback import IntensityFallbacks
from greenlove_tracker.grid.live.intensity import IntensityPoint, IntensityUnavailable, PointKind, Scope
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.grid.tariff import parse_tariff
from greenlove_tracker.scheduling.intensity_forecast import HourlyIntensity, hours_since_epoch
from greenlove_tracker.scheduling.intensity_series import region_series
from greenlove_tracker.vocabulary.errors import UsageError

NOW = datetime(2026, 11, 22, 18, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Service:
    """A service that answers from a function of the hour, and writes down what it was asked."""

    def __init__(self, name="ours", level=300.0, scope=Scope.LIFECYCLE, days=40, **fails):
        self.name, self.scope = name, scope
        self.level, self.days, self.fails = level, days, fails
        self.asked = []

    def now(self, place):
        raise AssertionError("the history is asked for")

    def history(self, place, since, until):
        since = max(since, until - timedelta(days=self.days))
        self.asked.append(place.name)
        if "history" in self.fails:
            raise IntensityUnavailable(self.name, self.fails["history"])
        first = since.replace(minute=0)
        n_hours = int((until - first) / HOUR) + 1
        return tuple(self._point(first + n * HOUR) for n in range(n_hours))

    def _point(self, start):
        value = self.level + 100 * np.cos((start.hour - 18) * 2 * np.pi / 24) + (start.day % 3)
        kind = PointKind.MEASURED
        return IntensityPoint(float(value), start, start + HOUR, self.name, "Our service", self.scope, kind, NOW)


def one(source, region="DE", now=NOW):
    (found,) = region_series(source, [region] if region else None, now)
    return found


def test_a_file_is_read_by_the_hour(tmp_path):
    path = tmp_path / "intensity.csv"
    path.write_text(
        "utc,gco2e_per_kwh\n2026-11-22 02:00,150\n2026-11-22T00:00Z,100\n"
        "2026-11-22T00:30+00:00,200\n2026-11-22T03:00+02:00,\n2026-11-22T20:00,999\n"
    )
    found = one(path, None)
    assert found[1].first_hour == hours_since_epoch(datetime(2026, 11, 22, tzinfo=UTC))
    assert found[1].values.tolist() == pytest.approx([150.0, np.nan, 150.0], nan_ok=True)
    assert (found[0].source, found[0].n_hours) == ("intensity.csv, given by the user", 2)


def test_a_service_is_asked_once_for_what_was():
    service = Service()
    found = one(service)
    assert service.asked == ["DE"]
    basis = found[0]
    assert (basis.provider, basis.source, basis.basis) == ("ours", "Our service", "average, lifecycle")
    assert (basis.newest_utc, basis.age_s) == (NOW.replace(minute=0), 600)
    assert basis.n_hours == 40 * 24


def test_a_service_that_fails_gives_way_and_the_advice_says_so():
    order = IntensityFallbacks(grid_place("DE"), (Service("first", history="HTTP 503"), Service("second")))
    advice = best_start(4, intensity=order, deadline=NOW + 24 * HOUR, now=NOW)
    assert (advice.region, advice.is_worth_waiting) == ("DE", True)
    assert advice.sources[0].failures == ("first: HTTP 503",)
    assert advice.sources[0].provider == "second"


def test_where_nobody_answers_it_starts_now_with_the_reason():
    advice = best_start(
        4, intensity=Service(history="HTTP 503"), regions=["DE"], deadline=NOW + 24 * HOUR, now=NOW, energy_kwh=2
    )
    assert (advice.wait_s, advice.is_worth_waiting, advice.saving, advice.hours) == (0.0, False, None, ())
    assert advice.reason == "ours: HTTP 503."
    assert advice.emissions_kgco2e is None  # not zero


def test_the_table_tells_no_hours_apart_and_says_what_to_give():
    advice = best_start(4, intensity="table", regions=["DE"], deadline=NOW + 24 * HOUR, now=NOW, energy_kwh=2)
    assert advice.reason.startswith("a yearly average tells no hour from another: give")
    assert '"live"' in advice.reason and "CSV" in advice.reason
    assert not advice.is_worth_waiting and advice.wait_s == 0
    yearly = advice.sources[0].yearly_gco2e_per_kwh
    assert 200 < yearly < 600 and advice.intensity_gco2e_per_kwh == yearly
    assert advice.emissions_kgco2e == advice.emissions_now_kgco2e == pytest.approx(2 * yearly / 1000)


def test_a_region_that_does_not_answer_is_left_out_and_named():
    intensity = {"DE": Service(), "GB": Service(history="HTTP 500"), "NO": Service(level=150, days=2)}
    advice = best_start(4, intensity=intensity, deadline=NOW + 24 * HOUR, now=NOW)
    assert advice.region == "DE" and advice.is_worth_waiting
    by_region = {row.region: row for row in advice.alternatives}
    assert by_region["GB"].problem == "ours: HTTP 500"
    assert "known for 48 hours" in by_region["NO"].problem
    assert by_region["DE"].problem == "" and by_region["DE"].saving.point > 0.3
    assert advice.notes == ()


def test_one_service_by_its_name_answers_for_several_regions():
    service = Service()
    best_start(4, intensity=service, regions=["DE", "FR", "DE"], deadline=NOW + 24 * HOUR, now=NOW)
    assert service.asked == ["DE", "FR"]
    with pytest.raises(UsageError, match="'Atlantis' is not an ISO 3166 code"):
        region_series("table", ["Atlantis"], NOW)
    with pytest.raises(UsageError, match=r"live needs to know where: give regions"):
        best_start(4, intensity="live", deadline=NOW + HOUR, now=NOW)


def test_regions_that_count_other_emissions_are_compared_with_a_note():
    intensity = {"DE": Service(), "GB": Service(scope=Scope.DIRECT)}
    (note,) = best_start(4, intensity=intensity, deadline=NOW + 24 * HOUR, now=NOW).notes
    assert "DE lifecycle, GB direct" in note


def test_a_price_by_the_hour_needs_no_intensity_by_the_hour():
    tariff = parse_tariff("base 0.20; peak 0.32 17-21:30", UTC)
    options = {"deadline": NOW + 24 * HOUR, "now": NOW, "energy_kwh": 8, "price_usd_per_kwh": tariff}
    advice = best_start(4, intensity="table", regions=["DE"], by="cost", **options)
    assert advice.is_worth_waiting and advice.start_utc == datetime(2026, 11, 22, 22, tzinfo=UTC)
    assert advice.cost_usd == pytest.approx(1.6)
    shares = 0.32 * (3 + 20 / 60) + 0.2 * 40 / 60
    assert advice.cost_now_usd == pytest.approx(2 * shares, rel=0.01)
    assert advice.emissions_kgco2e == advice.emissions_now_kgco2e > 0
    assert (
        best_start(4, intensity="table", regions=["DE"], by="cost", **options | {"energy_kwh": None}).cost_usd is None
    )
    with pytest.raises(UsageError, match="a number of USD or a tariff"):
        best_start(4, intensity="mock", **options | {"price_usd_per_kwh": "cheap"})


def test_hours_without_a_price_are_unknown_and_not_free(tmp_path):
    path = tmp_path / "prices.csv"
    known = [h for h in range(-2, 24) if h not in (5, 6, 7)]  # of these the price is not known
    rows = "".join(f"{NOW.replace(minute=0) + h * HOUR:%Y-%m-%dT%H:%MZ},{0.3 if h < 9 else 0.25}\n" for h in known)
    path.write_text("utc,usd_per_kwh\n" + rows)
    options = {"by": "cost", "deadline": NOW + 24 * HOUR, "energy_kwh": 1, "intensity": "table", "regions": ["DE"]}
    prices = parse_tariff(path, UTC)
    advice = best_start(2, now=NOW, price_usd_per_kwh=prices, **options)
    assert advice.start_utc == NOW.replace(minute=0) + 9 * HOUR
    assert advice.cost_usd == pytest.approx(0.25)
    unknown = best_start(2, now=NOW + 5 * HOUR, price_usd_per_kwh=prices, **options)
    assert unknown.reason == "the price of a run that starts now is not known."
    assert unknown.cost_now_usd is None and not unknown.is_worth_waiting


def test_hours_handed_over_are_of_no_service():
    values = 300 + 100 * np.cos(np.arange(24 * 40) * 2 * np.pi / 24)
    first = int(hours_since_epoch(NOW)) - len(values)
    found = one(HourlyIntensity(first, values), None)
    assert (found[0].source, found[0].n_hours) == ("hours given", 960)
    assert found[0].age_s == 600


def test_best_start_asks_the_addresses_of_the_settings(no_settings, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        monkeypatch.setenv("GREENLOVE_INTENSITY_URLS", f"neso={server.url}")
        server.always(Reply(status=404))
        found = best_start(4, intensity="neso", regions=["GB"], deadline=datetime.now(UTC) + timedelta(hours=24))
    assert server.asked and "neso: HTTP 404, not found from 127.0.0.1" in found.reason
