from __future__ import annotations

import pytest

from greenlove_tracker.machine.job import Ranks, find_ranks, job_fields

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "abc",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-1",
}
MPICH = {"PMI_RANK": "2", "MPI_LOCALRANKID": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "PMI_ID": "x"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 0, 1, 1)),
        (TORCHRUN, (5, 1, 8, 4)),
        (SRUN, (3, 0, 4, 2)),
        (OPENMPI, (1, 1, 2, 2)),
        (MPICH, (2, 0, 4, 2)),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}, (0, 0, 1, 1)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, (3, 1, 4, 2)),  # Lightning
        ({**SRUN, **TORCHRUN}, (5, 1, 8, 4)),  # torchrun inside srun: torchrun's ranks are the training's
    ],
)
def test_ranks_of_each_launcher(env, expected):
    found = find_ranks(env)
    assert (found.rank, found.local_rank, found.world_size, found.local_world_size) == expected
    assert found.carries_meter == (expected[1] == 0)


def test_all_ranks_of_a_launch_share_a_key_and_the_next_launch_has_another():
    one = find_ranks(TORCHRUN)
    other = find_ranks({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"})
    restarted = find_ranks({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"})
    assert one.launch_key == other.launch_key != restarted.launch_key


def test_a_single_process_needs_no_key():
    assert find_ranks({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}) == Ranks()


def test_job_fields_prefer_what_the_user_says():
    env = {
        "SLURM_JOB_ID": "99",
        "SLURM_JOB_ACCOUNT": "physics",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_CLUSTER_NAME": "big",
        "SLURM_ARRAY_JOB_ID": "96",
        "SLURM_ARRAY_TASK_ID": "3",
        "GREENLOVE_JOB_ACCOUNT": "chemistry",
    }
    assert {f.name: f.value for f in job_fields(env)} == {
        "job_id": "99",
        "array_job_id": "96",
        "array_task_id": "3",
        "account": "chemistry",
        "partition": "gpu",
        "cluster": "big",
    }
    assert job_fields({}) == []
