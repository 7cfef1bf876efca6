"""Ranks that others wait for, and links that are slow, of drawn jobs. Milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.causes.cause import CauseInputs
from stepscope.diagnosis.causes.rank_causes import find_slow_rank_cause
from stepscope.diagnosis.shares.rank_waiting import (
    compute_input_ratio,
    divide_waiting,
    measure_rank_waits,
)
from stepscope.diagnosis.shares.shares import (
    build_phase_matrix,
    compute_shares,
    measure_phase_split,
)
from stepscope.rule_feed import check_rules
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.run import read_group_mesh
from stepscope.run.model.rank_numbers import make_group_mesh
from stepscope.testing import RunBuilder
from stepscope.testing.runs import MetricValue
from stepscope.views.steps.ranks import show_ranks
from tests.support.cause_runs import draw_uneven_ranks

RunMaker = Callable[..., RunBuilder]


@pytest.mark.parametrize("count", [1, 3])
def test_ranks_with_the_same_work_do_not_wait(new_run: RunMaker, count: int) -> None:
    builder = new_run()
    for rank in range(count):
        builder.rank(rank).draw("forward 40 | communication 40 | optimizer 10", 60)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.ratio == 0
    assert waits.work_ns == (50e6,) * count
    assert diagnose(run).suspect == "communication"


def test_waiting_for_a_rank_that_waits_for_its_batches(new_run: RunMaker) -> None:
    """Rank 2 waits 60 of 100 ms; the other two wait 60 ms for it, and 5 ms is the transfer."""
    builder = new_run()
    builder.rank(0).draw("forward 25 | communication 65 | optimizer 10", 60)
    builder.rank(1).draw("forward 25 | communication 65 | optimizer 10", 60)
    builder.rank(2).draw("wait 60 | forward 25 | communication 5 | optimizer 10", 60)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.slowest_index == 2
    assert waits.ratio == pytest.approx((60 + 60) / (65 + 65 + 5))
    assert waits.by_suspect == {"data_pipeline": 1}
    shares = compute_shares(build_phase_matrix(run.ranks), measure_phase_split(run.ranks))
    assert shares.suspects["data_pipeline"] == pytest.approx((60 + 60 + 60) / 300)
    assert shares.suspects["communication"] == pytest.approx((5 + 5 + 5) / 300)
    assert sum(shares.suspects.values()) == pytest.approx(1)
    verdict = diagnose(run)
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "straggler")
    assert verdict.stages[0].name == "rank 2"
    assert verdict.also[0].suspect == "data_pipeline"


def test_ranks_that_are_late_in_turn(new_run: RunMaker) -> None:
    builder = new_run()
    draw_uneven_ranks(builder)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.ratio == pytest.approx(40 / 60)
    assert waits.by_suspect == {"model": 1}
    assert waits.slowest_ratio == pytest.approx(0.5, abs=0.02)


def test_the_size_of_inputs_is_that_of_all_steps(new_run: RunMaker) -> None:
    """The first batches, whose shapes are facts, are longer than later ones."""
    run, inputs = new_run(), [{"name": "x", "shape": [900], "dtype": "int64"}]
    for rank, size in enumerate((100, 250)):
        process = run.rank(rank).fact("model_inputs", model=1, inputs=inputs)
        process.draw("forward=900 20 | optimizer 5").draw(f"forward={size} 20 | optimizer 5", 39)
    ranks = run.open().ranks
    expected = (900 + 39 * 250) / (900 + 39 * 100)
    assert compute_input_ratio(ranks[1], ranks[:1]) == pytest.approx(expected)


@pytest.mark.parametrize("slow", [(2,), (0, 2), (0, 1)])
def test_waiting_is_divided_between_ranks_that_come_last_together(slow: tuple[int, ...]) -> None:
    """Each step of three ranks has 30 ms of communication beside the slow ranks, which have 1."""
    communication = np.array([[1.0 if rank in slow else 30.0] * 20 for rank in range(3)])
    waiting = (3 - len(slow)) * 20 * 29.0
    expected = [waiting / len(slow) if rank in slow else 0.0 for rank in range(3)]
    assert divide_waiting(communication).tolist() == pytest.approx(expected)


def test_a_tie_names_no_rank(new_run: RunMaker) -> None:
    """Ranks 0 and 2 are late together, so equal ranks would save the waiting of rank 1 alone."""
    run = new_run()
    run.rank(0).draw("forward 60 | optimizer 10", 60)
    run.rank(1).draw("forward 20 | communication 40 | optimizer 10", 60)
    run.rank(2).draw("forward 60 | optimizer 10", 60)
    ranks = run.open().ranks
    assert measure_rank_waits(ranks).lead_ratio == pytest.approx(0)
    split = measure_phase_split(ranks)
    shares = compute_shares(build_phase_matrix(ranks), split)
    inputs = CauseInputs(
        run=ranks[0].run, shares=shares, split=split, starved_rank=ranks[0], pipeline=None
    )
    finding = find_slow_rank_cause(inputs, "model")
    texts = [finding.site, *(stage.name for stage in finding.stages)]
    texts += [evidence.text for evidence in finding.evidence]
    assert not any(f"ank {number}" in text for text in texts for number in range(3))


PASSES = "forward 20 | backward 20"


def test_a_late_rank_is_named_with_its_function_and_line(new_run: RunMaker) -> None:
    """Rank 1 spends 30 of 43 ms per step in schedule, rank 0 a tenth of that."""
    run = new_run()
    run.rank(0).draw("do:python 3 | forward 6 | communication 27 | backward 6 | optimizer 1", 60)
    run.rank(1).draw("do:python 30 | forward 6 | backward 6 | optimizer 1", 60)
    source = run.open()
    verdict = diagnose(source)
    work = "schedule, 30 ms of 43 ms per step"
    assert verdict.cause == "straggler"
    assert re.search(rf"Rank 1: train\.py:\d+ {work}\.$", verdict.headline)
    assert work in verdict.stages[0].detail
    assert "python_overhead" not in {cause.cause for cause in verdict.also}
    fixes = [fix.prediction.saved_ns for fix in verdict.fixes if fix.prediction is not None]
    assert fixes == sorted(fixes, reverse=True)
    assert work in show_ranks(source).sentence


@pytest.mark.parametrize(
    ("steps", "lengths", "suspect", "cause"),
    [
        # A fifth more of input.
        (("forward 20 | communication 40", "forward 60"), (20, 24), "model", "uneven_ranks"),
        (("forward 20 | communication 40", "forward 60"), (20, 23), "model", "straggler"),
        # Sending takes 50 ms of rank 1's backward passes.
        (
            (f"{PASSES} | communication 50", "forward 20 | backward 70"),
            None,
            "communication",
            "straggler",
        ),
        ((f"{PASSES} | communication 60", "forward 50 | backward 50"), None, "model", "straggler"),
        # Inputs of 6x the size make forward passes take 2.3x and backward passes 6x the time.
        (
            ("forward 20 | backward 10 | communication 75", "forward 45 | backward 60"),
            (10, 60),
            "model",
            "uneven_ranks",
        ),
    ],
)
def test_why_a_rank_is_slow(
    new_run: RunMaker,
    steps: tuple[str, str],
    lengths: tuple[int, int] | None,
    suspect: str,
    cause: str,
) -> None:
    builder = new_run()
    for number, step in enumerate(steps):
        process = builder.rank(number).draw(f"{step} | optimizer 10", 60)
        if lengths is not None:
            shapes = [{"name": "0", "shape": [16, lengths[number]], "dtype": "int64"}]
            process.fact("model_inputs", model=1, inputs=shapes)
    verdict = diagnose(builder.open())
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    if suspect == "communication":
        assert verdict.share_ratio == pytest.approx(0.25)


SLOW = "forward 340 | backward 150 | optimizer 50"
WAITING = "forward 100 | backward 390 | optimizer 50"
"""The exchange in the backward pass lasts until the slow rank has finished its own."""


def test_a_slow_rank_that_ddp_has_timed(new_run: RunMaker) -> None:
    """Rank 1 computes 240 ms more; 140 ms of each backward pass are compute, 10 ms transfer."""
    builder = new_run()
    builder.rank(0).draw(WAITING, 60).ddp(exchange_ms=250, hidden_ms=0, compute_ms=140)
    builder.rank(1).draw(SLOW, 60).ddp(exchange_ms=10, hidden_ms=0, compute_ms=140)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.exchange_ns == pytest.approx((250e6, 10e6))
    assert waits.ratio == pytest.approx(240 / 260)
    verdict = diagnose(run)
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")
    assert verdict.share_ratio == pytest.approx(240 / 540)
    assert verdict.stages[0].name == "rank 1"


def test_a_rank_that_became_slow_after_ddp_timed_it(new_run: RunMaker) -> None:
    """The timing leaves rank 0 more compute than fits; its 10 ms of transfer are not known."""
    builder = new_run()
    builder.rank(0).draw(WAITING, 60).ddp(exchange_ms=10, hidden_ms=0, compute_ms=140)
    builder.rank(1).draw(SLOW, 60).ddp(exchange_ms=10, hidden_ms=0, compute_ms=140)
    verdict = diagnose(builder.open())
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")
    assert verdict.share_ratio == pytest.approx((240 - 10) / 540)


def test_a_rank_that_is_slow_in_every_other_step(new_run: RunMaker) -> None:
    builder = new_run()
    for rank, step in enumerate((WAITING, SLOW)):
        process = builder.rank(rank)
        for _ in range(30):
            process.draw(step).draw("forward 100 | backward 150 | optimizer 50")
        process.ddp(exchange_ms=10 if rank else 130, hidden_ms=0, compute_ms=140)
    run = builder.open()
    assert measure_rank_waits(run.ranks).slowest_ratio == pytest.approx(1)
    verdict = diagnose(run)
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")
    assert verdict.share_ratio == pytest.approx(240 / (540 + 300))


def test_steps_of_different_length_are_no_waiting(new_run: RunMaker) -> None:
    """Every other step has twice as much to compute, on both ranks."""
    builder = new_run()
    for rank in range(2):
        process = builder.rank(rank).ddp(exchange_ms=10, hidden_ms=0, compute_ms=140)
        for _ in range(30):
            process.draw("forward 100 | backward 150 | optimizer 9")
            process.draw("forward 200 | backward 300 | optimizer 9")
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.ratio == 0
    assert waits.exchange_ns == pytest.approx((15e6, 15e6))


def test_the_excess_of_a_slow_rank_is_found_in_each_phase(new_run: RunMaker) -> None:
    """Rank 1 works 30 ms longer in forward and 10 ms longer in the optimizer."""
    builder = new_run()
    builder.rank(0).draw("forward 20 | communication 45 | optimizer 10", 60)
    builder.rank(1).draw("forward 50 | communication 5 | optimizer 20", 60)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.slowest_index == 1
    assert (waits.excess_ns["forward"], waits.excess_ns["optimizer"]) == (30e6, 10e6)
    assert "30 ms more per step in forward" in " ".join(
        evidence.text for evidence in diagnose(run).evidence
    )


TENSOR = ("3", "mesh_tp", (0, 1)), ("4", "mesh_tp", (2, 3))
DATA = ("1", "mesh_dp", (0, 2)), ("2", "mesh_dp", (1, 3))
LATE_MS = 20
STEPS = 60


def draw_chain(new_run: RunMaker, *, late: tuple[int, ...], described: bool = True) -> RunBuilder:
    """Draw two tensor groups of two ranks each, joined by two data groups.

    A tensor group exchanges activations in its forward passes, by calls that no hook sees, so the
    waiting for a late rank is in the forward pass of its peer.
    """
    builder = new_run()
    for number in range(4):
        rank = builder.rank(number, world_size=4)
        group_late = number // 2 in {rank // 2 for rank in late}
        load_ms = 10 + LATE_MS * (number in late)
        tensor_wait_ms = LATE_MS * (group_late and number not in late)
        data_wait_ms = 5 + LATE_MS * (not group_late)
        for _ in range(STEPS):
            rank.draw(f"wait {load_ms} | forward {30 + tensor_wait_ms}")
            for group, before_ms in ((TENSOR[number // 2], 20 + tensor_wait_ms),):
                name, purpose, ranks = group
                rank.collective(
                    before_ms,
                    group=name,
                    purpose=purpose if described else "undefined",
                    ranks=ranks,
                )
            rank.draw(f"backward {20 + data_wait_ms} | optimizer 5")
            name, purpose, ranks = DATA[number % 2]
            rank.collective(
                5 + data_wait_ms, group=name, purpose=purpose if described else "undefined",
                ranks=ranks,
            )  # fmt: skip
    return builder


def test_the_first_rank_of_a_chain_is_named(new_run: RunMaker) -> None:
    """Rank 0 arrives at the data group as late as rank 1, for whom it had to wait before."""
    payload = show_ranks(draw_chain(new_run, late=(1,)).open())
    assert payload.sentence == (
        "Rank 1 is late in 100% of steps by 20 ms: slow data loading. It makes rank 0 late, too, "
        "in earlier collectives of the step."
    )
    rows = {row.rank: row for row in payload.ranks}
    assert rows["rank 0"].made_late_by == "rank 1"
    assert [rows[f"rank {n}"].made_late_by for n in (1, 2, 3)] == [None] * 3
    assert rows["rank 2"].coordinates == "dp=1 tp=0"


def test_ranks_that_are_late_by_themselves_are_all_named(new_run: RunMaker) -> None:
    payload = show_ranks(draw_chain(new_run, late=(0, 1)).open())
    assert [row.made_late_by for row in payload.ranks] == [None] * 4
    assert payload.sentence == (
        "All ranks of data coordinate 0 (dp) are late by 20 ms: slow data loading."
    )


def test_a_late_rank_that_is_never_the_last_is_late_by_itself(new_run: RunMaker) -> None:
    """No rank waits for rank 5: rank 0 is later in the same exchange."""
    builder = new_run()
    every_rank = tuple(range(8))
    for number in every_rank:
        late_ms = {0: 100, 5: 50}.get(number, 0)
        rank = builder.rank(number, world_size=8)
        for _ in range(STEPS):
            rank.draw(f"wait {10 + late_ms} | forward 30 | communication {105 - late_ms}")
            for group, before_ms in (("1", 105 - late_ms), ("2", 1)):
                rank.collective(before_ms, group=group, purpose="undefined", ranks=every_rank)
            rank.draw("optimizer 5")
    rows = {row.rank: row for row in show_ranks(builder.open()).ranks}
    assert [rows[f"rank {number}"].persistence for number in (0, 5)] == ["persistent"] * 2
    assert [row.made_late_by for row in rows.values()] == [None] * 8


def test_groups_without_a_known_purpose_give_no_coordinates(new_run: RunMaker) -> None:
    run = draw_chain(new_run, late=(1,), described=False).open()
    assert read_group_mesh(run) is None
    assert {row.coordinates for row in show_ranks(run).ranks} == {""}


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        ({"dp": {(0, 2), (1, 3)}, "tp": {(0, 1), (2, 3)}}, {"dp": 2, "tp": 2}),
        ({"tp": {(0, 2), (1, 3)}, "pp": {(0, 1), (2, 3)}}, {"tp": 2, "pp": 2}),
        ({"dp": {(0, 2), (1, 3)}, "tp": {(0, 1)}}, {"dp": 2}),  # not all ranks
        ({"dp": {(0, 1, 2, 3), (0, 1)}}, None),  # a rank twice
        ({"dp": {(0, 1, 2), (3,)}}, None),  # of several sizes
        ({"dp": {(0,), (1,), (2,), (3,)}}, None),
    ],
)
def test_a_dimension_divides_all_ranks(
    groups: dict[str, set[tuple[int, ...]]], sizes: dict[str, int] | None
) -> None:
    mesh = make_group_mesh(groups, range(4))
    assert (mesh and mesh.sizes) == sizes
    if mesh is not None and len(mesh.sizes) == 2:
        assert [tuple(mesh.locate(rank).values()) for rank in range(4)] == [
            (0, 0), (0, 1), (1, 0), (1, 1),
        ]  # fmt: skip


STEP_COUNT = 210


def draw_links(
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
    run = draw_links(new_run, queues=(2048, 256 * 1024)).open()
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
    view, rule = describe_links(draw_links(new_run, queues=queues))
    assert view.endswith(f"{SLOW_LINK}50% of the time, on other nodes at most 12%.")
    assert rule == f"{SLOW_LINK}50% of the time, on other nodes at most 10%."


@pytest.mark.parametrize("backends", [("nccl",), ("nccl", "gloo"), ()])
def test_queues_of_tcp_tell_nothing_of_other_backends(
    new_run: RunMaker, backends: tuple[str, ...]
) -> None:
    assert not describe_links(draw_links(new_run, queues=(0, 256 * 1024), backends=backends))


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
    assert not describe_links(draw_links(new_run, queues=queues, exchange_ms=exchange_ms))
