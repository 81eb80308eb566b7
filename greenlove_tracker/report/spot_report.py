"""Spot advice in words: a document, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from greenlove_tracker.rendering.document import Document, Heading, Note, Paragraph, Table, Texts, columns
from greenlove_tracker.report.plain_values import QUANTITY_COLUMNS, columns_of, same, values_at
from greenlove_tracker.report.wording import footer
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.projection.spot import SpotAdvice

_TIMES = ("training_s", "lost_s", "saving_s", "restarting_s", "waiting_s")
_RESTS_ON = (
    "Ranges hold 90%: simulated trainings, which draw the time, the rate and each preemption.",
    "Preemptions come by chance at a constant rate, while the machine restarts and saves too; none is announced.",
    "Saving and restarting draw as much power as training. Machines are billed by the second.",
)


def spot_document(advice: SpotAdvice, about: str) -> Document:
    """Return whether to train on a machine that may be taken away.

    Args:
        advice: of ``spot_advice``.
        about: the training and the machine in words.
    """
    return Document(
        title="This training on a spot machine",
        subtitle=about,
        footer=footer(),
        verdict=headline(advice),
        blocks=(
            Table(columns({"": 1}, ("on demand", "spot"), 2.0), list(_totals(advice))),
            *map(Paragraph, filter(None, (_save_text(advice), _break_even(advice)))),
            Heading("How we know"),
            *map(Paragraph, filter(None, _given(advice))),
            *map(Note, _RESTS_ON),
        ),
    )


def headline(advice: SpotAdvice) -> str:
    """Return the verdict and its reason in one sentence: ``Spot is worth it: it costs 64% less, though …``."""
    parts = advice.parts
    saving = advice.saving
    terms = advice.terms
    if parts is None:
        every = fmt.duration(SECONDS_PER_HOUR / terms.rate_per_hour.upper)
        again = fmt.duration(terms.restart_s + terms.checkpoint_s + terms.written_s)
        return (
            f"Spot is not worth it: the training would hardly get on, if it is lost every {every} and a restart with a "
            f"checkpoint takes {again}."
        )
    longer = fmt.percent(parts.running_s / advice.on_demand.duration_s.point - 1, 1)
    if saving is None or advice.probability_of_saving is None:
        return f"Spot, without a verdict: the machine runs {longer} longer; without both prices no cost is compared."
    if saving.point <= 0:
        return f"Spot is not worth it: it costs {-saving.point:.1%} more, as the machine runs {longer} longer."
    less = fmt.percent(saving.point)
    if advice.verdict == "unclear":
        dearer = fmt.chance(1 - advice.probability_of_saving)
        return f"It is unclear whether spot is worth it: it is expected to cost {less} less, and {dearer} to cost more."
    return f"Spot is worth it: it costs {less} less, though the machine runs {longer} longer."


def _save_text(advice: SpotAdvice) -> str:
    known = f"(Young 1974: {fmt.duration(advice.young_s)}, Daly 2006: {fmt.duration(advice.daly_s)})"
    if advice.never_saves:
        return f"Save no checkpoint: the training is too short for one to pay {known}."
    given = ", as given" if advice.terms.interval_s is not None else ""
    return f"Save every {fmt.duration(advice.interval_s)} of work{given} {known}."


def _break_even(advice: SpotAdvice) -> str:
    if advice.break_even_usd_per_gpu_hour is None:
        return ""
    rate = advice.break_even_per_hour
    also = ""
    if rate is not None:
        also = f", or at {rate:.3g} preemptions in an hour"
    price = fmt.money(advice.break_even_usd_per_gpu_hour)
    return f"Nothing is saved at a spot price of {price} per GPU and hour{also}."


def _given(advice: SpotAdvice) -> Texts:
    """Return the terms that it was reckoned with; empty texts of those that need none."""
    terms = advice.terms
    rate = terms.rate_per_hour
    expected = advice.preemptions
    how = "as given"
    if isinstance(terms.preemptions_per_hour, int | float):
        how = "its range, from half to twice, is an assumption"
    return (
        f"Preemptions in an hour: {rate.point:.3g} [{rate.lower:.3g} – {rate.upper:.3g}], {how}.",
        f"{expected.point:.3g} are expected in all, at most {expected.upper:.3g}." if expected is not None else "",
        "Another machine is there at once: no waiting for one is counted." if not terms.wait_s else "",
        "No price on demand is known: give --on-demand-price." if terms.on_demand_price is None else "",
    )


def _totals(advice: SpotAdvice) -> Iterator[Texts]:
    """Yield the quantities of both ways: label, on demand, spot; of neither known, that says so."""
    for field, (name, text) in fmt.QUANTITIES.items():
        write = fmt.brief_duration if text is fmt.duration else text
        found = [getattr(way, field, None) for way in (advice.on_demand, advice.spot)]
        yield name, *(fmt.UNKNOWN if one is None else fmt.interval(one, write) for one in found)


def spot_record(advice: SpotAdvice, about: str) -> dict[str, Any]:
    """Return all of it as one object for JSON; None where something is not known."""
    record = {"about": about, "sentence": headline(advice), **values_at(advice, _COLUMNS)}
    record["time_parts"] = advice.parts and values_at(advice.parts, same(_TIMES))
    if advice.never_saves:
        record["checkpoint_interval_s"] = None
    return record


_COLUMNS = {
    "verdict": "verdict",
    "checkpoint_interval_s": "interval_s",
    "young_interval_s": "young_s",
    "daly_interval_s": "daly_s",
    **columns_of("preemptions"),
    "preemptions_per_hour": "terms.rate_per_hour.point",
    "preemptions_per_hour_lower": "terms.rate_per_hour.lower",
    "preemptions_per_hour_upper": "terms.rate_per_hour.upper",
    **columns_of("saving"),
    "probability_of_saving": "probability_of_saving",
    "break_even_preemptions_per_hour": "break_even_per_hour",
    "break_even_usd_per_gpu_hour": "break_even_usd_per_gpu_hour",
    "spot_usd_per_gpu_hour": "terms.spot_price",
    "on_demand_usd_per_gpu_hour": "terms.on_demand_price",
    "gpus_billed": "n_gpus",
    **{name: f"terms.{name}" for name in ("checkpoint_s", "written_s", "restart_s", "wait_s")},
    **dict.fromkeys(("on_demand", "spot"), QUANTITY_COLUMNS),
}
