"""What is known of a region's carbon intensity: of files, services, tables and mocks, and where they fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

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


# -- A user's own file: hours to come are taken as given --


def hourly(path, values, first, column="gco2e_per_kwh", step=HOUR):
    rows = [f"{first + n * step:%Y-%m-%dT%H:%MZ},{v}\n" for n, v in enumerate(values) if not np.isnan(v)]
    path.write_text(f"utc,{column}\n" + "".join(rows))
    return path


def usual(n, first):
    return 300 + 100 * np.cos(((np.arange(n) + first.hour) % 24 - 18) * 2 * np.pi / 24)


def least(values, duration_h, now_min, slack_h):
    """Return the best start, minute by minute: its hour (0: now), what a run sums to then, and what it does now."""
    minutes = np.repeat(values, 60)
    length = round(60 * duration_h)
    starts = [now_min, *range(60, 60 * 24 * 7, 60)]
    starts = [start for start in starts if start + length <= now_min + 60 * slack_h]
    sums = [minutes[start : start + length].sum() / 60 for start in starts]
    n = int(np.nanargmin(np.round(sums, 6)))
    return (starts[n] - now_min) * 60.0, sums[n], sums[0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("has_history", [False, True])
def test_the_advice_is_the_optimum_of_the_hours_to_come(tmp_path, seed, has_history):
    random = np.random.default_rng(seed)
    values = random.integers(0, 600, 60).astype(float)
    duration_h, slack_h = float(random.choice([0.5, 1, 2.5, 4, 9])), float(random.integers(10, 44))
    first = NOW.replace(minute=0)
    before = usual(24 * 30, first - 30 * 24 * HOUR) if has_history else np.empty(0)
    path = hourly(tmp_path / "own.csv", np.concatenate([before, values]), first - len(before) * HOUR)
    advice = best_start(duration_h, intensity=path, deadline=NOW + slack_h * HOUR, now=NOW)
    wait_s, then, now = least(values, duration_h, 10, slack_h)
    assert advice.wait_s == pytest.approx(wait_s)
    assert advice.intensity_now_gco2e_per_kwh == pytest.approx(now / duration_h)
    if now > 60:
        assert advice.saving.point == pytest.approx(1 - then / now, abs=1e-6)
        assert advice.saving.upper - advice.saving.lower < 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_the_advice_is_the_optimum_of_the_prices_also_at_zero_and_below(tmp_path, seed):
    random = np.random.default_rng(seed)
    prices = random.choice([-0.1, -0.02, 0.0, 0.05, 0.3], 60)
    duration_h, slack_h = float(random.choice([0.5, 1, 2.5, 4])), float(random.integers(10, 44))
    tariff = parse_tariff(hourly(tmp_path / "prices.csv", prices, NOW.replace(minute=0), "usd_per_kwh"))
    options = {"intensity": "table", "regions": ["DE"], "by": "cost", "price_usd_per_kwh": tariff, "now": NOW}
    advice = best_start(duration_h, deadline=NOW + slack_h * HOUR, energy_kwh=2 * duration_h, **options)
    wait_s, then, now = least(prices, duration_h, 10, slack_h)
    assert advice.wait_s == pytest.approx(wait_s)
    assert (advice.cost_usd, advice.cost_now_usd) == pytest.approx((2 * then, 2 * now))
    assert advice.is_worth_waiting == (wait_s > 0)
    assert abs(advice.saving.point) < 100
    if min(now, then) <= 0 and wait_s:
        assert advice.saved.startswith("$") and float(advice.saved[1:]) == pytest.approx(2 * (now - then), abs=0.006)


def test_a_short_gap_is_bridged_in_a_history_and_in_hours_to_come(tmp_path):
    first = NOW.replace(minute=0) - 30 * 24 * HOUR
    values = usual(24 * 30, first)
    whole = hourly(tmp_path / "whole.csv", values, first)
    values[::4] = np.nan
    gaps = hourly(tmp_path / "gaps.csv", values, first)
    sure, bridged = (best_start(4, intensity=path, deadline=NOW + 24 * HOUR, now=NOW) for path in (whole, gaps))
    assert bridged.saving.point == pytest.approx(sure.saving.point, abs=0.03) and sure.saving.point > 0.4
    to_come = np.full(24, 300.0)
    to_come[[8, 9, 10]] = 20, np.nan, 20
    path = hourly(tmp_path / "to_come.csv", to_come, NOW.replace(minute=0))
    assert best_start(3, intensity=path, deadline=NOW + 24 * HOUR, now=NOW).saving.point == pytest.approx(1 - 20 / 300)


def said(path, **options):
    return best_start(4, intensity=path, deadline=NOW + 36 * HOUR, now=NOW, **options)


def test_where_too_many_hours_are_unknown_it_says_so_and_no_saving(tmp_path):
    first = NOW.replace(minute=0) - 30 * 24 * HOUR
    values = usual(24 * 30, first)
    values[np.arange(len(values)) % 12 < 6] = np.nan
    advice = said(hourly(tmp_path / "gaps.csv", values, first))
    assert advice.saving is None and "too many hours are unknown" in advice.reason
    later = said(hourly(tmp_path / "later.csv", np.full(30, 300.0), NOW.replace(minute=0) + 5 * HOUR))
    assert later.saving is None and "too many hours are unknown, those of a run that starts now" in later.reason


def test_starts_in_unknown_hours_are_left_out(tmp_path):
    values = np.full(36, 300.0)
    values[5:12] = np.nan
    values[20:24] = 20
    advice = said(hourly(tmp_path / "hole.csv", values, NOW.replace(minute=0)), energy_kwh=1)
    assert advice.start_utc == NOW.replace(minute=0) + 20 * HOUR and advice.emissions_kgco2e == pytest.approx(0.02)
    assert [hour.expected for hour in advice.hours[4:13]] == [300, *[None] * 7, 300]


def test_an_old_history_is_not_used_in_silence(tmp_path):
    for days, known in ((1, True), (10, False)):
        first = NOW.replace(minute=0) - (30 + days) * 24 * HOUR
        advice = said(hourly(tmp_path / "old.csv", usual(24 * 30, first), first))
        assert (advice.saving is not None) == known and advice.sources[0].age_s > days * 86400
    assert "known until 2026-11-12 18:00 UTC, 10 days ago" in advice.reason


def test_quarters_of_an_hour_and_stretches_of_six_hours_are_read_by_the_hour(tmp_path):
    first = NOW.replace(hour=0, minute=0)
    quarters = hourly(tmp_path / "15min.csv", np.tile([100.0, 200, 300, 400], 48), first, step=HOUR / 4)
    found = one(quarters, None)
    assert found.history.values.tolist() == [250.0] * 18 and found.given.values.tolist() == [250.0] * 48
    sixes = hourly(tmp_path / "6h.csv", np.array([100.0, 200, 300, 400, 500]), first, step=6 * HOUR)
    assert one(sixes, None).given.values.tolist() == np.repeat([100.0, 200, 300, 400, 500], 6).tolist()


def test_a_file_of_local_times_is_of_the_same_hours_on_the_night_of_the_change(tmp_path):
    now = datetime(2026, 10, 24, 20, 0, tzinfo=UTC)
    rows = []
    for n in range(24):
        local = (now + n * HOUR).astimezone(ZoneInfo("Europe/Berlin"))
        rows.append(f"{local.isoformat()},{20 if n in (4, 5) else 300}\n")  # 02:00, which comes twice
    path = tmp_path / "local.csv"
    path.write_text("utc,gco2e_per_kwh\n" + "".join(reversed(rows)))
    advice = best_start(2, intensity=path, deadline=now + 20 * HOUR, now=now)
    assert advice.start_utc == now + 4 * HOUR and advice.saving.point == pytest.approx(1 - 20 / 300)


def test_yearly_averages_tell_one_region_from_another_once():
    options = {"intensity": "table", "deadline": NOW + 24 * HOUR, "now": NOW, "energy_kwh": 2}
    advice = best_start(4, regions=["DE", "FR"], **options)
    assert (advice.region, advice.wait_s, advice.is_worth_waiting) == ("FR", 0.0, True)
    germany, france = (row.intensity_gco2e_per_kwh for row in advice.alternatives)
    assert advice.saving.point == pytest.approx(1 - france / germany) and advice.saving.point > 0.5
    assert advice.emissions_kgco2e == pytest.approx(2 * france / 1000)
    assert advice.emissions_now_kgco2e == pytest.approx(2 * germany / 1000)
    here = best_start(4, regions=["FR", "DE"], **options)
    assert (here.region, here.is_worth_waiting) == ("FR", False) and "no other region" in here.reason
