"""Account of the end of a job: its form, causes by messages of exceptions, and what to do."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Annotated, Literal

import msgspec

from stepscope import schema

DeathCause = Literal[
    "exception",
    "exit_status",
    "crash",
    "outside_signal",
    "host_memory",
    "device_memory",
    "shared_memory",
    "disk_full",
    "worker_killed",
]

LinuxSignal = IntEnum(
    "LinuxSignal",
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 "
    "SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG "
    "SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS",
)
"""Signals, numbered from 1 as on the system that records (signal(7)): others number them
differently, or lack them."""
CRASH_SIGNALS = (
    LinuxSignal.SIGILL,
    LinuxSignal.SIGABRT,
    LinuxSignal.SIGBUS,
    LinuxSignal.SIGFPE,
    LinuxSignal.SIGSEGV,
)
"""Signals by which the kernel, or the process itself, ends a faulty process."""

_PATTERNS: tuple[tuple[DeathCause, str], ...] = (
    (
        "shared_memory",
        r"out of shared memory|insufficient shared memory|unable to (?:allocate|mmap|resize|write|"
        r"open)[^\n]*(?:shared memory|/torch_|/dev/shm)|(?:/dev/shm|/torch_\d)[^\n]*No space left|"
        r"No space left on device[^\n]*(?:/dev/shm|/torch_\d|/psm_)",
    ),
    (
        "device_memory",
        r"\bOutOfMemoryError\b|(?:CUDA|HIP|XPU|MPS)[^\n]*out of memory|"
        r"(?:RESOURCE_EXHAUSTED|\bResourceExhaustedError\b)[^\n]*(?:[Oo]ut of memory|[Aa]llocat)",
    ),
    (
        "disk_full",
        r"No space left on device|\bENOSPC\b|Disk quota exceeded|\bErrno 28\b|"
        r"\bEDQUOT\b|PytorchStreamWriter failed writing|iostream error|unexpected pos \d+ vs \d+",
    ),
    ("worker_killed", r"DataLoader worker \(pid.*?\) (?:is killed by signal|exited unexpectedly)"),
    ("host_memory", r"\bMemoryError\b|can't allocate memory|Cannot allocate memory|std::bad_alloc"),
)
"""Causes by what a traceback says, the more special ones first."""
_CAUGHT = re.compile(r"Caught (\w+) in (?:DataLoader worker process (\d+)|[^\n]+)\.")
"""Exception of a worker, of the thread that pins memory, or of a replica."""
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error:")
_ORIGINAL = re.compile(
    r"Original Traceback \(most recent call last\):|terminated with the following error:"
)
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$')
_EXCEPTION = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning)): (.+)$")
_ROOT_CAUSE = re.compile(
    r"Root Cause.*?rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+) \(pid: (\d+)\)", re.DOTALL
)
_LOST_PEER = re.compile(
    r"(?i)\bgloo\b|\bnccl|\bc10d\b|tcpstore|processgroup|connection (?:closed|reset) by peer"
)
_HANDLING = "During handling of the above exception, another exception occurred:"

ADVICE: dict[DeathCause, str] = {
    "host_memory": (
        "Raise the memory limit of the job, or let it hold less: fewer DataLoader workers, a "
        "smaller prefetch_factor, no growing lists or caches."
    ),
    "device_memory": (
        "Use a smaller batch and accumulate gradients over more of them, or checkpoint "
        "activations (torch.utils.checkpoint)."
    ),
    "shared_memory": (
        "Give the job more shared memory (docker run --shm-size=8g; in Kubernetes an emptyDir "
        "with medium: Memory at /dev/shm), or keep fewer bytes in flight: fewer workers, a "
        "smaller prefetch_factor or batch."
    ),
    "disk_full": (
        "Free space on that file system, write to another one, or keep fewer checkpoints."
    ),
    "worker_killed": (
        "See why the worker was killed: run with num_workers=0 for the exception itself; a worker "
        "that is killed for want of memory needs a higher limit, or fewer workers."
    ),
    "outside_signal": (
        "Look who sends it: a scheduler (time limit, preemption), a container that stops, a "
        "person, or the script itself."
    ),
    "crash": (
        "The fault is in native code that the line calls: update that library, or look at the "
        "core dump with gdb."
    ),
}
PARTIAL_WRITE = (
    "The file was written in part only, as on a full disk or at the end of a quota; PyTorch does "
    "not say which."
)
FRAGMENTED_ADVICE = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: a large part of the memory is reserved "
    "and not allocated."
)


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """End of a job that did not succeed: what ended it, where, and what to do."""

    cause: DeathCause
    """host_memory, device_memory, shared_memory, disk_full, worker_killed (a DataLoader worker was
    killed), outside_signal, crash (a fault of native code), exception, or exit_status (nothing
    else is known)."""
    headline: str
    exit_code: Annotated[int | None, schema.field_label(display="identifier")]
    """Exit status of the command; null after a signal."""
    signal: Annotated[int | None, schema.field_label(display="identifier")]
    """Signal that ended the command, or the process of it that ended first; null without one."""
    exception: str = ""
    """Type of the uncaught exception; empty without one."""
    message: str = ""
    """First line of its message, with secrets masked."""
    rank: Annotated[int | None, schema.field_label(display="identifier")] = None
    """Rank that ended first; null if unknown."""
    worker: Annotated[int | None, schema.field_label(display="identifier")] = None
    """Number of the DataLoader worker in which it happened; null elsewhere."""
    step_count: int | None = None
    """Complete steps of the process before its end; null for a job that does not train."""
    location: str = ""
    """File and line of the user's code; empty if unknown."""
    function: str = ""
    """Function of that line."""
    evidence: list[str] = []
    advice: list[str] = []
    """What to do, one sentence each."""
    output: list[str] = []
    """Last lines of the error output, with secrets masked."""
    output_missing: str | None = None
    """Why there are none, or not all."""

    @property
    def lines(self) -> list[str]:
        """Evidence and advice, as sentences."""
        return [*self.evidence, *(f"What to do: {text}" for text in self.advice)]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Uncaught exception of the code of the job, found within those that pass it on."""

    exception: str
    message: str
    frames: list[schema.StackFrame]
    """Innermost first."""
    worker: int | None
    """Number of the DataLoader worker in which it was raised."""
    spawned: int | None
    """Number of the process of `torch.multiprocessing` in which it was raised."""
    cause: DeathCause


def explain_failure(failure: schema.ProcessFailure) -> Failure:
    """Find the exception behind that of a process, and its cause."""
    text = "\n".join(failure.traceback)
    exception, message, frames = failure.exception, failure.message, failure.frames
    caught, spawned = _CAUGHT.search(text or message), _SPAWNED.search(text)
    original = _ORIGINAL.split(text)[-1] if caught or spawned else ""
    if original:
        inner = [match for line in original.splitlines() if (match := _FRAME.match(line))]
        frames = [
            schema.StackFrame(file=match[1], line=int(match[2]), function=match[3])
            for match in reversed(inner)
        ] or frames
        # Exceptions inside of others come first, so the last one is that which was raised.
        ends = [match for line in original.splitlines() if (match := _EXCEPTION.match(line))]
        if ends:
            exception, message = ends[-1][1].rpartition(".")[2], ends[-1][2]
    if caught is not None:
        exception = caught[1]
    return Failure(
        exception=exception,
        message=message,
        frames=frames,
        worker=None if caught is None or caught[2] is None else int(caught[2]),
        spawned=None if spawned is None else int(spawned[1]),
        cause=find_cause("\n".join([f"{exception}: {message}", *_list_raised(text)])),
    )


def _list_raised(text: str) -> list[str]:
    """List the lines of a traceback that say what was raised: no lines of code, and no exceptions
    that were handled before."""
    lines = text.rpartition(_HANDLING)[2].splitlines()
    return [line for line in lines if _EXCEPTION.match(line)]


def find_cause(text: str) -> DeathCause:
    """Find the cause that a traceback names; `exception` if it names none that is known."""
    causes = (cause for cause, pattern in _PATTERNS if re.search(pattern, text))
    return next(causes, "exception")


def names_full_disk(failure: schema.ProcessFailure) -> bool:
    """Return True if an exception says that a file system or a quota is full."""
    text = "\n".join([failure.message, *failure.traceback])
    return re.search(r"No space left|ENOSPC|Errno 28|quota|EDQUOT", text) is not None


def is_lost_peer(failure: schema.ProcessFailure) -> bool:
    """Return True for an exception that may follow from the end of another rank."""
    return _LOST_PEER.search(failure.message) is not None


def read_root_cause(failure: schema.ProcessFailure) -> tuple[int, int, int] | None:
    """Read rank, exit status (negative for a signal) and process of what torchrun names as the
    first failure; None for another exception."""
    match = _ROOT_CAUSE.search("\n".join(failure.traceback))
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def is_fragmented(message: str) -> bool:
    """Return True if the message of an allocator of PyTorch says that at least a fifth of the
    memory is reserved and not allocated."""
    sizes = re.search(
        r"([\d.]+) ([KMG]iB) is allocated by PyTorch.*?([\d.]+) ([KMG]iB) is reserved by PyTorch "
        r"but unallocated",
        message,
    )
    if sizes is None:
        return False
    units = {"KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20}
    allocated = float(sizes[1]) * units[sizes[2]]
    return float(sizes[3]) * units[sizes[4]] >= 0.2 * (allocated or 1.0)
