"""A training that explorations are compared on, as one process names it to another: no torch is loaded for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A training: its loop, batches an epoch, device, threads and seed."""

    loop: str
    batches: int
    device: str
    threads: int
    seed: int
