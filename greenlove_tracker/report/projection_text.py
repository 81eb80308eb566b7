"""A projection in words, once for screens and pages: what to do, the table, who leads, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.format import Scale, energy_scale, mass_scale, time_scale
from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.ranking import Chance, Ranking
from greenlove_tracker.projection.speedup import LAUNCH_S
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.report.projection_advice import (
    advice_reasons,
    advice_sentence,
    label,
    pairs_text,
    saving_text,
    short_name,
    verdict_text,
)

DASH = "–"  # not known
_NARROW = 0.2  # relative width of a range up to which three digits say something
_CENTS_BELOW_USD = 0.1
_DOLLARS, _CENTS = Scale("$", 1.0, 2), Scale("¢", 100.0, 2)
_MOST_CHARACTERS = 1000  # of a sentence
_MOST_NAMED = 5  # of the GPUs that would hold a training
_LEAST_SHOWN = 0.01  # of a machine's probability to be the one to choose
_HERE, _RENT_NOW, _WHOLE = "", "rent now", "whole machines only"
_GROUPS = {  # how a machine is obtained, and the title of the lines of such machines
    "here": _HERE,
    "on demand": _RENT_NOW,
    "spot": "spot: may be taken away",
    "reserved": "reserved only, for a minimum term",
    "on request": "price on request",
    "withdrawn": "not offered any more",
    "no offer": "nobody rents it out",
}
_ORDER = (_HERE, _RENT_NOW, _WHOLE, *list(_GROUPS.values())[2:])
_NOT_IN, _MAKING = "storage, transfer, set-up time", ", making of the hardware"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the table and its 90% range, in as many decimals; empty where it has none."""

    point: str
    range: str = ""

    @property
    def text(self) -> str:
        """Number and range for one cell."""
        return f"{self.point} [{self.range}]" if DASH in self.range else f"{self.point} {self.range}".rstrip()


@dataclass(frozen=True, slots=True)
class ProjectionLine:
    """One machine of the table, in the units of its head.

    Attributes:
        group: how it is obtained and what that asks for, the title of the lines that it stands among; empty of the
            machine here.
        name: of the GPU, and of who rents it out where there are several.
        rent_as: number of GPUs and the price of each for an hour.
        time: in the unit of the table's.
        cost: likewise.
        cheapest: probability that it is the cheapest of those that it is compared with; empty where it is not.
        energy: of the whole machine.
        location: location-based CO2e.
        market: the provider's claim.
        speedup: of one GPU against one here; empty of the machine here.
        known_from: the source of the speedup; of this machine, that of its time.
    """

    group: str
    name: str
    rent_as: str
    time: Figure
    cost: Figure
    cheapest: str
    energy: str
    location: str
    market: str
    speedup: str
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
        decision: what to do, in a sentence.
        reasons: why, in sentences.
        alternatives: other machines that may be the one to choose, and with which probability.
        head: the training, and the time that it takes here.
        units: of the table.
        lines: of the table, this machine first, then group by group.
        beside: the machines that are not compared, by reason.
        verdicts: label and sentence: who leads by each quantity, and in pairs.
        savings: sentences: the best rented machine against the one here.
        notes: sentences about the ground of the numbers, the more important first.
        warnings: reasons to trust all of them less.
        of_machines: reasons to trust those of single machines less.
    """

    decision: str
    reasons: tuple[str, ...]
    alternatives: tuple[tuple[str, str], ...]
    head: str
    units: Units
    lines: tuple[ProjectionLine, ...]
    beside: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    savings: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    of_machines: tuple[str, ...]


def projection_text(
    projections: Sequence[Projection],
    about: Sequence[str] = (),
    today: date | None = None,
    options: Mapping[str, str] | None = None,
    decision: Decision | None = None,
) -> ProjectionText:
    """Return a projection in words.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        today: to say how old the prices are; None: only their date.
        options: of a command line by the names of arguments, which warnings then name; None: Python's names.
        decision: between them; None for the cheapest without limits.
    """
    made = decision or decide(projections)
    shown, ranking = compared(projections), made.ranking
    units = units_of(shown)
    chances, titles = cheapest_chances(ranking), _titles(shown)
    by_provider = _has_several_providers(shown)
    of_table, of_machines = _warnings(projections, options or {}, made.recommended)
    return ProjectionText(
        decision=_in_one_line([advice_sentence(made)])[0],
        reasons=_in_one_line(advice_reasons(made, projections)),
        alternatives=tuple(_chance_text(chance) for chance in made.alternatives if chance.probability >= _LEAST_SHOWN),
        head=head_text(projections[0], about),
        units=units,
        lines=tuple(_line(row, titles[group_of(row)], units, chances, names_provider=by_provider) for row in shown),
        beside=_in_one_line(_beside(projections)),
        verdicts=tuple(_verdicts(ranking)),
        savings=tuple(saving_text(saving) for saving in ranking.savings),
        notes=_in_one_line(_notes(projections, today)),
        warnings=_in_one_line(of_table),
        of_machines=_in_one_line(of_machines),
    )


def _in_one_line(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts without what cannot be seen: names and regions may come from a file of prices."""
    return tuple(fmt.shortened(text, _MOST_CHARACTERS) for text in texts)


