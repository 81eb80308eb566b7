"""Files for schedulers: when they start what, and that each word of the command arrives unchanged.

No Slurm, atd or Kubernetes runs here. Stand-ins on PATH record what they are given and start it as the manual of the
real one says; Kubernetes' schemas check the rest.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from greenlove_tracker.errors import UsageError
from greenlove_tracker.scheduling.job_files import EVERY, JOB_KINDS, job_file

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
    # at of Debian: the text is a here-document for a shell, behind the variables of the submission.
    "at": """
text = sys.stdin.read()
record(text)
variables = ''.join(f'{name}={shlex.quote(value)}; export {name}\\n' for name, value in os.environ.items())
start(['/bin/sh', script(f"{variables}/bin/sh << 'marcinDELIMITER5f'\\n{text}\\nmarcinDELIMITER5f\\n")])
""",
    "date": "os.execv('/usr/bin/date', ['date', '-u', '-d', '@' + os.environ['CLOCK_S'], *sys.argv[1:]])",
    "sleep": "open(os.environ['SLEPT'], 'a').write(sys.argv[1] + '\\n')",
}
FAKE_HEAD = f"""#!{sys.executable} -IS
import json, os, re, shlex, shutil, subprocess, sys
def record(text=None):
    given = dict(argv=sys.argv[1:], text=text, tz=os.environ.get('TZ'))
    json.dump(given, open(os.environ['RECORDED'], 'w'))
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
            **{name: str(path / name.lower()) for name in ("ARRIVED", "RECORDED", "SCRIPT", "SLEPT")},
        }

    def run(self, *words: str, **environment: str) -> None:
        (self.path / "arrived").unlink(missing_ok=True)
        subprocess.run(words, env=self.environment | environment, cwd=self.path, check=True, timeout=180)

    def submit(self, text: str, *options: str, **environment: str) -> dict[str, object]:
        """Run a script as its comment says, and return what the scheduler was given."""
        (self.path / "job").write_text(text)
        self.run("/bin/sh", "job", *options, **environment)
        return json.loads((self.path / "recorded").read_text())

    @property
    def arrived(self) -> list[str]:
        return json.loads((self.path / "arrived").read_text())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def text_of(kind, command=COMMAND, start=START, **options):
    options = {"now": NOW, "image": "registry/train:1"} | options
    return job_file(kind, command, start, **options)


