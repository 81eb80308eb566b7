"""A chain of jobs: how many there are, and what its script does, run through stand-ins for Slurm's commands.

No Slurm runs here. The stand-in for ``sbatch`` keeps what it is given as its manual says, ``srun`` starts the command
with the signal that a test asks for, ``scancel`` takes pending jobs off, and ``date`` is a clock of the test's.
"""

from __future__ import annotations

import json
import shlex
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, TrainingPosition
from greenlove_tracker.errors import UsageError
from greenlove_tracker.scheduling.job_chain import JobTimes, TimeTaken, job_chain, job_times, parse_time_limit_s

NOW = datetime(2026, 11, 22, 15, 3, 12, tzinfo=UTC)
HOUR = 3600.0
TIMES = JobTimes(TimeTaken(30, "given"), TimeTaken(60, "given"), TimeTaken(240, "given"))
AWKWARD = [
    "it's",
    "$HOME",
    "two words",
    "`id`",
    "line\nbreak\n",
    "EOF",
    "",
    "{x}",
    '"',
    "\\",
    "*",
    "ünïcödé",
    "-n",
    "--",
]

HEAD = f"#!{sys.executable} -IS\nimport json, os, subprocess, sys\nfrom pathlib import Path\n"
FAKES = {
    # A job is a file here; its id is the number behind the last one. --wrap: "wrap the specified command string in a
    # simple "sh" shell script".
    "sbatch": """
jobs = Path('slurm'); jobs.mkdir(exist_ok=True)
number = 101 + len(list(jobs.iterdir()))
if number == int(os.environ.get('REFUSES', 0)): sys.exit('sbatch: error: QOSMaxSubmitJobPerUserLimit')
(jobs / str(number)).write_text(json.dumps(sys.argv[1:]))
print(f'{number};cluster' if '--parsable' in sys.argv else f'Submitted batch job {number}')
""",
    "srun": "os.execvp(sys.argv[1], sys.argv[1:])",
    "scancel": """
assert sys.argv[1:3] == ['--quiet', '--state=PENDING']
open('cancelled', 'a').write('\\n'.join(sys.argv[3:]) + '\\n')
""",
    "date": "print(open('clock').read()) if sys.argv[1:] == ['+%s'] else os.execv('/usr/bin/date', sys.argv)",
}

# What a job runs: each time the next line of the plan, in Python, with ``save(step)`` and ``pass_s(seconds)``.
TRAINING = f"""#!{sys.executable} -IS
import json, os, signal, sys
from pathlib import Path
def save(step):
    path = Path('checks') / f'step-{{step:010d}}'
    path.mkdir(parents=True)
    (path / 'manifest.json').write_text('{{}}')
def pass_s(seconds):
    Path('clock').write_text(str(int(Path('clock').read_text()) + seconds))
done = json.loads(Path('done').read_text()) if Path('done').exists() else []
Path('done').write_text(json.dumps([*done, [os.environ.get('SLURM_JOB_END_TIME'), sys.argv[1:]]]))
lines = json.loads(Path('plan').read_text())
exec(lines[len(done)])
"""


def script(n_hours: float = 100.0, *words: str, command: str = "train", checkpoints: str | None = None) -> str:
    return job_chain(
        [command, *words],
        training_s=n_hours * HOUR,
        limit_s=24 * HOUR,
        times=TIMES,
        now=NOW,
        checkpoints=checkpoints,
    ).script()


