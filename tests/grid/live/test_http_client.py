import contextlib
import copy
import dataclasses
import os
import socket
import subprocess
import sys
import traceback

import pytest
from intensity_server import Reply, serving

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live import http_client
from greenlove_tracker.grid.live.http_client import HttpClient, RequestFailed, default_cache_dir

TOKEN = "s3cret/token+of mine"


def get(client, server, **options):
    given = {"parse": lambda found: found["value"], "max_age_s": 600, **options}
    return client.get_json(f"{server.url}/figure", [("zone", "DE")], **given)


def test_an_answer_is_parsed_and_has_its_time(client, server, fake_time):
    server.always(Reply({"value": 7}))
    answer = get(client, server)
    assert (answer.data, answer.known_utc.timestamp(), answer.stale_reason) == (7, fake_time.utc, "")
    assert server.asked[0].query == {"zone": ["DE"]}


def test_a_young_answer_is_taken_from_the_disk_and_an_old_one_is_asked_for_again(client, server, fake_time):
    server.always(Reply({"value": 1}), Reply({"value": 2}))
    first = get(client, server)
    fake_time.pass_by(599)
    assert get(client, server) == first and len(server.asked) == 1
    fake_time.pass_by(2)
    assert get(client, server).data == 2 and len(server.asked) == 2


def test_another_query_or_another_token_is_another_answer(client, server):
    server.always(Reply({"value": 1}), Reply({"value": 2}), Reply({"value": 3}))
    assert get(client, server).data == 1
    assert get(client, server, headers={"auth-token": "another"}).data == 2
    assert (
        client.get_json(f"{server.url}/figure", [("zone", "FR")], parse=lambda f: f["value"], max_age_s=600).data == 3
    )


def test_an_older_answer_stands_in_where_the_service_fails_and_says_so(client, server, fake_time):
    server.always(Reply({"value": 1}), Reply(status=500))
    first = get(client, server)
    fake_time.pass_by(3600)
    stale = get(client, server)
    assert (stale.data, stale.known_utc) == (1, first.known_utc) and "HTTP 500" in stale.stale_reason
    fake_time.pass_by(http_client.MOST_STALE_S)
    with pytest.raises(RequestFailed, match="HTTP 500"):
        get(client, server)


def test_a_clock_that_was_set_back_makes_no_answer_young(client, server, fake_time):
    server.always(Reply({"value": 1}), Reply({"value": 2}))
    get(client, server)
    fake_time.utc -= 7200
    assert get(client, server).data == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"known_utc_s": 1e999, "data": 1}', b"\xff\x00"])
def test_a_damaged_file_on_the_disk_is_asked_for_again(client, server, damage):
    server.always(Reply({"value": 1}), Reply({"value": 2}))
    get(client, server)
    (file,) = client.cache_dir.glob("*.json")
    file.write_bytes(damage)
    assert get(client, server).data == 2
    assert get(client, server).data == 2 and len(server.asked) == 2


def test_old_files_are_removed(client, server, fake_time):
    server.always(Reply({"value": 1}))
    get(client, server)
    (old,) = client.cache_dir.glob("*.json")
    os.utime(old, (fake_time.utc - 3 * 86400,) * 2)
    other = client.cache_dir / "notes.json"
    other.write_text("not ours")
    os.utime(other, (1, 1))
    get(client, server, headers={"auth-token": "another"})
    assert not old.exists() and other.exists()


