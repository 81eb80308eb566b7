"""The rank and job of this process, from the variables that launchers and schedulers set."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.vocabulary.records import Field

_GIT_TIMEOUT_S = 5.0
RUN_DIR_VARIABLE = "GREENLOVE_RUN_DIR"  # set by `greenlove run` for processes that its script or command starts


Environment = Mapping[str, str]  # the variables of a process


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of this process among the processes of one training."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1  # 0: unknown until a spawned process has joined its group
    local_world_size: int = 1
    launch_key: str = ""  # the same for all ranks of a launch, unique to it; empty for a single process

    @property
    def carries_meter(self) -> bool:
        """True if this process measures its node: only one does, else the node would be counted twice."""
        return self.local_rank == 0


_Variables = tuple[tuple[str, ...], tuple[str, ...]]
# By launcher: the variables for rank, local rank, size and local size, and those that identify a launch.
_TORCHRUN: _Variables = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID"),
)
_OTHERS: Mapping[str, _Variables] = {
    "OMPI_COMM_WORLD_RANK": (
        tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    "SLURM_STEP_NUM_TASKS": (  # only within srun: a batch script is a single process
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_ARRAY_TASK_ID"),
    ),
    "PMI_RANK": (
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
        ("PMI_ID", "PMI_JOBID", "PBS_JOBID", "SLURM_JOB_ID"),
    ),
}


def find_ranks(env: Environment) -> Ranks:
    """Return the ranks as set by torchrun (accelerate, deepspeed), Slurm's srun, Open MPI, MPICH or Intel MPI."""
    if "LOCAL_RANK" in env and "WORLD_SIZE" in env:
        env = {"RANK": _rank_of_node(env), **env}
        names, key = _TORCHRUN
    else:
        names, key = next((variables for told_by, variables in _OTHERS.items() if told_by in env), ((), ()))
    if not names:
        return Ranks()
    rank, local_rank, world_size, local_world_size = (_leading_int(env.get(n, "")) for n in names)
    world_size = max(world_size, 1)
    local_world_size = max(local_world_size, 1)
    if world_size == 1 and local_rank == 0:
        return Ranks()
    parts = [env.get(k, "") for k in key]
    if local_world_size == world_size:  # on one node the launcher's process id identifies the launch
        parts += [socket.gethostname(), str(os.getppid())]
    return Ranks(rank, local_rank, world_size, local_world_size, _digest(parts))


def ranks_of_process(env: Environment) -> Ranks:
    """Return the ranks of this process: as a launcher set them, else as torch tells.

    Under ``torch.multiprocessing.spawn``, and so under Lightning's ``ddp_spawn``, no variable tells the ranks. An
    initialised process group tells rank and world size. Before that, torch's spawn has given each process its index.
    Any other process of ``multiprocessing`` trains by itself.
    """
    ranks = find_ranks(env)
    if ranks.launch_key:
        return ranks
    rank, world_size = torch_group()
    parent, index = _spawned()
    if world_size == 1 or (world_size == 0 and index is None):
        return Ranks()
    is_on_many = any(_leading_int(env.get(name, "")) > 1 for name in ("NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"))
    siblings = [socket.gethostname(), str(os.getppid() if parent is None else parent)]
    group = [env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")]
    key = _digest(group if is_on_many and world_size else siblings)
    local_rank = rank if index is None else index
    # local_world_size stays 1: nothing binds each of them to CPUs or GPUs of its own, as a launcher may
    return Ranks(rank if world_size else local_rank, local_rank, world_size, 1, key)


def torch_group() -> tuple[int, int]:
    """Return rank and size of torch's process group; size 0 if there is none."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 0
    return distributed.get_rank(), distributed.get_world_size()


def _spawned() -> tuple[int | None, int | None]:
    """Return the parent of a process of ``multiprocessing``, and its index if torch's spawn gave one."""
    processes = sys.modules.get("multiprocessing.process")
    parent = processes.parent_process() if processes is not None else None
    if processes is None or parent is None:
        return None, None
    this = processes.current_process()
    is_torchs = getattr(getattr(this, "_target", None), "__module__", "") == "torch.multiprocessing.spawn"
    arguments: Sequence[object] = getattr(this, "_args", ())  # the user's function, the index, …
    index = arguments[1] if is_torchs and len(arguments) > 1 else None
    return parent.pid, index if isinstance(index, int) else None


def is_worker() -> bool:
    """Return True if no run may begin: in a worker of torch's DataLoader, and while multiprocessing starts a process.

    A process that ``multiprocessing`` starts by spawn or forkserver, or joblib's loky, imports the script again, and
    what stands at its top is done once more. ``_inheriting`` is set as long as that takes, and no longer: behind it a
    process may well train, as a rank does. Python itself goes by it, to start no process from there. Nothing public
    tells: ``parent_process()`` is None then, and never is in the server of forkserver; only the script itself is called
    ``__mp_main__``, and not the modules that it imports.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        return True
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


def _rank_of_node(env: Environment) -> str:
    """Return the rank if a launcher gives only node and local rank, as Lightning's does."""
    local = _leading_int(env.get("LOCAL_WORLD_SIZE", "")) or _leading_int(env["WORLD_SIZE"])
    node = _leading_int(env.get("NODE_RANK") or env.get("GROUP_RANK") or "0")
    return str(node * local + _leading_int(env["LOCAL_RANK"]))


def _leading_int(text: str) -> int:
    """Return the number at the start of a text: Slurm writes ``4(x2)`` for four tasks on each of two nodes."""
    digits = text.split("(")[0].split(",")[0]
    return int(digits) if digits.isdigit() else 0


_JOB_VARIABLES = {
    "job_id": ("GREENLOVE_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"),
    "array_job_id": ("GREENLOVE_JOB_ARRAY_JOB_ID", "SLURM_ARRAY_JOB_ID"),
    "array_task_id": ("GREENLOVE_JOB_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_ID"),
    "account": ("GREENLOVE_JOB_ACCOUNT", "SLURM_JOB_ACCOUNT"),
    "partition": ("GREENLOVE_JOB_PARTITION", "SLURM_JOB_PARTITION"),
    "cluster": ("GREENLOVE_JOB_CLUSTER", "SLURM_CLUSTER_NAME"),
    "job_nodes": ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES"),
}


def job_fields(env: Environment) -> list[Field]:
    """Return job id, array and task, account, partition, cluster and number of nodes, as far as known."""
    found = {name: next((env[v] for v in variables if env.get(v)), "") for name, variables in _JOB_VARIABLES.items()}
    return [Field(name, value) for name, value in found.items() if value]


def git_commit() -> str:
    """Return the git commit of the working directory; empty outside a repository or without git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def user_name() -> str:
    """Return the login name of the process's own user, whatever the environment says."""
    import psutil

    return psutil.Process().username()


def outer_run_dir() -> Path | None:
    """Return the directory of the run that another process leads and this one is part of; None if there is none."""
    text = os.environ.get(RUN_DIR_VARIABLE, "")
    return Path(text) if text and Path(text).is_dir() else None
