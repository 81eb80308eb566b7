"""How each number was obtained: small tables, and arithmetic that a reader can repeat."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.format import Scale, energy_scale, mass_scale, significant
from greenlove_tracker.logs.calibration import Calibration, counted_kwh
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_factors import factors_of
from greenlove_tracker.logs.uncertainty import errors_of
from greenlove_tracker.records import COMPONENTS, Factor, RunSummary
from greenlove_tracker.rendering.document import Block, Calculation, Calculations, Column, Heading, Paragraph, Table
from greenlove_tracker.report import wording

_METHOD_ROWS = (
    ("time", "a steady clock; on a GPU after it has finished its work"),
    ("counter, power readings", "the hardware's own (RAPL, NVML): measured"),
    ("CPU modelled", "rated power (TDP) × (0.1 + 0.9 × load³), as CodeCarbon does"),
    ("memory constant", "a power by its size, as CodeCarbon does"),
    ("without a meter", "the mean metered power"),
    ("PUE", "cooling and power supply of the data centre"),
    ("not counted", ", ".join(wording.NOT_COUNTED)),
    ("scope", "2 on your own machine, 3 on a rented one; operational emissions only"),
)
METHODS = Table((Column("", 1), Column("", 4)), _METHOD_ROWS)
_ERRORS = (
    "95 of 100 true energies lie within these. Errors of one method add up; those of different ones in quadrature."
)
NO_ERROR_OF = "The errors of the carbon intensity, the price and the PUE are not in the ranges."
_COMPONENT = {"cpu": "CPU", "gpu": "GPU", "ram": "memory", "unmetered": "time without a meter"}


def method_blocks(run: Run, how: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """Return how the numbers of a run are known.

    Args:
        run: a run.
        how: the figures, with what each rests on.
    """
    lines = run_calculations(run)
    is_of_gpus = run.summary.energy.gpu_kwh and run.calibration is None  # else all of it is in the total
    return (
        Heading("How we know"),
        Table(METHODS.columns, (*how, *METHODS.rows)),
        *((Paragraph(wording.beyond_gpus(run.terms.node_overhead), is_note=True),) if is_of_gpus else ()),
        *((Calculations(tuple(lines)),) if lines else ()),
        *error_blocks(run),
        Heading("Factors"),
        factor_table(factors_of(run)),
    )


def error_blocks(run: Run) -> tuple[Block, ...]:
    """Return how far each method may be off, with its source; nothing where no energy is known."""
    errors = errors_of(run)
    if run.summary.energy_kwh is None:
        return ()
    if run.calibration is not None:
        used = (
            f"{wording.run_label(one.run_id)}: {fmt.energy(one.wall_kwh)} at the wall, {fmt.energy(one.metered_kwh)} "
            f"metered ({fmt.shortened(one.origin, 130)})"
            for one in run.calibration.measurements
        )
        text = f"The energy is calibrated: {run.calibration.text}. {'; '.join(used)}."
        return (Heading("Uncertainty"), Paragraph(text), Paragraph(NO_ERROR_OF, is_note=True))
    if errors is None:
        return (Heading("Uncertainty"), Paragraph("No interval: the log names no method for some of the energy."))
    rows = []
    for error in errors:
        name = f"{_COMPONENT.get(error.component, error.component)}, {error.method.replace('_', ' ')}"
        short = f"; ±{fmt.percent(error.after_1_s)} for 1 s" if error.after_1_s else ""
        reach = f"{fmt.percent(error.lower)} to {fmt.percent(error.upper)}{short}"
        rows.append((name, reach, error.basis, error.source))
    columns = (Column("energy", 1.5), Column("of the figure", 1.6), Column("basis", 1.0), Column("source", 4))
    note = Paragraph(f"{_ERRORS} {NO_ERROR_OF}", is_note=True)
    return (Heading("Uncertainty"), Table(columns, tuple(rows)), note)


def run_calculations(run: Run) -> list[Calculation]:
    """Return time, energy, CO2e, share, cost and GPU-hours as arithmetic; the unknown is left out."""
    summary = run.summary
    lines = []
    if summary.duration_s:
        terms = [number(summary.epochs_duration_s, "s"), number(summary.between_s, "s")]
        lines.append(sum_of("time: in epochs + outside them", terms, "s")[0])
    energy, total = _energy(run)
    lines += energy
    if total is not None:
        if summary.measured_kwh and summary.before_pue_kwh:
            lines.append(
                share_of("share that hardware measured, as logged", summary.measured_kwh, summary.before_pue_kwh)
            )
        lines += _from_energy(run, total)
    return lines + _machine(run)


def _energy(run: Run) -> tuple[list[Calculation], Number | None]:
    """Sum the components; return the sum, calibrated and with PUE, in the unit of the total as well."""
    calibration = run.calibration if run.cut is None else None  # what was metered of a part is not kept
    summary = run.summary if calibration is None else run.metered_summary
    if summary.energy_kwh is None:
        return [], None
    scale = energy_scale(run.summary.energy_kwh or 0.0)
    names = [c for c in COMPONENTS if summary.energy.component_kwh(c) is not None]
    terms = [number(scale.value(summary.energy.component_kwh(c) or 0.0), scale.unit) for c in names]
    lines, estimate = _estimate(run, summary, scale)
    if estimate is not None:
        terms.append(estimate)
        names.append("estimate" if lines else "estimate as logged")
    if summary.node_assumed_kwh and calibration is None:  # which replaces it
        terms.append(number(scale.value(summary.node_assumed_kwh), scale.unit))
        names.append(wording.node_text(run))
    head = "energy" if calibration is None else "metered"
    added, total = sum_of(f"{head}: {' + '.join(names)}", terms, scale.unit)
    lines.append(added)
    if calibration is not None:
        of_wall, total = _at_the_wall(run, calibration, total, scale)
        lines += of_wall
    if summary.pue != 1:
        with_pue, total = product_of("energy with PUE", [total, Number(str(summary.pue), name="PUE")], scale.unit)
        lines.append(with_pue)
    return lines, total


def _estimate(run: Run, summary: RunSummary, scale: Scale) -> tuple[list[Calculation], Number | None]:
    """Derive the estimate for unmetered time, where one mean power stands for all components."""
    metered_kwh = summary.energy.total_kwh
    if not summary.unmetered_estimate_kwh:
        return [], None
    logged = number(scale.value(summary.unmetered_estimate_kwh), scale.unit)
    if not metered_kwh or summary.metered_s <= 0:
        return [], logged
    factors = [number(scale.value(metered_kwh), scale.unit), number(summary.duration_s - summary.metered_s, "s")]
    divisor = number(summary.metered_s, "s")
    result = number(factors[0].value * factors[1].value / divisor.value, scale.unit)
    if not agrees(result, logged.value):
        return [], logged
    label = f"estimate for {wording.unmetered_text(run)}"
    return [Calculation(label, f"{factors[0]} × {factors[1]} ÷ {divisor}", str(result))], result


def _at_the_wall(run: Run, calibration: Calibration, metered: Number, scale: Scale) -> tuple[list[Calculation], Number]:
    """Derive the factor of a calibration, and the energy of a run with it."""
    used = calibration.measurements
    is_above = calibration.factor >= 1
    left_out_kwh = 0.0 if is_above else math.fsum(one.counted_kwh for one in used)  # what hardware measured stays
    wall, divisor = (
        number(scale.value(math.fsum(values) - left_out_kwh), scale.unit)
        for values in ((one.wall_kwh for one in used), (one.metered_kwh for one in used))
    )
    factor = number(max(0.0, wall.value / divisor.value))
    of = "at the wall ÷ metered" if not left_out_kwh else "both without what hardware measured, at least 0"
    lines = [Calculation(f"calibration factor: {of}", f"{wall} ÷ {divisor}", str(factor))]
    measured_kwh = 0.0 if is_above else counted_kwh(run.metered_summary)
    if not measured_kwh:
        product, total = product_of("energy: metered × calibration factor", [metered, factor], scale.unit)
        return [*lines, product], total
    measured = number(scale.value(measured_kwh), scale.unit)
    total = number(measured.value + (metered.value - measured.value) * factor.value, scale.unit)
    text = f"{measured} + ({metered} − {measured}) × {factor}"
    return [*lines, Calculation("energy: measured + the rest × calibration factor", text, str(total))], total


def _from_energy(run: Run, total: Number) -> list[Calculation]:
    """Derive CO2e and the cost of electricity from the energy as it was printed."""
    summary, emissions, lines = run.summary, run.emissions_kgco2e, list[Calculation]()
    per_kwh, energy_kwh = energy_scale(summary.energy_kwh or 0.0).per_canonical, total
    if per_kwh != 1:
        conversion, energy_kwh = product_of("the same in kWh", [total], "kWh", scale=1 / per_kwh)
        lines.append(conversion)
    if emissions is not None:
        factors, scale = [energy_kwh, number(run.carbon_intensity.value, "gCO2e/kWh")], mass_scale(emissions)
        lines.append(product_of("CO2e", factors, f"{scale.unit}CO2e", scale=scale.per_canonical / 1e3)[0])
    if summary.cost_basis == "electricity" and run.electricity_price:
        price = number(run.electricity_price.value, "USD/kWh")
        lines.append(product_of("cost of electricity", [energy_kwh, price], "USD")[0])
    return lines


def share_of(label: str, measured_kwh: float, whole_kwh: float) -> Calculation:
    """Write ``measured ÷ whole × 100``, both before PUE."""
    scale = energy_scale(whole_kwh)
    measured, whole = (number(scale.value(e), scale.unit) for e in (measured_kwh, whole_kwh))
    return Calculation(label, f"{measured} ÷ {whole} × 100", str(number(measured.value / whole.value * 100, "%")))


def _machine(run: Run) -> list[Calculation]:
    summary, price = run.summary, run.terms.price_usd_per_gpu_hour
    if not summary.gpu_count:
        return []
    duration = number(summary.duration_s, "s")
    count = Number(str(summary.gpu_count), "GPU" + "s" * (summary.gpu_count > 1))
    hours = number(count.value * duration.value / 3600, "GPU-h")
    lines = [Calculation("GPU-hours", f"{count} × {duration} ÷ 3600", str(hours))]
    if summary.cost_basis == "machine" and price is not None:
        lines.append(product_of("cost of the machine", [hours, number(price, "USD/GPU-h")], "USD")[0])
    return lines


def factor_table(factors: Iterable[Factor]) -> Table:
    """Return the factors with their values and sources, each once."""
    columns = (Column("factor", 1.5), Column("value", 1.1, is_number=True), Column("unit", 1.1), Column("source", 4.4))
    return Table(columns, tuple(dict.fromkeys(_factor_row(factor) for factor in factors)))


def _factor_row(factor: Factor) -> tuple[str, ...]:
    name = factor.name.replace("_", " ")
    if not factor.unit:
        return (name, fmt.UNKNOWN, "", fmt.shortened(factor.source, wording.FIELD_WIDTH))
    details = [fmt.shortened(t, wording.FIELD_WIDTH) for t in (factor.source, factor.year, factor.basis)]
    details += [f"table SHA-256 {fmt.shortened(factor.table_sha256, 64)[:16]}…"] if factor.table_sha256 else []
    return (name, number(factor.value).text, fmt.shortened(factor.unit, 20), "; ".join(filter(None, details)))


# -- Arithmetic that comes out as printed: every result is computed from the rounded figures that stand before it --


@dataclass(frozen=True, slots=True)
class Number:
    """A number as a reader sees it: ``value`` is what ``text`` says, no more."""

    text: str
    unit: str = ""
    name: str = ""

    @property
    def value(self) -> float:
        """The value that a reader would type into a calculator."""
        return float(self.text.replace(",", ""))

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.text, self.unit) if part)


def number(value: float, unit: str = "", digits: int = 6) -> Number:
    """Write ``value`` with ``digits`` significant digits; zeros that say nothing are left away."""
    text = significant(value, digits)
    return Number(text.rstrip("0").rstrip(".") if "." in text else text, unit)


def sum_of(label: str, terms: Sequence[Number], unit: str) -> tuple[Calculation, Number]:
    """Write ``a + b + c = d``."""
    result = number(math.fsum(term.value for term in terms), unit)
    return Calculation(label, " + ".join(str(term) for term in terms), str(result)), result


def product_of(label: str, factors: Sequence[Number], unit: str, *, scale: float = 1) -> tuple[Calculation, Number]:
    """Write ``a × b = c``; with ``scale`` 1000 or 1/1000 a last factor between two prefixes of a unit."""
    result = number(math.prod(factor.value for factor in factors) * scale, unit)
    tail = "" if scale == 1 else f" × {scale:,.0f}" if scale > 1 else f" ÷ {1 / scale:,.0f}"
    return Calculation(label, " × ".join(str(factor) for factor in factors) + tail, str(result)), result


def agrees(shown: Number, logged: float, tolerance: float = 1e-3) -> bool:
    """Return True where a printed result is that of the log."""
    return math.isclose(shown.value, logged, rel_tol=tolerance)
