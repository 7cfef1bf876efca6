"""Sentences that state a share and a threshold agree with the finding."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from stepscope.rules import Rule
from stepscope.rules.parameters import MAX_DECIMALS, percent_beside
from stepscope.rules.profiler.bottleneck import CPUBottleneck
from stepscope.rules.profiler.dataloader import DataloaderBottleneck
from stepscope.rules.profiler.framework_overhead import FrameworkOverhead
from stepscope.rules.profiler.gpu_memory import GPUMemoryIncrease
from stepscope.rules.profiler.gpu_utilization import LowGPUUtilization
from stepscope.rules.profiler.max_initialization_time import MaxInitializationTime
from stepscope.rules.profiler.step_share import CheckpointStall, CommunicationBound
from stepscope.rules.profiler.step_time_regression import StepTimeRegression
from stepscope.rules.profiler.thermal_throttling import ThermalThrottling
from tests.support.fake_rule_inputs import SECOND_NS, FakeRuleInputs, check_rule

SCAN_S = 60
MIN_STEP = 10
WINDOW_STEPS = 100
MIN_SNAPSHOTS = 1000


@pytest.mark.parametrize(("first", "last", "count"), [(300, 400, 700), (10, 45, 500)])
def test_a_rule_that_fired_on_some_steps_states_their_share(
    first: int, last: int, count: int
) -> None:
    """Steps of 1 s wait in a part of the job: on average below 20%, in some window above."""
    wait = np.zeros(count)
    wait[first:last] = 0.9
    inputs = FakeRuleInputs().rank(data_wait=wait, forward=1 - wait, from_s=0.5)
    ends_s = np.arange(count) + 1.5
    windows = [
        wait[MIN_STEP : np.searchsorted(ends_s, end_s)][-WINDOW_STEPS:]
        for end_s in range(SCAN_S, count + SCAN_S, SCAN_S)
    ]
    highest = max(windows, key=lambda window: float(window.mean()))
    finding = check_rule(DataloaderBottleneck(), inputs)
    assert finding.fired
    assert finding.sentences[0] == (
        f"rank 0: waiting for batches takes up to {highest.mean():.1%} of {len(highest)} "
        f"consecutive steps (threshold 20%), {wait[MIN_STEP:].mean():.1%} of all steps "
        "after the first 10 steps."
    )


def test_one_share_is_enough_where_all_steps_are_above_the_threshold() -> None:
    inputs = FakeRuleInputs().rank(data_wait=np.full(300, 0.25), forward=0.75)
    finding = check_rule(DataloaderBottleneck(), inputs)
    assert finding.sentences[0] == (
        "rank 0: waiting for batches takes 25.0% of step time after the first 10 steps (threshold "
        "20%)."
    )


def busy_cores(is_bottleneck: np.ndarray, node: str, inputs: FakeRuleInputs) -> FakeRuleInputs:
    gpu, core = np.where(is_bottleneck, 0.01, 0.9), np.where(is_bottleneck, 0.99, 0.2)
    inputs.sample("gpu_busy_ratio", gpu, device="0", node=node, from_s=0.25)
    return inputs.sample("core_busy_ratio", core, device="0", node=node, from_s=0.25)


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_bottleneck_that_passed_states_the_share_at_its_scan(is_alone: bool) -> None:
    index = np.arange(4000)
    is_bottleneck = (index >= 200) & (index <= 1600)
    inputs = busy_cores(is_bottleneck, "a", FakeRuleInputs())
    if not is_alone:
        busy_cores(np.zeros(4000, dtype=np.bool_), "b", inputs)
    # Two samples a second; a scan decides on all snapshots up to its end.
    counts = [n for n in range(2 * SCAN_S, 4001, 2 * SCAN_S) if n > MIN_SNAPSHOTS]
    count = max(counts, key=lambda n: float(is_bottleneck[:n].mean()))
    share = (
        f"{is_bottleneck[:count].mean():.1%} of the first {count:,} snapshots (threshold 50%), "
        f"{is_bottleneck.mean():.1%} of all 4,000."
    )
    finding = check_rule(CPUBottleneck(), inputs)
    assert finding.fired
    if is_alone:
        assert finding.sentences[0].endswith(f": {share}")
    else:
        assert f"{is_bottleneck.mean() / 2:.1%} of 8,000 snapshots" in finding.sentences[0]
        assert finding.sentences[-1] == f"Node a: {share}"


@pytest.mark.parametrize(
    ("bottlenecks", "text"), [(1501, "50.02%"), (1500, "49.98%"), (1503, "50.1%")]
)
def test_a_share_close_to_the_threshold_shows_its_side(bottlenecks: int, text: str) -> None:
    """Of 3001 snapshots, the last ones are bottlenecks: the share is highest at the end."""
    is_bottleneck = np.arange(3001) >= 3001 - bottlenecks
    finding = check_rule(CPUBottleneck(), busy_cores(is_bottleneck, "a", FakeRuleInputs()))
    assert finding.fired is (2 * bottlenecks > 3001)
    assert f": {text} of 3,001 snapshots (threshold 50%)." in finding.sentences[0]


@given(st.integers(0, 10_000), st.integers(1, 10_000), st.sampled_from([2.0, 20.0, 33.3, 50.0]))
@example(7, 100, 7.0)
def test_percentages_are_on_their_side_of_the_threshold(
    part: int, rest: int, threshold: float
) -> None:
    total = part + rest
    text = percent_beside(part / total, threshold)
    shown, difference = float(text.strip("<%")), 100 * part / total - threshold
    if abs(difference) < 10**-MAX_DECIMALS:
        assert shown == threshold
    else:
        assert (shown > threshold) == (difference > 0)
        assert shown != threshold
        assert shown == pytest.approx(100 * part / total, abs=0.1)


# --- no finding states a value that equals its threshold ------------------------------------------

STEPS = 300
SAMPLES = 1500
HOT = 0x20
Draw = Callable[[float], FakeRuleInputs]
"""Inputs beyond the threshold by an excess, in the unit of the threshold."""


def share_of_steps(phase: str, threshold: float) -> Draw:
    """Steps of 1 s with one more phase than the forward pass."""

    def draw(excess: float) -> FakeRuleInputs:
        share = (threshold + excess) / 100
        return FakeRuleInputs().rank(**{phase: np.full(STEPS, share)}, forward=1 - share)

    return draw


def low_gpu(excess: float) -> FakeRuleInputs:
    return FakeRuleInputs().sample(
        "gpu_busy_ratio", np.full(SAMPLES, 0.7 - excess / 100), device="0"
    )


def rising_memory(excess: float) -> FakeRuleInputs:
    share = np.where(np.arange(SAMPLES) < SAMPLES - 20, 0.5, 0.55 + excess / 100)
    return FakeRuleInputs().sample("gpu_memory_used_ratio", share, device="0")


def longer_steps(excess: float) -> FakeRuleInputs:
    return FakeRuleInputs().rank(forward=np.repeat([1.0, 1.2 + excess / 100], STEPS))


def slow_start(excess: float) -> FakeRuleInputs:
    """Initialization of 20 minutes and some of the last one."""
    from_s = 60 * (20 + excess)
    inputs = FakeRuleInputs().sample("cpu_busy_ratio", np.full(2 * 1500, 0.5))
    return inputs.rank(forward=np.ones(STEPS), from_s=from_s)


BORDERS: dict[str, tuple[type[Rule[Any]], Draw, str, float, int]] = {
    "waits": (DataloaderBottleneck, share_of_steps("data_wait", 20), r"s takes ([\d.]+)%", 20, 1),
    "overhead": (FrameworkOverhead, share_of_steps("other", 25), r"takes ([\d.]+)%", 25, 1),
    "exchange": (CommunicationBound, share_of_steps("communication", 20), r"([\d.]+)% of", 20, 1),
    "saves": (CheckpointStall, share_of_steps("checkpoint", 5), r"takes ([\d.]+)%", 5, 1),
    "idle GPU": (LowGPUUtilization, low_gpu, r"p95 ([\d.]+)%", 70, -1),
    "memory": (GPUMemoryIncrease, rising_memory, r"at most ([\d.]+) points", 5, 1),
    "longer steps": (StepTimeRegression, longer_steps, r"\(\+([\d.]+)%\)", 20, 1),
}
"""Rule, inputs, pattern of the value in a sentence, threshold, side of a violation."""


@pytest.mark.parametrize("name", BORDERS)
@given(exponent=st.floats(-6, 0.5))
@example(exponent=-6)
@settings(max_examples=25)
def test_a_violation_states_a_value_on_its_side_of_the_threshold(
    name: str, exponent: float
) -> None:
    rule, draw, pattern, threshold, side = BORDERS[name]
    excess = 10**exponent
    finding = check_rule(rule(), draw(excess))
    assert finding.fired
    values = re.findall(pattern, " ".join(finding.sentences))
    assert values, finding.sentences
    for text in values:
        assert side * (float(text) - threshold) > 0, finding.sentences
        assert float(text) == pytest.approx(threshold + side * excess, abs=0.5)


@given(st.floats(-6, 0))
@example(-6)
def test_an_initialization_just_above_its_threshold_is_not_said_to_equal_it(
    exponent: float,
) -> None:
    finding = check_rule(MaxInitializationTime(), slow_start(10**exponent))
    (sentence,) = finding.sentences
    assert not sentence.startswith("First training step after 20 min (")


@given(st.integers(11, 400))
def test_throttling_states_the_share_of_the_window_that_fired(window: int) -> None:
    """Just more than a tenth of one window, in a run that is otherwise cool."""
    hot_count = window // 10 + 1
    reasons = np.where(np.arange(3000) < hot_count, HOT, 0)
    inputs = FakeRuleInputs(scan_ns=window * SECOND_NS // 2)
    inputs.sample("gpu_throttle_reasons", reasons, device="0")
    finding = check_rule(ThermalThrottling(window=window), inputs)
    (sentence,) = finding.sentences
    match = re.search(r"up to ([\d.]+)% of (\d+) consecutive samples \(threshold 10%\)", sentence)
    assert match, sentence
    assert 10 < float(match[1]) == pytest.approx(100 * hot_count / window, abs=0.051)
    assert int(match[2]) == window
    share = re.search(r"([\d.]+)% of all samples", sentence)
    assert share
    assert float(share[1]) == pytest.approx(hot_count / 30, abs=0.051)
