"""All rules for writing numbers. Units adapt: 0.200 Wh, not 0.000200 kWh; None is "unknown"."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from greenlove_tracker.vocabulary.forecasting import FITS, Estimate
from greenlove_tracker.vocabulary.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.vocabulary.forecasting import TimeFit, TrainingPlan
    from greenlove_tracker.vocabulary.phases import Phase

UNKNOWN = "unknown"
_FEW = 5  # below which a share says nothing
_SECONDS_TOLD_S = 600  # the seconds of a longer time may be left out
_MOST_TOLD = 0.99  # of a probability: the tails of a forecast beyond it are an assumption

_ENERGY_STEPS = ((1e-6, "GWh"), (1e-3, "MWh"), (1, "kWh"), (1e3, "Wh"), (1e6, "mWh"), (1e9, "µWh"))
_POWER_STEPS = ((1e-6, "MW"), (1e-3, "kW"), (1, "W"), (1e3, "mW"))
_MASS_STEPS = ((1e-6, "kt"), (1e-3, "t"), (1, "kg"), (1e3, "g"), (1e6, "mg"))

Steps = tuple[tuple[float, str], ...]  # factor and name of each unit, the largest first
Text = Callable[[float | None], str]  # one of the functions below


def significant(value: float, digits: int = 3) -> str:
    """Write ``value`` with about ``digits`` significant digits, in plain notation with thousands separators."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded value: 999.9 is 1.00e3
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def _rounded(value: float) -> float:
    return float(f"{value:.2e}")


