"""Methods, factors, endings and sums in words, the same in every report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker import format as fmt
from greenlove_tracker.config import TimeLimitSource
from greenlove_tracker.extrapolation.time_fit import run_time_fit
from greenlove_tracker.forecasting import Estimate, Position, TimeFit
from greenlove_tracker.logs.forecasts import GOOD_ENDINGS, Scored, headline
from greenlove_tracker.logs.intensity_sources import is_mock, sources_in
from greenlove_tracker.logs.run import SIMULATED_METERS, Run
from greenlove_tracker.logs.run_rows import COMPARISON, EXPLORATION, TRAINING
from greenlove_tracker.logs.schema import UNSEEN, amount
from greenlove_tracker.logs.scoring import scored_forecasts
from greenlove_tracker.logs.sums import Totals
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.records import COMPONENTS, MEASURED_METHODS, Factor, Flag, Method, RunStatus, RunSummary
from greenlove_tracker.rendering.document import Column
from greenlove_tracker.workloads import WORKLOADS

NOT_COUNTED = ("screen", "disks", "network", "making of the hardware")

NOTHING_RECORDED = "nothing was recorded"

METER_STARTING = "the meter is not up yet"

FIELD_WIDTH = 160  # of a text from a log, in running text or a table of two columns

STAR = "*"

_METHODS: Mapping[str, str] = {
    Method.COUNTER: "counter",
    Method.SAMPLED_POWER: "power readings",
    Method.TDP_MODEL: "modelled (by load and TDP)",
    Method.CONSTANT: "constant",
    Method.ASSUMED: "assumed",
}

_BEYOND_GPU = ("CPU", "memory", "fans", "network cards", "losses of the power supplies")

# Mean powers of whole trainings: SMC in v4.0 (mlcommons/training_results_v4.0 @6fe95437, smc-ac-power, 8 × H100 of
# 700 W: 1.22 to 1.30), Lenovo in v5.0 (training_results_v5.0 @0fdc28f0, 8 × B200 of 1000 W: 1.20 to 1.26).
_NODES_AT_THE_WALL = (
    "nodes of 8 H100 or B200 drew 20 to 30% more at the wall than their GPUs' power limits (MLPerf Training v4.0 and "
    "v5.0)"
)

_FLAGS: Mapping[str, str] = {
    Flag.METER_FAILED: "The meter failed during the run; the energy after that is estimated at the mean power before.",
    Flag.GPU_UNREAD: "The GPU could not be read for a part of the run; its energy there is estimated.",
    Flag.POWER_HOLE: "Power was not read for over 5 s at a time in some rows (flag power_hole): the mean of the other "
    "readings stands for it.",
    Flag.PREDICTED: "Not all epochs were monitored: the totals hold carbontracker's prediction for the rest, which has "
    "no interval; whether the training ran to its end is not in the log.",
    Flag.CLOCK_JUMP: "The clock jumped: the machine slept or its clock was set; the times of some epochs are doubtful.",
    Flag.NOT_ENDED: "Some epochs were not ended by epoch_end(): they last until the next epoch began.",
    Flag.HUNG: "The training hung and was ended by SIGTERM; the energy of its last part is estimated.",
}

_ENDINGS: Mapping[str, str] = {
    RunStatus.EXITED: RunStatus.EXITED.meaning,
    RunStatus.FAILED: "ended by an exception or a non-zero exit",
    RunStatus.INTERRUPTED: "ended by Ctrl-C, or killed",
    RunStatus.TERMINATED: "ended by SIGTERM",
    RunStatus.STOPPED: "ended by its own budget, or by the answer to its question",
    RunStatus.SUPERSEDED: RunStatus.SUPERSEDED.meaning,
    RunStatus.RUNNING: "had not ended when this was written",
}


def field_text(run: Run, name: str, width: int = FIELD_WIDTH) -> str:
    """Return a field of ``run.csv`` in one line."""
    return fmt.shortened(run.text(name), width)


def runs_text(numbers: Mapping[str, int]) -> str:
    """Write ``12 training runs, 2 explorations and 1 comparison``, from the number of each kind."""
    nouns = {EXPLORATION: "exploration", COMPARISON: "comparison"}
    parts = [fmt.plural(numbers.get(TRAINING, 0), "training run")]
    parts += [fmt.plural(n, noun) for kind, noun in nouns.items() if (n := numbers.get(kind, 0))]
    return joined(parts, "and")


def cut_text(n_cut: int) -> str:
    """Say that runs cross an end of the period that was asked for, and what counts of them."""
    return (
        f"{fmt.plural(n_cut, 'run')} {'crosses' if n_cut == 1 else 'cross'} an end of it: only the part inside counts"
    )


def progress(run: Run) -> str:
    """Write ``n of m epochs`` or steps; that none were marked is not the same as that none were made."""
    summary, planned_steps = run.summary, run.total_steps_planned
    if planned_steps is not None:
        before = run.first_step
        text = f"{summary.counts.steps or 0:,} of {planned_steps:,} steps"
        return f"{text}, number {before + 1:,} to {before + planned_steps:,}" if before else text
    before = run.first_epoch
    if run.text("loops_seen") == "steps":
        return fmt.plural(summary.counts.steps or 0, "step")
    if summary.epochs_planned is None and not run.epochs:  # which take long to put together, where there are many
        return f"no epochs, {before:,} done before" if before else "epochs not marked"
    if summary.epochs_planned is None:
        text = fmt.plural(summary.epochs_done, "epoch")
        return f"{text}, from number {before + 1:,} on" if before and summary.epochs_done else text
    last = f" to {before + summary.epochs_planned:,}" if summary.epochs_planned > 1 else ""
    whole = f", number {before + 1:,}{last}" if before else ""
    if summary.epochs_done > summary.epochs_planned:
        return f"{fmt.plural(summary.epochs_done, 'epoch')}, {summary.epochs_planned:,} planned{whole}"
    stopped = ", stopped early" if run.stopped_early_after is not None else ""
    return f"{summary.epochs_done:,} of {summary.epochs_planned:,} epochs{whole}{stopped}"


def early_stop_sentence(run: Run) -> str:
    """Say after which epoch early stopping ended the run, and which was the best; empty where it did not."""
    after, planned = run.stopped_early_after, run.summary.epochs_planned
    if after is None:
        return ""
    of = (
        f" of {run.first_epoch + planned:,} epochs"
        if planned is not None and after <= run.first_epoch + planned
        else f" {'epoch' if after == 1 else 'epochs'}"
    )
    best, rule = run.text("best_epoch"), field_text(run, "stopping_rule")
    best = f"; best: epoch {int(best):,}" if best.isdecimal() else ""
    return f"stopped early after {after:,}{of}{best}" + (f" ({rule})" if rule else "")


def expected_stop(run: Run, issued: IssuedForecast) -> str:
    """Say where early stopping was expected to end the run when this was forecast; empty without a rule."""
    return "" if issued.stop_epochs is None else fmt.expected_stop(issued.stop_epochs, run.first_epoch + issued.planned)


def method(joined: str | None, constant_w: str = "", tdp_w: str = "") -> str:
    """Put one or more methods joined by ``+`` into words."""
    if not joined:
        return "method not in the log"
    known = _METHODS if not tdp_w else {**_METHODS, Method.TDP_MODEL: f"modelled (by load, {tdp_w} W rated)"}
    words = [known.get(name, fmt.shortened(name, 30)) for name in joined.split("+")]
    text = " and ".join(words)
    return f"{text} ({constant_w} W)" if constant_w and joined == Method.CONSTANT else text


def measured_bounds(quantity: str, estimate: Estimate | None) -> tuple[str, ...]:
    """Write how far a total may be off: ``95% range 3.18 kWh – 3.52 kWh``; nothing where that is not known.

    That of CO2e and of a cost is the energy's: the error of the carbon intensity and the price is not in it.
    """
    if estimate is None:
        return ()
    of_energy = "" if quantity == "energy_kwh" else " (energy uncertainty only)"
    return (f"{estimate.level:.0%} range {fmt.bounds(estimate, fmt.QUANTITIES[quantity][1])}{of_energy}",)


def calibration_text(run: Run) -> str:
    """Say what the energy of a run is calibrated with; empty where it is not."""
    return f"calibrated: {run.calibration.text}" if run.calibration else ""


def is_measured(joined: str | None) -> bool:
    """Return True where hardware gave all of it."""
    return bool(joined) and set((joined or "").split("+")) <= MEASURED_METHODS


def short_source(factor: Factor) -> str:
    """Return the source without its details in brackets, which the method page gives in full."""
    return fmt.shortened(factor.source, FIELD_WIDTH).partition(" (")[0]


def intensity(factor: Factor) -> str:
    """Write a carbon intensity with its basis, year and source."""
    parts = (
        "" if factor.basis == "as given" else fmt.shortened(factor.basis, 60),
        f"{fmt.significant(factor.value)} g/kWh",
        fmt.shortened(factor.year, 20),
        short_source(factor),
    )
    return ", ".join(part for part in parts if part)


def why_no_energy(run: Run) -> str:
    """Explain why the energy of a run is not known."""
    note = field_text(run, "meter_note")
    if _ended_too_soon(run):  # what the meter notes is why it would have modelled, and not measured
        return METER_STARTING if run.summary.status == RunStatus.RUNNING else "the run ended before the meter was up"
    if note := field_text(run, "meter_note"):
        return note
    if Flag.METER_FAILED in run.summary.flags:
        return "the meter failed"
    if run.text("meter") == "none":
        return "no meter was running"
    return "nothing was metered" if run.summary.duration_s else NOTHING_RECORDED


def _ended_too_soon(run: Run) -> bool:
    """Return True where there is no energy because the meter came up too late."""
    flags = run.summary.flags
    return Flag.METER_STARTING in flags and Flag.METER_FAILED not in flags and run.text("meter") != "none"


def why_no_cost(run: Run) -> str:
    """Explain why the cost of a run is not known."""
    if run.lacks_gpus and run.electricity_price is not None:
        return "the energy of the GPUs is unknown"
    if run.electricity_price is not None:
        return "the energy is unknown"
    country = field_text(run, "country", 40)
    return f"no openly licensed electricity price for {country}" if country else "no country, so no electricity price"


def why_incomplete(summary: RunSummary) -> str:
    """Explain why a run did not finish; empty where it did."""
    ending = _ENDINGS.get(summary.status, "")
    code = f", exit {summary.exit_code}" if summary.exit_code is not None and ending else ""
    return f"{ending}{code}"


_CALLBACK = "add callbacks=[GreenloveCallback()] from greenlove_tracker.integrations"
_OF_UNSEEN = {
    "spawn": "processes that mp.spawn starts are not looked into; make a Tracker in the spawned function",
    "fastai": "fastai shows none to the runner; make a Tracker, and call epoch_start() and epoch_end() in a fastai "
    "Callback's before_epoch and after_epoch",
    "keras": f"Keras shows none to the runner; {_CALLBACK}.keras",
    "lightgbm": "LightGBM shows no rounds to the runner; add callbacks=GreenloveCallbacks() from "
    "greenlove_tracker.integrations.lightgbm",
    "xgboost": f"XGBoost shows no rounds to the runner; {_CALLBACK}.xgboost",
    "jax": "JAX shows none to the runner; make a Tracker, and call epoch_start() and epoch_end() around each epoch",
    "sklearn": "scikit-learn shows none to the runner; make a Tracker around each fit; explore_callable forecasts one",
}


_ENDED_EARLY = (RunStatus.STOPPED, RunStatus.INTERRUPTED, RunStatus.TERMINATED, RunStatus.FAILED)


def loops_sentence(run: Run) -> str:
    """Say what was found in a script that marks no epochs itself; empty of any other run."""
    seen, counts, source = run.text("loops_seen"), run.summary.counts, run.text("plan_source")
    if seen == "no torch":
        return "no epochs were seen: this process did not use PyTorch; a Tracker in the script marks them"
    if seen == "no steps" and run.summary.epochs_done:  # those of other processes of the script
        return ""
    if seen == "no steps" and run.summary.status in _ENDED_EARLY:
        return "no epochs were seen: the script ended before its first optimizer step"
    if seen == "no steps":
        return (
            "no epochs were seen: PyTorch made no optimizer step in this process; where another one trains, put a "
            "Tracker there"
        )
    if seen.startswith(UNSEEN):
        names = [name for name in seen.removeprefix(UNSEEN).split() if name in _OF_UNSEEN]
        return f"no epochs were seen: {_OF_UNSEEN[names[0]]}" if names and not run.epochs else ""
    if seen == "not looked for":
        how = "start it as python -m greenlove_tracker train.py, or torchrun … -m greenlove_tracker train.py"
        return "" if run.epochs else f"no epochs are looked for in a command after --: {how}"
    if not seen:
        return ""
    found = [fmt.plural(run.summary.epochs_done, "epoch")] if seen == "epochs" else []
    found += [fmt.plural(counts.batches, "batch")] if counts.batches else []
    found.append(fmt.plural(counts.steps or 0, "optimizer step"))
    *first, last = found
    listed = f"{', '.join(first)} and {last}" if first else last
    if seen == "steps":
        listed += " in the script, but no epochs of a PyTorch DataLoader"
    else:
        listed += " in the script's PyTorch loop"
    return f"found {listed}{_planned_by(run, source)}"


def _planned_by(run: Run, source: str) -> str:
    """Say how long the training was to be and where that is from, or how to say it; empty where neither is known."""
    if not source:
        return (
            "; no forecast without their number: greenlove run --epochs N" if run.text("loops_seen") == "epochs" else ""
        )
    n_epochs, n_steps = run.summary.epochs_planned, run.total_steps_planned
    length = fmt.plural(n_epochs, "epoch") if n_epochs is not None else fmt.plural(n_steps or 0, "step")
    whose = source.replace("the script's argument", "its argument")
    return f"; {length} planned by {whose}"


def wait_sentence(run: Run) -> str:
    """Say how long the run was held back for a cleaner grid, and what that came to; empty where nothing waited."""
    wait_s = amount_in(run, "wait_s")
    if wait_s is None:
        return ""
    reason = fmt.shortened(run.text("wait_reason"), FIELD_WIDTH)
    before, at_start = (amount_in(run, f"intensity_at_{when}_gco2e_per_kwh") for when in ("request", "start"))
    if at_start is None:
        grid = ""
    elif before is None or round(before) == round(at_start):
        grid = f"; the grid was at {at_start:.0f} gCO2e/kWh at the start"
    else:
        grid = f"; the grid went from {before:.0f} to {at_start:.0f} gCO2e/kWh meanwhile"
    held = f"waited {fmt.duration(wait_s)} before the start" if wait_s >= 1 else "started without waiting"
    return f"{held}{f' ({reason})' if reason else ''}{grid}"


def kind_sentence(run: Run) -> str:
    """Say which precision the run computed in, and of which class its model is; empty where neither is known."""
    precision, workload = field_text(run, "precision"), run.text("workload")
    parts = [f"computed in {precision}{_basis(run, 'precision')}"] if precision else []
    if workload in WORKLOADS:
        what = "a model of another class" if workload == "other" else f"a {workload} model"
        parts.append(f"{what}{_basis(run, 'workload')}")
    return "; ".join(parts)


def _basis(run: Run, name: str) -> str:
    basis = field_text(run, f"{name}_basis")
    return f" ({basis})" if basis else ""


def amount_in(run: Run, field: str) -> float | None:
    """Return an amount in ``run.csv``; None where there is none, or it is damaged."""
    try:
        return amount(run.text(field))
    except ValueError:
        return None


def measured_sentence(run: Run) -> str:
    """Say how much of the energy hardware measured, and what of the machine could not be; without a full stop."""
    share, note = run.summary.measured_share, field_text(run, "meter_note")
    doctor = "" if run.text("meter") in SIMULATED_METERS else ". See greenlove doctor"
    if share is None and run.summary.energy_kwh is not None:
        return f"how much of this energy was measured is not known: {note or 'its log does not say'}"
    if share is None and _ended_too_soon(run) and run.summary.status == RunStatus.RUNNING:
        return f"no energy is known yet: {METER_STARTING}"
    if share is None and _ended_too_soon(run):
        return f"no energy was measured: {why_no_energy(run)}; call tracker.wait_ready(30), or run longer"
    if share is None:
        return f"no energy was measured: {why_no_energy(run)}{doctor}"
    if share == 0:
        return f"~ Energy is modelled{f': {note}' if note else ''}{doctor}"
    missing = [c for c in run.text("unmeasured").split() if c in COMPONENTS]
    left_out = f"; {joined(missing)} could not be measured" if missing else ""
    whose = "" if run.summary.pue == 1 else " before PUE"
    return f"{fmt.percent(share)} of the energy{whose} was measured{left_out}"


def joined(words: Sequence[str], conjunction: str = "and") -> str:
    """Write ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def node_text(run: Run) -> str:
    """Write what the energy beyond the meters stands for: ``assumed for the rest of the node (1.25 × its GPUs)``."""
    if run.calibration is not None:
        return "rest of the node, from a wall meter"
    factor = run.factor("node_overhead")
    times = f" ({fmt.significant(factor.value)} × its GPUs)" if factor else ""
    return f"{method(Method.ASSUMED)} for the rest of the node{times}"


