"""Exposed gradient exchange, compared with backward passes worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.exchange import (
    compute_exposed_exchange_ratio,
    count_exchanges_per_step,
    estimate_backward_compute,
)
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


def test_passes_under_no_sync_exchange_nothing() -> None:
    fact = account(45, 25, 30, pass_count=40, exchange_count=10, step_count=10)
    assert compute_exposed_exchange_ratio(fact) == pytest.approx(20 / (4 * 30 + 20))
    assert count_exchanges_per_step(fact) == 1
    all_passes = account(45, 25, 30, pass_count=40, exchange_count=40, step_count=10)
    assert compute_exposed_exchange_ratio(all_passes) == pytest.approx(20 / 50)
    assert count_exchanges_per_step(all_passes) == 4


def test_counts_that_are_missing() -> None:
    assert count_exchanges_per_step(account(1, 0, 1)) == 1


def test_backward_compute_of_two_ranks() -> None:
    """The first rank waits 30 for the second; DDP has timed half of a pass as exchange."""
    backward = np.array([[50.0, 70.0], [20.0, 40.0]])
    compute = estimate_backward_compute(backward, [0.5, 0.5])
    assert compute.tolist() == [[20, 40], [5, 25]]
    assert estimate_backward_compute(backward, [None, None]).tolist() == backward.tolist()
    # Timed before the second rank became slow: no pass computes longer than the shortest.
    assert estimate_backward_compute(backward, [0.0, 0.0]).tolist() == [[20, 40], [20, 40]]
