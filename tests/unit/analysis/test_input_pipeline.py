"""What the training thread waits for, and what making batches takes. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.input_pipeline import (
    BatchCreation,
    DataWait,
    Fetcher,
    StackSamples,
    charge_busy_workers,
    measure_batch_creation,
    split_data_wait,
    weigh_samples,
)
from stepscope.analysis.steps import Steps, find_steps
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
    """One sample in the middle of every millisecond."""
    names = list(CODE)
    times = np.arange(0, drawing.now, MS) + MS // 2
    seen = np.full(len(times), names.index("elsewhere"), dtype=np.int32)
    for activity in drawing.activities:
        seen[(times >= activity.start) & (times < activity.end)] = names.index(activity.code)
    return StackSamples(
        t_ns=times,
        weight_ns=weigh_samples(times, MS),
        stack=seen,
        stacks=[stack_text(stack) for stack in CODE.values()],
        user_line=np.zeros(len(times), dtype=np.int32),
    )


def fetcher(drawing: Drawing, *, worker: bool = True) -> Fetcher:
    return Fetcher(process="w", worker=worker, spans=drawing.table(), samples=samples(drawing))


def always(ms: int) -> Steps:
    """Steps of 10 ms that last that long."""
    steps = find_steps(Drawing().draw(STEP, ms // 10).table())
    assert steps is not None
    return steps


def making(*drawings: Drawing, worker: bool = True) -> BatchCreation:
    ms = max(drawing.now for drawing in drawings) // MS + 20
    found = measure_batch_creation(
        [fetcher(drawing, worker=worker) for drawing in drawings], always(ms)
    )
    assert found is not None
    return found


def stages(found: BatchCreation) -> dict[str, float]:
    return {stage.stage: stage.ratio for stage in found.stages}


def test_waiting_is_split_into_parts_that_sum_to_it() -> None:
    drawing = Drawing(inline=False)
    for _ in range(10):
        drawing.draw(f"start 40 | wait 50 | {STEP}")  # a new iterator and its first batch
        drawing.draw(f"wait=3 1 | {STEP} | wait=0 7 | {STEP}")
        drawing.draw("exhausted 4")
    found = waiting(drawing)
    # 30 steps, of which three are warm-up: one whole epoch. The last exhausted fetch is in none.
    assert found.starting_ns == (9 * (40 + 50) + 9 * 4) * MS
    assert found.handing_over_ns == 9 * 1 * MS
    assert found.making_ns == 9 * 7 * MS
    assert found.total_ns == found.starting_ns + found.handing_over_ns + found.making_ns
    assert found.starved_ratio == pytest.approx(2 / 3)


def test_the_first_batch_may_lie_ready_after_a_start() -> None:
    drawing = Drawing(inline=False)
    for _ in range(10):
        drawing.draw(f"start 4 | wait=2 5 | {STEP}")
    found = waiting(drawing)
    assert (found.starting_ns, found.handing_over_ns) == (9 * 4 * MS, 9 * 5 * MS)
    assert found.starved_ratio == 0


def test_without_workers_all_waiting_is_making() -> None:
    found = waiting(Drawing().draw(f"start 1 | wait 60 | {STEP}").draw(f"wait 60 | {STEP}", 19))
    assert (found.making_ns, found.total_ns) == (18 * 60 * MS, 18 * 60 * MS)
    assert found.starved_ratio is None


def test_waiting_for_evaluation_batches_does_not_count() -> None:
    drawing = Drawing().draw(f"wait 6 | {STEP}", 20)
    drawing.evaluation(10, "wait 500 | predict 1").draw(f"wait 6 | {STEP}", 10)
    assert waiting(drawing).total_ns == 27 * 6 * MS


def test_stages_by_stack_samples_and_collating_as_measured() -> None:
    batch = (
        "fetch 100 ( samples ( do:read 10 | do:decode 20 | do:mask 25 | do:jitter 15 | do 20 ) "
        "| collate ( do:collate 10 ) )"
    )
    found = making(Drawing().draw(batch, 10))
    assert found.batch_count == 10
    assert found.mean_ns == 100 * MS
    assert (found.cpu_ratio, found.collate_ratio) == (1, pytest.approx(0.1))
    assert found.samples_ratio == pytest.approx(0.9)
    # The 20 ms that no stack explains are spread over what the others say.
    rest = 0.9 / 70
    expected = {"augment": 40 * rest, "decode": 20 * rest, "read": 10 * rest, "collate": 0.1}
    assert stages(found) == pytest.approx(expected)
    assert list(stages(found)) == sorted(expected, key=lambda stage: -expected[stage])
    assert found.stages[0].labels == pytest.approx({"Mask": 25 * rest, "Jitter": 15 * rest})
    assert sum(stages(found).values()) == pytest.approx(1)


def test_collating_is_measured_even_where_samples_miss_it() -> None:
    found = making(Drawing().draw("fetch 100 ( samples ( do:decode 60 ) | collate 40 )", 2))
    assert stages(found) == pytest.approx({"decode": 0.6, "collate": 0.4})


def test_what_a_dataset_pads_itself_is_not_what_the_collate_function_takes() -> None:
    batch = "fetch 100 ( samples ( do:pad 60 | do:decode 39 ) | collate ( do:collate 1 ) )"
    found = making(Drawing().draw(batch, 5))
    assert stages(found) == pytest.approx({"collate": 0.61, "decode": 0.39})
    assert found.stages[0].labels == pytest.approx({"pad_row": 0.6, "collate_rows": 0.01})


def test_too_few_samples_name_no_stage() -> None:
    assert stages(making(Drawing().draw("fetch 19 ( samples ( do:decode 19 ) )"))) == {}
    assert stages(making(Drawing().draw("fetch 20 ( samples ( do:decode 20 ) )"))) == {"decode": 1}


def test_stacks_that_end_before_the_fetch_name_no_stage() -> None:
    """The recorded frames of a very deep stack are the innermost ones."""
    batch = "fetch 100 ( samples ( do:elsewhere 99 ) | collate 1 )"
    found = making(Drawing().draw(batch, 5))
    assert found.stages == []
    assert found.sample_count == 0


def test_fetchers_count_by_the_time_they_spend() -> None:
    one = Drawing().draw("fetch 100 ( samples ( do:decode 100 ) )", 3)
    other = Drawing().draw("fetch 20 ( samples ( do:mask 20 ) )", 5)
    found = making(one, other)
    assert found.batch_count == 8
    assert found.mean_ns == pytest.approx(400 * MS / 8)
    assert stages(found) == pytest.approx({"decode": 0.75, "augment": 0.25})


def test_how_busy_the_workers_are() -> None:
    busy = Drawing().draw("fetch 30 | do 10", 5)  # 150 of the 190 ms from first to last
    idle = Drawing().draw("fetch 10 | do 30", 5)  # 50 of 170
    assert making(busy, idle).worker_busy_ratio == pytest.approx(200 / 360)
    assert making(busy, worker=False).worker_busy_ratio is None


def test_cpu_time_of_the_fetching_thread() -> None:
    drawing = Drawing().draw("fetch=0.25 80", 2).draw("fetch 40", 1)
    assert making(drawing).cpu_ratio == pytest.approx((2 * 20 + 40) / 200)
    assert making(Drawing().draw("fetch=1.5 80")).cpu_ratio == 1


def test_transforms_as_they_were_measured() -> None:
    batch = "fetch 100 ( transform:Mask=25 | transform:Crop=50 | samples 100 )"
    found = making(Drawing().draw(batch, 2), Drawing().draw("fetch 200 ( transform:Mask=150 )"))
    assert found.transforms == pytest.approx({"Mask": 200 / 400, "Crop": 100 / 400})
    assert list(found.transforms) == ["Mask", "Crop"]


def test_batches_for_evaluation_do_not_count() -> None:
    train = Drawing().draw(f"wait 5 | {STEP}", 20).evaluation(10, "wait 50 | predict 5")
    steps = find_steps(train.draw(f"wait 5 | {STEP}", 20).table())
    assert steps is not None
    assert steps.evaluation.total_ns == 552 * MS
    # Those for evaluation begin at 300 ms, when it does; the next ones are early by 52 ms.
    worker = Drawing().draw("fetch 10", 30).draw("fetch 50", 10).draw("fetch 10", 25)
    found = measure_batch_creation([fetcher(worker)], steps)
    assert found is not None
    assert (found.batch_count, found.mean_ns) == (30 + 25 - 6, 10 * MS)


def test_batches_made_long_before_or_after_training_do_not_count() -> None:
    steps = find_steps(Drawing().pause(100_000).draw(f"wait 5 | {STEP}", 20).table())
    assert steps is not None
    early = Drawing().draw("fetch 10", 3).pause(40_000).draw("fetch 20", 2)
    found = measure_batch_creation([fetcher(early)], steps)
    assert found is not None
    assert (found.batch_count, found.mean_ns) == (2, 20 * MS)
    late = Drawing().pause(200_000).draw("fetch 10")
    assert measure_batch_creation([fetcher(late)], steps) is None
    assert measure_batch_creation([], steps) is None


def test_a_late_sample_stands_for_the_time_it_was_held_up() -> None:
    """A C function that holds the interpreter lock for 9 ms leaves one sample, not nine."""
    times = np.array([1, 2, 3, 12, 13], dtype=np.int64) * MS
    assert (weigh_samples(times, MS) // MS).tolist() == [1, 1, 1, 9, 1]


def test_a_pause_of_the_sampler_stands_for_nothing() -> None:
    times = np.array([1, 51, 102, 103], dtype=np.int64) * MS
    assert (weigh_samples(times, MS) // MS).tolist() == [1, 50, 1, 1]


def test_samples_of_an_unknown_period_weigh_the_same() -> None:
    assert weigh_samples(np.array([5, 9, 9], dtype=np.int64), 0).tolist() == [1, 1, 1]
    assert weigh_samples(np.array([], dtype=np.int64), MS).tolist() == []


def test_samples_are_weighed_where_the_lock_delays_them() -> None:
    drawing = Drawing().draw("fetch 100 ( samples ( do:decode 50 | do:mask 50 ) )", 4)
    late = samples(drawing)
    # Decoding holds the lock: of its 50 samples only the last one is taken.
    milliseconds = late.t_ns // MS % 100
    taken = np.flatnonzero((milliseconds >= 49) | (late.t_ns < MS))
    kept = StackSamples(
        t_ns=late.t_ns[taken],
        weight_ns=weigh_samples(late.t_ns[taken], MS),
        stack=late.stack[taken],
        stacks=late.stacks,
        user_line=late.user_line[taken],
    )
    one = Fetcher(process="w", worker=True, spans=drawing.table(), samples=kept)
    found = measure_batch_creation([one], always(500))
    assert found is not None
    assert stages(found) == pytest.approx({"decode": 0.5, "augment": 0.5})


def late(handing_over: int, making: int, busy: float | None, irregular: int = 0) -> DataWait:
    seen = DataWait(
        total_ns=handing_over + making + 5,
        starting_ns=5,
        handing_over_ns=handing_over,
        making_ns=making,
        starved_ratio=0.0,
        irregular_ns=irregular,
    )
    made = BatchCreation(
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
    return charge_busy_workers(seen, made, wall_ns=100)


def test_batches_of_busy_workers_are_late_for_the_making() -> None:
    found = late(60, 10, busy=0.8, irregular=45)
    assert (found.handing_over_ns, found.making_ns) == (20, 50)  # a fifth of the steps was idle
    assert found.irregular_ns == 45 - 40
    assert found.total_ns == found.starting_ns + found.handing_over_ns + found.making_ns


@pytest.mark.parametrize("busy", [0.0, 0.4, None])
def test_batches_of_idle_workers_are_late_for_the_handing_over(busy: float | None) -> None:
    found = late(60, 10, busy=busy)
    assert (found.handing_over_ns, found.making_ns) == (60, 10)