def beyond_gpus(metered: Iterable[str], node_overhead: float | None) -> str:
    """Say what the counters of GPUs leave out, how much that may be, and whether it is in the total.

    Args:
        metered: components that are.
        node_overhead: as it was set.
    """
    there = [{"cpu": "CPU", "ram": "memory"}.get(component, "") for component in metered]
    beyond = joined([part for part in _BEYOND_GPU if part not in there], "and")
    taken = "are in no figure here, and node_overhead=1.25, say, would assume them"
    if node_overhead is not None:
        times = fmt.significant(node_overhead)
        taken = f"are in the total by an assumption: {times} times the GPUs' energy for the whole node"
    return f"A GPU's counter sees the GPU alone: {beyond} {taken}. As an order of magnitude, {_NODES_AT_THE_WALL}."


def beyond_gpus_of(run: Run) -> str:
    """Say what the counters of a run's GPUs leave out; empty without GPUs."""
    if not run.summary.energy.gpu_kwh or run.calibration is not None:  # then all of it is in the total
        return ""
    metered = [component for component in COMPONENTS if run.summary.energy.component_kwh(component) is not None]
    return beyond_gpus(metered, run.terms.node_overhead)


def warnings(run: Run) -> tuple[str, ...]:
    """Return what spoils the figures of a run, one sentence each."""
    found = [text for flag, text in _FLAGS.items() if flag in run.summary.flags]
    if run.text("meter") in ("simulated", "replay"):
        what = {"simulated": "The hardware was simulated", "replay": "The meter played a log back"}
        found.insert(0, f"{what[run.text('meter')]}: the energy is not this machine's.")
    found += _intensity_warnings(run)
    if not run.has_summary and run.summary.status != RunStatus.RUNNING:
        found.append("No summary was written: the totals are added up from the rows.")
    if cut_off := run.cut_off_ranks:
        which = f"Rank {cut_off[0]}" if len(cut_off) == 1 else f"{len(cut_off):,} of {run.summary.n_ranks:,} ranks"
        found.append(
            f"{which} recorded no end, as where a process is killed: its last work is missing from every figure."
        )
    if run.problems:
        left_out = "is left out" if len(run.problems) == 1 else "are left out"
        found.append(f"{fmt.plural(len(run.problems), 'part')} of the log could not be read and {left_out}.")
    return tuple(found)


