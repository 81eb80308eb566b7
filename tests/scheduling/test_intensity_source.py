"""The carbon intensity that a user names, with what the settings have of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from intensity_server import Reply, serving

from greenlove_tracker import best_start
from greenlove_tracker.grid.live import own_place
from greenlove_tracker.scheduling import intensity_source
from greenlove_tracker.scheduling.intensity_source import found_place, opened_intensity

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    own_place._looked_up.cache_clear()
    intensity_source._say_once.cache_clear()
    with serving() as found:
        monkeypatch.setattr(own_place, "ADDRESS", f"{found.url}/place")
        yield found
    own_place._looked_up.cache_clear()


def test_best_start_asks_the_addresses_of_the_settings(server, monkeypatch):
    monkeypatch.setenv("GREENLOVE_INTENSITY_URLS", f"neso={server.url}")
    server.always(Reply(status=404))
    deadline = datetime.now(UTC) + timedelta(hours=24)
    found = best_start(4, intensity="neso", regions=["GB"], deadline=deadline)
    assert server.asked and "neso: HTTP 404, not found from 127.0.0.1" in found.reason


@pytest.mark.parametrize("country", ["", "DE", "us-east-1", "automatic"])
def test_nothing_is_asked_where_a_country_or_none_is_set(server, country):
    assert found_place(country, "live") == country and not server.asked


def test_a_place_that_is_not_found_is_told_of_once(server, tmp_path, capsys):
    server.always(Reply(status=500))
    for text in ("auto", "AUTO", " auto "):
        assert opened_intensity("live", text).place.place is None
    said = capsys.readouterr().err
    assert said.count("country=auto") == 1 and said.startswith("greenlove: ")
    asked = len(server.asked)
    (tmp_path / "hours.csv").write_text("utc,gco2e_per_kwh\n2026-01-01T00:00Z,100\n")
    assert opened_intensity(tmp_path / "hours.csv", "auto").place.place is None
    assert len(server.asked) == asked and not capsys.readouterr().err
