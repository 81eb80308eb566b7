"""Files for Slurm and Kubernetes: when they start what, and that each word of the command arrives unchanged.

No Slurm and no Kubernetes runs here. A stand-in for sbatch on PATH records what it is given and starts it as the manual
of the real one says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from greenlove_tracker.scheduling.job_files import job_file
from greenlove_tracker.vocabulary.errors import UsageError

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

# Both see only what the real ones see; sbatch(1), --wrap: "wrap the specified command string in a simple "sh" script".
FAKES = {
    "sbatch": """
for word; do
  case "$word" in
    --begin=*) echo "$word" > begin ;;
    --wrap=*) exec /bin/sh -c "${word#--wrap=}" ;;
  esac
done
""",
    "date": 'exec /usr/bin/date -u -d "@$CLOCK_S" "$@"\n',
}
SHOW = [sys.executable, "-ISc", "import json, sys; json.dump(sys.argv[1:], open('arrived', 'w'))"]


def submitted(place: Path, text: str, late_s: int = 0) -> tuple[list[str], str]:
    """Run a script as its comment says, and return the words that the command got, and when Slurm is to begin."""
    (place / "job").write_text(text)
    environment = {"PATH": f"{place}:/usr/bin:/bin", "HOME": "/home/me", "CLOCK_S": str(int(NOW.timestamp()) + late_s)}
    subprocess.run(["/bin/sh", "job"], env=environment, cwd=place, check=True, timeout=180)
    return json.loads((place / "arrived").read_text()), (place / "begin").read_text().strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("machine")
    for name, body in FAKES.items():
        (made / name).write_text("#!/bin/sh\n" + body)
        (made / name).chmod(0o755)
    return made


def text_of(command=COMMAND, start=START, **options):
    return job_file(command, start, **({"now": NOW} | options))


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
def test_each_word_arrives_unchanged(place: Path, words: list[str]) -> None:
    assert submitted(place, text_of([*SHOW, *words]))[0] == words


@pytest.mark.parametrize("late_s", [0, 3600])
def test_slurm_counts_the_seconds_from_the_submission(place: Path, late_s: int) -> None:
    text = text_of([*SHOW], duration_s=3601, reason="saves 23%\nrm -rf /")
    assert submitted(place, text, late_s)[1] == f"--begin=now+{43028 - late_s}seconds"
    assert "sbatch --begin=now+43028seconds" in text and "--time=61 " in text  # minutes, up
    lines = text.splitlines()
    assert "2026-11-23 03:00:20 UTC; planned at 2026-11-22 15:03:12 UTC" in lines[1]
    assert lines[2] == "# saves 23% rm -rf /" and lines[3].startswith("# Submit: ")


@pytest.mark.parametrize("start", [NOW, NOW - timedelta(days=2)])
def test_what_is_past_starts_at_once(place: Path, start: datetime) -> None:
    text = text_of([*SHOW, "x"], start)
    assert "to start at once" in text and submitted(place, text, 60) == (["x"], "--begin=now")


@pytest.mark.parametrize("command", [[], ["", "x"], ["--gpus=1"]])
def test_what_is_no_command_is_refused(command: list[str]) -> None:
    with pytest.raises(UsageError, match="words of a command line"):
        text_of(command)


# -- Kubernetes --


def manifest_of(words=COMMAND, start=START, yaml_version=None, **options):
    """Read a manifest, by the rules of YAML 1.1 as Kubernetes does, or of 1.2."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = yaml_version
    return yaml.load(text_of(words, start, image="ghcr.io/me/train:1", **options))


def expanded(word: str) -> str:
    """What Kubernetes starts: "$$" is "$", and "$(NAME)" the value of a variable that is set."""
    result = ""
    rest = word
    while rest:
        name, closed, after = rest[2:].partition(")")
        if rest.startswith("$$"):
            result += "$"
            rest = rest[2:]
        elif rest.startswith("$(") and closed:
            result += f"<value of {name}>"
            rest = after
        else:
            result += rest[0]
            rest = rest[1:]
    return result


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_each_word_arrives_unchanged_in_a_container(version: str) -> None:
    words = ["python", *AWKWARD]
    job = manifest_of(words, yaml_version=version)["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert list(map(expanded, container["command"])) == words
    assert expanded("$(HOME) $$(HOME)") == "<value of HOME> $(HOME)"


def test_a_cronjob_starts_at_the_next_full_minute() -> None:
    manifest = manifest_of(duration_s=3601, reason="saves 23%\nkind: Secret")
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    spec = manifest["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("1 3 23 11 *", "Etc/UTC")
    job = spec["jobTemplate"]["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 61 * 60)
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["template"]["spec"]["containers"][0]["image"] == "ghcr.io/me/train:1"


def test_a_start_that_is_past_is_a_job() -> None:
    manifest = manifest_of(start=NOW)
    assert manifest["kind"] == "Job" and "schedule" not in manifest["spec"]
    assert manifest["spec"]["template"]["spec"]["containers"][0]["command"] == list(COMMAND)
