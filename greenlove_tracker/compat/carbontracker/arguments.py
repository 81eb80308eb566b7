"""The arguments of carbontracker's ``CarbonTracker``, checked, and their names here."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.errors import UsageError

COMPONENTS = ("gpu", "cpu")
_DEFAULT_UTILIZATION = 0.5  # carbontracker's, of both


@dataclass(frozen=True, slots=True)
class SimulatedHardware:
    """The components to be counted, and those of them that are given instead of measured.

    Attributes:
        wanted: components, ``gpu`` and ``cpu``.
        cpu: name of a simulated CPU; None measures it.
        cpu_w: its power.
        gpu: name of a simulated GPU; None measures what is there.
        gpu_w: its power.
    """

    wanted: frozenset[str]
    cpu: str | None
    cpu_w: float
    gpu: str | None
    gpu_w: float

    @property
    def simulated(self) -> frozenset[str]:
        """The wanted components that are simulated."""
        names = {"cpu": self.cpu, "gpu": self.gpu}
        return frozenset(c for c in self.wanted if names[c] is not None)


def hardware(
    components: str,
    cpu: str | None,
    cpu_tdp_w: float | None,
    cpu_utilization: float | None,
    gpu: str | None,
    gpu_w: float | None,
    gpu_utilization: float | None,
) -> SimulatedHardware:
    """Return the hardware that the arguments ask for; a power without a name simulates nothing, as in carbontracker.

    Raises:
        UsageError: on a component, power or share that is none.
    """
    wanted = {name.strip().lower() for name in str(components).split(",")}
    wanted = set(COMPONENTS) if wanted == {"all"} else wanted
    if unknown := wanted - set(COMPONENTS):
        raise UsageError(f'components must be "all", "gpu", "cpu" or "gpu,cpu"; {", ".join(sorted(unknown))!r} is none')
    cpu_w = _power_w("sim_cpu", cpu, "sim_cpu_tdp", cpu_tdp_w, "sim_cpu_util", cpu_utilization)
    gpu_power_w = _power_w("sim_gpu", gpu, "sim_gpu_watts", gpu_w, "sim_gpu_util", gpu_utilization)
    return SimulatedHardware(frozenset(wanted), cpu, cpu_w, gpu, gpu_power_w)


def _power_w(
    name: str, device: str | None, power_name: str, power_w: float | None, share_name: str, share: float | None
) -> float:
    if device is None:
        return 0.0
    if not isinstance(device, str) or not device.strip():
        raise UsageError(f"{name} is the name of a device, not {device!r}")
    if power_w is None:
        raise UsageError(f"{name}={device!r} needs its power in W: give {power_name}")
    share = _DEFAULT_UTILIZATION if share is None else share
    for argument, value, most in ((power_name, power_w, 1e6), (share_name, share, 1.0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise UsageError(f"{argument} must be a number from 0 to {most:g}, not {value!r}")
    return power_w * share


def monitoring(epochs: int, epochs_before_pred: int, monitor_epochs: int) -> dict[str, int]:
    """Return our settings of when to forecast and when to close the run.

    Raises:
        UsageError: where fewer epochs are monitored than the forecast waits for, or none.
    """
    if monitor_epochs == 0:
        raise UsageError("monitor_epochs cannot be 0; leave it out, or give -1, to monitor all epochs")
    if monitor_epochs != -1 and monitor_epochs < epochs_before_pred:
        raise UsageError(f"monitor_epochs ({monitor_epochs}) cannot be less than epochs_before_pred")
    monitored = epochs if monitor_epochs == -1 else monitor_epochs
    is_forecast = 0 < epochs_before_pred <= monitored
    return {"epochs_before_pred": epochs_before_pred if is_forecast else 0, "monitor_epochs": monitored}
