"""From a forecast on this machine to what the same training would take, cost and emit on others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from greenlove_tracker import console
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.grid.place import AUTO
from greenlove_tracker.projection import listings
from greenlove_tracker.projection.catalogue import counted, recognise
from greenlove_tracker.projection.machines import Machine, local_machine, price_caveat
from greenlove_tracker.projection.rows import Target, local_row, target_row
from greenlove_tracker.projection.speedup import Speedup, given_speedup, speedups
from greenlove_tracker.projection.types import (
    ORDINARY_PRECISION,
    Caveat,
    CustomSpeedup,
    Projection,
    ProjectionOptions,
    Projections,
    today_utc,
)
from greenlove_tracker.records import Factor
from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.workloads import GIVEN

__all__ = ["Projection", "project"]


def project(
    forecast: Forecast,
    *,
    local_gpu: str | None = None,
    n_gpus: int = 1,
    local_memory_gb: float | None = None,
    gpus: Sequence[str] = (),
    provider: str | None = None,
    prices: Path | str | None = None,
    region: str | None = None,
    target_gpus: int | None = None,
    scaling: float | None = None,
    interconnect: str | None = None,
    workload: str | None = None,
    precision: str | None = None,
    method: str | None = None,
    custom_speedup: CustomSpeedup | Mapping[str, CustomSpeedup] | None = None,
    country: str | None = None,
    carbon_intensity: float | Factor | None = None,
    pue: float | None = None,
    electricity_price: float | Factor | None = None,
    price_usd_per_gpu_hour: float | None = None,
    utilization: float | None = None,
    manual_tdp_watts: float | None = None,
    manual_gpu_utilization: float | None = None,
    peak_memory_gb: float | None = None,
    embodied_kgco2e_per_gpu_hour: float | None = None,
    include_all: bool = False,
    today: date | None = None,
) -> Projections:
    """Return the training here and on every GPU that can be rented: time, energy, cost and CO2e, each at 90%.

    Time: local time / (speedup of one GPU × gain of their number). The speedup is that of one model of all GPUs
    (``speedup_model``), fitted to published benchmarks, for a class of workload and a precision; the gain is as
    measured of several GPUs at once (``scaling.py``), or by the efficiency of eight that is given. Without a local GPU
    the speedup starts from an assumed CPU; a step there then takes no less than launching its kernels, taken to be
    0.3 ms. Energy: GPUs × TDP × draw × node overhead × PUE × time; the draw starts from that of the local GPUs, and
    without one it is assumed. Cost: time × price × GPUs billed, which all take part; of the local machine, its
    electricity unless it has a price. CO2e: energy × carbon intensity of the site's grid; a provider's claim stands
    beside it. An interval holds the errors of all factors, in quadrature on the log scale; those that two rows share
    move both alike (``uncertain.py``), so rows are compared by ``ranking.rank`` and not by whether ranges overlap.

    Args:
        forecast: of the training on this machine.
        local_gpu: what NVML or a user calls the local GPU; None where there is none.
        n_gpus: GPUs that the forecast ran on.
        local_memory_gb: memory that the driver shows of one; tells cards of one name apart.
        gpus: further GPUs to look at, offered or not; one that nobody offers is counted as if it stood here.
            ``8 × L40S`` is that number of it, whatever ``target_gpus`` is.
        provider: whose offers; None for Crusoe's and those of all providers in ``prices``.
        prices: a CSV file of offers, in our columns or gpuhunt's.
        region: only offers in this region; None for each offer's region with the lowest carbon intensity.
        target_gpus: GPUs wanted elsewhere; None for as many as here.
        scaling: efficiency of eight GPUs against one, over 0.125 to 1; None for what was measured of such trainings.
        interconnect: between several GPUs elsewhere: nvlink, pcie or ethernet; None for what is usual of each.
        workload: class of what is trained: language, vision, speech, recommendation, graph or other; None for any.
        precision: that the training computes in: fp32 (strict), tf32, bf16 (fp16 and AMP too) or fp8; None for bf16.
        method: of the speedup: benchmarks, specifications or green-love; None for the best that is known of each.
        custom_speedup: what was measured elsewhere, or (figure, lower, upper): for all GPUs or by the name of each.
        country: of this machine: ISO 3166 code, English name, or US-CA.
        carbon_intensity: of the local grid in gCO2e/kWh; overrides the country's.
        pue: of the local site; a forecast's energy includes it already, a modelled one is multiplied; None for that of
            a workstation, 1.
        electricity_price: in USD/kWh, or with its source; overrides the country's.
        price_usd_per_gpu_hour: of the local machine; it then is its cost.
        utilization: draw of the local GPUs against their enforced power limit, 0 to 1, as measured.
        manual_tdp_watts: power limit of one local GPU, where the table's is not meant or there is none.
        manual_gpu_utilization: the draw by the user's word, where nothing measured it.
        peak_memory_gb: highest use of one GPU's memory that was measured, in GiB.
        embodied_kgco2e_per_gpu_hour: embodied emissions, a figure of the user's; kept apart from every total.
        include_all: compares GPUs without a public price, of another maker, or no longer offered as well.
        today: against which the age of a price is counted; default today in UTC.

    Returns:
        the local machine first, then the others: those compared, by cost, and those set aside.

    Raises:
        UsageError: for an unknown GPU, country, provider or region, a number that cannot be meant, or a fit without a
            GPU (``explore_callable``) and without a figure of the user's.
    """
    options = ProjectionOptions(
        local_gpu=local_gpu,
        n_gpus=n_gpus,
        local_memory_gb=local_memory_gb,
        gpus=tuple(gpus),
        provider=provider,
        prices=prices,
        region=region,
        target_gpus=target_gpus,
        scaling=scaling,
        interconnect=interconnect,
        workload=workload,
        precision=precision,
        method=method,
        custom_speedup=custom_speedup,
        country=country,
        carbon_intensity=carbon_intensity,
        pue=pue,
        electricity_price=electricity_price,
        price_usd_per_gpu_hour=price_usd_per_gpu_hour,
        utilization=utilization,
        manual_tdp_watts=manual_tdp_watts,
        manual_gpu_utilization=manual_gpu_utilization,
        peak_memory_gb=peak_memory_gb,
        embodied_kgco2e_per_gpu_hour=embodied_kgco2e_per_gpu_hour,
        include_all=include_all,
        today=today or today_utc(),
    )
    return project_forecast(forecast, options)


def project_forecast(forecast: Forecast, options: ProjectionOptions) -> Projections:
    """Return the training on this machine and on others, as ``project`` does, which says how.

    Args:
        forecast: of the training on this machine.
        options: all of them but ``measured_log_dir``, which a training's log goes with.

    Raises:
        UsageError: for an unknown GPU, country, provider or region, or a fit without a GPU (``explore_callable``) and
            without a figure of the user's.
    """
    if not isinstance(forecast, Forecast):
        raise UsageError(
            f"forecast must be a Forecast, such as estimation.forecast or tracker.forecast, not {forecast!r}; "
            "tracker.forecast is None until an epoch is done"
        )
    if isinstance(custom := options.custom_speedup, Mapping):
        options = replace(options, custom_speedup={recognise(name).name: figure for name, figure in custom.items()})
    if options.country and options.country.strip().lower() == AUTO:
        from greenlove_tracker.grid.live.own_place import (
            found_country,  # only who asks for it loads what asks the network
        )

        options = replace(options, country=found_country(options.country, console.say) or None)
    local = local_machine(forecast, local_gpu(options), options)
    targets, notes = _targets(local, options)
    rows, left_out = _target_rows(forecast, local, targets, options)
    price = price_caveat(local.electricity_price, options.country) if options.price_usd_per_gpu_hour is None else None
    caveats = (
        price,
        _steps_caveat(forecast, rows, local),
        *_kind_caveats(rows, options),
        _speedup_caveat(rows, options),
        _memory_caveat(local, options),
        *map(Caveat, notes),
        *left_out,
    )
    first = local_row(forecast, local, options, tuple(caveat for caveat in caveats if caveat))
    fitting = tuple(dict.fromkeys(row.name for row in rows if row.fits and not row.aside))
    rows = [replace(row, fits_instead=fitting) if row.fits is False else row for row in rows]
    return Projections([first, *sorted(rows, key=_order)])


def _order(row: Projection) -> tuple[bool, bool, float, str]:
    return bool(row.aside), row.fits is False, row.cost_usd.point if row.cost_usd else float("inf"), row.name


def local_gpu(options: ProjectionOptions) -> GpuSpec | None:
    """Return the local GPU; one that no table knows will do where the user says how much faster the others are."""
    if options.local_gpu is None:
        return None
    try:
        return recognise(options.local_gpu, options.local_memory_gb)
    except UsageError:
        if options.custom_speedup is None:
            raise
        return None


def _targets(local: Machine, options: ProjectionOptions) -> tuple[list[Target], list[str]]:
    """Return the GPUs that are offered and those that are named, and what was left out of the offers."""
    wanted, named = options.target_gpus or local.n_gpus, dict[str, set[int]]()
    for number, name in map(counted, options.gpus):
        named.setdefault(recognise(name).name, set()).add(number or wanted)
    offers = listings.offers_of(options.provider, options.prices)
    if options.provider is None:  # who names a GPU wants to know of everyone who rents it out
        asked = {offer.provider for offer in offers}
        others = listings.offers_of(listings.ALL_PROVIDERS, options.prices)
        offers += tuple(o for o in others if o.gpu in named and o.provider not in asked)
    offers = listings.in_region(offers, options.region)
    listed, notes = listings.listings_of(offers, wanted)
    of_number = {wanted: listed}
    for number in sorted(set().union(*named.values()) - {wanted}):
        of_number[number] = listings.listings_of(offers, number)[0]
    targets = []
    for number, listing in ((number, listing) for number, found in of_number.items() for listing in found):
        if number not in named.get(listing.gpu.name, {wanted}):
            continue
        is_asked_for = options.include_all or listing.gpu.name in named
        if is_asked_for or listing.offer.access != "withdrawn":
            aside = _aside(listing, local.gpu, is_asked_for=is_asked_for)
            targets.append(Target(listing.gpu, listing.offer, number, listing.billed_gpus, aside, listing.note))
    offered = {listing.gpu.name for listing in listed}
    unoffered = ((gpus()[name], number) for name, numbers in named.items() for number in sorted(numbers))
    return [*targets, *(Target(gpu, None, n, n) for gpu, n in unoffered if gpu.name not in offered)], notes


def _aside(listing: listings.Listing, local: GpuSpec | None, *, is_asked_for: bool) -> str:
    """Return why an offer stands beside the comparison; empty where it does not."""
    if listing.offer.access == "withdrawn":
        return "not offered any more"
    if is_asked_for:
        return ""
    if listing.offer.usd_per_gpu_hour is None:
        return "price on request"
    if listing.gpu.vendor == "AMD" and (local is None or local.vendor != "AMD"):
        return "other software (ROCm)"
    return ""


def _target_rows(
    forecast: Forecast, local: Machine, targets: Sequence[Target], options: ProjectionOptions
) -> tuple[list[Projection], list[Caveat]]:
    """Return the rows, and why others are left out.

    Left out are GPUs without a figure of the user's where nothing else leads to them, and those that the method asked
    for knows nothing about.

    Raises:
        UsageError: where nothing is left.
    """
    reason = _only_custom(forecast, local)
    known, errors = dict[str, Speedup](), list[UsageError]()
    names = dict.fromkeys(target.gpu.name for target in targets)
    to_model = []
    for name in names:
        if (figure := options.custom_speedup_of(name)) is not None:
            known[name] = given_speedup(figure, name)
        elif reason is None:
            to_model.append(gpus()[name])
    modelled, refused = _modelled(local, to_model, options)
    known |= modelled
    errors += refused
    if reason and len(known) < len(names):
        if not known:
            raise reason
        unknown = ", ".join(name for name in names if name not in known)
        reason = UsageError(f"{unknown}: {reason.args[0]}", argument=reason.arguments)
        errors.insert(0, reason)
    if errors and not known:
        raise errors[0]
    rows = [
        target_row(forecast, local, target, known[target.gpu.name], options)
        for target in targets
        if target.gpu.name in known
    ]
    return rows, [Caveat(f"left out: {error.args[0]}", error.arguments) for error in errors]


def _modelled(
    local: Machine, targets: Sequence[GpuSpec], options: ProjectionOptions
) -> tuple[dict[str, Speedup], list[UsageError]]:
    """Return the speedups of GPUs by name, jointly, and why there are none of others where a method is asked for.

    Raises:
        UsageError: where there is none of one, and no method is asked for.
    """

    def of(some: Sequence[GpuSpec]) -> dict[str, Speedup]:
        found = speedups(
            local.gpu,
            some,
            workload=options.workload,
            precision=options.precision or ORDINARY_PRECISION,
            method=options.method,
        )
        return {gpu.name: faster for gpu, faster in zip(some, found, strict=True)}

    if options.method is None:
        return of(targets), []
    able, errors = [], []
    for gpu in targets:
        try:
            of([gpu])
        except UsageError as error:
            errors.append(error)
        else:
            able.append(gpu)
    return of(able), errors


def _only_custom(forecast: Forecast, local: Machine) -> UsageError | None:
    """Return why only a figure of the user's leads to another GPU; None where there are others."""
    if local.gpu is None and local.has_gpu:
        message = "the local GPU is in no table, and nothing leads from it to another without a {argument}"
    elif not local.has_gpu and forecast.method == "power":
        message = "a fit that used no GPU cannot be projected onto one without a {argument} that was measured there"
    else:
        return None
    return UsageError(message, argument="custom_speedup")


