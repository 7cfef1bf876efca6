"""Sentences that state a share and a threshold agree with the finding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from stepscope.rules.profiler.cpu_bottleneck import CPUBottleneck
from stepscope.rules.profiler.dataloader_bottleneck import DataloaderBottleneck
from stepscope.rules.threshold_text import MAX_DECIMALS, percent_beside
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule

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
        f"consecutive steps (threshold 20%), {wait[MIN_STEP:].mean():.1%} of all steps."
    )


def test_one_share_is_enough_where_all_steps_are_above_the_threshold() -> None:
    inputs = FakeRuleInputs().rank(data_wait=np.full(300, 0.25), forward=0.75)
    finding = check_rule(DataloaderBottleneck(), inputs)
    assert finding.sentences[0] == (
        "rank 0: waiting for batches takes 25.0% of step time (threshold 20%)."
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
