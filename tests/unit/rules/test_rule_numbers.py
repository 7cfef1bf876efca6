"""Numbers of Debugger's reports, from inputs with the same statistics; strict thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis import Device
from stepscope.rules import Evaluation, NotApplicable
from stepscope.rules.profiler.batch_size import BatchSize
from stepscope.rules.profiler.bottleneck import CPUBottleneck, IOBottleneck
from stepscope.rules.profiler.dataloader import Dataloader, DataloaderBottleneck
from stepscope.rules.profiler.gpu_memory import GPUMemoryIncrease
from stepscope.rules.profiler.gpu_utilization import (
    LoadBalancing,
    LowGPUUtilization,
    histogram_distances,
)
from stepscope.rules.profiler.max_initialization_time import MaxInitializationTime
from stepscope.rules.profiler.overall import (
    OverallFrameworkMetrics,
    OverallSystemUsage,
    operator_table,
)
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.rules.profiler.thermal_throttling import POWER, THERMAL, ThermalThrottling
from stepscope.schema import Finding
from tests.support.fake_rule_inputs import GPU_BYTES, SCAN_NS, FakeRuleInputs, check_rule
from tests.support.known_statistics import (
    FIGURES,
    OPERATORS,
    TABLE,
    batch_durations,
    shuffled,
    step_durations,
    with_quantiles,
)

SECOND_NS = 1_000_000_000


# --- the job on eight cores: 1802 seconds ---------------------------------------------------------


def test_system_usage() -> None:
    inputs = FakeRuleInputs()
    shares = (1, 0.99, 0.95, 0.5, 0)
    metrics = {
        "cpu_percent": ("cpu_busy_ratio", "", 100),
        "memory_percent": ("memory_used_bytes", "", 1),  # of a node with 100 bytes
        "io_wait_percent": ("cpu_iowait_ratio", "", 100),
        "network_bytes_per_s": ("network_sent_bytes_per_s", "eth0", 1),
    }
    for name, (metric, device, scale) in metrics.items():
        knots = list(zip(shares, TABLE[name], strict=True))
        values = shuffled(with_quantiles(3605, knots)) / scale
        inputs.sample(metric, values, device=device)
    finding = check_rule(OverallSystemUsage(), inputs)
    assert finding.datapoints == 3605
    assert finding.details["nodes"]["n0"] == {
        name: dict(zip(FIGURES, values, strict=True)) for name, values in TABLE.items()
    }
    assert "68.2%" in finding.sentences[0]


def test_operators_above_two_percent_add_up_to_a_hundred() -> None:
    small = {f"aten::small_{n}": 300_000_000 for n in range(20)}  # 1.2% of the total each
    times = {name: us * 1000 for name, (us, _) in OPERATORS.items()} | small
    table = operator_table(times)
    assert {row.name: round(row.percent, 2) for row in table} == {
        name: percent for name, (_, percent) in OPERATORS.items()
    }
    inputs = FakeRuleInputs().trace(operator_ns=times)
    assert "aten::conv2d, 18.9%" in check_rule(OverallFrameworkMetrics(), inputs).sentences[0]


def test_step_outliers() -> None:
    durations = step_durations()
    mean, deviation = durations.mean(), durations.std()
    assert (round(mean, 2), round(deviation, 2)) == (0.68, 0.13)  # as in the report
    durations = np.concatenate([shuffled(durations[:-11]), durations[-11:]])
    finding = check_rule(StepOutlier(), FakeRuleInputs().rank(forward=durations))
    details = finding.details["ranks"]["rank 0"]
    assert finding.datapoints == 2111
    assert finding.violations == details["outlier_count"] == 11
    assert round(details["mean_s"], 2) == 0.68
    assert round(details["standard_deviation_s"], 2) == 0.13
    assert round(details["threshold_s"], 2) == 1.07
    quantiles = [round(details[f"{name}_s"], 2) for name in ("max", "p99", "p95", "p50", "min")]
    assert quantiles == [2.53, 0.86, 0.80, 0.67, 0.36]
    assert details["outlier_steps"] == list(range(2100, 2111))
    assert sum(details["normal_steps_histogram"]["counts"]) == 2100


def test_step_outliers_count_scans() -> None:
    """The eleventh outlier is in the fifteenth scan before the end."""
    base, scan_s = 0.6, SCAN_NS / SECOND_NS
    durations = np.full(2000, base)
    last = np.searchsorted(np.cumsum(durations), 6 * scan_s) - 5
    durations[last - 11 : last] = 1.5
    inputs = FakeRuleInputs().rank(forward=durations)
    ends = (inputs.steps[0].end_ns - inputs.origin_ns) // SCAN_NS
    expected = len(np.unique(ends)) - int(ends[last - 1])
    assert check_rule(StepOutlier(), inputs).rule_triggered == expected == 15


@pytest.mark.seed("DIAG-09")
def test_loaders() -> None:
    durations = batch_durations()
    start = np.arange(118) // 4 * 200.0
    inputs = FakeRuleInputs().load(start, durations, np.arange(118) % 4)
    finding = check_rule(Dataloader(), inputs)
    details = finding.details["nodes"]["n0"]
    assert (finding.datapoints, finding.rule_triggered) == (118, 1)
    assert (details["cores_available"], details["loader_process_count"]) == (8, 4)
    for percentile, value in ((25, 27.3181), (50, 28.4398), (95, 163.573)):
        assert details[f"loading_p{percentile}_s"] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(
    ("cores", "workers", "wrong"),
    [(8, 4, True), (8, 5, True), (8, 6, False), (8, 16, False), (8, 17, True), (10, 7, False)],
)
def test_numbers_of_loaders(cores: float, workers: int, wrong: bool) -> None:
    seconds = np.repeat(np.arange(30.0), workers)
    inputs = (
        FakeRuleInputs().node(cores=cores).load(seconds, 0.5, np.arange(len(seconds)) % workers)
    )
    assert check_rule(Dataloader(), inputs).fired is wrong


@pytest.mark.parametrize(
    ("cores", "wait", "is_advised"), [(8, 0.2, True), (8, 0.01, False), (1, 0.01, True)]
)
def test_more_loaders_are_advised_where_ranks_wait_for_batches(
    cores: float, wait: float, is_advised: bool
) -> None:
    """Four workers for eight cores, of ranks that hardly wait, need no change; four for one do."""
    seconds = np.repeat(np.arange(30.0), 4)
    inputs = FakeRuleInputs().node(cores=cores)
    inputs.rank(data_wait=np.full(30, wait), forward=1 - wait)
    inputs.load(seconds, 0.5, np.arange(len(seconds)) % 4)
    finding = check_rule(Dataloader(), inputs)
    assert finding.fired
    refused = "More workers: refused, because ranks wait for batches"
    assert (refused in finding.sentences[0]) is not is_advised
    assert finding.recommendation.startswith("Try num_workers=" if is_advised else "Keep")


@pytest.mark.parametrize(("fetch_ms", "is_advised"), [(1, False), (2, False), (4, True)])
def test_no_workers_are_advised_for_batches_that_are_handed_over_more_slowly(
    fetch_ms: float, is_advised: bool
) -> None:
    """The training process creates its batches, half of the step, beside seven free cores."""
    inputs = FakeRuleInputs().node(cores=8)
    inputs.rank(
        data_wait=np.full(30, 0.5),
        forward=0.5,
        facts=[{"fact": "dataloader", "name": "Rows#0", "num_workers": 0}],
    )
    inputs.load(np.arange(30.0), fetch_ms / 1000, np.zeros(30, dtype=np.int64))
    finding = check_rule(Dataloader(), inputs)
    assert finding.fired
    refused = f"More workers: refused, because a batch is created in {fetch_ms} ms, and handing it"
    assert finding.recommendation.startswith("Try num_workers=" if is_advised else "Keep")
    assert (refused in finding.sentences[0]) is not is_advised


def test_slow_batches_do_not_look_like_few_workers() -> None:
    start = np.arange(40.0)
    inputs = FakeRuleInputs().node(cores=8).load(start, 8.0, np.arange(40) % 8)
    assert check_rule(Dataloader(), inputs).details["nodes"]["n0"]["loader_process_count"] == 8


@pytest.mark.parametrize(
    ("workers", "sentence"), [(0, "the training thread creates the batches"), (1, "1 loader")]
)
def test_training_thread_is_no_loader_process(workers: int, sentence: str) -> None:
    loader = {"fact": "dataloader", "name": "Rows#0", "num_workers": workers}
    inputs = FakeRuleInputs().rank(data_wait=np.full(30, 1.0), facts=[loader])
    inputs.load(np.arange(30.0), 0.5, np.zeros(30))
    assert sentence in check_rule(Dataloader(), inputs).sentences[0]


@pytest.mark.parametrize(("rule", "points"), [(CPUBottleneck, 3608), (IOBottleneck, 3608)])
def test_gpu_rules_count_snapshots_without_gpus(rule: type[CPUBottleneck], points: int) -> None:
    inputs = FakeRuleInputs()
    for metric in ("core_busy_ratio", "core_iowait_ratio"):
        inputs.sample(metric, np.full(points, 0.99), device="0")
    with pytest.raises(NotApplicable) as caught:
        rule().check(inputs)
    assert caught.value.datapoints == points


# --- the job on three nodes of four GPUs ---------------------------------------------------------


NODES = (("a", 1007, 710, 7), ("b", 1006, 710, 6), ("c", 1006, 709, 6))
"""Snapshots, bottlenecks, and snapshots without a low GPU, by node."""


def three_nodes() -> FakeRuleInputs:
    """Draw 3019 snapshots: 2129 bottlenecks, 871 more with a low GPU, 19 without."""
    inputs = FakeRuleInputs()
    for node, count, bottlenecks, high in NODES:
        index = np.arange(count)
        busy = np.where(index >= count - bottlenecks, 0.95, 0.5)
        usage = np.where(index < high, 0.5, 0.05)
        inputs.sample("core_busy_ratio", busy, device="0", node=node)
        for gpu in "0123":
            inputs.sample("gpu_busy_ratio", usage, device=gpu, node=node)
    return inputs


def test_both_shares_of_cpu_bottlenecks() -> None:
    finding = check_rule(CPUBottleneck(), three_nodes())
    details = finding.details
    assert (finding.violations, finding.datapoints) == (2129, 3019)
    assert details["low_gpu_count"] == 3000
    assert round(details["bottleneck_percent_of_snapshots"], 2) == 70.52
    assert round(details["bottleneck_percent_of_low_gpu"], 2) == 70.97
    assert finding.fired
    assert finding.nodes == ["a", "b", "c"]
    assert "70.5% of 3,019" in finding.sentences[0]
    assert "71.0%" in finding.sentences[1]


def test_a_busy_core_of_one_node_is_not_paired_with_an_idle_gpu_of_another() -> None:
    inputs = FakeRuleInputs()
    for node, core, gpu in (("a", 0.99, 0.9), ("b", 0.2, 0.0)):
        inputs.sample("core_busy_ratio", np.full(1200, core), device="0", node=node)
        inputs.sample("gpu_busy_ratio", np.full(1200, gpu), device="0", node=node)
    finding = check_rule(CPUBottleneck(), inputs)
    assert finding.violations == 0
    assert finding.details["low_gpu_count"] == 1200


def test_low_utilization_counts_gpus() -> None:
    """Of twelve GPUs eight are low in the only scan after the patience of 1000 samples."""
    inputs = FakeRuleInputs()
    for number in range(12):
        values = np.full(1001, 0.13 if number < 8 else 0.9)
        inputs.sample("gpu_busy_ratio", values, device=str(number % 4), node=f"n{number // 4}")
    finding = check_rule(LowGPUUtilization(), inputs)
    assert (finding.datapoints, finding.violations, finding.rule_triggered) == (1001, 8, 1)
    assert finding.details["low_count"] == 8
    assert finding.details["fluctuating_count"] == 0
    assert finding.nodes == ["n0", "n1"]


def test_late_start_of_training() -> None:
    inputs = FakeRuleInputs().rank(from_s=21 * 60, forward=np.full(50, 1.0))
    finding = check_rule(MaxInitializationTime(), inputs)
    assert not finding.fired  # the scan that starts after 21 minutes contains the first step
    assert finding.details["initialization_minutes"] == 21
    assert finding.datapoints == 50
    later = FakeRuleInputs().rank(from_s=23 * 60, forward=np.full(50, 1.0))
    assert check_rule(MaxInitializationTime(), later).rule_triggered == 2


def test_no_step_is_missed_after_the_end_of_the_recording() -> None:
    def check(recording_s: float) -> Finding:
        inputs = FakeRuleInputs().node(recording_s=recording_s)
        inputs.sample("cpu_busy_ratio", np.full(2 * 30 * 60, 0.5))
        return check_rule(MaxInitializationTime(), inputs)

    with pytest.raises(NotApplicable, match="recording of steps ended before the first step"):
        check(10 * 60)
    late = check(22.5 * 60)
    assert late.rule_triggered == 1  # the scan that starts after 21 minutes and is recorded whole
    assert late.sentences == ["No training step after 22 min 30 s (threshold 20 min)."]
    assert check(40 * 60).rule_triggered == 9


# --- the recommender: loading takes 60% of the step -----------------------------------------------


@pytest.mark.seed("DIAG-09")
def test_the_recommender() -> None:
    inputs = FakeRuleInputs()
    inputs.rank(data_wait=np.full(200, 6.0), forward=1.2, backward=2.0, optimizer=0.8)
    second = np.arange(4000) / 2
    for gpu in range(8):
        usage = 0.375 + 0.175 * np.sin(second + gpu)  # between 20% and 55%
        inputs.sample("gpu_busy_ratio", usage, device=str(gpu))
    loading = check_rule(DataloaderBottleneck(), inputs)
    assert loading.fired
    details = loading.details["ranks"]["rank 0"]
    assert details["data_wait_share_ratio"] == pytest.approx(0.60)
    assert details["compute_share_ratio"] == pytest.approx(0.40)
    assert details["phase_share_ratio"] == pytest.approx(
        {"data_wait": 0.60, "backward": 0.20, "forward": 0.12, "optimizer": 0.08}
    )
    usage = check_rule(LowGPUUtilization(), inputs)
    assert usage.fired
    assert len(usage.devices) == 8
    fixed = FakeRuleInputs().rank(data_wait=np.full(200, 0.5), forward=1.2, backward=2.0)
    assert not check_rule(DataloaderBottleneck(), fixed).fired


# --- boundaries are strict -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "low", "fluctuating"), [(0.699, 1, 0), (0.70, 0, 0), (0.71, 0, 0)]
)
def test_constant_utilization(usage: float, low: int, fluctuating: int) -> None:
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", np.full(1001, usage), device="0")
    details = check_rule(LowGPUUtilization(), inputs).details
    assert (details["low_count"] > 0) is bool(low)
    assert (details["fluctuating_count"] > 0) is bool(fluctuating)


@pytest.mark.parametrize(("floor", "fluctuating"), [(0.09, True), (0.10, False)])
def test_fluctuating_utilization(floor: float, fluctuating: bool) -> None:
    values = np.where(np.arange(1001) % 4 == 0, floor, 0.95)
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", values, device="0")
    finding = check_rule(LowGPUUtilization(), inputs)
    assert finding.fired is fluctuating
    assert finding.details["low_count"] == 0


@pytest.mark.parametrize(("samples", "fires"), [(1000, False), (1001, True)])
def test_patience(samples: int, fires: bool) -> None:
    evaluation = Evaluation([LowGPUUtilization()])
    evaluation.feed(FakeRuleInputs().sample("gpu_busy_ratio", np.full(samples, 0.1), device="0"))
    (finding,) = evaluation.findings()
    assert finding.fired is fires
    assert finding.datapoints == samples
    assert (finding.missing is None) is fires


@pytest.mark.parametrize(("after", "fires"), [(0.16, True), (0.15, False), (0.149, False)])
def test_memory_increase_from_ten_percent(after: float, fires: bool) -> None:
    shares = np.where(np.arange(1200) < 1100, 0.10, after)
    inputs = FakeRuleInputs().sample("gpu_memory_used_bytes", shares * GPU_BYTES, device="0")
    finding = check_rule(GPUMemoryIncrease(), inputs)
    assert finding.fired is fires
    assert finding.violations == int(fires)
    assert finding.details["gpus"]["n0/0"]["largest_rise_percent"] == pytest.approx(
        100 * (after - 0.1)
    )


@pytest.mark.parametrize(("hot", "fires"), [(3, False), (4, True)])
def test_thermal_throttling_threshold_is_strict_and_power_does_not_count(
    hot: int, fires: bool
) -> None:
    reasons = [POWER] * (20 - hot) + [THERMAL] * hot
    inputs = FakeRuleInputs().sample("gpu_throttle_reasons", reasons, device="0")
    finding = check_rule(ThermalThrottling(threshold=30, window=10), inputs)
    assert (finding.fired, finding.violations, finding.datapoints) == (fires, hot, 20)
    assert finding.details["gpus"]["n0/0"] == {
        "sample_count": 20,
        "thermal_percent_of_samples": 100 * hot / 20,
        "power_percent_of_samples": 100 * (20 - hot) / 20,
    }


@pytest.mark.parametrize(("bottlenecks", "fires"), [(600, False), (601, True)])
def test_bottleneck_threshold_is_strict(bottlenecks: int, fires: bool) -> None:
    busy = np.where(np.arange(1200) < bottlenecks, 0.95, 0.5)[::-1]
    inputs = FakeRuleInputs().sample("core_busy_ratio", busy, device="0")
    inputs.sample("gpu_busy_ratio", np.zeros(1200), device="0")
    assert check_rule(CPUBottleneck(), inputs).fired is fires


@pytest.mark.parametrize(
    ("core", "gpu", "bottleneck"), [(0.91, 0.09, 1), (0.90, 0.09, 0), (0.91, 0.10, 0)]
)
def test_thresholds_of_a_bottleneck_snapshot(core: float, gpu: float, bottleneck: int) -> None:
    inputs = FakeRuleInputs().sample("core_busy_ratio", [core, 0.5], device="0")
    inputs.sample("gpu_busy_ratio", [gpu, 0.5], device="0")
    assert check_rule(CPUBottleneck(patience=1), inputs).violations == bottleneck


@pytest.mark.parametrize(
    "high", ["cpu_busy_ratio", "gpu_busy_ratio", "gpu_memory_used_bytes", None]
)
def test_batch_size_fires_only_below_all_thresholds(high: str | None) -> None:
    inputs = FakeRuleInputs()
    for metric, device, scale in (
        ("cpu_busy_ratio", "", 1),
        ("gpu_busy_ratio", "0", 1),
        ("gpu_memory_used_bytes", "0", GPU_BYTES),
    ):
        values = np.full(1001, 0.70 if metric == high else 0.69)
        inputs.sample(metric, values * scale, device=device)
    finding = check_rule(BatchSize(), inputs)
    assert finding.fired is (high is None)
    assert finding.violations == int(high is None)


# --- distances of histograms ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [((3, 3), (1, 1), 0.0), ((5, 0), (0, 2), 0.83255), ((4, 0), (1, 1), 0.46450)],
)
def test_distances(first: tuple[int, int], second: tuple[int, int], distance: float) -> None:
    matrix = histogram_distances(np.array([first, second]))
    assert round(float(matrix[0, 1]), 5) == distance
    assert matrix[0, 1] == matrix[1, 0]
    assert matrix[0, 0] == 0


def test_largest_distance_is_the_root_of_log_two() -> None:
    inputs = FakeRuleInputs()
    inputs.sample("gpu_busy_ratio", np.full(1001, 1.0), device="0")
    inputs.sample("gpu_busy_ratio", np.full(1001, 0.97), device="1", node="n1")
    finding = check_rule(LoadBalancing(), inputs)
    assert finding.fired
    distance = finding.details["distances"]["n0/0"]["n1/1"]
    assert distance == pytest.approx(np.sqrt(np.log(2)), abs=1e-6)
    counts = finding.details["workloads_count"]["n0/0"]
    assert counts[-1] == sum(counts) == 1001  # samples above 98% count


def test_equal_loads_are_balanced() -> None:
    inputs = FakeRuleInputs()
    usage = np.random.default_rng(3).uniform(0, 1, 1500)
    for gpu in "0123":
        inputs.sample("gpu_busy_ratio", shuffled(usage), device=gpu)
    finding = check_rule(LoadBalancing(), inputs)
    assert not finding.fired
    assert set(finding.details["distances"]["n0/0"].values()) == {0.0}


def test_a_scan_counts_once_for_any_number_of_devices() -> None:
    inputs = FakeRuleInputs()
    for gpu in range(4):  # 1080 samples are nine scans; only the ninth has more than 1000
        inputs.sample("gpu_busy_ratio", np.full(1080, 0.1), device=str(gpu))
    finding = check_rule(LowGPUUtilization(), inputs)
    assert finding.rule_triggered == 1
    assert finding.violations == 4
    last_ns = inputs.origin_ns + 9 * SCAN_NS - SECOND_NS // 2  # the last sample
    assert (finding.first_ns, finding.last_ns) == (last_ns - 499 * SECOND_NS // 2, last_ns)


def test_text_of_a_device() -> None:
    assert str(Device("n0", "3")) == "n0/3"
    assert Evaluation([]).findings() == []


def test_calls_and_execution_of_compiled_functions_are_training() -> None:
    inputs = FakeRuleInputs().rank(data_wait=np.full(20, 0.25), dispatch=0.05, execution=0.7)
    details = check_rule(OverallFrameworkMetrics(), inputs).details
    assert details["phase_share_ratio"] == pytest.approx({"TRAIN": 0.75, "others": 0.25})
