"""Account of a job that is stuck, or whose ranks did not meet in a collective or a transfer.

The monitor of each node stores what its ranks told it (`schema.documents`). This module joins the
nodes, finds the collective and the ranks that the others wait for, and writes sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set as AbstractSet

from stepscope import analysis, quantities, schema, store
from stepscope.diagnosis.hang import explain_hang
from stepscope.diagnosis.stuck_account import (
    RankRole,
    StuckAccount,
    StuckKind,
    StuckRank,
    advise,
    begin_headline,
    checkpoint_frame,
    describe_end,
    is_receive,
    is_starting,
    list_ranks,
    make_calls,
    make_rank,
    make_transfers,
    name_call,
)
from stepscope.run import RankEnd, Run, read_rank_ends

MIN_FIRST_NS = 60_000_000
"""Time before the others from which a rank has ended first: stacks are sampled every 50 ms."""

UNHEARD_NS = 10_000_000_000
"""Time after the limit from which a rank without an account was not heard of: the monitors of all
nodes ask their ranks within some seconds."""


def read_stuck_nodes(reader: store.RunReader) -> dict[str, schema.StuckNode]:
    """Read the accounts of the nodes that make no progress. A node that takes no part in the latest
    incarnation of the job may have left one behind, which counts no more."""
    nodes, statuses = reader.documents(schema.STUCK, schema.StuckNode), reader.statuses()
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
        account = _explain_end(nodes, read_rank_ends(run), hosts)
    else:
        account = explain_stuck(nodes)
    return None if account is None else advise(account)


def explain_stuck(nodes: dict[str, schema.StuckNode]) -> StuckAccount | None:
    """Explain why a job makes no progress, or made none until it ended; None if no rank waits for
    another, and no process was described."""
    return _explain_ranks(nodes) or explain_hang(nodes)


def _explain_ranks(nodes: dict[str, schema.StuckNode]) -> StuckAccount | None:
    accounts = _join(nodes)
    calls = {rank: make_calls(account) for rank, (_, account) in accounts.items()}
    stuck = analysis.find_stuck_collective(calls, _join_groups(nodes))
    held_up = {rank for rank, sequence in calls.items() if any(map(analysis.is_open, sequence))}
    transfers = explain_transfers(nodes, accounts, held_up)
    if transfers is not None and (stuck is None or _wait_for_transfers(stuck, transfers)):
        return transfers
    if stuck is None:
        return None
    if not (stuck.missing or stuck.differing or (stuck.unknown and _have_reported(nodes))):
        return None
    return _make_account(nodes, accounts, stuck, first=None)


def _wait_for_transfers(stuck: analysis.StuckCollective, transfers: StuckAccount) -> bool:
    """Check that the ranks that a collective lacks are held up by transfers."""
    waiting = {rank.rank for rank in transfers.ranks if rank.role == "waits"}
    return bool(stuck.missing) and not stuck.differing and waiting.issuperset(stuck.missing)


def _have_reported(nodes: dict[str, schema.StuckNode]) -> bool:
    """Check that all nodes had time to tell where their ranks are."""
    since_ns = max(node.since_ns for node in nodes.values())
    seen_ns = max(node.seen_ns for node in nodes.values())
    limit_ns = max(node.limit_ns for node in nodes.values())
    has_ended = all(node.has_ended for node in nodes.values())
    return has_ended or seen_ns - since_ns >= limit_ns + UNHEARD_NS


def _explain_end(
    nodes: dict[str, schema.StuckNode], ends: dict[int, RankEnd], hosts: dict[str, str]
) -> StuckAccount | None:
    """Explain a failed job by the last collectives of its ranks, or the rank that ended first."""
    accounts = _join(nodes)
    has_one_clock = len({hosts.get(node, node) for node, _ in accounts.values()}) == 1
    first = _find_first(accounts, ends) if has_one_clock else None
    stuck = None
    if all(account.is_last_read for _, account in accounts.values()):
        recorded = {rank: make_calls(account) for rank, (_, account) in accounts.items()}
        stuck = analysis.find_last_collective(recorded, _join_groups(nodes))
    elif _agree_before_last(ends):
        stuck = analysis.find_last_collective({rank: end.calls for rank, end in ends.items()}, {})
    if stuck is not None and not stuck.differing and first is None:
        first = stuck.missing[0] if len(stuck.missing) == 1 else None
    if stuck is None or not stuck.differing:
        if first is None:
            return None
        waiting = [rank for rank in accounts if rank != first]
        call = _last_call(accounts, waiting)
        if call is None:
            return None
        stuck = analysis.StuckCollective(
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
    accounts: dict[int, tuple[str, schema.RankAccount]], ends: dict[int, RankEnd]
) -> int | None:
    """Find the rank whose last record is earlier than those of all others; None without one. The
    times are compared, so they have to be of one clock."""
    times = sorted((end.last_ns, rank) for rank, end in ends.items() if rank in accounts)
    if len(times) < 2 or len(times) < len(accounts) or times[1][0] - times[0][0] < MIN_FIRST_NS:
        return None
    _, account = accounts[times[0][1]]
    return (
        times[0][1] if account.state in {schema.RankState.KILLED, schema.RankState.FAILED} else None
    )


def _last_call(
    accounts: dict[int, tuple[str, schema.RankAccount]], ranks: Sequence[int]
) -> analysis.Call | None:
    calls = [
        call
        for _, account in (accounts[rank] for rank in ranks)
        for call in [*make_calls(account), *make_transfers(account)]
    ]
    return max(calls, key=lambda call: call.t_ns, default=None)


def _join(nodes: dict[str, schema.StuckNode]) -> dict[int, tuple[str, schema.RankAccount]]:
    """Join the ranks of all nodes; of a rank that was started again, the last process counts."""
    joined: dict[int, tuple[str, schema.RankAccount]] = {}
    for name, node in nodes.items():
        for account in node.ranks:
            earlier = joined.get(account.rank)
            if earlier is None or _start_ticks(account.process) > _start_ticks(earlier[1].process):
                joined[account.rank] = name, account
    return dict(sorted(joined.items()))


def _start_ticks(process: str) -> int:
    parts = process.split("-")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0


def _join_groups(nodes: dict[str, schema.StuckNode]) -> dict[str, list[int]]:
    return {name: ranks for node in nodes.values() for name, ranks in node.groups.items()}


def _make_account(
    nodes: dict[str, schema.StuckNode],
    accounts: dict[int, tuple[str, schema.RankAccount]],
    stuck: analysis.StuckCollective,
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
    stuck: analysis.StuckCollective,
    accounts: dict[int, tuple[str, schema.RankAccount]],
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
            f"which the others have waited {quantities.duration(duration_ns)} at {location}."
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


def _wait_at(stuck: analysis.StuckCollective, location: str) -> str:
    verb = "were" if len(stuck.waiting) > 1 else "was"
    return f"{list_ranks(stuck.waiting)} {verb} at {location}"


def _describe_rank(
    rank: int,
    node: str,
    account: schema.RankAccount,
    stuck: analysis.StuckCollective,
    first: int | None,
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
    has_ended = account.state in {
        schema.RankState.KILLED,
        schema.RankState.FAILED,
        schema.RankState.FINISHED,
    }
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


def _is_checkpoint(accounts: dict[int, tuple[str, schema.RankAccount]], rank: int) -> bool:
    return rank in accounts and checkpoint_frame(accounts[rank][1].frames) is not None


TRANSFER_FILE = "torch/distributed/distributed_c10d.py"
SENDING, RECEIVING = ("send", "isend"), ("recv", "irecv")
"""Functions of this file that wait for one direction."""
EITHER = ("batch_isend_irecv", "_coalescing_manager", "_CoalescingManager.wait")
"""Those that wait for both."""
PIPELINE_FOLDER, WAITING_WORD = "torch/distributed/pipelining/", "wait"
"""Part of the path of files, and of the names of their functions that wait for both."""
WAITING_CALL = re.compile(r"\.wait\(")
"""Call in a line of the user's code that waits for both: it is innermost, so the method is not
written in Python, as those of threads and processes are."""


def explain_transfers(
    nodes: Mapping[str, schema.StuckNode],
    accounts: Mapping[int, tuple[str, schema.RankAccount]],
    held_up: AbstractSet[int],
) -> StuckAccount | None:
    """Explain why a job makes no progress, or made none until it ended, by transfers.

    Args:
        nodes: accounts of the nodes.
        accounts: node and account of each rank.
        held_up: ranks that wait in a collective, which are not to blame.

    Returns:
        None if no rank waits for a transfer of a rank that waits for nothing.
    """
    pending = {
        rank: calls for rank, (_, account) in accounts.items() if (calls := _find_waits(account))
    }
    stuck = analysis.find_stuck_transfer(pending)
    if stuck is None or (stuck.missing and held_up >= {*stuck.missing}):
        return None
    if any(rank not in accounts for rank in stuck.missing):
        return None  # its node has not told where it is
    return _make_transfer_account(nodes, accounts, stuck, pending)


def _find_waits(account: schema.RankAccount) -> list[analysis.Call]:
    """Find the transfers in which a rank waits: those of the call in which its stack ends. Without
    a stack, it may wait in any that has not ended."""
    if account.state is not schema.RankState.ANSWERED:
        return []
    calls = [call for call in make_transfers(account) if not call.has_ended]
    if not account.frames:
        return calls
    frame = account.frames[0]
    file = frame.file.replace("\\", "/")
    if file.endswith(TRANSFER_FILE) and frame.function in SENDING:
        return [call for call in calls if not is_receive(call)]
    if file.endswith(TRANSFER_FILE) and frame.function in RECEIVING:
        return [call for call in calls if is_receive(call)]
    is_transfer = file.endswith(TRANSFER_FILE) and frame.function in EITHER
    is_pipeline = PIPELINE_FOLDER in file and WAITING_WORD in frame.function
    return calls if is_transfer or is_pipeline or WAITING_CALL.search(frame.text) else []


def _make_transfer_account(
    nodes: Mapping[str, schema.StuckNode],
    accounts: Mapping[int, tuple[str, schema.RankAccount]],
    stuck: analysis.StuckTransfer,
    pending: Mapping[int, Sequence[analysis.Call]],
) -> StuckAccount:
    since_ns = max(node.since_ns for node in nodes.values())
    duration_ns = max(0, max(node.seen_ns for node in nodes.values()) - since_ns)
    has_ended = all(node.has_ended for node in nodes.values())
    saving = [rank for rank in stuck.missing if checkpoint_frame(accounts[rank][1].frames)]
    kind: StuckKind = "starting" if is_starting(nodes) else "missing"
    if saving and saving == stuck.missing:
        kind = "checkpoint"
    verb = begin_headline(
        kind,
        duration_ns,
        has_ended=has_ended,
        was_stuck=any(node.was_stuck for node in nodes.values()),
    )
    names = list_ranks(stuck.missing or stuck.cycle)
    if kind == "checkpoint":
        verb_form = "write" if len(saving) > 1 else "writes"
        headline = (
            f"Not stuck: {names} {verb_form} a checkpoint, for which rank {stuck.rank} has waited "
            f"{quantities.duration(duration_ns)} at {name_call(stuck.call)}."
        )
    elif stuck.cycle:
        headline = f"{verb}: {names} wait for transfers of each other."
    else:
        headline = (
            f"{verb} at {name_call(stuck.call)}, at which rank {stuck.rank} waits: {names} "
            f"{'have' if len(stuck.missing) > 1 else 'has'} {_name_omission(stuck.call)}."
        )
    descriptions = {n: text for node in nodes.values() for n, text in node.descriptions.items()}
    group = stuck.call.group
    return StuckAccount(
        kind=kind,
        headline=headline,
        has_ended=has_ended,
        since_ns=since_ns,
        duration_ns=duration_ns,
        group=descriptions.get(group) or group,
        number=stuck.call.number,
        collective=name_call(stuck.call),
        culprits=stuck.missing or stuck.cycle,
        ranks=[
            _describe_rank_in_transfer(rank, node, account, stuck, pending)
            for rank, (node, account) in accounts.items()
        ],
    )


def _name_omission(call: analysis.Call) -> str:
    return "not sent it" if is_receive(call) else "not received it"


def _describe_rank_in_transfer(
    rank: int,
    node: str,
    account: schema.RankAccount,
    stuck: analysis.StuckTransfer,
    pending: Mapping[int, Sequence[analysis.Call]],
) -> StuckRank:
    role: RankRole = "elsewhere"
    action = "waits for no transfer"
    if rank in stuck.missing:
        role, action = "missing", f"has {_name_omission(stuck.call)}"
    elif rank in stuck.waiting:
        role, action = "waits", f"waits at {name_call(pending[rank][0])}"
    return make_rank(rank, node, account, role, action)
