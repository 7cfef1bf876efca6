"""Account of a job that is stuck in transfers between two ranks, as pipelines have."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet

from stepscope.analysis import Call, StuckTransfer, find_stuck_transfer
from stepscope.diagnosis.stuck_account import (
    RankRole,
    StuckAccount,
    StuckKind,
    StuckRank,
    begin_headline,
    checkpoint_frame,
    is_receive,
    list_ranks,
    make_rank,
    make_transfers,
    name_call,
)
from stepscope.quantities import duration
from stepscope.schema import RankAccount, RankState, StuckNode

WAITING_FILES = "torch/distributed/"
"""Part of the path of functions that wait for other ranks."""
WAITING_WORD = "wait"


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
        rank: [call for call in make_transfers(account) if not call.has_ended]
        for rank, (_, account) in accounts.items()
        if _is_waiting(account)
    }
    stuck = find_stuck_transfer(pending)
    if stuck is None or (stuck.missing and held_up >= {*stuck.missing}):
        return None
    if any(rank not in accounts for rank in stuck.missing):
        return None  # its node has not told where it is
    return _make_account(nodes, accounts, stuck)


def _is_waiting(account: RankAccount) -> bool:
    """Check that the stack of a rank ends in a call that waits. Without a stack, it may."""
    if account.state is not RankState.ANSWERED:
        return False
    if not account.frames:
        return True
    frame = account.frames[0]
    is_library = WAITING_FILES in frame.file.replace("\\", "/")
    return is_library or WAITING_WORD in frame.text or WAITING_WORD in frame.function.lower()


def _make_account(
    nodes: Mapping[str, StuckNode],
    accounts: Mapping[int, tuple[str, RankAccount]],
    stuck: StuckTransfer,
) -> StuckAccount:
    since_ns = max(node.since_ns for node in nodes.values())
    duration_ns = max(0, max(node.seen_ns for node in nodes.values()) - since_ns)
    has_ended = all(node.has_ended for node in nodes.values())
    saving = [rank for rank in stuck.missing if checkpoint_frame(accounts[rank][1].frames)]
    kind: StuckKind = "checkpoint" if saving and saving == stuck.missing else "missing"
    verb = begin_headline(
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
            _describe_rank(rank, node, account, stuck) for rank, (node, account) in accounts.items()
        ],
    )


def _name_omission(call: Call) -> str:
    return "not sent it" if is_receive(call) else "not received it"


def _describe_rank(rank: int, node: str, account: RankAccount, stuck: StuckTransfer) -> StuckRank:
    role: RankRole = "elsewhere"
    action = "waits for no transfer"
    if rank in stuck.missing:
        role, action = "missing", f"has {_name_omission(stuck.call)}"
    elif rank in stuck.waiting:
        calls = [call for call in make_transfers(account) if not call.has_ended]
        role, action = "waits", f"waits at {name_call(calls[0])}"
    return make_rank(rank, node, account, role, action)
