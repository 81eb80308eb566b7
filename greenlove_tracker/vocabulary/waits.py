"""Hand the facts of a wait to the run after it, in this process or in one that it starts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from greenlove_tracker.vocabulary.records import Field

WAIT_VARIABLE = "GREENLOVE_WAIT"  # what a wait hands to the runs that begin after it, as JSON
_LONGEST_AFTER_WAIT_S = 3600.0  # a run that begins later, such as the tenth of a sweep, did not wait


def hand_over_wait(fields: Sequence[Field], ended_utc_s: float, *, deadline_utc: str | None = None) -> None:
    """Hand a wait to the next run of this process, or of one that it starts, if that begins within an hour.

    Args:
        fields: fields of that run's ``run.csv``, which say why it began when it did.
        ended_utc_s: when the wait ended.
        deadline_utc: the deadline of the run that this process begins now; None if another process begins it.
    """
    lines = [(field.name, field.value, field.unit) for field in fields]
    handed = {"lines": lines, "ended_utc_s": ended_utc_s, "pid": os.getpid(), "deadline_utc": deadline_utc}
    os.environ[WAIT_VARIABLE] = json.dumps(handed)


def wait_before(env: Mapping[str, str], started_utc_s: float) -> list[Field]:
    """Return the fields that a wait handed to the run that begins now; none without a wait."""
    handed = _handed_over(env)
    try:
        is_long_ago = abs(started_utc_s - handed.get("ended_utc_s", 0.0)) > _LONGEST_AFTER_WAIT_S
        if is_long_ago:
            return []
        return [Field(*line) for line in handed["lines"]]
    except (KeyError, TypeError):  # of another version: that the run is tracked is worth more than why it began
        return []


def deadline_after_wait(env: Mapping[str, str]) -> str | None:
    """Return the deadline of the run that this process waited for before it restarted; None without a wait."""
    handed = _handed_over(env)
    if handed.get("pid") == os.getpid():
        return handed.get("deadline_utc")
    return None


def _handed_over(env: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        return dict(json.loads(env.get(WAIT_VARIABLE, "{}")))
    except (ValueError, TypeError):  # somebody else's
        return {}
