"""The page that says how each number was obtained, with arithmetic that a reader can repeat."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.format import Scale, energy_scale, mass_scale, significant
from greenlove_tracker.logs.calibration import Calibration, counted_kwh
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_factors import factors_of
from greenlove_tracker.logs.uncertainty import MeasurementError, errors_of
from greenlove_tracker.records import COMPONENTS, Factor, RunSummary
from greenlove_tracker.rendering.document import Block, Calculation, Calculations, Column, Heading, Paragraph, Table
from greenlove_tracker.report import wording
from greenlove_tracker.report.wording import unmetered_text

_TIME = (
    "Durations are read from a steady clock, on a GPU after it has finished its work. A run's time is its epochs and "
    "the time between them."
)
_ENERGY = (
    "Energy is metered by component. A counter is an energy counter of the hardware (RAPL, NVML); power readings are "
    "the hardware's own, integrated over time. Both are measurements. The power of a CPU by its load, as a rule its "
    "rated power (TDP) × (0.1 + 0.9 × load³), and a constant power of the memory by its size, both CodeCarbon's, are "
    "models. Time without a meter is estimated at the mean metered power. PUE stands for cooling and power supply of "
    "the data centre."
)
_SCOPE = (
    "Operational emissions only. Not in these figures: "
    + ", ".join(wording.NOT_COUNTED)
    + ". The carbon intensity is an average over a year and a grid: it reflects neither the hour of the run nor its "
    "own error. On your own machine these emissions are scope 2, on a rented one scope 3. The upstream part of a "
    "lifecycle intensity (building power plants, supplying fuel) is scope 3 on both."
)
_ERRORS = (
    "In 95 of 100 cases the true energy lies within these ranges. Errors of one method add up, since its meters err "
    "together; errors of different methods are added in quadrature. The ranges of CO2e and of the "
    "cost of electricity come from the energy alone."
)
NO_ERROR_OF = "The errors of the carbon intensity, the price and the PUE are not in the ranges."
_RECOMPUTED = "Recomputed from the log, to six digits. Any calculator gives the same:"


def method_blocks(
    run: Run, before: Sequence[Block] = (), factors: Sequence[Factor] = (), errors: Sequence[Block] | None = None
) -> tuple[Block, ...]:
    """Return the method of a run; ``before`` stands before its arithmetic, ``factors``, ``errors`` replace its own."""
    lines = run_calculations(run)
    mismatch = _mismatch(run, lines)
    return (
        Heading("How each number was obtained"),
        Paragraph(_TIME),
        Paragraph(_ENERGY),
        *before,
        *((Paragraph(_RECOMPUTED), Calculations(tuple(lines))) if lines else ()),
        *((Paragraph(mismatch),) if mismatch else ()),
        Paragraph(wording.measured_sentence(run) + "."),
        *((Paragraph(scope),) if not before and (scope := wording.beyond_gpus_of(run)) else ()),
        *(error_blocks(run) if errors is None else errors),
        Heading("Factors"),
        factor_table(factors or factors_of(run)),
        Paragraph(_SCOPE),
    )


def error_blocks(run: Run) -> tuple[Block, ...]:
    """Return how far each method may be off, with its source; nothing where no energy is known."""
    if run.summary.energy_kwh is None:
        return ()
    if run.calibration is not None:
        text = f"The energy is {wording.calibration_text(run)}. {calibration_source(run.calibration)}."
        return (Heading("Uncertainty"), Paragraph(text), Paragraph(NO_ERROR_OF, is_note=True))
    errors = errors_of(run)
    if errors is None:
        text = "The log names no method for some of the energy, so no interval can be given."
        return (Heading("Uncertainty"), Paragraph(text))
    columns = (
        Column("energy", 1.5),
        Column("true energy, of the figure", 1.7),
        Column("basis", 1.0),
        Column("source", 4),
    )
    return (
        Heading("Uncertainty"),
        Paragraph(_ERRORS),
        Table(columns, tuple(map(_error_row, errors))),
        Paragraph(NO_ERROR_OF, is_note=True),
    )


def _error_row(error: MeasurementError) -> tuple[str, ...]:
    sampled = f"; ±{fmt.percent(error.after_1_s)} for 1 s, less for longer" if error.after_1_s else ""
    name = f"{_COMPONENT.get(error.component, error.component)}, {error.method.replace('_', ' ')}"
    return (name, f"{fmt.percent(error.lower)} to {fmt.percent(error.upper)}{sampled}", error.basis, error.source)


_COMPONENT = {"cpu": "CPU", "gpu": "GPU", "ram": "memory", "unmetered": "time without a meter"}


def calibration_source(calibration: Calibration) -> str:
    """Name the wall meters behind a run's calibration, and when they were compared."""
    return "; ".join(
        f"{fmt.shortened(one.run_id, 40)}: {fmt.energy(one.wall_kwh)} at the wall, {fmt.energy(one.metered_kwh)} "
        f"metered ({fmt.shortened(one.origin, 130)})"
        for one in calibration.measurements
    )


