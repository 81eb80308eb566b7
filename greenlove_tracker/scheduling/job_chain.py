"""A training that is longer than a job may be, cut into a chain of Slurm jobs, each of which goes on from the last.

Nothing is submitted here: the text is a script, and running it submits the chain. The jobs know of each other by a
directory beside the training: one that finds ``finished`` there ends at once, and so does one that finds ``stopped``.

Sources:
    sbatch: https://slurm.schedmd.com/sbatch.html (``--signal``: without ``B:`` it goes to the job's steps and not to
        the shell, and may come up to 60 s early; ``--dependency=afterany``; ``--time``; ``--requeue``).
    srun: https://slurm.schedmd.com/srun.html ("Return value": the highest exit code of all tasks, or 128 and a signal).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from greenlove_tracker import format as fmt
from greenlove_tracker.checkpoints import MANIFEST, CheckpointAction
from greenlove_tracker.errors import UsageError
from greenlove_tracker.scheduling.job_files import command_words

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

# What is taken where nobody has measured it, in seconds: assumptions, on the long side for trainings of up to some
# gigabytes on a disk of the cluster.
ASSUMED_SAVE_S = 60.0
ASSUMED_RESTART_S = 120.0
ASSUMED_REPLAY_S = 300.0

_EARLY_S = 60  # by which Slurm's signal may come before its time
_STEP_S = 60.0  # until the training is between two batches
_MOST_SIGNAL_S = 65535  # sbatch(1), --signal
_MOST_JOBS = 1000  # of a chain: clusters let a user submit some hundreds or thousands
_MINUTE_S = 60.0
_TIME = re.compile(r"(?:(?P<days>\d{1,5})-)?(?P<clock>\d{1,9}(?::\d{1,2}){0,2})", re.ASCII)
TIME_FORMS = "24:00:00, 1-00:00:00 or 1440, as Slurm takes them: hours:minutes:seconds, days-…, or minutes"

# Programs that start the training as further processes, and end at SIGUSR1; SIGTERM they hand on.
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """A length of time, and how it is known.

    Attributes:
        seconds: of it.
        basis: ``measured`` or ``assumed``.
    """

    seconds: float
    basis: str


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The times that each job of a chain takes beside the training.

    Attributes:
        save: until an emergency checkpoint is whole, with all ranks waiting.
        restart: from the start of the job until the checkpoint is read: starting Python, opening the data.
        replay: fetching and dropping the batches of an epoch that are done.
    """

    save: TimeTaken
    restart: TimeTaken
    replay: TimeTaken


@dataclass(frozen=True, slots=True)
class JobChain:
    """A training in several jobs.

    Attributes:
        n_jobs: as many as it takes.
        limit_s: that each of them may take.
        training_s: of the whole training, its longest.
        usable_s: training that each job but the first is good for; the first replays nothing.
        notice_s: before its end that a job is told to save.
        signal: that tells it, as ``USR1``.
        times: beside the training.
        job_name: of each of them.
        command: its words.
        checkpoints: directory in which a newer checkpoint tells that a job got on; None where nobody said.
        planned_utc: when.
    """

    n_jobs: int
    limit_s: float
    training_s: float
    usable_s: float
    notice_s: int
    signal: str
    times: JobTimes
    job_name: str
    command: tuple[str, ...]
    checkpoints: str | None
    planned_utc: datetime

    @property
    def is_launched(self) -> bool:
        """True where a program such as torchrun stands between Slurm and the training."""
        return self.signal == "TERM"

    def script(self) -> str:
        """Return the script that submits it; each word of the command arrives as it was given."""
        limit = fmt.slurm_time(self.limit_s)
        several = f"{self.n_jobs} jobs of at most {limit} each for Slurm, one after the other"
        jobs = f"1 job of at most {limit} for Slurm" if self.n_jobs == 1 else several
        return _SUBMISSION.format(
            about=f"A training in {jobs}; planned at {self.planned_utc:%Y-%m-%d %H:%M:%S} UTC.",
            n_jobs=self.n_jobs,
            job=shlex.quote(self._job()),
            options=f"--job-name={self.job_name} --time={limit} --signal={self.signal}@{self.notice_s}",
        )

    def _job(self) -> str:
        """Return what each job runs, behind ``chain=`` its directory."""
        newest = "echo unknown"
        if self.checkpoints is not None:
            manifests = f"{shlex.quote(self.checkpoints.rstrip('/') or '/')}/step-*/{MANIFEST}"
            newest = f'for manifest in {manifests}; do :; done; echo "$manifest"'
        return _JOB.format(
            newest=newest,
            tells="true" if self.checkpoints is not None else "false",
            told_s=max(0, int(self.limit_s) - self.notice_s - _EARLY_S),
            command=shlex.join(self.command),
        )


