"""Numbers that users of Debugger's reports know, from inputs made to have those statistics."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.rules import Device, Evaluation, NotApplicable, Rule
from stepscope.rules.profiler.batch_size import BatchSize
from stepscope.rules.profiler.cpu_bottleneck import CPUBottleneck
from stepscope.rules.profiler.dataloader import Dataloader
from stepscope.rules.profiler.dataloader_bottleneck import DataloaderBottleneck
from stepscope.rules.profiler.gpu_memory_increase import GPUMemoryIncrease
from stepscope.rules.profiler.io_bottleneck import IOBottleneck
from stepscope.rules.profiler.load_balancing import LoadBalancing, distances
from stepscope.rules.profiler.low_gpu_utilization import LowGPUUtilization
from stepscope.rules.profiler.max_initialization_time import MaxInitializationTime
from stepscope.rules.profiler.overall_framework_metrics import (
    OverallFrameworkMetrics,
    operator_table,
)
from stepscope.rules.profiler.overall_system_usage import OverallSystemUsage
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.schema import Finding
from tests.support.fake_signals import GPU_BYTES, SCAN_NS, FakeSignals
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


def found(rule: Rule[object], signals: FakeSignals) -> Finding:
    finding = rule.check(signals)
    assert finding is not None
    return finding


# --- the job on eight cores: 1802 seconds ---------------------------------------------------------


def test_system_usage() -> None:
    signals = FakeSignals()
    places = (1, 0.99, 0.95, 0.5, 0)
    metrics = {
        "cpu_percent": ("cpu_busy_ratio", "", 100),
        "memory_percent": ("memory_used_bytes", "", 1),  # of a node with 100 bytes
        "io_wait_percent": ("cpu_iowait_ratio", "", 100),
        "network_bytes_per_s": ("network_sent_bytes_per_s", "eth0", 1),
    }
    for row, (metric, device, scale) in metrics.items():
        knots = list(zip(places, TABLE[row], strict=True))
        values = shuffled(with_quantiles(3605, knots)) / scale
        signals.sample(metric, values, device=device)
    finding = found(OverallSystemUsage(), signals)
    assert finding.datapoints == 3605
    assert finding.details["nodes"]["n0"] == {
        row: dict(zip(FIGURES, values, strict=True)) for row, values in TABLE.items()
    }
    assert "68.15 %" in finding.sentences[0]


def test_operators_above_two_per_cent_add_up_to_a_hundred() -> None:
    small = {f"aten::small_{n}": 300_000_000 for n in range(20)}  # each 1.2 % of the sum
    times = {name: us * 1000 for name, (us, _) in OPERATORS.items()} | small
    table = operator_table(times)
    assert {row["name"]: round(float(row["percent"]), 2) for row in table} == {
        name: percent for name, (_, percent) in OPERATORS.items()
    }
    signals = FakeSignals().record(operator_ns=times)
    assert "aten::conv2d with 18 %" in found(OverallFrameworkMetrics(), signals).sentences[0]


def test_step_outliers() -> None:
    durations = step_durations()
    mean, deviation = durations.mean(), durations.std()
    assert (round(mean, 2), round(deviation, 2)) == (0.68, 0.13)  # what the input was made for
    durations = np.concatenate([shuffled(durations[:-11]), durations[-11:]])
    finding = found(StepOutlier(), FakeSignals().rank(forward=durations))
    figures = finding.details["ranks"]["rank 0"]
    assert finding.datapoints == 2111
    assert finding.violations == figures["outlier_count"] == 11
    assert round(figures["mean_s"], 2) == 0.68
    assert round(figures["standard_deviation_s"], 2) == 0.13
    assert round(figures["threshold_s"], 2) == 1.07
    shown = [round(figures[f"{name}_s"], 2) for name in ("max", "p99", "p95", "p50", "min")]
    assert shown == [2.53, 0.86, 0.80, 0.67, 0.36]
    assert figures["outlier_steps"] == list(range(2100, 2111))
    assert sum(figures["normal_steps_histogram"]["counts"]) == 2100


def test_step_outliers_count_scans() -> None:
    """The eleventh outlier comes in the fifteenth scan before the end."""
    base, scan_s = 0.6, SCAN_NS / SECOND_NS
    durations = np.full(2000, base)
    last = np.searchsorted(np.cumsum(durations), 6 * scan_s) - 5
    durations[last - 11 : last] = 1.5
    signals = FakeSignals().rank(forward=durations)
    ends = (signals.steps[0].end_ns - signals.origin_ns) // SCAN_NS
    expected = len(np.unique(ends)) - int(ends[last - 1])
    assert found(StepOutlier(), signals).rule_triggered == expected == 15


def test_loaders() -> None:
    durations = batch_durations()
    begin = np.arange(118) // 4 * 200.0
    signals = FakeSignals().load(begin, durations, np.arange(118) % 4)
    finding = found(Dataloader(), signals)
    figures = finding.details["nodes"]["n0"]
    assert (finding.datapoints, finding.rule_triggered) == (118, 1)
    assert (figures["cores_available"], figures["loader_process_count"]) == (8, 4)
    for place, value in ((25, 27.3181), (50, 28.4398), (95, 163.573)):
        assert figures[f"loading_p{place}_s"] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(
    ("cores", "workers", "wrong"),
    [(8, 4, True), (8, 5, True), (8, 6, False), (8, 16, False), (8, 17, True), (10, 7, False)],
)
def test_numbers_of_loaders(cores: float, workers: int, wrong: bool) -> None:
    seconds = np.repeat(np.arange(30.0), workers)
    signals = FakeSignals().node(cores=cores).load(seconds, 0.5, np.arange(len(seconds)) % workers)
    assert found(Dataloader(), signals).fired is wrong


def test_slow_batches_do_not_look_like_few_workers() -> None:
    begin = np.arange(40.0)
    signals = FakeSignals().node(cores=8).load(begin, 8.0, np.arange(40) % 8)
    assert found(Dataloader(), signals).details["nodes"]["n0"]["loader_process_count"] == 8


@pytest.mark.parametrize(("rule", "points"), [(CPUBottleneck, 3608), (IOBottleneck, 3608)])
def test_rules_about_gpus_see_the_cores_of_a_job_without_any(
    rule: type[CPUBottleneck], points: int
) -> None:
    signals = FakeSignals()
    for metric in ("core_busy_ratio", "core_iowait_ratio"):
        signals.sample(metric, np.full(points, 0.99), device="0")
    with pytest.raises(NotApplicable) as caught:
        rule().check(signals)
    assert caught.value.datapoints == points


# --- the job on three nodes of four GPUs ---------------------------------------------------------


NODES = (("a", 1007, 710, 7), ("b", 1006, 710, 6), ("c", 1006, 709, 6))
"""Snapshots, bottlenecks, and snapshots without a low GPU, by node."""


def three_nodes() -> FakeSignals:
    """3019 snapshots: 2129 bottlenecks, 871 more with a low GPU, 19 with none."""
    signals = FakeSignals()
    for node, count, bottlenecks, high in NODES:
        place = np.arange(count)
        busy = np.where(place >= count - bottlenecks, 0.95, 0.5)
        usage = np.where(place < high, 0.5, 0.05)
        signals.sample("core_busy_ratio", busy, device="0", node=node)
        for gpu in "0123":
            signals.sample("gpu_busy_ratio", usage, device=gpu, node=node)
    return signals


def test_both_shares_of_cpu_bottlenecks() -> None:
    finding = found(CPUBottleneck(), three_nodes())
    figures = finding.details
    assert (finding.violations, finding.datapoints) == (2129, 3019)
    assert figures["low_gpu_count"] == 3000
    assert round(figures["bottleneck_percent_of_snapshots"], 2) == 70.52
    assert round(figures["bottleneck_percent_of_low_gpu"], 2) == 70.97
    assert finding.fired
    assert finding.nodes == ["a", "b", "c"]
    assert "70.52 %" in finding.sentences[0]
    assert "70.97 %" in finding.sentences[1]


def test_a_busy_core_of_one_node_is_not_paired_with_an_idle_gpu_of_another() -> None:
    signals = FakeSignals()
    for node, core, gpu in (("a", 0.99, 0.9), ("b", 0.2, 0.0)):
        signals.sample("core_busy_ratio", np.full(1200, core), device="0", node=node)
        signals.sample("gpu_busy_ratio", np.full(1200, gpu), device="0", node=node)
    finding = found(CPUBottleneck(), signals)
    assert finding.violations == 0
    assert finding.details["low_gpu_count"] == 1200


def test_low_utilisation_counts_gpus() -> None:
    """1001 samples: the one scan past the patience sees eight of twelve GPUs underused."""
    signals = FakeSignals()
    for number in range(12):
        values = np.full(1001, 0.13 if number < 8 else 0.9)
        signals.sample("gpu_busy_ratio", values, device=str(number % 4), node=f"n{number // 4}")
    finding = found(LowGPUUtilization(), signals)
    assert (finding.datapoints, finding.violations, finding.rule_triggered) == (1001, 8, 1)
    assert finding.details["low_count"] == 8
    assert finding.details["fluctuating_count"] == 0
    assert finding.nodes == ["n0", "n1"]


def test_training_that_begins_late() -> None:
    signals = FakeSignals().rank(from_s=21 * 60, forward=np.full(50, 1.0))
    finding = found(MaxInitializationTime(), signals)
    assert not finding.fired  # the scan that begins after 21 minutes saw the first step
    assert finding.details["initialization_minutes"] == 21
    assert finding.datapoints == 50
    later = FakeSignals().rank(from_s=23 * 60, forward=np.full(50, 1.0))
    assert found(MaxInitializationTime(), later).rule_triggered == 2


# --- the recommender: 60 % of the step loads ------------------------------------------------------


def test_the_recommender() -> None:
    signals = FakeSignals()
    signals.rank(data_wait=np.full(200, 6.0), forward=1.2, backward=2.0, optimizer=0.8)
    second = np.arange(4000) / 2
    for gpu in range(8):
        usage = 0.375 + 0.175 * np.sin(second + gpu)  # between 20 % and 55 %
        signals.sample("gpu_busy_ratio", usage, device=str(gpu))
    loading = found(DataloaderBottleneck(), signals)
    assert loading.fired
    figures = loading.details["ranks"]["rank 0"]
    assert figures["data_wait_share_ratio"] == pytest.approx(0.60)
    assert figures["compute_share_ratio"] == pytest.approx(0.40)
    assert figures["phase_share_ratio"] == pytest.approx(
        {"data_wait": 0.60, "backward": 0.20, "forward": 0.12, "optimizer": 0.08}
    )
    usage = found(LowGPUUtilization(), signals)
    assert usage.fired
    assert len(usage.devices) == 8
    fixed = FakeSignals().rank(data_wait=np.full(200, 0.5), forward=1.2, backward=2.0)
    assert not found(DataloaderBottleneck(), fixed).fired


# --- boundaries are strict -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "low", "fluctuating"), [(0.699, 1, 0), (0.70, 0, 0), (0.71, 0, 0)]
)
def test_constant_utilisation(usage: float, low: int, fluctuating: int) -> None:
    signals = FakeSignals().sample("gpu_busy_ratio", np.full(1001, usage), device="0")
    details = found(LowGPUUtilization(), signals).details
    assert (details["low_count"] > 0) is bool(low)
    assert (details["fluctuating_count"] > 0) is bool(fluctuating)


@pytest.mark.parametrize(("floor", "fluctuating"), [(0.09, True), (0.10, False)])
def test_fluctuating_utilisation(floor: float, fluctuating: bool) -> None:
    values = np.where(np.arange(1001) % 4 == 0, floor, 0.95)
    signals = FakeSignals().sample("gpu_busy_ratio", values, device="0")
    finding = found(LowGPUUtilization(), signals)
    assert finding.fired is fluctuating
    assert finding.details["low_count"] == 0


@pytest.mark.parametrize(("samples", "fires"), [(1000, False), (1001, True)])
def test_patience(samples: int, fires: bool) -> None:
    evaluation = Evaluation([LowGPUUtilization()])
    evaluation.feed(FakeSignals().sample("gpu_busy_ratio", np.full(samples, 0.1), device="0"))
    (finding,) = evaluation.findings()
    assert finding.fired is fires
    assert finding.datapoints == samples
    assert (finding.missing is None) is fires


@pytest.mark.parametrize(("after", "fires"), [(0.16, True), (0.15, False), (0.149, False)])
def test_memory_that_leaps_from_a_tenth(after: float, fires: bool) -> None:
    shares = np.where(np.arange(1200) < 1100, 0.10, after)
    signals = FakeSignals().sample("gpu_memory_used_bytes", shares * GPU_BYTES, device="0")
    finding = found(GPUMemoryIncrease(), signals)
    assert finding.fired is fires
    assert finding.violations == int(fires)
    assert finding.details["gpus"]["n0/0"]["largest_rise_percent"] == pytest.approx(
        100 * (after - 0.1)
    )


@pytest.mark.parametrize(("bottlenecks", "fires"), [(600, False), (601, True)])
def test_half_of_the_time_is_not_more_than_half(bottlenecks: int, fires: bool) -> None:
    busy = np.where(np.arange(1200) < bottlenecks, 0.95, 0.5)[::-1]
    signals = FakeSignals().sample("core_busy_ratio", busy, device="0")
    signals.sample("gpu_busy_ratio", np.zeros(1200), device="0")
    assert found(CPUBottleneck(), signals).fired is fires


@pytest.mark.parametrize(
    ("core", "gpu", "bottleneck"), [(0.91, 0.09, 1), (0.90, 0.09, 0), (0.91, 0.10, 0)]
)
def test_what_a_bottleneck_snapshot_is(core: float, gpu: float, bottleneck: int) -> None:
    signals = FakeSignals().sample("core_busy_ratio", [core, 0.5], device="0")
    signals.sample("gpu_busy_ratio", [gpu, 0.5], device="0")
    assert found(CPUBottleneck(patience=1), signals).violations == bottleneck


@pytest.mark.parametrize(
    "high", ["cpu_busy_ratio", "gpu_busy_ratio", "gpu_memory_used_bytes", None]
)
def test_a_batch_is_small_when_nothing_is_at_its_threshold(high: str | None) -> None:
    signals = FakeSignals()
    for metric, device, scale in (
        ("cpu_busy_ratio", "", 1),
        ("gpu_busy_ratio", "0", 1),
        ("gpu_memory_used_bytes", "0", GPU_BYTES),
    ):
        values = np.full(1001, 0.70 if metric == high else 0.69)
        signals.sample(metric, values * scale, device=device)
    finding = found(BatchSize(), signals)
    assert finding.fired is (high is None)
    assert finding.violations == int(high is None)


# --- distances of loads --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [((3, 3), (1, 1), 0.0), ((5, 0), (0, 2), 0.83255), ((4, 0), (1, 1), 0.46450)],
)
def test_distances(one: tuple[int, int], other: tuple[int, int], distance: float) -> None:
    between = distances(np.array([one, other]))
    assert round(float(between[0, 1]), 5) == distance
    assert between[0, 1] == between[1, 0]
    assert between[0, 0] == 0


def test_the_largest_distance_is_the_root_of_log_two() -> None:
    signals = FakeSignals()
    signals.sample("gpu_busy_ratio", np.full(1001, 1.0), device="0")
    signals.sample("gpu_busy_ratio", np.full(1001, 0.97), device="1", node="n1")
    finding = found(LoadBalancing(), signals)
    assert finding.fired
    apart = finding.details["distances"]["n0/0"]["n1/1"]
    assert apart == pytest.approx(np.sqrt(np.log(2)), abs=1e-6)
    counts = finding.details["workloads_count"]["n0/0"]
    assert counts[-1] == sum(counts) == 1001  # what is above 98 % counts


def test_equal_loads_are_balanced() -> None:
    signals = FakeSignals()
    usage = np.random.default_rng(3).uniform(0, 1, 1500)
    for gpu in "0123":
        signals.sample("gpu_busy_ratio", shuffled(usage), device=gpu)
    finding = found(LoadBalancing(), signals)
    assert not finding.fired
    assert set(finding.details["distances"]["n0/0"].values()) == {0.0}


def test_a_rule_counts_a_scan_once_however_many_devices() -> None:
    signals = FakeSignals()
    for gpu in range(4):
        signals.sample("gpu_busy_ratio", np.full(1080, 0.1), device=str(gpu))
    finding = found(LowGPUUtilization(), signals)
    assert finding.rule_triggered == 1  # 1080 samples are nine scans; the ninth is past 1000
    assert finding.violations == 4
    assert finding.first_ns == finding.last_ns == signals.origin_ns + 9 * SCAN_NS


def test_devices_have_a_name() -> None:
    assert str(Device("n0", "3")) == "n0/3"
    assert Evaluation([]).findings() == []
