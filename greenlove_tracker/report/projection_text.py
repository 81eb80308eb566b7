"""A projection in words, once for screens and pages: the table, who leads, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.format import Scale, energy_scale, mass_scale, time_scale
from greenlove_tracker.projection.power import HOST_OVERHEAD
from greenlove_tracker.projection.ranking import Ranking, rank
from greenlove_tracker.projection.speedup import LAUNCH_S
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.units import w_from_kwh_s

DASH = "–"  # not known
COMPARED = "compared"  # the label of what the best rented machine saves, or takes more than the one here
_NARROW = 0.2  # relative width of a range up to which three digits say something
_CENTS_BELOW_USD = 0.1
_DOLLARS, _CENTS = Scale("$", 1.0, 2), Scale("¢", 100.0, 2)
_MOST_CHARACTERS = 1000  # of a sentence
_MOST_NAMED = 5  # of the GPUs that would hold a training
# Marks of offers that are not simply to be had, and their meaning
_ACCESS = {"reserved": "r reserved only", "spot": "s spot", "on request": "q on request", "withdrawn": "w withdrawn"}
_NOT_IN, _MAKING = "storage, transfer, set-up time", ", making of the hardware"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the table and its 90% range; empty where it has none."""

    point: str
    range: str = ""

    @property
    def text(self) -> str:
        """Number and range for one cell."""
        return f"{self.point} [{self.range}]" if DASH in self.range else f"{self.point} {self.range}".rstrip()


@dataclass(frozen=True, slots=True)
class ProjectionLine:
    """One machine of the table, in the units of its head."""

    name: str
    rent_as: str
    time: Figure
    cost: Figure
    energy: str
    location: str
    market: str
    known_from: str


@dataclass(frozen=True, slots=True)
class Units:
    """The units of the columns."""

    time: Scale
    cost: Scale
    energy: Scale
    mass: Scale


@dataclass(frozen=True, slots=True)
class ProjectionText:
    """A projection in words, the same for every screen and page.

    Attributes:
        head: the training, and the time that it takes here.
        units: of the table.
        lines: of the table, this machine first.
        beside: the machines that are not compared, by reason.
        verdicts: label and sentence: who leads, the savings, and the trial that would tell the leaders apart.
        notes: sentences about the ground of the numbers.
        warnings: reasons to trust them less.
    """

    head: str
    units: Units
    lines: tuple[ProjectionLine, ...]
    beside: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def projection_text(
    projections: Sequence[Projection],
    about: Sequence[str] = (),
    today: date | None = None,
    options: Mapping[str, str] | None = None,
) -> ProjectionText:
    """Return a projection in words.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        today: to say how old the prices are; None: only their date.
        options: of a command line by the names of arguments, which warnings then name; None: Python's names.
    """
    shown = compared(projections)
    units = units_of(shown)
    return ProjectionText(
        head=_head(projections[0], about),
        units=units,
        lines=tuple(_line(row, units, _has_several_providers(shown)) for row in shown),
        beside=_in_one_line(_beside(projections)),
        verdicts=tuple(_verdicts(rank(projections))),
        notes=_in_one_line(_notes(projections, today)),
        warnings=_in_one_line(_warnings(projections, options or {})),
    )


