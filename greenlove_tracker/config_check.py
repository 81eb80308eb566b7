"""All that is wrong with the settings of this machine, each with where it stands: for whoever rolls them out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from greenlove_tracker.config import Settings, checked_sources, load_settings, setting_names
from greenlove_tracker.config_files import unknown_variables
from greenlove_tracker.errors import SettingError, UsageError
from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.grid.tariff import parse_tariff


def setting_problems(env: Mapping[str, str] | None = None) -> list[str]:
    """Return a sentence on each mistake in the files and variables of settings.

    No network is asked, and nothing is left behind.
    """
    env = os.environ if env is None else env
    _, problems = checked_sources(env)
    if problems := problems + unknown_variables(env, setting_names()):
        return problems
    try:
        settings = load_settings(env=env)
    except SettingError as error:
        return [f"{error}"]
    return [*settings.notes, *_of_values(settings)]


def _of_values(settings: Settings) -> Iterator[str]:
    """Yield what is wrong with values that are of the right kind."""
    try:
        carbon_intensity(resolve_place(settings.country), settings.carbon_intensity_gco2e_per_kwh)
    except UsageError as error:
        yield f"country: {error}"
    if settings.electricity_tariff:
        try:
            parse_tariff(settings.electricity_tariff)
        except UsageError as error:
            yield f"electricity_tariff: {error}"
