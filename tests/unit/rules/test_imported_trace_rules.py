"""Rules on imported traces, which have neither watched steps nor samples of a node."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.rule_feed.check import check_rules
from stepscope.rules import Evaluation, Rule, TracedBatches
from stepscope.rules.profiler import RULES
from stepscope.rules.profiler.dataloader import Dataloader, DataloaderBottleneck
from stepscope.rules.profiler.framework_overhead import FrameworkOverhead
from stepscope.rules.profiler.gpu_memory import GPUMemoryIncrease, GPUMemoryLeak
from stepscope.rules.profiler.gpu_utilization import LowGPUUtilization
from stepscope.rules.profiler.overall import OverallFrameworkMetrics
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.rules.profiler.recompile_storm import RecompileStorm
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.rules.profiler.step_time_regression import StepTimeRegression
from stepscope.schema import Finding, RuleStatus
from stepscope.testing.traces import TraceJob
from tests.support.drawn_figures import synchronizations
from tests.support.fake_rule_inputs import (
    FakeRuleInputs,
    check_rule,
    make_stream,
    traced_gpu,
    traced_steps,
)
from tests.support.imported_runs import REAL_TRACES, import_into

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
MS = 1_000_000


def check_drawn(directory: Path, draw: Callable[[TraceJob], None]) -> dict[str, Finding]:
    """Evaluate all rules on a trace of six drawn steps of training."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            draw(job)
            with job.optimizer():
                pass
    file = directory / "drawn.json"
    file.write_bytes(job.encode())
    return check_file(directory, file)


def check_file(directory: Path, file: Path) -> dict[str, Finding]:
    reader = import_into(directory / "run", file).reader
    return {f.rule: f for f in check_rules(reader, [rule() for rule in RULES]).findings}


def decide(rule: Rule[Any], inputs: FakeRuleInputs) -> Finding:
    evaluation = Evaluation([rule])
    evaluation.feed(inputs)
    (finding,) = evaluation.findings()
    assert finding.status is not RuleStatus.ERROR, finding.error
    return finding


def compute(job: TraceJob) -> None:
    """Compute for 20 ms in kernels that take longer than their launch."""
    for _ in range(20):
        job.operator("aten::mm", 20, kernel=(GEMM, 1_000))


# --- whole traces, as imported -------------------------------------------------------------------


def test_a_job_that_fetches_alone(tmp_path: Path) -> None:
    """A step waits 1 us, fetches 20 ms and computes 20 ms; its first kernel starts 25 us later."""

    def draw(job: TraceJob) -> None:
        job.wait()
        job.fetch(20_000)
        compute(job)

    findings = check_drawn(tmp_path, draw)
    waits = findings["DataloaderBottleneck"]
    assert waits.fired
    (details,) = waits.details["recordings"].values()
    assert details["data_wait_share_ratio"] == pytest.approx(20 / 40, abs=0.01)
    assert details["compute_share_ratio"] == pytest.approx(20 / 40, abs=0.01)
    assert findings["Dataloader"].fired
    assert findings["Dataloader"].datapoints == 6
    assert "the training thread creates the batches" in findings["Dataloader"].sentences[0]
    assert not findings["FrameworkOverhead"].fired
    used = findings["LowGPUUtilization"]
    assert used.fired
    (gpu,) = used.details["gpus"].values()
    assert gpu["busy_percent"]["p50"] == pytest.approx(50, abs=1)


def test_a_job_that_reads_values(tmp_path: Path) -> None:
    """Each millisecond of computation is followed by 0.8 ms in which the host alone works."""

    def draw(job: TraceJob) -> None:
        for _ in range(20):
            job.operator("aten::mm", 20, kernel=(GEMM, 1_000))
            job.item()
            job.python(800)

    findings = check_drawn(tmp_path, draw)
    overhead = findings["FrameworkOverhead"]
    assert overhead.fired
    (details,) = overhead.details["recordings"].values()
    assert details["overhead_share_ratio"] == pytest.approx(0.83 / 1.83, abs=0.03)
    assert next(iter(details["part_share_ratio"])) == "synchronization"
    assert "times per step" in overhead.sentences[0]
    assert not findings["DataloaderBottleneck"].fired