def job_chain(
    command: Sequence[str],
    *,
    training_s: float,
    limit_s: float,
    times: JobTimes,
    now: datetime,
    name: str = "greenlove",
    checkpoints: str | None = None,
) -> JobChain:
    """Return the chain of jobs that a training takes.

    Args:
        command: the words that start the training, and go on with it where it was.
        training_s: the longest that it is expected to take in one piece.
        limit_s: that a job may take.
        times: that each job takes beside it.
        now: when that was planned.
        name: of the jobs.
        checkpoints: the directory of the training's checkpoints: a job that leaves no newer one counts as failed.

    Raises:
        UsageError: where an argument cannot be, or a job's limit is too short to get on.
    """
    words = command_words(command)
    if words[0] == "srun":
        raise UsageError(
            "{argument} is started by srun in each job: leave srun out of it. Its options, such as "
            "--ntasks-per-node=4, go after sh FILE, and sbatch hands them on",
            argument="command",
        )
    for argument, value_s in (("training_s", training_s), ("limit_s", limit_s)):
        if not 0.0 < value_s < math.inf:
            raise UsageError(f"{{argument}} must be above zero, not {value_s}", argument=argument)
    if checkpoints is not None and ("://" in checkpoints or not checkpoints or checkpoints.startswith("-")):
        raise UsageError(
            f"{{argument}} must be a directory that the jobs see, not {checkpoints!r}: leave it out for a store",
            argument="checkpoints",
        )
    limit_s = math.floor(limit_s / _MINUTE_S) * _MINUTE_S  # Slurm counts whole minutes
    notice_s = math.ceil((2 * times.save.seconds + _STEP_S) / _MINUTE_S) * int(_MINUTE_S)
    first_s = limit_s - notice_s - _EARLY_S - times.restart.seconds
    usable_s = first_s - times.replay.seconds
    if (training_s > first_s and usable_s <= 0) or first_s <= 0:
        raise UsageError(
            f"{{argument}} of {fmt.duration(limit_s)} leaves a job no time to train: starting, replaying and saving "
            f"take {fmt.duration(limit_s - usable_s)} of it",
            argument="limit_s",
        )
    if notice_s > _MOST_SIGNAL_S:
        raise UsageError(f"{{argument}}: Slurm tells a job at most {_MOST_SIGNAL_S} s ahead", argument="save")
    n_jobs = 1 if training_s <= first_s else 1 + math.ceil((training_s - first_s) / usable_s)
    if n_jobs > _MOST_JOBS:
        raise UsageError(f"{{argument}} is so short that it takes {n_jobs:,} jobs", argument="limit_s")
    return JobChain(
        n_jobs,
        limit_s,
        training_s,
        max(0.0, usable_s),
        notice_s,
        "TERM" if _is_launcher(words) else "USR1",
        times,
        name,
        words,
        checkpoints,
        now.astimezone(UTC),
    )


def job_times(run: Run | None) -> JobTimes:
    """Return what each job takes beside the training: as a run's log has it, else as assumed.

    Of what is measured the longest counts. A log begins when the tracker does, so that it knows what reading a
    checkpoint took, and not what starting Python did: that stays assumed, on top.

    Args:
        run: with checkpoints in its log; None without a log.
    """
    events = () if run is None else run.checkpoints
    saved = [
        e.blocked_s + (e.written_s or 0.0)
        for e in events
        if e.action is CheckpointAction.SAVED and e.blocked_s is not None
    ]
    restored = [e for e in events if e.action is CheckpointAction.RESTORED]
    read = [ASSUMED_RESTART_S + e.blocked_s for e in restored if e.blocked_s is not None]
    most_batches = max((e.position.batches for e in events), default=0)  # within an epoch, as far as is known
    replayed = [
        e.replay_s / e.replayed_batches * most_batches
        for e in restored
        if e.replay_s is not None and e.replayed_batches
    ]
    return JobTimes(_taken(saved, ASSUMED_SAVE_S), _taken(read, ASSUMED_RESTART_S), _taken(replayed, ASSUMED_REPLAY_S))


def _taken(measured_s: Sequence[float], assumed_s: float) -> TimeTaken:
    return TimeTaken(max(measured_s), "measured") if measured_s else TimeTaken(assumed_s, "assumed")


