"""A key of Electricity Maps as an argument, as carbontracker and green-love take it."""

from __future__ import annotations

import os
import warnings

from greenlove_tracker.grid.live.fallback import IntensityFallbacks, open_intensity, parse_base_urls
from greenlove_tracker.grid.live.services import ElectricityMaps
from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import UsageError


def intensity_now(key: str, country: str | None) -> float | None:
    """Ask Electricity Maps with this key for the present intensity in gCO2e/kWh; on failure warn and return None.

    Raises:
        UsageError: as ``intensity_by_key``.
    """
    answer = intensity_by_key(key, country).now()
    if answer.failures:
        warnings.warn(f"{'; '.join(answer.failures)}: the yearly mean of the table counts", stacklevel=3)
        return None
    return answer.point.gco2e_per_kwh


def intensity_by_key(key: str, country: str | None) -> IntensityFallbacks:
    """Return a source that asks Electricity Maps with this key, and falls back to the table.

    Raises:
        UsageError: if no place is given, or the service does not know it.
    """
    settings = load_settings({"country": country})
    if not settings.country:
        raise UsageError("a key of Electricity Maps needs the place: give its country too")
    env = {**os.environ, ElectricityMaps.key_variable: key}
    urls = parse_base_urls(settings.intensity_urls)
    return open_intensity(ElectricityMaps.name, grid_place(settings.country), base_urls=urls, env=env)
