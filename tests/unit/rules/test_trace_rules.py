"""Rules that evaluate traces of the framework's profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.analysis import CopyKind
from stepscope.rule_feed.feed import RuleFeed
from stepscope.rules import TracedBatches
from stepscope.rules.profiler.framework_overhead import FrameworkOverhead
from stepscope.rules.profiler.overall import OverallFrameworkMetrics
from stepscope.rules.profiler.recompile_storm import RecompileStorm
from stepscope.rules.profiler.step_share import CommunicationBound
from stepscope.rules.profiler.trace_recommendations import PageableCopies, TraceRecommendations
from stepscope.schema import Finding
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.drawn_figures import make_gpu_time, synchronizations
from tests.support.fake_rule_inputs import (
    FakeRuleInputs,
    check_rule,
    make_stream,
    traced_gpu,
    traced_steps,
)

MS = 1_000_000


@pytest.mark.parametrize(("exposed", "fires"), [(20, False), (21, True)])
def test_exposed_communication(exposed: int, fires: bool) -> None:
    inputs = FakeRuleInputs().trace(gpu_time=make_gpu_time(100, exposed), rank="rank 5")
    finding = check_rule(CommunicationBound(), inputs)
    assert finding.fired is fires
    assert finding.ranks == (["rank 5"] if fires else [])


@pytest.mark.parametrize(
    ("host_wait", "kernel_us", "syncs", "fires"),
    [
        (26, 5, 0, True),  # small kernels and gaps
        (26, 500, 30, True),  # large kernels, but three synchronizations per step
        (26, 500, 20, False),  # gaps with another cause, such as waits for data
        (25, 5, 30, False),  # almost no gaps
    ],
)
def test_gaps_between_kernels(host_wait: int, kernel_us: int, syncs: int, fires: bool) -> None:
    inputs = FakeRuleInputs().trace(
        kernel_ns=np.full(10, kernel_us * 1000),
        streams=[
            make_stream(busy=100 - host_wait, host_wait=host_wait),
            make_stream(busy=1, host_wait=99),
        ],
        activities=synchronizations(syncs),
        step_count=10,
    )
    assert check_rule(FrameworkOverhead(), inputs).fired is fires


def test_advice_on_overhead_is_of_kernels_only_where_kernels_show_it() -> None:
    """The training thread of a job without kernels does something else for half of the time."""
    steps = FakeRuleInputs().rank(forward=np.full(60, 0.5), other=0.5)
    finding = check_rule(FrameworkOverhead(), steps)
    assert finding.fired
    assert finding.recommendation.startswith("Move what the training thread does")
    steps.trace(
        kernel_ns=np.full(10, 5_000), streams=[make_stream(busy=10, host_wait=90)], step_count=10
    )
    assert check_rule(FrameworkOverhead(), steps).recommendation.startswith("Compile the step")


def test_typical_kernel_ignores_tiny_kernels() -> None:
    kernels = np.array([1_000] * 900 + [500_000] * 100)
    inputs = FakeRuleInputs().trace(
        kernel_ns=kernels, streams=[make_stream(busy=50, host_wait=50)], step_count=None
    )
    finding = check_rule(FrameworkOverhead(), inputs)
    assert not finding.fired
    assert finding.details["recordings"]["window"]["typical_kernel_us"] == 500


@pytest.mark.parametrize(
    ("direction", "source", "target", "total", "fires"),
    [
        ("HtoD", "pageable", "device", 21, True),
        ("DtoH", "device", "pageable", 21, True),
        ("HtoD", "pageable", "device", 20, False),
        ("HtoD", "pinned", "device", 900, False),
        ("DtoD", "device", "device", 900, False),
    ],
)
def test_copies(direction: str, source: str, target: str, total: int, fires: bool) -> None:
    kind = CopyKind(
        direction=direction,
        source=source,
        target=target,
        count=3,
        total_ns=total,
        moved_bytes=None,
        achieved_bytes_per_s=None,
    )
    inputs = FakeRuleInputs().trace(gpu_time=make_gpu_time(1000, 0), copies=[kind])
    finding = check_rule(PageableCopies(), inputs)
    assert finding.fired is fires
    assert finding.details["recordings"]["window"]["pageable_bytes"] is None


@pytest.mark.parametrize(("variants", "fires"), [(8, False), (9, True)])
def test_variants_of_a_compiled_frame(variants: int, fires: bool) -> None:
    inputs = FakeRuleInputs().trace(compiled_variants={"0": 1, "1": variants})
    assert check_rule(RecompileStorm(), inputs).fired is fires


def test_a_trace_is_read_from_the_run(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    step = "forward ( op:mm 20 ( op:addmm 15 ) | kernel:gemm 30 ) | optimizer 10"
    run.rank(3).draw(step, 20).draw(f"window ( {step} | kernel:ncclAllReduce 10 )")
    rank = run.processes[0]
    for variant in range(3):
        rank.draw(f"op:Torch-Compiled_Region:_7/{variant} 1")
    rank.events[-3:] = [
        event._replace(name=event.name.replace("_Region:_", " Region: "))
        for event in rank.events[-3:]
    ]
    (inputs,) = RuleFeed(open_run(run.write())).ranges(final=True)
    (trace,) = inputs.traces
    assert trace.rank == "rank 3"
    assert trace.gpu_time is not None
    assert trace.gpu_time.compute_ns == 21 * 30 * MS
    assert trace.gpu_time.comm_ns == 10 * MS
    assert trace.kernel_ns.tolist() == [30 * MS] * 21
    assert trace.device_ns == {"gemm": 21 * 30 * MS, "ncclAllReduce": 10 * MS}
    assert trace.operator_ns["mm"] == 21 * 5 * MS
    assert trace.compiled_variants == {"7": 3}
    assert trace.step_count is None
    assert [stream.work_count for stream in trace.streams] == [22]
    finding = OverallFrameworkMetrics().check(inputs)
    assert [row["name"] for row in finding.details["gpu_kernels"]] == ["gemm"]
    assert [row["name"] for row in finding.details["collectives"]] == ["ncclAllReduce"]


def test_traces_are_read_once(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw("forward 900 | optimizer 100", 30).draw("window ( kernel:gemm 30 )")
    feed = RuleFeed(open_run(run.write()), scan_ns=10_000 * MS)
    names = [
        trace.name
        for final in (False, True)
        for inputs in feed.ranges(final=final)
        for trace in inputs.traces
    ]
    assert names == ["drawn"]


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
