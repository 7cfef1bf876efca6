"""Variables by which launchers of distributed jobs name the job and the rank of a process, and
variables that slow a job down.

`LAUNCHERS` is the only place that knows the variables of torchrun, Slurm, MPI and Kubernetes. The
training process, the monitor of a running job and `stepscope run` read it. Standard library only,
and cheap to import, because every training process does.

The first row that applies decides, so inner launchers come first: a process of torchrun that srun
has started has the variables of both.
"""

from __future__ import annotations

import os
from collections import namedtuple

TYPE_CHECKING = False  # importing `typing` would slow down the start of a script
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEBUG_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DEBUG",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT",
)
"""Variables that are meant for debugging and slow a job down; `diagnosis.debug_switches` says what
each of them does."""
RUNS_DIRECTORY = "stepscope-runs"
"""Directory of the runs of a working directory, unless they are sent elsewhere."""
NO_RENDEZVOUS_ID = frozenset({"", "none"})
"""Values of `TORCHELASTIC_RUN_ID` where torchrun was given no `--rdzv-id`."""
_LOOPBACK = ("localhost", "127.", "::1", "[::1]")
_TORCHRUN_OPTIONS = frozenset({"nnodes", "rdzv_id", "rdzv_endpoint", "master_addr", "master_port"})
_TORCHRUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})


class JobIdentity(namedtuple("JobIdentity", ("launcher", "id", "is_unique"))):
    """Name of a job of several launchers, equal on all of its nodes.

    `is_unique` is true where a scheduler issued it, and false where people choose it: the next job
    may then have the same.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """Launcher and id, as runs record them: `slurm 4711.0`; the id alone of --job."""
        return f"{self.launcher} {self.id}".strip()

    @property
    def run_name(self) -> str:
        """Name of the run of the job, the same on all of its nodes: `slurm-4711.0`."""
        import re  # not in every training process

        return re.sub(r"[^A-Za-z0-9_.-]+", "-", self.text.replace(" ", "-"))[:80]


class Ranks(namedtuple("Ranks", ("rank", "local_rank", "world_size"))):
    """Position of a process in its job; None for what is not known."""

    __slots__ = ()

    @property
    def known(self) -> dict[str, int]:
        """The fields that are not None."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Launch(namedtuple("Launch", ("variables", "command", "host"))):
    """Environment and command of a launcher, and the name of its machine."""

    __slots__ = ()


class JobLauncher(
    namedtuple(
        "JobLauncher",
        ("name", "rank", "local_rank", "world_size", "condition", "identify"),
        defaults=((), (), (), None, None),
    )
):
    """Variables of one launcher.

    `rank`, `local_rank` and `world_size` are names of variables, the preferred one first.
    `condition` is the variable without which they mean nothing, or None. `identify` is a function
    of a `Launch` that returns the identity of its job, or None where this launcher has not started
    it or it has no other launcher; None where the launcher tells no identity.
    """

    __slots__ = ()

    def read_ranks(self, variables: Mapping[str, str]) -> Ranks | None:
        """Read the ranks; None unless this launcher has started the process."""
        rank = _read_number(variables, self.rank)
        if rank is None or (self.condition is not None and not variables.get(self.condition)):
            return None
        return Ranks(
            rank, _read_number(variables, self.local_rank), _read_number(variables, self.world_size)
        )


def read_ranks(variables: Mapping[str, str] | None = None) -> Ranks:
    """Read the position of a process in its job.

    Args:
        variables: its environment; that of this process by default.
    """
    variables = os.environ if variables is None else variables
    for launcher in LAUNCHERS:
        ranks = launcher.read_ranks(variables)
        # A job of one task is not distributed; only torchrun always numbers its processes.
        if ranks is not None and (launcher is TORCHRUN or ranks.world_size != 1):
            return ranks
    local_rank = _read_number(variables, TORCHRUN.local_rank)
    return Ranks(None, local_rank, _read_number(variables, TORCHRUN.world_size))


def identify_job(
    variables: Mapping[str, str], command: Sequence[str], host: str | None = None
) -> JobIdentity | None:
    """Identify the job of several launchers that a process belongs to.

    Args:
        variables: environment of the process.
        command: the command that it launches: that of torchrun on each node names the job.
        host: name of this machine, None to ask the kernel: an address such as 127.0.0.1 means
            another machine on each.

    Returns:
        None for a job of a single launcher.
    """
    if host is None:
        import socket  # not in every training process

        host = socket.gethostname()
    launch = Launch(variables, command, host)
    for launcher in LAUNCHERS:
        if launcher.identify is not None:
            identity: JobIdentity | None = launcher.identify(launch)
            if identity is not None:
                return identity
    return None


def _identify_torchrun_worker(launch: Launch) -> JobIdentity | None:
    """Identify the job of a rank: `stepscope run` is started once per rank."""
    variables = launch.variables
    world_size = _read_number(variables, TORCHRUN.world_size)
    if TORCHRUN.read_ranks(variables) is None or (world_size or 0) < 2:
        return None
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    if run_id not in NO_RENDEZVOUS_ID:
        return JobIdentity("torchrun", run_id, False)
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")
    if not address or not port:
        return None
    return JobIdentity("torchrun", _qualify(f"{address}:{port}", launch.host), False)