def test_a_directory_that_cannot_be_written_costs_the_cache_alone(tmp_path, server, fake_time):
    (tmp_path / "file").write_text("in the way")
    client = HttpClient(cache_dir=tmp_path / "file" / "cache", **fake_time.options())
    server.always(Reply({"value": 1}))
    assert get(client, server).data == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_a_failing_service_is_asked_once_more(client, server, status):
    server.always(Reply(status=status), Reply({"value": 5}), Reply(status=status))
    assert get(client, server).data == 5
    with pytest.raises(RequestFailed, match=rf"^HTTP {status} from 127\.0\.0\.1$"):
        get(client, server, max_age_s=0)
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "HTTP 400"), (401, "token is refused"), (403, "not allowed"), (429, "too many requests")],
)
def test_a_refusal_is_not_asked_again(client, server, status, words):
    server.always(Reply({"error": {"message": f"bad key {TOKEN}"}}, status=status, headers={"Retry-After": "3000"}))
    with pytest.raises(RequestFailed, match=words) as caught:
        get(client, server)
    assert len(server.asked) == 1 and "s3cret" not in str(caught.value)
    assert caught.value.is_passing == (status == 429)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"value": ', b"", b"\xff\xfe", b"[" * 99999])
def test_garbage_is_named_and_not_kept(client, server, body):
    server.always(Reply(body))
    with pytest.raises(RequestFailed, match="is not JSON, or broke off"):
        get(client, server)
    assert not list(client.cache_dir.glob("*"))


@pytest.mark.parametrize("body", [{"other": 1}, [], 7, None, "text"])
def test_json_of_another_shape_is_named_and_not_kept(client, server, body):
    server.always(Reply(body))
    with pytest.raises(RequestFailed, match="another shape"):
        get(client, server)
    assert len(server.asked) == 1 and not list(client.cache_dir.glob("*"))


def test_an_answer_that_breaks_off(client, server):
    server.always(Reply(b'{"value": 1}', claimed_length=500, headers={"Connection": "close"}))
    with pytest.raises(RequestFailed, match="connection broke"):
        get(client, server)


def test_a_service_that_is_silent(client, server):
    quick = dataclasses.replace(client, timeout_s=0.15)
    server.always(Reply({"value": 1}, delay_s=60))
    with pytest.raises(RequestFailed, match=r"did not answer within 0\.15 s"):
        get(quick, server)


def test_a_service_that_trickles_ends_too(client, server):
    quick = dataclasses.replace(client, timeout_s=0.2, connect_s=0.1)
    server.always(Reply(b'{"value": "' + b"x" * 100 + b'"}', trickle_s=0.05))
    with pytest.raises(RequestFailed, match=r"did not answer within 0\.3 s"):
        get(quick, server)


def test_nobody_listens(client):
    with serving() as gone:
        url = gone.url
    with pytest.raises(RequestFailed, match=r"127\.0\.0\.1 cannot be reached"):
        client.get_json(f"{url}/figure", parse=lambda f: f, max_age_s=0)


def test_a_redirect_is_followed_where_no_token_goes_along(client, server):
    server.by_path({"/figure": Reply(status=302, headers={"Location": "/other"}), "/other": {"value": 3}})
    assert get(client, server).data == 3


def test_no_token_goes_where_a_service_redirects_to(client, server):
    with serving() as other:
        other.always(Reply({"value": 3}))
        server.always(Reply(status=302, headers={"Location": f"{other.url}/figure?api_key=1"}))
        with pytest.raises(RequestFailed, match="HTTP 302"):
            get(client, server, has_secrets=True, headers={"auth-token": TOKEN})
        assert other.asked == []
        assert get(client, server).data == 3  # without a token it may


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"])
def test_a_redirect_out_of_http_is_refused(client, server, target):
    server.always(Reply(status=302, headers={"Location": target}))
    with pytest.raises(RequestFailed):
        get(client, server)


@pytest.mark.parametrize("target", ["http://127.0.0.1:port/x", "http://[1/x", f"http://{'a' * 70}.invalid/x"])
def test_a_redirect_to_what_is_no_address_is_a_failure_of_the_service(client, server, target):
    server.always(Reply(status=302, headers={"Location": target}))
    with pytest.raises(RequestFailed, match="cannot be reached"):
        get(client, server)


