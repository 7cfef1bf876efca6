"""The seven recommendations of PyTorch's TensorBoard plugin, each at its threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.rules import TracedBatches
from stepscope.rules.profiler.trace_recommendations import TraceRecommendations
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import FakeRuleInputs, check_rule, traced_gpu, traced_steps

BATCHES = TracedBatches(duration_ns=np.array([1]), has_workers=False)
DDP = "DistributedDataParallel.forward"
NCCL = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL": 1}


def advise(*, steps: Any = None, rule: TraceRecommendations | None = None, **trace: Any) -> Finding:
    steps = steps or traced_steps(compute=100.0)
    return check_rule(
        rule or TraceRecommendations(), FakeRuleInputs().imported(steps=steps, **trace)
    )


def only_sentence(finding: Finding) -> str:
    assert finding.violations == len(finding.sentences)
    return "".join(finding.sentences)


def test_nothing_to_recommend() -> None:
    finding = advise(gpus=[traced_gpu(peak=0.9)], batches=BATCHES)
    assert (finding.fired, finding.datapoints, finding.sentences) == (False, 1, [])


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(("share", "applies"), [(5, False), (5.1, True)])
@pytest.mark.parametrize("has_workers", [False, True])
def test_fetches(share: float, applies: bool, has_workers: bool) -> None:
    batches = TracedBatches(duration_ns=np.array([1]), has_workers=has_workers)
    steps = traced_steps(compute=100 - share, data_loader=share)
    text = only_sentence(advise(steps=steps, batches=batches))
    assert ("fetching batches takes 5.1% of step time" in text) is applies
    assert ("load batches in worker processes" in text) is (applies and not has_workers)


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(("gpu_count", "applies"), [(1, False), (2, True)])
def test_data_parallel(gpu_count: int, applies: bool) -> None:
    gpus = [traced_gpu(number) for number in range(gpu_count)]
    text = only_sentence(advise(gpus=gpus, range_names={"DataParallel.forward"}))
    assert ("DataParallel runs on 2 GPUs" in text) is applies


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(
    ("trace", "applies"),
    [
        ({"range_names": {DDP}}, True),
        ({"range_names": {DDP, "gloo:all_reduce"}}, True),
        ({"range_names": {DDP, "nccl:all_reduce"}}, False),
        ({"range_names": {DDP}, "device_ns": NCCL}, False),
        ({"range_names": {DDP}, "gpus": [traced_gpu(capability=3.0)]}, False),
        ({"range_names": {DDP}, "gpus": [traced_gpu(capability=3.5)]}, True),
        ({"range_names": {DDP}, "gpus": []}, False),
        ({"range_names": set()}, False),
    ],
)
def test_distribution_without_nccl(trace: dict[str, Any], applies: bool) -> None:
    text = only_sentence(advise(**{"gpus": [traced_gpu()]} | trace))
    assert ("choose the backend nccl" in text) is applies


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(("share", "applies"), [(10, False), (10.1, True)])
def test_communication(share: float, applies: bool) -> None:
    steps = traced_steps(compute=100 - share, communication=share)
    text = only_sentence(advise(steps=steps))
    assert ("communication takes 10.1% of step time" in text) is applies


@pytest.mark.seed("PTP-14", "PTP-20")
@pytest.mark.parametrize(
    ("parts", "advice"),
    [
        ({"compute": 95, "python": 5}, ": increase the batch size."),
        (
            {"compute": 40, "data_loader": 35, "python": 25},
            "; fetching batches takes 35% of step time, and a larger batch does not change that",
        ),
        (
            {"compute": 40, "python": 60},
            "; Python between operators takes 60% of step time: make the host faster first",
        ),
        (
            {"compute": 40, "python": 60, "has_host": False},
            "; the trace has no operators to tell why.",
        ),
    ],
)
def test_low_utilization_names_its_cause(parts: dict[str, float], advice: str) -> None:
    steps = traced_steps(**parts, categories_ms={"kernel": 40})
    gpus = [traced_gpu(0, utilization=0.499), traced_gpu(1, utilization=0.5)]
    text = only_sentence(advise(steps=steps, gpus=gpus))
    assert "GPU 0 runs kernels for 49.9% of the time" in text
    assert "GPU 1" not in text
    assert advice in text


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(
    ("gpu", "eligible", "applies"),
    [
        ({"capability": 7.0, "tensor_cores": 0.0}, 0.684, True),
        ({"capability": 7.0, "tensor_cores": 0.0}, 0.0, False),
        ({"capability": 7.0, "tensor_cores": 0.0}, None, False),
        ({"capability": 7.0, "tensor_cores": 0.01}, 0.684, False),
        ({"capability": 6.1, "tensor_cores": 0.0}, 0.684, False),
        ({"capability": None, "tensor_cores": 0.0}, 0.684, False),  # AMD
    ],
)
def test_tensor_cores(gpu: dict[str, Any], eligible: float | None, applies: bool) -> None:
    text = only_sentence(advise(gpus=[traced_gpu(**gpu)], eligible_ratio=eligible))
    assert ("68% of kernel time is in operators that could use tensor cores" in text) is applies


@pytest.mark.seed("PTP-14")
@pytest.mark.parametrize(("peak", "applies"), [(0.9, False), (0.901, True)])
def test_memory(peak: float, applies: bool) -> None:
    text = only_sentence(advise(gpus=[traced_gpu(peak=[0.1, peak])]))
    assert ("GPU 0 allocates up to 72.1 GiB, 90.1% of its memory" in text) is applies


def test_thresholds_are_parameters() -> None:
    rule = TraceRecommendations(data_loader=50, utilization=10)
    steps = traced_steps(compute=70, data_loader=30)
    finding = advise(rule=rule, steps=steps, gpus=[traced_gpu(utilization=0.2)], batches=BATCHES)
    assert not finding.fired
