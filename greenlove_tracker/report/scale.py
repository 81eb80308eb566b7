"""One unit for several numbers: that which ``format`` gives to the largest or the total of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.units import SECONDS_PER_HOUR

_ENERGY = {"GWh": 1e-6, "MWh": 1e-3, "kWh": 1.0, "Wh": 1e3, "mWh": 1e6, "µWh": 1e9}
_MASS = {"kt": 1e-6, "t": 1e-3, "kg": 1.0, "g": 1e3, "mg": 1e6}
_POWER = {"MW": 1e-6, "kW": 1e-3, "W": 1.0, "mW": 1e3}


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit and the number of decimals that its reference was printed with."""

    unit: str
    per_canonical: float
    decimals: int

    def value(self, canonical: float) -> float:
        """A number of the canonical unit in this one."""
        return canonical * self.per_canonical

    def text(self, canonical: float) -> str:
        """The number without its unit; what the decimals would round to nothing gets as many as it needs."""
        scaled = self.value(canonical)
        text = f"{scaled:,.{self.decimals}f}"
        return fmt.significant(scaled, 1) if scaled and not float(text.replace(",", "")) else text


def _scale(formatter: Callable[[float], str], table: dict[str, float], reference: float) -> Scale:
    number, _, unit = formatter(reference).rpartition(" ")
    return Scale(unit, table[unit], len(number.partition(".")[2]))


def energy_scale(reference_kwh: float) -> Scale:
    """The unit for energies beside this one."""
    return _scale(fmt.energy, _ENERGY, reference_kwh)


def mass_scale(reference_kgco2e: float) -> Scale:
    """The unit for masses beside this one."""
    return _scale(fmt.mass, _MASS, reference_kgco2e)


def power_scale(reference_w: float) -> Scale:
    """The unit for powers beside this one."""
    return _scale(fmt.power, _POWER, reference_w)


def time_scale(reference_s: float) -> Scale:
    """The unit for an axis of time that goes up to this duration."""
    if reference_s < 180:
        return Scale("s", 1.0, 1)
    if reference_s < 3 * SECONDS_PER_HOUR:
        return Scale("min", 1 / 60, 1)
    return Scale("h", 1 / SECONDS_PER_HOUR, 1)
