"""Values of objects by the paths of their attributes, as JSON and CSV have them: what is not known is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from greenlove_tracker.text import format as fmt


def values_at(of: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names of their columns.

    Args:
        of: the object.
        columns: the path of an attribute by the name of each column; where it ends, the value is None. Where columns
            stand instead of a path, those of the object, or of each object, that the attribute of this name holds.
    """
    return {column: _value(of, column, path) for column, path in columns.items()}


def _value(of: Any, column: str, path: Any) -> Any:
    if isinstance(path, Mapping):
        inner = getattr(of, column)
        if inner is None:
            return None
        if isinstance(inner, Sequence):
            return [values_at(one, path) for one in inner]
        return values_at(inner, path)
    value = of
    for name in path.split("."):
        if value is not None:
            value = getattr(value, name)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return None if value == "" else value


def same(names: Iterable[str]) -> dict[str, str]:
    """Return columns that have the names of their attributes."""
    return {name: name for name in names}


def columns_of(field: str, path: str = "") -> dict[str, str]:
    """Return the columns of an estimate and its ends: ``cost_usd``, ``cost_lower_usd``, ``cost_upper_usd``."""
    name, _, unit = field.partition("_")
    unit = f"_{unit}".rstrip("_")
    path = path or field
    return {f"{name}{unit}": f"{path}.point"} | {f"{name}_{end}{unit}": f"{path}.{end}" for end in ("lower", "upper")}


QUANTITY_COLUMNS = {column: path for field in fmt.QUANTITIES for column, path in columns_of(field).items()}
