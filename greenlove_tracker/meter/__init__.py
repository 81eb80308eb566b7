"""Energy meters: CodeCarbon's, simulated hardware, the replay of a log, and none."""

from greenlove_tracker.meter.base import Meter, MeterInfo, NullMeter, ReplayMeter, SimulatedMeter

__all__ = ["Meter", "MeterInfo", "NullMeter", "ReplayMeter", "SimulatedMeter"]