def _intensity_warnings(run: Run) -> list[str]:
    sources = run.intensity_sources
    found = ["MOCK: the carbon intensity is invented, and so is the CO2e."] if is_mock(sources) else []
    fallbacks = [source for source in sources if source.is_fallback]
    if fallbacks:
        names = " and ".join(dict.fromkeys(source.described for source in fallbacks))
        found.append(
            f"For {fmt.percent(_fallback_share(run))} of the time {names} stood in for the carbon intensity that was "
            f"asked for ({fmt.shortened(fallbacks[-1].reason, 80)})."
        )
    return found


def _fallback_share(run: Run) -> float | None:
    """Return the share of the time whose rows a fall-back counted for, wholly or in part."""
    times = [(r.gap_before_s + r.duration_s, r.carbon_intensity_source) for r in run.metered_rows]
    whole_s = math.fsum(s for s, _ in times)
    fallen_s = math.fsum(s for s, cell in times if any(source.is_fallback for source in sources_in(cell)))
    return fallen_s / whole_s if whole_s > 0 else None


def unmetered_text(run: Run) -> str:
    """Write the time that an estimate stands for: ``1.30 s before the meter was up``."""
    unmetered_s = max(0.0, run.summary.duration_s - run.summary.metered_s)
    if Flag.PREDICTED in run.summary.flags:
        return f"{fmt.duration(unmetered_s)} of epochs that carbontracker predicted"
    only_at_start = Flag.METER_STARTING in run.summary.flags and not (
        run.summary.flags & {Flag.METER_FAILED, Flag.GPU_UNREAD}
    )
    return f"{fmt.duration(unmetered_s)} {'before the meter was up' if only_at_start else 'that was not metered'}"


