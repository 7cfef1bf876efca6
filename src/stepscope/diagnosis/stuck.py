"""Account of a job that is stuck, or that failed because its ranks did not meet in a collective.

The monitor of each node stores what its ranks told it (`schema.stuck`). This module joins the
nodes, finds the collective and the ranks that the others wait for, and writes sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analysis import (
    Call,
    StuckCollective,
    find_last_collective,
    find_stuck_collective,
    is_open,
)
from stepscope.diagnosis.stuck_account import (
    RankRole,
    StuckAccount,
    StuckKind,
    StuckRank,
    begin_headline,
    checkpoint_frame,
    describe_end,
    is_starting,
    list_ranks,
    make_calls,
    make_rank,
    make_transfers,
    name_call,
)
from stepscope.diagnosis.stuck_in_transfers import explain_transfers
from stepscope.quantities import duration
from stepscope.run import RankEnd, Run, read_rank_ends
from stepscope.schema import (
    STUCK,
    RankAccount,
    RankState,
    StuckNode,
)
from stepscope.store import RunReader

MIN_FIRST_NS = 60_000_000
"""Time before the others from which a rank has ended first: stacks are sampled every 50 ms."""

UNHEARD_NS = 10_000_000_000
"""Time after the limit from which a rank without an account was not heard of: the monitors of all
nodes ask their ranks within some seconds."""


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
    calls = {rank: make_calls(account) for rank, (_, account) in accounts.items()}
    stuck = find_stuck_collective(calls, _join_groups(nodes))
    held_up = {rank for rank, sequence in calls.items() if any(map(is_open, sequence))}
    transfers = explain_transfers(nodes, accounts, held_up)
    if transfers is not None and (stuck is None or _wait_for_transfers(stuck, transfers)):
        return transfers
    if stuck is None:
        return None
    if not (stuck.missing or stuck.differing or (stuck.unknown and _have_reported(nodes))):
        return None
    return _make_account(nodes, accounts, stuck, first=None)


def _wait_for_transfers(stuck: StuckCollective, transfers: StuckAccount) -> bool:
    """Check that the ranks that a collective lacks are held up by transfers."""
    waiting = {rank.rank for rank in transfers.ranks if rank.role == "waits"}
    return bool(stuck.missing) and not stuck.differing and waiting.issuperset(stuck.missing)


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
        recorded = {rank: make_calls(account) for rank, (_, account) in accounts.items()}
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
    calls = [
        call
        for _, account in (accounts[rank] for rank in ranks)
        for call in [*make_calls(account), *make_transfers(account)]
    ]
    return max(calls, key=lambda call: call.t_ns, default=None)


def _join(nodes: dict[str, StuckNode]) -> dict[int, tuple[str, RankAccount]]:
    """Join the ranks of all nodes; of a rank that was started again, the last process counts."""
    joined: dict[int, tuple[str, RankAccount]] = {}
    for name, node in nodes.items():
        for account in node.ranks:
            earlier = joined.get(account.rank)
            if earlier is None or _start_ticks(account.process) > _start_ticks(earlier[1].process):
                joined[account.rank] = name, account
    return dict(sorted(joined.items()))


def _start_ticks(process: str) -> int:
    parts = process.split("-")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0


def _join_groups(nodes: dict[str, StuckNode]) -> dict[str, list[int]]:
    return {name: ranks for node in nodes.values() for name, ranks in node.groups.items()}


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
    kind: StuckKind = "differs" if differing else "missing" if stuck.missing else "unknown"
    if is_starting(nodes):
        kind = "starting"
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
        collective=name_call(stuck.call),
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
    location = name_call(stuck.call)
    if stuck.call.peer is None:
        location += f", number {stuck.call.number}"
        location += f" of process group {group}" if group else " of the calls of the script"
    blamed = stuck.missing or [one.rank for one in stuck.differing]
    names = list_ranks(blamed or stuck.unknown)
    if kind == "ended first":
        state = describe_end(accounts[blamed[0]][1])
        return f"The job failed because {names} {state}, while {_wait_at(stuck, location)}."
    if kind == "checkpoint":
        return (
            f"Not stuck: {names} {'write' if len(blamed) > 1 else 'writes'} a checkpoint, for "
            f"which the others have waited {duration(duration_ns)} at {location}."
        )
    verb = begin_headline(kind, duration_ns, has_ended=has_ended, was_stuck=was_stuck)
    if stuck.is_tied:
        return f"{verb} at {location}: ranks have called different collectives."
    if stuck.differing:
        differing = stuck.differing[0]
        action = "left it out and called" if differing.has_skipped else "called"
        rest = [one.rank for one in stuck.differing]
        more = "" if not stuck.missing else f"; {list_ranks(stuck.missing)} has not called it"
        return (
            f"{verb} at {location}: {list_ranks(rest)} {action} "
            f"{name_call(differing.call)} instead{more}."
        )
    if not blamed:
        return f"{verb} at {location}: nothing is known of {names}."
    plural = "have" if len(blamed) > 1 else "has"
    return f"{verb} at {location}: {names} {plural} not called it."


def _wait_at(stuck: StuckCollective, location: str) -> str:
    verb = "were" if len(stuck.waiting) > 1 else "was"
    return f"{list_ranks(stuck.waiting)} {verb} at {location}"


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
    has_ended = account.state in {RankState.KILLED, RankState.FAILED, RankState.FINISHED}
    action = {
        "waits": f"{'was' if has_ended else 'waits'} in {stuck.call.kind}",
        "missing": "has not called it",
        "elsewhere": "is not in the group",
        "ended first": describe_end(account),
        "differs": "",
    }[role]
    for one in stuck.differing:
        if one.rank == rank:
            action = f"called {name_call(one.call)}"
    return make_rank(rank, node, account, role, action)


def _is_checkpoint(accounts: dict[int, tuple[str, RankAccount]], rank: int) -> bool:
    return rank in accounts and checkpoint_frame(accounts[rank][1].frames) is not None
