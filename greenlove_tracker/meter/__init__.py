"""Energy meters: CodeCarbon's, simulated hardware, and none."""

from greenlove_tracker.meter.base import GpuEnergy, Meter, MeterInfo, NullMeter, SimulatedMeter

__all__ = ["GpuEnergy", "Meter", "MeterInfo", "NullMeter", "SimulatedMeter"]
