"""Slow links of drawn jobs on two nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from stepscope.testing import RunBuilder
from stepscope.testing.runs import MetricValue
from stepscope.views.ranks import show_ranks

RunMaker = Callable[..., RunBuilder]


def draw(
    new_run: RunMaker,
    *,
    queues: Sequence[MetricValue | None],
    exchange_ms: int = 50,
    backends: Sequence[str] = ("gloo",),
) -> RunBuilder:
    """Draw a job of ten seconds whose nodes have bytes in their send queues.

    Args:
        queues: bytes by node, or a function of the seconds.
        exchange_ms: collective of each step.
        backends: those of the collectives, in turn; none: no collective is recorded.
    """
    builder = new_run()
    for number, queue in enumerate(queues):
        rank = builder.rank(number, node=f"n{number}", world_size=2)
        for step in range(100):
            rank.draw(f"wait 10 | forward 30 | communication {exchange_ms}")
            if backends:
                rank.collective(exchange_ms, name=f"{backends[step % len(backends)]}:all_reduce")
            rank.draw("optimizer 10")
        if queue is not None:
            builder.metric("network_unsent_bytes", queue, node=f"n{number}")
    return builder


def fill_until(end_s: float, seconds: float) -> float:
    return 256 * 1024 if seconds < end_s else 0


def test_the_node_before_a_slow_link_is_named(new_run: RunMaker) -> None:
    payload = show_ranks(draw(new_run, queues=(2048, 256 * 1024)).open())
    assert payload.sentence == (
        "No rank is late: at the median of the steps each is within 0 ns of the others. Transfer "
        "takes 50% of step time, over a slow link from n1: 256 KiB wait to be sent there for half "
        "of that time, on other nodes at most 2 KiB."
    )


def test_a_queue_that_is_full_in_transfers_only_counts(new_run: RunMaker) -> None:
    """Transfer takes half of the time: a quarter of the samples is half of that."""
    queue = partial(fill_until, 3.5)
    payload = show_ranks(draw(new_run, queues=(2048, queue)).open())
    assert "over a slow link from n1: 256 KiB wait" in payload.sentence


def test_an_upload_is_no_slow_link(new_run: RunMaker) -> None:
    upload = partial(fill_until, 1.5)
    payload = show_ranks(draw(new_run, queues=(2048, upload)).open())
    assert "slow link" not in payload.sentence


@pytest.mark.parametrize("backends", [("nccl",), ("nccl", "gloo"), ()])
def test_queues_of_tcp_tell_nothing_of_other_backends(
    new_run: RunMaker, backends: tuple[str, ...]
) -> None:
    builder = draw(new_run, queues=(2048, 256 * 1024), backends=backends)
    assert "slow link" not in show_ranks(builder.open()).sentence


@pytest.mark.parametrize(
    ("queues", "exchange_ms"),
    [
        ((200 * 1024, 256 * 1024), 50),  # both wait
        ((0, 8 * 1024), 50),  # a queue of no size
        ((0, 256 * 1024), 10),  # transfer does not matter
        ((None, 256 * 1024), 50),  # unknown is not empty
    ],
)
def test_no_link_is_named(
    new_run: RunMaker, queues: tuple[int | None, int | None], exchange_ms: int
) -> None:
    payload = show_ranks(draw(new_run, queues=queues, exchange_ms=exchange_ms).open())
    assert "slow link" not in payload.sentence