class Cluster:
    """A directory with the stand-ins, in which a chain is submitted and its jobs are run one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bin = path / "bin"
        self.bin.mkdir()
        for name, body in {**{name: HEAD + body for name, body in FAKES.items()}, "train": TRAINING}.items():
            fake = self.bin / name
            fake.write_text(body)
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        (path / "clock").write_text("1000000")
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "LC_ALL": "C"}
        self.said = ""

    def submit(self, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.path / "chain.sh").write_text(text)
        return self._sh("chain.sh", *options, **environment)

    def _sh(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", *words],
            env=self.environment | environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    @property
    def jobs(self) -> dict[int, list[str]]:
        return {int(f.name): json.loads(f.read_text()) for f in sorted((self.path / "slurm").iterdir())}

    def run(self, number: int, **environment: str) -> int:
        """Run a job as sbatch's manual says, in the directory that it was submitted in."""
        wrap = next(word[7:] for word in self.jobs[number] if word.startswith("--wrap="))
        (self.path / "spooled").write_text(f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wrap}\n")
        of_slurm = {"SLURM_JOB_ID": str(number), "SLURM_SUBMIT_DIR": str(self.path), "SLURM_JOB_END_TIME": "9"}
        ended = self._sh("spooled", **of_slurm | environment)
        self.said = ended.stdout + ended.stderr
        return ended.returncode

    def plan(self, *lines: str) -> None:
        (self.path / "plan").write_text(json.dumps(lines))

    @property
    def started(self) -> list[tuple[str | None, list[str]]]:
        done = self.path / "done"
        return [tuple(row) for row in json.loads(done.read_text())] if done.exists() else []

    @property
    def cancelled(self) -> list[str]:
        path = self.path / "cancelled"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


INTERRUPTED = "pass_s(86000); sys.exit(138)"


def test_as_many_jobs_as_the_training_takes() -> None:
    # a job trains for 24 h less 2 min of notice, 1 min by which Slurm may be early and 1 min of restart; from the
    # second one on less 4 min of replay
    first_s, further_s = 24 * HOUR - 240, 24 * HOUR - 480

    def n_jobs(training_s: float) -> int:
        return job_chain(["x"], training_s=training_s, limit_s=24 * HOUR, times=TIMES, now=NOW).n_jobs

    assert n_jobs(1.0) == n_jobs(first_s) == 1
    assert n_jobs(first_s + 1) == n_jobs(first_s + further_s) == 2
    assert n_jobs(first_s + 3 * further_s) == 4 and n_jobs(first_s + 3 * further_s + 1) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limit_s": 300.0}, "limit_s of 5 min leaves a job no time to train"),
        ({"limit_s": float("inf")}, "limit_s must be above zero"),
        ({"training_s": 0.0}, "training_s must be above zero"),
        ({"limit_s": 600.0, "training_s": 1e6}, "so short that it takes 8,332 jobs"),
        ({"checkpoints": "s3://bucket/run"}, "checkpoints must be a directory that the jobs see"),
        ({"command": ["-x"]}, "command must be the words"),
        ({"command": ["srun", "python", "train.py"]}, "leave srun out of it"),
    ],
)
def test_what_cannot_be_is_said(arguments, said) -> None:
    given = {"command": ["x"], "training_s": 100 * HOUR, "limit_s": 24 * HOUR, "times": TIMES, "now": NOW} | arguments
    with pytest.raises(UsageError, match=said):
        job_chain(**given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24:00:00", 86400),
        ("1-00:00:00", 86400),
        ("1440", 86400),
        ("2-12", 216000),
        ("1-06:30", 109800),
        ("90:30", 5430),
    ],
)
def test_time_limits_are_read_as_slurm_reads_them(text, seconds) -> None:
    assert parse_time_limit_s(text) == seconds
    for bad in ("", "24h", "1:2:3:4", "-1", "one"):
        with pytest.raises(UsageError, match="as Slurm takes them"):
            parse_time_limit_s(bad)


def test_each_job_waits_for_the_one_before_whatever_became_of_it(cluster: Cluster) -> None:
    submitted = cluster.submit(script(), "--gpus=1", "--partition=a b")
    assert submitted.returncode == 0 and "submitted 101 102 103 104 105" in submitted.stdout
    jobs = cluster.jobs
    assert len(jobs) == 5
    for number, words in jobs.items():
        after = [word for word in words if word.startswith("--dependency=")]
        assert after == ([] if number == 101 else [f"--dependency=afterany:{number - 1}"])
        assert {"--time=1-00:00:00", "--signal=USR1@120", "--requeue", "--open-mode=append"} <= set(words)
        assert {"--gpus=1", "--partition=a b"} <= set(words)


def test_each_word_arrives_and_the_end_of_a_job_is_no_limit_of_the_training(cluster: Cluster) -> None:
    cluster.submit(script(100.0, *AWKWARD))
    cluster.plan("pass")
    assert cluster.run(101) == 0
    assert cluster.started == [(None, AWKWARD)]


