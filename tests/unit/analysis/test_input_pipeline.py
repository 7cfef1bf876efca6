"""Data wait of the training thread and batch creation. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.analysis.input_pipeline.batches import (
    BatchCreation,
    DataWait,
    Fetcher,
    StackSamples,
    charge_busy_workers,
    find_slow_waits,
    measure_batch_creation,
    split_data_wait,
    weigh_samples,
)
from stepscope.analysis.steps.steps import Steps, find_steps
from stepscope.testing import Drawing, stack_text

MS = 1_000_000
STEP = "forward 2 | backward 3 | optimizer 5"
CODE = {
    "read": "fetch > Rows.__getitem__ > fetch_row > get@requests/api.py",
    "decode": "fetch > Rows.__getitem__ > read_table@pyarrow/parquet/core.py",
    "mask": "fetch > Rows.__getitem__ > Compose.__call__ > Mask.__call__",
    "jitter": "fetch > Rows.__getitem__ > Compose.__call__ > Jitter.__call__",
    "pad": "fetch > Rows.__getitem__ > pad_row",
    "collate": "fetch > collate_rows",
    "elsewhere": "main > _worker_loop@torch/utils/data/_utils/worker.py",
}


def waiting(drawing: Drawing) -> DataWait:
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    return split_data_wait(spans, steps, steps.measured())


def samples(drawing: Drawing) -> StackSamples:
    """Return one sample in the middle of every millisecond."""
    names = list(CODE)
    times = np.arange(0, drawing.now, MS) + MS // 2
    codes = np.full(len(times), names.index("elsewhere"), dtype=np.int32)
    for activity in drawing.activities:
        codes[(times >= activity.start) & (times < activity.end)] = names.index(activity.code)
    return StackSamples(
        t_ns=times,
        weight_ns=weigh_samples(times, MS),
        stack=codes,
        stacks=[stack_text(stack) for stack in CODE.values()],
        user_line=np.zeros(len(times), dtype=np.int32),
    )


def fetcher(drawing: Drawing, *, worker: bool = True) -> Fetcher:
    return Fetcher(process="w", worker=worker, spans=drawing.table(), samples=samples(drawing))


def always(ms: int) -> Steps:
    """Return steps of 10 ms over a duration."""
    steps = find_steps(Drawing().draw(STEP, ms // 10).table())
    assert steps is not None
    return steps


def making(*drawings: Drawing, worker: bool = True) -> BatchCreation:
    ms = max(drawing.now for drawing in drawings) // MS + 20
    creation = measure_batch_creation(
        [fetcher(drawing, worker=worker) for drawing in drawings], always(ms)
    )
    assert creation is not None
    return creation


def stages(creation: BatchCreation) -> dict[str, float]:
    return {stage.stage: stage.ratio for stage in creation.stages}


def test_data_wait_is_split_into_parts_that_sum_to_it() -> None:
    drawing = Drawing(inline=False)
    for _ in range(10):
        drawing.draw(f"start 40 | wait 50 | {STEP}")  # a new iterator and its first batch
        drawing.draw(f"wait=3 1 | {STEP} | wait=0 7 | {STEP}")
        drawing.draw("exhausted 4")
    wait = waiting(drawing)
    # 30 steps, of which three are warm-up: one whole epoch. The last exhausted fetch is in none.
    assert wait.starting_ns == (9 * (40 + 50) + 9 * 4) * MS
    assert wait.handing_over_ns == 9 * 1 * MS
    assert wait.making_ns == 9 * 7 * MS
    assert wait.total_ns == wait.starting_ns + wait.handing_over_ns + wait.making_ns
    assert wait.starved_ratio == pytest.approx(2 / 3)


def test_first_batch_may_be_ready_after_a_start() -> None:
    drawing = Drawing(inline=False)
    for _ in range(10):
        drawing.draw(f"start 4 | wait=2 5 | {STEP}")
    wait = waiting(drawing)
    assert (wait.starting_ns, wait.handing_over_ns) == (9 * 4 * MS, 9 * 5 * MS)
    assert wait.starved_ratio == 0


def test_without_workers_all_data_wait_is_batch_creation() -> None:
    wait = waiting(Drawing().draw(f"start 1 | wait 60 | {STEP}").draw(f"wait 60 | {STEP}", 19))
    assert (wait.making_ns, wait.total_ns) == (18 * 60 * MS, 18 * 60 * MS)
    assert wait.starved_ratio is None


def test_waiting_for_evaluation_batches_does_not_count() -> None:
    drawing = Drawing().draw(f"wait 6 | {STEP}", 20)
    drawing.evaluation(10, "wait 500 | predict 1").draw(f"wait 6 | {STEP}", 10)
    assert waiting(drawing).total_ns == 27 * 6 * MS


def test_stages_by_stack_samples_and_collating_as_measured() -> None:
    batch = (
        "fetch 100 ( samples ( do:read 10 | do:decode 20 | do:mask 25 | do:jitter 15 | do 20 ) "
        "| collate ( do:collate 10 ) )"
    )
    creation = making(Drawing().draw(batch, 10))
    assert creation.batch_count == 10
    assert creation.mean_ns == 100 * MS
    assert (creation.cpu_ratio, creation.collate_ratio) == (1, pytest.approx(0.1))
    assert creation.samples_ratio == pytest.approx(0.9)
    # The 20 ms without stacks are distributed over the stages of the other samples.
    rest = 0.9 / 70
    expected = {"augment": 40 * rest, "decode": 20 * rest, "read": 10 * rest, "collate": 0.1}
    assert stages(creation) == pytest.approx(expected)
    assert list(stages(creation)) == sorted(expected, key=lambda stage: -expected[stage])
    assert creation.stages[0].labels == pytest.approx({"Mask": 25 * rest, "Jitter": 15 * rest})
    assert sum(stages(creation).values()) == pytest.approx(1)


def test_collating_is_measured_even_where_samples_miss_it() -> None:
    creation = making(Drawing().draw("fetch 100 ( samples ( do:decode 60 ) | collate 40 )", 2))
    assert stages(creation) == pytest.approx({"decode": 0.6, "collate": 0.4})


def test_padding_in_a_dataset_is_separate_from_the_collate_function() -> None:
    batch = "fetch 100 ( samples ( do:pad 60 | do:decode 39 ) | collate ( do:collate 1 ) )"
    creation = making(Drawing().draw(batch, 5))
    assert stages(creation) == pytest.approx({"collate": 0.61, "decode": 0.39})
    assert creation.stages[0].labels == pytest.approx({"pad_row": 0.6, "collate_rows": 0.01})


def test_too_few_samples_give_no_stages() -> None:
    assert stages(making(Drawing().draw("fetch 19 ( samples ( do:decode 19 ) )"))) == {}
    assert stages(making(Drawing().draw("fetch 20 ( samples ( do:decode 20 ) )"))) == {"decode": 1}


def test_stacks_outside_the_fetch_give_no_stages() -> None:
    """The recorded frames of a very deep stack are the innermost ones."""
    batch = "fetch 100 ( samples ( do:elsewhere 99 ) | collate 1 )"
    creation = making(Drawing().draw(batch, 5))
    assert creation.stages == []
    assert creation.sample_count == 0


def test_quick_batches_without_details_are_sampled_inside_their_waits() -> None:
    detailed = "wait 10 ( fetch 10 ( samples ( do:decode 8 ) | collate ( do:collate 2 ) ) )"
    drawing = Drawing().draw(detailed)
    drawing.draw("wait 10 ( do:decode 6 | do:collate 2 | do:elsewhere 2 )", 9)
    creation = making(drawing, worker=False)
    assert creation.batch_count == 1
    assert creation.sample_count == 10 + 9 * 8
    assert stages(creation) == pytest.approx({"decode": 0.8, "collate": 0.2})


def test_fetchers_are_weighted_by_time() -> None:
    slow = Drawing().draw("fetch 100 ( samples ( do:decode 100 ) )", 3)
    fast = Drawing().draw("fetch 20 ( samples ( do:mask 20 ) )", 5)
    creation = making(slow, fast)
    assert creation.batch_count == 8
    assert creation.mean_ns == pytest.approx(400 * MS / 8)
    assert stages(creation) == pytest.approx({"decode": 0.75, "augment": 0.25})


def test_busy_ratio_of_workers() -> None:
    busy = Drawing().draw("fetch 30 | do 10", 5)  # 150 of the 190 ms from first to last
    idle = Drawing().draw("fetch 10 | do 30", 5)  # 50 of 170
    assert making(busy, idle).worker_busy_ratio == pytest.approx(200 / 360)
    assert making(busy, worker=False).worker_busy_ratio is None


def test_cpu_time_of_the_fetching_thread() -> None:
    drawing = Drawing().draw("fetch=0.25 80", 2).draw("fetch 40", 1)
    assert making(drawing).cpu_ratio == pytest.approx((2 * 20 + 40) / 200)
    assert making(Drawing().draw("fetch=1.5 80")).cpu_ratio == 1


def test_measured_transforms() -> None:
    batch = "fetch 100 ( transform:Mask=25 | transform:Crop=50 | samples 100 )"
    creation = making(Drawing().draw(batch, 2), Drawing().draw("fetch 200 ( transform:Mask=150 )"))
    assert creation.transforms == pytest.approx({"Mask": 200 / 400, "Crop": 100 / 400})
    assert list(creation.transforms) == ["Mask", "Crop"]


def test_batches_for_evaluation_do_not_count() -> None:
    train = Drawing().draw(f"wait 5 | {STEP}", 20).evaluation(10, "wait 50 | predict 5")
    steps = find_steps(train.draw(f"wait 5 | {STEP}", 20).table())
    assert steps.evaluation.total_ns == 552 * MS
    # Those for evaluation begin at 300 ms, when it does; the next ones are early by 52 ms.
    worker = Drawing().draw("fetch 10", 30).draw("fetch 50", 10).draw("fetch 10", 25)
    creation = measure_batch_creation([fetcher(worker)], steps)
    assert (creation.batch_count, creation.mean_ns) == (30 + 25 - 6, 10 * MS)


def test_batches_created_long_before_or_after_training_do_not_count() -> None:
    steps = find_steps(Drawing().pause(100_000).draw(f"wait 5 | {STEP}", 20).table())
    assert steps is not None
    early = Drawing().draw("fetch 10", 3).pause(40_000).draw("fetch 20", 2)
    creation = measure_batch_creation([fetcher(early)], steps)
    assert (creation.batch_count, creation.mean_ns) == (2, 20 * MS)
    late = Drawing().pause(200_000).draw("fetch 10")
    assert measure_batch_creation([fetcher(late)], steps) is None
    assert measure_batch_creation([], steps) is None


def test_samples_without_a_period_weigh_the_same() -> None:
    assert weigh_samples(np.array([5, 9, 9], dtype=np.int64), 0).tolist() == [1, 1, 1]
    assert weigh_samples(np.array([], dtype=np.int64), MS).tolist() == []


def test_samples_delayed_by_the_lock_are_weighed() -> None:
    drawing = Drawing().draw("fetch 100 ( samples ( do:decode 50 | do:mask 50 ) )", 4)
    steady = samples(drawing)
    # Decoding holds the lock: of its 50 samples only the last is taken.
    milliseconds = steady.t_ns // MS % 100
    rows = np.flatnonzero((milliseconds >= 49) | (steady.t_ns < MS))
    delayed = StackSamples(
        t_ns=steady.t_ns[rows],
        weight_ns=weigh_samples(steady.t_ns[rows], MS),
        stack=steady.stack[rows],
        stacks=steady.stacks,
        user_line=steady.user_line[rows],
    )
    one = Fetcher(process="w", worker=True, spans=drawing.table(), samples=delayed)
    creation = measure_batch_creation([one], always(500))
    assert creation is not None
    assert stages(creation) == pytest.approx({"decode": 0.5, "augment": 0.5})


def test_a_function_that_has_not_begun_gets_no_time() -> None:
    """The samples of a function that holds the lock show the next call, at the line of its `def`;
    a body on that line has begun."""
    drawing = Drawing().draw("fetch 100 ( samples ( do:decode 40 | do:mask 40 | do:pad 20 ) )", 4)
    sampled = samples(drawing)

    def measure(text: str) -> dict[str, float]:
        sources = {("/job/train.py", 0, 0): text}
        one = Fetcher(
            process="w",
            worker=True,
            spans=drawing.table(),
            samples=replace(sampled, sources=sources),
        )
        creation = measure_batch_creation([one], always(500))
        assert creation is not None
        return stages(creation)

    expected = measure("return row + [0] * (n - len(row))")
    assert measure("def pad_row(row): return row + [0]") == expected
    assert measure("def pad_row(row):") == pytest.approx({"decode": 1.0})


def late(handing_over: int, making: int, busy: float | None, irregular: int = 0) -> DataWait:
    wait = DataWait(
        total_ns=handing_over + making + 5,
        starting_ns=5,
        handing_over_ns=handing_over,
        making_ns=making,
        starved_ratio=0.0,
        irregular_ns=irregular,
    )
    creation = BatchCreation(
        batch_count=1,
        mean_ns=1.0,
        cpu_ratio=1.0,
        samples_ratio=None,
        collate_ratio=0.0,
        transforms={},
        sample_count=0,
        stages=[],
        worker_busy_ratio=busy,
    )
    return charge_busy_workers(wait, creation, wall_ns=100)


def test_late_batches_of_busy_workers_count_as_creation() -> None:
    wait = late(60, 10, busy=0.8, irregular=45)
    assert (wait.handing_over_ns, wait.making_ns) == (20, 50)  # a fifth of the steps was idle
    assert wait.irregular_ns == 45 - 40
    assert wait.total_ns == wait.starting_ns + wait.handing_over_ns + wait.making_ns


@pytest.mark.parametrize("busy", [0.0, 0.4, None])
def test_late_batches_of_idle_workers_count_as_handing_over(busy: float | None) -> None:
    wait = late(60, 10, busy=busy)
    assert (wait.handing_over_ns, wait.making_ns) == (60, 10)


def test_slow_waits_are_at_least_twice_the_median() -> None:
    waits = np.array([10, 20, 19, 10, 80, 10, 9], dtype=np.int64)  # the median is 10
    assert find_slow_waits(waits).tolist() == [4, 1]
    assert find_slow_waits(np.zeros(3, dtype=np.int64)).tolist() == []
    assert find_slow_waits(waits[:0]).tolist() == []
