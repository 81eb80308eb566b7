"""The metadata of a run, known at its start, as lines for ``run.csv``."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Sequence

from greenlove_tracker.logs.run_fields import factor_fields
from greenlove_tracker.logs.schema import SCHEMA_VERSION, cell
from greenlove_tracker.machine.job import job_fields, user_name
from greenlove_tracker.settings.secret_masking import masked_command
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.vocabulary.phases import Plan, phases_text
from greenlove_tracker.vocabulary.records import Factor, Field
from greenlove_tracker.vocabulary.version import __version__
from greenlove_tracker.vocabulary.waits import wait_before
from greenlove_tracker.vocabulary.workloads import GIVEN


def run_fields(state: RunState, plan: Plan, extra: Sequence[Field]) -> list[Field]:
    """Return user, command, host, job, plan and factors of a run. A field of ``extra`` replaces ours of the same name.

    The writer masks secrets in the command.
    """
    settings = state.settings
    ranks = state.ranks
    factors = state.factors
    if sys.argv and sys.argv[0]:
        argv = sys.argv
    else:
        argv = sys.orig_argv
    known = {
        "schema_version": SCHEMA_VERSION,
        "greenlove_version": __version__,
        "run_id": factors.run_id,
        "project": settings.project,
        "tags": settings.tags,
        "started_at": factors.started_at,
        "command": masked_command(argv),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "rank": ranks.rank,
        "world_size": ranks.world_size or None,
        "epochs_planned": plan.epochs,
        "total_steps_planned": plan.total_steps,
        "first_epoch": plan.first_epoch or None,
        "first_step": plan.first_step or None,
        "phases": phases_text(plan.phases),
        "epochs_before_pred": None if settings.epochs_before_pred == 1 else settings.epochs_before_pred,
        "continues": settings.continues,
        "country": settings.country,
        "precision": settings.precision,
        "precision_basis": GIVEN if settings.precision else "",
        "workload": settings.workload,
        "workload_basis": GIVEN if settings.workload else "",
        "user": user_name() if settings.log_user else "",
        "pue": settings.pue,
        "pue.source": "" if settings.pue == 1.0 else settings.given_by("pue"),
        "price_usd_per_gpu_hour": settings.price_usd_per_gpu_hour,
        "is_rented": settings.is_rented or None,
    }
    if state.time_limit is not None:
        known |= {"time_limit_s": state.time_limit.limit_s, "time_limit_source": state.time_limit.source}
    if state.rates_in_force.intensity is not None:
        known["intensity_order"] = state.rates_in_force.intensity.order
    if state.rates_in_force.tariff is not None:
        known["electricity_tariff"] = state.rates_in_force.tariff.source
    fields = {name: Field(name, cell(value)) for name, value in known.items() if value not in (None, "")}
    more = [*job_fields(os.environ), *extra, *wait_before(os.environ, state.started_utc_s)]
    fields |= {field.name: field for field in more}
    if not settings.log_command:
        fields.pop("command", None)
    overhead = settings.node_overhead
    market = settings.market_gco2e_per_kwh
    found = [factors.carbon_intensity, factors.electricity_price]
    if overhead is not None:
        given = settings.given_by("node_overhead")
        found.append(Factor("node_overhead", overhead, "×", given, basis="an assumption"))
    if market is not None:
        given = settings.given_by("market_gco2e_per_kwh")
        found.append(Factor("market_intensity", market, "gCO2e/kWh", given, basis="market-based"))
    of_factors = [field for factor in found if factor is not None for field in factor_fields(factor)]
    return [*fields.values(), *of_factors]
