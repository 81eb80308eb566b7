from collections.abc import Iterator

import pytest
from intensity_server import FakeTime, IntensityServer, serving

from greenlove_tracker.grid.live.http_client import HttpClient


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")  # of this machine's network: the server is here


@pytest.fixture
def server() -> Iterator[IntensityServer]:
    with serving() as found:
        yield found


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(fake_time) -> HttpClient:
    return HttpClient(timeout_s=60, **fake_time.options())