def _identify_torchrun_agent(launch: Launch) -> JobIdentity | None:
    """Identify a job by the torchrun command of each node, or by its variables (`PET_…`)."""
    options = _read_torchrun_options(launch.command)
    if options is None:
        return None

    def option(name: str) -> str:
        return options.get(name) or str(launch.variables.get(f"PET_{name.upper()}", ""))

    max_nodes = option("nnodes").rpartition(":")[2]
    if "standalone" in options or not max_nodes.isdecimal() or int(max_nodes) < 2:
        return None
    run_id = option("rdzv_id")
    if run_id not in NO_RENDEZVOUS_ID:
        return JobIdentity("torchrun", run_id, False)
    address, port = option("master_addr") or "127.0.0.1", option("master_port") or "29500"
    endpoint = option("rdzv_endpoint") or f"{address}:{port}"
    return JobIdentity("torchrun", _qualify(endpoint, launch.host), False)


def _identify_openmpi(launch: Launch) -> JobIdentity | None:
    size = _read_number(launch.variables, ("OMPI_COMM_WORLD_SIZE",))
    job = launch.variables.get("OMPI_MCA_ess_base_jobid") or launch.variables.get("PMIX_NAMESPACE")
    return JobIdentity("openmpi", job, True) if job and (size or 0) > 1 else None


def _identify_slurm(launch: Launch) -> JobIdentity | None:
    job, step = launch.variables.get("SLURM_JOB_ID"), launch.variables.get("SLURM_STEP_ID")
    tasks = _read_number(launch.variables, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    if not job or not step or (tasks or 0) < 2:
        return None
    return JobIdentity("slurm", f"{job}.{step}", True)


def _identify_pmix(launch: Launch) -> JobIdentity | None:
    job = launch.variables.get("PMIX_NAMESPACE")
    if not job or _read_number(launch.variables, ("PMIX_RANK",)) is None:
        return None
    # Open MPI 5 sets these, too; a job of one process has no other launcher.
    size = _read_number(launch.variables, ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"))
    return None if size == 1 else JobIdentity("pmix", job, True)


def _identify_kubernetes(launch: Launch) -> JobIdentity | None:
    """Identify an indexed job: its pods are named after it and their index."""
    index = launch.variables.get("JOB_COMPLETION_INDEX", "")
    if not index.isdecimal():
        return None
    pod = launch.host.partition(".")[0]
    suffix = f"-{index}"
    is_named_after_job = pod.endswith(suffix) and pod != suffix
    name = pod.removesuffix(suffix) if is_named_after_job else launch.variables.get("JOB_NAME")
    return JobIdentity("kubernetes", name, False) if name else None


def _read_torchrun_options(command: Sequence[str]) -> dict[str, str] | None:
    """Read the options that name the job, up to the script; None for another program.

    Both spellings are accepted, `--rdzv-id` and `--rdzv_id`, as torchrun does.
    """
    words = list(command)
    program = words[0].rpartition("/")[2] if words else ""
    if program.startswith("python") and "-m" in words[:-1]:
        at = words.index("-m") + 1
        if words[at] not in _TORCHRUN_MODULES:
            return None
        words = words[at:]
    elif program != "torchrun":
        return None
    options: dict[str, str] = {}
    following = iter(words[1:])
    for word in following:
        if word.endswith(".py") or word in {"-m", "--module", "--"}:
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.startswith("--") and name in _TORCHRUN_OPTIONS:
            options[name] = value if equals else next(following, "")
        elif word == "--standalone":
            options[name] = ""
    return options


def _qualify(address: str, host: str) -> str:
    """Return an address that means the same on all machines."""
    return f"{address}@{host}" if address.startswith(_LOOPBACK) else address


def _read_number(variables: Mapping[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        text = variables.get(name, "")
        if text.isascii() and text.isdecimal():
            return int(text)
    return None


# Kubeflow, accelerate, DeepSpeed and hand-written scripts set these as well.
TORCHRUN = JobLauncher(
    "torchrun",
    rank=("RANK",),
    local_rank=("LOCAL_RANK",),
    world_size=("WORLD_SIZE",),
    identify=_identify_torchrun_worker,
)
LAUNCHERS = (
    TORCHRUN,
    JobLauncher(
        "horovod",  # over Gloo; over MPI it is a job of that
        rank=("HOROVOD_RANK",),
        local_rank=("HOROVOD_LOCAL_RANK",),
        world_size=("HOROVOD_SIZE",),
    ),
    JobLauncher(
        "openmpi",
        rank=("OMPI_COMM_WORLD_RANK",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        world_size=("OMPI_COMM_WORLD_SIZE",),
        identify=_identify_openmpi,
    ),
    JobLauncher(
        "mvapich",
        rank=("MV2_COMM_WORLD_RANK",),
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
        world_size=("MV2_COMM_WORLD_SIZE",),
    ),
    JobLauncher(
        "slurm",
        rank=("SLURM_PROCID",),
        local_rank=("SLURM_LOCALID",),
        world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        condition="SLURM_STEP_ID",  # a batch script has the others, too, but is no task of a step
        identify=_identify_slurm,
    ),
    # Hydra, the launcher of MPICH and Intel MPI.
    JobLauncher(
        "mpich", rank=("PMI_RANK",), local_rank=("MPI_LOCALRANKID",), world_size=("PMI_SIZE",)
    ),
    JobLauncher("torchrun on each node", identify=_identify_torchrun_agent),
    JobLauncher("pmix", rank=("PMIX_RANK",), condition="PMIX_NAMESPACE", identify=_identify_pmix),
    JobLauncher("kubernetes", rank=("JOB_COMPLETION_INDEX",), identify=_identify_kubernetes),
)
"""All launchers, the innermost first."""