def run_calculations(run: Run) -> list[Calculation]:
    """Return time, energy, CO2e, share, cost and GPU-hours as arithmetic; the unknown is left out."""
    lines = [_time(run)] if run.summary.duration_s else []
    energy, total = _energy(run)
    lines += energy
    if total is not None:
        lines += _share(run) + _from_energy(run, total)
    return lines + _machine(run)


def _time(run: Run) -> Calculation:
    summary = run.summary
    terms = [number(summary.epochs_duration_s, "s"), number(summary.between_s, "s")]
    return sum_of("time: in epochs + outside them", terms, "s")[0]


def _energy(run: Run) -> tuple[list[Calculation], Number | None]:
    """Sum the components; return the sum, calibrated and with PUE, in the unit of the total as well."""
    calibration = run.calibration if run.cut is None else None  # what was metered of a part is not kept
    summary = run.summary if calibration is None else run.metered_summary
    if summary.energy_kwh is None:
        return [], None
    scale = energy_scale(run.summary.energy_kwh or 0.0)
    known = [e for c in COMPONENTS if (e := summary.energy.component_kwh(c)) is not None]
    names = [c for c in COMPONENTS if summary.energy.component_kwh(c) is not None]
    terms = [number(scale.value(e), scale.unit) for e in known]
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
    label = f"estimate for {unmetered_text(run)}"
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
    summary = run.summary
    lines = []
    per_kwh = energy_scale(summary.energy_kwh or 0.0).per_canonical
    energy_kwh = total
    if per_kwh != 1:
        conversion, energy_kwh = product_of("the same in kWh", [total], "kWh", scale=1 / per_kwh)
        lines.append(conversion)
    emissions = run.emissions_kgco2e
    if emissions is not None:
        factors = [energy_kwh, number(run.carbon_intensity.value, "gCO2e/kWh")]
        scale = mass_scale(emissions)
        lines.append(product_of("CO2e", factors, f"{scale.unit}CO2e", scale=scale.per_canonical / 1e3)[0])
    if summary.cost_basis == "electricity" and run.electricity_price:
        price = number(run.electricity_price.value, "USD/kWh")
        lines.append(product_of("cost of electricity", [energy_kwh, price], "USD")[0])
    return lines


def _share(run: Run) -> list[Calculation]:
    """Derive the part of the energy, before PUE, that hardware measured."""
    summary = run.summary
    whole_kwh = summary.before_pue_kwh
    if not summary.measured_kwh or not whole_kwh:
        return []
    return [share_of("share that hardware measured, as logged", summary.measured_kwh, whole_kwh)]


def share_of(label: str, measured_kwh: float, whole_kwh: float) -> Calculation:
    """Write ``measured ÷ whole × 100``, both before PUE."""
    scale = energy_scale(whole_kwh)
    measured, whole = (number(scale.value(e), scale.unit) for e in (measured_kwh, whole_kwh))
    result = number(measured.value / whole.value * 100, "%")
    return Calculation(label, f"{measured} ÷ {whole} × 100", str(result))


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


def _mismatch(run: Run, lines: Iterable[Calculation]) -> str:
    """Return a warning where the log's own total is not the sum of its parts: it was changed or damaged."""
    summary = run.summary
    if summary.energy_kwh is None:
        return ""
    scale = energy_scale(summary.energy_kwh)
    labels = {line.label.partition(":")[0]: line.result for line in lines}
    shown = labels.get("energy with PUE", labels.get("energy", ""))
    if not shown or agrees(Number(shown.split()[0], scale.unit), scale.value(summary.energy_kwh)):
        return ""
    logged = fmt.energy(summary.energy_kwh)
    return f"The log's own total is {logged}, but its parts add up to something else: the log was changed or damaged."


def factor_table(factors: Iterable[Factor]) -> Table:
    """Return the factors with their values and sources, each once."""
    columns = (Column("factor", 1.5), Column("value", 1.1, is_number=True), Column("unit", 1.0), Column("source", 4.4))
    return Table(columns, tuple(dict.fromkeys(_factor_row(factor) for factor in factors)))


def _factor_row(factor: Factor) -> tuple[str, ...]:
    name = factor.name.replace("_", " ")
    if not factor.unit:
        return (name, fmt.UNKNOWN, "", fmt.shortened(factor.source, wording.FIELD_WIDTH))
    details = [fmt.shortened(t, wording.FIELD_WIDTH) for t in (factor.source, factor.year, factor.basis)]
    if factor.table_sha256:
        details.append(f"table SHA-256 {fmt.shortened(factor.table_sha256, 64)[:16]}…")
    text = "; ".join(detail for detail in details if detail)
    return (name, number(factor.value).text, fmt.shortened(factor.unit, 20), text)


# -- Arithmetic that comes out as printed: every result is computed from the rounded figures that stand before it --

_DIGITS = 6


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


def number(value: float, unit: str = "", digits: int = _DIGITS) -> Number:
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
