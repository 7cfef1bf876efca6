"""Exposed gradient exchange, compared with backward passes worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.exchange import (
    RecordedCalls,
    compute_exposed_exchange_ratio,
    count_exchanges_per_step,
    estimate_backward_compute,
    measure_exchange,
)
from stepscope.intervals import EMPTY, Intervals
from stepscope.schema import DdpFact


def account(exchange: int, hidden: int, compute: int, **counts: int) -> DdpFact:
    return DdpFact(
        backward_comm_ns=exchange,
        backward_overlap_ns=hidden,
        backward_compute_ns=compute,
        **counts,
    )


def test_one_exchange_in_every_backward_pass() -> None:
    # 30 of compute, then 20 of 45 exposed: 50 in total.
    assert compute_exposed_exchange_ratio(account(45, 25, 30)) == pytest.approx(20 / 50)
    assert compute_exposed_exchange_ratio(account(45, 45, 30)) == 0
    assert compute_exposed_exchange_ratio(account(0, 0, 0)) == 0
    assert count_exchanges_per_step(account(1, 0, 1)) == 1  # the counts are missing


def test_passes_under_no_sync_exchange_nothing() -> None:
    fact = account(45, 25, 30, pass_count=40, exchange_count=10, step_count=10)
    assert compute_exposed_exchange_ratio(fact) == pytest.approx(20 / (4 * 30 + 20))
    assert count_exchanges_per_step(fact) == 1
    all_passes = account(45, 25, 30, pass_count=40, exchange_count=40, step_count=10)
    assert compute_exposed_exchange_ratio(all_passes) == pytest.approx(20 / 50)
    assert count_exchanges_per_step(all_passes) == 4


def test_backward_compute_of_two_ranks() -> None:
    """The first rank waits 30 for the second; DDP has timed half of a pass as exchange."""
    backward = np.array([[50.0, 70.0], [20.0, 40.0]])
    compute = estimate_backward_compute(backward, [0.5, 0.5])
    assert compute.tolist() == [[20, 40], [5, 25]]
    assert estimate_backward_compute(backward, [None, None]).tolist() == backward.tolist()
    # Timed before the second rank became slow: no pass computes longer than the shortest.
    assert estimate_backward_compute(backward, [0.0, 0.0]).tolist() == [[20, 40], [20, 40]]


def intervals(*pairs: tuple[int, int]) -> Intervals:
    start, end = np.array(pairs, dtype=np.int64).T
    return Intervals(start, end)


def calls(*t_ns: int, seq: list[int] | None = None) -> RecordedCalls:
    return RecordedCalls(
        t_ns=np.array(t_ns), seq=np.arange(len(t_ns)) if seq is None else np.array(seq)
    )


STEPS = intervals((0, 100), (100, 200), (200, 300))
PASSES = intervals((20, 60), (120, 180), (230, 290))


TWO_STEPS, THREE_PASSES = intervals((0, 100), (100, 200)), intervals((10, 20), (30, 50), (60, 90))
REENTRANT = intervals((10, 90), (20, 40), (30, 35), (50, 80))
NESTED = intervals((140, 170), (145, 150))


@pytest.mark.parametrize(
    ("steps", "passes", "t_ns", "explicit", "expected"),
    [
        # Exposed from the last call of a pass to its end.
        (STEPS, PASSES, (25, 50, 130, 140, 280, 350), EMPTY, [60 - 50, 180 - 140, 290 - 280]),
        # Passes of one step add up, and one without a call exchanges nothing.
        (TWO_STEPS, THREE_PASSES, (15, 70, 250), EMPTY, [(20 - 15) + (90 - 70), 0]),
        # Each reentrant checkpoint runs a backward pass inside that of the script.
        (intervals((0, 100)), REENTRANT, (32, 60, 85, 150), EMPTY, [90 - 85]),
        # Collectives of the script in a pass, and calls inside them, are communication anyway.
        (STEPS, PASSES, (30, 150, 280, 350), intervals((145, 160)), [60 - 30, 0, 290 - 280]),
        (STEPS, PASSES, (30, 160, 280, 350), NESTED, [60 - 30, 0, 290 - 280]),
    ],
)
def test_exposed_exchange_of_steps(
    steps: Intervals, passes: Intervals, t_ns: tuple[int, ...], explicit: Intervals,
    expected: list[int],
) -> None:  # fmt: skip
    assert measure_exchange(steps, passes, calls(*t_ns), explicit).tolist() == expected


def test_the_exchange_of_a_step_without_all_calls_is_unknown() -> None:
    lost = measure_exchange(STEPS, PASSES, calls(50, 140, 280, 350, seq=[0, 1, 3, 4]), EMPTY)
    assert np.isnan(lost).tolist() == [False, True, True]  # the lost call is of either of the two
    early = measure_exchange(STEPS, PASSES, calls(50, 140, 280), EMPTY)
    assert np.isnan(early).tolist() == [False, False, True]
    assert np.isnan(measure_exchange(STEPS, PASSES, calls(), EMPTY)).all()
