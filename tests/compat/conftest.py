from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from intensity_server import IntensityServer, serving


@pytest.fixture
def electricity_maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[IntensityServer]:
    """A server that answers as Electricity Maps does: 322 gCO2e/kWh in this hour."""
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        hour = f"{datetime.now(UTC):%Y-%m-%dT%H:00:00.000Z}"
        latest = {"zone": "DE", "carbonIntensity": 322, "datetime": hour, "isEstimated": False}
        server.by_path({"/v3/carbon-intensity/latest": latest})
        monkeypatch.setenv("GREENLOVE_INTENSITY_URLS", f"electricity_maps={server.url}")
        yield server
