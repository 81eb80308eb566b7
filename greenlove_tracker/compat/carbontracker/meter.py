"""A meter of the components that are wanted, some of them simulated."""

from __future__ import annotations

from collections.abc import Mapping

from greenlove_tracker import devices
from greenlove_tracker.compat.carbontracker.arguments import COMPONENTS, SimulatedHardware
from greenlove_tracker.config import Settings
from greenlove_tracker.meter import Meter, MeterInfo, SimulatedMeter
from greenlove_tracker.records import Energy, Field, SystemClock
from greenlove_tracker.tracker.meter_starter import choose_meter
from greenlove_tracker.tracker.state import Plan, ranks_in, run_factors


class PartialMeter:
    """Counts the wanted components: the simulated ones by their given power, the others with the meter of the machine.

    Memory counts with the CPU, as it did where carbontracker read RAPL.

    Args:
        wanted: components, and which of them are simulated.
        simulated: gives the energy of the simulated ones.
        machine: measures the rest; None where there is no rest.
    """

    def __init__(self, wanted: SimulatedHardware, simulated: SimulatedMeter, machine: Meter | None) -> None:
        self._hardware, self._simulated, self._machine = wanted, simulated, machine
        self._simulated_info = MeterInfo(())
        self.starts_at_once = machine is None or machine.starts_at_once
        self.resolution_s = 0.0 if machine is None else machine.resolution_s

    def start(self) -> MeterInfo:
        """Start the machine's meter, and describe what is measured and what is simulated.

        Raises:
            MeterError: where the rest cannot be measured.
        """
        info = None if self._machine is None else self._machine.start()
        self._simulated_info = self._simulated.start()
        return self._describe(info)

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names, where GPUs are measured.

        Raises:
            MeterError: where the machine's meter could not be asked.
        """
        if self._machine is None or "gpu" not in self._hardware.wanted - self._hardware.simulated:
            return None
        info = self._machine.reselect_gpus(env)
        return None if info is None else self._describe(info)

    def _describe(self, info: MeterInfo | None) -> MeterInfo:
        hardware, simulated, fields = self._hardware, self._simulated_info, dict[str, Field]()
        measured = hardware.wanted - hardware.simulated
        if info is not None:
            left_out = tuple(f"{c}_" for c in COMPONENTS if c not in measured)
            left_out += () if "cpu" in hardware.wanted else ("ram_",)
            fields = {f.name: f for f in info.fields if not f.name.startswith(left_out)}
        if hardware.simulated:
            fields |= {f.name: f for f in simulated.fields if self._machine is None or f.name == "gpu_count"}
            fields |= {name: Field(name, text) for name, text in self._names().items()}
        n_gpus = simulated.gpu_count if "gpu" in hardware.simulated else 0
        if info is not None and "gpu" in measured:
            n_gpus = info.gpu_count
        fields["gpu_count"] = Field("gpu_count", str(n_gpus))
        return MeterInfo(tuple(fields.values()), n_gpus)

    def _names(self) -> dict[str, str]:
        hardware = self._hardware
        names = {}
        if "cpu" in hardware.simulated and hardware.cpu:
            names["cpu_model"] = hardware.cpu
        if "gpu" in hardware.simulated and hardware.gpu:
            names["gpu_models"] = f"1 × {hardware.gpu}"
        if self._machine is not None:
            names["meter_note"] = f"simulated: {', '.join(sorted(hardware.simulated))}"
        return names

    def read(self) -> Energy:
        """Return the energy since the last read.

        Raises:
            MeterError: where the rest could not be read.
        """
        given = self._simulated.read()
        measured = Energy() if self._machine is None else self._machine.read()
        by_component = {c: given if c in self._hardware.simulated else measured for c in COMPONENTS}
        by_component |= {c: Energy() for c in COMPONENTS if c not in self._hardware.wanted}
        cpu, gpu = by_component["cpu"], by_component["gpu"]
        ram = measured if "cpu" in self._hardware.wanted else Energy()
        return Energy(cpu.cpu_kwh, gpu.gpu_kwh, ram.ram_kwh, cpu.cpu_method, gpu.gpu_method, ram.ram_method)

    def stop(self) -> None:
        """Stop the machine's meter."""
        if self._machine is not None:
            self._machine.stop()


def meter_of(wanted: SimulatedHardware, settings: Settings) -> Meter | None:
    """Return the meter of this process; None for the usual one: all is wanted, or another rank of the node measures.

    Raises:
        UsageError: for a place that is not known.
    """
    ranks = ranks_in(settings.log_dir)
    if not ranks.carries_meter or (wanted.wanted == set(COMPONENTS) and not wanted.simulated):
        return None
    clock, simulated = SystemClock(), wanted.simulated
    given = SimulatedMeter(
        clock,
        cpu_tdp_w=wanted.cpu_w if "cpu" in simulated else None,
        cpu_util=1.0,
        gpu_w=wanted.gpu_w if "gpu" in simulated else None,
        gpu_util=1.0,
    )
    rest = wanted.wanted - simulated
    is_only_gpus = rest == {"gpu"} and bool(simulated)
    if not rest or (is_only_gpus and not devices.nvml_gpus()):
        return PartialMeter(wanted, given, None)
    factors = run_factors(settings, Plan(), "", "")
    return PartialMeter(wanted, given, choose_meter(settings, ranks, clock, factors.carbon_intensity, None))