def _chance_text(chance: Chance) -> tuple[str, str]:
    return fmt.shortened(label(chance.machine), 60), fmt.chance(chance.probability)


def head_text(local: Projection, about: Sequence[str]) -> str:
    """Return the training, its time here, and how that is known."""
    name, *basis = about or ("",)
    machine = "" if _is_nameless(local) else f"{local.n_gpus} × {fmt.shortened(local.name, 60)}"
    duration, time = local.duration_s, ""
    if duration is not None:
        has_width = duration.upper > duration.lower
        time = fmt.duration(duration.point)
        time += f" [{fmt.bounds(duration, fmt.duration)}, {duration.level:.0%}]" if has_width else ""
    time_here = f"{time} here" + (f" on {machine}" if machine else ", without a GPU")
    return " · ".join(part for part in (fmt.shortened(name, 100), time_here, *basis) if part)


def _is_nameless(local: Projection) -> bool:
    return local.gpu is None and local.name == "this machine"


def group_of(row: Projection) -> str:
    """Return the title of the machines that are obtained as this one is; empty for the one here."""
    group = _GROUPS.get(row.obtained, row.obtained)
    return _WHOLE if group == _RENT_NOW and row.billed_gpus > row.n_gpus else group


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """Return the rows of the table: this machine, then those neither set aside nor too small, by group and cost."""
    return sorted((row for row in projections if row.is_local or row.is_compared), key=_place)


def _place(row: Projection) -> tuple[int, float, str]:
    group = group_of(row)
    at = _ORDER.index(group) if group in _ORDER else len(_ORDER)
    return at, row.cost_usd.point if row.cost_usd else math.inf, row.name


def cheapest_chances(ranking: Ranking) -> dict[int, float]:
    """Return the probability of each machine to be the cheapest of those for rent, by the ``id`` of its row.

    The machine here, whose cost is its electricity, and what is only reserved are none of them.
    """
    verdict = ranking.cheapest_rented
    return {id(chance.machine): chance.probability for chance in verdict.chances} if verdict else {}


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


def _titles(shown: Sequence[Projection]) -> dict[str, str]:
    """Return the titles of the groups: of one GPU here and only several there, with what the code must do for it."""
    titles = {}
    for group in dict.fromkeys(map(group_of, shown)):
        numbers = {row.billed_gpus for row in shown if group_of(row) == group}
        needs = f"; the code must train on {min(numbers)}{' or more' * (len(numbers) > 1)} GPUs at once"
        titles[group] = group + (needs if shown[0].n_gpus == 1 < min(numbers) else "")
    return titles


