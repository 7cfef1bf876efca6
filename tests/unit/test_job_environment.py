"""The table of launchers of distributed jobs: one case per row for ranks, and for identities."""

from __future__ import annotations

import pytest

from stepscope.job_environment import LAUNCHERS, JobIdentity, Ranks, identify_job, read_ranks

RANKS = {
    "torchrun": ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, Ranks(3, 1, 4)),
    "horovod": (
        {"HOROVOD_RANK": "3", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_SIZE": "4"},
        Ranks(3, 1, 4),
    ),
    "openmpi": (
        {
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            "OMPI_COMM_WORLD_SIZE": "8",
        },
        Ranks(5, 2, 8),
    ),
    "mvapich": (
        {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_LOCAL_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"},
        Ranks(1, 0, 2),
    ),
    "slurm": (
        {
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "6",
            "SLURM_LOCALID": "2",
            "SLURM_STEP_NUM_TASKS": "8",
            "SLURM_NTASKS": "16",
        },
        Ranks(6, 2, 8),
    ),
    "mpich": ({"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0"}, Ranks(2, 0, 3)),
    "pmix": ({"PMIX_RANK": "4", "PMIX_NAMESPACE": "prterun-a-1@1"}, Ranks(4, None, None)),
    "kubernetes": ({"JOB_COMPLETION_INDEX": "7"}, Ranks(7, None, None)),
}

SLURM_TASK = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
}
TORCHRUN = ("torchrun", "--nnodes=2", "--rdzv-endpoint", "head:29400")

IDENTITIES = {
    "a rank of torchrun": (
        {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job7"},
        ("python", "train.py"),
        JobIdentity("torchrun", "job7", False),
    ),
    "a rank of torchrun without an id": (
        {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": "none",
            "MASTER_ADDR": "head",
            "MASTER_PORT": "29500",
        },
        ("python", "train.py"),
        JobIdentity("torchrun", "head:29500", False),
    ),
    "torchrun by its id": (
        {},
        (*TORCHRUN, "--rdzv_id=99", "train.py"),
        JobIdentity("torchrun", "99", False),
    ),
    "torchrun by its rendezvous": (
        {},
        (*TORCHRUN, "train.py", "--rdzv-id=5"),
        JobIdentity("torchrun", "head:29400", False),
    ),
    "torchrun as a module": (
        {},
        (
            *("python3.11", "-m", "torch.distributed.run", "--nnodes", "1:4"),
            *("--master-addr=head", "--master-port", "1234", "-m", "train"),
        ),
        JobIdentity("torchrun", "head:1234", False),
    ),
    "torchrun on one machine, as a test of many": (
        {},
        ("torchrun", "--nnodes=2", "train.py"),
        JobIdentity("torchrun", "127.0.0.1:29500@here-3", False),
    ),
    "torchrun by variables": (
        {"PET_NNODES": "2", "PET_RDZV_ID": "kubeflow"},
        ("torchrun", "train.py"),
        JobIdentity("torchrun", "kubeflow", False),
    ),
    "Open MPI 4": (
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess_base_jobid": "8675", "PMIX_NAMESPACE": "x"},
        ("python", "train.py"),
        JobIdentity("openmpi", "8675", True),
    ),
    "Open MPI 5": (
        {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-head-33@1"},
        ("python", "train.py"),
        JobIdentity("openmpi", "prterun-head-33@1", True),
    ),
    "Slurm": (SLURM_TASK, ("python", "train.py"), JobIdentity("slurm", "4711.2", True)),
    "torchrun in tasks of Slurm": (
        SLURM_TASK,
        (*TORCHRUN, "train.py"),
        JobIdentity("slurm", "4711.2", True),
    ),
    "PMIx": (
        {"PMIX_RANK": "0", "PMIX_NAMESPACE": "ns"},
        ("./train",),
        JobIdentity("pmix", "ns", True),
    ),
    "Kubernetes": (
        {"JOB_COMPLETION_INDEX": "3"},
        ("python", "train.py"),
        JobIdentity("kubernetes", "here", False),
    ),
}

ALONE = {
    "nothing": ({}, ("python", "train.py")),
    "torchrun of one node": ({}, ("torchrun", "--nproc-per-node=2", "train.py")),
    "a standalone torchrun": ({}, ("torchrun", "--standalone", "--nnodes=2", "train.py")),
    "options of the script": ({}, ("torchrun", "train.py", "--nnodes=2", "--rdzv-id=5")),
    "another module": ({}, ("python", "-m", "train", "--nnodes=2")),
    "one rank": ({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "a"}, ("./train",)),
    "a batch script": ({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, ("./a",)),
    "one task of Slurm": ({**SLURM_TASK, "SLURM_STEP_NUM_TASKS": "1"}, ("./train",)),
    "one process of MPI": ({"OMPI_COMM_WORLD_SIZE": "1", "PMIX_NAMESPACE": "x"}, ("./train",)),
}


def test_every_launcher_has_a_case() -> None:
    assert list(RANKS) == [launcher.name for launcher in LAUNCHERS if launcher.rank]


@pytest.mark.parametrize("name", RANKS)
def test_ranks_of_each_launcher(name: str) -> None:
    variables, expected = RANKS[name]
    assert read_ranks(variables) == expected


@pytest.mark.parametrize(("inner", "outer"), list(zip(RANKS, list(RANKS)[1:], strict=False)))
def test_the_inner_launcher_decides(inner: str, outer: str) -> None:
    variables, expected = RANKS[inner]
    assert read_ranks({**RANKS[outer][0], **variables}) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Ranks(None, None, None)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "x"}, Ranks(3, 1, None)),
        ({"RANK": "", "WORLD_SIZE": "2"}, Ranks(None, None, 2)),
        ({"RANK": "²"}, Ranks(None, None, None)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Ranks(0, None, 1)),
        # The batch script of a job of many tasks is no task of a step.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Ranks(None, None, None)),
        # One process is not distributed.
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, Ranks(None, None, None)),
    ],
)
def test_variables_that_tell_less(variables: dict[str, str], expected: Ranks) -> None:
    assert read_ranks(variables) == expected
    assert expected.known == {k: v for k, v in expected._asdict().items() if v is not None}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_of_each_launcher(name: str) -> None:
    variables, command, expected = IDENTITIES[name]
    assert identify_job(variables, command, host="here-3") == expected


@pytest.mark.parametrize("name", ALONE)
def test_a_launcher_alone_has_no_identity(name: str) -> None:
    variables, command = ALONE[name]
    assert identify_job(variables, command, host="here") is None


def test_pods_with_other_names_state_their_job() -> None:
    variables = {"JOB_COMPLETION_INDEX": "3"}
    assert identify_job(variables, ("./train",), host="pod-xyz") is None
    identity = identify_job({**variables, "JOB_NAME": "bert"}, ("./train",), host="pod-xyz")
    assert identity == JobIdentity("kubernetes", "bert", False)
