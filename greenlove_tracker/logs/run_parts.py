"""The part of a run that lies in a stretch of time: whole rows, and of a row across an end its share by time.

What was not metered counts at the mean power and the mean rates of the run, wherever it is cut. Each total of a part is
a share of the run's, and the shares of adjacent parts come to 1: so they add up to the run, whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.run import Cut, Run
from greenlove_tracker.logs.schema import summary_of, summary_values
from greenlove_tracker.logs.totals import (
    TIMESTAMP_S,
    Ending,
    is_measured,
    mean_rates,
    mean_w,
    timed_stretches,
    total_duration_s,
    utc,
)
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import COMPONENTS, Flag, Row
from greenlove_tracker.units import kwh_from_w_s


def began_and_ended_s(run: Run) -> tuple[float, float]:
    """Return beginning and end of a run, in seconds since the Unix epoch; of one that goes on, its last row's end.

    Raises:
        LogError: where it is not known when it began.
    """
    ended_at = run.summary.ended_at
    try:
        began_s, ended_s = utc(run.started_at).timestamp(), utc(ended_at or run.started_at).timestamp()
    except ValueError as error:
        raise LogError("left out: it is not known when it began") from error
    if run.summary.n_ranks > 1 or not ended_at:  # the first rank does not know when the others ended
        last = [row for rows in run.timed_streams for row in rows[-1:]]
        ended_s = max([ended_s, *(start_s + duration_s for start_s, duration_s, *_ in timed_stretches(last))])
    return began_s, max(began_s, ended_s)


def part_of(run: Run, from_utc_s: float, to_utc_s: float) -> Run | None:
    """Return a run as of a stretch of time: itself where it lies within, None where it lies outside.

    A part has the totals of its time, begins and ends with it, and is else the run.

    Args:
        run: the run.
        from_utc_s: the beginning, in seconds since the Unix epoch.
        to_utc_s: the end, which is not in it.

    Raises:
        LogError: where it is not known when the run began.
    """
    return Timeline(run).part(from_utc_s, to_utc_s)


class Timeline:
    """A run by time.

    Args:
        run: the whole run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def times_s(self) -> tuple[float, float]:
        """Its beginning and end, as ``began_and_ended_s`` has them."""
        return began_and_ended_s(self._run)

    @cached_property
    def _stretches(self) -> Sequence[_Stretch]:
        """Those of ``_stretches_of``; without any, the run evenly."""
        metered = [s for s in self._run.timed_streams if not all(Flag.NO_METER in row.flags for row in s)]
        found = list(_stretches_of(metered, self._run.terms.rates))
        if any(amounts[0] > 0 for *_, amounts in found):
            return found
        began_s, ended_s = self.times_s
        return [(began_s, max(ended_s, began_s + TIMESTAMP_S), (1.0, *(0.0 for _ in _SUMS[1:])))]

    def part(self, from_utc_s: float, to_utc_s: float) -> Run | None:
        """Return what ``part_of`` returns."""
        (began_s, ended_s), run = self.times_s, self._run
        if began_s >= to_utc_s or (ended_s <= from_utc_s and began_s < from_utc_s):
            return None
        has_begin, has_end = began_s >= from_utc_s, ended_s <= to_utc_s
        if has_begin and has_end:
            return run
        from_s, to_s = -math.inf if has_begin else from_utc_s, math.inf if has_end else to_utc_s
        values = self.between(from_s, to_s)
        values["started_at"] = values["started_at"] if has_begin else _iso(from_s)
        values["ended_at"] = values["ended_at"] if has_end else _iso(to_s)
        is_split = any(
            start_s + TIMESTAMP_S < at_s < end_s - TIMESTAMP_S
            for start_s, end_s, _ in self._stretches
            for at_s in (from_s, to_s)
        )
        lines = {**run.lines, "started_at": (values["started_at"], "")}
        known = {"values": values, "summary": summary_of(values), "lines": lines, "calibration": run.calibration}
        return run.replace(cut=Cut(has_end, is_split), **known)

    def between(self, from_utc_s: float, to_utc_s: float = math.inf) -> dict[str, Any]:
        """Return the totals of a stretch of time, in seconds since the Unix epoch, as a flat row."""
        whole, sums, of_whole = self._run.values, self._sums(from_utc_s, to_utc_s), self._whole
        of_time = sums["time"] / of_whole["time"]
        share = {name: sums[name] / total if total > 0 else of_time for name, total in of_whole.items()}
        ending = Ending(whole["status"], whole["exit_code"], whole["ended_at"])
        counted = summary_values(self._run.added_up(ending, within_utc_s=(from_utc_s, to_utc_s)))
        values = {**whole, **{name: counted[name] for name in _COUNTED}}
        values |= {name: whole[name] * share[of] for name, of in _SHARED.items() if whole[name] is not None}
        if share["energy"] > 0:
            values["carbon_intensity_gco2e_per_kwh"] *= share["emissions"] / share["energy"]
        if whole["cost_usd"] is not None:
            is_of_time = whole["cost_basis"] == "machine"
            values["cost_usd"] = whole["cost_usd"] * share["time" if is_of_time else "energy"]
            if not is_of_time and of_whole["energy"] > 0:
                # beyond that share, what its energy cost more than on average: prices may be negative, and sum to zero
                dearer = sums["cost"] - of_whole["cost"] * share["energy"]
                values["cost_usd"] += dearer * (whole["energy_kwh"] or 0.0) / of_whole["energy"]
        return values

    @cached_property
    def _whole(self) -> Mapping[str, float]:
        return self._sums(-math.inf, math.inf)

    def _sums(self, from_utc_s: float, to_utc_s: float) -> Mapping[str, float]:
        found = [[0.0] * len(_SUMS)]
        for start_s, end_s, amounts in self._stretches:
            overlap_s = min(end_s, to_utc_s) - max(start_s, from_utc_s)
            if overlap_s > 0:
                found.append([amount * (overlap_s / (end_s - start_s)) for amount in amounts])
        return dict(zip(_SUMS, map(math.fsum, zip(*found, strict=True)), strict=True))


