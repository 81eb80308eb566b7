"""What is asked of the network, how long it may take, and that no token is told."""

import copy
import dataclasses
import subprocess
import sys
import traceback

import pytest
from intensity_server import Reply, serving

from greenlove_tracker.grid.live.http_client import RequestFailed, check_address
from greenlove_tracker.vocabulary.errors import UsageError

TOKEN = "s3cret/token+of mine"


def get(client, server, **options):
    given = {"parse": lambda found: found["value"], "max_age_s": 600, **options}
    return client.get_json(f"{server.url}/figure", [("zone", "DE")], **given)


def test_a_young_answer_is_kept_and_an_old_one_is_asked_for_again(client, server, fake_time):
    server.always(Reply({"value": 1}), Reply({"value": 2}))
    first = get(client, server)
    assert first == 1
    assert server.asked[0].query == {"zone": ["DE"]}
    fake_time.pass_by(599)
    assert get(client, server) == first and len(server.asked) == 1
    fake_time.pass_by(2)
    assert get(client, server) == 2 and len(server.asked) == 2


@pytest.mark.parametrize("status", [500, 408])
def test_a_failing_service_is_asked_once_more(client, server, status):
    server.always(Reply(status=status), Reply({"value": 5}), Reply(status=status))
    assert get(client, server) == 5
    with pytest.raises(RequestFailed, match=rf"^HTTP {status} from 127\.0\.0\.1$"):
        get(client, server, max_age_s=-1)
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b'{"value": ', b"\xff\xfe", b"[" * 99999, {"other": 1}, [], None]
)
def test_what_has_another_shape_is_named_and_not_kept(client, server, body):
    server.always(Reply(body), Reply({"value": 1}))
    with pytest.raises(RequestFailed, match="another shape"):
        get(client, server)
    assert get(client, server) == 1


@pytest.mark.parametrize(
    "reply", [Reply({"value": 1}, delay_s=60), Reply(b'{"value": "' + b"x" * 100 + b'"}', trickle_s=0.05)]
)
def test_a_service_that_is_silent_or_trickles_is_left(client, server, reply):
    server.always(reply)
    with pytest.raises(RequestFailed, match="did not answer in time"):
        get(dataclasses.replace(client, timeout_s=0.2, connect_s=0.1), server)


def test_nobody_listens(client):
    with serving() as gone:
        url = gone.url
    with pytest.raises(RequestFailed, match=r"127\.0\.0\.1 cannot be reached"):
        client.get_json(f"{url}/figure", parse=lambda f: f, max_age_s=0)


def test_no_redirect_is_followed(client, server):
    with serving() as other:
        server.always(Reply(status=302, headers={"Location": f"{other.url}/figure?api_key=1"}))
        with pytest.raises(RequestFailed, match="HTTP 302"):
            get(client, server, headers={"auth-token": TOKEN})
        assert other.asked == []


def test_a_refusal_is_not_asked_again_and_the_token_that_is_sent_stands_in_no_error(client, server):
    refusals = [Reply({"error": f"bad key {TOKEN}"}, status=status) for status in (400, 401, 403, 429)]
    server.always(*refusals, Reply(b"{" + TOKEN.encode()))
    said = ("HTTP 400", "token is refused", "not allowed", "too many requests", "another shape")
    for words in said:
        with pytest.raises(RequestFailed, match=words) as caught:
            client.get_json(
                f"{server.url}/figure",
                [("api_key", TOKEN)],
                parse=lambda found: found["value"],
                max_age_s=600,
                headers={"auth-token": TOKEN},
            )
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(copy.copy(caught.value))
        assert "s3cret" not in shown
    assert len(server.asked) == len(said)  # a refusal is not asked again
    assert server.asked[0].query["api_key"] == [TOKEN] and server.asked[0].headers["auth-token"] == TOKEN


def test_no_token_is_sent_unencrypted_to_another_machine():
    with pytest.raises(UsageError, match=r"no token is sent to example\.org unencrypted"):
        check_address("http://example.org/v2", has_secrets=True)
    check_address("http://127.0.0.1:8000/v2", has_secrets=True)
    check_address("https://example.org/v2", has_secrets=True)


def test_a_tracker_loads_nothing_that_asks_the_network():
    code = (
        "import sys, greenlove_tracker; greenlove_tracker.Tracker; "
        "print([m for m in sys.modules if m.startswith(('urllib.request', 'requests', 'greenlove_tracker.grid.live'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("address", ["http://[", "https://host:port/v2", "https://", "ftp://host", "https://a?key=1"])
def test_an_address_in_the_settings_that_is_none_is_said(address):
    with pytest.raises(UsageError, match="is no address of a service"):
        check_address(address)