def _kind_caveats(rows: Sequence[Projection], options: ProjectionOptions) -> Iterator[Caveat]:
    """Yield what the log or nobody says of what is trained; nothing where no speedup hangs on it."""
    if not any(row.speedup and row.speedup.method in ("benchmarks", "specifications") for row in rows):
        return
    yield from _counted_as(options)
    if options.workload is None:
        message = "the class of workload is not known: {argument}, such as language, narrows the ranges"
        yield Caveat(message, ("workload",))
    if options.precision is None:
        message = f"the precision is not known: {ORDINARY_PRECISION} is assumed, {{argument}} says otherwise"
        yield Caveat(message, ("precision",))
    elif options.precision == "fp32":
        message = (
            "fp32 counts as strict, on CUDA cores: where TF32 is on, as by default in convolutions, {argument} is tf32"
        )
        yield Caveat(message, ("precision",))


def _counted_as(options: ProjectionOptions) -> Iterator[Caveat]:
    """Yield what a log says of the precision and the class of workload, and how it knows them."""
    told = {}
    if basis := options.precision_basis:
        told["precision"] = f"in {options.precision} ({basis})"
    if basis := options.workload_basis:
        told["workload"] = f"as {options.workload} {f'({GIVEN})' if basis == GIVEN else f'(guessed from {basis})'}"
    if told:
        names = " or ".join(["{argument}"] * len(told))
        yield Caveat(f"counted {' and '.join(told.values())}, as the log says; {names} says otherwise", tuple(told))