def _scaled(value: float | None, steps: Steps) -> str:
    """Write ``value`` in the largest unit of ``steps``, (factor, name) each, that shows it as at least 1."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    factor, unit = next(((f, u) for f, u in steps if abs(_rounded(value * f)) >= 1), steps[-1])
    if value == 0:
        unit = next(u for f, u in steps if f == 1)
    return f"{significant(value * factor)} {unit}"


def energy(value_kwh: float | None) -> str:
    """Write an energy in kWh, from µWh to GWh."""
    if value_kwh is not None and 0.1 <= abs(value_kwh * 1e3) < 1:
        return f"{significant(value_kwh * 1e3)} Wh"  # 0.200 Wh reads better than 200 mWh
    return _scaled(value_kwh, _ENERGY_STEPS)


def mass(value_kgco2e: float | None) -> str:
    """Write a mass of CO2e in kg, from mg to kt."""
    if value_kgco2e is not None and 0.01 <= abs(value_kgco2e * 1e3) < 1:
        return f"{significant(value_kgco2e * 1e3)} g"
    return _scaled(value_kgco2e, _MASS_STEPS)


def power(value_w: float | None) -> str:
    """Write a power in W, from mW to MW."""
    return _scaled(value_w, _POWER_STEPS)


def memory(value_bytes: float | None) -> str:
    """Write a size in memory, from bytes to GiB."""
    return _scaled(value_bytes, ((1 / 1024**3, "GiB"), (1 / 1024**2, "MiB"), (1 / 1024, "KiB"), (1, "B")))


def money(value_usd: float | None) -> str:
    """Write a sum in US dollars; small sums keep two significant digits."""
    if value_usd is None or not math.isfinite(value_usd):
        return UNKNOWN
    if value_usd == 0:
        return "$0"
    if value_usd < 0:
        return f"-{money(-value_usd)}"
    if value_usd >= 999.995:
        return f"${value_usd:,.0f}"
    if value_usd >= 0.1:
        return f"${value_usd:.2f}"
    if value_usd < 1e-6:
        return "under $0.000001"
    return f"${significant(value_usd, 2)}"


def duration(value_s: float | None) -> str:
    """Write a duration in s, each number with its unit: 4.20 ms, 42.3 s, 3 min 8 s, 2 h 5 min, 1 d 5 h.

    `parse_span_s` of `greenlove_tracker.scheduling.times` reads all of it.
    """
    if value_s is None or not math.isfinite(value_s):
        return UNKNOWN
    if value_s < 0:
        return f"-{duration(-value_s)}"
    if 0 < _rounded(value_s) < 1:
        return f"{significant(value_s * 1e3)} ms"
    if value_s < 59.95:
        return f"{significant(value_s)} s"
    seconds = round(value_s)
    minutes = round(value_s / 60)
    hours = round(value_s / SECONDS_PER_HOUR)
    if seconds < SECONDS_PER_HOUR:  # of the rounded value: 3599.7 s is 1 h
        parts = ((seconds // 60, "min"), (seconds % 60, "s"))
    elif minutes < 24 * 60:
        parts = ((minutes // 60, "h"), (minutes % 60, "min"))
    else:
        parts = ((hours // 24, "d"), (hours % 24, "h"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def brief_duration(value_s: float | None) -> str:
    """Write a duration in s in little room: from 10 min on without seconds."""
    if value_s is None or not math.isfinite(value_s) or abs(value_s) < _SECONDS_TOLD_S:
        return duration(value_s)
    return duration(value_s if abs(value_s) > SECONDS_PER_DAY else round(value_s / 60) * 60)


QUANTITIES: dict[str, tuple[str, Text]] = {
    "duration_s": ("time", duration),
    "energy_kwh": ("energy", energy),
    "emissions_kgco2e": ("CO2e", mass),
    "cost_usd": ("cost", money),
}
"""What a run takes: its short name and its text, by the name of the field."""


def bounds(estimate: Estimate, text: Text, joint: str = " – ") -> str:
    """Write both ends of an interval: ``39 min 38 s – 42 min 6 s``; an energy or a mass in the unit of its point.

    Args:
        estimate: a quantity with its interval.
        text: one of the functions above, for the quantity's unit.
        joint: between the ends; `` to `` in running text.
    """
    if not estimate.has_interval:
        return "no interval"
    lower, upper = _ends(estimate, text)
    return f"{lower}{joint}{upper}"


def _ends(estimate: Estimate, text: Text) -> tuple[str, str]:
    unit = text(estimate.point).rpartition(" ")[2]
    steps: Steps = ()
    if text is energy:
        steps = _ENERGY_STEPS
    elif text is mass:
        steps = _MASS_STEPS
    factor = next((factor for factor, name in steps if name == unit), None)
    if factor is None:
        return text(estimate.lower), text(estimate.upper)
    return f"{significant(estimate.lower * factor)} {unit}", f"{significant(estimate.upper * factor)} {unit}"


def interval(estimate: Estimate, text: Text) -> str:
    """Write an estimate with its interval: ``40 min 51 s [39 min 38 s – 42 min 6 s]``, ``$18 [$12–$26]``.

    The dash has spaces if an end has several words.
    """
    ends = _ends(estimate, text)
    return f"{text(estimate.point)} [{bounds(estimate, text, ' – ' if ' ' in ends[0] + ends[1] else '–')}]"


def clock_time(utc_s: float, now_utc_s: float) -> str:
    """Write a moment as local time: Sat 12:03, or with its date if it is a week away or more."""
    try:
        local = datetime.fromtimestamp(utc_s).astimezone()
    except (OverflowError, OSError, ValueError):  # beyond the calendar
        return UNKNOWN
    is_near = abs(utc_s - now_utc_s) < 6 * SECONDS_PER_DAY
    if is_near:
        return f"{local:%a %H:%M}"
    return f"{local:%Y-%m-%d %H:%M}"


def end_time(left_s: Estimate, now_utc_s: float) -> str:
    """Write when something with this time left ends: ``18:42 [18:35–18:55]``; with seconds if that is soon."""
    clock = "%H:%M:%S" if left_s.upper < _SECONDS_TOLD_S else "%H:%M"

    def text(value_s: float | None) -> str:
        until_s = math.inf if value_s is None else value_s
        if until_s < SECONDS_PER_DAY:
            now, end = (datetime.fromtimestamp(now_utc_s + s).astimezone() for s in (0.0, until_s))
            if now.date() == end.date():
                return f"{end:{clock}}"
        return clock_time(now_utc_s + until_s, now_utc_s)

    return interval(left_s, text)


def slurm_time(value_s: float) -> str:
    """Write a time limit as Slurm's ``--time`` takes it, rounded up to minutes: 46:00 is written 00:46:00."""
    minutes = math.ceil(value_s / 60)
    days, rest = divmod(minutes, 1440)
    return (f"{days}-" if days else "") + f"{rest // 60:02d}:{rest % 60:02d}:00"


