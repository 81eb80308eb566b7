"""What the processes of one run wrote into their ``run.csv`` files, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greenlove_tracker.logs.schema import JOINED_ROLE
from greenlove_tracker.records import Field

NO_FIELD = Field("", "")
_PLACE_FIELDS = ("country", "pue", "price_usd_per_gpu_hour", "carbon_intensity", "electricity_price")


def is_joined(fields: Mapping[str, Field]) -> bool:
    """Whether another process measures the one that wrote these."""
    return fields.get("role", NO_FIELD).value == JOINED_ROLE


def merged_fields(by_node: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    """``run.csv``, and what it leaves open from the others.

    What a run is counted with comes from one of them as a whole: from a process that joined only where it names a
    country and ``run.csv`` does not.
    """
    merged = dict(by_node[0])
    for fields in by_node[1:]:
        takes_place = is_joined(fields) and "country" in fields and not merged.get("country", NO_FIELD).value
        for name, field in fields.items():
            is_of_place = name.partition(".")[0] in _PLACE_FIELDS
            if (is_of_place and takes_place) or (not is_of_place and not merged.get(name, NO_FIELD).value):
                merged[name] = field
    merged.pop("role", None)
    return merged
