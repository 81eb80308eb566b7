"""Opens the carbon intensity that a user names, at the place and the addresses that the settings have."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from greenlove_tracker.config import load_settings
from greenlove_tracker.console import say
from greenlove_tracker.grid.live.fallback import LIVE, SERVICES, IntensityFallbacks, open_intensity, parse_base_urls
from greenlove_tracker.grid.live.intensity import IntensityProvider
from greenlove_tracker.grid.place import AUTO, grid_place


def opened_intensity(
    intensity: str | Path | IntensityFallbacks | IntensityProvider, country: str | None = None
) -> IntensityFallbacks:
    """Return what answers of the carbon intensity; no service is asked yet.

    Args:
        intensity: a name such as ``live`` or ``eia``, a CSV file, or what answers already.
        country: or part of a grid; default: that of the settings. ``auto`` is looked up where a service is named.

    Raises:
        UsageError: for what cannot be meant.
    """
    if isinstance(intensity, IntensityFallbacks):
        return intensity
    settings = load_settings()
    place = grid_place(found_place(settings.country if country is None else country, intensity))
    if not isinstance(intensity, str | Path):
        return IntensityFallbacks(place, (intensity,))
    return open_intensity(str(intensity), place, base_urls=parse_base_urls(settings.intensity_urls))


def asks_network(intensity: object) -> bool:
    """Return whether an intensity is that of a service, by its name."""
    return intensity in (LIVE, *SERVICES)


def found_place(country: str, intensity: object) -> str:
    """Return a country as it is; ``auto`` is looked up by network where a service is asked too, else it is unknown."""
    if country.strip().lower() != AUTO:
        return country
    if not asks_network(intensity):
        return ""
    from greenlove_tracker.grid.live.own_place import own_country  # only who asks for it loads it

    return own_country(_say_once)


@cache
def _say_once(message: str) -> None:
    """Say what would be said again with each question of a wait."""
    say(f"greenlove: {message}")
