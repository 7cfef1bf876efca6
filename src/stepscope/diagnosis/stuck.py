"""Account of a job that is stuck, or that failed because its ranks did not meet in a collective.

The monitor of each node stores what its ranks told it (`schema.stuck`). This module joins the
nodes, finds the collective and the ranks that the others wait for, and writes sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from stepscope.analysis import (
    Call,
    StuckCollective,
    find_last_collective,
    find_stuck_collective,
)
from stepscope.quantities import count_of, duration
from stepscope.run import RankEnd, Run, read_rank_ends
from stepscope.schema import (
    STUCK,
    CalledCollective,
    RankAccount,
    RankState,
    StackFrame,
    StuckNode,
    field_label,
    library_of,
)
from stepscope.store import RunReader

CHECKPOINT_FILES = ("torch/serialization.py", "safetensors/torch.py")
CHECKPOINT_PACKAGES = ("torch/distributed/checkpoint/",)
MAX_LISTED = 8
"""Ranks that are described one by one."""
MIN_FIRST_NS = 60_000_000
"""Time before the others from which a rank has ended first: stacks are sampled every 50 ms."""

UNHEARD_NS = 10_000_000_000
"""Time after the limit from which a rank without an account was not heard of: the monitors of all
nodes ask their ranks within some seconds."""

RankRole = Literal["waits", "missing", "differs", "ended first", "elsewhere"]
StuckKind = Literal["missing", "differs", "ended first", "checkpoint"]


class StuckRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a job that is stuck."""

    rank: int
    node: str
    role: RankRole
    """waits (for others), missing (has not called the collective), differs (has called something
    else), ended first, or elsewhere."""
    state: RankState
    collective: str
    """Last collective that it has called; empty if unknown."""
    location: str
    """Line of the user's code at which it is; empty if unknown."""
    text: str
    """Sentence on the rank."""


class StuckAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Collective at which a job is stuck or has failed, and the ranks that are to blame."""

    kind: StuckKind
    """missing, differs, ended first, or checkpoint: ranks wait for one that writes a checkpoint,
    which is no fault."""
    headline: str
    has_ended: bool
    """True if the job has ended; false while it is stuck."""
    since_ns: Annotated[int, field_label("last progress", unit="epoch_ns")]
    duration_ns: int
    """Time without progress."""
    group: str
    """Name of the process group."""
    number: Annotated[int, field_label(display="identifier")]
    """Number of the collective within the group, from 1."""
    collective: str
    """Kind, sizes and types."""
    culprits: Annotated[list[int], field_label(display="identifier")]
    """Ranks that have not arrived, differ or ended first; empty where nothing tells."""
    ranks: list[StuckRank]

    @property
    def is_stuck(self) -> bool:
        """True while the job is stuck; False for a checkpoint, and after the end."""
        return not self.has_ended and self.kind != "checkpoint"

    @property
    def lines(self) -> list[str]:
        """Sentences on the ranks, those that are to blame first."""
        order = sorted(self.ranks, key=lambda rank: (rank.rank not in self.culprits, rank.rank))
        lines = [rank.text for rank in order[:MAX_LISTED]]
        more = len(order) - MAX_LISTED
        return [*lines, f"{count_of(more, 'more rank')}."] if more > 0 else lines


def read_stuck_nodes(reader: RunReader) -> dict[str, StuckNode]:
    """Read the accounts of the nodes that make no progress. A node that takes no part in the latest
    incarnation of the job may have left one behind, which counts no more."""
    nodes, statuses = reader.documents(STUCK, StuckNode), reader.statuses()
    latest = max((status.incarnation for status in statuses.values()), default=1)
    return {
        name: node
        for name, node in nodes.items()
        if node.resolved_ns is None
        and (name not in statuses or statuses[name].incarnation == latest)
    }


def find_stuck(run: Run) -> StuckAccount | None:
    """Find out at which collective a job is stuck, or has failed; None if it is not."""
    nodes = read_stuck_nodes(run.reader)
    if not nodes:
        return None
    if not any(node.was_stuck for node in nodes.values()):
        hosts = {name: info.host or name for name, info in run.nodes.items()}
        return _explain_end(nodes, read_rank_ends(run), hosts)
    return explain_stuck(nodes)


def explain_stuck(nodes: dict[str, StuckNode]) -> StuckAccount | None:
    """Explain why a job makes no progress, or made none until it ended; None if no rank waits for
    another."""
    accounts = _join(nodes)
    calls = {rank: _make_calls(account.calls) for rank, (_, account) in accounts.items()}
    stuck = find_stuck_collective(calls, _join_groups(nodes))
    if stuck is None:
        return None
    if not (stuck.missing or stuck.differing or (stuck.unknown and _have_reported(nodes))):
        return None
    return _make_account(nodes, accounts, stuck, first=None)


def _have_reported(nodes: dict[str, StuckNode]) -> bool:
    """Check that all nodes had time to tell where their ranks are."""
    since_ns = max(node.since_ns for node in nodes.values())
    seen_ns = max(node.seen_ns for node in nodes.values())
    limit_ns = max(node.limit_ns for node in nodes.values())
    has_ended = all(node.has_ended for node in nodes.values())
    return has_ended or seen_ns - since_ns >= limit_ns + UNHEARD_NS


def _explain_end(
    nodes: dict[str, StuckNode], ends: dict[int, RankEnd], hosts: dict[str, str]
) -> StuckAccount | None:
    """Explain a failed job by the last collectives of its ranks, or the rank that ended first."""
    accounts = _join(nodes)
    has_one_clock = len({hosts.get(node, node) for node, _ in accounts.values()}) == 1
    first = _find_first(accounts, ends) if has_one_clock else None
    stuck = None
    if all(account.is_last_read for _, account in accounts.values()):
        recorded = {rank: _make_calls(account.calls) for rank, (_, account) in accounts.items()}
        stuck = find_last_collective(recorded, _join_groups(nodes))
    elif _agree_before_last(ends):
        stuck = find_last_collective({rank: end.calls for rank, end in ends.items()}, {})
    if stuck is not None and not stuck.differing and first is None:
        first = stuck.missing[0] if len(stuck.missing) == 1 else None
    if stuck is None or not stuck.differing:
        if first is None:
            return None
        waiting = [rank for rank in accounts if rank != first]
        call = _last_call(accounts, waiting)
        if call is None:
            return None
        stuck = StuckCollective(
            call=call, waiting=waiting, missing=[first], differing=[], is_tied=False
        )
        return _make_account(nodes, accounts, stuck, first=first)
    return _make_account(nodes, accounts, stuck, first=None)


def _agree_before_last(ends: dict[int, RankEnd]) -> bool:
    """Check that all ranks made the same calls before the last one, so that the n-th call of one
    rank belongs to the n-th of another."""
    if len(ends) < 2 or any(not end.calls for end in ends.values()):
        return False
    shortest = min(len(end.calls) for end in ends.values()) - 1
    signatures = [[call.signature for call in end.calls[:shortest]] for end in ends.values()]
    return all(sequence == signatures[0] for sequence in signatures)


def _find_first(
    accounts: dict[int, tuple[str, RankAccount]], ends: dict[int, RankEnd]
) -> int | None:
    """Find the rank whose last record is earlier than those of all others; None without one. The
    times are compared, so they have to be of one clock."""
    times = sorted((end.last_ns, rank) for rank, end in ends.items() if rank in accounts)
    if len(times) < 2 or len(times) < len(accounts) or times[1][0] - times[0][0] < MIN_FIRST_NS:
        return None
    _, account = accounts[times[0][1]]
    return times[0][1] if account.state in {RankState.KILLED, RankState.FAILED} else None


def _last_call(accounts: dict[int, tuple[str, RankAccount]], ranks: Sequence[int]) -> Call | None:
    calls = [call for rank in ranks for call in _make_calls(accounts[rank][1].calls)]
    return max(calls, key=lambda call: call.t_ns, default=None)


def _join(nodes: dict[str, StuckNode]) -> dict[int, tuple[str, RankAccount]]:
    """Join the ranks of all nodes; of a rank that was started again, the last process counts."""
    joined: dict[int, tuple[str, RankAccount]] = {}
    for name, node in nodes.items():
        for account in node.ranks:
            earlier = joined.get(account.rank)
            if earlier is None or _is_later(account, earlier[1]):
                joined[account.rank] = name, account
    return dict(sorted(joined.items()))


def _is_later(account: RankAccount, earlier: RankAccount) -> bool:
    return _start_ticks(account.process) > _start_ticks(earlier.process)


def _start_ticks(process: str) -> int:
    parts = process.split("-")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0


def _join_groups(nodes: dict[str, StuckNode]) -> dict[str, list[int]]:
    return {name: ranks for node in nodes.values() for name, ranks in node.groups.items()}


def _make_calls(calls: Sequence[CalledCollective]) -> list[Call]:
    return [
        Call(call.group, call.number, call.kind, call.sizes, call.dtypes, call.has_ended, call.t_ns)
        for call in calls
    ]


def _make_account(
    nodes: dict[str, StuckNode],
    accounts: dict[int, tuple[str, RankAccount]],
    stuck: StuckCollective,
    *,
    first: int | None,
) -> StuckAccount:
    since_ns = max(node.since_ns for node in nodes.values())
    seen_ns = max(node.seen_ns for node in nodes.values())
    descriptions = {n: text for node in nodes.values() for n, text in node.descriptions.items()}
    group = descriptions.get(stuck.call.group) or stuck.call.group
    differing = [one.rank for one in stuck.differing]
    culprits = [] if stuck.is_tied else sorted({*stuck.missing, *differing})
    saving = [rank for rank in stuck.missing if _is_checkpoint(accounts, rank)]
    kind: StuckKind = "differs" if differing else "missing"
    if first is not None:
        kind = "ended first"
    elif saving and not differing and saving == stuck.missing:
        kind = "checkpoint"
    has_ended = all(node.has_ended for node in nodes.values())
    return StuckAccount(
        kind=kind,
        headline=_write_headline(
            kind,
            stuck,
            accounts,
            group,
            seen_ns - since_ns,
            has_ended=has_ended,
            was_stuck=any(node.was_stuck for node in nodes.values()),
        ),
        has_ended=has_ended,
        since_ns=since_ns,
        duration_ns=max(0, seen_ns - since_ns),
        group=group,
        number=stuck.call.number,
        collective=_name_call(stuck.call),
        culprits=culprits,
        ranks=[
            _describe_rank(rank, node, account, stuck, first)
            for rank, (node, account) in accounts.items()
        ],
    )


def _write_headline(
    kind: StuckKind,
    stuck: StuckCollective,
    accounts: dict[int, tuple[str, RankAccount]],
    group: str,
    duration_ns: int,
    *,
    has_ended: bool,
    was_stuck: bool,
) -> str:
    location = f"{_name_call(stuck.call)}, number {stuck.call.number}"
    location += f" of process group {group}" if group else " of the calls of the script"
    blamed = stuck.missing or [one.rank for one in stuck.differing]
    names = _list_ranks(blamed or stuck.unknown)
    if kind == "ended first":
        state = _describe_end(accounts[blamed[0]][1])
        return f"The job failed because {names} {state}, while {_wait_at(stuck, location)}."
    if kind == "checkpoint":
        return (
            f"Not stuck: {names} {'write' if len(blamed) > 1 else 'writes'} a checkpoint, for "
            f"which the others have waited {duration(duration_ns)} at {location}."
        )
    verb = "The job failed"
    if was_stuck:
        verb = f"The job {'was' if has_ended else 'is'} stuck for {duration(duration_ns)}"
    if stuck.is_tied:
        return f"{verb} at {location}: ranks have called different collectives."
    if kind == "differs":
        differing = stuck.differing[0]
        action = "left it out and called" if differing.has_skipped else "called"
        rest = [one.rank for one in stuck.differing]
        more = "" if not stuck.missing else f"; {_list_ranks(stuck.missing)} has not called it"
        return (
            f"{verb} at {location}: {_list_ranks(rest)} {action} "
            f"{_name_call(differing.call)} instead{more}."
        )
    if not blamed:
        return f"{verb} at {location}: nothing is known of {names}."
    plural = "have" if len(blamed) > 1 else "has"
    return f"{verb} at {location}: {names} {plural} not called it."


def _wait_at(stuck: StuckCollective, location: str) -> str:
    verb = "were" if len(stuck.waiting) > 1 else "was"
    return f"{_list_ranks(stuck.waiting)} {verb} at {location}"


def _describe_rank(
    rank: int, node: str, account: RankAccount, stuck: StuckCollective, first: int | None
) -> StuckRank:
    role: RankRole = "elsewhere"
    if rank == first:
        role = "ended first"
    elif rank in stuck.missing:
        role = "missing"
    elif rank in {one.rank for one in stuck.differing}:
        role = "differs"
    elif rank in stuck.waiting:
        role = "waits"
    frame = _find_user_frame(account.frames)
    location = "" if frame is None else f"{frame.file}:{frame.line}"
    last = account.calls[-1] if account.calls else None
    collective = "" if last is None else _name_call(_make_calls([last])[0])
    return StuckRank(
        rank=rank,
        node=node,
        role=role,
        state=account.state,
        collective=collective,
        location=location,
        text=_write_rank(rank, role, account, stuck, frame),
    )


def _write_rank(
    rank: int,
    role: RankRole,
    account: RankAccount,
    stuck: StuckCollective,
    frame: StackFrame | None,
) -> str:
    subject = f"Rank {rank}"
    has_ended = account.state in {RankState.KILLED, RankState.FAILED, RankState.FINISHED}
    action = {
        "waits": f"{'was' if has_ended else 'waits'} in {stuck.call.kind}",
        "missing": "has not called it",
        "elsewhere": "is not in the group",
        "ended first": _describe_end(account),
        "differs": "",
    }[role]
    for one in stuck.differing:
        if one.rank == rank:
            action = f"called {_name_call(one.call)}"
    state = _describe_state(account)
    if state and role != "ended first":
        action += f"; {state}"
    if _checkpoint_frame(account.frames) is not None:
        action += "; it writes a checkpoint"
    if frame is None:
        return f"{subject} {action}."
    code = f": {frame.text}" if frame.text else ""
    return f"{subject} {action}; it is at {frame.file}:{frame.line} in {frame.function}{code}."


def _describe_state(account: RankAccount) -> str:
    match account.state:
        case RankState.SUSPENDED:
            return f"process {account.pid} is suspended (kill -CONT {account.pid} resumes it)"
        case RankState.SILENT:
            return account.detail
        case RankState.KILLED | RankState.FAILED:
            return f"it {_describe_end(account)}"
        case RankState.FINISHED:
            return "its script has ended"
        case RankState.ANSWERED:
            return ""


def _describe_end(account: RankAccount) -> str:
    if account.state is RankState.FAILED:
        return f"ended with {account.detail}"
    return "was killed"


def _is_checkpoint(accounts: dict[int, tuple[str, RankAccount]], rank: int) -> bool:
    return rank in accounts and _checkpoint_frame(accounts[rank][1].frames) is not None


def _checkpoint_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Find the frame that writes a checkpoint: that of torch.save or of a library for them."""
    for frame in frames:
        file = frame.file.replace("\\", "/")
        is_library = any(package in file for package in CHECKPOINT_PACKAGES)
        if (file.endswith(CHECKPOINT_FILES) or is_library) and "save" in frame.function.lower():
            return frame
    return None


def _find_user_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Find the innermost frame of the user's code; the innermost of all without one."""
    return next((f for f in frames if not library_of(f.file)), frames[0] if frames else None)


def _name_call(call: Call) -> str:
    details = " ".join(part for part in (call.sizes, call.dtypes) if part)
    return f"{call.kind} ({details})" if details else call.kind


def _list_ranks(ranks: Sequence[int]) -> str:
    """List ranks in words.

    >>> _list_ranks([1]), _list_ranks([0, 2, 5])
    ('rank 1', 'ranks 0, 2 and 5')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MAX_LISTED:
        return f"{len(ranks)} ranks (first {ranks[0]})"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
