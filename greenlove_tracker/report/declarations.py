"""What others ask for in forms of their own: a model card, SCI, the energy line of the EU's AI Act."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.keys import TRAINING
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.report import wording
from greenlove_tracker.report.facts import Facts, facts_of
from greenlove_tracker.units import GRAMS_PER_KG

UNITS = ("run", "epoch", "step", "sample", "token")


def model_card(aggregate: Aggregate, training_type: str = "") -> str:
    """The block of a Hugging Face model card's metadata, YAML; what is not known is left out.

    The fields are those of huggingface.co/docs/hub/model-cards-co2: emissions in grams.

    Args:
        aggregate: the runs of the model.
        training_type: ``pre-training`` or ``fine-tuning``.

    Raises:
        UsageError: where the emissions of a run are not known.
    """
    facts = facts_of(aggregate.runs)
    grams = _emissions_kgco2e(facts) * GRAMS_PER_KG
    places, hardware = sorted(facts.places - {""}), sorted(facts.hardware - {""})
    fields = {
        "emissions": f"{grams:.6g}",
        "source": _quoted(_tools(facts)),
        "training_type": _quoted(training_type) if training_type else "",
        "geographical_location": _quoted(", ".join(places)) if places else "",
        "hardware_used": _quoted(", ".join(hardware)) if hardware else "",
    }
    lines = ["co2_eq_emissions:", *(f"  {name}: {text}" for name, text in fields.items() if text)]
    left_out = _left_out(aggregate)
    return "\n".join([*lines, *([f"  # {left_out}"] if left_out else [])])


def sci(aggregate: Aggregate, unit: str, embodied_gco2e: float | None = None) -> str:
    """The Software Carbon Intensity of the runs: (E × I + M) / R, ISO/IEC 21031:2024.

    Args:
        aggregate: the runs.
        unit: the functional unit R, one of ``UNITS``.
        embodied_gco2e: M, of all runs together; None: it is not declared, and not taken for nothing.

    Raises:
        UsageError: where emissions or the number of units of a run are not known.
    """
    if unit not in UNITS:
        raise UsageError(f"the functional unit must be one of {', '.join(UNITS)}, not {unit!r}")
    facts, count = Facts(), 0
    for run in aggregate.runs:
        facts.add(run)
        if not is_exploration(run.fields):  # explorations are emitted for, not counted
            count += _units(run, unit)
    operational_g = _emissions_kgco2e(facts) * GRAMS_PER_KG
    n_trainings = facts.kinds[TRAINING]
    if not count:
        raise UsageError(f"none of the runs did a whole {unit}: choose another --unit")
    rate_g = (operational_g + (embodied_gco2e or 0.0)) / count
    embodied = "not declared" if embodied_gco2e is None else fmt.mass(embodied_gco2e / GRAMS_PER_KG)
    kwh = facts.sums.totals.energy_kwh
    return "\n".join(
        [
            f"SCI = {fmt.significant(rate_g, 4)} gCO2e per {unit}"
            + (", operational emissions only" if embodied_gco2e is None else ""),
            f"  E × I   {fmt.energy(kwh)} came to {fmt.mass(operational_g / GRAMS_PER_KG)} CO2e, location-based, in "
            f"{wording.runs_text(facts.kinds)}",
            f"  M       embodied emissions {embodied}",
            f"  R       {fmt.plural(count, unit)} in {fmt.plural(n_trainings, 'training run')}",
            *([f"  {left_out}"] if (left_out := _left_out(aggregate)) else []),
            "  ISO/IEC 21031:2024: SCI = (E × I + M) / R; contracts and certificates are not in it",
        ]
    )


def ai_act(aggregate: Aggregate) -> str:
    """The line on energy that the technical documentation of a general-purpose model needs.

    Regulation (EU) 2024/1689, Annex XI, section 1, point 2 (e): known or estimated energy consumption of the model.
    It says ``measured`` only where hardware measured all of it.

    Raises:
        UsageError: where the energy of a run is not known.
    """
    facts = facts_of(aggregate.runs)
    totals = facts.sums.totals
    _check_there_are_trainings(facts)
    if totals.energy_kwh is None or totals.n_unknown_energy:
        raise UsageError(_unknown("energy", "is", totals.n_unknown_energy, facts.without_energy))
    return (
        f"Energy consumption (Regulation (EU) 2024/1689, Annex XI, section 1, 2 (e)): {fmt.energy(totals.energy_kwh)}, "
        f"{_how(facts)}; {wording.runs_text(facts.kinds)}, {facts.pue_text} included, recorded with {_tools(facts)}"
        f"{f'; {left_out}' if (left_out := _left_out(aggregate)) else ''}"
    )


def _how(facts: Facts) -> str:
    """Measured, where hardware measured all of every component; else estimated, and how much of it was measured."""
    totals, missing = facts.sums.totals, ", ".join(sorted(facts.unmeasured))
    share, n_silent = totals.measured_share, totals.n_unknown_measured
    if share is None:
        return "estimated, and nothing is known of how much was measured"
    if share >= 1.0 and not missing and not n_silent:
        return "measured"
    silent = f" in the {fmt.plural(totals.n_runs - n_silent, 'run')} whose logs say it" if n_silent else ""
    lacks = f", {missing} of some runs not in it" if missing else ""
    return f"estimated, {fmt.percent(share)} of it{facts.before_pue} measured by hardware{silent}{lacks}"


def _check_there_are_trainings(facts: Facts) -> None:
    if not facts.n_runs:
        raise UsageError("no run could be read: there is nothing to declare")
    if not facts.kinds[TRAINING]:
        raise UsageError("these are explorations alone: there is no training to declare")


def _unknown(what: str, verb: str, n: int, names: Sequence[str]) -> str:
    more = f" and {n - len(names):,} more" if n > len(names) else ""
    return (
        f"the {what} of {fmt.plural(n, 'run')} {verb} not known ({', '.join(names)}{more}): what they took would be "
        "missing. Declare the directories of single runs, or move these elsewhere"
    )


def _emissions_kgco2e(facts: Facts) -> float:
    _check_there_are_trainings(facts)
    totals = facts.sums.totals
    if totals.emissions_kgco2e is None or totals.n_unknown_emissions:
        raise UsageError(_unknown("emissions", "are", totals.n_unknown_emissions, facts.without_emissions))
    return totals.emissions_kgco2e


def _units(run: Run, unit: str) -> int:
    """How many a run did; none is a number, as of a run that failed at once."""
    if unit == "run":
        return 1
    summary = run.summary
    if unit == "epoch":
        count = None if not summary.epochs_done and summary.epochs_planned is None else summary.epochs_done
    else:
        count = getattr(summary.counts, f"{unit}s")
    if count is None:
        raise UsageError(f"{run.path} counted no {unit}s: choose another --unit, or count them with tracker.step()")
    return int(count)


def _left_out(aggregate: Aggregate) -> str:
    """What is missing from a declaration; empty where all could be read."""
    n = len(aggregate.problems)
    parts = f"{fmt.plural(n, 'part')} of the logs could not be read"
    return f"{parts} and {'is' if n == 1 else 'are'} not in it" if n else ""


def _tools(facts: Facts) -> str:
    names = {f"greenlove_tracker {version}" for version in facts.versions if version}
    return ", ".join([*sorted(names), *sorted(facts.meters - {"", "none"})])


def _quoted(text: str) -> str:
    """A YAML string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
