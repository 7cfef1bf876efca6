"""Watch for jobs that hang, whatever they do: on an event, a lock, a file system, a dead worker.

    progress    a step, a record of the job (an evaluated batch, a checkpoint, a batch of a
                worker), or a new process that records some, in any process
    waits       no progress, and hardly any CPU time or bytes in the whole job: stuck from the limit
                on
    computes    no progress, but CPU time. Stuck only if, for long, its samples show the few same
                stacks, in more than one call, or the few same lines of the user: a loop that does
                not end

The limit is `--stuck-after`, or more where the job's own steps and earlier pauses are long. Where
its stack shows that it evaluates, saves, compiles or sleeps, which ends by itself, the limit is
`PAUSE_FACTOR` times as long, and for loops too.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Protocol

import msgspec

from stepscope import schema, spool
from stepscope.monitor import process_accounts
from stepscope.monitor.process_logs import ProcessLogs, ThreadStack
from stepscope.monitor.process_progress import ProcessProgress
from stepscope.monitor.samplers.processes import JobProcess, children_of

STEP_FACTOR = 10
"""A job is stuck only after this multiple of its median step."""
FIRST_STEP_FACTOR = 20
"""Multiple of the time without progress from which a job is stuck before its first step."""
OWN_PAUSE_FACTOR = 2
"""Multiple of the job's longest earlier pause."""
PAUSE_FACTOR = 4
"""Multiple of the limit for work that takes long without progress, and for loops."""
LINES_FACTOR = 6
"""Multiple of the limit for loops that call libraries, whose stacks are many."""
MAX_IDLE_CORES = 0.05
MAX_IDLE_CORES_PER_PROCESS = 0.02
"""CPU time per time of a job that waits: that of its samplers, and of loops that poll."""
MAX_IDLE_BYTES = 1 << 20
"""Bytes that a job that waits reads and writes in half of the limit."""
MAX_LOOP_STACKS = 12
"""Limit on the different stacks of a loop that does not end."""
LEAD_NS = 2_000_000_000
"""Time before the limit at which the processes are asked: the samplers look once a second."""
MAX_SAMPLE_AGE_NS = 3_000_000_000
MIN_REPEAT_NS = 5_000_000_000
REPEAT_RATIO = 0.25
"""The account is made again after this share of the time without progress."""
MAX_SILENCE_NS = 5_000_000_000
"""Time without a look, because this process did not run, that does not count."""
MAX_STEPS = 64
MIN_STEPS = 5
"""Steps after which pauses are usual ones: the first steps take long, as libraries start."""
MAX_END_COUNT = 2
"""Steps that may end in a stuck job while it is ended."""
MAX_CHILDREN = 8
SLEEP_CHANNELS = ("nanosleep",)
PAUSE_FILES = ("torch/_dynamo/", "torch/_inductor/", "torch/serialization.py", "importlib")
PAUSE_WORDS = re.compile(
    r"eval|valid|checkpoint|ckpt|compil|export|predict|infer|generat|metric|score|(?:^|[._])"
    r"(?:save|load|download|upload|test|sample)(?:$|[._])|(?:^|[._])(?:save|load|dump|test)_",
    re.IGNORECASE,
)
"""Names of functions of work that takes long without steps."""
SERVING = re.compile(r"(?:^|\.)(?:serve_forever|run_forever|mainloop)$")
"""Functions that wait for requests: a server is not stuck."""


class _Use(msgspec.Struct, frozen=True):
    """Use of the machine by the job at one time."""

    t_ns: int
    cpu_s: float
    byte_count: int
    ticks: Mapping[int, int] = msgspec.field(default_factory=dict)
    """CPU time of the processes, in clock ticks."""
    sleeps: Mapping[int, int | None] = msgspec.field(default_factory=dict)
    """Number of waits of the main threads that sleep, by process."""


def measure_step_ns(changes: Iterable[tuple[int, int]]) -> float | None:
    """Measure the median step between readings of time and number of steps; None before the second
    step."""
    steps = [
        (later[0] - earlier[0]) / (later[1] - earlier[1])
        for earlier, later in pairwise(changes)
        if later[1] > earlier[1]
    ]
    return median(steps) if steps else None


class Job(Protocol):
    """Processes of a job on one node, as `JobTree` has them."""

    @property
    def processes(self) -> Mapping[int, JobProcess]: ...
    @property
    def cpu_seconds(self) -> float: ...


class _Answer(msgspec.Struct):
    question: int
    stacks: list[ThreadStack]


