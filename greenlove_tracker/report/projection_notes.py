"""What the numbers of a projection rest on, and what makes them worse."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import date

from greenlove_tracker import format as fmt
from greenlove_tracker.projection.energy import HOST_OVERHEAD, LAUNCH_S
from greenlove_tracker.projection.row import Projection
from greenlove_tracker.units import w_from_kwh_s

_ACCESS = {"reserved": "r reserved only", "spot": "s spot", "on request": "q on request", "withdrawn": "w withdrawn"}
_NOT_IN, _MAKING = "storage, transfer, set-up time", ", making of the hardware"


def notes(projections: Sequence[Projection], today: date | None) -> tuple[str, ...]:
    """One sentence or a few on each column, in the order of the table.

    Args:
        projections: this machine first.
        today: to say how old the prices are; None: only their date.
    """
    rented = [row for row in projections if not row.is_local and row.is_compared]
    local = projections[0]
    found = (
        _ranges(rented, local),
        _held_up(rented),
        _numbers(rented, local),
        _offers(rented, today),
        _energy(rented),
        _emissions(rented, local),
        _embodied(rented, local),
        _fit(rented),
        _left_out(rented, local),
    )
    return tuple(text for text in found if text)


def warnings(projections: Sequence[Projection]) -> tuple[str, ...]:
    """Those about the whole table, then those of single rows, each with the machines that it is about."""
    local, *others = projections
    by_text: dict[str, list[str]] = {}
    for row in others:
        for text in row.warnings if row.is_compared else ():
            by_text.setdefault(text, []).append(short_name(row))
    of_rows = (f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in by_text.items())
    return (*(text[:1].upper() + text[1:] for text in local.warnings), *of_rows)


def short_name(row: Projection) -> str:
    """The GPU without its maker's brand, in one line; of a log it may be any text."""
    name = fmt.shortened(row.name, 60)
    return name.removeprefix("GeForce ").removeprefix("Instinct ")


def _ranges(rows: Sequence[Projection], local: Projection) -> str:
    methods = {row.speedup.method for row in rows if row.speedup}
    is_guess = local.gpu is None and "specifications" in methods
    told = []
    if is_guess:
        told.append("No GPU here: speedups start from an assumed CPU and are rough, to a factor of five.")
    elif methods & {"benchmarks", "specifications", "green-love"}:
        told.append(
            "90% ranges are assumptions: how far published benchmarks lie apart, none of which is this training."
        )
    if "measured" in methods:
        told.append("measured: from the same exploration on that GPU; its range is that of its own forecast.")
    if "custom" in methods:
        told.append("given: your own figure; without a range of its own it counts as exact.")
    return " ".join(told)


def _held_up(rows: Sequence[Projection]) -> str:
    """Why machines of a training on a CPU stand at one and the same time."""
    times_s = {row.least_s for row in rows if row.least_s is not None}
    if not times_s:
        return ""
    least_s = max(times_s)
    names = [short_name(row) for row in rows if row.duration_s and row.least_s and row.duration_s.point <= row.least_s]
    which = "every GPU in the table" if len(names) == len(rows) else ", ".join(dict.fromkeys(names))
    return (
        f"No step is taken to be under {LAUNCH_S * 1e3:g} ms, about what launching its kernels takes, however fast the "
        f"GPU: {fmt.count(least_s / LAUNCH_S)} steps take {fmt.duration(least_s)} at least"
        + (f", and that is the time of {which}." if names else ".")
    )


def _numbers(rows: Sequence[Projection], local: Projection) -> str:
    gains = sorted({(row.billed_gpus, row.gain) for row in rows if row.billed_gpus != local.n_gpus})
    told = (f"{billed} GPUs for {local.n_gpus} are taken to be {gain:.3g} × as fast" for billed, gain in gains)
    return f"{', '.join(told)}." if gains else ""


