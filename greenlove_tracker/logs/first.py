"""The first few of many things, and how many there are; what is merged of parts is what the whole would give."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class First(Generic[Item]):
    """The least of many tuples, which differ by what stands first in them.

    Attributes:
        limit: how many are kept.
        count: how many there are.
        items: those kept, in order.
    """

    limit: int
    count: int = 0
    items: tuple[Item, ...] = ()

    @classmethod
    def of(cls, limit: int, items: Iterable[Item]) -> First[Item]:
        """The first of ``items``."""
        items = list(items)
        return cls(limit, len(items), tuple(heapq.nsmallest(limit, items)))

    @classmethod
    def merged(cls, parts: Iterable[First[Item]]) -> First[Item]:
        """The first of all parts together; they have one limit, and there is at least one."""
        parts = list(parts)
        limit = parts[0].limit
        items = heapq.nsmallest(limit, chain.from_iterable(part.items for part in parts))
        return cls(limit, sum(part.count for part in parts), tuple(items))
