"""The lines of a ``run.csv`` by name; of the dozens that there are, few are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from greenlove_tracker.records import Field


class Fields(Mapping[str, Field]):
    """Fields that become objects when they are asked for: of ten thousand runs the rest would be half the reading.

    Args:
        lines: name, value and unit of each; a later line of the same name wins.
    """

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        self._lines = {line[0]: line for line in lines}

    @classmethod
    def of(cls, fields: Mapping[str, Field]) -> Fields:
        """The same as any mapping."""
        return fields if isinstance(fields, Fields) else cls([(f.name, f.value, f.unit) for f in fields.values()])

    def __getitem__(self, name: str) -> Field:
        line = self._lines[name]
        return Field(line[0], line[1], line[2])

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def text(self, name: str, default: str = "") -> str:
        """The value of one field."""
        line = self._lines.get(name)
        return default if line is None else line[1]