def _in_one_line(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts without what cannot be seen: names and regions may come from a file of prices."""
    return tuple(fmt.shortened(text, _MOST_CHARACTERS) for text in texts)


def _head(local: Projection, about: Sequence[str]) -> str:
    name, *basis = about or ("",)
    machine = "" if _is_nameless(local) else f"{local.n_gpus} × {fmt.shortened(local.name, 60)}"
    duration, time = local.duration_s, ""
    if duration is not None:
        has_width = duration.upper > duration.lower
        time = fmt.interval(duration, fmt.duration) if has_width else fmt.duration(duration.point)
    time_here = f"{time} here" + (f" on {machine}" if machine else ", without a GPU")
    return " · ".join(part for part in (fmt.shortened(name, 100), time_here, *basis) if part)


def _is_nameless(local: Projection) -> bool:
    return local.gpu is None and local.name == "this machine"


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """Return the rows of the table: this machine, and those that are neither set aside nor too small."""
    return [row for row in projections if row.is_local or row.is_compared]


def units_of(rows: Sequence[Projection]) -> Units:
    """Return one unit for each column: that which suits its largest number."""
    return Units(
        time_scale(_largest(row.duration_s for row in rows)),
        _CENTS if _largest(row.cost_usd for row in rows) < _CENTS_BELOW_USD else _DOLLARS,
        energy_scale(_largest(row.energy_kwh for row in rows)),
        mass_scale(_largest(row.emissions_kgco2e for row in rows)),
    )


def _largest(estimates: Iterable[Estimate | None]) -> float:
    return max((e.point for e in estimates if e is not None), default=1.0)


def _line(row: Projection, units: Units, names_provider: bool) -> ProjectionLine:
    name = row_name(row)
    if names_provider and row.offer:
        name += f" ({fmt.shortened(row.offer.provider, 20)})"
    cost = figure(row.cost_usd, units.cost.per_canonical)
    if row.is_local and row.cost_basis == "electricity":
        cost = Figure(cost.point, "power")
    return ProjectionLine(
        name=name,
        rent_as=rent_as(row),
        time=figure(row.duration_s, units.time.per_canonical),
        cost=cost,
        energy=figure(row.energy_kwh, units.energy.per_canonical).point,
        location=figure(row.emissions_kgco2e, units.mass.per_canonical).point,
        market=market(row),
        known_from=_known_from(row),
    )


def _has_several_providers(rows: Iterable[Projection]) -> bool:
    return len({row.offer.provider for row in rows if row.offer}) > 1


def row_name(row: Projection) -> str:
    """Return ``here  RTX 4090``, ``here`` without a GPU, or the GPU elsewhere."""
    if not row.is_local:
        return short_name(row)
    return "here" if _is_nameless(row) else f"here  {short_name(row)}"


def short_name(row: Projection) -> str:
    """Return the GPU without its maker's brand, in one line; of a log it may be any text."""
    name = fmt.shortened(row.name, 60)
    return name.removeprefix("GeForce ").removeprefix("Instinct ")


def _known_from(row: Projection) -> str:
    """Return the source of the speedup; of this machine, that of its time."""
    if row.speedup is not None:
        known_from = row.speedup.known_from.partition(":")[0]  # "rough: no GPU here", and the notes say the rest
        return known_from.replace("GeForce ", "")
    kind = row.duration_s.kind if row.duration_s else ""
    return {Kind.PREDICTION: "forecast", Kind.CONFIDENCE: "measured", Kind.ASSUMPTION: "given"}.get(Kind(kind), DASH)


def rent_as(row: Projection) -> str:
    """Return the GPUs and the price of each: ``r 8 × 4.29``, with the mark of what is not simply to be had."""
    if row.offer is None:
        return row.price
    per_hour = row.offer.usd_per_gpu_hour
    price = DASH if per_hour is None else f"{per_hour:.2f}"
    return f"{_ACCESS.get(row.offer.access, '')[:2]}{row.billed_gpus} × {price}"


def market(row: Projection) -> str:
    """Return the provider's claim; it only stands beside a location-based figure."""
    if row.market is not None:
        return row.market.short
    return "none" if row.emissions_kgco2e is not None else DASH


def figure(estimate: Estimate | None, factor: float) -> Figure:
    """Return two digits, or three where the range is narrow; ``factor`` makes it the unit of its column."""
    if estimate is None:
        return Figure(DASH)
    digits = 3 if estimate.relative_width < _NARROW else 2
    point, lower, upper = (
        fmt.significant(value * factor, digits) for value in (estimate.point, estimate.lower, estimate.upper)
    )
    return Figure(point, f"{lower}–{upper}" if estimate.upper > estimate.lower else "")


def _beside(projections: Sequence[Projection]) -> list[str]:
    """Return those set aside, by reason, and those that the training does not fit into."""
    reasons: dict[str, list[str]] = {}
    for row in projections:
        if row.is_local or row.is_compared:
            continue
        if row.fits is False:
            memory = f" ({row.gpu.memory_gb:g} GB)" if row.gpu and row.gpu.memory_gb else ""
            peak = "estimated peak memory" if row.is_fit_estimated else "peak memory seen here"
            reason = f"too small for the {peak}; {_would_fit(row.fits_instead)}"
            reasons.setdefault(reason, []).append(short_name(row) + memory)
        else:
            reasons.setdefault(row.aside, []).append(short_name(row))
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]


