import pytest
from intensity_server import Reply

from greenlove_tracker import Tracker
from greenlove_tracker.grid.live import own_place
from greenlove_tracker.grid.live.own_place import own_country
from greenlove_tracker.logs.run import Run

# The fields of the service's documentation, https://www.geojs.io/docs/v1/endpoints/geo/
VIRGINIA = {
    "ip": "192.0.2.7",
    "country": "United States",
    "country_code": "US",
    "country_code3": "USA",
    "continent_code": "NA",
    "city": "Ashburn",
    "region": "Virginia",
    "latitude": "39.0437",
    "longitude": "-77.4875",
    "accuracy": 20,
    "timezone": "America/New_York",
    "organization_name": "Example",
    "asn": 64512,
}


@pytest.fixture
def warnings(server, monkeypatch):
    """What was warned of, while the service is the local server and nothing was asked before."""
    monkeypatch.setattr(own_place, "ADDRESS", f"{server.url}/v1/ip/geo.json")
    monkeypatch.setattr(own_place, "ANSWER_S", 60.0)
    own_place._looked_up.cache_clear()
    yield []
    own_place._looked_up.cache_clear()


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        (VIRGINIA, "US-VA"),
        ({"country_code": "US", "region": "District of Columbia"}, "US-DC"),
        ({"country_code": "CA", "region": "Québec"}, "CA-QC"),
        ({"country_code": "CA", "region": "Newfoundland and Labrador"}, "CA-NL"),
        ({"country_code": "DE", "region": "Hesse"}, "DE"),
        ({"country_code": "de"}, "DE"),
        ({"country_code": "US"}, "US"),
        ({"country_code": "US", "region": "Elsewhere"}, "US"),
        ({"country_code": "XK", "region": None}, "XK"),
    ],
)
def test_the_place_is_the_country_and_in_north_america_the_state(server, warnings, answer, place):
    server.always(Reply(answer))
    assert own_country(warnings.append) == place
    assert not warnings


def test_it_is_asked_once_and_sends_nothing_but_the_question(server, warnings):
    server.always(Reply(VIRGINIA))
    for _ in range(2):
        assert own_country(warnings.append) == "US-VA"
    (asked,) = server.asked
    assert not asked.query and asked.headers["user-agent"] == "greenlove_tracker"
    assert set(asked.headers) <= {"host", "user-agent", "accept", "accept-encoding", "connection"}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=500), "500"),
        (Reply(status=429), "429"),
        (Reply(b"<html>"), "127.0.0.1"),
        (Reply({"country_code": "ZZ"}), "another shape"),
        (Reply({"country_code": 49}), "another shape"),
        (Reply([]), "another shape"),
        (Reply({"country": "United States"}), "another shape"),
    ],
)
def test_without_an_answer_it_is_the_worlds_average_with_a_warning(server, warnings, reply, reason):
    server.always(reply)
    assert own_country(warnings.append) == ""
    n_asked = len(server.asked)
    assert own_country(warnings.append) == ""
    assert len(server.asked) == n_asked  # a second run of this process does not wait again
    assert warnings[0].startswith("country=auto: ") and reason in warnings[0]
    assert "the world's average is counted with" in warnings[0]


def test_an_answer_that_trickles_is_not_waited_for(server, warnings, monkeypatch):
    monkeypatch.setattr(own_place, "ANSWER_S", 0.2)
    server.always(Reply(VIRGINIA, headers={"X-Slow": "1"}, trickle_s=0.05))
    assert own_country(warnings.append) == ""
    assert "did not answer in time" in warnings[0]


def test_a_run_logs_the_place_that_was_found(server, warnings, tmp_path, caplog):
    server.always(Reply({"country_code": "FR", "region": "Île-de-France"}))
    with Tracker(epochs=1, log_dir=str(tmp_path / "logs"), verbose=0, country="auto", sim_gpu_w=100) as tracker:
        tracker.epoch_start()
        tracker.epoch_end()
    run = Run(tracker.run_dir)
    assert run.text("country") == "FR" and run.carbon_intensity.source.startswith("France")
    assert not caplog.records and len(server.asked) == 1


def test_a_run_without_an_answer_goes_on_with_one_warning(server, warnings, tmp_path, caplog):
    server.always(Reply(status=503))
    with Tracker(epochs=1, log_dir=str(tmp_path / "logs"), verbose=0, country="auto", sim_gpu_w=100) as tracker:
        tracker.epoch_start()
        tracker.epoch_end()
    run = Run(tracker.run_dir)
    assert run.text("country") == "" and run.carbon_intensity.source.startswith("world average")
    assert [r.levelname for r in caplog.records if "country=auto" in r.getMessage()] == ["WARNING"]