def _speedup_caveat(rows: Sequence[Projection], options: ProjectionOptions) -> Caveat | None:
    """Return the caveat that one given figure is of all GPUs."""
    if options.custom_speedup is None or isinstance(options.custom_speedup, Mapping) or len(rows) < 2:
        return None
    return Caveat(
        "the given speedup counts for every GPU alike; {argument} can name one: L40S=1.8", ("custom_speedup",)
    )


def _memory_caveat(local: Machine, options: ProjectionOptions) -> Caveat | None:
    """Return the caveat that the training would not fit where it is said to run."""
    peak_gb = options.peak_memory_gb
    if peak_gb is None or local.gpu is None or local.gpu.holds(peak_gb) is not False:
        return None
    message = f"a peak of {peak_gb:.3g} GiB is more than the {local.gpu.name} here holds: look at {{argument}}"
    return Caveat(message, ("peak_memory_gb",))


def _steps_caveat(forecast: Forecast, rows: Sequence[Projection], local: Machine) -> Caveat | None:
    """Return the caveat that nothing bounds an assumed CPU's speedups, where the number of steps is not known."""
    is_guess = any(row.speedup and row.speedup.method == "specifications" for row in rows)
    if local.has_gpu or forecast.plan is not None or not is_guess:
        return None
    return Caveat(
        "how many steps this takes is not known: where they are many and small, a GPU waits for its orders, and takes "
        "longer than this"
    )