def test_busy_device_is_quiet(tmp_path: Path) -> None:
    findings = check_drawn(tmp_path, compute)
    assert not [name for name, finding in findings.items() if finding.fired]
    assert findings["FrameworkOverhead"].status is RuleStatus.NO_ISSUES_FOUND
    assert "overhead takes" in findings["FrameworkOverhead"].sentences[0]
    assert findings["OverallFrameworkMetrics"].datapoints == 6


def test_reasons_say_what_the_traces_lack(tmp_path: Path) -> None:
    job = TraceJob()
    job.launch(GEMM, 100)
    job.events = [event for event in job.events if event["cat"] == "kernel"]
    file = tmp_path / "kernel.json"
    file.write_bytes(job.encode())
    findings = check_file(tmp_path, file)
    assert not [finding for finding in findings.values() if finding.error]
    reasons = {name: finding.missing for name, finding in findings.items() if finding.missing}
    applicable = {"LowGPUUtilization", "CommunicationBound", "PageableCopies"}
    applicable |= {"OverallFrameworkMetrics", "TraceRecommendations"}
    assert reasons.keys() == {rule.__name__ for rule in RULES} - applicable
    for name, reason in reasons.items():
        assert "trace" in reason, name
        for advice in ("stepscope", "record", "so far"):
            assert advice not in reason, (name, reason)


# --- details of single rules ---------------------------------------------------------------------


@pytest.mark.parametrize(("share", "fires"), [(20, False), (21, True)])
@pytest.mark.parametrize("has_workers", [False, True])
def test_fetching_batches(share: int, fires: bool, has_workers: bool) -> None:
    inputs = FakeRuleInputs().imported(
        3,
        steps=traced_steps(3, data_loader=share, compute=100 - share),
        batches=TracedBatches(duration_ns=np.full(6, 30 * MS), has_workers=has_workers),
    )
    finding = decide(DataloaderBottleneck(), inputs)
    assert finding.fired is fires
    assert finding.ranks == (["rank 3"] if fires else [])
    assert f"{share}.0% of step time" in finding.sentences[0]
    processes = decide(Dataloader(), inputs)
    assert processes.fired is not has_workers
    assert "30 ms" in processes.sentences[0]


def test_windows_of_a_watched_job_are_left_to_its_steps() -> None:
    steps = traced_steps(data_loader=[90.0] * 200, compute=10)
    batches = TracedBatches(duration_ns=np.full(6, MS), has_workers=False)
    inputs = FakeRuleInputs().rank(0, forward=[0.9] * 200, data_wait=0.1)
    inputs.trace(steps=steps, batches=batches, gpus=[traced_gpu(busy=0.1)])
    finding = decide(DataloaderBottleneck(), inputs)
    assert not finding.fired
    assert finding.datapoints == 190
    for rule in (Dataloader(), LowGPUUtilization(), RecompileStorm()):
        assert decide(rule, inputs).status is RuleStatus.NOT_APPLICABLE
    assert decide(StepOutlier(), inputs).datapoints == 200


@pytest.mark.parametrize(
    ("overhead", "kernel_us", "syncs", "sentence"),
    [
        (25, 5, 0, ""),
        (26, 5, 0, "Half of the kernel time is in kernels of at most 5 µs."),
        (26, 500, 30, "The host waits for the device 3 times per step."),
        (26, 500, 20, ": Python between operators 26%."),
    ],
)
def test_overhead(overhead: int, kernel_us: int, syncs: int, sentence: str) -> None:
    inputs = FakeRuleInputs().imported(
        steps=traced_steps(compute=[100 - overhead] * 10, python=overhead),
        kernel_ns=np.full(10, kernel_us * 1000),
        streams=[make_stream(busy=90, host_wait=10)],
        activities=synchronizations(syncs),
        step_count=10,
    )
    finding = check_rule(FrameworkOverhead(), inputs)
    assert finding.fired is (overhead > 25)
    assert finding.sentences[0].endswith(sentence)
    hostless = FakeRuleInputs().imported(steps=traced_steps(compute=1, python=9, has_host=False))
    assert decide(FrameworkOverhead(), hostless).status is RuleStatus.NOT_APPLICABLE