_Stretch = tuple[float, float, tuple[float, ...]]
_SUMS = ("time", *COMPONENTS, "measured", "estimate", "energy", "emissions", "cost")
_COUNTED = ("epochs_done", "steps", "batches", "samples", "tokens")  # of the rows that end in it
_SHARED = {  # totals, and the sum that they are shared out by
    **dict.fromkeys(("duration_s", "epochs_duration_s", "metered_s", "gpu_hours"), "time"),
    **{f"{component}_kwh": component for component in COMPONENTS},
    "measured_kwh": "measured",
    "unmetered_estimate_kwh": "estimate",
    **dict.fromkeys(("node_assumed_kwh", "energy_kwh"), "energy"),
    "emissions_kgco2e": "emissions",
}


def _stretches_of(streams: Sequence[Sequence[Row]], base: Rates) -> Iterator[_Stretch]:
    """Yield beginning and end of each gap and row, and what it adds to each of ``_SUMS``.

    A stream that metered nothing is taken at the mean power of the others, as in the totals of a run.
    """
    streams = sorted(streams, key=total_duration_s, reverse=True)  # the time of a run is that of the slowest
    means_w = [{c: w for c in COMPONENTS if (w := mean_w(rows, c)) is not None} for rows in streams]
    known_w = [math.fsum(of_one.values()) for of_one in means_w if of_one]
    of_others = {"": math.fsum(known_w) / len(known_w)} if known_w else {}
    mean = mean_rates(base, (row for rows in streams for row in rows))
    for n, (rows, of_stream) in enumerate(zip(streams, means_w, strict=True)):
        for start_s, duration_s, energy, row in timed_stretches(rows):
            if duration_s <= 0 and not energy.is_known:
                continue
            metered = {c: kwh for c in COMPONENTS if (kwh := energy.component_kwh(c)) is not None}
            missing_w = math.fsum(w for c, w in (of_stream or of_others).items() if c not in metered)
            metered_kwh, estimate_kwh = math.fsum(metered.values()), kwh_from_w_s(missing_w, duration_s)
            intensity = _first(row.carbon_intensity_gco2e_per_kwh, base.carbon_intensity)
            price = _first(row.electricity_price_usd_per_kwh, base.electricity_price)
            amounts = (
                duration_s if n == 0 else 0.0,
                *(metered.get(c, 0.0) for c in COMPONENTS),
                math.fsum(kwh for c, kwh in metered.items() if is_measured(energy.component_method(c))),
                estimate_kwh,
                metered_kwh + estimate_kwh,
                metered_kwh * intensity + estimate_kwh * _first(mean.carbon_intensity),
                metered_kwh * price + estimate_kwh * _first(mean.electricity_price),
            )
            yield start_s, start_s + max(duration_s, TIMESTAMP_S / 2), amounts


def _first(*rates: float | None) -> float:
    """Return the first rate that is known; 1 where none is, so that the energy counts."""
    return next((rate for rate in rates if rate is not None), 1.0)


def _iso(utc_s: float) -> str:
    return datetime.fromtimestamp(utc_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
