"""Budgets of a team for a month, in a site's file of settings; what is used of them, and alerts, each given once.

::

    [budgets]
    webhook = "https://chat.example.org/hooks/1"     # asked only where a budget is exceeded; may be left out

    [budgets.project.thesis]
    kwh = 100

    [budgets.user."*"]                               # each user
    usd = 50
    kgco2e = 20
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from greenlove_tracker import config_files
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import GreenloveError, SettingError
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.sums import Totals

TABLE = "budgets"
GROUPS = ("project", "user")
EACH = "*"  # the name of a budget that each project or user has
QUANTITIES = {"kwh": "energy_kwh", "usd": "cost_usd", "kgco2e": "emissions_kgco2e"}
_UNKNOWN = {"kwh": "n_unknown_energy", "usd": "n_unknown_cost", "kgco2e": "n_unknown_emissions"}
_WEBHOOK = "webhook"
_WEBHOOK_TIMEOUT_S = 5.0
_SENT = ".sent"  # the end of the file of an alert that the webhook took
_ALERTS_DIR = ".greenlove_alerts"  # in the log directory: a file for each alert that was given


@dataclass(frozen=True, slots=True)
class TeamBudget:
    """A limit on the use of a project or a user in a month.

    Attributes:
        group: ``project`` or ``user``.
        name: of it; ``*``: each has a budget of its own.
        quantity: a key of ``QUANTITIES``.
        limit: in the unit that the key names.
    """

    group: str
    name: str
    quantity: str
    limit: float


@dataclass(frozen=True, slots=True)
class TeamBudgets:
    """The budgets of a site.

    Attributes:
        budgets: all of them.
        webhook: an address that alerts are sent to as JSON; empty: none is.
    """

    budgets: tuple[TeamBudget, ...] = ()
    webhook: str = ""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The use of a budget by one project or user in a month.

    Attributes:
        budget: whose limit counts.
        name: of the project or user.
        month: such as ``2026-11``, in UTC.
        used: in the unit of the budget, as far as it is known.
        n_unknown: runs of which it is not known.
        n_unreadable: parts of the logs that could not be read, as where a run is private; nobody knows whose.
    """

    budget: TeamBudget
    name: str
    month: str
    used: float
    n_unknown: int
    n_unreadable: int = 0

    @property
    def is_exceeded(self) -> bool:
        """True where more is known to be used than is allowed."""
        return self.used > self.budget.limit

    @property
    def sentence(self) -> str:
        """The same in words."""
        budget, write = self.budget, _TEXTS[self.budget.quantity]
        whose = f"{budget.group} {self.name or '(none)'}"
        amounts = f"{write(self.used)} of {write(budget.limit)} ({fmt.percent(self.used / budget.limit)})"
        more = f"; of {fmt.plural(self.n_unknown, 'run')} it is not known" if self.n_unknown else ""
        if self.n_unreadable:
            more += f"; {fmt.plural(self.n_unreadable, 'part')} of the logs could not be read, and may be of anybody"
        return f"{whose} used {amounts} in {self.month}{more}"


_TEXTS: Mapping[str, Callable[[float], str]] = {
    "kwh": fmt.energy,
    "usd": fmt.money,
    "kgco2e": lambda value: f"{fmt.mass(value)} CO2e",
}


def _raise(problem: str) -> None:
    raise SettingError(problem)


def team_budgets(env: Mapping[str, str] | None = None, refuse: Callable[[str], None] = _raise) -> TeamBudgets:
    """Return the budgets of the site's files; those of the stronger file where both have some.

    Args:
        env: the environment.
        refuse: called with each mistake; a budget that has one is left out where it returns.

    Raises:
        SettingError: for a file that cannot be read; for a mistake, unless ``refuse`` does otherwise.
    """
    found = TeamBudgets()
    for where, table in config_files.site_tables(os.environ if env is None else env, TABLE):
        webhook = table.get(_WEBHOOK, "")
        if not isinstance(webhook, str):
            refuse(f"{where}: {TABLE}.{_WEBHOOK} must be an address, not {webhook!r}")
            webhook = ""
        found = TeamBudgets(tuple(_budgets(where, table, refuse)), webhook)
    return found


def _budgets(where: str, table: Mapping[str, Any], refuse: Callable[[str], None]) -> Iterator[TeamBudget]:
    for group, names in table.items():
        if group == _WEBHOOK:
            continue
        if group not in GROUPS or not isinstance(names, Mapping):
            near = difflib.get_close_matches(group, (_WEBHOOK, *GROUPS), n=1)
            meant = f"did you mean {near[0]}?" if near else f'write [{TABLE}.project.NAME] or [{TABLE}.user."*"]'
            refuse(f"{where}: {TABLE}.{group}: {meant}")
            continue
        for name, limits in names.items():
            if not isinstance(limits, Mapping):
                refuse(f"{where}: [{TABLE}.{group}.{name}] must hold limits, such as kwh = 100")
                continue
            for quantity, limit in limits.items():
                place = f"{where}: [{TABLE}.{group}.{name}] {quantity}"
                is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
                if quantity not in QUANTITIES:
                    refuse(f"{place}: there are {', '.join(QUANTITIES)}")
                elif not is_number or not math.isfinite(limit) or limit <= 0:
                    refuse(f"{place} must be a positive number, not {limit!r}")
                else:
                    yield TeamBudget(group, name, quantity, float(limit))


