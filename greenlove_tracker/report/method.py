"""How each number of a run was obtained: its parts and factors, how far its energy may be off, and the sources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import factors_of
from greenlove_tracker.logs.uncertainty import error_parts
from greenlove_tracker.rendering.document import BlockIterator, Heading, Note, Paragraph, Table, Texts, columns
from greenlove_tracker.report import wording
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.records import Factor

METHODS = (
    "Time is read from a monotonic clock, after a GPU has finished. Counters and power readings are the hardware's own "
    "(RAPL, NVML): measured. A CPU without one is modelled as CodeCarbon does, by rated power (TDP) × (0.1 + 0.9 × "
    "load³), and memory by a power for its size. Time without a meter counts at the mean metered power. Not counted: "
    f"{', '.join(wording.NOT_COUNTED)}."
)
NO_ERROR_OF = "The errors of the carbon intensity, the price and the PUE are not in the ranges."
_ERRORS = (
    "These are 95% ranges; where the basis is assumed, they are our judgement. Errors of one method add up; those of "
    "different ones in quadrature."
)
_COMPONENT = {"cpu": "CPU", "gpu": "GPU", "ram": "memory", "unmetered": "time without a meter"}


def method_blocks(run: Run) -> BlockIterator:
    """Yield how the numbers of a run are known."""
    energy = run.summary.energy
    yield Heading("How we know")
    yield wording.facts_table(_how(run))
    yield Note(METHODS)
    if energy.gpu_kwh and run.calibration is None:  # else all of it is in the total
        counts_host = bool(energy.cpu_kwh or energy.ram_kwh)
        yield Note(wording.beyond_gpus(run.terms.node_overhead, counts_host=counts_host))
    yield from error_blocks(run)
    yield Heading("Factors")
    yield factor_table(factors_of(run))


def _how(run: Run) -> Iterator[Texts]:
    """Yield what each figure rests on, as a product that a reader can do again."""
    summary = run.summary
    price = run.electricity_price
    energy = fmt.energy(summary.energy_kwh)
    if summary.gpu_count:
        compute = wording.gpu_hours(summary.gpu_hours)
        if run.gpu_mean_w is not None:
            compute += f", mean {fmt.power(run.gpu_mean_w)}"
        yield "compute", compute
    if summary.energy_kwh is not None:
        yield from _energy_parts(run, summary.energy_kwh)
        yield from _energy_by_gpu(run)
        yield "measured", wording.measured_sentence(run)
    if run.calibration is not None:
        yield "calibrated", run.calibration.text
    if run.knows_carbon_intensity:
        yield "CO2e", f"{energy} × {fmt.significant(run.carbon_intensity.value)} g/kWh"
    if summary.cost_basis == "machine":
        per_hour = fmt.significant(run.terms.price_usd_per_gpu_hour or 0.0)
        yield "cost", f"machine at {per_hour} $ per GPU-hour, as set; electricity not added"
    elif summary.cost_usd is not None and price is not None:
        yield "cost", f"electricity: {energy} × {fmt.significant(price.value)} $/kWh"


def _energy_parts(run: Run, whole_kwh: float) -> Iterator[Texts]:
    """Yield the parts of the energy: each with its share, and how it is known."""
    summary = run.summary
    energy = summary.energy
    scale = fmt.energy_scale(whole_kwh)
    ram = wording.method(energy.ram_method, constant_w=wording.field_text(run, "ram_w", 12))
    cpu = wording.method(energy.cpu_method, tdp_w=wording.field_text(run, "cpu_tdp_w", 12))
    parts = [
        ("GPU", energy.gpu_kwh, wording.method(energy.gpu_method)),
        ("CPU", energy.cpu_kwh, cpu),
        ("RAM", energy.ram_kwh, ram),
        ("unmetered", summary.unmetered_estimate_kwh or None, f"{wording.unmetered_text(run)}, estimated"),
        ("node", summary.node_assumed_kwh or None, wording.node_text(run)),
    ]
    overhead_kwh = whole_kwh - math.fsum(kwh or 0.0 for _, kwh, _ in parts)
    if overhead_kwh > 1e-9 * whole_kwh:  # what rounding leaves of a PUE of 1.0 is none
        parts.append(("PUE", overhead_kwh, f"PUE {summary.pue}: cooling and power supply"))
    for name, kwh, how in parts:
        if kwh is not None:
            share = fmt.percent(kwh / whole_kwh) if whole_kwh > 0 else ""
            yield f"energy: {name}", ", ".join(filter(None, (f"{scale.text(kwh)} {scale.unit}", share, how)))


def _energy_by_gpu(run: Run) -> Iterator[Texts]:
    """Yield the energy of each GPU of the first node, as metered; nothing where there is only one."""
    if len(run.gpu_energies) > 1:
        for one in run.gpu_energies:
            least = "at least " if one.kwh is not None and not one.is_whole else ""
            yield f"energy: GPU {one.index}", f"{least}{fmt.energy(one.kwh)}"


def error_blocks(run: Run) -> BlockIterator:
    """Yield how far each method may be off, with its source; nothing where no energy is known."""
    if run.summary.energy_kwh is None:
        return
    yield Heading("Uncertainty")
    if run.calibration is not None:
        used = (
            f"{wording.run_label(one.run_id)}: {fmt.energy(one.wall_kwh)} at the wall, {fmt.energy(one.metered_kwh)} "
            f"metered ({fmt.shortened(one.origin, 130)})"
            for one in run.calibration.measurements
        )
        yield Paragraph(f"The energy is calibrated: {run.calibration.text}. {'; '.join(used)}.")
        yield Note(NO_ERROR_OF)
        return
    parts = error_parts(run)
    if parts is None:
        why = "the log names no method for some of the energy"
        if run.lacks_energy_of_gpu:
            why = "the energy of a GPU is missing, and nobody knows how much that is"
        yield Paragraph(f"No interval: {why}.")
        return
    rows = []
    for error, _ in parts:
        name = f"{_COMPONENT.get(error.component, error.component)}, {error.method.replace('_', ' ')}"
        reach = f"{fmt.percent(error.lower)} to {fmt.percent(error.upper)}"
        if error.after_1_s:
            reach += f"; ±{fmt.percent(error.after_1_s)} for 1 s"
        rows.append((name, reach, error.basis, error.source))
    yield Table(columns({"energy": 1.5, "of the figure": 1.6, "basis": 1.0, "source": 4}), rows)
    yield Note(f"{_ERRORS} {NO_ERROR_OF}")


def factor_table(factors: Iterable[Factor]) -> Table:
    """Return the factors with their values and sources, each once."""
    heads = [*columns({"factor": 1.5}, ("value",), 1.1), *columns({"unit": 1.1, "source": 4.4})]
    return Table(heads, list(dict.fromkeys(map(_factor_row, factors))))


def _factor_row(factor: Factor) -> Texts:
    name = factor.name.replace("_", " ")
    if not factor.unit:
        return (name, fmt.UNKNOWN, "", fmt.shortened(factor.source, wording.FIELD_WIDTH))
    details = [fmt.shortened(t, wording.FIELD_WIDTH) for t in (factor.source, factor.year, factor.basis)]
    if factor.table_sha256:
        details.append(f"table SHA-256 {fmt.shortened(factor.table_sha256, 64)[:16]}…")
    return (name, f"{factor.value:,.6g}", fmt.shortened(factor.unit, 20), "; ".join(filter(None, details)))
