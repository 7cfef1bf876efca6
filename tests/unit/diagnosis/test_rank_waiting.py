"""How ranks wait for each other, on drawn jobs. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.rank_waiting import ranks_waiting
from stepscope.diagnosis.shares import phase_matrix, proportions, shares_of
from stepscope.testing import RunBuilder
from tests.support.cause_runs import uneven_ranks

RunMaker = Callable[..., RunBuilder]


def test_ranks_that_have_the_same_to_do_wait_for_nobody(new_run: RunMaker) -> None:
    run = new_run()
    for rank in range(3):
        run.rank(rank).draw("forward 40 | communication 40 | optimizer 10", 60)
    signals = run.open()
    found = ranks_waiting(signals.ranks)
    assert found.ratio == 0
    assert found.own_ns == (50e6, 50e6, 50e6)
    assert diagnose(signals).suspect == "communication"


def test_waiting_for_a_rank_that_waits_for_its_batches(new_run: RunMaker) -> None:
    """Rank 2 waits for 60 of 100; the other two wait 60 for it, and 5 is the transfer itself."""
    run = new_run()
    run.rank(0).draw("forward 25 | communication 65 | optimizer 10", 60)
    run.rank(1).draw("forward 25 | communication 65 | optimizer 10", 60)
    run.rank(2).draw("wait 60 | forward 25 | communication 5 | optimizer 10", 60)
    signals = run.open()
    found = ranks_waiting(signals.ranks)
    assert found.slowest == 2
    assert found.ratio == pytest.approx((60 + 60) / (65 + 65 + 5))
    assert found.held_up_by == {"data_pipeline": 1}
    shares = shares_of(phase_matrix(signals.ranks), proportions(signals.ranks))
    assert shares.suspects["data_pipeline"] == pytest.approx((60 + 60 + 60) / 300)
    assert shares.suspects["communication"] == pytest.approx((5 + 5 + 5) / 300)
    assert sum(shares.suspects.values()) == pytest.approx(1)
    verdict = diagnose(signals)
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "straggler")
    assert verdict.stages[0].name == "rank 2"
    assert verdict.also[0].suspect == "data_pipeline"


def test_ranks_that_are_slow_in_turn(new_run: RunMaker) -> None:
    run = new_run()
    uneven_ranks(run)
    signals = run.open()
    found = ranks_waiting(signals.ranks)
    assert found.ratio == pytest.approx(40 / 60)
    assert found.held_up_by == {"model": 1}
    assert found.slowest_ratio == pytest.approx(0.5, abs=0.02)


def test_one_rank_waits_for_none(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("forward 40 | communication 40 | optimizer 10", 60)
    assert ranks_waiting(run.open().ranks).ratio == 0


@pytest.mark.parametrize(("length", "cause"), [(24, "uneven_ranks"), (23, "straggler")])
def test_a_slow_rank_with_larger_inputs_has_more_to_do(
    new_run: RunMaker, length: int, cause: str
) -> None:
    run = new_run()
    for rank, sentence in enumerate((20, length)):
        own = "forward 60" if rank else "forward 20 | communication 40"
        process = run.rank(rank).draw(f"{own} | optimizer 5", 60)
        shapes = [{"name": "0", "shape": [16, sentence], "dtype": "int64"}]
        process.fact("model_inputs", model=1, inputs=shapes)
    assert diagnose(run.open()).cause == cause


def test_a_rank_that_is_slow_only_where_gradients_are_sent_has_a_slow_link(
    new_run: RunMaker,
) -> None:
    """Forward passes take 20 on both; sending adds 50 to the backward passes of rank 1."""
    run = new_run()
    run.rank(0).draw("forward 20 | backward 20 | communication 50 | optimizer 10", 60)
    run.rank(1).draw("forward 20 | backward 70 | optimizer 10", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("communication", "straggler")
    assert verdict.share_ratio == pytest.approx(0.25)


def test_a_rank_that_computes_more_slowly_does_so_in_both_passes(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(0).draw("forward 20 | backward 20 | communication 60 | optimizer 10", 60)
    run.rank(1).draw("forward 50 | backward 50 | optimizer 10", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("model", "straggler")


def test_a_rank_with_larger_inputs_may_take_longer_only_in_its_backward_passes(
    new_run: RunMaker,
) -> None:
    """Six times the input makes its forward passes 2.3 times as long, its backward passes six."""
    run = new_run()
    steps = (
        "forward 20 | backward 10 | communication 75 | optimizer 10",
        "forward 45 | backward 60 | optimizer 10",
    )
    for number, (step, length) in enumerate(zip(steps, (10, 60), strict=True)):
        process = run.rank(number).draw(step, 60)
        shapes = [{"name": "0", "shape": [16, length], "dtype": "int64"}]
        process.fact("model_inputs", model=1, inputs=shapes)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("model", "uneven_ranks")
