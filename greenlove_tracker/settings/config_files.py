"""The files and variables that settings stand in."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenlove_tracker.files.reading import parsed, read_text
from greenlove_tracker.vocabulary.checkpoints import REHEARSAL_VARIABLE
from greenlove_tracker.vocabulary.errors import SettingError

SITE_FILE = Path("/etc/greenlove.toml")
LOCAL_FILE = Path("greenlove.toml")
SITE_VARIABLE = "GREENLOVE_CONFIG"  # a site's file elsewhere, such as on a cluster's shared disk
PREFIX = "GREENLOVE_"
_MOST_BYTES = 64 * 1024  # of a file
# Variables that are no settings: what one process of ours hands to another, and a job that no scheduler names.
_NO_SETTINGS = {SITE_VARIABLE, "GREENLOVE_RUN_DIR", "GREENLOVE_WAIT", REHEARSAL_VARIABLE}
_NO_SETTINGS |= {f"GREENLOVE_JOB_{name}" for name in ("ID", "ARRAY_TASK_ID", "ACCOUNT", "PARTITION", "CLUSTER")}


Environment = Mapping[str, str]  # the variables of a process
Values = Mapping[str, Any]  # settings by name, as somebody wrote them


@dataclass(frozen=True, slots=True)
class Source:
    """One place that settings stand in.

    Attributes:
        where: the path of a file, or the name of a variable.
        values: as they stand there, by name; None of a file.
        is_site: True of a site's file.
        is_local: True of a file of the working directory: whoever made that directory may have left it there.
    """

    where: str
    values: Values | None = None
    is_site: bool = False
    is_local: bool = False

    def read(self) -> Values:
        """Return what stands there.

        Raises:
            SettingError: for a file that cannot be read.
        """
        if self.values is not None:
            return self.values
        import tomllib  # only where a file is there: 5 ms

        try:
            return parsed(read_text(self.where, _MOST_BYTES), tomllib.loads)
        except (OSError, ValueError) as error:
            raise SettingError(f"{self.where}: not a readable TOML file: {error}") from error


def _files(env: Environment) -> list[Source]:
    """Return the files that there are, the weakest first, and the one that a site names; they are not read yet."""
    found = [Source(str(SITE_FILE), is_site=True), Source(str(user_file(env))), Source(str(LOCAL_FILE), is_local=True)]
    found = [source for source in found if os.path.isfile(source.where)]  # noqa: PTH113  # no error where it is closed
    if env.get(SITE_VARIABLE):
        found.append(Source(env[SITE_VARIABLE], is_site=True))
    return sorted(found, key=lambda source: not source.is_site)


def user_file(env: Environment) -> Path:
    """Return the path of the user's own file."""
    base = env.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  # no error without a home
    return Path(base) / "greenlove" / "config.toml"


def sources(env: Environment, names: Collection[str], arguments: Values) -> Iterator[Source]:
    """Yield the files, the variables and the arguments, the weakest first.

    A training that is rehearsed is kept out of its own logs, before any argument.
    """
    yield from _files(env)
    for name in names:
        key = f"{PREFIX}{name.upper()}"
        if key in env:
            yield Source(key, {name: env[key]})
    yield Source("argument", arguments)
    directory = env.get(REHEARSAL_VARIABLE)
    if directory:
        yield Source("the rehearsal", {"log_dir": f"{Path(directory).parent}/logs", "export": "", "verbose": 0})


def unknown_variables(env: Environment, names: Collection[str]) -> list[str]:
    """Return a sentence on each variable that is named like a setting and is none: a slip, or of another version."""
    known = {name.upper() for name in names} | {name.removeprefix(PREFIX) for name in _NO_SETTINGS}
    found = []
    for name in sorted(key.removeprefix(PREFIX) for key in env if key.startswith(PREFIX)):
        if name not in known:
            near = nearest(name, known)
            meant = f": did you mean {PREFIX}{near}?" if near else ", and counts for nothing"
            found.append(f"{PREFIX}{name} is no setting{meant}")
    return found


def nearest(name: str, known: Collection[str]) -> str:
    """Return the known name that a mistyped one is nearest to; empty without any."""
    return "".join(difflib.get_close_matches(name, known, n=1))
