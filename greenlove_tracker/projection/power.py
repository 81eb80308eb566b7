"""The share of their power limit that GPUs draw, here and elsewhere, and what the rest of a node draws.

A training GPU draws a share of its limit between the idle share, while it waits for the next kernel, and the full
share. How far between is the activity; it belongs to the training and is the same on every GPU, while the two shares
belong to the GPU. The rest of a node (CPUs, memory, fans, losses of power supplies) draws a share of the GPUs' limit,
busy or not.

The coefficients are from ``data/gpu_power.csv``, which ``benchmarks/fit_power.py`` writes; ``docs/method/speedups.md``
says how well they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from greenlove_tracker.projection.uncertain import Uncertain, propagated
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.workloads import workload_named

TABLE = "gpu_power.csv"
LEAST_ACTIVITY = 0.02  # of a GPU whose draw says that it does nothing at all: no training does


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """The share of their power limit that the GPUs draw, and how it is known.

    Attributes:
        share: of the limit, idle time between kernels included.
        basis: how it is known, in a few words.
        is_assumed: True where nothing was measured or given.
    """

    share: Uncertain
    basis: str
    is_assumed: bool = False


Levels = Mapping[str, Uncertain]


@dataclass(frozen=True, slots=True)
class PowerTable:
    """The coefficients.

    Attributes:
        idle: by GPU, "" for one that was not measured: the share of its power limit that it draws while it waits.
        full: likewise, the share that it draws while it is always busy.
        activity: by class of workload, "" if that is unknown: the activity assumed if nothing tells the training's own.
        transfer: a factor around 1: how far a training's draw on one GPU is off what another GPU predicts.
        rest: what the rest of a node draws, as a share of the power limit of its GPUs.
    """

    idle: Levels
    full: Levels
    activity: Levels
    transfer: Uncertain
    rest: Uncertain

    def share_elsewhere(self, share: Uncertain, here: GpuSpec | None, there: GpuSpec) -> Uncertain:
        """Return the share of its limit that a GPU draws on a training that draws ``share`` of another's.

        Its errors are those of the draw here, those of both GPUs' idle and full shares, and its own.
        """
        found = propagated(_share_there, share, *self.range_of(here), *self.range_of(there))
        return found.times(_named(self.transfer, f"draw of {there.name}"))

    def range_of(self, gpu: GpuSpec | None) -> tuple[Uncertain, Uncertain]:
        """Return the idle and the full share of a GPU; None stands for a GPU that no table has."""
        name = gpu.name if gpu else "the GPU here"
        level = name if name in self.idle else ""
        return _named(self.idle[level], f"idle draw of {name}"), _named(self.full[level], f"full draw of {name}")


def _named(quantity: Uncertain, error: str) -> Uncertain:
    (sides,) = quantity.errors.values()
    return Uncertain(quantity.point, {error: sides})


@cache
def power_table() -> PowerTable:
    """Return the shipped coefficients."""
    found: dict[str, dict[str, Uncertain]] = {}
    for row in rows(TABLE):
        errors = {row["kind"]: (float(row["below"]), float(row["above"]))}
        found.setdefault(row["kind"], {})[row["level"]] = Uncertain(float(row["value"]), errors)
    return PowerTable(found["idle"], found["full"], found["activity"], found["transfer"][""], found["rest"][""])


def node_overhead(draw: PowerDraw) -> Uncertain:
    """Return the power of a node divided by that of its GPUs; the less these draw, the larger it is."""
    rest = _named(power_table().rest, "rest of the node")
    return propagated(lambda share, rest: 1 + rest / share, draw.share, rest)


def usual_draw(gpu: GpuSpec | None, workload: str | None) -> PowerDraw:
    """Return the draw that is assumed for a class of workload.

    Args:
        gpu: None if no table has it, or if there is none.
        workload: None if unknown.
    """
    table = power_table()
    level = workload_named(workload) if workload else ""
    activity = _named(table.activity.get(level, table.activity[""]), "activity")
    usual = "usual for trainings"
    if level in table.activity and level:
        usual = f"usual for {level} trainings"
    share = propagated(_share, *table.range_of(gpu), activity)
    return PowerDraw(share, f"assumed, {usual}", is_assumed=True)


def draw_of_machine(power_w: float, gpu: GpuSpec | None, limit_w: float) -> PowerDraw:
    """Return what the GPUs of a machine draw, from the power of the whole machine.

    Args:
        power_w: the mean power of the machine, without PUE.
        gpu: None if no table has it.
        limit_w: the power limit of all its GPUs together.
    """
    table = power_table()
    rest = _named(table.rest, "rest of the node")
    of_limit = power_w / limit_w
    idle, full = table.range_of(gpu)
    least = _share(idle.point, full.point, LEAST_ACTIVITY)
    share = propagated(lambda rest: min(max(of_limit - rest, least), 1.0), rest)
    return PowerDraw(
        share, f"draw, from this machine's {power_w:.0f} W less {rest.point:.0%} of the limit for the rest of it"
    )


def draw_elsewhere(local: PowerDraw, local_gpu: GpuSpec | None, target: GpuSpec) -> PowerDraw:
    """Return the draw of another GPU on the same training; the same draw for the same GPU."""
    if local_gpu and local_gpu.name == target.name:
        return local
    share = power_table().share_elsewhere(local.share, local_gpu, target)
    return PowerDraw(share, local.basis, is_assumed=local.is_assumed)


def _share(idle: float, full: float, activity: float) -> float:
    """Return the share of the limit drawn at an activity; no GPU draws more than its limit for long."""
    return min(1.0, idle + max(full - idle, 0.0) * min(activity, 1.0))


def _share_there(share: float, idle: float, full: float, idle_there: float, full_there: float) -> float:
    """Return the share at the activity, within the GPU's range, that a share here stands for."""
    activity = min(1.0, max(LEAST_ACTIVITY, (share - idle) / max(full - idle, LEAST_ACTIVITY)))
    return _share(idle_there, full_there, activity)