def test_a_circle_of_redirects_ends(client, server):
    server.always(Reply(status=302, headers={"Location": "/figure"}))
    with pytest.raises(RequestFailed):
        get(client, server)
    assert len(server.asked) < 20


def test_a_token_is_sent_but_stands_in_no_error_and_no_file(client, server):
    echo = {"value": 1, "request": {"params": {"api_key": TOKEN}}, "note": f"key={TOKEN}"}
    server.always(Reply(echo), Reply({"error": f"bad key {TOKEN}"}, status=403), Reply(b"{" + TOKEN.encode()))

    def ask(max_age_s):
        return client.get_json(
            f"{server.url}/figure",
            [("api_key", TOKEN)],
            parse=lambda found: found["value"],
            max_age_s=max_age_s,
            headers={"auth-token": TOKEN},
            has_secrets=True,
        )

    assert ask(600).data == 1
    assert server.asked[0].query["api_key"] == [TOKEN] and server.asked[0].headers["auth-token"] == TOKEN
    (file,) = client.cache_dir.glob("*")
    assert "s3cret" not in file.read_text() and "s3cret" not in file.name
    for words in ("not allowed", "not JSON"):
        with pytest.raises(RequestFailed, match=words) as caught:
            ask(0)
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(copy.copy(caught.value))
        assert "s3cret" not in shown


def test_no_token_is_sent_unencrypted_to_another_machine(client):
    with pytest.raises(UsageError, match=r"no token is sent to example\.org unencrypted"):
        client.get_json("http://example.org/x", parse=lambda f: f, max_age_s=0, has_secrets=True)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "example.org/x", "https://user:pw@example.org", "https://e.org/?a=1"]
)
def test_what_is_no_address_of_a_service(client, url):
    with pytest.raises(UsageError, match="no address of a service") as caught:
        client.get_json(url, parse=lambda f: f, max_age_s=0)
    assert "pw" not in str(caught.value)


def test_the_cache_is_where_xdg_says(tmp_path, monkeypatch):
    assert default_cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "greenlove" / "intensity"
    monkeypatch.setenv("HOME", str(tmp_path))
    for env in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert default_cache_dir(env) == tmp_path / ".cache" / "greenlove" / "intensity"


def test_importing_the_package_loads_nothing_of_a_network():
    code = (
        "import sys, greenlove_tracker, greenlove_tracker.grid, greenlove_tracker.config;"
        "print([m for m in sys.modules if m.startswith(('urllib.request', 'http', 'greenlove_tracker.grid.live'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_older_answer_hides_that_a_token_is_refused(client, server, fake_time):
    server.always(Reply({"value": 1}), Reply(status=401))
    get(client, server)
    fake_time.pass_by(3600)
    with pytest.raises(RequestFailed, match="the token is refused"):
        get(client, server)


def test_a_network_that_drops_everything_is_found_out_before_a_slow_answer(server):
    quick = HttpClient(timeout_s=60, connect_s=0.4)
    server.always(Reply({"slow": "but sure"}, delay_s=0.9))
    assert quick.get_json(server.url, parse=dict, max_age_s=0).data == {"slow": "but sure"}
    with socket.socket() as full, contextlib.ExitStack() as queue:  # Linux drops what a full queue has no room for
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(RequestFailed, match=r"did not answer within 0\.4 s"):
            quick.get_json(f"http://127.0.0.1:{full.getsockname()[1]}", parse=dict, max_age_s=0)


def test_a_server_that_speaks_plain_http_is_no_answer_over_https(server):
    with pytest.raises(RequestFailed, match="cannot be reached"):
        HttpClient(timeout_s=60).get_json(server.url.replace("http://", "https://"), parse=dict, max_age_s=0)


@pytest.mark.parametrize("address", ["http://[", "https://host:port/v2", "https://", "ftp://host"])
def test_an_address_in_the_settings_that_is_none_is_said(address):
    with pytest.raises(UsageError, match="is no address of a service"):
        http_client.check_address(address)
