"""Energy meters: CodeCarbon's, simulated hardware, and none."""

from greenlove_tracker.meter.base import Meter, MeterInfo, NullMeter, SimulatedMeter

__all__ = ["Meter", "MeterInfo", "NullMeter", "SimulatedMeter"]