def _would_fit(names: Sequence[str]) -> str:
    if not names:
        return "nothing here would hold it"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"it would fit into {', '.join(names[:_MOST_NAMED])}{more}"


def _verdicts(ranking: Ranking) -> list[tuple[str, str]]:
    cheapest, rented = ranking.cheapest, ranking.cheapest_rented
    if cheapest is not None and rented is not None and cheapest.leaders == rented.leaders:
        rented = None
    found: list[tuple[str, str]] = []
    for verdict in (cheapest, rented, ranking.fastest, ranking.greenest):
        if verdict is not None:
            label, _, text = verdict.sentence.partition(": ")
            found.append(("rented" if verdict is rented else label, text))
    found += [(COMPARED, saving.sentence) for saving in ranking.savings]
    if ranking.suggested_trial is not None:
        found.append(("settle", ranking.suggested_trial.sentence))
    return found


def _notes(projections: Sequence[Projection], today: date | None) -> tuple[str, ...]:
    """Return one sentence or a few on each column, in the order of the table."""
    rented = [row for row in projections if not row.is_local and row.is_compared]
    local = projections[0]
    found = (
        _ranges(rented, local),
        _least_time(rented),
        _gains(rented, local),
        _offers(rented, today),
        _energy(rented),
        _emissions(rented, local),
        _embodied(rented, local),
        _fit(rented),
        _left_out(rented, local),
    )
    return tuple(text for text in found if text)


def _ranges(rows: Sequence[Projection], local: Projection) -> str:
    methods = {row.speedup.method for row in rows if row.speedup}
    is_guess = local.gpu is None and "specifications" in methods
    sentences = []
    if is_guess:
        sentences.append("No GPU here: speedups start from an assumed CPU and are rough, to a factor of five.")
    elif methods & {"benchmarks", "specifications", "green-love"}:
        sentences.append(
            "90% ranges are assumptions: how far published benchmarks lie apart, none of which is this training."
        )
    if "measured" in methods:
        sentences.append("measured: from the same exploration on that GPU; its range is that of its own forecast.")
    if "custom" in methods:
        sentences.append("given: your own figure; without a range of its own it counts as exact.")
    return " ".join(sentences)


def _least_time(rows: Sequence[Projection]) -> str:
    """Return why machines of a training on a CPU stand at one and the same time."""
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


def _gains(rows: Sequence[Projection], local: Projection) -> str:
    gains = sorted({(row.billed_gpus, row.gain) for row in rows if row.billed_gpus != local.n_gpus})
    texts = (f"{billed} GPUs for {local.n_gpus} are taken to be {gain:.3g} × as fast" for billed, gain in gains)
    return f"{', '.join(texts)}." if gains else ""


