"""Recompilation as frameworks record it: functions, counts and times."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis import Series
from stepscope.rules import Evaluation
from stepscope.rules.profiler.recompile_storm import RecompileStorm
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import ORIGIN_NS, FakeRuleInputs

SECOND_NS = 1_000_000_000
STEPS, FIRST_STEPS, COMPILE_S = 80, 50, 0.25


def compiling_steps(first: int) -> FakeRuleInputs:
    """Return steps of a second, each of which compiles from the first on."""
    number = np.arange(STEPS)
    compilation_s = np.where(number >= first, COMPILE_S, 0)
    inputs = FakeRuleInputs().rank(compilation=compilation_s, other=1 - compilation_s)
    t_ns = ORIGIN_NS + number * SECOND_NS
    duration_ns = np.full(STEPS, COMPILE_S * SECOND_NS)
    is_compiled = number >= first
    inputs.compilations["rank 0"] = {
        "jit(update)": Series(t_ns[is_compiled], duration_ns[is_compiled]),
        "jit(init)": Series(t_ns[:1], 40 * duration_ns[:1]),
    }
    return inputs


def evaluate(inputs: FakeRuleInputs, scans: list[int]) -> Finding:
    evaluation = Evaluation([RecompileStorm()])
    for part in inputs.ranges(scans):
        evaluation.feed(part)
    (finding,) = evaluation.findings()
    return finding


@pytest.mark.parametrize("scans", [[], [1]])
def test_the_function_is_named_with_count_and_time(scans: list[int]) -> None:
    finding = evaluate(compiling_steps(0), scans)
    count = STEPS - FIRST_STEPS
    assert finding.fired
    assert finding.violations == count
    ratio = pytest.approx(COMPILE_S)
    assert finding.details["ranks"]["rank 0"]["compiling_share_ratio"] == ratio
    assert finding.details["ranks"]["rank 0"]["functions"] == {
        "jit(update)": {"count": count, "total_ns": count * COMPILE_S * SECOND_NS}
    }
    assert "rank 0: jit(update) took 7.5 s in 30 compilations." in finding.sentences


def test_functions_without_a_name_are_no_samples() -> None:
    """PyTorch does not always name them; samples in a compiler are of the same time."""
    inputs = compiling_steps(0)
    functions = inputs.compilations["rank 0"]
    update = functions.pop("jit(update)")
    inputs.compilations["rank 0"] = {
        "": update,
        **functions,
        "jit(loss)": Series(update.t_ns[1:], update.value[1:]),
    }
    inputs.compiler_time["rank 0"] = update
    finding = evaluate(inputs, [])
    ratio = pytest.approx(COMPILE_S)
    assert finding.details["ranks"]["rank 0"]["compiling_share_ratio"] == ratio
    sentence = "a function without a name took 7.5 s in 30 compilations, the most of 2 functions."
    assert f"rank 0: {sentence}" in finding.sentences


def test_steps_that_compile_once_in_a_while_are_no_storm() -> None:
    finding = evaluate(compiling_steps(STEPS - 8), [])
    assert not finding.fired
    assert finding.datapoints == STEPS - FIRST_STEPS
