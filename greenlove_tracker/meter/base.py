"""The protocol of an energy meter, and the meters that need no hardware."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from greenlove_tracker.machine.devices import Gpu
from greenlove_tracker.vocabulary.errors import MeterError, UsageError
from greenlove_tracker.vocabulary.records import COMPONENTS, UNKNOWN_ENERGY, Clock, Energy, Field, Method, sum_energies
from greenlove_tracker.vocabulary.units import kwh_from_w_s


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """The energy of one GPU so far.

    Attributes:
        gpu: the GPU.
        kwh: its energy; None if it was never read.
        is_read: True if the last reading includes it.
        problem: why the latest failed reading failed; empty if none did.
        method: how its energy is obtained right now.
    """

    gpu: Gpu
    kwh: float | None
    is_read: bool
    problem: str = ""
    method: str = ""


ReadGpus = Callable[[], tuple[GpuEnergy, ...]]  # returns the energy of each GPU so far


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """The hardware that a meter found.

    Attributes:
        fields: fields for ``run.csv``.
        gpu_count: the number of our GPUs.
        gpus: returns the energy of each GPU so far; nothing if the meter does not tell GPUs apart.
    """

    fields: tuple[Field, ...]
    gpu_count: int = 0
    gpus: ReadGpus = tuple


class Meter(Protocol):
    """Measures the energy of this node, before PUE.

    Attributes:
        starts_at_once: True if ``start()`` is quick enough for the training's thread.
        resolution_s: the least time for a meaningful energy.
    """

    starts_at_once: bool
    resolution_s: float

    def start(self) -> MeterInfo:
        """Find the hardware and begin.

        Raises:
            MeterError: if nothing can be measured, with the reason.
        """

    def read(self) -> Energy:
        """Return the energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: if it could not be read.
        """

    def stop(self) -> None:
        """Release the hardware; never raise."""


class NullMeter:
    """Measures nothing: energies stay unknown."""

    starts_at_once = True
    resolution_s = 0.0

    def __init__(self, reason: str = "no meter was asked for") -> None:
        self._reason = reason

    def start(self) -> MeterInfo:
        """Return the reason why nothing is measured."""
        return MeterInfo((Field("meter", "none"), Field("meter_note", self._reason)))

    def read(self) -> Energy:
        """Return an unknown energy, not zero."""
        return UNKNOWN_ENERGY

    def stop(self) -> None:
        """Do nothing: there is no hardware."""


class SimulatedMeter:
    """Simulated hardware: a CPU by its TDP and load, GPUs by their power and load.

    Args:
        clock: the clock whose time the energy is integrated over.
        cpu_tdp_w: rated power of the CPU; None simulates none.
        cpu_util: its mean load, 0..1; power is TDP × load, as in carbontracker's simulation.
        gpu_w: power of one GPU at full load; None simulates none.
        gpu_util: mean load of each GPU, 0..1.
        gpu_count: number of GPUs.
        ram_w: power of the memory.
    """

    starts_at_once = True
    resolution_s = 0.0

    def __init__(
        self,
        clock: Clock,
        *,
        cpu_tdp_w: float | None = None,
        cpu_util: float = 0.5,
        gpu_w: float | None = None,
        gpu_util: float = 1.0,
        gpu_count: int = 1,
        ram_w: float | None = None,
    ) -> None:
        self._clock = clock
        self._last_s = 0.0
        self._powers_w: dict[str, float] = {}  # by component
        self._fields = [Field("meter", "simulated")]
        self._gpu_count = 0
        if cpu_tdp_w is not None:
            self._powers_w["cpu"] = cpu_tdp_w * cpu_util
            self._fields.append(Field("cpu_model", f"simulated CPU, {cpu_tdp_w:g} W at {cpu_util:.0%}"))
        if gpu_w is not None:
            self._gpu_count = gpu_count
            self._powers_w["gpu"] = gpu_w * gpu_util * gpu_count
            self._fields.append(Field("gpu_models", f"{gpu_count} × simulated GPU, {gpu_w:g} W at {gpu_util:.0%}"))
        if ram_w is not None:
            self._powers_w["ram"] = ram_w
        left_out = " and ".join(component for component in COMPONENTS if component not in self._powers_w)
        note = "the hardware is simulated" + (f", without {left_out}" if left_out else "")
        self._fields += [Field("gpu_count", str(self._gpu_count)), Field("meter_note", note)]

    def start(self) -> MeterInfo:
        """Describe the simulated hardware."""
        self._last_s = self._clock.perf_s()
        return MeterInfo(tuple(self._fields), self._gpu_count)

    def read(self) -> Energy:
        """Return the power times the time since the last read."""
        now_s = self._clock.perf_s()
        read: dict[str, Any] = {}
        for component, power_w in self._powers_w.items():
            read[f"{component}_kwh"] = kwh_from_w_s(power_w, now_s - self._last_s)
            read[f"{component}_method"] = Method.CONSTANT if component == "ram" else Method.TDP_MODEL
        self._last_s = now_s
        return Energy(**read)

    def stop(self) -> None:
        """Do nothing: there is no hardware."""


class MeterOfSome:
    """A meter that counts only some components.

    Args:
        meter: the meter of all components.
        components: the components to count, separated by commas.

    Raises:
        UsageError: if a component does not exist.
    """

    def __init__(self, meter: Meter, components: str) -> None:
        counted = {name.strip().lower() for name in components.split(",")}
        if not counted <= set(COMPONENTS):
            raise UsageError(f"{{argument}} are {', '.join(COMPONENTS)}, not {components!r}", argument="components")
        self._meter = meter
        self._left_out = [component for component in COMPONENTS if component not in counted]
        self.starts_at_once = meter.starts_at_once
        self.resolution_s = meter.resolution_s

    def start(self) -> MeterInfo:
        """Begin, and name what is left out."""
        info = self._meter.start()
        fields = (*info.fields, Field("left_out", " ".join(self._left_out)))
        if "gpu" in self._left_out:
            info = replace(info, gpus=tuple)
        return replace(info, fields=fields)

    def read(self) -> Energy:
        """Return the energy of the other components since the last read."""
        return without(self._meter.read(), self._left_out)

    def stop(self) -> None:
        """Release the hardware."""
        self._meter.stop()


def without(energy: Energy, components: Iterable[str]) -> Energy:
    """Return the energy with these components unknown."""
    unknown: dict[str, None] = {}
    for component in components:
        unknown[f"{component}_kwh"] = None
        unknown[f"{component}_method"] = None
    return replace(energy, **unknown)


def checked_reading(energy: Energy) -> Energy:
    """Return the reading; raise MeterError if it is negative, infinite or NaN."""
    for energy_kwh in (energy.cpu_kwh, energy.gpu_kwh, energy.ram_kwh):
        if energy_kwh is not None and not 0 <= energy_kwh < math.inf:
            raise MeterError(f"the meter gave {energy_kwh} kWh")
    return energy


def sum_of_readings(a: Energy, b: Energy) -> Energy:
    """Return the sum of two energies. A component that one of them lacks is unknown in the sum."""
    lacking = [c for c in COMPONENTS if a.component_kwh(c) is None or b.component_kwh(c) is None]
    return without(sum_energies((a, b)), lacking)
