"""A run taken in piece by piece gives the findings that it gives as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from stepscope.analysis.gpu_time import GpuTime
from stepscope.rules import Evaluation, Rule
from stepscope.rules.profiler import RULES
from tests.support.fake_signals import GPU_BYTES, ORIGIN_NS, SECOND_NS, FakeSignals

LENGTH_S = 900
SHORT = {"patience": 40, "window": 20, "n_outliers": 1, "recompiles": 2}
"""So that something happens in a run of fifteen minutes."""
MINUTES = {"GPUMemoryLeak": {"window": 4, "rises": 2, "increase": 0.5}}


def run(seed: int) -> FakeSignals:
    """Two nodes with two GPUs, two ranks, of chance: calm stretches and bad ones."""
    chance = np.random.default_rng(seed)
    signals = FakeSignals()
    samples = LENGTH_S * 2
    for node in ("n0", "n1"):
        bad = np.repeat(chance.random(samples // 60 + 1) < 0.4, 60)[:samples]
        for gpu in ("0", "1"):
            busy = np.where(bad, 0.05, 0.9) * chance.uniform(0.8, 1, samples)
            leak = np.linspace(0, 0.3, samples) + 0.2 * (np.arange(samples) > samples // 2)
            hot = np.where(bad, 0x20, 0).astype(float)
            signals.sample("gpu_busy_ratio", busy, device=gpu, node=node)
            signals.sample("gpu_memory_used_bytes", leak * GPU_BYTES, device=gpu, node=node)
            signals.sample("gpu_throttle_reasons", hot, device=gpu, node=node)
        load = np.where(bad, 0.95, 0.4)
        for what, share in (("busy", load), ("iowait", load / 1.5)):
            signals.sample(f"cpu_{what}_ratio", share, node=node)
            for core in ("0", "1"):
                signals.sample(f"core_{what}_ratio", share, device=core, node=node)
        signals.sample("memory_used_bytes", chance.uniform(10, 90, samples), node=node)
        signals.sample("network_sent_bytes_per_s", chance.uniform(0, 1e6, samples), device="e")
    for rank in (0, 1):
        work = chance.uniform(0.2, 0.4, 1000) * np.where(chance.random(1000) < 0.02, 8, 1)
        work[600:] *= 1.6
        signals.rank(
            rank,
            node=f"n{rank}",
            profiled=chance.random(1000) < 0.01,
            forward=work * (1 + rank),
            data_wait=work * chance.choice([0.1, 2]),
            backward=0.1,
            communication=0.1,
            checkpoint=np.where(np.arange(1000) % 100 == 50, 3.0, 0),
            other=0.2,
        )
        begin = np.sort(chance.uniform(0, LENGTH_S, 800))
        signals.load(begin, chance.uniform(0.1, 20, 800), rank, node=f"n{rank}")
        signals.compile(f"rank {rank}", np.sort(chance.uniform(0, LENGTH_S, 60)))
    for number in range(3):
        signals.record(
            name=f"window {number}",
            end_ns=ORIGIN_NS + int(chance.integers(1, LENGTH_S)) * SECOND_NS,
            gpu_time=time_of_gpus(int(chance.integers(0, 100))),
            operator_ns={"aten::mm": 5, "aten::add": int(chance.integers(1, 9))},
            device_ns={"gemm": 5, "ncclAllReduce": 6},
            compiled_variants={"0": int(chance.integers(1, 6))},
        )
    return signals


def time_of_gpus(exposed: int) -> GpuTime:
    return GpuTime(
        total_ns=100,
        busy_ns=100,
        idle_ns=0,
        compute_ns=100 - exposed,
        memset_ns=0,
        comm_ns=exposed,
        exposed_comm_ns=exposed,
        exposed_memcpy_ns=0,
        same_stream_overlap_count=0,
        gpu_event_count=2,
    )


def small(rule: type[Rule[Any]]) -> Rule[Any]:
    names = set(rule.parameters_type.__dataclass_fields__)
    values = {name: value for name, value in SHORT.items() if name in names}
    return rule(**(values | MINUTES.get(rule.__name__, {})))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), scans=st.lists(st.integers(1, 15), max_size=8))
@example(seed=3038, scans=[1])  # a rank begins later than another
def test_findings_do_not_depend_on_how_a_run_is_cut(
    rule: type[Rule[Any]], seed: int, scans: list[int]
) -> None:
    signals = run(seed)
    pieces, whole = Evaluation([small(rule)]), Evaluation([small(rule)])
    for part in signals.ranges(scans):
        pieces.feed(part)
    whole.feed(signals)
    assert pieces.findings() == whole.findings()
    (finding,) = whole.findings()
    assert finding.error is None


def test_such_runs_are_eventful() -> None:
    evaluation = Evaluation([small(rule) for rule in RULES])
    evaluation.feed(run(1))
    fired = {finding.rule for finding in evaluation.findings() if finding.fired}
    assert len(fired) >= 12, fired
