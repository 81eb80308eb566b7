"""Energy meters: CodeCarbon's, simulated hardware, the replay of a log, and none."""

from greenlove_tracker.meter.protocol import Meter, MeterInfo
from greenlove_tracker.meter.simple import NullMeter, ReplayMeter, SimulatedMeter

__all__ = ["Meter", "MeterInfo", "NullMeter", "ReplayMeter", "SimulatedMeter"]
