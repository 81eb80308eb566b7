"""What the tracker asks of a meter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from greenlove_tracker.records import Energy, Field


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """What a meter found, as lines for ``run.csv``."""

    fields: tuple[Field, ...]
    gpu_count: int = 0


class Meter(Protocol):
    """Measures the energy of this node, before PUE.

    Attributes:
        starts_at_once: whether ``start()`` takes no time worth a thread of its own.
        resolution_s: an energy over less time than this is noise.
    """

    starts_at_once: bool
    resolution_s: float

    def start(self) -> MeterInfo:
        """Find the hardware and begin.

        Raises:
            MeterError: where nothing can be measured, with the reason.
        """

    def read(self) -> Energy:
        """The energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: where it could not be read.
        """

    def stop(self) -> None:
        """Release what the meter holds; never raises."""