def percent(share: float | None, digits: int = 0) -> str:
    """Write a share in 0..1 as a percentage. A share is never rounded to 0% or 100%."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    text = f"{share * 100:.{digits}f}%"
    if share < 1 and float(text[:-1]) >= 100:
        return f">{100 - 10**-digits:.{digits}f}%"
    if share > 0 and float(text[:-1]) == 0:
        return f"<{10**-digits:.{digits}f}%"
    return text


def chance(probability: float) -> str:
    """Write a probability in whole percent, never as 0% or 100%."""
    if probability > _MOST_TOLD:
        return f"over {_MOST_TOLD:.0%}"
    if probability < 1 - _MOST_TOLD:
        return f"under {1 - _MOST_TOLD:.0%}"
    return f"{probability:.0%}"


def time_fit(fit: TimeFit) -> str:
    """Write how a training fits its time limit: ``fits with 18%; 57,000 epochs fit with 95%``."""
    text = f"fits with {chance(fit.probability)}"
    if fit.longest is None:
        return text
    return f"{text}; {longest_fit(fit)}"


def longest_fit(fit: TimeFit) -> str:
    """Write how much of a training fits its time limit: ``57,000 epochs fit with 95%``."""
    length = fit.longest or 0
    if length <= fit.done:
        if fit.done:
            text = f"no further {fit.unit} fits"
        else:
            text = f"not one {fit.unit} fits"
    else:
        text = f"{plural(length, fit.unit)} {'fits' if length == 1 else 'fit'}"
    return f"{text} with {FITS:.0%}"


def count(value: float | None) -> str:
    """Write a whole number with thousands separators, in the space of a table cell."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{significant(value / 1e6)} M"


