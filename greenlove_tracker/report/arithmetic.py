"""Arithmetic that comes out as printed: every result is computed from the rounded figures that stand before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.format import significant
from greenlove_tracker.report.document import Calculation

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Number:
    """A number as a reader sees it: ``value`` is what ``text`` says, no more."""

    text: str
    unit: str = ""
    name: str = ""

    @property
    def value(self) -> float:
        """What a reader would type into a calculator."""
        return float(self.text.replace(",", ""))

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.text, self.unit) if part)


def number(value: float, unit: str = "", digits: int = _DIGITS) -> Number:
    """``value`` with ``digits`` significant digits; zeros that say nothing are left away."""
    text = significant(value, digits)
    return Number(text.rstrip("0").rstrip(".") if "." in text else text, unit)


def sum_of(label: str, terms: Sequence[Number], unit: str) -> tuple[Calculation, Number]:
    """``a + b + c = d``."""
    result = number(math.fsum(term.value for term in terms), unit)
    return Calculation(label, " + ".join(str(term) for term in terms), str(result)), result


def product_of(label: str, factors: Sequence[Number], unit: str, *, scale: float = 1) -> tuple[Calculation, Number]:
    """``a × b = c``; with ``scale`` 1000 or 1/1000 a last factor between two prefixes of a unit."""
    result = number(math.prod(factor.value for factor in factors) * scale, unit)
    tail = "" if scale == 1 else f" × {scale:,.0f}" if scale > 1 else f" ÷ {1 / scale:,.0f}"
    return Calculation(label, " × ".join(str(factor) for factor in factors) + tail, str(result)), result


def agrees(shown: Number, logged: float, tolerance: float = 1e-3) -> bool:
    """Whether a printed result is that of the log."""
    return math.isclose(shown.value, logged, rel_tol=tolerance)