def _line(
    row: Projection, title: str, units: Units, chances: Mapping[int, float], *, names_provider: bool
) -> ProjectionLine:
    name = row_name(row)
    if names_provider and row.offer:
        name += f" ({fmt.shortened(row.offer.provider, 20)})"
    cost = figure(row.cost_usd, units.cost.per_canonical)
    if row.is_local and row.cost_basis == "electricity":
        cost = Figure(cost.point, "electricity")
    return ProjectionLine(
        group=title,
        name=name,
        rent_as=rent_as(row),
        time=figure(row.duration_s, units.time.per_canonical),
        cost=cost,
        cheapest=fmt.percent(chances[id(row)]) if id(row) in chances else "",
        energy=figure(row.energy_kwh, units.energy.per_canonical).point,
        location=figure(row.emissions_kgco2e, units.mass.per_canonical).point,
        market=market(row),
        speedup="" if row.speedup is None else f"{fmt.significant(row.speedup.estimate.point, 2)} ×",
        known_from=_known_from(row),
    )


def _has_several_providers(rows: Iterable[Projection]) -> bool:
    return len({row.offer.provider for row in rows if row.offer}) > 1


def row_name(row: Projection) -> str:
    """Return ``here  RTX 4090``, ``here`` without a GPU, or the GPU elsewhere."""
    if not row.is_local:
        return short_name(row)
    return "here" if _is_nameless(row) else f"here  {short_name(row)}"


def _known_from(row: Projection) -> str:
    """Return the source of the speedup; of this machine, that of its time."""
    if row.speedup is not None:
        known_from = row.speedup.known_from.partition(":")[0]  # "rough: no GPU here", and the notes say the rest
        return known_from.replace("GeForce ", "")
    kind = row.duration_s.kind if row.duration_s else ""
    return {Kind.PREDICTION: "forecast", Kind.CONFIDENCE: "measured", Kind.ASSUMPTION: "given"}.get(Kind(kind), DASH)


def rent_as(row: Projection) -> str:
    """Return the GPUs and the price of each for an hour: ``8 × 4.29``; of the machine here, whose it is."""
    if row.offer is None:
        return row.price if row.n_gpus == 1 else f"{row.n_gpus} × {row.price}"
    per_hour = row.offer.usd_per_gpu_hour
    return f"{row.billed_gpus} × {DASH if per_hour is None else f'{per_hour:.2f}'}"


def market(row: Projection) -> str:
    """Return the provider's claim; it only stands beside a location-based figure."""
    if row.market is not None:
        return row.market.short
    return "none" if row.emissions_kgco2e is not None else DASH


def figure(estimate: Estimate | None, factor: float) -> Figure:
    """Return two digits, or three where the range is narrow; both ends in the decimals of the point, or more.

    Args:
        estimate: None where it is not known.
        factor: makes it the unit of its column.
    """
    if estimate is None:
        return Figure(DASH)
    digits = 3 if estimate.relative_width < _NARROW else 2
    point = fmt.significant(estimate.point * factor, digits)
    if estimate.upper <= estimate.lower:
        return Figure(point)
    decimals = max(_decimals(text) for text in (point, fmt.significant(estimate.lower * factor, 1)))
    ends = (f"{value * factor:,.{decimals}f}" for value in (estimate.lower, estimate.upper))
    return Figure(f"{estimate.point * factor:,.{decimals}f}" if decimals else point, DASH.join(ends))


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


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


def _verdicts(ranking: Ranking) -> Iterable[tuple[str, str]]:
    cheapest, rented = ranking.cheapest, ranking.cheapest_rented
    if cheapest is not None and rented is not None and cheapest.chances == rented.chances:
        rented = None
    verdicts = {"cheapest": cheapest, "rented": rented, "fastest": ranking.fastest, "greenest": ranking.greenest}
    yield from ((name, verdict_text(verdict)) for name, verdict in verdicts.items() if verdict is not None)
    if pairs := pairs_text((rented or cheapest, ranking.fastest, ranking.greenest)):
        yield "in pairs", pairs


