"""What a run is, as far as it is known: it changes only where a script's own tracker joins it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from greenlove_tracker.config import Settings, load_settings
from greenlove_tracker.logs.totals import Terms
from greenlove_tracker.tracker.choices import make_terms
from greenlove_tracker.tracker.hooks import Hooks
from greenlove_tracker.tracker.plan import Plan


@dataclass(frozen=True, slots=True)
class Particulars:
    """What a run is.

    Attributes:
        settings: what it is measured and counted with.
        plan: what the training is going to be; None where no script has said so yet.
        terms: its names, and what energy is multiplied with.
        hooks: the user's own code for budgets.
    """

    settings: Settings
    plan: Plan | None
    terms: Terms
    hooks: Hooks

    @property
    def grams_per_kwh(self) -> float:
        """Emissions of metered energy: carbon intensity times PUE."""
        return self.terms.carbon_intensity.value * self.terms.pue

    def plan_with(self, plan: Plan) -> Plan:
        """The plan once a script's tracker brings one; that of a second tracker comes on top."""
        return plan if self.plan is None else self.plan.and_then(plan)

    def joined_by(self, plan: Plan, arguments: Mapping[str, Any], hooks: Hooks) -> Particulars:
        """The same run, once a script's own tracker has joined it.

        Args:
            plan: of the whole run from then on.
            arguments: the settings that the script gives; where the command line set one, that one stays.
            hooks: the script's code for budgets.

        Raises:
            UsageError: for a bad setting.
        """
        ours = {name: getattr(self.settings, name) for name in self.settings.given}
        settings = load_settings({**arguments, **ours, "log_dir": self.settings.log_dir})
        terms = make_terms(settings, plan, self.terms.run_id, self.terms.started_at)
        return Particulars(settings, plan, terms, hooks.under(settings))
