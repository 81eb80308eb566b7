import pytest
from intensity_server import Reply

from greenlove_tracker.grid.live.fallback import open_intensity, parse_base_urls
from greenlove_tracker.grid.live.intensity import PointKind
from greenlove_tracker.grid.live.offline import MockIntensity
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.vocabulary.errors import UsageError

KEYS = {"ELECTRICITY_MAPS_API_KEY": "em-key"}
SERVICES = ("neso", "eia", "energy_charts", "electricity_maps")


def opened(name, place, client, server, env=()):
    urls = dict.fromkeys(SERVICES, server.url)
    return open_intensity(name, grid_place(place), client=client, base_urls=urls, env=dict(env))


@pytest.mark.parametrize(
    ("place", "order", "with_keys"),
    [
        ("GB", "neso, table", "neso, electricity_maps, table"),
        ("DE", "energy_charts, table", "energy_charts, electricity_maps, table"),
        ("DK", "energy_charts, table", "energy_charts, electricity_maps, table"),
        ("DK1", "table", "electricity_maps, table"),
        ("US-CA", "eia, table", "eia, electricity_maps, table"),
        ("PJM", "eia, table", "eia, electricity_maps, table"),
        ("ZA", "table", "electricity_maps, table"),
        ("", "table", "table"),
    ],
)
def test_the_order_ends_at_the_table(client, server, place, order, with_keys):
    assert opened("live", place, client, server).order == order
    assert opened("live", place, client, server, KEYS).order == with_keys
    assert server.asked == []  # opening asks nobody


def test_each_failure_is_named_and_the_table_answers(client, server):
    server.by_path({"/co2eq": Reply(b"<html>")})
    answer = opened("live", "DK", client, server, KEYS).now()
    assert answer.point.kind == PointKind.TABLE
    charts, maps = answer.failures
    assert charts.startswith("energy_charts: the answer of") and maps.startswith("electricity_maps: HTTP 404")


def test_the_first_that_answers_is_taken(client, server):
    found = {
        "data": [{"from": "2026-11-22T12:00Z", "to": "2026-11-22T12:30Z", "intensity": {"forecast": 1, "actual": 9}}]
    }
    server.always(Reply(found))
    answer = opened("live", "GB", client, server).now()
    assert (answer.point.gco2e_per_kwh, answer.failures) == (9, ())


@pytest.mark.parametrize(
    ("name", "place", "words"),
    [
        ("eia", "DE", "eia knows no zone for DE: energy_charts does"),
        ("neso", "", "neso knows no zone for an unknown place"),
        ("electricity_maps", "DE", "needs a key: set the environment variable ELECTRICITY_MAPS_API_KEY"),
        ("watttime", "US-CA", "no such source of carbon intensity: 'watttime'"),
        ("nesso", "GB", "no such source of carbon intensity: 'nesso'; there are live, neso"),
    ],
)
def test_what_cannot_be_opened_says_why(client, server, name, place, words):
    with pytest.raises(UsageError, match=words):
        opened(name, place, client, server)


def test_the_mock_and_a_file_stand_alone(client, server, tmp_path):
    assert opened("mock", "DE", client, server).providers[0].name == "mock"
    assert isinstance(opened("mock", "DE", client, server).providers[0], MockIntensity)
    path = tmp_path / "mine.csv"
    path.write_text("utc,gco2e_per_kwh\n2026-11-22T12:00,55\n")
    source = opened(str(path), "DE", client, server)
    assert source.order == "csv" and source.now().point.gco2e_per_kwh == 55


def test_addresses_of_a_setting():
    assert parse_base_urls(" eia=http://127.0.0.1:8000/v2, neso=https://example.org ") == {
        "eia": "http://127.0.0.1:8000/v2",
        "neso": "https://example.org",
    }
    assert parse_base_urls("") == {}
    for text in ("eia", "esso=http://127.0.0.1"):
        with pytest.raises(UsageError, match="is not service=address"):
            parse_base_urls(text)