def _notes(projections: Sequence[Projection], today: date | None) -> tuple[str, ...]:
    """Return short sentences on the ground of the numbers, those that change a decision first."""
    local, rented = projections[0], [row for row in compared(projections) if not row.is_local]
    found = (
        _least_time(rented),
        _fit(rented),
        _prices(rented, today),
        _emissions(rented, local),
        " ".join(filter(None, (_gains(rented, local), _software(rented, local)))),
        _ranges(rented, local),
        _embodied(rented, local),
        _left_out(rented, local),
        _energy(rented),
    )
    return tuple(text for text in found if text)


def _ranges(rows: Sequence[Projection], local: Projection) -> str:
    methods = {row.speedup.method for row in rows if row.speedup}
    sentences = []
    if local.gpu is None and "specifications" in methods:
        sentences.append("No GPU here: speedups start from an assumed CPU and are rough, to a factor of five.")
    elif methods - {"measured", "custom", "same"}:
        sentences.append("Ranges hold 90%, if your training is like the benchmarks that the speeds come from.")
    if "measured" in methods:
        sentences.append("measured: from the same exploration on that GPU.")
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
    shared = " on one GPU; several GPUs share them" if len(times_s) > 1 else ""
    return (
        f"A step takes at least about {LAUNCH_S * 1e3:g} ms to launch its kernels, so {fmt.count(least_s / LAUNCH_S)} "
        f"steps take at least {fmt.duration(least_s)}{shared}." + (f" That is the time of {which}." if names else "")
    )


def _gains(rows: Sequence[Projection], local: Projection) -> str:
    by_number: dict[int, list[float]] = {}
    for row in rows:
        if row.billed_gpus != local.n_gpus:
            by_number.setdefault(row.billed_gpus, []).append(row.gain * local.n_gpus)
    texts = (f"{number} GPUs do the work of {_between(gains)}" for number, gains in sorted(by_number.items()))
    return f"{', '.join(texts)}, by how they are joined." if by_number else ""


def _software(rows: Sequence[Projection], local: Projection) -> str:
    """Return which machines need another build of PyTorch; the caveats of their rows say what that asks for."""
    own = local.gpu.vendor if local.gpu else ""
    names = dict.fromkeys(short_name(row) for row in rows if row.gpu and software_notes(own, row.gpu.vendor))
    return f"Other software than here, CUDA or ROCm: {', '.join(names)}." if names else ""


def _between(values: Sequence[float]) -> str:
    ends = dict.fromkeys(fmt.significant(value, 2) for value in (min(values), max(values)))
    return DASH.join(ends)


def _prices(rows: Sequence[Projection], today: date | None) -> str:
    unoffered = dict.fromkeys(short_name(row) for row in rows if row.offer is None)
    as_here = f" {', '.join(unoffered)}: counted as if it stood here." if unoffered else ""
    dates: dict[tuple[str, bool], set[str]] = {}
    for offer in (row.offer for row in rows):
        if offer is not None and offer.usd_per_gpu_hour is not None:
            dates.setdefault((offer.provider, offer.is_file_date), set()).add(offer.price_date)
    texts = []
    for (provider, is_file_date), read in sorted(dates.items()):
        whose = f"of {DEFAULT_PROVIDER_NAME if provider == DEFAULT_PROVIDER else provider} "
        of = "dated by their file" if is_file_date else "read"
        texts.append(f"{whose}{of} {_span(sorted(read))}{_age(sorted(read), today)}")
    others = "; --provider all adds others" if len(dates) == 1 and (DEFAULT_PROVIDER, False) in dates else ""
    return (f"Prices {'; '.join(texts)}{others}." if texts else "") + as_here


