"""The source of a row's carbon intensity: the words of the cell ``carbon_intensity_source``, written and read back.

Such a cell reads ``neso measured direct, 12 min old``, ``mock``, or ``table lifecycle (fallback: neso: it did not
answer)``. A row in whose time the source changed has several, in their order, with a semicolon between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.text.format import shortened
from greenlove_tracker.vocabulary.records import INTENSITY_COVERAGES, Factor

MOCK = "mock"
TABLE = "table"
_NAMED = {TABLE: "the offline table", MOCK: "the mock"}
KINDS = ("measured", "estimated", "forecast", "given")
_LONGEST_REASON = 80  # characters
_find_sources = re.compile(
    r"([^ ;]+?)(?=,? |;|$)"  # the provider, a word
    rf"(?: ({'|'.join(KINDS)})\b)?"
    rf"(?: ({'|'.join(INTENSITY_COVERAGES)})\b)?"
    r"(?:, (\d{1,9}) min old)?"
    r"(?: \(fallback: ([^;]*)\))?"
    r"[^;]*"  # of a damaged one
).findall


@dataclass(frozen=True, slots=True)
class IntensitySource:
    """The source of a carbon intensity.

    Attributes:
        provider: such as ``neso``, ``csv``, ``table`` or ``mock``.
        kind: measured, estimated, forecast or given; empty of a table and of a mock.
        coverage: direct or lifecycle emissions; empty where that is not stated.
        age_min: how old the figure was when it was asked for, in minutes; 0 where it was of that time.
        reason: why it stands in for what was asked for; empty where it is that.
    """

    provider: str
    kind: str = ""
    coverage: str = ""
    age_min: int = 0
    reason: str = ""

    @property
    def is_fallback(self) -> bool:
        """True where it stands in for what was asked for."""
        return bool(self.reason)

    @property
    def name(self) -> str:
        """The source without its age: ``neso measured direct``."""
        return " ".join(filter(None, (self.provider, self.kind, self.coverage)))

    @property
    def described(self) -> str:
        """The same for people: ``the offline table (lifecycle)``, ``neso (measured, direct)``."""
        details = ", ".join(filter(None, (self.kind, self.coverage)))
        named = _NAMED.get(self.provider, self.provider)
        if details:
            return f"{named} ({details})"
        return named

    @property
    def text(self) -> str:
        """The words of a cell."""
        text = self.name
        if self.age_min:
            text += f", {self.age_min} min old"
        reason = mask_secrets(" ".join(self.reason.replace(";", ",").split()))
        if reason:
            text += f" (fallback: {shortened(reason, _LONGEST_REASON)})"
        return text


def sources_text(sources: Iterable[IntensitySource]) -> str:
    """Return sources as a cell or a field of a log has them."""
    return "; ".join(source.text for source in sources)


def sources_in(cell: str) -> Sequence[IntensitySource]:
    """Return the sources that a cell names; of a damaged one, what can be read of it."""
    return [
        IntensitySource(provider, kind, coverage, int(age_min or 0), reason)
        for provider, kind, coverage, age_min, reason in _find_sources(cell)
    ]


def sources_of(cells: Iterable[str]) -> Sequence[IntensitySource]:
    """Return every source that rows were counted with, whatever its age, in the order in which they first came.

    Of a fall-back the last reason stands for all: the first is mostly that no answer had come yet.
    """
    found: dict[tuple[str, bool], IntensitySource] = {}
    for source in sources_in("; ".join(dict.fromkeys(cells))):
        key = source.name, source.is_fallback
        oldest_min = max(source.age_min, found.get(key, source).age_min)
        found[key] = replace(source, age_min=oldest_min)
    return list(found.values())


def is_mock(sources: Iterable[IntensitySource]) -> bool:
    """Return True where a figure among them is invented."""
    return any(source.provider == MOCK for source in sources)


def mean_factor(gco2e_per_kwh: float, sources: Sequence[IntensitySource]) -> Factor:
    """Return the carbon intensity of a run that was counted by time, as one: the mean over its energy.

    Args:
        gco2e_per_kwh: the mean.
        sources: of its rows.
    """
    in_order = sorted(sources, key=lambda source: source.is_fallback)
    names = ", ".join(dict.fromkeys(map(_described, in_order)))
    text = f"mean over the energy of what was in force: {names}"
    if is_mock(sources):
        text = f"MOCK: invented figures, of no grid; {text}"
    basis = "location-based"
    coverages = {source.coverage for source in sources}
    if len(coverages) == 1:
        basis = ", ".join(filter(None, (basis, *coverages)))
    return Factor("carbon_intensity", gco2e_per_kwh, "gCO2e/kWh", text, basis=basis)


def _described(source: IntensitySource) -> str:
    text = source.name
    if source.age_min:
        text += f", up to {source.age_min} min old"
    if source.is_fallback:
        text += f" as fall-back ({source.reason})"
    return text
