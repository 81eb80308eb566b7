"""What a projection is asked for, checked before anything is multiplied with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from greenlove_tracker.errors import UsageError
from greenlove_tracker.projection.energy import check_share
from greenlove_tracker.projection.speedup import given
from greenlove_tracker.records import Factor

Custom = float | tuple[float, float, float]  # a speedup, or (speedup, lower, upper)


@dataclass(frozen=True, slots=True)
class Terms:
    """The numbers that ``project`` was given; its docstring says what each is.

    Raises:
        UsageError: where one cannot be what it says.
    """

    n_gpus: int
    target_gpus: int
    scaling: float
    task: str | None
    precision: str
    method: str | None
    custom_speedup: Custom | Mapping[str, Custom] | None
    utilization: float | None
    manual_gpu_utilization: float | None
    manual_tdp_watts: float | None
    pue: float
    electricity_price: float | Factor | None
    price_usd_per_gpu_hour: float | None
    peak_memory_gb: float | None
    embodied_kgco2e_per_gpu_hour: float | None
    include_all: bool
    today: date

    def __post_init__(self) -> None:
        for name in ("n_gpus", "target_gpus"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in (
            "manual_tdp_watts",
            "electricity_price",
            "price_usd_per_gpu_hour",
            "peak_memory_gb",
            "embodied_kgco2e_per_gpu_hour",
        ):
            value = getattr(self, name)
            value = value.value if isinstance(value, Factor) else value
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be a positive number, or None where it is not known, not {value!r}")
        if not 0.125 < self.scaling <= 1:
            raise UsageError(
                f"scaling is the efficiency of eight GPUs, over 0.125 (no faster than one) to 1, not {self.scaling!r}"
            )
        if not (math.isfinite(self.pue) and self.pue >= 1):
            raise UsageError(f"pue must be at least 1 (1.0: no overhead), not {self.pue!r}")
        custom = self.custom_speedup
        for value in custom.values() if isinstance(custom, Mapping) else () if custom is None else (custom,):
            given(value)
        check_share("utilization", self.utilization)
        check_share("manual_gpu_utilization", self.manual_gpu_utilization)

    def custom_for(self, gpu: str) -> Custom | None:
        """The speedup that the user gives for a GPU; None where none is given for it."""
        custom = self.custom_speedup
        return custom.get(gpu) if isinstance(custom, Mapping) else custom