def test_outliers_over_several_traces_of_a_rank() -> None:
    """Three of 150 steps take ten times as long: (10 - 1.18) is 7 standard deviations."""
    inputs = FakeRuleInputs()
    for part in range(3):
        walls = np.full(50, 100.0)
        walls[20] = 1000.0
        inputs.imported(
            2, name=f"part {part}", steps=traced_steps(2, first=50 * part, compute=walls)
        )
    finding = decide(StepOutlier(n_outliers=2), inputs)
    assert finding.fired
    assert (finding.violations, finding.datapoints) == (3, 150)
    assert finding.details["ranks"]["rank 2"]["outlier_steps"] == [20, 70, 120]
    assert (finding.ranks, finding.nodes) == (["rank 2"], [])
    too_few = FakeRuleInputs().imported(steps=traced_steps(compute=[1.0] * 100))
    assert "more than 100 steps" in decide(StepOutlier(), too_few).missing
    assert decide(StepOutlier(mode="forward"), inputs).status is RuleStatus.NOT_APPLICABLE


def test_steps_become_slower() -> None:
    walls = np.array([100.0] * 60 + [150.0] * 40)
    inputs = FakeRuleInputs().imported(steps=traced_steps(compute=walls))
    finding = decide(StepTimeRegression(), inputs)
    assert finding.fired
    assert finding.details["ranks"]["rank 0"]["changes"][0]["step"] == 60
    short = FakeRuleInputs().imported(steps=traced_steps(compute=[1.0] * 6))
    assert "too few steps" in decide(StepTimeRegression(), short).missing


@pytest.mark.seed("PTP-20")
@pytest.mark.parametrize(("excess", "fires"), [(11, True), (9, False)])
def test_a_slow_rank(excess: int, fires: bool) -> None:
    """Steps of 100 ms: three ranks compute 60, the fourth more; the rest is waiting for it."""
    inputs = FakeRuleInputs()
    for rank in range(4):
        work = 60 + (excess if rank == 1 else 0)
        steps = traced_steps(rank, first=rank, compute=[float(work)] * 6, communication=100 - work)
        inputs.imported(rank, steps=steps)
    finding = decide(RankStraggler(), inputs)
    assert finding.fired is fires
    assert finding.datapoints == 1  # the block of steps 3, 4 and 5
    if fires:
        assert finding.ranks == ["rank 1"]
        assert finding.details["ranks"]["rank 1"]["slowest_in_count"] == 3
        assert "71 ms per step, that of the others 60 ms in the median" in finding.sentences[0]


def test_traces_of_unknown_ranks_are_not_compared() -> None:
    inputs = FakeRuleInputs()
    for number in range(2):
        steps = traced_steps(None, compute=[60.0 + 30 * number] * 6, communication=10)
        inputs.imported(None, name=f"run {number}", steps=steps)
    assert "in common" in decide(RankStraggler(), inputs).missing


@pytest.mark.parametrize(
    ("peaks", "rises"), [([0.1, 0.1501, 0.15], 1), ([0.1, 0.15, 0.2], 0), ([0.9, 0.2, 0.3], 1)]
)
def test_peak_memory_of_steps(peaks: list[float], rises: int) -> None:
    steps = traced_steps(compute=[10.0] * 3)
    inputs = FakeRuleInputs().imported(steps=steps, gpus=[traced_gpu(peak=peaks, minimum=peaks)])
    finding = decide(GPUMemoryIncrease(), inputs)
    assert (finding.violations, finding.datapoints) == (rises, 3)
    assert finding.fired is bool(rises)
    assert f"{100 * max(peaks):.1f}%" in finding.sentences[0]


@pytest.mark.parametrize(
    ("minima", "leaks"),
    [
        (np.linspace(0.1, 0.2, 8), True),
        ([0.1] * 7 + [0.2], False),  # a jump
        ([0.1, 0.12, 0.14, 0.1, 0.12, 0.14, 0.16, 0.18], False),  # released in between
    ],
)
def test_memory_that_stays(minima: Any, leaks: bool) -> None:
    inputs = FakeRuleInputs().imported(
        steps=traced_steps(compute=[3600_000.0] * 8), gpus=[traced_gpu(peak=minima, minimum=minima)]
    )
    finding = decide(GPUMemoryLeak(), inputs)
    assert finding.fired is leaks
    (gpu,) = finding.details["gpus"].values()
    # A step takes an hour: 10 points in the seven hours from the first to the last end.
    assert gpu["growth_percent_per_hour"] == pytest.approx(10 / 7 if leaks else 0)
    short = FakeRuleInputs().imported(
        steps=traced_steps(compute=[1.0] * 5), gpus=[traced_gpu(minimum=[0.1, 0.2, 0.3, 0.4, 0.5])]
    )
    assert "too few steps" in decide(GPUMemoryLeak(), short).missing