def issued_after(issued: IssuedForecast) -> str:
    """Write when a forecast was made: ``after 3 epochs``; and by whom, where it was not by us."""
    if issued.epochs_done:
        whose = " (carbontracker's)" if issued.method == "carbontracker" else ""
        return f"after {fmt.plural(issued.epochs_done, 'epoch')}{whose}"
    if issued.steps_done:
        return f"after {fmt.plural(issued.steps_done, 'step')}"
    return "before the start"


def time_fit_of(run: Run, limit_s: float | None = None) -> TimeFit | None:
    """Return how a run that is not done was to fit its time limit, on its latest forecast; None of any other run.

    Args:
        run: of a log.
        limit_s: another limit, from its start; default: its own.
    """
    is_done = run.summary.status in GOOD_ENDINGS and not run.text("monitor_epochs")
    limit_s = run.time_limit_s if limit_s is None else limit_s
    if limit_s is None or is_done or run.is_complete or not run.forecasts:
        return None
    issued, epochs, steps = run.forecasts[-1], run.summary.epochs_planned, run.total_steps_planned
    is_in_steps = epochs is None or (issued.planned != epochs and issued.planned == steps)
    done: float = issued.steps_done if is_in_steps else issued.epochs_done
    if not is_in_steps and not done and steps and epochs:  # before the first epoch's end
        done = min(1.0, issued.steps_done / steps * epochs)
    position = Position(issued.planned, done, issued.elapsed_s, is_in_steps)
    passed_s = max(issued.elapsed_s, run.summary.duration_s)
    fit = run_time_fit(issued.estimates["duration_s"], limit_s, position, passed_s=passed_s)
    # the log does not have the time of each phase, nor that of all epochs where early stopping may end them
    return replace(fit, longest=None) if run.text("phases") or issued.stop_epochs is not None else fit


