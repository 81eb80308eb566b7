"""The place of this machine by its public address, for ``country="auto"`` alone: it asks the network.

It asks GeoJS (https://www.geojs.io/docs/v1/endpoints/geo/), which needs no key, over https. What it learns is the
public address that any server sees, and that a program called greenlove_tracker asks; nothing of the training is sent.
It answers with the country and the region where that address is registered, so behind a VPN or a proxy it is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.grid.factors import region_code
from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.place import AUTO, resolve_place

ADDRESS = "https://get.geojs.io/v1/ip/geo.json"
CONNECT_S, ANSWER_S = 0.5, 1.5  # that a run waits for it


def own_country(warn: Callable[[str], None]) -> str:
    """Return the place of this machine: ``DE``, ``US-VA``. It waits 2 s at most, and asks once in a process.

    Args:
        warn: is told why nothing was found.

    Returns:
        The empty text, which is the world's average, where nothing was found.
    """
    found, failure = _looked_up(ADDRESS)
    if failure:
        warn(f"country={AUTO}: {failure}; the world's average is counted with. Set the country where it is known")
    return found


@cache
def _looked_up(address: str) -> tuple[str, str]:
    """Return the place and an empty text, or an empty text and why there is none."""
    client = HttpClient(timeout_s=ANSWER_S, connect_s=CONNECT_S)
    try:
        return client.get_json(address, parse=_parse, max_age_s=0.0), ""
    except GreenloveError as error:
        return "", str(error)


def _parse(found: Any) -> str:
    code = found["country_code"]
    place = resolve_place(code) if isinstance(code, str) and len(code) == 2 else None
    if place is None:
        raise ValueError(f"no country: {code!r}")
    region = found.get("region")
    part = region_code(place.iso3, region) if isinstance(region, str) else ""
    return f"{code.upper()}-{part}" if part else code.upper()
