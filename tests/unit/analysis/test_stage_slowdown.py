"""Slowdown of jobs with pipeline stages, against jobs that are played event by event."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.analysis import (
    StageOperations,
    StageOperationsError,
    StageSlowdown,
    align_operations,
    measure_slowdown,
)
from tests.support.stage_jobs import Key, Name, StageJob, average_times, play

SHAPES = {
    "four stages": StageJob(),
    "two stages, three data ranks": StageJob(stages=2, data_ranks=3, microbatches=4),
    "one stage": StageJob(stages=1, data_ranks=4),
    "one data rank": StageJob(stages=3, data_ranks=1),
    "one worker": StageJob(stages=1, data_ranks=1),
    "one microbatch": StageJob(microbatches=1),
    "more stages than microbatches": StageJob(stages=5, microbatches=2),
    "virtual stages": StageJob(chunks=2),
    "three virtual stages": StageJob(stages=2, chunks=3, microbatches=6),
    "overlapping exchange": StageJob(overlaps=True),
    "overlapping exchange of virtual stages": StageJob(chunks=2, overlaps=True),
    "idle transfers recorded": StageJob(records_idle=True),
    "idle transfers of virtual stages": StageJob(chunks=2, records_idle=True),
    "no exchange of parameters": StageJob(leaves_out=frozenset({"params-all-gather", "gc"})),
    "no embedding": StageJob(leaves_out=frozenset({"embedding-grads-all-reduce"})),
}


def measure(operations: StageOperations) -> StageSlowdown:
    return measure_slowdown(align_operations(operations))


@pytest.mark.parametrize("name", SHAPES)
def test_replayed_steps_are_those_of_the_job_without_launch_delays(name: str) -> None:
    job = SHAPES[name]
    times = job.draw_times(seed=3, noise=0.2)
    recorded = play(job, times, delays_us=30, seed=4)
    slowdown = measure(recorded.operations)
    assert slowdown.step_ns.tolist() == recorded.step_ns
    assert slowdown.replayed_ns.tolist() == play(job, times).step_ns
    assert slowdown.ideal_ns == pytest.approx(play(job, average_times(job, times)).step_ns[0])
    assert (slowdown.unpaired_count, slowdown.filled_ratio) == (0, 0)


@pytest.mark.parametrize("name", ["four stages", "virtual stages", "one stage", "one data rank"])
def test_slowdowns_and_gains_are_those_of_replaced_times(name: str) -> None:
    job = SHAPES[name]
    times = job.draw_times(seed=5, noise=0.3)
    ideal = average_times(job, times)
    slowdown = measure(play(job, times, delays_us=10).operations)

    def mean_step(is_ideal: Callable[[Key], bool]) -> float:
        mixed = {key: ideal[key] if is_ideal(key) else times[key] for key in times}
        return float(np.mean(play(job, mixed).step_ns))

    ideal_ns, replayed_ns = mean_step(lambda key: True), mean_step(lambda key: False)
    assert slowdown.slowdown == pytest.approx(replayed_ns / ideal_ns)
    for stage in range(job.stages):
        alone = mean_step(lambda key, stage=stage: key[0][1] != stage)  # type: ignore[misc]
        assert slowdown.by_stage[stage] == pytest.approx(alone / ideal_ns)
    for rank in range(job.data_ranks):
        alone = mean_step(lambda key, rank=rank: key[2] != rank)  # type: ignore[misc]
        assert slowdown.by_data_rank[rank] == pytest.approx(alone / ideal_ns)
    for kind, ratio in slowdown.by_kind.items():
        alone = mean_step(lambda key, kind=kind: key[0][0] != kind)  # type: ignore[misc]
        assert ratio == pytest.approx(alone / ideal_ns)
    scores = {
        (rank, stage): min(slowdown.by_data_rank[rank], slowdown.by_stage[stage])
        for rank in range(job.data_ranks)
        for stage in range(job.stages)
    }
    worker = max(scores, key=lambda one: scores[one])
    assert (slowdown.workers[0].data_rank, slowdown.workers[0].stage) == worker
    assert slowdown.slowest_count == 1
    without_worker = mean_step(lambda key: (key[2], key[0][1]) == worker)
    without_stage = mean_step(lambda key: key[0][1] == job.stages - 1)
    excess = replayed_ns - ideal_ns
    assert slowdown.worker_gain == pytest.approx((replayed_ns - without_worker) / excess)
    assert slowdown.stage_gain == pytest.approx((replayed_ns - without_stage) / excess)


@pytest.mark.parametrize(("count", "slowest"), [(8, 1), (33, 1), (34, 2), (66, 2), (100, 3)])
def test_three_percent_of_the_workers_are_replaced(count: int, slowest: int) -> None:
    job = StageJob(stages=1, data_ranks=count, microbatches=2, steps=1)
    assert measure(play(job, job.draw_times(seed=1)).operations).slowest_count == slowest


def slow_worker(name: Name, step: int, data_rank: int) -> float:
    return 2.0 if (name[1], data_rank) == (1, 2) and name[0].endswith("compute") else 1.0


def slow_stage(stage: int) -> Callable[[Name, int, int], float]:
    return lambda name, step, rank: 1.6 if name[1] == stage and "compute" in name[0] else 1.0


def uneven_inputs(name: Name, step: int, data_rank: int) -> float:
    size = 1.5 * ((7 * name[2] + 5 * step + 3 * data_rank) % 8 == 0) + 0.6
    return size if "compute" in name[0] else 1.0


EIGHT = StageJob(data_ranks=4, steps=6)


def test_a_slow_worker_is_found() -> None:
    slowdown = measure(play(EIGHT, EIGHT.draw_times(1, slow=slow_worker), delays_us=20).operations)
    assert slowdown.slowdown > 1.3
    assert slowdown.worker_gain == pytest.approx(1, abs=0.1)
    assert (slowdown.workers[0].data_rank, slowdown.workers[0].stage) == (2, 1)
    assert slowdown.workers[0].rank == 2 + 1 * 4
    assert slowdown.stage_gain == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_slow_stage_is_found(stage: int) -> None:
    times = EIGHT.draw_times(1, slow=slow_stage(stage))
    slowdown = measure(play(EIGHT, times).operations)
    assert slowdown.even_stage == stage
    assert (slowdown.gain(slowdown.even_stage_ns) or 0) > 0.8
    assert (slowdown.worker_gain or 0) < 0.2
    assert ((slowdown.stage_gain or 0) > 0.8) == (stage == 3)


def test_uneven_inputs_are_told_from_a_slow_worker_and_a_slow_stage() -> None:
    slowdown = measure(play(EIGHT, EIGHT.draw_times(1, slow=uneven_inputs)).operations)
    assert (slowdown.gain(slowdown.even_inputs_ns) or 0) > 0.8
    assert slowdown.correlation is not None
    assert slowdown.correlation > 0.95
    assert (slowdown.worker_gain or 0) < 0.2
    assert (slowdown.gain(slowdown.even_stage_ns) or 0) < 0.2


def test_an_even_job_has_no_straggler_and_noise_no_correlation() -> None:
    even = measure(play(EIGHT, EIGHT.draw_times(2), delays_us=20).operations)
    assert even.slowdown < 1.05
    noisy = measure(play(EIGHT, EIGHT.draw_times(1, noise=0.2)).operations)
    assert noisy.correlation == pytest.approx(0, abs=0.1)


def test_a_job_of_equal_times_has_nothing_to_gain() -> None:
    job = StageJob()
    slowdown = measure(play(job, average_times(job, job.draw_times(1))).operations)
    assert slowdown.slowdown == pytest.approx(1, abs=1e-6)
    noiseless = measure(play(job, job.draw_times(1, noise=0)).operations)
    assert (noiseless.worker_gain, noiseless.stage_gain) == (None, None)


@pytest.mark.parametrize("kind", ["forward-send", "forward-recv", "backward-send", "backward-recv"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_job_without_one_side_of_its_transfers(kind: str, chunks: int) -> None:
    job = dataclasses.replace(EIGHT, chunks=chunks)
    operations = play(job, job.draw_times(1, slow=slow_worker), delays_us=5).operations
    complete = measure(operations)
    slowdown = measure(_without(operations, operations.kinds.index(kind)))
    assert slowdown.unpaired_count > 0
    assert slowdown.slowdown == pytest.approx(complete.slowdown, rel=0.02)
    assert slowdown.worker_gain == pytest.approx(complete.worker_gain, abs=0.05)


def test_a_job_without_any_transfer_keeps_the_order_of_its_stages() -> None:
    job = StageJob()
    times = job.draw_times(1, slow=slow_stage(3))
    operations = play(job, times).operations
    for kind in ("forward-send", "forward-recv", "backward-send", "backward-recv"):
        operations = _without(operations, operations.kinds.index(kind))
    slowdown = measure(operations)
    assert slowdown.slowdown == pytest.approx(
        measure(play(job, times).operations).slowdown, rel=0.05
    )


def test_a_missing_first_receive_of_virtual_stages() -> None:
    job = StageJob(chunks=2, records_idle=True)
    operations = play(job, job.draw_times(1)).operations
    complete = measure(operations)
    first = (
        (operations.kind == operations.kinds.index("forward-recv"))
        & (operations.stage == 0)
        & (operations.sequence == 0)
    )
    renumbered = np.where(
        (operations.kind == operations.kinds.index("forward-recv")) & (operations.stage == 0),
        operations.sequence - 1,
        operations.sequence,
    )
    slowdown = measure(replace(operations, sequence=renumbered).take(~first))
    assert slowdown.unpaired_count == 0
    assert slowdown.slowdown == pytest.approx(complete.slowdown, rel=0.01)


@pytest.mark.parametrize("ratio", [0.002, 0.02])
def test_single_missing_operations_hardly_change_the_slowdown(ratio: float) -> None:
    operations = play(EIGHT, EIGHT.draw_times(1, slow=slow_worker)).operations
    complete = measure(operations)
    present = np.random.default_rng(1).random(len(operations)) >= ratio
    slowdown = measure(operations.take(present))
    assert 0 < slowdown.filled_ratio < 5 * ratio
    assert slowdown.slowdown == pytest.approx(complete.slowdown, rel=0.02)
    assert slowdown.worker_gain == pytest.approx(complete.worker_gain, abs=0.05)


def test_a_step_that_was_cut_short_is_left_out() -> None:
    operations = play(EIGHT, EIGHT.draw_times(1)).operations
    last = operations.step == operations.step.max()
    half = last & (operations.start_ns > np.median(operations.start_ns[last]))
    aligned = align_operations(operations.take(~half))
    assert aligned.left_out_steps == 1
    complete = measure(operations.take(~last))
    assert measure(operations.take(~half)).slowdown == complete.slowdown


def test_an_operation_of_few_steps_is_left_out() -> None:
    operations = play(EIGHT, EIGHT.draw_times(1)).operations
    collections = operations.kind == operations.kinds.index("gc")
    rare = collections & (operations.step != operations.step.min())
    aligned = align_operations(operations.take(~rare))
    assert aligned.left_out_operations == EIGHT.stages * EIGHT.data_ranks
    assert "gc" not in aligned.kind


def _without(operations: StageOperations, kind: int) -> StageOperations:
    rest = operations.take(operations.kind != kind)
    kinds = [name for code, name in enumerate(operations.kinds) if code != kind]
    return replace(rest, kind=rest.kind - (rest.kind > kind), kinds=kinds)


def unknown_kind(drawn: StageOperations) -> StageOperations:
    kinds = ["attention" if kind == "gc" else kind for kind in drawn.kinds]
    return replace(drawn, kinds=kinds)


def two_ranks_of_a_group(drawn: StageOperations) -> StageOperations:
    twice = drawn.take(np.tile(np.arange(len(drawn)), 2))
    return replace(twice, rank=twice.rank + np.repeat([0, 100], len(drawn)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (unknown_kind, "operations of the kind attention are not known"),
        (
            lambda drawn: drawn.take(np.append(np.arange(len(drawn)), 5)),
            "has an operation of one number twice in a step",
        ),
        (two_ranks_of_a_group, "keep one rank of each tensor-parallel group"),
        (lambda drawn: drawn.take(drawn.stage != 2), "stage 2 has no forward-compute"),
        (lambda drawn: drawn.take(np.empty(0, dtype=np.int64)), "there is no operation"),
        (
            lambda drawn: replace(drawn, end_ns=drawn.start_ns - 1),
            "an operation ends before it starts",
        ),
    ],
)
def test_operations_that_cannot_be_replayed_are_named(
    change: Callable[[StageOperations], StageOperations], sentence: str
) -> None:
    operations = play(StageJob(), StageJob().draw_times(seed=1)).operations
    with pytest.raises(StageOperationsError, match=sentence):
        measure(change(operations))