def time_limit_sentence(run: Run, limit_s: float | None = None) -> str:
    """Say whether a run kept its time limit, or how it was to fit it; empty where it had none, or no forecast.

    Args:
        run: of a log.
        limit_s: another limit, from its start; default: its own.
    """
    own_s = run.time_limit_s
    if run.is_exploration or (own_s is None and limit_s is None):
        return ""
    source = run.text("time_limit_source") if limit_s is None else ""
    source = f"{fmt.shortened(source, 30)} after" if source not in ("", TimeLimitSource.HOURS) else "time limit of"
    given_s = own_s if limit_s is None else limit_s
    if given_s is not None and given_s <= 0:
        return f"the {source.removesuffix(' after')} had passed before the run began"
    limit = f"{source} {fmt.duration(given_s)}"
    fit = time_fit_of(run, limit_s)
    if fit is not None:
        needs = f"the whole takes about {fmt.interval(run.forecasts[-1].estimates['duration_s'], fmt.duration)}"
        prospect = f"missed, with {progress(run)}" if fit.is_over else fmt.time_fit(fit)
        return f"{limit}: {prospect}; {needs}"
    if own_s is None or run.summary.status not in GOOD_ENDINGS:
        return ""
    spare_s = own_s - run.summary.duration_s
    return f"{limit} " + (
        f"kept, {fmt.duration(spare_s)} to spare" if spare_s >= 0 else f"missed by {fmt.duration(-spare_s)}"
    )


