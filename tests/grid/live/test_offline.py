from datetime import UTC, datetime, timedelta

import pytest

from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.grid.live.intensity import PointKind, Scope
from greenlove_tracker.grid.live.offline import CsvIntensity, MockIntensity, TableIntensity, mock_gco2e_per_kwh
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.vocabulary.errors import UsageError

NOW = datetime(2026, 11, 22, 12, 10, tzinfo=UTC)
DE = grid_place("DE")


def clock():
    return NOW


def at(hour):
    return datetime(2026, 11, 22, tzinfo=UTC) + timedelta(hours=hour)


def csv(tmp_path, text):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    return CsvIntensity(path, now=clock)


def hours(first, *cells):
    lines = [f"{at(first + n):%Y-%m-%dT%H:%M},{cell}" for n, cell in enumerate(cells)]
    return "\n".join(["utc,gco2e_per_kwh", *lines]) + "\n"


def test_a_file_knows_what_is_past(tmp_path):
    mine = csv(tmp_path, hours(10, 100, 110, 120, 130))
    assert mine.now(DE).gco2e_per_kwh == 120 and mine.now(DE).kind == PointKind.GIVEN
    assert [p.gco2e_per_kwh for p in mine.history(DE, at(0), at(24))] == [100, 110]  # 12:00 is not over


def test_gaps_stay_gaps(tmp_path):
    mine = csv(
        tmp_path,
        "utc,gco2e_per_kwh\n2026-11-22 06,1\n2026-11-22 07,2\n2026-11-22 08,\n2026-11-22 10,4\n2026-11-22 11,5\n",
    )
    points = mine.history(DE, at(0), at(12))
    assert [(p.start_utc, p.end_utc) for p in points] == [(at(h), at(h + 1)) for h in (6, 7, 10, 11)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,value\n1,2\n", "needs the columns utc,gco2e_per_kwh; it has time, value"),
        ("", "it has none"),
        ("utc,gco2e_per_kwh\nyesterday,2\n", "line 2: Invalid isoformat string: 'yesterday'"),
        ("utc,gco2e_per_kwh\n2026-11-22,a\n", "line 2: could not convert string to float: 'a'"),
        ("utc,gco2e_per_kwh\n2026-11-22,-1\n", "'-1', which is no intensity"),
        ("utc,gco2e_per_kwh\n2026-11-22,nan\n", "'nan', which is no intensity"),
        ("utc,gco2e_per_kwh\n2026-11-22,1\n2026-11-22,2\n", "line 3: 2026-11-22 is there twice"),
        ("utc,gco2e_per_kwh\n2026-11-22,\n", "has no figure"),
    ],
)
def test_a_bad_file_is_told_with_its_line(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        csv(tmp_path, text)


def test_the_table_says_the_same_of_all_hours():
    table = TableIntensity(clock)
    now = table.now(DE)
    factor = carbon_intensity(resolve_place("DE"))
    assert (now.gco2e_per_kwh, now.kind, now.scope) == (factor.value, PointKind.TABLE, Scope.LIFECYCLE)
    assert "Ember" in now.source and factor.year in now.source and now.age_s(NOW) is None
    (whole,) = table.history(DE, NOW - timedelta(hours=48), NOW)
    assert (whole.start_utc, whole.end_utc) == (NOW - timedelta(hours=48), NOW)
    assert table.now(grid_place("US-CA")).scope == Scope.DIRECT


def test_the_mock_peaks_at_18_and_is_lowest_at_3_and_says_that_it_is_one():
    points = MockIntensity(clock).history(DE, at(0), at(24))
    day = {p.start_utc.hour: p.gco2e_per_kwh for p in points}
    assert max(day, key=day.get) == 18 and min(day, key=day.get) == 3
    assert (day[18], day[3]) == (400, 200) and 200 < mock_gco2e_per_kwh(at(10.5)) < 400
    assert {p.kind for p in points} == {PointKind.MOCK} and points[0].source.startswith("MOCK")
