"""Times of findings: those of the data that violated the condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepscope.rules import Evaluation, Rule, TracedBatches, installed_rules
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import ORIGIN_NS, FakeRuleInputs, traced_steps

REGISTRY = installed_rules()


def evaluate(rule: Rule[Any], inputs: FakeRuleInputs) -> Finding:
    evaluation = Evaluation([rule])
    evaluation.feed(inputs)
    (finding,) = evaluation.findings()
    assert finding.fired, finding
    return finding


def after_s(finding: Finding) -> tuple[float, float]:
    """Return the times of a finding in seconds after the start of the job."""
    assert finding.first_ns is not None
    assert finding.last_ns is not None
    return (finding.first_ns - ORIGIN_NS) / 1e9, (finding.last_ns - ORIGIN_NS) / 1e9


def levels(*parts: tuple[int, float]) -> np.ndarray:
    """Return constant samples or steps, one part after another."""
    return np.concatenate([np.full(count, value) for count, value in parts])


def starving(metric: str) -> FakeRuleInputs:
    """From 100 s to 800 s, the GPU is idle while a core is above the threshold of the rule."""
    is_starved = (np.arange(2200) >= 200) & (np.arange(2200) <= 1600)
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", np.where(is_starved, 0.01, 0.9), device="0")
    return inputs.sample(metric, np.where(is_starved, 0.99, 0.2), device="0")


def half_used(**levels_by_metric: float) -> FakeRuleInputs:
    """One GPU is little used until 600 s, and then well used."""
    low, high = 1200, 1200
    inputs = FakeRuleInputs()
    inputs.sample("cpu_busy_ratio", levels((low, 0.1), (high, 0.95)))
    for metric in ("gpu_busy_ratio", "gpu_memory_used_ratio"):
        inputs.sample(metric, levels((low, 0.1), (high, 0.95)), device="0")
    return inputs


def memory(values: np.ndarray) -> FakeRuleInputs:
    return FakeRuleInputs().sample("gpu_memory_used_ratio", values, device="0")


def slow_wait() -> FakeRuleInputs:
    """Steps 300 to 399, of 1 s, wait for data."""
    wait = levels((300, 0.0), (100, 0.9), (300, 0.0))
    return FakeRuleInputs().rank(data_wait=wait, forward=1 - wait)


def straggling() -> FakeRuleInputs:
    """Rank 1 works twice as long as the others in steps 100 to 199, of 1 s."""
    inputs = FakeRuleInputs()
    for rank in range(3):
        work = levels((100, 0.4), (100, 0.8 if rank == 1 else 0.4), (100, 0.4))
        inputs.rank(rank, forward=work, backward=1 - work)
    return inputs


def recompiling() -> FakeRuleInputs:
    """Steps 100 to 119, of 1 s, compile."""
    at_s = np.arange(100, 120) + 0.5
    return FakeRuleInputs().rank(forward=np.full(200, 1.0)).compile("rank 0", at_s)


def throttled() -> FakeRuleInputs:
    """The GPU is too hot from 100 s to 200 s."""
    return FakeRuleInputs().sample(
        "gpu_throttle_reasons", levels((200, 0), (201, 0x20), (400, 0)), device="0"
    )


def outliers() -> FakeRuleInputs:
    """Every twentieth step from step 200 to step 400 takes 5 s, the others 1 s."""
    seconds = np.ones(500)
    seconds[200:401:20] = 5
    return FakeRuleInputs().rank(forward=seconds)


def unbalanced() -> FakeRuleInputs:
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", np.full(1500, 0.9), device="0", from_s=10)
    return inputs.sample("gpu_busy_ratio", np.full(1500, 0.2), device="1", from_s=10)


def loading() -> FakeRuleInputs:
    """One process creates batches from 5 s to 65 s."""
    start = np.arange(5, 65, 1.0)
    return FakeRuleInputs().node(cores=8).load(start, 1.0, 0).rank(forward=np.full(70, 1.0))


PLACES: dict[str, tuple[Callable[[], FakeRuleInputs], dict[str, object], tuple[float, float]]] = {
    # The snapshots that are bottlenecks.
    "CPUBottleneck": (lambda: starving("core_busy_ratio"), {}, (100, 800)),
    "IOBottleneck": (lambda: starving("core_iowait_ratio"), {}, (100, 800)),
    # The windows of 500 samples that end with a scan: with more than 1000 samples at 9 and 10 min.
    "LowGPUUtilization": (half_used, {}, (540 - 250, 600 - 0.5)),
    "BatchSize": (half_used, {}, (540 - 250, 600 - 0.5)),
    # Windows of ten samples with a mean more than 5 points above that of the ten before. Sample
    # 1200 is the first of the jump by 30 points: two samples of ten make 6 points.
    "GPUMemoryIncrease": (
        lambda: memory(levels((1200, 0.2), (1200, 0.5))),
        {"window": 10},
        ((1201 - 9) / 2, (1200 + 17) / 2),
    ),
    # The steps that wait, the compiling steps after the tenth, the throttled samples.
    "DataloaderBottleneck": (slow_wait, {"window": 100}, (300, 400)),
    # All steps above the threshold, not only the latest ones: the step rules skip the first ten.
    "FrameworkOverhead": (
        lambda: FakeRuleInputs().rank(forward=np.full(300, 0.5), other=np.full(300, 0.5)),
        {"window": 50},
        (10, 300),
    ),
    "RecompileStorm": (recompiling, {"patience": 1, "recompiles": 10}, (110, 120)),
    "ThermalThrottling": (throttled, {"window": 100}, (100, 200)),
    # The outliers, each of which takes 4 s more than the other steps.
    "StepOutlier": (outliers, {}, (200, 401 + 11 * 4)),
    "RankStraggler": (straggling, {"window": 50, "patience": 1}, (100, 200)),
    # Blocks of five steps from step 1 on: the first whose median is slow starts with step 201, and
    # the change is certain with the fourth.
    "StepTimeRegression": (
        lambda: FakeRuleInputs().rank(forward=levels((200, 1.0), (100, 2.0))),
        {"patience": 1, "recent": 4},
        (200 + 2, 200 + 2 + 4 * 5 * 2),
    ),
    # All samples, all batches, the time before the first step.
    "LoadBalancing": (unbalanced, {}, (10, 10 + 749.5)),
    "Dataloader": (loading, {}, (5, 65)),
    "MaxInitializationTime": (
        lambda: FakeRuleInputs().rank(forward=np.ones(60), from_s=1500),
        {},
        (0, 1500),
    ),
    # Minutes of the clock start 40 s after the job. Use grows from 600 s on: the minute from 640 s
    # is the first and the one from 1060 s the eighth that is above the one before, with which it
    # rises in 7 of 8 sections of ten minutes. The last minute with a later one ends at 1780 s.
    "GPUMemoryLeak": (
        lambda: memory(np.interp(np.arange(3600), [1200, 3600], [0.1, 0.7])),
        {"window": 10, "rises": 5},
        (1060 - 9 * 60, 1780),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_are_those_of_the_violating_data(name: str) -> None:
    draw, parameters, expected = PLACES[name]
    finding = evaluate(REGISTRY.get(name)(**parameters), draw())
    assert after_s(finding) == pytest.approx(expected, abs=1e-6)


def test_an_imported_trace_violates_from_its_start_to_its_end() -> None:
    steps = traced_steps(idle=[900, 900, 900], kernel=[100, 100, 100])
    start_ns, end_ns = int(steps.times.start_ns[0]) - 5, int(steps.times.end_ns[-1])
    inputs = FakeRuleInputs().imported(
        steps=steps,
        start_ns=start_ns,
        batches=TracedBatches(duration_ns=np.array([1000]), has_workers=False),
    )
    finding = evaluate(REGISTRY.get("Dataloader")(), inputs)
    assert (finding.first_ns, finding.last_ns) == (start_ns, end_ns)


class Whole(Rule[Any]):
    """Fires on the whole job."""

    def check(self, inputs: Any) -> Finding:
        return self.finding(triggered=1)


def test_a_rule_about_the_whole_job_has_its_extent() -> None:
    inputs = FakeRuleInputs().rank(forward=np.ones(100), from_s=10)
    assert after_s(evaluate(Whole(), inputs)) == (0, 110)
