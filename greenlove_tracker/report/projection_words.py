"""What is said about a training on other machines, once for every face: the table, who leads, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.projection.ranking import Ranking, rank
from greenlove_tracker.projection.row import Projection
from greenlove_tracker.report.projection_notes import notes, short_name, warnings
from greenlove_tracker.report.scale import Scale, energy_scale, mass_scale, time_scale

DASH = "–"  # not known
COMPARED = "compared"  # the label of what the best rented machine saves, or takes more than the one here
_NARROW = 0.2  # relative width of a range up to which three digits say something
_CENTS_BELOW_USD = 0.1
_DOLLARS, _CENTS = Scale("$", 1.0, 2), Scale("¢", 100.0, 2)
_MOST_CHARACTERS = 1000  # of a sentence
_MOST_NAMED = 5  # of the GPUs that would hold a training
_MARKS = {"reserved": "r ", "spot": "s ", "on request": "q ", "withdrawn": "w "}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the table and its 90% range; empty where it has none."""

    point: str
    range: str = ""

    @property
    def text(self) -> str:
        """Both, for one cell."""
        return f"{self.point} [{self.range}]" if DASH in self.range else f"{self.point} {self.range}".rstrip()


@dataclass(frozen=True, slots=True)
class Line:
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
    """What the columns are in."""

    time: Scale
    cost: Scale
    energy: Scale
    mass: Scale


@dataclass(frozen=True, slots=True)
class Said:
    """What every face says.

    Attributes:
        head: the training, and what it takes here.
        units: of the table.
        lines: of the table, this machine first.
        beside: the machines that are not compared, by reason.
        verdicts: who leads, what that saves, and what would settle what cannot be told: label and sentence.
        notes: what the numbers rest on.
        warnings: what makes them worse.
    """

    head: str
    units: Units
    lines: tuple[Line, ...]
    beside: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def said(projections: Sequence[Projection], about: Sequence[str] = (), today: date | None = None) -> Said:
    """Puts a projection into words.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        today: to say how old the prices are; None: only their date.
    """
    shown = compared(projections)
    units = units_of(shown)
    return Said(
        head=_head(projections[0], about),
        units=units,
        lines=tuple(_line(row, units, _has_several_providers(shown)) for row in shown),
        beside=_in_one_line(_beside(projections)),
        verdicts=tuple(_verdicts(rank(projections))),
        notes=_in_one_line(notes(projections, today)),
        warnings=_in_one_line(warnings(projections)),
    )


def _in_one_line(texts: Iterable[str]) -> tuple[str, ...]:
    """Without what cannot be seen: names and regions may come from a file of prices."""
    return tuple(fmt.shortened(text, _MOST_CHARACTERS) for text in texts)


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """The rows of the table: this machine, and those that are neither set aside nor too small."""
    return [row for row in projections if row.is_local or row.is_compared]


def units_of(rows: Sequence[Projection]) -> Units:
    """One unit for each column: that which suits its largest number."""
    return Units(
        time_scale(_largest(row.duration_s for row in rows)),
        _CENTS if _largest(row.cost_usd for row in rows) < _CENTS_BELOW_USD else _DOLLARS,
        energy_scale(_largest(row.energy_kwh for row in rows)),
        mass_scale(_largest(row.emissions_kgco2e for row in rows)),
    )


def _largest(estimates: Iterable[Estimate | None]) -> float:
    return max((e.point for e in estimates if e is not None), default=1.0)


def row_name(row: Projection) -> str:
    """``here  RTX 4090``, ``here`` without a GPU, or the GPU elsewhere."""
    if not row.is_local:
        return short_name(row)
    return "here" if _is_nameless(row) else f"here  {short_name(row)}"


def _is_nameless(local: Projection) -> bool:
    return local.gpu is None and local.name == "this machine"


def _has_several_providers(rows: Iterable[Projection]) -> bool:
    return len({row.offer.provider for row in rows if row.offer}) > 1