def parse_time_limit_s(text: str) -> float:
    """Return the seconds of a time limit in the forms of Slurm's ``--time``.

    Raises:
        UsageError: for anything else.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{{argument}} must be such as {TIME_FORMS}, not {text!r}", argument="limit_s")
    parts = [int(part) for part in found["clock"].split(":")]
    if found["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # minutes[:seconds]
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return ((int(found["days"] or 0) * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds


def _is_launcher(words: Sequence[str]) -> bool:
    """Return True where the training is started by a program that hands SIGTERM on, and not SIGUSR1."""
    program = PurePath(words[0]).name
    is_module = program.startswith("python") and any(
        word == "-m" and module in _LAUNCHERS for word, module in pairwise(words)
    )
    return program in _LAUNCHERS or is_module


# ``{{`` and ``}}`` are braces of the shell. ``afterany``: a job that reached its time limit did not end well. Ours
# stands behind the user's options where the chain would break without it.
_SUBMISSION = """\
#!/bin/sh
# {about}
# Submit: sh FILE [more options of sbatch, such as --gpus=1], where the training starts. The training itself must go on
# from its checkpoints, as one with greenlove_tracker.Checkpointer does.
chain="greenlove-chain-$(date -u +%Y%m%d-%H%M%S)-$$"
mkdir "$chain" || exit
output=$(printf %s "$PWD/$chain/output.txt" | sed 's/%/%%/g')
job={job}
before=
n=0
while [ "$n" -lt {n_jobs} ]; do
  id=$(sbatch --parsable {options} --requeue --open-mode=append --output="$output" "$@" \\
    ${{before:+"--dependency=afterany:$before"}} --wrap="chain=\\${{SLURM_SUBMIT_DIR:-.}}/$chain
$job") || {{
    echo "greenlove: sbatch refused job $((n + 1)) of {n_jobs}; the $n before it are submitted" >&2
    exit 1
  }}
  before=${{id%%;*}}
  n=$((n + 1))
  echo "$before" >> "$chain/jobs"
done
echo "greenlove: submitted $(echo $(cat "$chain/jobs")); all of them write to $chain/output.txt"
echo "greenlove: to end it: scancel \\$(cat $chain/jobs)"
"""

# A job fails by an exit code that is none of a checkpointed end (128 + SIGUSR1, 128 + SIGTERM, 75: a cloud's notice),
# unless it was within the time in which Slurm had told it to end; and where it leaves no newer checkpoint. Two in a row
# stop the chain: a bug fails each time, a bad node once. Whether a job got on is also asked by the next one, for a job
# that is killed writes nothing. One that Slurm requeued is the same job, and asks nothing.
_JOB = """\
newest() {{ {newest}; }}
end_chain() {{
  echo "greenlove: $2"
  echo "$2" > "$chain/$1"
  if [ -s "$chain/jobs" ]; then scancel --quiet --state=PENDING $(cat "$chain/jobs"); fi
}}
judge() {{
  [ "$1" != 0 ] || {{ end_chain finished "the training has finished"; return; }}
  why=
  case "$1" in
  killed | 75 | 138 | 143) ;;
  *) [ "$(($(date +%s) - began_s))" -ge {told_s} ] || why="exit code $1" ;;
  esac
  if {tells} && [ "$(newest)" = "$(cat "$chain/began")" ]; then why="${{why:+$why, }}no newer checkpoint"; fi
  rm -f "$chain/began"
  if [ -z "$why" ]; then
    rm -f "$chain/failed"
  elif [ -e "$chain/failed" ]; then
    end_chain stopped "two jobs in a row failed ($(cat "$chain/failed"); $why): the chain is stopped"
  else
    echo "$why" > "$chain/failed"
    echo "greenlove: a job failed ($why); if the next one fails too, the chain is stopped"
  fi
}}
began_s=$(date +%s)
if [ -e "$chain/began" ] && [ "${{SLURM_RESTART_COUNT:-0}}" -eq 0 ]; then judge killed; fi
if [ -e "$chain/finished" ]; then echo "greenlove: the training has finished: nothing to do"; exit 0; fi
if [ -e "$chain/stopped" ]; then echo "greenlove: $(cat "$chain/stopped")"; exit 1; fi
newest > "$chain/began"
# The end of this job is no time limit of the training, which goes on in the next one.
srun sh -c "unset SLURM_JOB_END_TIME; exec \\"\\$@\\"" sh {command}
code=$?
judge "$code"
exit "$code"
"""
