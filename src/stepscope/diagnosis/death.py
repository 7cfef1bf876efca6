"""Account of a job that ended badly: of what it died, where and after how many steps.

The monitor of each node stores how the job ended there (`schema.NodeDeath`). This module finds the
process that ended first, its cause where evidence has one, and writes sentences.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from stepscope import schema
from stepscope.diagnosis.death_causes import (
    ADVICE,
    CRASH_SIGNALS,
    FRAGMENTED_ADVICE,
    PARTIAL_WRITE,
    Death,
    DeathCause,
    Failure,
    LinuxSignal,
    explain_failure,
    is_fragmented,
    is_lost_peer,
    names_full_disk,
    read_root_cause,
)
from stepscope.diagnosis.stuck_account import find_user_frame
from stepscope.quantities import count_of, duration, memory
from stepscope.run import Run, job_state, process_names, read_rank_ends

SHELL_SIGNAL_STATUS = 128
"""Shells exit with this plus the number of the signal that ended their command."""
FRAMEWORKS = frozenset(["jax", "keras", "tensorflow", "torch", "xgboost"])
"""A job that uses one of them was going to train."""
FULL_RATIO = 0.95
"""Share of the memory from which it counts as full where the kernel does not say what it killed."""
MAX_LISTED = 3
MAX_QUOTED = 100
"""Characters of a message that is quoted beside the first one."""
_OWN_FILES = re.compile(r"/stepscope/capture/")
"""Code of stepscope that calls what it has replaced in a framework."""


def find_death(run: Run) -> Death | None:
    """Find out of what a job died; None for one that runs, has succeeded or was stopped on
    request."""
    statuses = run.reader.statuses()
    deaths = run.reader.documents(schema.DEATHS, schema.NodeDeath)
    latest = max((status.incarnation for status in statuses.values()), default=1)
    ended = {
        node: status
        for node, status in statuses.items()
        if status.incarnation == latest and _is_death(status, deaths.get(node))
    }
    state = job_state(statuses.values())
    if not ended or state is None or not state.is_final:
        return None
    node = min(ended, key=lambda node: _first_ns(ended[node], deaths.get(node)))
    death = deaths.get(node) or schema.NodeDeath(node=node)
    return _Account(run=run, node=node, status=ended[node], death=death).build()


def _is_death(status: schema.JobStatus, death: schema.NodeDeath | None) -> bool:
    """Check that a job died: it failed, or it ended by a signal that was passed on to it. Who
    interrupts a job at the terminal knows that."""
    if status.state is schema.JobState.STOPPED:
        is_forwarded = death is not None and death.is_forwarded
        return is_forwarded and status.signal not in {None, LinuxSignal.SIGINT}
    return status.state is schema.JobState.FAILED


def _first_ns(status: schema.JobStatus, death: schema.NodeDeath | None) -> int:
    failures = () if death is None else death.failures
    times = [failure.t_ns for failure in failures if failure.t_ns and not failure.is_relayed]
    return min(times, default=status.end_ns or status.heartbeat_ns)


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the end of the job on the node where it ended first."""

    run: Run
    node: str
    status: schema.JobStatus
    death: schema.NodeDeath

    def build(self) -> Death:
        status = self.status
        direct = [f for f in self.death.failures if not f.is_relayed and f.exception]
        if status.signal is not None:
            exception = next((f for f in direct if f.pid == status.pid), None)
            if exception is None or status.signal not in CRASH_SIGNALS:
                process = self._find_process(status.pid)
                return self._explain_signal(status.signal, process, "the job")
            # Native code often aborts when the interpreter ends after an exception.
            death = self._explain_exception(exception, [])
            then = f"{_name_signal(status.signal)} ended the process after the exception."
            return msgspec.structs.replace(
                death, signal=status.signal, evidence=[*death.evidence, then]
            )
        root = next(filter(None, map(read_root_cause, self.death.failures)), None)
        lost = self._find_killed_rank() if direct and is_lost_peer(direct[0]) else None
        if lost is not None and (root is None or root[0] == lost.rank):
            number = -root[1] if root is not None and root[1] < 0 else None
            return self._explain_killed_rank(lost, lost.rank, number)
        if direct:
            return self._explain_exception(direct[0], direct[1:])
        if root is not None:
            return self._explain_killed_rank(self._find_process(root[2]), root[0], -root[1])
        relayed = next((f for f in self.death.failures if f.is_relayed), None)
        return self._explain_status(relayed)

    def _explain_signal(
        self, number: int, process: schema.ProcessInfo | None, subject: str
    ) -> Death:
        name = _name_signal(number)
        cause, reason, evidence = self._judge_signal(number)
        crashes = [f for f in self.death.failures if not f.exception and number in CRASH_SIGNALS]
        matches = [f for f in crashes if process is not None and f.pid == process.pid]
        frames = (matches or crashes)[-1].frames if crashes else []
        location, function = self._locate(frames)
        at = f", at {location} in {function}" if location else ""
        suffix = ""
        if not location:
            location, function, suffix, age = self._find_last_line(process)
            evidence += age
        step_count = self._count_steps(process)
        return self._make(
            cause,
            f"{name} ended {subject}{_after(step_count)}{at}{reason}{suffix}.",
            number=number,
            rank=None if process is None else process.rank,
            step_count=step_count,
            location=location,
            function=function,
            evidence=evidence,
        )

    def _judge_signal(self, number: int) -> tuple[DeathCause, str, list[str]]:
        """Return the cause of a signal, how the headline continues, and the evidence."""
        if number in CRASH_SIGNALS:
            return "crash", "", []
        if self.death.is_forwarded:
            return "outside_signal", ": stepscope received it and passed it on", []
        if number != LinuxSignal.SIGKILL:
            return "outside_signal", ", sent by a process", []
        return self._judge_kill()

    def _judge_kill(self) -> tuple[DeathCause, str, list[str]]:
        """Return the same for signal 9, by which the kernel ends processes for want of memory."""
        kills, level = self._count_kills(), self._read_memory()
        evidence = self._describe_kills()
        is_of_job = self.death.group_kill_count is not None
        if kills and (is_of_job or level is None or level.ratio >= FULL_RATIO):
            at = ": the memory was full" if level is None else f", with memory at {level.text}"
            return "host_memory", at, evidence
        if level is None:
            sender = "" if kills is None else ", sent by a process"
            return "outside_signal", sender, evidence
        if level.ratio >= FULL_RATIO and kills is None:
            text = "The kernel does not say here whether it has killed a process for that."
            return "host_memory", f", with memory at {level.text}", [text, *evidence]
        short = f"The machine was not short of memory, which was at {level.text}."
        return "outside_signal", ", sent by a process", [short, *evidence]

    def _count_kills(self) -> int | None:
        """Count kills for want of memory of the job, of the machine where that is not known."""
        kills = self.death.group_kill_count
        return self.death.machine_kill_count if kills is None else kills

    def _describe_kills(self) -> list[str]:
        kills = self._count_kills()
        if kills is None:
            return []
        number = count_of(kills, "process", "processes") if kills else "no process"
        suffix = "" if self.death.group_kill_count is not None else " on this machine"
        return [f"The kernel has killed {number}{suffix} for want of memory while the job ran."]

    def _explain_killed_rank(
        self, process: schema.ProcessInfo | None, rank: int | None, number: int | None
    ) -> Death:
        """Explain the end of a job whose rank was killed, or exited without an exception."""
        name = f"rank {rank}" if rank is not None else "a process"
        if number is not None and number > 0:
            death = self._explain_signal(number, process, f"{name}, and the job with it,")
            return msgspec.structs.replace(death, rank=rank)
        step_count = self._count_steps(process)
        location, function, suffix, age = self._find_last_line(process)
        end = "was killed" if number is None else f"exited with status {-number}"
        return self._make(
            "exit_status",
            f"{name.capitalize()} {end}{_after(step_count)}, and the job ended with it{suffix}.",
            number=None,
            rank=rank,
            step_count=step_count,
            location=location,
            function=function,
            evidence=[*age, *self._list_later(self.death.failures)],
        )

    def _explain_exception(
        self, first: schema.ProcessFailure, later: Sequence[schema.ProcessFailure]
    ) -> Death:
        failure = explain_failure(first)
        process = self._find_process(first.pid, failure.spawned)
        step_count = self._count_steps(process)
        location, function = self._locate([*failure.frames, *first.frames])
        rank = None if process is None else process.rank
        at = f", at {location} in {function}" if location else ""
        message = f": {failure.message}" if failure.message else ""
        subject = f"{failure.exception}{_place(failure, rank, self._world_size())}"
        evidence, advice = self._examine(failure, first)
        return self._make(
            failure.cause,
            f"{subject} ended the job{_after(step_count)}{at}{message.rstrip('. ')}.",
            number=None,
            rank=rank,
            step_count=step_count,
            location=location,
            function=function,
            exception=failure.exception,
            message=failure.message,
            worker=failure.worker,
            evidence=[*evidence, *self._list_later(later)],
            advice=advice,
        )

    def _examine(
        self, failure: Failure, first: schema.ProcessFailure
    ) -> tuple[list[str], list[str]]:
        """Return evidence and further advice for the cause of an exception."""
        if failure.cause == "shared_memory" and first.shared_memory_bytes is not None:
            size, free = memory(first.shared_memory_bytes), memory(first.shared_memory_free_bytes)
            return [f"Shared memory (/dev/shm) has {size}; {free} were free at the end."], []
        if failure.cause == "disk_full" and not names_full_disk(first):
            return [PARTIAL_WRITE], []
        if failure.cause == "device_memory":
            advice = [FRAGMENTED_ADVICE] if is_fragmented(failure.message) else []
            return self._describe_devices(), advice
        if failure.cause in {"host_memory", "worker_killed"}:
            level = self._read_memory()
            at = [] if level is None else [f"Memory was at {level.text}."]
            return [*self._describe_kills(), *at], []
        return [], []

    def _explain_status(self, relayed: schema.ProcessFailure | None) -> Death:
        """Explain the end of a job of which only the exit status is known."""
        code, process = self.status.exit_code, self._find_process(self.status.pid)
        number = (code or 0) - SHELL_SIGNAL_STATUS
        if number in set(LinuxSignal):
            death = self._explain_signal(number, None, "a process of the job")
            status = f"The command exited with status {code}, as shells do after signal {number}."
            return msgspec.structs.replace(death, evidence=[status, *death.evidence])
        step_count = self._count_steps(process)
        location, function, suffix, age = self._find_last_line(process)
        subject = "The job failed" if code is None else f"The job exited with status {code}"
        reason = []
        if relayed is not None:
            reason = [f"Its launcher ended with {relayed.exception}: {relayed.message}"]
        elif process is not None:
            reason = ["No exception was recorded: the script ended itself, or printed one."]
        return self._make(
            "exit_status",
            f"{subject}{_after(step_count)}{suffix}.",
            number=None,
            rank=None,
            step_count=step_count,
            location=location,
            function=function,
            evidence=[*reason, *age, *self._quote_output()],
        )

    def _quote_output(self) -> list[str]:
        """Quote the last line of the error output."""
        line = next((line.strip() for line in reversed(self.death.output) if line.strip()), "")
        return [f"The last line of the error output: {line[:MAX_QUOTED]}"] if line else []

    def _make(
        self,
        cause: DeathCause,
        headline: str,
        *,
        number: int | None,
        rank: int | None,
        step_count: int | None,
        location: str,
        function: str,
        evidence: Sequence[str],
        advice: Sequence[str] = (),
        exception: str = "",
        message: str = "",
        worker: int | None = None,
    ) -> Death:
        return Death(
            cause=cause,
            headline=headline,
            exit_code=self.status.exit_code,
            signal=number,
            exception=exception,
            message=message,
            rank=rank,
            worker=worker,
            step_count=step_count,
            location=location,
            function=function,
            evidence=list(evidence),
            advice=[*([ADVICE[cause]] if cause in ADVICE else []), *advice],
            output=self.death.output,
            output_missing=self.death.output_missing,
        )

    def _find_process(
        self, pid: int | None, spawned: int | None = None
    ) -> schema.ProcessInfo | None:
        """Find a process, or one of those that it has spawned by its number."""
        processes = [p for p in self.run.reader.processes() if p.node == self.node]
        images = [process for process in processes if process.pid == pid]
        children = [p for p in processes if p.parent_pid == pid and p.role == "main"]
        children.sort(key=lambda process: process.pid)  # times of launches have 10 ms
        if spawned is not None and spawned < len(children):
            return children[spawned]
        return max(images, key=lambda process: process.started_ns, default=None)

    def _find_killed_rank(self) -> schema.ProcessInfo | None:
        """Find the rank that was killed first, by its last record."""
        ends = read_rank_ends(self.run)
        killed = [
            process
            for process in self.run.processes
            if process.process in self.death.killed and process.rank in ends
        ]
        return min(killed, key=lambda p: ends[p.rank or 0].last_ns, default=None)

    def _world_size(self) -> int:
        return max((process.world_size or 1 for process in self.run.processes), default=1)

    def _count_steps(self, process: schema.ProcessInfo | None) -> int | None:
        """Count the complete steps of a process, of the rank with most of them for one that does
        not train itself; None for a job of which nothing shows that it trains."""
        ranks = self.run.ranks
        if process is not None and process.role == "main":
            ranks = [rank for rank in ranks if rank.process.process == process.process]
        if ranks:
            return max(len(rank.steps) for rank in ranks)
        names: set[str] = set()
        for one in self.run.reader.processes():
            names |= {*one.versions}.union(*(f.uses for f in one.facts_of(schema.FunctionFact)))
        return 0 if self.run.ranks or names & FRAMEWORKS else None

    def _locate(self, frames: Sequence[schema.StackFrame]) -> tuple[str, str]:
        """Return file and line, and the function, of the innermost frame of the user's code."""
        frame = find_user_frame([frame for frame in frames if not _OWN_FILES.search(frame.file)])
        if frame is None:
            return "", ""
        return f"{self._shorten(frame.file)}:{frame.line}", frame.function

    def _shorten(self, file: str) -> str:
        """Return the path of a file from the working directory of the job, if it is below that."""
        directory = self.run.reader.info.working_directory
        path = os.path.relpath(file, directory) if pathlib.Path(file).is_absolute() else file
        return file if path.startswith("..") else path

    def _find_last_line(
        self, process: schema.ProcessInfo | None
    ) -> tuple[str, str, str, list[str]]:
        """Return file and line, and the function, at which the main thread of a process was sampled
        last, the end of a headline that says so, and the age of the sample as evidence."""
        if process is None or not self.run.reader.has("stacks"):
            return "", "", "", []
        rows = self.run.reader.sql(
            "SELECT t_ns, stack, user_line FROM stacks WHERE process = ? "
            "ORDER BY t_ns DESC LIMIT 1",
            (process.process,),
        )
        if not len(rows["t_ns"]):
            return "", "", "", []
        frames = [part.split("|") for part in str(rows["stack"][0]).split(";")]
        users = [frame for frame in frames if len(frame) == 3 and not frame[2]]
        line = int(rows["user_line"][0])
        if not users or line <= 0:
            return "", "", "", []
        function = re.sub(r"<call \d+>|<generator>", "", users[-1][0])
        location = f"{self._shorten(users[-1][1])}:{line}"
        age = []
        if process.pid == self.status.pid and self.status.end_ns is not None:
            age_ns = max(0, self.status.end_ns - int(rows["t_ns"][0]))
            age = [f"The last sample of its stack is from {duration(age_ns)} before the end."]
        return location, function, f"; last seen at {location} in {function}", age

    def _list_later(self, failures: Sequence[schema.ProcessFailure]) -> list[str]:
        """Say which processes failed after the first one."""
        lines = []
        for failure in failures:
            process = self._find_process(failure.pid)
            if process is not None and not failure.is_relayed and failure.exception:
                name = process_names(self.run)[process.process]
                title = name[:1].upper() + name[1:]
                message = f": {failure.message[:MAX_QUOTED]}" if failure.message else ""
                lines.append(f"{title} failed afterwards with {failure.exception}{message}")
        return lines[:MAX_LISTED]

    def _read_memory(self) -> _MemoryLevel | None:
        """Read the last sample of the memory of the machine, or of the job's own where a limit
        applies to it."""
        metrics, info = self.run.metrics.get(self.node), self.run.nodes.get(self.node)
        if metrics is None or info is None:
            return None
        used = (
            metrics.series("memory_used_bytes").tolist()
            if info.memory_limit_bytes is None
            else metrics.series("cgroup_memory_used_bytes").tolist() or self._sum_processes()
        )
        limit = info.memory_limit_bytes or info.memory_bytes
        if not len(used) or limit is None:
            return None
        return _MemoryLevel(used[-1], limit)

    def _sum_processes(self) -> list[float]:
        """Sum the resident memory of the processes of the job, by time."""
        metrics = self.run.metrics.get(self.node)
        series = metrics.load("process_memory_bytes") if metrics is not None else {}
        total: dict[int, float] = {}
        for device in series.get("process_memory_bytes", {}).values():
            for t_ns, value in zip(device.t_ns.tolist(), device.value.tolist(), strict=True):
                total[t_ns] = total.get(t_ns, 0.0) + value
        return [total[t_ns] for t_ns in sorted(total)]

    def _describe_devices(self) -> list[str]:
        """Say how full the memory of each device was in the last sample."""
        metrics, info = self.run.metrics.get(self.node), self.run.nodes.get(self.node)
        if metrics is None or info is None:
            return []
        sizes: Mapping[str, int] = {
            str(gpu["index"]): gpu["memory_bytes"] for gpu in info.gpus if "memory_bytes" in gpu
        }
        return [
            f"GPU {device} held {memory(float(series.value[-1]))} of {memory(sizes[device])} in "
            "the last sample."
            for device, series in metrics.load("gpu_memory_used_bytes")[
                "gpu_memory_used_bytes"
            ].items()
            if device in sizes and len(series.value)
        ]


class _MemoryLevel(msgspec.Struct, frozen=True):
    used_bytes: float
    limit_bytes: int

    @property
    def ratio(self) -> float:
        return self.used_bytes / self.limit_bytes

    @property
    def text(self) -> str:
        return f"{memory(self.used_bytes)} of {memory(self.limit_bytes)}"


def _name_signal(number: int) -> str:
    try:
        return f"Signal {number} ({LinuxSignal(number).name})"
    except ValueError:
        return f"Signal {number}"


def _after(step_count: int | None) -> str:
    """Describe the time of the end in steps, to follow "ended the job"."""
    if step_count is None:
        return ""
    return f" after {count_of(step_count, 'step')}" if step_count else " before any training step"


def _place(failure: Failure, rank: int | None, world_size: int) -> str:
    """Name the process of an exception, to follow its type."""
    in_worker = "" if failure.worker is None else f" in DataLoader worker {failure.worker}"
    if rank is not None and world_size > 1:
        return f"{in_worker} on rank {rank}"
    return in_worker if failure.spawned is None else f" in spawned process {failure.spawned}"
