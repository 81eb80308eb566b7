"""The start of an experiment's trainings: at once, at a time, on a clean grid, or at the best start.

The best start is planned by how long the trainings will take: as others of their group took, or as an exploration says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from greenlove_tracker import format as fmt
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import say
from greenlove_tracker.experiments.definition import Experiment, PlannedRun
from greenlove_tracker.experiments.progress import ExperimentProgress, PlannedRunState
from greenlove_tracker.scheduling.run_start import BestStart, TimedStart
from greenlove_tracker.scheduling.times import parse_when
from greenlove_tracker.scheduling.waiting import average_intensity, checked_span_s, wait_for_low_carbon
from greenlove_tracker.units import SECONDS_PER_HOUR

_LIVE = "live"  # who is asked for the intensity where no setting says it: a start that goes by it needs a network
DEFAULT_MAX_WAIT = "6h"  # as of ``greenlove plan --threshold``


def check_start(experiment: Experiment, planned: PlannedRun) -> None:
    """Check, before anything is trained, that a start can be waited for.

    Raises:
        UsageError: where the settings or the source of the carbon intensity are not as they should be.
    """
    settings = load_settings(planned.settings)
    if experiment.start.start in ("best", "below"):
        average_intensity(settings.intensity or _LIVE, settings.country or None)


@dataclass(frozen=True, slots=True)
class LengthLeft:
    """The length in h that a start is planned by.

    Attributes:
        own_h: the training that begins next.
        all_h: with all others that are left.
        basis: what it is known from.
    """

    own_h: float
    all_h: float
    basis: str


class ExpectedLengths:
    """The expected length of trainings: as others of their group took, or as an exploration says.

    Args:
        experiment: whose trainings.
        explored_s: by group, the s of one training, where they are known already.
    """

    def __init__(self, experiment: Experiment, explored_s: Mapping[str, float] | None = None) -> None:
        self._experiment = experiment
        self._explored_s = None if explored_s is None else dict(explored_s)

    def of(self, progress: ExperimentProgress, planned: PlannedRun) -> LengthLeft | None:
        """Return the lengths; None where nothing tells, and where no start is planned by them."""
        if self._experiment.start.start != "best":
            return None
        finished: dict[str, list[float]] = {}
        for run in progress.runs:
            if run.state is PlannedRunState.FINISHED:
                finished.setdefault(run.planned.group, []).append(run.duration_s)
        groups = dict.fromkeys(run.planned.group for run in progress.left)
        unknown = [group for group in groups if group not in finished]
        explored = self._explored(progress) if unknown else {}
        known_s = {g: math.fsum(f) / len(f) for g, f in finished.items()}
        lengths_s = {group: known_s.get(group) or explored.get(group) for group in groups}
        of_others_s = [length_s for length_s in lengths_s.values() if length_s]
        if not of_others_s:
            return None
        mean_s = math.fsum(of_others_s) / len(of_others_s)  # of a group that could not be explored
        left_s = {
            run.planned.key: (1 - run.done_share) * (lengths_s[run.planned.group] or mean_s) for run in progress.left
        }
        basis = "as an exploration says" if unknown else "as others of its kind took"
        own_s, all_s = left_s[planned.key], math.fsum(left_s.values())
        return LengthLeft(max(own_s, 1.0) / SECONDS_PER_HOUR, max(all_s, 1.0) / SECONDS_PER_HOUR, basis)

    def _explored(self, progress: ExperimentProgress) -> Mapping[str, float]:
        if self._explored_s is None:
            from greenlove_tracker.experiments.dry_run import explore_groups

            found = explore_groups(self._experiment, progress)
            self._explored_s = {g.group: g.duration_s.point for g in found if g.duration_s is not None}
        return self._explored_s


def with_fixed_deadline(experiment: Experiment, now: datetime) -> Experiment:
    """Return an experiment whose deadline, such as ``+6h``, counts from now on and not from each training anew."""
    policy = experiment.start
    if not policy.deadline:
        return experiment
    return replace(experiment, start=replace(policy, deadline=parse_when(policy.deadline, now).isoformat()))


def planned_start(
    experiment: Experiment, planned: PlannedRun, length: LengthLeft | None, now: datetime
) -> BestStart | TimedStart | None:
    """Return the start that is waited for: the best one, or a time; None where a training begins at once.

    Args:
        experiment: with its policy.
        planned: the training that begins next.
        length: what the best start is planned by; None where it is not known.
        now: the moment, from which the policy's times count.
    """
    policy, settings = experiment.start, load_settings(planned.settings)
    max_wait_s = checked_span_s(policy.max_wait, "max_wait") if policy.max_wait else None
    deadline = parse_when(policy.deadline, now) if policy.deadline else None
    deadline_utc = "" if deadline is None else deadline.isoformat()
    if policy.start in ("now", "below"):
        return None
    if policy.start != "best":
        start = parse_when(policy.start, now)
        if start <= now:
            return None
        return TimedStart(start, settings.intensity, settings.country, deadline_utc, max_wait_s)
    if deadline is None or length is None:
        return None
    is_of_run = policy.each == "run"
    own_h, what = (length.own_h, planned.name) if is_of_run else (length.all_h, experiment.name)
    latest = deadline - timedelta(hours=length.all_h)
    if max_wait_s is not None:
        latest = min(latest, now + timedelta(seconds=max_wait_s))
    about = f"{what}: {fmt.duration(own_h * SECONDS_PER_HOUR)}, {length.basis}"
    intensity = settings.intensity or _LIVE
    return BestStart(own_h, about, intensity, settings.country, latest, deadline, deadline_utc, max_wait_s)


def wait_to_start(experiment: Experiment, planned: PlannedRun, length: LengthLeft | None, *, quiet: bool) -> None:
    """Wait until a training is to begin, as the policy says, and hand the wait over to its run."""
    policy, settings = experiment.start, load_settings(planned.settings)
    if policy.start == "below":
        wait_for_low_carbon(
            policy.below_gco2e_per_kwh or 0.0,
            policy.max_wait or DEFAULT_MAX_WAIT,
            intensity=settings.intensity or _LIVE,
            country=settings.country or None,
            quiet=quiet,
        )
        return
    start = planned_start(experiment, planned, length, datetime.now(UTC))
    if start is not None:
        start.wait(quiet=quiet)
    elif policy.start == "best" and not quiet:
        say("greenlove  how long the trainings take is not known, so no best start can be planned: it begins now")
