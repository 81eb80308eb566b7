"""From a forecast on this machine to the time, cost and emissions of the same training on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from greenlove_tracker.projection import listings
from greenlove_tracker.projection.catalogue import counted, recognise
from greenlove_tracker.projection.decision import cost_point
from greenlove_tracker.projection.listings import Target
from greenlove_tracker.projection.machines import Machine, local_machine, price_caveat
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.rows import local_row, target_row
from greenlove_tracker.projection.speedup import given_speedup, speedups
from greenlove_tracker.projection.speedup_model import usual_precision
from greenlove_tracker.projection.types import Caveat, Projection, Projections
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Forecast

__all__ = ["Projection", "project"]
WITHDRAWN = "not offered any more"


def project(forecast: Forecast, **options: Any) -> Projections:
    """Return the training here and on every GPU that can be rented: time, energy, cost and CO2e, each at 90%.

    Time: local time / (speedup of one GPU × gain of their number). The speedup is that of one model of all GPUs
    (``speedup_model``), fitted to published benchmarks, for a class of workload and a precision; the gain is as
    measured of several GPUs at once (``scaling.py``), or by the efficiency of eight that is given. Without a local GPU
    the speedup starts from an assumed CPU; a step there then takes no less than launching its kernels, taken to be
    0.3 ms. Energy: GPUs × TDP × draw × node overhead × PUE × time; the draw starts from that of the local GPUs, and
    without one it is assumed. Cost: time × price × GPUs billed, which all take part; of the local machine, its
    electricity unless it has a price. CO2e: energy × carbon intensity of the site's grid; a provider's claim stands
    beside it. An interval holds the errors of all factors, in quadrature on the log scale; those that two rows share
    move both alike (``uncertain.py``), so rows are compared by ``decision.decide`` and not by whether ranges overlap.

    Args:
        forecast: of the training on this machine.
        **options: those of ``ProjectionOptions``, such as ``local_gpu="RTX 4090"`` and ``country="DE"``.

    Returns:
        the local machine first, then the others: those compared, by cost, and those set aside.

    Raises:
        UsageError: for an unknown GPU, country, provider or region, a number that cannot be meant, or a fit without a
            GPU (``explore_callable``) and without a figure of the user's.
    """
    return project_forecast(forecast, ProjectionOptions(**options))


def project_forecast(forecast: Forecast, options: ProjectionOptions) -> Projections:
    """Return the training on this machine and on others, as ``project`` does, which says how.

    Args:
        forecast: of the training on this machine.
        options: of the projection.

    Raises:
        UsageError: for an unknown GPU, country, provider or region, or a fit without a GPU (``explore_callable``) and
            without a figure of the user's.
    """
    if not isinstance(forecast, Forecast):
        raise UsageError(
            f"forecast must be a Forecast, such as estimation.forecast or tracker.forecast, not {forecast!r}; "
            "tracker.forecast is None until an epoch is done"
        )
    custom = options.custom_speedup
    if isinstance(custom, Mapping):
        options = replace(options, custom_speedup={recognise(name).name: figure for name, figure in custom.items()})
    local = local_machine(forecast, local_gpu(options), options)
    targets = _targets(local, options)
    rows, left_out = _target_rows(forecast, local, targets, options)
    price = None
    if options.price_usd_per_gpu_hour is None:
        price = price_caveat(local.electricity_price, options.country, local.gpu)
    caveats = (price, _kind_caveat(rows, local.gpu, options), left_out)
    first = local_row(forecast, local, options, caveats)
    return Projections([first, *sorted(rows, key=_order)])


def _order(row: Projection) -> tuple[bool, bool, float, str]:
    return bool(row.aside), row.fits is False, cost_point(row), row.name


def local_gpu(options: ProjectionOptions) -> GpuSpec | None:
    """Return the local GPU; None if there is none, or if no table has it and the user gives the speedups."""
    if options.local_gpu is None:
        return None
    try:
        return recognise(options.local_gpu, options.local_memory_gb)
    except UsageError:
        if options.custom_speedup is None:
            raise
        return None


def _targets(local: Machine, options: ProjectionOptions) -> list[Target]:
    wanted = options.target_gpus or local.n_gpus
    named = dict[str, set[int]]()
    for number, name in map(counted, options.gpus):
        named.setdefault(recognise(name).name, set()).add(number or wanted)
    offers = listings.offers_of(options.provider, options.prices)
    if options.provider is None:  # who names a GPU wants to know of everyone who rents it out
        asked = {offer.provider for offer in offers}
        others = listings.offers_of(listings.ALL_PROVIDERS, options.prices)
        offers += tuple(o for o in others if o.gpu in named and o.provider not in asked)
    numbers = [wanted, *sorted(set().union(*named.values()) - {wanted})]
    targets = []
    for number in numbers:
        for target in listings.targets_of(offers, number):
            name = target.gpu.name
            is_asked_for = options.include_all or name in named
            aside = _aside(target, local.gpu, is_asked_for=is_asked_for)
            if number in named.get(name, {wanted}) and (is_asked_for or aside != WITHDRAWN):
                targets.append(replace(target, aside=aside))
    offered = {target.gpu.name for target in targets}
    for name, own_numbers in named.items():
        if name not in offered:
            targets += [Target(gpus()[name], None, number, number) for number in sorted(own_numbers)]
    return targets


def _aside(target: Target, local: GpuSpec | None, *, is_asked_for: bool) -> str:
    offer = target.offer
    if offer and offer.access == "withdrawn":
        return WITHDRAWN
    if is_asked_for:
        return ""
    if offer and offer.usd_per_gpu_hour is None:
        return "price on request"
    if target.gpu.vendor == "AMD" and (not local or local.vendor != "AMD"):
        return "other software (ROCm)"
    return ""


def _target_rows(
    forecast: Forecast,
    local: Machine,
    targets: Sequence[Target],
    options: ProjectionOptions,
) -> tuple[list[Projection], Caveat | None]:
    """Return the rows, and a caveat about GPUs that are left out because only the user's speedup could reach them.

    Raises:
        UsageError: if nothing is left.
    """
    names = dict.fromkeys(target.gpu.name for target in targets)
    known = {}
    for name in names:
        figure = options.custom_speedup_of(name)
        if figure is not None:
            known[name] = given_speedup(figure, name)
    reason = _only_custom(forecast, local)
    unknown = [name for name in names if name not in known]
    caveat = None
    if reason and unknown:
        if not known:
            raise reason
        caveat = Caveat(f"left out: {', '.join(unknown)}: {reason.args[0]}", argument=reason.arguments)
    else:
        precision = options.precision or usual_precision(local.gpu)
        to_model = [gpus()[name] for name in unknown]
        modelled = speedups(local.gpu, to_model, workload=options.workload, precision=precision)
        known |= dict(zip(unknown, modelled, strict=True))
    offers = [target.offer for target in targets if target.offer and not target.aside]
    standing = Counter((offer.provider, region) for offer in offers for region in offer.regions)
    found = []
    for target in targets:
        faster = known.get(target.gpu.name)
        if faster:
            found.append(target_row(forecast, local, target, faster, options, standing))
    return found, caveat


def _only_custom(forecast: Forecast, local: Machine) -> UsageError | None:
    if local.gpu is None and local.has_gpu:
        message = "the local GPU is in no table, and nothing leads from it to another without a {argument}"
    elif not local.has_gpu and forecast.method == "power":
        message = "a fit that used no GPU cannot be projected onto one without a {argument} that was measured there"
    else:
        return None
    return UsageError(message, argument="custom_speedup")


def _kind_caveat(rows: Sequence[Projection], here: GpuSpec | None, options: ProjectionOptions) -> Caveat | None:
    """Return the precision and workload assumed if none is given; None if no speedup depends on them."""
    precision = usual_precision(here)
    if here and precision == "fp32":
        precision = f"fp32 ({here.name} has no tensor cores)"
    unknown = {"precision": precision, "workload": "any kind of model"}
    assumed = {name: what for name, what in unknown.items() if getattr(options, name) is None}
    is_modelled = any(row.speedup and row.speedup.method in ("benchmarks", "specifications") for row in rows)
    if not (assumed and is_modelled):
        return None
    names = " or ".join(["{argument}"] * len(assumed))
    return Caveat(f"assuming {' and '.join(assumed.values())}: {names} narrows the ranges", argument=tuple(assumed))