def _offers(rows: Sequence[Projection], today: date | None) -> str:
    accesses = {row.offer.access for row in rows if row.offer}
    told = [text for access, text in _ACCESS.items() if access in accesses]
    if any(row.offer is None for row in rows):
        told.append("no offer: nobody rents it out, counted as if it stood here")
    sentences = [f"{', '.join(told)}."] if told else []
    dates = sorted({row.offer.price_date for row in rows if row.offer and row.offer.usd_per_gpu_hour is not None})
    if dates:
        sentences.append(f"Prices read {_span(dates)}{_age(dates, today)}.")
    return " ".join(sentences)


def _span(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _age(dates: Sequence[str], today: date | None) -> str:
    if today is None:
        return ""
    days = sorted((today - date.fromisoformat(text)).days for text in dates)
    return f" ({_span([str(n) for n in dict.fromkeys(days)])} days old)"


def _energy(rows: Sequence[Projection]) -> str:
    shares = [share for row in rows if (share := _draw(row)) is not None]
    if not shares:
        return ""
    pues = _by(rows, lambda row: (row.pue, row.region), lambda pue, region: f"{pue:g} {region or 'as here'}")
    return (
        f"Energy: GPUs × TDP × {shares[0]:.0%} draw, as here, × {HOST_OVERHEAD} host × PUE, which is assumed where no "
        f"site states it: {pues}."
    )


def _draw(row: Projection) -> float | None:
    """The share of their power limit that the GPUs of a row were counted with."""
    if row.energy_kwh is None or row.duration_s is None or row.gpu is None or row.gpu.tdp_w is None:
        return None
    power_w = w_from_kwh_s(row.energy_kwh.point, row.duration_s.point)
    return None if power_w is None else power_w / (row.billed_gpus * row.gpu.tdp_w * HOST_OVERHEAD * row.pue)


def _emissions(rows: Sequence[Projection], local: Projection) -> str:
    if local.intensity is None or not any(row.emissions_kgco2e for row in (local, *rows)):
        return ""
    grids = {row.region: f"{row.intensity.value:.3g} {row.region}" for row in rows if row.intensity and row.region}
    told = ", ".join((f"{local.intensity.value:.3g} here", *grids.values()))
    claims = (
        " market: the provider's claim, not audited; nothing is ranked by it."
        if any(row.market for row in rows)
        else ""
    )
    return f"CO2e: location-based, g/kWh: {told}.{claims}"


def _embodied(rows: Sequence[Projection], local: Projection) -> str:
    """Of each machine by the user's figure; it stands nowhere else on a screen or a page."""
    told = [f"{fmt.mass(local.embodied_kgco2e.point)} here"] if local.embodied_kgco2e else []
    told += [f"{fmt.mass(row.embodied_kgco2e.point)} {short_name(row)}" for row in rows if row.embodied_kgco2e]
    return f"Embodied, by your figure, and in no other number: {', '.join(told)}." if told else ""


def _fit(rows: Sequence[Projection]) -> str:
    if not rows or any(row.fits is not None for row in rows):
        return ""
    return "No peak of GPU memory is known: whether the training fits there is not checked."


def _left_out(rows: Sequence[Projection], local: Projection) -> str:
    own = ", the price of your own machine" if local.cost_basis != "machine" else ""
    scope = " Rented = scope 3 for you." if any(row.is_rented for row in rows) else ""
    making = "" if any(row.embodied_kgco2e for row in (local, *rows)) else _MAKING
    return f"Not in: {_NOT_IN}{making}{own}.{scope}"


def _by(rows: Iterable[Projection], key: Callable[[Projection], Hashable], text: Callable[..., str]) -> str:
    """``1.3 us-east1 (L40S, A100), 1.2 eu-iceland1 (H100)``."""
    groups: dict[Hashable, list[str]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(short_name(row))
    return ", ".join(f"{text(*values)} ({', '.join(dict.fromkeys(names))})" for values, names in groups.items())  # type: ignore[misc]