def plural(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 run``, ``2 runs``, ``2 batches``."""
    ending = "es" if noun.endswith(("tch", "s", "x")) else "s"
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def plan(planned: TrainingPlan | None) -> str:
    """Write a plan: ``50,000 samples · batch 128 · 100 epochs``, or its steps; empty without one."""
    if planned is None:
        return ""
    if (planned.batch_size, planned.epochs) == (1, 1):
        return plural(planned.samples or 0, "sample")
    if planned.samples is None:
        data = ""
    else:
        data = f"{plural(planned.samples, 'sample')} · batch {planned.batch_size} · "
    if len(planned.phases) > 1:
        phases = f" in {plural(len(planned.phases), 'phase')}"
    else:
        phases = ""
    if planned.steps is None:
        return data + plural(planned.epochs or 1, "epoch") + phases
    accumulated = planned.batches_per_step or 1
    return data + plural(planned.steps, "step") + (f" of {accumulated} batches" if accumulated > 1 else "") + phases


def expected_stop(stop: Estimate, most_epochs: int) -> str:
    """Write where early stopping may end a training: ``stops after about 14 of 50 epochs (95%: 9 to 22)``."""
    whole = plural(most_epochs, "epoch")
    ends = f"{stop.lower:,.0f} to {stop.upper:,.0f}"
    if stop.lower == stop.upper == most_epochs:
        return f"goes through all {whole}"
    if stop.lower == stop.upper:
        return f"stops after {stop.point:,.0f} of {whole}"
    if stop.point >= most_epochs:
        return f"may stop early, and more likely after all {whole} ({stop.level:.0%}: {ends})"
    return f"stops after about {stop.point:,.0f} of {whole} ({stop.level:.0%}: {ends})"


def phase_name(phase: Phase) -> str:
    """Write a phase by its name, or by the work of a step: ``262,144 tokens``; empty if it has neither."""
    if phase.name or phase.measure is None:
        return phase.name or ""
    if phase.data_share is not None:
        return f"{percent(phase.data_share)} of the data"
    measure = phase.measure.removesuffix("_per_step")
    return f"{phase.work:,.10g} {'of work' if measure == 'work' else measure}"


def error(share: float) -> str:
    """Write a relative error with its sign; an error that rounds to 0 has no sign."""
    text = f"{share:+.1%}"
    if text in ("+0.0%", "-0.0%"):
        return "0.0%"
    return text.replace("-", "−")


def held(n_held: int, n: int) -> str:
    """Write how often intervals held, and the 95% interval of that share: ``19 of 20, 95% (76% to 99%)``.

    Wilson's score interval (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, 209-212), which holds for few cases, too.
    """
    counted = f"{n_held:,} of {n:,}"
    if n < _FEW:
        return counted
    from scipy.stats import binomtest  # only a report of forecasts loads it

    ends = binomtest(n_held, n).proportion_ci(method="wilson")
    return f"{counted}, {n_held / n:.0%} ({ends.low:.0%} to {ends.high:.0%})"


def printable(text: str, lines: str = "\n\N{NO-BREAK SPACE}") -> str:
    """Return a text that does nothing to a terminal but show itself, wherever it comes from.

    Args:
        text: any text.
        lines: what stays beside printable characters.
    """
    return "".join(c if c.isprintable() or c in lines else " " for c in text)


def escape_formula(text: str) -> str:
    """Write ``text`` in one line, marked so that a spreadsheet does not run it as a formula."""
    line = printable(text, lines="").strip()
    if line.startswith(("=", "+", "-", "@")):
        return f"'{line}"
    return line


def shortened(text: str, width: int) -> str:
    """Cut ``text`` in the middle, to one line of at most ``width`` characters; drop control characters."""
    flat = " ".join(printable(text).split())
    if len(flat) <= width:
        return flat
    if width < 1:
        return ""
    head = width // 2
    return f"{flat[:head]}…{flat[len(flat) - (width - head - 1) :]}"


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit, and the number of decimals that its reference value was printed with."""

    unit: str
    per_canonical: float
    decimals: int

    def value(self, canonical: float) -> float:
        """Convert a number of the canonical unit into this one."""
        return canonical * self.per_canonical

    def text(self, canonical: float) -> str:
        """Write the number without its unit, with more decimals if it would round to 0."""
        scaled = self.value(canonical)
        text = f"{scaled:,.{self.decimals}f}"
        if scaled and not float(text.replace(",", "")):
            return significant(scaled, 1)
        return text


def _scale(formatter: Callable[[float], str], steps: Steps, reference: float) -> Scale:
    number, _, unit = formatter(reference).rpartition(" ")
    return Scale(unit, next(float(factor) for factor, name in steps if name == unit), len(number.partition(".")[2]))


energy_scale = partial(_scale, energy, _ENERGY_STEPS)  # each takes a reference: the unit is for what stands beside it
mass_scale = partial(_scale, mass, _MASS_STEPS)
power_scale = partial(_scale, power, _POWER_STEPS)


def time_scale(reference_s: float) -> Scale:
    """Return the unit for a time axis up to this duration."""
    if reference_s < 180:
        return Scale("s", 1.0, 1)
    if reference_s < 3 * SECONDS_PER_HOUR:
        return Scale("min", 1 / 60, 1)
    return Scale("h", 1 / SECONDS_PER_HOUR, 1)


def in_one_unit(quantity: str, reference: float) -> tuple[str, Text]:
    """Return the unit for the head of a column, and a function that writes its numbers without the unit.

    Args:
        quantity: a field of `QUANTITIES`.
        reference: a value of the column, which decides the unit.
    """
    if quantity == "cost_usd":
        return "$", lambda value: money(value).replace("$", "")
    if quantity == "duration_s":
        of_time = time_scale(reference)
        return of_time.unit, lambda value: UNKNOWN if value is None else significant(of_time.value(value))
    if quantity == "energy_kwh":
        scale = energy_scale(reference)
    else:
        scale = mass_scale(reference)
    return scale.unit, lambda value: UNKNOWN if value is None else scale.text(value)


def repetitions(number: float) -> str:
    """Write how often something is done: a whole number, or a part of it to two decimals."""
    return f"{number:,.2f}".removesuffix(".00")
