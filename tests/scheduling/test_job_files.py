"""Files for Slurm: when they start what, and that each word of the command arrives unchanged.

No Slurm runs here. A stand-in on PATH records what it is given and starts it as the manual of the real one says.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from greenlove_tracker.errors import UsageError
from greenlove_tracker.scheduling.job_files import slurm_file

NOW = datetime(2026, 11, 22, 15, 3, 12, tzinfo=UTC)  # a Sunday
START = datetime(2026, 11, 23, 3, 0, 20, tzinfo=UTC)
COMMAND = ("python", "train.py")
AWKWARD = [
    "two words",
    "it's",
    '"quoted"',
    "$HOME",
    "${HOME}",
    "a${HOME}b",
    "$(HOME)",
    "$$",
    "$$(HOME)",
    "$",
    "cost$",
    "`id`",
    "$(id)",
    "back\\slash",
    "\\\\",
    "\\",
    "\\%",
    "\\0045",
    "100%",
    "%h",
    "!history",
    "line\nbreak\n",
    "\n#SBATCH --exclusive",
    "\ttab",
    "dos\r\nline",
    "${{ secrets.TOKEN }}",
    "$''{{",
    "ünïcödé 🌱 \u2028",
    "\x7f\x1b[1m",
    "",
    " ",
    "~",
    "*",
    "&&",
    ";",
    "#no comment",
    "a=b",
    "-n",
    "--",
    "yes",
    "null",
    "'\"'\"'",
    "EOF",
]

# What the fakes start from: they see only what the real ones see.
FAKES = {
    "show": "json.dump(sys.argv[1:], open(os.environ['ARRIVED'], 'w'))",
    # sbatch(1), --wrap: "wrap the specified command string in a simple "sh" shell script".
    "sbatch": """
record()
wrap = [word[7:] for word in sys.argv if word.startswith('--wrap=')][-1]
start(['/bin/sh', script('#!/bin/sh\\n# This script was created by sbatch --wrap.\\n\\n' + wrap + '\\n')])
""",
    "date": "os.execv('/usr/bin/date', ['date', '-u', '-d', '@' + os.environ['CLOCK_S'], *sys.argv[1:]])",
}
FAKE_HEAD = f"""#!{sys.executable} -IS
import json, os, re, shlex, shutil, subprocess, sys
def record():
    json.dump(sys.argv[1:], open(os.environ['RECORDED'], 'w'))
def script(text):
    open(os.environ['SCRIPT'], 'w').write(text)
    return os.environ['SCRIPT']
def start(words):
    sys.exit(subprocess.run(words).returncode)
"""


class Machine:
    """A directory with the fakes, a clock, and what the command and the fakes were given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bin = path / "bin"
        self.bin.mkdir()
        for name, body in FAKES.items():
            fake = self.bin / name
            fake.write_text(FAKE_HEAD + body)
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": "/home/of the user",
            "CLOCK_S": str(int(NOW.timestamp())),
            **{name: str(path / name.lower()) for name in ("ARRIVED", "RECORDED", "SCRIPT")},
        }

    def run(self, *words: str, **environment: str) -> None:
        (self.path / "arrived").unlink(missing_ok=True)
        subprocess.run(words, env=self.environment | environment, cwd=self.path, check=True, timeout=180)

    def submit(self, text: str, *options: str, **environment: str) -> list[str]:
        """Run a script as its comment says, and return what sbatch was given."""
        (self.path / "job").write_text(text)
        self.run("/bin/sh", "job", *options, **environment)
        return json.loads((self.path / "recorded").read_text())

    @property
    def arrived(self) -> list[str]:
        return json.loads((self.path / "arrived").read_text())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def text_of(command=COMMAND, start=START, **options):
    return slurm_file(command, start, **({"now": NOW} | options))


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.lists(
    st.sampled_from([*"'\"$`\\%!{}()#&;|<>*?~=^ \n\t\ra0", "${{", "}}", "$(", "$$", "\\n", "HOME", "é"]),
    max_size=8,
).map("".join)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=st.lists(WORD, max_size=6))
@example(words=AWKWARD[:20])
@example(words=AWKWARD[20:])
@example(words=[])
def test_each_word_arrives_unchanged(machine: Machine, words: list[str]) -> None:
    machine.submit(text_of(["show", *words]))
    assert machine.arrived == words


def submitted_at(when: datetime) -> dict[str, str]:
    return {"CLOCK_S": str(int(when.timestamp()))}


def option(given: list[str], name: str) -> str | None:
    return next((word.split("=", 1)[1] for word in given if word.startswith(f"{name}=")), None)


@pytest.mark.parametrize("late_s", [0, 3600])
def test_slurm_counts_the_seconds_from_the_submission(machine: Machine, late_s: int) -> None:
    text = text_of(duration_s=3601, reason="saves 23%\nrm -rf /")
    given = machine.submit(text_of(["show"]), **submitted_at(NOW + timedelta(seconds=late_s)))
    assert option(given, "--begin") == f"now+{43028 - late_s}seconds"
    assert option(given, "--time") is None
    assert "sbatch --begin=now+43028seconds" in text
    assert "--time=61 " in text  # minutes, up
    lines = text.splitlines()
    assert "2026-11-23 03:00:20 UTC; planned at 2026-11-22 15:03:12 UTC" in lines[1]
    assert lines[2] == "# saves 23% rm -rf /" and lines[3].startswith("# Submit: ")


@pytest.mark.parametrize("start", [NOW, NOW - timedelta(days=2)])
def test_what_is_past_starts_at_once(machine: Machine, start: datetime) -> None:
    text = text_of(["show", "x"], start)
    assert "to start at once" in text
    given = machine.submit(text, **submitted_at(NOW + timedelta(minutes=1)))
    assert machine.arrived == ["x"] and option(given, "--begin") == "now"


@pytest.mark.parametrize("command", [[], ["", "x"], ["--gpus=1"]])
def test_what_is_no_command_is_refused(command: list[str]) -> None:
    with pytest.raises(UsageError, match="words of a command line"):
        text_of(command)
