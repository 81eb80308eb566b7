"""Results that print as sentences. The words stand in ``report/``, above: the package's ``__init__`` hands them in."""

from __future__ import annotations

in_words = repr  # returns the sentences about a result


class Worded:
    """A result that ``print`` shows in sentences; its ``repr`` has the data."""

    __slots__ = ()

    def __str__(self) -> str:
        return in_words(self)
