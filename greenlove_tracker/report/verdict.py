"""The head of a report: its title, the answer in a few sentences, and what period, place and scope it is of."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_factors import market_kgco2e
from greenlove_tracker.logs.sums import Totals
from greenlove_tracker.records import Factor, RunStatus
from greenlove_tracker.report import wording

STAMP = "SIMULATED"
_SCOPE_2 = "Scope 2: electricity of an owned machine."
_SCOPE_3 = "Scope 3: electricity of a rented machine."
_NOT_IN_IT = (
    "Embodied emissions of the hardware are not included; upstream ones, in a lifecycle intensity, are scope 3."
)
_GOOD = (RunStatus.FINISHED, RunStatus.EXITED)


def run_title(run: Run) -> str:
    """Return what people call a run: its project and its script; its id where it has neither."""
    project, script = wording.field_text(run, "project", 60), _script(run)
    if script == project:
        script = ""
    return ": ".join(filter(None, (project, script))) or run.run_id


def _script(run: Run) -> str:
    """Return the name of the script that ran, else of the program; empty of a verb of this package."""
    command = run.text("command")
    try:
        words = shlex.split(command)
    except ValueError:  # an open quote
        words = command.split()
    names = [PurePath(word).name for word in words]
    scripts = [name for name in names if name.endswith(".py") and name != "__main__.py"]
    own = [name for name in names[:1] if name and name not in ("__main__.py", "greenlove") and not name.startswith("-")]
    return fmt.shortened(next(iter([*scripts, *own]), ""), 60)


def run_verdict(run: Run) -> str:
    """Return what a run took, how sure that is, and whether it ended as planned."""
    summary = run.summary
    kind = "comparison" if run.is_comparison else "exploration" if run.is_exploration else "training"
    verb = "has taken" if summary.status == RunStatus.RUNNING else "took"
    took = _took(summary.duration_s, summary.energy_kwh, run.emissions_kgco2e, summary.cost_usd)
    return " ".join(filter(None, (f"This {kind} {verb} {took}.", _measured(run), _ending(run))))


def _took(duration_s: float, energy_kwh: float | None, kgco2e: float | None, cost_usd: float | None) -> str:
    known = [fmt.duration(duration_s)] if duration_s else ["an unknown time"]
    known += [fmt.energy(energy_kwh) if energy_kwh is not None else "an unknown energy"]
    known += [f"{fmt.mass(kgco2e)} of CO2e"] if kgco2e is not None else []
    known += [fmt.money(cost_usd)] if cost_usd is not None else []
    return wording.joined(known)


def _measured(run: Run) -> str:
    share = run.summary.measured_share
    if run.is_simulated:
        return "That is simulated: no machine drew it."
    if run.calibration is not None:
        return f"Its energy is {wording.calibration_text(run)}."
    return "" if share is None or not run.summary.energy_kwh else _of_measured(share)


def _of_measured(share: float) -> str:
    if share >= 1:
        return "All of the energy was measured."
    if share <= 0:
        return "None of the energy was measured: it is modelled or estimated."
    return f"Hardware measured {fmt.percent(share)} of the energy; the rest is modelled or estimated."


def _ending(run: Run) -> str:
    summary = run.summary
    if run.is_exploration or summary.status == RunStatus.RUNNING:
        return ""
    done = wording.progress(run)
    if summary.status in _GOOD:
        return f"It finished: {done}."
    return f"It did not finish: {wording.why_incomplete(summary)}, {done}."


def run_scope(run: Run, issued: str | None = None) -> str:
    """Return period, place and scope of a run, its market-based emissions, and when the report was issued."""
    summary = run.summary
    began, ended = (fmt.shortened(text, 30)[:16].replace("T", " ") for text in (run.started_at, summary.ended_at))
    period = f"Period: {began}{f' to {ended}' if ended else ''} UTC." if began else ""
    country = wording.field_text(run, "country", 40)
    place = f"Place: {country}." if country else "Place: not given."
    if not country and run.carbon_intensity.source.startswith("world average"):
        place = "Place: not given; the world's average carbon intensity is used."
    scope = scope_sentence(is_rented=run.text("is_rented") == "yes")
    contract = run.market_intensity
    based = _bases(run.emissions_kgco2e, market_kgco2e(contract, run.summary.energy_kwh), contract)
    return " ".join(filter(None, (period, place, scope, based, issue_date(issued))))


def scope_sentence(*, is_rented: bool) -> str:
    """Say in which scope of the GHG Protocol the electricity is, and what is in none."""
    return f"{_SCOPE_3 if is_rented else _SCOPE_2} {_NOT_IN_IT}"


def _bases(location_kg: float | None, market_kg: float | None, contract: Factor | None) -> str:
    location = f"CO2e is location-based: {fmt.mass(location_kg)}."
    if market_kg is None or contract is None:
        return f"{location} Market-based: no contract was given."
    return f"{location} Market-based: {fmt.mass(market_kg)} ({fmt.shortened(contract.source, 60)})."


def issue_date(issued: str | None) -> str:
    """Say when a report was issued; nothing without a date, so that the file is the same whenever it is made."""
    return f"Issued on {issued}." if issued else ""


def directory_verdict(aggregate: Aggregate) -> str:
    """Return what all runs of a directory took, how sure that is, and how many did not end well."""
    total = aggregate.total
    if not total.n_runs:
        return ""
    runs = wording.runs_text({kind: sums.n_runs for (kind,), sums in aggregate.by("kind").items()})
    took = _took(total.duration_s or 0.0, total.energy_kwh, total.emissions_kgco2e, total.cost_usd)
    share = "" if total.measured_share is None or not total.energy_kwh else _of_measured(total.measured_share)
    n_calibrated = total.n_calibrated
    are = "is" if n_calibrated == 1 else "are"
    calibrated = f"{fmt.plural(n_calibrated, 'run')} {are} calibrated with a wall meter." if n_calibrated else ""
    bad = [n for status, n in _by_status(aggregate).items() if status not in (*_GOOD, RunStatus.RUNNING)]
    ended = f"{fmt.plural(sum(bad), 'run')} did not finish." if bad else ""
    return " ".join(filter(None, (f"{runs[0].upper()}{runs[1:]} took {took}.", share, calibrated, ended)))


def _by_status(aggregate: Aggregate) -> dict[str, int]:
    return {status: sums.n_runs for (status,), sums in aggregate.by("status").items()}


def directory_scope(aggregate: Aggregate) -> str:
    """Return the emissions of a directory by scope, and market-based."""
    total, by_scope = aggregate.total, aggregate.by("scope")
    if len(by_scope) < 2:
        scope = _SCOPE_3 if total.n_rented else _SCOPE_2
    else:
        own, rented = by_scope["2",], by_scope["3",]
        scope = (
            f"Scope 2: {fmt.mass(own.emissions_kgco2e)} ({fmt.plural(own.n_runs, 'run')} on owned machines). "
            f"Scope 3: {fmt.mass(rented.emissions_kgco2e)} ({fmt.plural(rented.n_runs, 'run')} on rented machines)."
        )
    location = f"CO2e is location-based: {fmt.mass(total.emissions_kgco2e)}."
    return f"{scope} {_NOT_IN_IT} {location} {_market_based(aggregate)}"


def _market_based(aggregate: Aggregate) -> str:
    """Say which part of the energy is under contract, with its emissions, and which is not."""
    total, by_contract = aggregate.total, aggregate.by("contract")
    if total.market_kgco2e is None:
        return "Market-based: no contract was given."
    text = f"Market-based: {fmt.mass(total.market_kgco2e)}"
    if ("",) not in by_contract:
        return f"{text}."
    without = by_contract["",]
    under = Totals([row for row in total.rows if row["contract"]])
    return (
        f"{text} for the {fmt.energy(under.energy_kwh)} under contract. {fmt.energy(without.energy_kwh)} had no "
        f"contract: {fmt.mass(without.emissions_kgco2e)}, location-based."
    )


def stamp(n_simulated: int, n_runs: int) -> str:
    """Return what stands across each page: that runs were simulated, and how many of several."""
    if not n_simulated:
        return ""
    return STAMP if n_simulated == n_runs else f"{STAMP}: {n_simulated:,} of {n_runs:,} runs"
