"""The options of a projection: each field says its option of the command line, its help, and what it may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from greenlove_tracker.projection.scaling import check_efficiency_of_eight
from greenlove_tracker.projection.speedup import given_speedup
from greenlove_tracker.settings.config import Settings, asked_about_intensity
from greenlove_tracker.vocabulary.errors import UsageError, is_whole
from greenlove_tracker.vocabulary.records import Factor
from greenlove_tracker.vocabulary.workloads import precision_named, workload_named

CustomSpeedup = float | tuple[float, float, float]  # a figure, or (figure, lower, upper)


def option(default: Any = dataclasses.MISSING, *, flag: str = "", must_be: str = "", **of_click: Any) -> Any:
    """Return a field with its option of the command line.

    Args:
        default: the value if it is not given.
        flag: the option; empty if there is none.
        must_be: "positive", a "share", a "number" of GPUs, a "time" in s; empty if something else checks it.
        **of_click: further arguments of ``click.option``: help, metavar, type, multiple, is_flag.
    """
    return field(default=default, metadata={"flag": flag, "must_be": must_be, "of_click": of_click})


def option_names(kind: type) -> dict[str, str]:
    """Return the options by the names of the arguments that they give."""
    return {one.name: one.metadata["flag"] for one in dataclasses.fields(kind) if one.metadata.get("flag")}


@dataclass(frozen=True, slots=True)
class ProjectionOptions:
    """The options of a projection: the keywords of ``project``.

    Where a log tells of the training, what is None here is taken from the log.

    Attributes:
        local_gpu: what NVML or a user calls the local GPU; beside a log, ``4 × L40S`` too, for another number of them.
        n_gpus: GPUs that the forecast ran on; None for as many as the log says, or else one.
        local_memory_gb: memory that the driver shows of one; tells cards of one name apart.
        gpus: further GPUs to look at, offered or not; one that nobody offers is counted as if it stood here.
            ``8 × L40S`` means eight, whatever ``target_gpus`` is.
        provider: the providers to compare, with commas, or ``all``; None for Crusoe and all providers in ``prices``.
        prices: a CSV file of offers.
        target_gpus: GPUs wanted elsewhere; None for as many as here.
        scaling: efficiency of eight GPUs against one, over 0.125 to 1; None for what was measured of such trainings.
        interconnect: between several GPUs: nvlink, pcie or ethernet; None for what is usual of the GPU and its number.
        workload: language, vision, speech, recommendation, graph or other; None for that of the log, or any.
        precision: fp32 (strict), tf32, bf16 (fp16 and AMP too) or fp8; None for that of the log, or bf16, of an older
            local GPU fp16, of one without tensor cores fp32.
        custom_speedup: what was measured elsewhere, or (figure, lower, upper): for all GPUs or by the name of each.
        country: of this machine: ISO 3166 code, English name, or US-CA.
        carbon_intensity: of the local grid in gCO2e/kWh; overrides the country's.
        pue: of the local site; a forecast's energy includes it, a modelled one is multiplied. None for that of the
            log, or of a workstation, 1.
        electricity_price: in USD/kWh, or with its source; overrides the country's.
        price_usd_per_gpu_hour: of the local machine; it then is its cost.
        utilization: draw of the local GPUs against their enforced power limit, 0 to 1.
        manual_tdp_watts: power limit of one local GPU, where the table's is not meant or there is none.
        peak_memory_gb: highest use of one GPU's memory that was measured, in GiB.
        memory_estimate_gb: the same as an exploration on a CPU estimated it, where none was measured on a GPU.
        include_all: compares GPUs without a public price, of another maker, or no longer offered as well.
        within_s: time that the training may take at most, for a recommendation.
        max_cost_usd: what it may cost at most, for a recommendation.
        today: against which the age of a price is counted; default today in UTC.

    Raises:
        UsageError: where a number cannot be meant.
    """

    local_gpu: str | None = option(
        None, flag="--gpu", help="GPU here, where no log names it: 'RTX 4090'; '4 × L40S' overrides the log's number"
    )
    n_gpus: int | None = option(None, must_be="number")
    local_memory_gb: float | None = option(
        None,
        flag="--gpu-memory",
        must_be="positive",
        type=float,
        help="memory of one GPU here, GiB, if several cards share its name",
    )
    country: str | None = option(None, flag="--country", help="where this machine is: DE, Germany, US-CA, us-east-1")
    provider: str | None = option(
        None, flag="--provider", help="providers to compare, with commas, or all; default crusoe and those in --prices"
    )
    target_gpus: int | None = option(
        None, flag="--gpus", must_be="number", type=int, help="GPUs wanted there; default: as many as here"
    )
    gpus: Sequence[str] = option(
        (),
        flag="--target",
        multiple=True,
        metavar="GPU",
        help="another GPU to compare, such as '8 × L40S' (repeatable)",
    )
    within_s: float | None = option(
        None, flag="--within", must_be="positive", metavar="TIME", help='time limit, 48h, or deadline, "friday 18:00"'
    )
    max_cost_usd: float | None = option(
        None, flag="--max-cost", must_be="positive", type=float, metavar="USD", help="cost limit, USD"
    )
    workload: str | None = option(
        None,
        flag="--workload",
        help="kind of model: language, vision, speech, recommendation, graph or other; default: the log's, else any",
    )
    precision: str | None = option(
        None,
        flag="--precision",
        help="fp32 (strict), tf32, bf16 (fp16, amp too) or fp8; default: the log's, else bf16 if the GPU here has it",
    )
    interconnect: str | None = option(
        None,
        flag="--interconnect",
        help="link between several GPUs there: nvlink, pcie or ethernet; default: the usual one",
    )
    custom_speedup: CustomSpeedup | Mapping[str, CustomSpeedup] | None = option(
        None,
        flag="--speedup",
        multiple=True,
        help="your own speedup: 1.8; 1.8,1.5,2.1 with its range; or GPU=1.8",
    )
    prices: Path | str | None = option(
        None, flag="--prices", metavar="FILE", help="CSV file of offers; columns in docs/guides/where-to-train.md"
    )
    scaling: float | None = option(
        None,
        flag="--scaling",
        type=float,
        help="efficiency of eight GPUs against one, such as 0.85; default: measured",
    )
    electricity_price: float | Factor | None = option(
        None, flag="--electricity-price", must_be="positive", type=float, help="USD per kWh here"
    )
    carbon_intensity: float | Factor | None = option(
        None, flag="--carbon-intensity", must_be="positive", type=float, help="gCO2e/kWh here"
    )
    pue: float | None = option(None, flag="--pue", type=float, help="power usage effectiveness here")
    price_usd_per_gpu_hour: float | None = option(
        None,
        flag="--price",
        must_be="positive",
        type=float,
        help="price of the machine here, USD per GPU and hour; default: electricity only",
    )
    utilization: float | None = option(
        None,
        flag="--utilization",
        must_be="share",
        type=float,
        help="power the GPUs here draw, as a share of their limit, such as 0.82",
    )
    manual_tdp_watts: float | None = option(
        None, flag="--tdp", must_be="positive", type=float, help="power limit of one GPU here, W"
    )
    peak_memory_gb: float | None = option(
        None,
        flag="--peak-memory",
        must_be="positive",
        type=float,
        help="peak memory of the training on one GPU, GiB",
    )
    memory_estimate_gb: float | None = None
    include_all: bool = option(
        False, flag="--all", is_flag=True, help="show and compare all, without a public price or by another maker too"
    )
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    def __post_init__(self) -> None:
        check_options(self)
        intensity = self.carbon_intensity
        if isinstance(intensity, Factor) and intensity.unit != "gCO2e/kWh":
            raise UsageError(f"{{argument}} must be in gCO2e/kWh, not {intensity.unit!r}", argument="carbon_intensity")
        asked = asked_about_intensity(intensity) if isinstance(intensity, int | float) else ""
        if asked:
            raise UsageError(f"{{argument}} is {intensity!r}{asked}", argument="carbon_intensity")
        if self.pue is not None:
            Settings(pue=self.pue)  # checks it
        check_efficiency_of_eight(self.scaling)
        if self.precision is not None:
            object.__setattr__(self, "precision", precision_named(self.precision))
        if self.workload is not None:
            object.__setattr__(self, "workload", workload_named(self.workload))
        custom = self.custom_speedup
        if isinstance(custom, Mapping):
            for figure in custom.values():
                given_speedup(figure)
        elif custom is not None:
            given_speedup(custom)

    def custom_speedup_of(self, gpu: str) -> CustomSpeedup | None:
        """Return the user's own speedup of a GPU; None if there is none."""
        custom = self.custom_speedup
        if isinstance(custom, Mapping):
            return custom.get(gpu)
        return custom


def check_options(options: Any) -> None:
    """Check the options of a dataclass by their declarations.

    Raises:
        UsageError: if one is not what it must be.
    """
    for one in dataclasses.fields(options):
        value = getattr(options, one.name)
        if isinstance(value, Factor):
            value = value.value
        must_be = one.metadata.get("must_be")
        if must_be and value is not None:
            check_number(one.name, value, must_be)


def check_number(name: str, value: Any, must_be: str) -> None:
    """Raise UsageError if an argument is not what it must be."""
    if must_be == "number":
        is_meant = is_whole(value)
        wanted = "must be a whole number of at least 1"
    elif must_be == "time":
        is_meant = math.isfinite(value) and value >= 0
        wanted = "must be 0 or more seconds"
    elif must_be == "share":
        is_meant = 0 < value <= 1
        wanted = "is a share from 0 to 1, such as 0.82"
    else:
        is_meant = math.isfinite(value) and value > 0
        wanted = "must be a positive number"
    if not is_meant:
        raise UsageError(f"{{argument}} {wanted}, not {value!r}", argument=name)