def _head(local: Projection, about: Sequence[str]) -> str:
    name, *how = about or ("",)
    machine = "" if _is_nameless(local) else f"{local.n_gpus} × {fmt.shortened(local.name, 60)}"
    takes = local.duration_s
    time = ""
    if takes is not None:
        time = fmt.duration(takes.point)
        if takes.upper > takes.lower:
            time += f" [{fmt.duration(takes.lower)}–{fmt.duration(takes.upper)}]"
    here = f"{time} here" + (f" on {machine}" if machine else ", without a GPU")
    return " · ".join(part for part in (fmt.shortened(name, 100), here, *how) if part)


def _line(row: Projection, units: Units, names_provider: bool) -> Line:
    name = row_name(row)
    if names_provider and row.offer:
        name += f" ({fmt.shortened(row.offer.provider, 20)})"
    cost = figure(row.cost_usd, units.cost.per_canonical)
    if row.is_local and row.cost_basis == "electricity":
        cost = Figure(cost.point, "power")
    return Line(
        name=name,
        rent_as=rent_as(row),
        time=figure(row.duration_s, units.time.per_canonical),
        cost=cost,
        energy=figure(row.energy_kwh, units.energy.per_canonical).point,
        location=figure(row.emissions_kgco2e, units.mass.per_canonical).point,
        market=market(row),
        known_from=_known_from(row),
    )


def _known_from(row: Projection) -> str:
    """Where the speedup is known from; of this machine, where its time is."""
    if row.speedup is not None:
        known_from = row.speedup.known_from.partition(":")[0]  # "rough: no GPU here", and the notes say the rest
        return known_from.replace("GeForce ", "")
    kind = row.duration_s.kind if row.duration_s else ""
    return {Kind.PREDICTION: "forecast", Kind.CONFIDENCE: "measured", Kind.ASSUMPTION: "given"}.get(Kind(kind), DASH)


def rent_as(row: Projection) -> str:
    """How many GPUs at which price each: ``r 8 × 4.29``, with the mark of what is not simply to be had."""
    if row.offer is None:
        return row.price
    per_hour = row.offer.usd_per_gpu_hour
    price = DASH if per_hour is None else f"{per_hour:.2f}"
    return f"{_MARKS.get(row.offer.access, '')}{row.billed_gpus} × {price}"


def market(row: Projection) -> str:
    """The provider's claim; it is only said beside a location-based figure."""
    if row.market is not None:
        return row.market.short
    return "none" if row.emissions_kgco2e is not None else DASH


def figure(estimate: Estimate | None, factor: float) -> Figure:
    """With two digits, or three where the range is narrow; ``factor`` makes it the unit of its column."""
    if estimate is None:
        return Figure(DASH)
    digits = 3 if estimate.relative_width < _NARROW else 2
    point, lower, upper = (
        fmt.significant(value * factor, digits) for value in (estimate.point, estimate.lower, estimate.upper)
    )
    return Figure(point, f"{lower}–{upper}" if estimate.upper > estimate.lower else "")


def _beside(projections: Sequence[Projection]) -> list[str]:
    """Those set aside, by reason, and those that the training does not fit into."""
    reasons: dict[str, list[str]] = {}
    for row in projections:
        if row.is_local or row.is_compared:
            continue
        if row.fits is False:
            memory = f" ({row.gpu.memory_gb:g} GB)" if row.gpu and row.gpu.memory_gb else ""
            reason = f"too small for the peak memory seen here; {_holding(row.fits_instead)}"
            reasons.setdefault(reason, []).append(short_name(row) + memory)
        else:
            reasons.setdefault(row.aside, []).append(short_name(row))
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]


def _holding(names: Sequence[str]) -> str:
    if not names:
        return "nothing here would hold it"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"it would fit into {', '.join(names[:_MOST_NAMED])}{more}"


def _verdicts(ranking: Ranking) -> list[tuple[str, str]]:
    cheapest, rented = ranking.cheapest, ranking.cheapest_rented
    if cheapest is not None and rented is not None and cheapest.leaders == rented.leaders:
        rented = None
    told: list[tuple[str, str]] = []
    for verdict in (cheapest, rented, ranking.fastest, ranking.greenest):
        if verdict is not None:
            label, _, text = verdict.sentence.partition(": ")
            told.append(("rented" if verdict is rented else label, text))
    told += [(COMPARED, saving.sentence) for saving in ranking.savings]
    if ranking.settle is not None:
        told.append(("settle", ranking.settle.sentence))
    return told
