"""Account of a job that is stuck in transfers between two ranks, as pipelines have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set as AbstractSet

from stepscope.analysis import Call, StuckTransfer, find_stuck_transfer
from stepscope.diagnosis.stuck_account import (
    RankRole,
    StuckAccount,
    StuckKind,
    StuckRank,
    begin_headline,
    checkpoint_frame,
    is_receive,
    is_starting,
    list_ranks,
    make_rank,
    make_transfers,
    name_call,
)
from stepscope.quantities import duration
from stepscope.schema import RankAccount, RankState, StuckNode

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
    nodes: Mapping[str, StuckNode],
    accounts: Mapping[int, tuple[str, RankAccount]],
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
    stuck = find_stuck_transfer(pending)
    if stuck is None or (stuck.missing and held_up >= {*stuck.missing}):
        return None
    if any(rank not in accounts for rank in stuck.missing):
        return None  # its node has not told where it is
    return _make_account(nodes, accounts, stuck, pending)


def _find_waits(account: RankAccount) -> list[Call]:
    """Find the transfers in which a rank waits: those of the call in which its stack ends. Without
    a stack, it may wait in any that has not ended."""
    if account.state is not RankState.ANSWERED:
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


def _make_account(
    nodes: Mapping[str, StuckNode],
    accounts: Mapping[int, tuple[str, RankAccount]],
    stuck: StuckTransfer,
    pending: Mapping[int, Sequence[Call]],
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
            f"{duration(duration_ns)} at {name_call(stuck.call)}."
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
            _describe_rank(rank, node, account, stuck, pending)
            for rank, (node, account) in accounts.items()
        ],
    )


def _name_omission(call: Call) -> str:
    return "not sent it" if is_receive(call) else "not received it"


def _describe_rank(
    rank: int,
    node: str,
    account: RankAccount,
    stuck: StuckTransfer,
    pending: Mapping[int, Sequence[Call]],
) -> StuckRank:
    role: RankRole = "elsewhere"
    action = "waits for no transfer"
    if rank in stuck.missing:
        role, action = "missing", f"has {_name_omission(stuck.call)}"
    elif rank in stuck.waiting:
        role, action = "waits", f"waits at {name_call(pending[rank][0])}"
    return make_rank(rank, node, account, role, action)
