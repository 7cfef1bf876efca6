"""Work of steps, packed steps, and phases at times."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from stepscope.analysis import Steps, measure_growth_at_equal_work, measure_work, pack_steps
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.input_pipeline.stacks import find_phase_at, profile_functions
from stepscope.analysis.steps.phases import PHASES
from stepscope.analysis.steps.steps import find_steps
from stepscope.intervals import Intervals
from stepscope.testing import Drawing, stack_text

TRAIN = "forward:Net=32 2 | backward 3 | optimizer 1"


def draw(*lines: str) -> tuple[Drawing, Steps]:
    drawing = Drawing()
    for line in lines:
        drawing.draw(line)
    steps = find_steps(drawing.table())
    assert steps is not None
    return drawing, steps


def test_passes_elements_and_batches_are_counted_by_step() -> None:
    act = "predict:Net=4 1"
    drawing, steps = draw(TRAIN, *[f"wait 1 | {act} | {act} | {TRAIN}", f"wait 1 | {TRAIN}"] * 5)
    forward, backward, elements, fetches = measure_work(drawing.table(), steps)
    assert forward.tolist() == [1, *[3, 1] * 5]
    assert backward.tolist() == [1] * 11
    assert elements.tolist() == [32, *[40, 32] * 5]
    assert fetches.tolist() == [0, *[1] * 10], "the first step is not measured"


def test_a_measure_that_is_unknown_for_some_steps_is_left_out() -> None:
    drawing, steps = draw(*[TRAIN] * 4, "forward:Net 2 | backward 3 | optimizer 1", *[TRAIN] * 4)
    forward, backward = measure_work(drawing.table(), steps)
    assert forward.tolist() == backward.tolist() == [1] * 9


def test_evaluation_is_no_work_of_a_step() -> None:
    drawing, steps = draw(*[TRAIN, "evaluate:Net=99 5"] * 6)
    assert [work.tolist() for work in measure_work(drawing.table(), steps)] == [
        [1] * 6, [1] * 6, [32] * 6,
    ]  # fmt: skip


def test_time_that_grows_with_the_work_does_not_grow() -> None:
    episode = np.arange(10, 110)
    growth, is_scaled = measure_growth_at_equal_work(3.0 * episode, [np.full(100, 7), episode])
    assert (growth.steady_ratio, growth.excess) == (0, pytest.approx(0))
    assert growth.first == pytest.approx(3 * episode.mean())
    assert is_scaled


def test_time_that_grows_more_than_the_work() -> None:
    """Every element takes one more nanosecond in each step."""
    episode = np.arange(10, 110)
    growth, is_scaled = measure_growth_at_equal_work(episode * np.arange(100), [episode])
    assert is_scaled
    assert growth.steady_ratio == 1
    assert growth.last == pytest.approx(94.5 * episode.mean())


@pytest.mark.parametrize("work", [[], [np.full(100, 5)], [np.arange(200, 100, -1)]])
def test_growth_without_growing_work_is_that_of_the_values(work: list[np.ndarray]) -> None:
    growth, is_scaled = measure_growth_at_equal_work(np.arange(100.0), work)
    assert not is_scaled
    assert (growth.first, growth.last, growth.steady_ratio) == (4.5, 94.5, 1)


def test_too_few_values() -> None:
    assert measure_growth_at_equal_work(np.array([1.0]), []) == (None, False)


DAY_NS = 86_400 * 10**9


def make_steps(duration: NDArray[np.int64], profiled: NDArray[np.bool_]) -> Steps:
    random = np.random.default_rng(3)
    count = len(duration)
    start = 1_700_000_000_000_000_000 + np.cumsum(duration) + random.integers(0, 9, count)
    phases = {
        "forward": duration // 3,
        "loss": np.zeros(count, dtype=np.int64),
        "other": random.integers(-5, 300, count),
    }
    return Steps(
        source="optimizer",
        clock="host",
        thread=7,
        start=start,
        end=start + duration,
        wall_ns=duration - np.arange(count) % 3,
        phase_ns=phases,
        fetches=np.full(count, 2),
        profiled=profiled,
        evaluation=Intervals(np.array([5]), np.array([9])),
        first=4,
        rank_count=100,
    )


@pytest.mark.parametrize("duration", [[5], [100] * 40, [1, 70_000, 300, 2 * DAY_NS, 0] * 9])
def test_unpacked_steps_are_those_that_were_packed(duration: list[int]) -> None:
    for profiled in (np.zeros(len(duration), np.bool_), np.arange(len(duration)) % 5 == 1):
        steps = make_steps(np.array(duration), profiled)
        packed = pickle.loads(pickle.dumps(pack_steps(steps)))  # noqa: S301 - made here
        unpacked = packed.unpack()
        assert len(packed) == len(steps)
        for field in fields(Steps):
            expected, value = getattr(steps, field.name), getattr(unpacked, field.name)
            value = dict(value) if isinstance(value, Mapping) else value
            np.testing.assert_equal(value, expected)
            if isinstance(expected, np.ndarray):
                assert value.dtype == expected.dtype


def test_packed_steps_take_a_third_of_the_memory() -> None:
    duration = np.random.default_rng(1).integers(10**8, 2 * 10**8, 10_000)
    steps = make_steps(duration, np.zeros(len(duration), np.bool_))
    phases = {name: np.abs(values) for name, values in steps.phase_ns.items()}
    steps = replace(steps, phase_ns=phases)
    assert len(pickle.dumps(pack_steps(steps))) < len(pickle.dumps(steps)) / 3


PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
MS = 10**6
STACKS = ["main", "main > f", "main > f > g", "main > f > f", "main > g > f", "main > h@torch/h.py"]


def samples_of(codes: list[int], weights: list[int]) -> StackSamples:
    return StackSamples(
        t_ns=np.arange(len(codes), dtype=np.int64),
        weight_ns=np.array(weights, dtype=np.int64),
        stack=np.array(codes, dtype=np.int32),
        stacks=[stack_text(short) for short in STACKS],
        user_line=np.zeros(len(codes), dtype=np.int32),
    )


@PATIENT
@given(st.lists(st.tuples(st.integers(0, len(STACKS) - 1), st.integers(0, 9)), max_size=40))
def test_own_and_total_weights_equal_direct_counts(drawn: list[tuple[int, int]]) -> None:
    samples = samples_of([code for code, _ in drawn], [weight for _, weight in drawn])
    mask = np.arange(len(drawn)) % 3 > 0
    profile = profile_functions(samples, mask)
    own_weights: Counter[str] = Counter()
    total_weights: Counter[str] = Counter()
    functions = set()
    for index, (code, weight) in enumerate(drawn):
        if not mask[index]:
            continue
        names = [frame.partition("@")[0] for frame in STACKS[code].split(" > ")]
        own_weights[names[-1]] += weight
        for name in set(names):  # a recursive function is there once
            total_weights[name] += weight
            functions.add(name)
    assert {f.function for f in profile.functions} == functions
    for function in profile.functions:
        assert function.own_weight == own_weights[function.function]
        assert function.total_weight == total_weights[function.function]
    assert (
        profile.weight == sum(own_weights.values()) == sum(f.own_weight for f in profile.functions)
    )
    assert sum(f.own_count for f in profile.functions) == profile.sample_count == int(mask.sum())
    ordered = [f.own_weight for f in profile.functions]
    assert ordered == sorted(ordered, reverse=True)


def test_the_library_of_a_function() -> None:
    (function, *_) = profile_functions(samples_of([5], [1]), np.array([True])).functions
    assert (function.function, function.file, function.library) == (
        "h", "/site-packages/torch/h.py", "torch",
    )  # fmt: skip


def test_phase_at_each_time() -> None:
    """Check each millisecond inside and outside of steps."""
    drawing = Drawing(now=0).pause(5)
    step = "wait 4 | forward 3 | do:x 2 | backward 3 | do:x 1 | optimizer 2 | do:x 5"
    drawing.draw(step, 12)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    kinds = ["data_wait"] * 4 + ["forward"] * 3 + ["loss"] * 2 + ["backward"] * 3
    kinds += ["other"] + ["optimizer"] * 2
    # A step ends with its optimizer: the pause after it belongs to the next step.
    expected = [None] * 5 + kinds + (["other"] * 5 + kinds) * 11 + [None] * 5
    times = (np.arange(len(expected)) * MS + MS // 2).astype(np.int64)
    phases = [PHASES[code] if code >= 0 else None for code in find_phase_at(times, spans, steps)]
    assert phases == expected


def test_evaluation_is_in_no_phase() -> None:
    drawing = Drawing(now=0).draw("wait 4 | forward 3 | backward 3 | optimizer 2", 10)
    begin = drawing.now
    drawing.evaluation(5)
    end = drawing.now
    drawing.draw("wait 4 | forward 3 | backward 3 | optimizer 2", 10)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    times = np.arange(begin + MS // 2, end, MS, dtype=np.int64)
    assert (find_phase_at(times, spans, steps) == -1).all()
