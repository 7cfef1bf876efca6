"""Time by function and phases at times, compared with direct counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from stepscope.analysis.function_profile import find_phase_at, profile_functions
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.analysis.phases import PHASES
from stepscope.analysis.steps import find_steps
from stepscope.testing import Drawing, stack_text

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