@dataclass(frozen=True, slots=True)
class ForecastOutcome:
    """One run's forecast of one quantity, with its outcome."""

    run_id: str
    project: str
    status: str
    n_forecasts: int
    issued: IssuedForecast
    estimate: Estimate
    scores: Sequence[Scored]
    time_fit: TimeFit | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the forecast as a row for JSON and CSV; None where there is no outcome."""
        scored = headline(self.scores)
        return {
            "run_id": self.run_id,
            "project": self.project,
            "status": self.status,
            "unit": self.estimate.unit,
            "epochs_done": self.issued.epochs_done,
            "steps_done": self.issued.steps_done,
            "elapsed_s": self.issued.elapsed_s,
            "forecast": self.estimate.point,
            "lower": self.estimate.lower if self.estimate.has_interval else None,
            "upper": self.estimate.upper if self.estimate.has_interval else None,
            "level": self.estimate.level if self.estimate.has_interval else None,
            "outcome": scored.outcome if scored else None,
            "error": scored.error if scored else None,
            "has_held": scored.has_held if scored and self.estimate.has_interval else None,
            "n_forecasts": self.n_forecasts,
            "n_held": sum(s.has_held for s in self.scores) if self.scores and self.estimate.has_interval else None,
            "time_limit_s": self.time_fit.limit_s if self.time_fit else None,
            "fits": self.time_fit.probability if self.time_fit else None,
            "fits_length": self.time_fit.longest if self.time_fit else None,
        }


def interval_head(estimates: Iterable[Estimate]) -> str:
    """Return the head of a column of intervals, which have one level: ``95% interval``."""
    level = next((estimate.level for estimate in estimates if estimate.has_interval), None)
    return "interval" if level is None else f"{level:.0%} interval"


def outcome_of(run: Run, quantity: str, limit_s: float | None = None) -> ForecastOutcome | None:
    """Choose a forecast: at a tenth of a run that is over, the latest of one that is not; None without any.

    Args:
        run: of a log.
        quantity: one of ``QUANTITIES``.
        limit_s: of the time of runs that are not done; default: each one's own.
    """
    issued = [f for f in run.forecasts if quantity in f.estimates]
    if not issued:
        return None
    scores = scored_forecasts(run, quantity)
    scored = headline(scores)
    chosen = scored.issued if scored else issued[-1]
    summary = run.summary
    return ForecastOutcome(
        run.run_id,
        summary.project,
        summary.status,
        len(issued),
        chosen,
        chosen.estimates[quantity],
        scores,
        time_fit_of(run, limit_s),
    )


def left_out(n_simulated: int) -> str:
    """Say that simulated runs are in no figure; empty where none was left out."""
    are = "is" if n_simulated == 1 else "are"
    return f"{fmt.plural(n_simulated, 'simulated run')} {are} left out" if n_simulated else ""


SUM_COLUMNS = (
    Column("time", 1.6, is_number=True),
    Column("GPU-h", 1.2, is_number=True),
    Column("energy", 1.5, is_number=True),
    Column("CO2e", 1.4, is_number=True),
    Column("cost", 1.5, is_number=True),
)


@dataclass(frozen=True)
class Sums:
    """The sums over some runs, as cells of a table; a sum that lacks runs carries a star."""

    totals: Totals

    @property
    def gpu_hours(self) -> str:
        """GPU-hours without their unit; a dash where no run had a GPU."""
        totals = self.totals
        if totals.gpu_hours is None:
            return fmt.UNKNOWN
        text = fmt.significant(totals.gpu_hours) if totals.gpu_hours else "–"
        return _starred(text, totals.gpu_hours, totals.n_unknown_gpu_hours)

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Time, GPU-hours, energy, CO2e and cost."""
        totals = self.totals
        return (
            fmt.duration(totals.duration_s or None),
            self.gpu_hours,
            _starred(fmt.energy(totals.energy_kwh), totals.energy_kwh, totals.n_unknown_energy),
            _starred(fmt.mass(totals.emissions_kgco2e), totals.emissions_kgco2e, totals.n_unknown_emissions),
            _starred(fmt.money(totals.cost_usd), totals.cost_usd, totals.n_unknown_cost),
        )


def _starred(text: str, value: float | None, n_unknown: int) -> str:
    return text + STAR if value is not None and n_unknown else text


def sum_notes(totals: Totals) -> list[str]:
    """Return what the sums over some runs lack, assume or mix, a sentence each."""
    lacks = any(cell.endswith(STAR) for cell in Sums(totals).cells)
    said = {
        "* without the runs for which it is unknown.": lacks,
        f"! MOCK: the carbon intensity of {fmt.plural(totals.n_mock_intensity, 'run')} is invented, and so is the "
        "CO2e.": totals.n_mock_intensity,
        "The CO2e mixes direct and lifecycle carbon intensities: greenlove summary --by intensity separates them.": "+"
        in totals.intensity_coverage,
        "The sums hold carbontracker's prediction for epochs that it did not monitor.": totals.n_predicted,
        "The energy includes an assumed node_overhead, or is calibrated with a wall meter.": totals.node_assumed_kwh
        or totals.n_calibrated,
    }
    return [text for text, is_so in said.items() if is_so]
