"""The ranks that a pipeline waits for, from the transfers that have not ended."""

from __future__ import annotations

from hypothesis import given, strategies as st

from stepscope.analysis import Call, find_stuck_transfer


def transfer(kind: str, peer: int, t_ns: int = 0) -> Call:
    return Call("0", 1, kind, "4", "float32", False, t_ns, peer)


def test_no_rank_that_waits_is_no_stuck_transfer() -> None:
    assert find_stuck_transfer({}) is None
    assert find_stuck_transfer({0: []}) is None


@given(st.integers(2, 8), st.data())
def test_the_stage_that_does_not_wait_is_missing(count: int, data: st.DataObject) -> None:
    """Stages before it wait for gradients of the next one, stages after it for activations."""
    faulty = data.draw(st.integers(0, count - 1))
    pending = {
        rank: [transfer("irecv", rank + 1 if rank < faulty else rank - 1, rank)]
        for rank in range(count)
        if rank != faulty
    }
    stuck = find_stuck_transfer(pending)
    assert (stuck.missing, stuck.cycle) == ([faulty], [])
    assert stuck.waiting == sorted(pending)
    assert stuck.call.peer == faulty


def test_ranks_in_a_cycle_wait_for_each_other() -> None:
    pending = {
        0: [transfer("irecv", 1)],
        1: [transfer("irecv", 0)],
        2: [transfer("irecv", 1)],
    }
    stuck = find_stuck_transfer(pending)
    assert (stuck.missing, stuck.cycle) == ([], [0, 1])


def test_a_send_that_nobody_waits_for_blames_no_rank_beside_the_one_that_does_not_send() -> None:
    pending = {1: [transfer("isend", 2), transfer("irecv", 0)]}
    stuck = find_stuck_transfer(pending)
    assert stuck.missing == [0]


def test_a_send_alone_waits_for_its_receiver() -> None:
    stuck = find_stuck_transfer({0: [transfer("isend", 2)]})
    assert (stuck.missing, stuck.call.kind) == ([2], "isend")
