"""carbontracker's parser: its functions and the shapes of what they return, over our reading of logs.

Directories may hold logs of carbontracker, of ours and of CodeCarbon.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

from greenlove_tracker.compat.carbontracker.components import components_of
from greenlove_tracker.compat.carbontracker.consumption import actual_of, is_stopped_early, predicted_of
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.foreign.carbontracker import CarbontrackerRun
from greenlove_tracker.logs.parser import Run, read_logs

__all__ = ["aggregate_consumption", "parse_all_logs", "parse_logs", "print_aggregate"]

PathText = str | os.PathLike[str]


def parse_all_logs(log_dir: PathText) -> list[dict[str, Any]]:
    """Every run of a directory.

    Returns:
        For each ``output_filename``, ``standard_filename``, ``components`` (as ``parse_logs`` gives them),
        ``early_stop``, ``actual`` and ``pred``: None, or ``epochs``, ``duration (s)``, ``energy (kWh)``,
        ``co2eq (g)`` and ``equivalents``. What is not known is None. The components are the epochs alone, without
        PUE; ``actual`` and ``pred`` are the whole run, with PUE. Of a run of ours or of CodeCarbon's both names are
        those of its directory or file.

    Raises:
        UsageError: where there is no such directory.
    """
    return [_entry(run) for run in _readable(log_dir)]


def _entry(run: Run) -> dict[str, Any]:
    standard, output = str(run.path), str(run.path)
    if isinstance(run, CarbontrackerRun):
        standard, output = str(run.standard or ""), str(run.output or "")
    return {
        "output_filename": output,
        "standard_filename": standard,
        "components": components_of(run),
        "early_stop": is_stopped_early(run),
        "actual": actual_of(run),
        "pred": predicted_of(run),
    }


def parse_logs(
    log_dir: PathText, std_log_file: PathText | None = None, output_log_file: PathText | None = None
) -> dict[str, dict[str, Any]]:
    """The components of one run, the latest of a directory where no log file is named.

    Returns:
        By ``gpu`` and ``cpu``, which in our logs holds the memory: ``avg_power_usages (W)`` and
        ``avg_energy_usages (J)``, arrays of epochs × devices with NaN where nothing was measured,
        ``epoch_durations (s)``, and ``devices``. Devices that are not logged one by one are one column.

    Raises:
        UsageError: where there is no run.
    """
    runs = _readable(std_log_file or output_log_file or log_dir)
    if not runs:
        raise UsageError(f"{std_log_file or log_dir} holds no run that can be read")
    return components_of(runs[-1])


def aggregate_consumption(log_dir: PathText) -> tuple[float, float, dict[str, float]]:
    """What all runs of a directory took: energy in kWh, CO2e in g, and both as equivalents.

    A run counts with what was measured; where fewer epochs were monitored than planned, with its prediction, as in
    carbontracker. What is not known is not in the sums.

    Raises:
        UsageError: where there is no such directory.
    """
    found = [counted for run in _readable(log_dir) if (counted := _counted(run)) is not None]
    equivalents: dict[str, float] = {}
    for entry in found:
        for unit, value in (entry["equivalents"] or {}).items():
            equivalents[unit] = equivalents.get(unit, 0.0) + value
    energy_kwh = math.fsum(entry["energy (kWh)"] or 0.0 for entry in found)
    return energy_kwh, math.fsum(entry["co2eq (g)"] or 0.0 for entry in found), equivalents


def _counted(run: Run) -> dict[str, Any] | None:
    actual, predicted = actual_of(run), predicted_of(run)
    if actual is None or predicted is None:
        return actual or predicted
    is_whole = is_stopped_early(run) or actual["epochs"] == predicted["epochs"]
    return actual if is_whole else predicted


def print_aggregate(log_dir: PathText) -> None:
    """Print the sums of ``aggregate_consumption`` as a sentence for a paper.

    Raises:
        UsageError: where there is no such directory.
    """
    energy_kwh, grams, equivalents = aggregate_consumption(log_dir)
    as_much = " or ".join(f"{value:.6g} {unit}" for unit, value in equivalents.items())
    tail = f", as much as {as_much}" if as_much else ""
    print(  # noqa: T201  # what it is for
        f"Training the models of this work took {energy_kwh:.6g} kWh of electricity and emitted {grams / 1000:.6g} kg "
        f"of CO2e{tail} (greenlove_tracker)."
    )


def _readable(path: PathText) -> Sequence[Run]:
    """The runs; what cannot be read is warned of by name."""
    logs = read_logs(path)
    runs = list(logs.readable())
    for problem in logs.problems:
        warnings.warn(str(problem), UserWarning, stacklevel=3)
    return runs