def _offers(rows: Sequence[Projection], today: date | None) -> str:
    accesses = {row.offer.access for row in rows if row.offer}
    legend = [text for access, text in _ACCESS.items() if access in accesses]
    if any(row.offer is None for row in rows):
        legend.append("no offer: nobody rents it out, counted as if it stood here")
    sentences = [f"{', '.join(legend)}."] if legend else []
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
    shares = [share for row in rows if (share := _share(row)) is not None]
    if not shares:
        return ""
    pues = _by(rows, lambda row: (row.pue, row.region), lambda pue, region: f"{pue:g} {region or 'as here'}")
    return (
        f"Energy: GPUs × TDP × {shares[0]:.0%} draw, as here, × {HOST_OVERHEAD} host × PUE, which is assumed where no "
        f"site states it: {pues}."
    )


def _share(row: Projection) -> float | None:
    """Return the share of their power limit that the GPUs of a row were counted with."""
    if row.energy_kwh is None or row.duration_s is None or row.gpu is None or row.gpu.tdp_w is None:
        return None
    power_w = w_from_kwh_s(row.energy_kwh.point, row.duration_s.point)
    return None if power_w is None else power_w / (row.billed_gpus * row.gpu.tdp_w * HOST_OVERHEAD * row.pue)


def _emissions(rows: Sequence[Projection], local: Projection) -> str:
    if local.intensity is None or not any(row.emissions_kgco2e for row in (local, *rows)):
        return ""
    grids = {row.region: f"{row.intensity.value:.3g} {row.region}" for row in rows if row.intensity and row.region}
    intensities = ", ".join((f"{local.intensity.value:.3g} here", *grids.values()))
    claims = (
        " market: the provider's claim, not audited; nothing is ranked by it."
        if any(row.market for row in rows)
        else ""
    )
    return f"CO2e: location-based, g/kWh: {intensities}.{claims}"


def _embodied(rows: Sequence[Projection], local: Projection) -> str:
    """Return those of each machine by the user's figure; they stand nowhere else on a screen or a page."""
    amounts = [f"{fmt.mass(local.embodied_kgco2e.point)} here"] if local.embodied_kgco2e else []
    amounts += [f"{fmt.mass(row.embodied_kgco2e.point)} {short_name(row)}" for row in rows if row.embodied_kgco2e]
    return f"Embodied, by your figure, and in no other number: {', '.join(amounts)}." if amounts else ""


def _fit(rows: Sequence[Projection]) -> str:
    if any(row.is_fit_estimated for row in rows):
        return "Whether the training fits goes by an estimated peak of memory, which no GPU has measured yet."
    if not rows or any(row.fits is not None for row in rows):
        return ""
    return "No peak of GPU memory is known: whether the training fits there is not checked."


def _left_out(rows: Sequence[Projection], local: Projection) -> str:
    own = ", the price of your own machine" if local.cost_basis != "machine" else ""
    scope = " Rented = scope 3 for you." if any(row.is_rented for row in rows) else ""
    making = "" if any(row.embodied_kgco2e for row in (local, *rows)) else _MAKING
    return f"Not in: {_NOT_IN}{making}{own}.{scope}"


def _by(rows: Iterable[Projection], key: Callable[[Projection], Hashable], text: Callable[..., str]) -> str:
    """Return ``1.3 us-east1 (L40S, A100), 1.2 eu-iceland1 (H100)``."""
    groups: dict[Hashable, list[str]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(short_name(row))
    return ", ".join(f"{text(*values)} ({', '.join(dict.fromkeys(names))})" for values, names in groups.items())  # type: ignore[misc]


def _warnings(projections: Sequence[Projection], options: Mapping[str, str]) -> tuple[str, ...]:
    """Return those about the whole table, then those of single rows, each with the machines that it is about."""
    local, *others = projections
    by_text: dict[str, list[str]] = {}
    for row in others:
        for caveat in row.caveats if row.is_compared else ():
            by_text.setdefault(caveat.in_options(options), []).append(short_name(row))
    of_rows = (f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in by_text.items())
    of_table = (caveat.in_options(options) for caveat in local.caveats)
    return (*(text[:1].upper() + text[1:] for text in of_table), *of_rows)