def test_jobs_behind_a_finished_training_end_at_once(cluster: Cluster) -> None:
    cluster.submit(script())
    cluster.plan(INTERRUPTED, "pass")
    assert cluster.run(101) == 138 and not cluster.cancelled
    assert cluster.run(102) == 0 and "103" in cluster.cancelled
    assert len(cluster.started) == 2
    assert cluster.run(103) == 0 and "nothing to do" in cluster.said  # it began before it could be cancelled
    assert len(cluster.started) == 2


@pytest.mark.slow
def test_a_bug_stops_the_chain_with_the_second_job(cluster: Cluster) -> None:
    cluster.submit(script())
    cluster.plan("sys.exit(1)", "sys.exit(1)")
    assert cluster.run(101) == 1 and "if the next one fails too" in cluster.said
    assert cluster.run(102) == 1 and "two jobs in a row failed (exit code 1; exit code 1)" in cluster.said
    assert "103" in cluster.cancelled
    assert cluster.run(103) == 1 and "the chain is stopped" in cluster.said
    assert len(cluster.started) == 2


@pytest.mark.slow
def test_a_failure_between_jobs_that_got_on_does_not_stop_it(cluster: Cluster) -> None:
    cluster.submit(script())
    cluster.plan("sys.exit(1)", INTERRUPTED, "sys.exit(1)", "sys.exit(143)", "sys.exit(75)")
    assert [cluster.run(number) for number in range(101, 106)] == [1, 138, 1, 143, 75]
    assert len(cluster.started) == 5 and not cluster.cancelled


def test_a_failure_after_slurm_told_it_to_end_is_none(cluster: Cluster) -> None:
    cluster.submit(script())  # told at 24 h - 120 s, and up to 60 s earlier; torchrun then ends with 1
    cluster.plan("pass_s(86220); sys.exit(1)", "pass_s(86220); sys.exit(1)", "pass_s(86219); sys.exit(1)", "pass")
    assert cluster.run(101) == cluster.run(102) == 1 and "failed" not in cluster.said
    assert cluster.run(103) == 1 and "a job failed (exit code 1)" in cluster.said


def test_a_training_that_saves_nothing_stops_the_chain(cluster: Cluster) -> None:
    cluster.submit(script(checkpoints="checks"))
    cluster.plan(INTERRUPTED, "save(5); " + INTERRUPTED, INTERRUPTED, INTERRUPTED)
    assert cluster.run(101) == 138 and "a job failed (no newer checkpoint)" in cluster.said
    assert cluster.run(102) == 138 and "failed" not in cluster.said
    assert cluster.run(103) == 138 and "a job failed" in cluster.said
    assert cluster.run(104) == 138 and "the chain is stopped" in cluster.said
    assert cluster.run(105) == 1 and len(cluster.started) == 4


KILLED = "os.kill(os.getppid(), signal.SIGKILL)"  # the shell of the job, as at a time limit


def test_a_job_that_was_killed_is_judged_by_the_next_one(cluster: Cluster) -> None:
    cluster.submit(script(checkpoints="checks"))
    cluster.plan(KILLED, "save(5); " + KILLED, KILLED, KILLED)
    assert cluster.run(101) == -signal.SIGKILL
    assert cluster.run(102) == -signal.SIGKILL and "a job failed (no newer checkpoint)" in cluster.said
    assert cluster.run(103) == -signal.SIGKILL and "failed" not in cluster.said
    assert cluster.run(104) == -signal.SIGKILL and "a job failed" in cluster.said
    assert cluster.run(105) == 1 and "the chain is stopped" in cluster.said
    assert len(cluster.started) == 4


def test_a_requeued_job_is_the_same_one(cluster: Cluster) -> None:
    cluster.submit(script(checkpoints="checks"))
    cluster.plan(KILLED, KILLED, KILLED, "pass")
    for restart in range(3):
        cluster.run(101, SLURM_RESTART_COUNT=str(restart))
        assert "failed" not in cluster.said
    assert cluster.run(101, SLURM_RESTART_COUNT="3") == 0


def test_a_refused_submission_is_said(cluster: Cluster) -> None:
    refused = cluster.submit(script(), REFUSES="103")
    assert refused.returncode == 1 and "sbatch refused job 3 of 5; the 2 before it are submitted" in refused.stderr
    assert sorted(cluster.jobs) == [101, 102]


