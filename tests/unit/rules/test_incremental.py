"""A run evaluated range by range gives the same findings as the run evaluated at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from stepscope.rules import Evaluation, Rule
from stepscope.rules.profiler import RULES
from tests.support.drawn_figures import make_gpu_time
from tests.support.fake_rule_inputs import GPU_BYTES, ORIGIN_NS, SECOND_NS, FakeRuleInputs

LENGTH_S = 900
SHORT = {"patience": 40, "window": 20, "n_outliers": 1, "recompiles": 2}
"""Parameters with which rules fire in a run of fifteen minutes."""
SPECIAL = {"GPUMemoryLeak": {"window": 4, "rises": 2, "increase": 0.5}}


def random_run(seed: int) -> FakeRuleInputs:
    """Draw two nodes with two GPUs and two ranks, with random good and bad periods."""
    random = np.random.default_rng(seed)
    inputs = FakeRuleInputs()
    samples = LENGTH_S * 2
    for node in ("n0", "n1"):
        bad = np.repeat(random.random(samples // 60 + 1) < 0.4, 60)[:samples]
        for gpu in ("0", "1"):
            busy = np.where(bad, 0.05, 0.9) * random.uniform(0.8, 1, samples)
            leak = np.linspace(0, 0.3, samples) + 0.2 * (np.arange(samples) > samples // 2)
            hot = np.where(bad, 0x20, 0).astype(float)
            inputs.sample("gpu_busy_ratio", busy, device=gpu, node=node)
            inputs.sample("gpu_memory_used_bytes", leak * GPU_BYTES, device=gpu, node=node)
            inputs.sample("gpu_throttle_reasons", hot, device=gpu, node=node)
        load = np.where(bad, 0.95, 0.4)
        for use, share in (("busy", load), ("iowait", load / 1.5)):
            inputs.sample(f"cpu_{use}_ratio", share, node=node)
            for core in ("0", "1"):
                inputs.sample(f"core_{use}_ratio", share, device=core, node=node)
        inputs.sample("memory_used_bytes", random.uniform(10, 90, samples), node=node)
        inputs.sample("network_sent_bytes_per_s", random.uniform(0, 1e6, samples), device="e")
    for rank in (0, 1):
        work = random.uniform(0.2, 0.4, 1000) * np.where(random.random(1000) < 0.02, 8, 1)
        work[600:] *= 1.6
        inputs.rank(
            rank,
            node=f"n{rank}",
            profiled=random.random(1000) < 0.01,
            forward=work * (1 + rank),
            data_wait=work * random.choice([0.1, 2]),
            backward=0.1,
            communication=0.1,
            checkpoint=np.where(np.arange(1000) % 100 == 50, 3.0, 0),
            other=0.2,
        )
        start = np.sort(random.uniform(0, LENGTH_S, 800))
        inputs.load(start, random.uniform(0.1, 20, 800), rank, node=f"n{rank}")
        inputs.compile(f"rank {rank}", np.sort(random.uniform(0, LENGTH_S, 60)))
    for number in range(3):
        inputs.trace(
            name=f"window {number}",
            end_ns=ORIGIN_NS + int(random.integers(1, LENGTH_S)) * SECOND_NS,
            gpu_time=make_gpu_time(100, int(random.integers(0, 100))),
            operator_ns={"aten::mm": 5, "aten::add": int(random.integers(1, 9))},
            device_ns={"gemm": 5, "ncclAllReduce": 6},
            compiled_variants={"0": int(random.integers(1, 6))},
        )
    return inputs


def make_sensitive(rule: type[Rule[Any]]) -> Rule[Any]:
    names = set(rule.parameters_type.__dataclass_fields__)
    values = {name: value for name, value in SHORT.items() if name in names}
    return rule(**(values | SPECIAL.get(rule.__name__, {})))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), scans=st.lists(st.integers(1, 15), max_size=8))
@example(seed=3038, scans=[1])  # a rank starts later than another
def test_findings_do_not_depend_on_the_ranges(
    rule: type[Rule[Any]], seed: int, scans: list[int]
) -> None:
    inputs = random_run(seed)
    by_range, at_once = Evaluation([make_sensitive(rule)]), Evaluation([make_sensitive(rule)])
    for range_inputs in inputs.ranges(scans):
        by_range.feed(range_inputs)
    at_once.feed(inputs)
    assert by_range.findings() == at_once.findings()
    (finding,) = at_once.findings()
    assert finding.error is None


def test_rules_fire_on_random_runs() -> None:
    evaluation = Evaluation([make_sensitive(rule) for rule in RULES])
    evaluation.feed(random_run(1))
    fired = {finding.rule for finding in evaluation.findings() if finding.fired}
    assert len(fired) >= 12, fired