@pytest.mark.parametrize(
    ("busy", "word"),
    [
        ([0.69] * 6, "underutilized"),
        ([0.7] * 6, "well used"),
        ([0.05, 0.05, 1.0, 1.0, 1.0, 1.0], "fluctuating"),
    ],
)
def test_utilization_of_steps(busy: list[float], word: str) -> None:
    inputs = FakeRuleInputs().imported(
        5, steps=traced_steps(5, compute=[10.0] * 6), gpus=[traced_gpu(busy=busy)]
    )
    finding = decide(LowGPUUtilization(), inputs)
    assert word in finding.sentences[0]
    assert finding.fired is (word != "well used")
    assert finding.ranks == (["rank 5"] if finding.fired else [])


@pytest.mark.parametrize(
    ("compiling", "step_count", "fires"),
    [(3, 3, True), (2, 2, False), (8, 20, False), (9, 20, True)],
)
def test_compilation_in_steps(compiling: int, step_count: int, fires: bool) -> None:
    time = np.where(np.arange(step_count) < compiling, 50.0, 0.0)
    inputs = FakeRuleInputs().imported(steps=traced_steps(compute=50, compilation=time))
    finding = decide(RecompileStorm(), inputs)
    assert finding.fired is fires
    if fires:
        assert f"compilation in {compiling} of {step_count} steps" in finding.sentences[0]


def test_parts_of_steps() -> None:
    inputs = FakeRuleInputs().imported(steps=traced_steps(compute=75, python=[25.0, 25.0]))
    finding = check_rule(OverallFrameworkMetrics(), inputs)
    assert finding.datapoints == 2
    assert finding.details["step_part_share_ratio"] == {"compute": 0.75, "python": 0.25}
    assert "computation 75%, Python between operators 25%" in finding.sentences[0]


@pytest.mark.seed("PTP-14")
@pytest.mark.skipif(not REAL_TRACES.exists(), reason="no real traces")
def test_resnet_with_and_without_workers(tmp_path: Path) -> None:
    """The breakdown that PyTorch's TensorBoard plugin prints for its own samples."""
    expected = {0: ("33.4%", "68%"), 4: (None, None)}
    for workers, (loading, eligible) in expected.items():
        file = REAL_TRACES / f"resnet50_num_workers_{workers}.v100.json.gz"
        (tmp_path / str(workers)).mkdir()
        findings = check_file(tmp_path / str(workers), file)
        assert findings["DataloaderBottleneck"].fired is (workers == 0)
        assert findings["Dataloader"].fired is (workers == 0)
        advice = " ".join(findings["TraceRecommendations"].sentences)
        assert ("fetching batches" in advice) is (loading is not None)
        assert "mixed precision" in advice
        assert loading is None or f"{loading} of step time" in advice
        assert eligible is None or f"{eligible} of kernel time" in advice


@pytest.mark.extended("trains; tests/unit/analysis reads such memory events")
@pytest.mark.skipif(not REAL_TRACES.exists(), reason="no real traces")
def test_memory_of_a_real_job(tmp_path: Path) -> None:
    """Peaks of the five steps, counted from the events of the file."""
    file = REAL_TRACES / "ddp_2ranks_memory.v100.json.gz"
    content = json.loads(gzip.decompress(file.read_bytes()))
    events = [event for event in content["traceEvents"] if event.get("name") == "[memory]"]
    totals = [
        event["args"]["Total Allocated"]
        for event in events
        if event["args"]["Device Type"] == 1 and event["args"]["Device Id"] == 1
    ]
    memory_bytes = content["deviceProperties"][1]["totalGlobalMem"]
    finding = check_file(tmp_path, file)["GPUMemoryIncrease"]
    assert finding.datapoints == 5
    (gpu,) = finding.details["gpus"].values()
    peak = gpu["memory_percent"]["max"]
    assert peak == pytest.approx(100 * max(totals) / memory_bytes, abs=0.01)
