"""Slow links of drawn jobs on two nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.testing import RunBuilder
from stepscope.views.ranks import show_ranks

RunMaker = Callable[..., RunBuilder]


def draw(
    new_run: RunMaker, *, queues: tuple[int | None, int | None], exchange_ms: int = 50
) -> RunBuilder:
    """Draw a job whose nodes have bytes in their send queues."""
    builder = new_run()
    for number, queue in enumerate(queues):
        rank = builder.rank(number, node=f"n{number}", world_size=2)
        rank.draw(f"wait 10 | forward 30 | communication {exchange_ms} | optimizer 10", 100)
        if queue is not None:
            builder.metric("network_unsent_bytes", queue, node=f"n{number}")
    return builder


def test_the_node_before_a_slow_link_is_named(new_run: RunMaker) -> None:
    payload = show_ranks(draw(new_run, queues=(2048, 256 * 1024)).open())
    assert payload.sentence == (
        "No rank is late: at the median of the steps each is within 0 ns of the others. Transfer "
        "takes 50% of step time, over a slow link from n1: 256 KiB wait to be sent there on "
        "average, on other nodes at most 2 KiB."
    )


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