def used_in_month(log_dir: str | os.PathLike[str], budgets: Sequence[TeamBudget], utc_s: float) -> list[BudgetUse]:
    """Return what is used of budgets in the month of a moment, as far as the logs tell.

    Args:
        log_dir: of the team.
        budgets: theirs.
        utc_s: the moment, in seconds since the Unix epoch.
    """
    month = datetime.fromtimestamp(utc_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    added_up = aggregate(log_dir, since=month.isoformat(), until=following.isoformat(), simulated=False)
    found = []
    for group in dict.fromkeys(budget.group for budget in budgets):
        totals = {name: each for (name,), each in added_up.by(group).items()}
        for budget in (budget for budget in budgets if budget.group == group):
            names = totals if budget.name == EACH else [budget.name]
            uses = [_use(budget, name, f"{month:%Y-%m}", totals.get(name)) for name in names]
            found += [replace(use, n_unreadable=len(added_up.problems)) for use in uses]
    return found


def _use(budget: TeamBudget, name: str, month: str, totals: Totals | None) -> BudgetUse:
    used = getattr(totals, QUANTITIES[budget.quantity]) if totals is not None else None
    n_unknown = getattr(totals, _UNKNOWN[budget.quantity]) if totals is not None else 0
    return BudgetUse(budget, name, month, used or 0.0, n_unknown)


def alert_once(
    uses: Sequence[BudgetUse], log_dir: Path, warn: Callable[[str], None], webhook: str = ""
) -> list[BudgetUse]:
    """Tell of each budget that is exceeded, once in its month, whoever of the team comes first.

    Args:
        uses: of budgets.
        log_dir: holds what was told.
        warn: is given the sentence.
        webhook: address that the sentence is sent to; whoever comes next tries again where it fails.

    Returns:
        Those that were told of now.
    """
    exceeded = [use for use in uses if use.is_exceeded]
    told = [use for use in exceeded if _is_first(_marker(use, log_dir))]
    for use in told:
        warn(f"over budget: {use.sentence}")
    for use in exceeded if webhook else ():
        sent = _marker(use, log_dir, _SENT)
        if not _is_first(sent):
            continue
        try:
            _send(webhook, use)
        except (OSError, ValueError, HTTPException) as error:
            sent.unlink(missing_ok=True)
            if told:  # else it was said when the budget was exceeded
                warn(f"the alert was not sent to the site's webhook at {_host(webhook)}: {_reason(error)}")
            break  # the next one would wait for the same time-out
    return told


def _host(address: str) -> str:
    """Return the machine of an address, without what may be secret."""
    try:
        return urlsplit(address).hostname or "an address without a host"
    except ValueError:
        return "an address that is none"


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    return getattr(cause, "strerror", None) or f"{cause}" or type(error).__name__


def _is_first(marker: Path) -> bool:
    """Return True where nobody has told of it; whoever makes the file tells."""
    try:
        marker.parent.mkdir(exist_ok=True)
        if hasattr(os, "geteuid") and marker.parent.stat().st_uid == os.geteuid():
            marker.parent.chmod(0o1777)  # as the log directory of a team is: all make files, none removes another's
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return False
    except OSError:  # told too often is better than never
        return True
    return True


def _marker(use: BudgetUse, log_dir: Path, suffix: str = "") -> Path:
    """Return the file that says that a budget was told of; with a suffix, to whom."""
    name = "-".join((use.month, use.budget.group, use.name or "none", use.budget.quantity))
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)[:60]
    digest = hashlib.sha256(repr(use.name).encode()).hexdigest()[:12]  # names may be long, or differ in signs alone
    return log_dir / _ALERTS_DIR / f"{use.month}-{use.budget.quantity}-{digest}-{safe}{suffix}"


def _send(webhook: str, use: BudgetUse) -> None:
    """Send an alert as JSON, whose ``text`` is what chats show.

    Raises:
        OSError: where the address does not take it.
        ValueError: where it is no address of HTTP.
    """
    from urllib.request import Request, urlopen  # 30 ms, of an alert alone

    if not webhook.startswith(("https://", "http://")):
        raise ValueError("no address of HTTP")
    content = {
        "text": f"over budget: {use.sentence}",
        "month": use.month,
        use.budget.group: use.name,
        "quantity": use.budget.quantity,
        "used": use.used,
        "limit": use.budget.limit,
    }
    request = Request(webhook, json.dumps(content).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=_WEBHOOK_TIMEOUT_S):  # noqa: S310  # https or http, as the site says
        pass


def check_team_budgets(log_dir: Path, utc_s: float, warn: Callable[[str], None]) -> None:
    """Alert of the budgets that are exceeded now; an error of ours or the site's is told, and nothing is raised."""
    try:
        site = team_budgets()
        if site.budgets:
            alert_once(used_in_month(log_dir, site.budgets, utc_s), log_dir, warn, site.webhook)
    except (GreenloveError, OSError) as error:
        warn(f"the budgets of the team are not checked: {error}")
