"""The gain of several GPUs over one, with its error.

The logarithm of the gain from 1 to n GPUs is an exponent times log n up to the eight GPUs of a node, another exponent
beyond, plus the deviation of machines with exactly n GPUs from the power law. So gains multiply, points and errors
alike: from 1 to 4 times from 4 to 8 is from 1 to 8.

The gain is in samples per second, with an unchanged batch per GPU. It does not say whether the training needs more
passes over its data with the larger batch.

The exponents are from ``data/gpu_scaling.csv``, which ``benchmarks/fit_scaling.py`` writes; ``docs/method/speedups.md``
says how well they hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from greenlove_tracker.projection.uncertain import Deviations, Uncertain
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.workloads import workload_named

TABLE = "gpu_scaling.csv"
INTERCONNECTS = ("nvlink", "pcie", "ethernet")
BETWEEN_NODES = "ethernet"
GPUS_OF_A_NODE = 8

# A user's own efficiency of eight GPUs may be measured or guessed, of this training or of one like it, here or there.
# So half of the exponent's error stays, by assumption; and all of what a number of GPUs is off the power law.
KEPT_OF_THE_ERROR = 0.5
# Nothing was measured of nodes that hold one GPU each. By assumption they scale as GPUs on PCIe do at best, and this is
# twice as uncertain; a slow network does worse than either.
ONE_GPU_A_NODE_ERROR = 2.0

# Modules on a board that joins all of them: NVLink, NVSwitch, or AMD's Infinity Fabric. SXM is in the others' names.
_MODULES = {"GB300", "GB200", "H20", "Instinct MI355X", "Instinct MI350X", "Instinct MI325X", "Instinct MI300X"}
_MODULES |= {"Instinct MI300A", "Instinct MI250X (one of two GPUs)", "Instinct MI250 (one of two GPUs)"}


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling of GPUs with one interconnect, on one class of workload.

    Attributes:
        exponent: the exponent of the number of GPUs, its median; 1 if twice as many do twice as much.
        exponent_errors: its errors below and above, for a training and a GPU that were never measured.
        number_errors: errors of the log gain: how far machines with one number of GPUs are off the power law.
    """

    exponent: float
    exponent_errors: Deviations
    number_errors: Deviations

    def gain(self, ratio: float, n_gpus: int, interconnect: str) -> Uncertain:
        """Return the gain from one GPU, or node, to ``ratio`` times as many; ``n_gpus`` in all."""
        log = math.log(ratio)
        if not log:
            return Uncertain(1.0)
        below, above = self.exponent_errors
        errors = {
            f"scaling by {interconnect}": (below * log, above * log),
            f"scaling to {n_gpus} GPUs by {interconnect}": self.number_errors,
        }
        return Uncertain(math.exp(self.exponent * log), errors)

    def with_efficiency_of_eight(self, efficiency: float) -> Scaling:
        """Return it with the exponent at which eight GPUs do 8 × ``efficiency`` of one's work."""
        below, above = self.exponent_errors
        kept = (KEPT_OF_THE_ERROR * below, KEPT_OF_THE_ERROR * above)
        return replace(self, exponent=1 + math.log(efficiency, 8), exponent_errors=kept)


Scalings = dict[tuple[str, str], Scaling]  # by interconnect and class of workload


def scaling_gain(
    n_gpus: int,
    *,
    workload: str | None = None,
    interconnect: str | None = None,
    efficiency_of_eight: float | None = None,
    gpus_of_a_node: int = GPUS_OF_A_NODE,
) -> Uncertain:
    """Return how much faster several GPUs are than one of the same kind.

    The gain of one number over another is the quotient of theirs.

    Args:
        n_gpus: the number of GPUs.
        workload: class of what is trained; None for any.
        interconnect: of the GPUs in a node, ``nvlink`` or ``pcie``; None for either. More than a node holds are several
            nodes, whose network comes in by itself. ``ethernet`` joins nodes of one GPU each, of which nothing was
            measured: an assumption.
        efficiency_of_eight: of eight GPUs against one, by the user's word, over 0.125 to 1. It sets the exponent inside
            a node, and between nodes where it is lower there; half of the exponent's error stays, and all of a
            number's own.
        gpus_of_a_node: that a node holds.

    Raises:
        UsageError: for any other interconnect, class or efficiency.
    """
    check_efficiency_of_eight(efficiency_of_eight)
    link = interconnect or ""
    if link not in ("", *INTERCONNECTS):
        raise UsageError(f"{{argument}} must be nvlink, pcie or ethernet, not {link!r}", argument="interconnect")
    of_class = workload_named(workload) if workload else ""
    between = scalings()[BETWEEN_NODES, of_class]
    if link == BETWEEN_NODES:
        inside = _one_gpu_a_node(of_class)
    else:
        inside = scalings()[link, of_class]
    if efficiency_of_eight is not None:
        inside = inside.with_efficiency_of_eight(efficiency_of_eight)
    if efficiency_of_eight is not None or gpus_of_a_node < GPUS_OF_A_NODE:  # no network beats what a node has inside
        between = replace(between, exponent=min(between.exponent, inside.exponent))
    if link == BETWEEN_NODES:
        return inside.gain(n_gpus, n_gpus, link)
    in_node = min(n_gpus, gpus_of_a_node)
    gain_inside = inside.gain(in_node, in_node, link or "an unknown interconnect")
    return gain_inside.times(between.gain(n_gpus / in_node, n_gpus, f"{BETWEEN_NODES} between nodes"))


def check_efficiency_of_eight(efficiency: float | None) -> None:
    """Raise UsageError if a user's efficiency of eight GPUs is impossible; None is accepted.

    Raises:
        UsageError: if eight are no faster than one, or more than eight times as fast.
    """
    if efficiency is not None and not 1 / GPUS_OF_A_NODE < efficiency <= 1:
        raise UsageError(
            f"{{argument}} is the efficiency of eight GPUs, over 0.125 (no faster than one) to 1, not {efficiency!r}",
            argument="scaling",
        )


def interconnect_of(gpu: GpuSpec) -> str:
    """Return what usually joins such GPUs in a node: ``nvlink`` or ``pcie``; ``ethernet`` where each has its own node.

    Modules on one board (SXM, OAM, superchips of two and more) have NVLink or AMD's counterpart, and cards PCIe:
    bridges between cards are not assumed. A GH200 is alone in its node.
    """
    if gpu.name.startswith("GH200"):
        return BETWEEN_NODES
    if "SXM" in gpu.name or gpu.name in _MODULES:
        return "nvlink"
    return "pcie"


@cache
def scalings() -> Scalings:
    """Return the table by interconnect and class of workload; each is "" if unknown."""
    found: Scalings = {}
    for row in rows(TABLE):
        exponent_errors = (float(row["exponent_below"]), float(row["exponent_above"]))
        number_errors = (float(row["number_below"]), float(row["number_above"]))
        found[row["interconnect"], row["workload"]] = Scaling(float(row["exponent"]), exponent_errors, number_errors)
    return found


def _one_gpu_a_node(workload: str) -> Scaling:
    cards = scalings()["pcie", workload]
    network = scalings()[BETWEEN_NODES, workload]
    below, above = cards.exponent_errors
    return replace(
        cards,
        exponent=min(cards.exponent, network.exponent),
        exponent_errors=(ONE_GPU_A_NODE_ERROR * below, ONE_GPU_A_NODE_ERROR * above),
    )
