"""Watch of a node's ranks for progress: is the job stuck, and where is each rank?

A rank makes progress when a step or a collective ends, or when it starts a transfer to or from
another rank. If no rank of the node has made any for some time, while one waits in a collective,
has transfers or has died, every rank is asked for the state of its recorder and its stack
(`spool.page`), and the answers are written into the run. The ranks of other nodes are
asked by their monitors, and readers join the accounts. A rank for which those of another node wait
does not wait itself, so a node asks, too, where the run has an account of another one.

Before the first step, jobs wait for long: for one rank that downloads, loads or compiles. The ranks
are asked as early as later on, but the limit from which the job counts as stuck is much longer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stepscope import importers, schema, spool
from stepscope.monitor.hang_watch import (
    FIRST_STEP_FACTOR,
    MAX_STEPS,
    STEP_FACTOR,
    HangWatch,
    measure_step_ns,
)
from stepscope.monitor.process_accounts import NO_ANSWER, TIMEOUT_S, dump_stacks, make_frames
from stepscope.monitor.process_logs import DumpHeader, ProcessLogs, StartedTransfer

MIN_CALLS = 1000
"""Collectives and transfers of a rank that count as a first step, in jobs without known steps. Jobs
that broadcast each parameter at the start have some hundreds."""
ANSWER_TIMEOUT_S = 4.0
"""Time for ranks to answer; a thread that does not hold the interpreter lock needs one second."""
REPEAT_S = 15.0
"""Interval at which the ranks of a stuck job are asked again."""
LOOK_INTERVAL_S = 2.0
"""Interval at which an idle node reads the accounts of other nodes."""
MAX_END_COUNT = 2
"""Steps and collectives of a rank that may end while a stuck job is ended."""


class _Rank(msgspec.Struct):
    """One process with a page of collectives."""

    process: ProcessLogs
    page: spool.CollectivePage
    progress: tuple[int, int, int] = (-1, -1, -1)
    """Steps and collectives that have ended, and transfers that were started."""
    changes: deque[tuple[int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_STEPS))
    """Monotonic time and number of steps, at some changes."""

    @property
    def is_waiting(self) -> bool:
        """True while a collective that it has started has not ended."""
        return self.page.words[spool.STARTED_WORD] > self.page.words[spool.ENDED_WORD]

    @property
    def has_transfers(self) -> bool:
        """True if it has sent to other ranks or received from them: it may wait for one."""
        return self.page.words[spool.TRANSFERS_WORD] > 0

    @property
    def has_begun(self) -> bool:
        """True once it has ended a step, or as much as one."""
        steps, *calls = self.progress
        return steps > 0 or sum(calls) >= MIN_CALLS

    def look(self, now_ns: int) -> bool:
        """Read the page; True if the rank has made progress."""
        words = self.page.words
        steps = words[spool.FINISHED_STEPS_WORD]
        progress = steps, words[spool.ENDED_WORD], words[spool.TRANSFERS_WORD]
        if progress == self.progress:
            return False
        if steps != self.progress[0]:
            self.changes.append((now_ns, steps))
        self.progress = progress
        return True

    def step_ns(self) -> float | None:
        """Return the median step between two readings; None before the second step."""
        return measure_step_ns(self.changes)


class StuckWatch:
    """Watch of one node.

    Args:
        node: the node.
        stuck_after_s: time without progress from which the job is stuck.
        epoch_offset_ns: epoch time minus monotonic time of the node.
        write: stores an account.
        read: reads the accounts of all nodes in the run by name.
        incarnation_of: start of the job that a process is of. Only ranks of the latest count.
        hangs: watch of the processes of jobs that wait for none of their ranks; None without.
        now_ns: monotonic clock.
    """

    def __init__(
        self,
        node: str,
        stuck_after_s: float,
        epoch_offset_ns: int,
        *,
        write: Callable[[schema.StuckNode], None],
        read: Callable[[], Mapping[str, schema.StuckNode]],
        incarnation_of: Callable[[ProcessLogs], int],
        hangs: HangWatch | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._node = node
        self._stuck_after_ns = round(1e9 * stuck_after_s)
        self._offset_ns = epoch_offset_ns
        self._write = write
        self._read = read
        self._incarnation_of = incarnation_of
        self._hangs = hangs
        self._now_ns = now_ns
        self._known: dict[str, _Rank] = {}
        """Ranks of all incarnations."""
        self._ranks: dict[str, _Rank] = {}
        """Those of the latest."""
        self._progress_ns = now_ns()
        self._question = 0
        self._asked_ns: int | None = None
        self._written_ns: int | None = None
        self._next_look_ns = 0
        self._is_other_stuck = False
        """True if another node has an account that is not resolved, when it was read last."""
        self._last: schema.StuckNode | None = None
        self._stuck_count = 0
        """Steps, collectives and transfers of all ranks when it was last stuck."""

    @property
    def limit_ns(self) -> int:
        """Time without progress from which the job is stuck."""
        if not self._has_begun:
            return FIRST_STEP_FACTOR * self._stuck_after_ns
        steps = [step for rank in self._ranks.values() if (step := rank.step_ns()) is not None]
        return max(self._stuck_after_ns, round(STEP_FACTOR * max(steps, default=0.0)))

    @property
    def _has_begun(self) -> bool:
        return any(rank.has_begun for rank in self._ranks.values())

    def poll(self, processes: Iterable[ProcessLogs]) -> None:
        """Look for progress; ask the ranks where there is none, and store their answers.

        Raises:
            OSError: the account cannot be stored; the next call tries again.
        """
        now_ns, processes = self._now_ns(), list(processes)
        self._find_ranks(processes)
        changed = [rank for rank in self._ranks.values() if rank.look(now_ns)]
        moves = self._hangs is not None and self._hangs.look(processes, has_progress=bool(changed))
        if changed or (moves and self._is_hanging):
            self._resolve()
        if changed:
            self._progress_ns = now_ns
            return
        if not self._ranks or not self._has_question(now_ns - self._progress_ns):
            account = None if self._hangs is None else self._hangs.describe()
            if account is not None:
                self._store(account)
            return
        if self._asked_ns is None:
            if self._written_ns is None or now_ns - self._written_ns >= 1e9 * REPEAT_S:
                self._ask()
        elif self._have_all_answered() or now_ns - self._asked_ns >= 1e9 * ANSWER_TIMEOUT_S:
            self._store(self._describe())
            self._stuck_count = sum(sum(rank.progress) for rank in self._ranks.values())
            self._asked_ns, self._written_ns = None, now_ns

    @property
    def _is_hanging(self) -> bool:
        """True if the last account is of a job that waits for none of its ranks."""
        return self._last is not None and bool(self._last.processes)

    def _has_question(self, idle_ns: int) -> bool:
        """True if ranks that have made no progress for some time have to tell where they are."""
        if idle_ns < self._stuck_after_ns:
            return False
        limit_ns = self.limit_ns if self._has_begun else self._stuck_after_ns
        return (idle_ns >= limit_ns and self._is_someone_held_up()) or self._look_at_others()

    def _look_at_others(self) -> bool:
        """True if another node is stuck, as far as its account was read."""
        now_ns = self._now_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + round(1e9 * LOOK_INTERVAL_S)
            self._is_other_stuck = any(
                node.resolved_ns is None and not node.has_ended
                for name, node in self._read().items()
                if name != self._node
            )
        return self._is_other_stuck

    def finish(self, processes: Iterable[ProcessLogs], state: schema.JobState) -> None:
        """Store the last account of a job that has ended.

        Args:
            processes: processes of the job, whose last dumps were read.
            state: its last state.

        Raises:
            OSError: the account cannot be stored.
        """
        self._find_ranks(processes)
        if state is schema.JobState.COMPLETED:
            self._resolve()
        elif (
            self._last is not None and self._is_stuck_again() and self._is_cause(self._last, state)
        ):
            fields: dict[str, int | bool | None] = {"resolved_ns": None, "has_ended": True}
            if self._is_hanging:
                fields["seen_ns"] = self._now_ns() + self._offset_ns
            self._store(msgspec.structs.replace(self._last, **fields))
        elif state is schema.JobState.FAILED and self._ranks:
            account = self._describe()
            self._store(msgspec.structs.replace(account, has_ended=True, was_stuck=False))

    def _is_cause(self, last: schema.StuckNode, state: schema.JobState) -> bool:
        """True if the job may have ended because it was stuck, rather than for another cause while
        it waited for its first step."""
        is_open = last.resolved_ns is None
        is_first_step = state is schema.JobState.FAILED and not self._has_begun
        return last.has_reached_limit or (is_open and not is_first_step)

    def _is_stuck_again(self) -> bool:
        """True if the job has hardly moved since it was stuck: when one rank is killed, the others
        leave their collective."""
        if self._hangs is not None and self._is_hanging:
            return self._hangs.is_stuck_again()
        count = sum(sum(rank.progress) for rank in self._ranks.values())
        return count - self._stuck_count <= MAX_END_COUNT * len(self._ranks)

    def _find_ranks(self, processes: Iterable[ProcessLogs]) -> None:
        for process in processes:
            page = process.open_collective_page()
            if page is not None and process.name not in self._known:
                self._known[process.name] = _Rank(process, page)
        numbers = {name: self._incarnation_of(rank.process) for name, rank in self._known.items()}
        latest = max(numbers.values(), default=1)
        self._ranks = {n: rank for n, rank in self._known.items() if numbers[n] == latest}

    def _alive(self) -> list[_Rank]:
        return [rank for rank in self._ranks.values() if rank.process.is_alive()]

    def _is_someone_held_up(self) -> bool:
        """True if a rank waits in a collective or may wait for a transfer, or runs on after another
        one has died."""
        alive = self._alive()
        has_died = any(
            rank not in alive and rank.process.end is None for rank in self._ranks.values()
        )
        may_wait = any(rank.is_waiting or rank.has_transfers for rank in alive)
        return may_wait or (has_died and bool(alive))

    def _ask(self) -> None:
        self._asked_ns = self._now_ns()
        self._question += 1
        for rank in self._alive():
            rank.page.words[spool.QUESTION_WORD] = self._question

    def _have_all_answered(self) -> bool:
        return all(rank.page.words[spool.ANSWER_WORD] == self._question for rank in self._alive())

    def _resolve(self) -> None:
        """Note that the job goes on."""
        self._asked_ns = self._written_ns = None
        last = self._last
        if last is not None and last.resolved_ns is None:
            now_ns = self._now_ns() + self._offset_ns
            self._store(msgspec.structs.replace(last, resolved_ns=now_ns))

    def _store(self, account: schema.StuckNode) -> None:
        self._write(account)
        self._last = account

    def _describe(self) -> schema.StuckNode:
        groups: dict[str, list[int]] = {}
        descriptions: dict[str, str] = {}
        accounts = []
        deadline_ns = self._now_ns() + round(1e9 * TIMEOUT_S)
        for rank in self._ranks.values():
            process = rank.process
            if process.directory.is_dir():
                process.notes += process.dumps.read(process.directory.iterdir())
            calls: list[importers.RecordedCall] = []
            header: DumpHeader | None = None
            for header, recorded in process.dumps.latest.values():
                groups |= header.groups
                calls += recorded
            for call in calls:
                descriptions[call.process_group[0]] = call.process_group[1]
            account = self._describe_rank(rank, calls, header, groups, deadline_ns)
            if account is not None:
                accounts.append(account)
        accounts.sort(key=lambda account: account.rank)
        now_ns = self._now_ns()
        return schema.StuckNode(
            node=self._node,
            since_ns=self._progress_ns + self._offset_ns,
            seen_ns=now_ns + self._offset_ns,
            limit_ns=self.limit_ns,
            groups=groups,
            descriptions=descriptions,
            ranks=accounts,
        )

    def _describe_rank(
        self,
        rank: _Rank,
        calls: list[importers.RecordedCall],
        header: DumpHeader | None,
        groups: Mapping[str, list[int]],
        deadline_ns: int,
    ) -> schema.RankAccount | None:
        process = rank.process
        number = process.description.get("rank")
        if number is None and header is not None:
            number = header.rank
        if number is None:
            return None
        answer = process.dumps.last_answer
        has_answered = answer is not None and answer.question == self._question
        frames: list[schema.StackFrame] = []
        state, detail = _find_state(process, has_answered=has_answered)
        if has_answered and answer is not None:
            stacks = [stack for stack in answer.stacks if stack.is_main]
            frames = make_frames(frame for stack in stacks for frame in stack.frames)
        if state is schema.RankState.SILENT:
            dumped, problem = dump_stacks(process.pid, (deadline_ns - self._now_ns()) / 1e9)
            detail = f"{NO_ANSWER}; {problem}" if problem else NO_ANSWER
            frames = make_frames(frame for stack in dumped[:1] for frame in stack.frames)
        shift_ns = self._offset_ns + (0 if header is None else header.clock_ns)
        is_last = header is not None and header.reason == spool.DumpReason.END
        return schema.RankAccount(
            rank=number,
            process=process.name,
            pid=process.pid,
            state=state,
            detail=detail,
            frames=frames,
            calls=_make_calls(calls, process.dumps.transfers, groups, shift_ns, self._offset_ns),
            is_last_read=is_last or state is schema.RankState.ANSWERED,
            started_count=rank.page.words[spool.STARTED_WORD],
        )


def _find_state(process: ProcessLogs, *, has_answered: bool) -> tuple[schema.RankState, str]:
    """Find the state of a process, and what explains it."""
    if process.is_alive():
        if has_answered:
            return schema.RankState.ANSWERED, ""
        if spool.is_suspended(process.pid):
            return schema.RankState.SUSPENDED, ""
        return schema.RankState.SILENT, ""
    if process.end is None:
        return schema.RankState.KILLED, ""
    exception = process.end.get("exception")
    return (
        (schema.RankState.FAILED, str(exception)) if exception else (schema.RankState.FINISHED, "")
    )


def _make_calls(
    recorded: Iterable[importers.RecordedCall],
    transfers: Iterable[StartedTransfer],
    groups: Mapping[str, Sequence[int]],
    shift_ns: int,
    offset_ns: int,
) -> list[schema.CalledCollective]:
    """Make the calls of a rank. Of transfers, PyTorch's recorder knows more where it has any."""
    calls = [
        importers.make_called_collective(call, groups, shift_ns)
        for call in recorded
        if not call.is_p2p or call.peer is not None
    ]
    if all(call.peer is None for call in calls):
        calls += [
            schema.CalledCollective(
                group=transfer.group,
                number=transfer.number,
                kind=transfer.kind,
                sizes=transfer.sizes,
                dtypes=transfer.dtypes,
                has_ended=transfer.has_ended,
                t_ns=transfer.t_ns + offset_ns,
                peer=transfer.peer,
            )
            for transfer in transfers
        ]
    return sorted(calls, key=lambda call: call.t_ns)