class HangWatch:
    """Watch of the processes of one node.

    Args:
        node: the node.
        stuck_after_s: time without progress from which a job is stuck.
        epoch_offset_ns: epoch time minus monotonic time of the node.
        job: all processes of the job on the node.
        read_names: reads the names that a process has written since the last call.
        now_ns: monotonic clock.
    """

    def __init__(
        self,
        node: str,
        stuck_after_s: float,
        epoch_offset_ns: int,
        *,
        job: Job,
        read_names: Callable[[ProcessLogs], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._node = node
        self._stuck_after_ns = round(1e9 * stuck_after_s)
        self._offset_ns = epoch_offset_ns
        self._job = job
        self._read_names = read_names
        self._now_ns = now_ns
        self._processes: dict[str, ProcessProgress] = {}
        self._progress_ns = self._looked_ns = now_ns()
        self._progress_steps = 0
        """Number of steps at the last progress."""
        self._steps: deque[tuple[int, int]] = deque(maxlen=MAX_STEPS)
        """Monotonic time and number of steps of all processes, at some changes."""
        self._max_pause_ns = 0
        """Longest time without progress after the first steps."""
        self._uses: deque[_Use] = deque(maxlen=1024)
        """Since the last progress."""
        self._question = 0
        self._asked_ns: int | None = None
        self._written_ns: int | None = None
        self._stuck_step_count = 0
        self._described: set[str] = set()
        """Processes of the last account: once one has ended, the others do not tell any more."""

    @property
    def step_count(self) -> int:
        """Steps that have ended in all processes of the job."""
        return sum(process.steps for process in self._processes.values())

    @property
    def limit_ns(self) -> int:
        """Time without progress from which a job that waits is stuck."""
        if not self.step_count:
            return FIRST_STEP_FACTOR * self._stuck_after_ns
        step_ns = round(STEP_FACTOR * (measure_step_ns(self._steps) or 0.0))
        return max(self._stuck_after_ns, step_ns, OWN_PAUSE_FACTOR * self._max_pause_ns)

    def look(self, processes: Iterable[ProcessLogs], *, has_progress: bool) -> bool:
        """Look for progress; True if there is some.

        Args:
            processes: recorded processes of the job.
            has_progress: ranks have made some.
        """
        now_ns = self._now_ns()
        if now_ns - self._looked_ns > MAX_SILENCE_NS:
            self._progress_ns += now_ns - self._looked_ns
        self._looked_ns = now_ns
        has_progress |= self._look_at_processes(processes)
        if has_progress:
            is_pause = now_ns - self._progress_ns > self._stuck_after_ns // 2
            if is_pause and self._progress_steps >= MIN_STEPS:
                self._max_pause_ns = max(self._max_pause_ns, now_ns - self._progress_ns)
            self._progress_ns, self._progress_steps = now_ns, self.step_count
            self._uses.clear()
            self._asked_ns = self._written_ns = None
            for process in self._processes.values():
                process.forget_stacks()
        elif now_ns - self._progress_ns > self._stuck_after_ns // 8:
            self._uses.append(self._read_use(now_ns))
        return has_progress

    def _look_at_processes(self, processes: Iterable[ProcessLogs]) -> bool:
        before, has_progress = self.step_count, False
        for process in processes:
            progress = self._processes.get(process.name)
            if progress is None:
                progress = self._processes[process.name] = ProcessProgress(process)
            if process.pid in self._job.processes:
                has_progress |= progress.look()
        if self.step_count != before:
            self._steps.append((self._now_ns(), self.step_count))
        return has_progress

    def describe(self) -> schema.StuckNode | None:
        """Describe the processes of a job that is stuck; None if it is not, until they have
        answered, and if they were described a moment ago."""
        now_ns = self._now_ns()
        idle_ns = now_ns - self._progress_ns
        if idle_ns + LEAD_NS < self._stuck_after_ns:
            return None
        alive = {process.process.name for process in self._alive()}
        if self._written_ns is not None and not self._described <= alive:
            return None  # the job ends: what is left of it does not tell where it was stuck
        for process in self._alive():
            self._read_names(process.process)
        limit_ns = self._find_limit_ns(now_ns)
        if limit_ns is None or idle_ns + LEAD_NS < limit_ns:
            self._asked_ns = None
            return None
        repeat_ns = max(MIN_REPEAT_NS, REPEAT_RATIO * idle_ns)
        if self._written_ns is not None and now_ns + LEAD_NS - self._written_ns < repeat_ns:
            return None
        if self._asked_ns is None:
            self._asked_ns = now_ns
            self._ask()
        has_time = not self._have_all_answered() and now_ns - self._asked_ns < 2 * LEAD_NS
        if idle_ns < limit_ns or has_time:
            return None
        self._asked_ns, self._written_ns = None, now_ns
        self._stuck_step_count = self.step_count
        self._described = {progress.process.name for progress in self._alive()}
        return schema.StuckNode(
            node=self._node,
            since_ns=self._progress_ns + self._offset_ns,
            seen_ns=now_ns + self._offset_ns,
            limit_ns=limit_ns,
            processes=self._describe_processes(),
        )

    def is_stuck_again(self) -> bool:
        """Return True if the job has hardly moved since it was stuck: it was ended."""
        return self.step_count - self._stuck_step_count <= MAX_END_COUNT

    def _alive(self) -> list[ProcessProgress]:
        members = self._job.processes
        return [
            progress
            for progress in self._processes.values()
            if progress.process.pid in members and progress.process.is_alive()
        ]

    def _find_limit_ns(self, now_ns: int) -> int | None:
        """Find the time without progress from which the job is stuck; None while it moves."""
        processes = self._alive()
        names = [name for p in processes for _, _, name in p.frames()]
        if any(SERVING.search(name) for name in names):
            return None
        limit_ns = self.limit_ns
        quiet_ns = now_ns - max([self._progress_ns, *(p.find_novelty_ns() for p in processes)])
        if self._is_busy(now_ns, limit_ns):
            if quiet_ns + LEAD_NS >= limit_ns and self._runs_in_loop(processes, now_ns):
                return PAUSE_FACTOR * limit_ns
            if now_ns - self._progress_ns + LEAD_NS < LINES_FACTOR * limit_ns:
                return None
            trained = [process for process in processes if process.steps] or processes
            since_ns = now_ns - PAUSE_FACTOR * limit_ns
            is_loop = all(process.returns_to_lines(since_ns) for process in trained)
            limit_ns *= LINES_FACTOR * (PAUSE_FACTOR if self._pauses(processes) else 1)
            return limit_ns if is_loop else None
        if quiet_ns + LEAD_NS < limit_ns // 2:
            return None
        return PAUSE_FACTOR * limit_ns if self._pauses(processes) else limit_ns

    def _is_busy(self, now_ns: int, limit_ns: int) -> bool:
        """Return True if the job has computed, read or written in the last half of the limit."""
        since_ns = now_ns - min(limit_ns, now_ns - self._progress_ns) // 2
        first = next((use for use in self._uses if use.t_ns >= since_ns), None)
        if first is None or now_ns <= first.t_ns:
            return True
        last = self._uses[-1]
        cores = (last.cpu_s - first.cpu_s) / (1e-9 * (now_ns - first.t_ns))
        max_cores = MAX_IDLE_CORES + MAX_IDLE_CORES_PER_PROCESS * len(self._alive())
        return cores > max_cores or last.byte_count - first.byte_count > MAX_IDLE_BYTES

    @staticmethod
    def _runs_in_loop(processes: list[ProcessProgress], now_ns: int) -> bool:
        """Return True if the samples of the training processes show few stacks again and again."""
        trained = [process for process in processes if process.steps] or processes
        return all(
            now_ns - process.sampled_ns < MAX_SAMPLE_AGE_NS
            and len(process.stacks) <= MAX_LOOP_STACKS
            and not process.runs_one_call()
            for process in trained
        )

    def _pauses(self, processes: list[ProcessProgress]) -> bool:
        """Return True if the job does what takes long and ends by itself."""
        frames = [frame for process in processes for frame in process.frames()]
        if any(PAUSE_WORDS.search(name) for _, _, name in frames):
            return True
        if any(part in file for file, _, _ in frames for part in PAUSE_FILES):
            return True
        latest = list(self._uses)[len(self._uses) // 2 :]
        slept = Counter(pid for use in latest for pid in use.sleeps)
        # One of the job's own processes that sleeps again and again does a little in between.
        if any(slept[process.process.pid] > len(latest) // 2 for process in processes):
            return True
        return any(
            latest[0].sleeps.get(pid) == count for pid, count in self._uses[-1].sleeps.items()
        )

    def _read_use(self, now_ns: int) -> _Use:
        pids = {process.process.pid for process in self._alive()}
        pids |= {pid for pid, p in self._job.processes.items() if p.parent_pid in pids}
        sleeping = [
            pid
            for pid in pids
            if any(name in process_accounts.read_wait(pid, pid)[1] for name in SLEEP_CHANNELS)
        ]
        return _Use(
            now_ns,
            self._job.cpu_seconds,
            sum(map(process_accounts.count_bytes, pids)),
            {pid: process.cpu_ticks for pid, process in self._job.processes.items()},
            {pid: process_accounts.count_waits(pid) for pid in sleeping},
        )

    def _ask(self) -> None:
        self._question += 1
        for process in self._alive():
            try:
                spool.ask_for_stacks(str(process.process.directory), self._question)
            except OSError:  # the spool is full, or the process was drained
                continue

    def _have_all_answered(self) -> bool:
        return all(self._read_answer(process) is not None for process in self._alive())

    def _read_answer(self, process: ProcessProgress) -> list[ThreadStack] | None:
        content = spool.read_answer(str(process.process.directory))
        try:
            answer = msgspec.json.decode(content, type=_Answer)
        except schema.MALFORMED_JSON:
            return None
        return answer.stacks if answer.question == self._question else None

    def _describe_processes(self) -> list[schema.ProcessAccount]:
        deadline_ns = self._now_ns() + round(1e9 * process_accounts.TIMEOUT_S)
        alive = {process.process.pid: process for process in self._alive()}
        accounts = [self._describe_process(process, deadline_ns) for process in alive.values()]
        siblings = {
            (progress.process.description.get("parent_pid"), progress.process.role)
            for progress in alive.values()
        }
        for progress in self._processes.values():
            process = progress.process
            parent = process.description.get("parent_pid")
            # Workers of an earlier epoch have ended, and no other processes take their place.
            has_ended = process.pid not in alive and process.end is None and parent in alive
            if has_ended and (parent, process.role) not in siblings:
                accounts.append(_describe_dead(process))
        described = {account.pid for account in accounts}
        children = [(p.pid, p.parent_pid) for p in self._job.processes.values()]
        children += [(child, parent) for parent in alive for child in children_of(parent)]
        unrecorded = dict(p for p in children if p[1] in alive and p[0] not in described)
        for pid, parent in list(unrecorded.items())[:MAX_CHILDREN]:
            accounts.append(process_accounts.describe_unrecorded(pid, parent))
        return accounts

    def _describe_process(
        self, progress: ProcessProgress, deadline_ns: int
    ) -> schema.ProcessAccount:
        process, pid = progress.process, progress.process.pid
        stacks, detail, state = self._read_answer(progress), "", schema.RankState.ANSWERED
        sampled = progress.frames()
        if stacks is None and spool.is_suspended(pid):
            state = schema.RankState.SUSPENDED
        elif stacks is None:
            is_sampled = self._now_ns() - progress.sampled_ns < MAX_SAMPLE_AGE_NS
            state = schema.RankState.ANSWERED if is_sampled else schema.RankState.SILENT
            stacks, detail = process_accounts.dump_stacks(pid, (deadline_ns - self._now_ns()) / 1e9)
        if not stacks and sampled:
            stacks = [ThreadStack(thread="MainThread", is_main=True, frames=sampled)]
        threads = process_accounts.describe_threads(pid, _put_sampled_first(stacks or [], sampled))
        workers = schema.decode_facts(process.facts, schema.DataLoaderWorkerFact)
        member, last = self._job.processes.get(pid), progress.last
        return schema.ProcessAccount(
            pid=pid,
            parent_pid=process.description.get("parent_pid", 0)
            if member is None
            else member.parent_pid,
            role=process.role,
            state=state,
            detail="" if any(thread.frames for thread in threads) else detail,
            rank=process.description.get("rank"),
            worker=workers[-1].worker if workers else None,
            command=process_accounts.describe_command(pid),
            has_trained=progress.steps > 0,
            cpu_ratio=self._measure_cpu(pid),
            stack_since_ns=None if last is None else progress.changed_ns + self._offset_ns,
            threads=threads,
        )

    def _measure_cpu(self, pid: int) -> float | None:
        """Measure the CPU time of a process since the last progress, as a share of one core."""
        if len(self._uses) < 2:
            return None
        first, last = self._uses[0], self._uses[-1]
        if pid not in first.ticks or pid not in last.ticks:
            return None
        seconds = 1e-9 * (last.t_ns - first.t_ns)
        return (last.ticks[pid] - first.ticks[pid]) / process_accounts.TICKS_PER_S / seconds


def _describe_dead(process: ProcessLogs) -> schema.ProcessAccount:
    workers = schema.decode_facts(process.facts, schema.DataLoaderWorkerFact)
    return schema.ProcessAccount(
        pid=process.pid,
        parent_pid=process.description.get("parent_pid", 0),
        role=process.role,
        state=schema.RankState.KILLED,
        worker=workers[-1].worker if workers else None,
    )


def _put_sampled_first(
    stacks: list[ThreadStack], sampled: list[tuple[str, int, str]]
) -> list[ThreadStack]:
    """Sort the stacks of a process: that of the sampled thread, which trains, is the first."""

    def shares(stack: ThreadStack) -> int:
        functions = {(file, name) for file, _, name in stack.frames}
        return sum((file, name) in functions for file, _, name in sampled)

    return sorted(stacks, key=lambda stack: (-shares(stack), not stack.is_main))
