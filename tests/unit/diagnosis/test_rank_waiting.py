"""Waiting of ranks for each other, on drawn jobs. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.rank_waiting import measure_rank_waits
from stepscope.diagnosis.shares import build_phase_matrix, compute_shares, measure_phase_split
from stepscope.testing import RunBuilder
from tests.support.cause_runs import draw_uneven_ranks

RunMaker = Callable[..., RunBuilder]


def test_ranks_with_the_same_work_do_not_wait(new_run: RunMaker) -> None:
    builder = new_run()
    for rank in range(3):
        builder.rank(rank).draw("forward 40 | communication 40 | optimizer 10", 60)
    run = builder.open()
    waits = measure_rank_waits(run.ranks)
    assert waits.ratio == 0
    assert waits.work_ns == (50e6, 50e6, 50e6)
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


def test_a_single_rank_does_not_wait(new_run: RunMaker) -> None:
    builder = new_run()
    builder.rank().draw("forward 40 | communication 40 | optimizer 10", 60)
    assert measure_rank_waits(builder.open().ranks).ratio == 0


@pytest.mark.parametrize(("length", "cause"), [(24, "uneven_ranks"), (23, "straggler")])
def test_a_slow_rank_with_larger_inputs_is_uneven(
    new_run: RunMaker, length: int, cause: str
) -> None:
    builder = new_run()
    for rank, sentence in enumerate((20, length)):
        forward = "forward 60" if rank else "forward 20 | communication 40"
        process = builder.rank(rank).draw(f"{forward} | optimizer 5", 60)
        shapes = [{"name": "0", "shape": [16, sentence], "dtype": "int64"}]
        process.fact("model_inputs", model=1, inputs=shapes)
    assert diagnose(builder.open()).cause == cause


def test_a_rank_that_is_slow_only_in_backward_passes_has_a_slow_link(
    new_run: RunMaker,
) -> None:
    """Forward passes take 20 ms on both ranks; sending adds 50 ms to rank 1's backward passes."""
    builder = new_run()
    builder.rank(0).draw("forward 20 | backward 20 | communication 50 | optimizer 10", 60)
    builder.rank(1).draw("forward 20 | backward 70 | optimizer 10", 60)
    verdict = diagnose(builder.open())
    assert (verdict.suspect, verdict.cause) == ("communication", "straggler")
    assert verdict.share_ratio == pytest.approx(0.25)


def test_a_rank_that_is_slow_in_both_passes_computes_slowly(new_run: RunMaker) -> None:
    builder = new_run()
    builder.rank(0).draw("forward 20 | backward 20 | communication 60 | optimizer 10", 60)
    builder.rank(1).draw("forward 50 | backward 50 | optimizer 10", 60)
    verdict = diagnose(builder.open())
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")


def test_a_rank_with_larger_inputs_may_be_slow_only_in_backward_passes(
    new_run: RunMaker,
) -> None:
    """Inputs of 6x the size make forward passes take 2.3x and backward passes 6x the time."""
    builder = new_run()
    steps = (
        "forward 20 | backward 10 | communication 75 | optimizer 10",
        "forward 45 | backward 60 | optimizer 10",
    )
    for number, (step, length) in enumerate(zip(steps, (10, 60), strict=True)):
        process = builder.rank(number).draw(step, 60)
        shapes = [{"name": "0", "shape": [16, length], "dtype": "int64"}]
        process.fact("model_inputs", model=1, inputs=shapes)
    verdict = diagnose(builder.open())
    assert (verdict.suspect, verdict.cause) == ("model", "uneven_ranks")


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
