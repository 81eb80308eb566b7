"""The cells of a table that sums runs; a sum that lacks runs carries a star."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.partial import Partial, Totals
from greenlove_tracker.report.document import Block, Column, Paragraph

STAR = "*"
STAR_NOTE = "* without the runs for which it is unknown"
SUM_COLUMNS = (
    Column("time", 1.4, is_number=True),
    Column("energy", 1.5, is_number=True),
    Column("CO2e", 1.4, is_number=True),
    Column("cost", 1.5, is_number=True),
)


@dataclass(frozen=True)
class Sums:
    """What some runs come to."""

    partial: Partial

    @cached_property
    def totals(self) -> Totals:
        """Each sum, rounded."""
        return self.partial.totals

    @property
    def gpu_hours(self) -> str:
        """GPU-hours without their unit; a dash where no run had a GPU."""
        totals = self.totals
        if totals.gpu_hours is None:
            return fmt.UNKNOWN
        text = fmt.significant(totals.gpu_hours) if totals.gpu_hours else "–"
        return _starred(text, totals.gpu_hours, totals.n_unknown_gpu_hours)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Time, energy, CO2e and cost."""
        totals = self.totals
        return (
            fmt.duration(totals.duration_s or None),
            _starred(fmt.energy(totals.energy_kwh), totals.energy_kwh, totals.n_unknown_energy),
            _starred(fmt.mass(totals.emissions_kgco2e), totals.emissions_kgco2e, totals.n_unknown_emissions),
            _starred(fmt.money(totals.cost_usd), totals.cost_usd, totals.n_unknown_cost),
        )


def _starred(text: str, value: float | None, n_unknown: int) -> str:
    return text + STAR if value is not None and n_unknown else text


def star_note(rows: Sequence[tuple[str, ...]]) -> tuple[Block, ...]:
    """What the stars in a table say; nothing where it has none."""
    has_star = any(cell.endswith(STAR) for row in rows for cell in row[1:])
    return (Paragraph(STAR_NOTE, is_note=True),) if has_star else ()
