"""Slow links of drawn jobs on two nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from stepscope.rule_feed import check_rules
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.testing import RunBuilder
from stepscope.testing.runs import MetricValue
from stepscope.views.ranks import show_ranks

RunMaker = Callable[..., RunBuilder]
STEP_COUNT = 210


def draw(
    new_run: RunMaker,
    *,
    queues: Sequence[MetricValue | None],
    exchange_ms: int = 50,
    backends: Sequence[str] = ("gloo",),
) -> RunBuilder:
    """Draw a job of twenty seconds whose nodes have bytes to send.

    Args:
        queues: bytes by node, or a function of the seconds.
        exchange_ms: collective of each step.
        backends: those of the collectives, in turn; none: no collective is recorded.
    """
    builder = new_run()
    for number, queue in enumerate(queues):
        rank = builder.rank(number, node=f"n{number}", world_size=len(queues))
        for step in range(STEP_COUNT):
            rank.draw(f"wait 10 | forward 30 | communication {exchange_ms}")
            if backends:
                rank.collective(exchange_ms, name=f"{backends[step % len(backends)]}:all_reduce")
            rank.draw("optimizer 10")
        if queue is not None:
            builder.metric("network_unsent_bytes", queue, node=f"n{number}")
    return builder


def fill_until(end_s: float, seconds: float) -> float:
    return 256 * 1024 if seconds < end_s else 0


def fill_every(period_s: float, seconds: float) -> float:
    return 20_000 if seconds % period_s == 0 else 0


def describe_links(builder: RunBuilder) -> list[str]:
    """Return what the view and the rule say of links."""
    run = builder.open()
    (finding,) = check_rules(run.reader, [RankStraggler()]).findings
    sentences = [show_ranks(run).sentence, *finding.sentences]
    return [sentence for sentence in sentences if "slow link" in sentence]


SLOW_LINK = "Transfer takes 50% of step time, over a slow link from n1: data wait to be sent there "


def test_the_node_before_a_slow_link_is_named(new_run: RunMaker) -> None:
    run = draw(new_run, queues=(2048, 256 * 1024)).open()
    sentence = f"{SLOW_LINK}100% of the time, on other nodes at most 0%."
    assert show_ranks(run).sentence == (
        "No rank is late: at the median of the steps each is within 0 ns of the others. " + sentence
    )
    (finding,) = check_rules(run.reader, [RankStraggler()]).findings
    assert finding.sentences == [sentence]
    assert (finding.nodes, finding.ranks) == (["n1"], [])
    assert finding.fired
    assert finding.violations == 3, "blocks of 50 steps, of 210 but for those of warm-up"


def test_time_in_transfers_counts_and_others_may_wait_for_a_quarter_of_it(
    new_run: RunMaker,
) -> None:
    """Transfer takes half of the time: data have to wait for a quarter of it."""
    queues = (partial(fill_every, 5.0), partial(fill_every, 1.0))
    view, rule = describe_links(draw(new_run, queues=queues))
    assert view.endswith(f"{SLOW_LINK}50% of the time, on other nodes at most 12%.")
    assert rule == f"{SLOW_LINK}50% of the time, on other nodes at most 10%."


@pytest.mark.parametrize("backends", [("nccl",), ("nccl", "gloo"), ()])
def test_queues_of_tcp_tell_nothing_of_other_backends(
    new_run: RunMaker, backends: tuple[str, ...]
) -> None:
    assert not describe_links(draw(new_run, queues=(0, 256 * 1024), backends=backends))


@pytest.mark.parametrize(
    ("queues", "exchange_ms"),
    [
        ((200 * 1024, 256 * 1024), 50),  # both wait
        ((partial(fill_every, 3.0), partial(fill_every, 1.0)), 50),  # not four times as long
        ((0, 2048), 50),  # what is on the way
        ((0, partial(fill_until, 4.5)), 50),  # an upload, for less than a quarter of the time
        ((0, 256 * 1024), 10),  # transfer does not matter
        ((None, 256 * 1024), 50),  # unknown is not empty
        ((256 * 1024,), 50),  # no other node
    ],
)
def test_no_link_is_named(
    new_run: RunMaker, queues: tuple[MetricValue | None, ...], exchange_ms: int
) -> None:
    assert not describe_links(draw(new_run, queues=queues, exchange_ms=exchange_ms))
