"""What is told of many runs together, gathered in one look at each; nothing of a single run is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from greenlove_tracker.logs.keys import KEYS
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.logs.partial import Contribution, Partial, contribution
from greenlove_tracker.records import COMPONENTS, Factor
from greenlove_tracker.report import wording
from greenlove_tracker.report.groups import Sums

_NAMED = 3
_AT_ONCE = 1000  # runs that are added up together


@dataclass(slots=True)
class Facts:
    """Of some runs.

    Attributes:
        kinds: how many trainings and explorations they are.
        hardware: GPUs, or where there is none CPUs.
        places: countries, as given.
        pues: of those whose energy is known.
        intensities: those known, in the order in which they were met.
        versions: of this package.
        meters: that measured.
        unmeasured: components that could not be, in one of them at least.
        without_energy: the first few runs whose energy is not known.
        without_emissions: the same of emissions.
    """

    _sum: Partial = field(default_factory=Partial)
    _latest: list[Contribution] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    hardware: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    pues: set[float] = field(default_factory=set)
    intensities: dict[Factor, None] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    meters: set[str] = field(default_factory=set)
    unmeasured: set[str] = field(default_factory=set)
    without_energy: list[str] = field(default_factory=list)
    without_emissions: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """One more run."""
        self._latest.append(contribution(run))
        if len(self._latest) == _AT_ONCE:
            self._sum, self._latest = self.sums.partial, []
        self.kinds[KEYS["kind"](run)] += 1
        self.hardware.add(wording.data(run, "gpu_models", 60) or wording.data(run, "cpu_model", 60))
        self.places.add(wording.data(run, "country", 40))
        self.versions.add(wording.data(run, "greenlove_version", 20))
        self.meters.add(wording.data(run, "meter", 40))
        self.unmeasured.update(c for c in run.text("unmeasured").split() if c in COMPONENTS)
        if run.summary.energy_kwh is not None:
            self.pues.add(run.summary.pue)
        elif len(self.without_energy) < _NAMED:
            self.without_energy.append(run.run_id)
        if wording.emissions_kgco2e(run) is None and len(self.without_emissions) < _NAMED:
            self.without_emissions.append(run.run_id)
        if run.knows_carbon_intensity:
            self.intensities[run.carbon_intensity] = None

    @property
    def sums(self) -> Sums:
        """What they come to."""
        return Sums(Partial.merged([self._sum, Partial.of(self._latest)]))

    @property
    def n_runs(self) -> int:
        """How many they are."""
        return self.kinds.total()

    @property
    def before_pue(self) -> str:
        """What a share measured is of, where a PUE adds to it; empty where none does."""
        return " before PUE" if self.pues - {1.0} else ""

    @property
    def pue_text(self) -> str:
        """``PUE 1.2``, or from the least to the greatest."""
        least, greatest = min(self.pues), max(self.pues)
        return f"PUE {least}" if least == greatest else f"PUE {least} to {greatest}"


def facts_of(runs: Iterable[Run]) -> Facts:
    """Of these runs."""
    facts = Facts()
    for run in runs:
        facts.add(run)
    return facts