def _span(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _age(dates: Sequence[str], today: date | None) -> str:
    if today is None:
        return ""
    days = sorted((today - date.fromisoformat(text)).days for text in dates)
    return f" ({_span([str(n) for n in dict.fromkeys(days)])} days old)"


def _energy(rows: Sequence[Projection]) -> str:
    if not any(row.energy_kwh for row in rows):
        return ""
    pues = _by(rows, lambda row: (row.pue, row.region), lambda pue, region: f"{pue:g} {region or 'as here'}")
    return f"kWh hold the whole machine and its cooling: PUE {pues}, assumed where no site states it."


def _emissions(rows: Sequence[Projection], local: Projection) -> str:
    if local.intensity is None or not any(row.emissions_kgco2e for row in (local, *rows)):
        return ""
    at = _by(
        [row for row in rows if row.intensity and row.region],
        lambda row: (row.region, row.intensity.value if row.intensity else 0.0),
        lambda region, value: f"{value:.3g} in {region}",
    )
    intensities = ", ".join(filter(None, (f"{local.intensity.value:.3g} here", at)))
    claims = _by([row for row in rows if row.market], lambda row: (row.market.short if row.market else "",), str)
    unaudited = f" Market-based: {claims}, which nobody audits; nothing is ranked by it." if claims else ""
    return f"CO2e: location-based, g/kWh: {intensities}.{unaudited}"


def _embodied(rows: Sequence[Projection], local: Projection) -> str:
    """Return those of each machine by the user's figure; they stand nowhere else on a screen or a page."""
    amounts = [f"{fmt.mass(local.embodied_kgco2e.point)} here"] if local.embodied_kgco2e else []
    amounts += [f"{fmt.mass(row.embodied_kgco2e.point)} {short_name(row)}" for row in rows if row.embodied_kgco2e]
    return f"Embodied, by your figure, and in no other number: {', '.join(amounts)}." if amounts else ""


def _fit(rows: Sequence[Projection]) -> str:
    if any(row.is_fit_estimated for row in rows):
        return "Whether it fits goes by an estimated peak of memory, which no GPU has measured yet."
    if not rows or any(row.fits is not None for row in rows):
        return ""
    return "Whether it fits is not checked: no peak of GPU memory is known."


def _left_out(rows: Sequence[Projection], local: Projection) -> str:
    own = ", the price of your own machine" if local.cost_basis == "electricity" else ""
    scope = " Rented = scope 3 for you." if any(row.is_rented for row in rows) else ""
    making = "" if any(row.embodied_kgco2e for row in (local, *rows)) else _MAKING
    return f"Not in: {_NOT_IN}{making}{own}.{scope}"


def _by(rows: Iterable[Projection], key: Callable[[Projection], Hashable], text: Callable[..., str]) -> str:
    """Return ``1.3 us-east1 (L40S, A100), 1.2 eu-iceland1 (H100)``."""
    groups: dict[Hashable, list[str]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(short_name(row))
    return ", ".join(f"{text(*values)} ({', '.join(dict.fromkeys(names))})" for values, names in groups.items())  # type: ignore[misc]


def _warnings(
    projections: Sequence[Projection], options: Mapping[str, str], recommended: Projection | None
) -> tuple[Iterable[str], Iterable[str]]:
    """Return those about the table and the recommended machine, and of single rows those that each is about."""
    local, *others = projections
    by_text: dict[str, list[str]] = {}
    for row in others:
        for caveat in row.caveats if row.is_compared else ():
            by_text.setdefault(caveat.in_options(options), []).append(short_name(row))
    of_machines = (f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in by_text.items())
    of_table = [caveat.in_options(options) for caveat in local.caveats]
    if recommended is not None and not recommended.is_local:
        own = [caveat.in_options(options) for caveat in recommended.caveats]
        name = short_name(recommended)
        of_table += [text if text.startswith(name) else f"{name}: {text}" for text in own if text not in of_table]
    return (text[:1].upper() + text[1:] for text in of_table), of_machines
