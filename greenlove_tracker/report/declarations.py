"""What others ask for in forms of their own: a model card, SCI, the energy line of the EU's AI Act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.keys import KEYS
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.report import wording
from greenlove_tracker.report.figures import measured_share
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
    runs = list(aggregate.runs)  # each look at them reads them again
    grams = _emissions_kgco2e(runs) * GRAMS_PER_KG
    places = sorted({text for run in runs if (text := wording.data(run, "country", 40))})
    hardware = sorted(
        {wording.data(run, "gpu_models", 60) or wording.data(run, "cpu_model", 60) for run in runs} - {""}
    )
    fields = {
        "emissions": f"{grams:.6g}",
        "source": _quoted(_tools(runs)),
        "training_type": _quoted(training_type) if training_type else "",
        "geographical_location": _quoted(", ".join(places)) if places else "",
        "hardware_used": _quoted(", ".join(hardware)) if hardware else "",
    }
    return "\n".join(["co2_eq_emissions:", *(f"  {name}: {text}" for name, text in fields.items() if text)])


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
    runs = list(aggregate.runs)  # each look at them reads them again
    operational_g = _emissions_kgco2e(runs) * GRAMS_PER_KG
    trainings = [run for run in runs if not is_exploration(run.fields)]  # explorations are emitted for, not counted
    if not trainings:
        raise UsageError(f"{aggregate.path} holds explorations alone: there is no training to give a rate of")
    count = sum(_units(run, unit) for run in trainings)
    rate_g = (operational_g + (embodied_gco2e or 0.0)) / count
    embodied = "not declared" if embodied_gco2e is None else fmt.mass(embodied_gco2e / GRAMS_PER_KG)
    kwh = aggregate.total.energy_kwh
    return "\n".join([
        f"SCI = {fmt.significant(rate_g, 4)} gCO2e per {unit}"
        + (", operational emissions only" if embodied_gco2e is None else ""),
        f"  E × I   {fmt.energy(kwh)} came to {fmt.mass(operational_g / GRAMS_PER_KG)} CO2e, location-based, in "
        f"{_runs_text(runs)}",
        f"  M       embodied emissions {embodied}",
        f"  R       {fmt.plural(count, unit)} in {fmt.plural(len(trainings), 'training run')}",
        "  ISO/IEC 21031:2024: SCI = (E × I + M) / R; contracts and certificates are not in it",
    ])  # fmt: skip


def ai_act(aggregate: Aggregate) -> str:
    """The line on energy that the technical documentation of a general-purpose model needs.

    Regulation (EU) 2024/1689, Annex XI, section 1, point 2 (e): known or estimated energy consumption of the model.
    It says ``measured`` only where hardware measured all of it.

    Raises:
        UsageError: where the energy of a run is not known.
    """
    runs = list(aggregate.runs)  # each look at them reads them again
    kwh, unknown = aggregate.total.energy_kwh, aggregate.total.n_unknown_energy
    if kwh is None or unknown:
        raise UsageError(f"the energy of {fmt.plural(unknown, 'run')} is not known: leave them out, or track again")
    share = measured_share(runs) or 0.0
    how = "measured" if share >= 1.0 else f"estimated, {fmt.percent(share)} of it measured by hardware"
    pues = sorted({run.summary.pue for run in runs})
    pue = f"PUE {pues[0]:g}" if len(pues) == 1 else f"PUE {pues[0]:g} to {pues[-1]:g}"
    return (
        f"Energy consumption (Regulation (EU) 2024/1689, Annex XI, section 1, 2 (e)): {fmt.energy(kwh)}, {how}; "
        f"{_runs_text(runs)}, {pue} included, recorded with {_tools(runs)}"
    )


def _emissions_kgco2e(runs: Sequence[Run]) -> float:
    if not runs:
        raise UsageError("no run could be read: there is nothing to declare")
    found = [wording.emissions_kgco2e(run) for run in runs]
    unknown = sum(kg is None for kg in found)
    if unknown:
        raise UsageError(f"the emissions of {fmt.plural(unknown, 'run')} are not known: leave them out, or track again")
    return sum(kg for kg in found if kg is not None)


def _units(run: Run, unit: str) -> int:
    summary = run.summary
    count = 1 if unit == "run" else summary.epochs_done if unit == "epoch" else getattr(summary.counts, f"{unit}s")
    if not count:
        raise UsageError(f"{run.path} counted no {unit}s: choose another --unit, or count them with tracker.step()")
    return int(count)


def _runs_text(runs: Sequence[Run]) -> str:
    return wording.runs_text(Counter(KEYS["kind"](run) for run in runs))


def _tools(runs: Sequence[Run]) -> str:
    names = {f"greenlove_tracker {wording.data(run, 'greenlove_version', 20)}".strip() for run in runs}
    meters = {wording.data(run, "meter", 40) for run in runs} - {"", "none"}
    return ", ".join([*sorted(names), *sorted(meters)])


def _quoted(text: str) -> str:
    """A YAML string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
