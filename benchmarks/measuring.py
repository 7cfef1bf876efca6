"""Cost of complete commands, and the builds of stepscope whose commands are compared.

CPU time is that of all processes of a command; it says more than time on a machine that does other
work, too. Memory is the largest sum of the proportional set sizes of these processes, sampled every
20 ms: shared pages count once.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[1]
SAMPLE_S = 0.02


class Build(NamedTuple):
    """A checkout of stepscope."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which every Python that starts imports this checkout."""
        return {**os.environ, "PYTHONPATH": str(self.root / "src")}

    def command(self, *arguments: object) -> list[str]:
        """Return the command line of a command of this build."""
        return [sys.executable, "-m", "stepscope", *map(str, arguments)]

    def record(self, run: Path, *options: str) -> list[str]:
        """Return the command line that records a job, whose own follows it."""
        return self.command("run", "--quiet", *options, "--out", run, "--")


OURS = Build(ROOT)


class Cost(msgspec.Struct):
    """Cost of one command."""

    seconds: float
    cpu_s: float
    memory_mb: float
    """Zero where memory was not sampled."""


class Quartiles(NamedTuple):
    """Spread of a figure over rounds."""

    low: float
    median: float
    high: float


class CommandError(Exception):
    """A measured command has failed."""


def quartiles(values: Sequence[float]) -> Quartiles:
    """Compute the quartiles of one or more values."""
    if len(values) < 2:
        return Quartiles(*[values[0]] * 3)
    return Quartiles(*statistics.quantiles(values, n=4))


def use_bytecode(directory: Path) -> None:
    """Let all commands use bytecode, as an installed package has, from a directory."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")


def measure(
    command: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
    samples_memory: bool = False,
    limit_s: float | None = None,
) -> Cost:
    """Run a command and measure all of its processes.

    Args:
        command: the command line.
        environment: instead of that of this process.
        directory: where it runs; default: here.
        samples_memory: whether memory is measured; sampling takes CPU time of the machine.
        limit_s: time after which the command is killed.

    Raises:
        CommandError: it failed, or did not end within the limit.
    """
    before_s, start_s = children_cpu_s(), time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        peak_bytes = _wait(process, samples_memory, limit_s)
        elapsed_s = time.perf_counter() - start_s
        if process.returncode:
            errors.seek(0)
            raise CommandError(describe_failure(command, process.returncode, errors.read()))
    return Cost(elapsed_s, children_cpu_s() - before_s, peak_bytes / 1e6)


def _wait(process: subprocess.Popen[bytes], samples_memory: bool, limit_s: float | None) -> int:
    """Wait for a command, and return its largest memory in bytes."""
    peak_bytes, pause, start_s = 0, threading.Event(), time.monotonic()
    try:
        while samples_memory and process.poll() is None:
            peak_bytes = max(peak_bytes, sum_memory(process.pid))
            pause.wait(SAMPLE_S)
            if limit_s is not None and time.monotonic() - start_s > limit_s:
                raise subprocess.TimeoutExpired(process.args, limit_s)
        process.wait(limit_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CommandError(f"it did not end within {limit_s:.0f} s") from None
        raise
    return peak_bytes


def describe_failure(command: Sequence[str], status: int, errors: str) -> str:
    """Say in a sentence with what a command failed."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return f"`{Path(command[0]).name}` ended with {status}: {lines[-1] if lines else 'no message'}"


def children_cpu_s() -> float:
    """Read the CPU time of all processes that this one has waited for, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sum_memory(pid: int, parent_sizes: str = "") -> int:
    """Sum the proportional set sizes of a process and all its descendants, in bytes.

    Args:
        pid: the process.
        parent_sizes: sizes of its parent, which it has itself before it executes its program: until
            then it shares all memory of the parent (vfork).
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        threads = Path(f"/proc/{pid}/task").iterdir()
        for thread in threads:
            if thread.name != str(pid):
                children += (thread / "children").read_text().split()
    except (OSError, ProcessLookupError):
        return 0
    if text == parent_sizes:
        return 0
    size_bytes = 1024 * sum(
        int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")
    )
    return size_bytes + sum(sum_memory(int(child), text) for child in children)