def kubernetes_expanded(word: str, environment: dict[str, str]) -> str:
    """As a container's ``command`` is documented: $(NAME) where it is known, $$ is $."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else environment.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, word)


def containers(text: str) -> tuple[list[str] | None, list[str]]:
    """The words of the container that waits, and of the training."""
    spec = yaml.safe_load(text)["spec"]
    pod = (spec if "template" in spec else spec["jobTemplate"]["spec"])["template"]["spec"]
    (container,) = pod["containers"]
    return pod["initContainers"][0]["command"] if "initContainers" in pod else None, container["command"]


def start(machine: Machine, kind: str, text: str) -> None:
    """Start what a file says, as its scheduler does."""
    if kind == "k8s":
        machine.run(*(kubernetes_expanded(word, machine.environment) for word in containers(text)[1]))
    else:
        machine.submit(text)


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.lists(
    st.sampled_from([*"'\"$`\\%!{}()#&;|<>*?~=^ \n\t\ra0", "${{", "}}", "$(", "$$", "\\n", "HOME", "é"]),
    max_size=8,
).map("".join)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOB_KINDS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=st.lists(WORD, max_size=6))
@example(words=AWKWARD[:20])
@example(words=AWKWARD[20:])
@example(words=[])
def test_each_word_arrives_unchanged(machine: Machine, kind: str, words: list[str]) -> None:
    text = text_of(kind, ["show", *words])
    start(machine, kind, text)
    assert machine.arrived == words


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", JOB_KINDS)
@pytest.mark.parametrize("program", ["a b", "it's $HOME", "if", "echo", "FOO=1", "!", "%1\\"])
def test_so_does_the_program(machine: Machine, kind: str, program: str) -> None:
    path = machine.bin / program
    shutil.copy2(machine.bin / "show", path)
    try:
        text = text_of(kind, [program, "x"])
        start(machine, kind, text)
        assert machine.arrived == ["x"]
    finally:
        path.unlink()


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_command_line_of_a_shell_is_one_word(machine: Machine, kind: str) -> None:
    lines = """set -- "a  b" 'c"d'\nexport X="$1 $((6 * 7))% \\\\"\nshow "$X" "$@" && :"""
    text = text_of(kind, ["sh", "-c", lines])
    start(machine, kind, text)
    assert machine.arrived == ["a  b 42% \\", "a  b", 'c"d']


def submitted_at(when: datetime) -> dict[str, str]:
    return {"CLOCK_S": str(int(when.timestamp()))}


def option(given: dict, name: str) -> str | None:
    return next((word.split("=", 1)[1] for word in given["argv"] if word.startswith(f"{name}=")), None)


# --- when it starts


@pytest.mark.parametrize("late_s", [0, 3600])
def test_slurm_counts_the_seconds_from_the_submission(machine: Machine, late_s: int) -> None:
    text = text_of("slurm", duration_s=3601)
    given = machine.submit(text_of("slurm", ["show"]), **submitted_at(NOW + timedelta(seconds=late_s)))
    assert option(given, "--begin") == f"now+{43028 - late_s}seconds"
    assert option(given, "--time") is None
    assert "sbatch --begin=now+43028seconds" in text
    assert "--time=61 " in text  # minutes, up
    assert "2026-11-23 03:00:20 UTC; planned at 2026-11-22 15:03:12 UTC" in text.splitlines()[1]


def test_slurm_takes_more_options(machine: Machine) -> None:
    given = machine.submit(text_of("slurm", ["show", "a b"]), "--gpus=1", "--comment=two words")
    assert {"--gpus=1", "--comment=two words"} <= set(given["argv"])
    assert machine.arrived == ["a b"]


@pytest.mark.parametrize("start", [NOW, NOW - timedelta(days=2)])
def test_what_is_past_starts_at_once(machine: Machine, start: datetime) -> None:
    for kind in ("slurm", "at"):
        text = text_of(kind, ["show", "x"], start)
        assert "to start at once" in text
        given = machine.submit(text, **submitted_at(NOW + timedelta(minutes=1)))
        assert machine.arrived == ["x"]
        if kind == "slurm":
            assert option(given, "--begin") == "now"
        else:
            assert given["argv"] == ["now"]
    text = text_of("k8s", ["show", "x"], start)
    assert "to start at once" in text
    assert containers(text)[0] is None


def test_at_waits_for_the_next_whole_minute_in_utc(machine: Machine) -> None:
    given = machine.submit(text_of("at", ["show"]), "-m")
    assert given["argv"] == ["-m", "-t", "202611230301"]
    assert given["tz"] == "UTC0"
    whole = START.replace(second=0)
    assert machine.submit(text_of("at", ["show"], whole))["argv"] == ["-t", "202611230300"]
    berlin = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)  # 02:30 for the second time
    assert machine.submit(text_of("at", ["show"], berlin))["argv"] == ["now"]  # past by the clock of the machine
    given = machine.submit(text_of("at", ["show"], berlin), **submitted_at(datetime(2026, 10, 24, tzinfo=UTC)))
    assert given["argv"] == ["-t", "202610250130"]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", ""])
def test_the_time_zone_of_at_is_not_that_of_the_training(machine: Machine, zone: str | None) -> None:
    show_zone = ["sh", "-c", 'show "${TZ-unset}"']
    machine.submit(text_of("at", show_zone), **({} if zone is None else {"TZ": zone}))
    assert machine.arrived == ["unset" if zone is None else zone]


@pytest.mark.slow
def test_the_container_waits_until_the_start_by_the_clock(machine: Machine) -> None:
    wait, command = containers(text_of("k8s"))
    assert command == list(COMMAND)
    slept = machine.path / "slept"
    fake_clock = machine.bin / "date"
    usual = fake_clock.read_text()
    # Each look at the clock is an hour later: 15:03:12, …, 02:03:12, 03:03:12.
    fake_clock.write_text(
        FAKE_HEAD
        + "looks = len(open(os.environ['SLEPT']).readlines()) if os.path.exists(os.environ['SLEPT']) else 0\n"
        + "print(int(os.environ['CLOCK_S']) + 3600 * looks)"
    )
    try:
        subprocess.run(
            [kubernetes_expanded(word, {}) for word in wait], env=machine.environment, check=True, timeout=180
        )
        assert slept.read_text().count("\n") == 12
    finally:
        fake_clock.write_text(usual)
        slept.unlink(missing_ok=True)


# --- what recurs


@pytest.mark.parametrize("kind", ["slurm", "at"])
def test_what_starts_once_does_not_take_every(kind: str) -> None:
    with pytest.raises(UsageError, match="starts once"):
        text_of(kind, every="day")


@given(
    start=st.datetimes(datetime(2026, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC)),
    every=st.sampled_from(EVERY),
)
def test_a_schedule_is_that_of_the_first_minute_from_the_start_on(start: datetime, every: str) -> None:
    text = text_of("k8s", start=start, every=every)
    whole = (start - timedelta(microseconds=1)).replace(second=0, microsecond=0) + timedelta(minutes=1)
    on_days = [whole + timedelta(days) for days in range(7)]
    first = next(day for day in on_days if every in ("day", "week") or day.strftime("%A").lower() == every)
    weekday = "*" if every == "day" else first.strftime("%w")
    assert yaml.safe_load(text)["spec"]["schedule"] == f"{first.minute} {first.hour} * * {weekday}"
    assert f"first at {first:%Y-%m-%d %H:%M:%S} UTC" in text.splitlines()[0]


# --- what it is written in


@pytest.mark.slow_cases
@pytest.mark.parametrize("version", ["1.27", "1.31", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("every", [None, *EVERY])
def test_kubernetes_accepts_the_manifest(version: str, every: str | None) -> None:
    manifest = yaml.safe_load(text_of("k8s", ["show", *AWKWARD], every=every))
    assert kubernetes_validate.validate(manifest, version, strict=True)
    spec = manifest["spec"]
    job = spec["jobTemplate"]["spec"] if every else spec
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    if every:
        assert (spec["timeZone"], spec["concurrencyPolicy"]) == ("Etc/UTC", "Forbid")
    assert len(manifest["metadata"]["name"]) <= (52 if every else 63)


def test_the_check_of_kubernetes_would_find_a_mistake() -> None:
    manifest = yaml.safe_load(text_of("k8s"))
    manifest["spec"]["backofLimit"] = 0
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
@example("\x85\u2028\u2029\ufeff\U0001f331\x7f\xa0")
def test_yaml_holds_any_text(word: str) -> None:
    assert containers(text_of("k8s", ["x", word]))[1] == ["x", word.replace("$", "$$")]


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_it_begins_with_what_it_is_and_how_to_submit_it(kind: str) -> None:
    text = text_of(kind, reason="saves 23%\nrm -rf /")
    lines = [line for line in text.splitlines() if not line.startswith("#!")]
    head = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    assert head[0].startswith("# A training for ")
    assert "planned at 2026-11-22 15:03:12 UTC" in head[0]
    assert head[1] == "# saves 23% rm -rf /"
    assert head[2].startswith("# Submit: ")


# --- what cannot be


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("k8s", {"image": None}, "image of its container: image"),
        ("nomad", {}, "slurm, at"),
        ("slurm", {"command": []}, "words of a command line"),
        ("slurm", {"command": "python train.py"}, "words of a command line"),
        ("slurm", {"command": ["", "x"]}, "words of a command line"),
        ("slurm", {"command": ["--gpus=1"]}, "words of a command line"),
        ("slurm", {"command": ["x", "a\0b"]}, "no text"),
        ("slurm", {"command": ["x", "\udcff"]}, "no text"),
        ("slurm", {"name": "My job"}, "lower-case"),
        ("k8s", {"name": "x" * 39}, "at most 38"),
        ("slurm", {"start": START.replace(tzinfo=None)}, "time zone"),
        ("slurm", {"now": NOW.replace(tzinfo=None)}, "time zone"),
        ("slurm", {"duration_s": 0.0}, "above zero"),
        ("slurm", {"duration_s": float("inf")}, "above zero"),
        ("k8s", {"every": "year"}, "must be one of day"),
        ("cron", {}, "must be one of slurm, at, k8s"),
    ],
)
def test_what_cannot_be_is_said(kind: str, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        text_of(kind, **options)
    assert "{argument" not in str(raised.value)