# srun that has Slurm's signal come once the training has said that it trains.
SIGNALLING = """
import signal, time
child = subprocess.Popen(sys.argv[1:])
while not Path('trains').exists() and child.poll() is None: time.sleep(0.01)
if child.poll() is None:
    child.send_signal(signal.SIGUSR1)
    assert child.pid == int(Path('trains').read_text())
sys.exit(child.wait())
"""
# 3 epochs of 4 batches; the first process waits for the signal in the sixth batch of all.
CHECKPOINTED = """
import os, time
from pathlib import Path
import torch
from greenlove_tracker import Checkpointer
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpointer = Checkpointer("checks", model=model, optimizer=optimizer, every_s=None)
is_first = not Path("trains").exists()
for epoch in checkpointer.epochs(3, tracker=False):
    for batch in checkpointer.batches(torch.arange(12.0).reshape(4, 3)):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        with open("batches", "a") as file:
            print(epoch, batch.tolist(), file=file)
        if is_first and checkpointer.position.steps == 5:
            Path("pid").write_text(str(os.getpid()))
            os.rename("pid", "trains")
            while checkpointer._notices.notice is None:
                time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_training_with_a_checkpointer_goes_through_the_chain(cluster: Cluster) -> None:
    """Slurm's signal reaches the training, for no shell stands between; it saves, and the next job does the rest."""
    (cluster.path / "train.py").write_text(CHECKPOINTED)
    (cluster.bin / "srun").write_text(HEAD + SIGNALLING)
    cluster.environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    text = script(100.0, "train.py", command=sys.executable, checkpoints="checks")
    cluster.submit(text)
    assert cluster.run(101) == 138, cluster.said
    assert "interrupted by SIGUSR1; saved as step-0000000006-emergency" in cluster.said
    assert "failed" not in cluster.said
    (cluster.bin / "srun").write_text(HEAD + FAKES["srun"])
    assert cluster.run(102) == 0, cluster.said
    batches = (cluster.path / "batches").read_text().splitlines()
    assert len(batches) == 12 and len(set(batches)) == 12  # each once
    assert cluster.run(103) == 0 and "nothing to do" in cluster.said
    cluster.submit(text)  # once more: another chain, which knows nothing of the first one
    assert cluster.run(106) == 0 and "the training in checks has finished" in cluster.said
    assert len((cluster.path / "batches").read_text().splitlines()) == 12


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        ("torchrun train.py", "TERM"),
        ("/env/bin/torchrun train.py", "TERM"),
        ("python3.11 -m torch.distributed.run train.py", "TERM"),
        ("python train.py torchrun", "USR1"),
        ("sh -m torchrun", "USR1"),
    ],
)
def test_a_launcher_is_told_by_sigterm_which_it_hands_on(command, sent) -> None:
    made = job_chain(shlex.split(command), training_s=HOUR, limit_s=24 * HOUR, times=TIMES, now=NOW)
    assert f"--signal={sent}@120" in made.script()


class Logged:
    """A run with checkpoints in its log."""

    def __init__(self, *events: CheckpointEvent) -> None:
        self.checkpoints = events


def test_what_the_log_measured_counts_and_the_longest_of_it() -> None:
    saved = [
        CheckpointEvent(CheckpointAction.SAVED, "", position=TrainingPosition(0, 400, 400), blocked_s=1.0, written_s=9),
        CheckpointEvent(CheckpointAction.SAVED, "", position=TrainingPosition(1, 0, 500), blocked_s=4.0),
        CheckpointEvent(CheckpointAction.FAILED, "", blocked_s=99.0),
    ]
    restored = CheckpointEvent(
        CheckpointAction.RESTORED,
        "",
        blocked_s=3.0,
        replay_s=20.0,
        replayed_batches=100,
        position=TrainingPosition(0, 100, 100),
    )
    times = job_times(Logged(*saved, restored))  # type: ignore[arg-type]
    assert times == JobTimes(TimeTaken(10, "measured"), TimeTaken(123, "measured"), TimeTaken(80, "measured"))
    assumed = job_times(Logged(CheckpointEvent(CheckpointAction.SAVED, "")))  # type: ignore[arg-type]
    assert {assumed.save.basis, assumed.restart.basis, assumed.replay.basis} == {"assumed"}
