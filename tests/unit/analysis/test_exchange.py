"""The exposed exchange of gradients against a backward pass that is laid out by hand."""

from __future__ import annotations

import pytest

from stepscope.analysis.exchange import compute_exposed_exchange_ratio, count_exchanges_per_step
from stepscope.schema import DdpFact


def account(exchange: int, hidden: int, compute: int, **counts: int) -> DdpFact:
    return DdpFact(
        backward_comm_ns=exchange,
        backward_overlap_ns=hidden,
        backward_compute_ns=compute,
        **counts,
    )


def test_one_exchange_in_every_backward_pass() -> None:
    # 30 of computing, then 20 of the 45 that nothing hides: 50 in all.
    assert compute_exposed_exchange_ratio(account(45, 25, 30)) == pytest.approx(20 / 50)
    assert compute_exposed_exchange_ratio(account(45, 45, 30)) == 0
    assert compute_exposed_exchange_ratio(account(0, 0, 0)) == 0


def test_passes_under_no_sync_exchange_nothing() -> None:
    found = account(45, 25, 30, pass_count=40, exchange_count=10, step_count=10)
    assert compute_exposed_exchange_ratio(found) == pytest.approx(20 / (4 * 30 + 20))
    assert count_exchanges_per_step(found) == 1
    every = account(45, 25, 30, pass_count=40, exchange_count=40, step_count=10)
    assert compute_exposed_exchange_ratio(every) == pytest.approx(20 / 50)
    assert count_exchanges_per_step(every) == 4


def test_counts_that_are_missing() -> None:
    assert count_exchanges_per_step(account(1, 0, 1)) == 1
