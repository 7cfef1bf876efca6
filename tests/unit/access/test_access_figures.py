"""Figures of a drawn run against the numbers that it was drawn with, and against counting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.analysis import PHASES
from stepscope.errors import UsageError
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.access_run import MS, STEPS, draw
from tests.support.debugger_files import DebuggerOutput, sample

SLOW = 650 * MS
"""Rank 1's eighth step: its wait of 600 ms and 50 ms of work."""


# --- histograms ------------------------------------------------------------------------------


@pytest.mark.seed("DBU-04")
def test_metrics_histogram_holds_every_sample(run: OpenRun) -> None:
    result = run.metrics_histogram("gpu_busy_ratio")
    series = {item.device: item for item in result.series}
    assert set(series) == {"0", "1", "mean"}
    samples = len(run.system(metric="gpu_busy_ratio", device="0"))
    for item in series.values():
        assert (item.histogram.count, item.unit) == (samples, "ratio")
        assert (item.histogram.under_count, item.histogram.over_count) == (0, 0)
        assert len(item.histogram.counts) == 50
    # Four samples of 20 % until two seconds have passed, then 100 %: the bins 0.20 and 0.98 to 1.
    counts = np.flatnonzero(series["0"].histogram.counts)
    assert counts.tolist() == [10, 49]
    assert series["0"].histogram.counts[counts].tolist() == [4, samples - 4]
    assert np.flatnonzero(series["1"].histogram.counts).tolist() == [49]
    means = np.flatnonzero(series["mean"].histogram.counts)  # 59.5 % and 99.5 %
    assert means.tolist() == [29, 49]
    assert series["0"].distribution.maximum == 1


@pytest.mark.seed("DBU-04")
def test_metrics_histogram_of_a_range_and_a_device(run: OpenRun) -> None:
    start = EPOCH_NS + 2 * 10**9
    result = run.metrics_histogram("gpu_busy_ratio", device="0", start=start, bin_width=0.1)
    (item,) = result.series
    assert np.flatnonzero(item.histogram.counts).tolist() == [9]
    assert not run.metrics_histogram("gpu_busy_ratio", end=EPOCH_NS).series


def test_metrics_histogram_in_bytes(run: OpenRun) -> None:
    (item,) = run.metrics_histogram("memory_used_bytes").series
    assert (item.unit, item.device, item.histogram.over_count) == ("bytes", "", 0)
    assert item.histogram.count == item.distribution.count


@pytest.mark.seed("DBU-05")
def test_step_histogram(run: OpenRun) -> None:
    result = run.step_histogram()
    durations = {"rank 0": [100] * STEPS, "rank 1": [110] * (STEPS - 1) + [650]}
    # The first step has no pause of 5 ms before it: a step ends with its optimizer.
    for series in durations.values():
        series[0] -= 5
    all_durations = np.concatenate(list(durations.values())) * MS
    upper = np.median(all_durations) + 2 * all_durations.std()
    for item in result.series:
        counts = np.array(durations[item.rank]) * MS
        assert item.histogram.edges[[0, -1]].tolist() == [95 * MS, pytest.approx(upper)]
        assert item.histogram.count == STEPS
        assert item.histogram.over_count == (counts > upper).sum()
        bins = np.histogram(counts[counts <= upper], bins=item.histogram.edges)[0]
        assert item.histogram.counts.tolist() == bins.tolist()
        assert item.distribution.maximum == counts.max()
    assert len(run.step_histogram(rank=1).series) == 1


@pytest.mark.seed("DBU-05")
def test_step_histogram_of_a_phase(run: OpenRun) -> None:
    (item,) = run.step_histogram(phase="forward", rank=0, bins=7).series
    assert item.histogram.counts.tolist() == [STEPS]  # all the same: one bin
    assert item.distribution.p50 == 12 * MS


# --- over time -------------------------------------------------------------------------------


@pytest.mark.seed("DBU-07")
def test_step_timeline(run: OpenRun) -> None:
    first, second = run.step_timeline().ranks
    assert (first.rank, first.node, len(first.step)) == ("rank 0", "n0", STEPS)
    assert first.start_ns[:3].tolist() == [EPOCH_NS, EPOCH_NS + 95 * MS, EPOCH_NS + 195 * MS]
    assert second.duration_ns[7] == SLOW
    assert second.step[np.argmax(second.duration_ns)] == 7
    assert first.measured.tolist() == [False] * 4 + [True] * (STEPS - 4)


@pytest.mark.seed("DBU-06")
def test_heatmap(run: OpenRun) -> None:
    result = run.heatmap()
    assert [(row.metric, row.device) for row in result.rows] == [
        ("gpu_busy_ratio", "0"),
        ("gpu_busy_ratio", "1"),
        ("cpu_busy_ratio", ""),
        ("memory_used_bytes", ""),
    ]
    assert result.shades[:, 0].tolist() == [0.2, 0.99, 0.5, 1]
    samples = run.system(metric="cpu_busy_ratio").numpy()["t_ns"]
    assert result.t_ns.tolist() == samples.tolist()
    assert run.heatmap(last=3).values.shape == (4, 3)


@pytest.mark.seed("DBU-06")
def test_a_heat_map_of_several_nodes(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 100 | optimizer 10", 20)
    for node, ratio in (("n0", 0.25), ("n1", 0.75)):
        builder.metric("cpu_busy_ratio", ratio, node=node)
    run = stepscope.open(builder.write())
    rows = run.heatmap().rows
    assert [(row.node, row.metric) for row in rows] == [
        ("n0", "cpu_busy_ratio"),
        ("n1", "cpu_busy_ratio"),
    ]
    assert set(run.heatmap().values.ravel().tolist()) == {0.25, 0.75}
    assert [row.node for row in run.heatmap("n1").rows] == ["n1"]


def test_a_heat_map_needs_a_node(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No node was monitored"):
        stepscope.open(draw_nothing(tmp_path)).heatmap()


def draw_nothing(tmp_path: Path) -> Path:
    run = RunBuilder(tmp_path / "run").write()
    for node in (run / "nodes").iterdir():
        (node / "node.json").unlink()
    return run


# --- statistics ------------------------------------------------------------------------------


def test_job_statistics(run: OpenRun) -> None:
    job = run.job_statistics()
    assert job.initialization_ns == 0
    last = EPOCH_NS + (110 * (STEPS - 1) + 650) * MS - 5 * MS
    assert job.training_ns == last - EPOCH_NS
    assert job.finalization_ns is not None
    assert job.training_ns + job.finalization_ns == job.duration_ns


def test_what_a_job_cost(run: OpenRun) -> None:
    job = run.job_statistics()
    cost = run.cost("36", instances=3)
    assert float(cost.exact_usd) == pytest.approx(3 * 36 * job.duration_ns / 3.6e12)
    assert run.cost(36).instance_count == len(run.nodes)
    for wrong in ("dear", -1, float("nan")):
        with pytest.raises(UsageError, match="is not a price; give US dollars per hour"):
            run.cost(wrong)


def test_job_statistics_without_steps(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("wait 5", 3)
    job = stepscope.open(builder.write()).job_statistics()
    parts = (job.initialization_ns, job.training_ns, job.finalization_ns)
    assert parts == (None, None, None)


def test_phase_statistics(run: OpenRun) -> None:
    rows = {(r["rank"], r["phase"]): r for r in run.phase_statistics().rows()}
    assert {phase for _, phase in rows} == set(PHASES)
    measured = STEPS - 4
    wait = rows["rank 0", "data_wait"]
    assert (wait["count"], wait["total_ns"]) == (measured, measured * 50 * MS)
    assert wait["share_ratio"] == 0.5
    assert rows["rank 0", "loss"]["mean_ns"] == 3 * MS
    slow = rows["rank 1", "data_wait"]
    assert (slow["max_ns"], slow["p50_ns"]) == (600 * MS, 60 * MS)
    assert slow["mean_ns"] == pytest.approx((60 * (measured - 1) + 600) * MS / measured)
    for rank in ("rank 0", "rank 1"):
        shares = [row["share_ratio"] for key, row in rows.items() if key[0] == rank]
        assert sum(shares) == pytest.approx(1)
    assert len(run.phase_statistics(rank=1)) == len(PHASES)


def test_span_statistics_against_counting(run: OpenRun) -> None:
    frame = run.framework().numpy()
    rows = run.span_statistics(by=("rank", "kind")).rows()
    assert [row["total_ns"] for row in rows] == sorted((r["total_ns"] for r in rows), reverse=True)
    for row in rows:
        counts = frame["duration_ns"][
            (frame["rank"] == row["rank"]) & (frame["kind"] == row["kind"])
        ]
        assert (row["count"], row["total_ns"]) == (len(counts), int(counts.sum()))
        assert (row["min_ns"], row["max_ns"]) == (int(counts.min()), int(counts.max()))
        assert row["p95_ns"] == np.percentile(counts, 95)
    assert sum(row["count"] for row in rows) == len(run.framework())
    (one,) = run.span_statistics(by="phase", kind="forward", rank=0, steps=(0, 10)).rows()
    assert (one["phase"], one["count"], one["total_ns"]) == ("forward", 10, 120 * MS)


def test_usage(run: OpenRun) -> None:
    rows = {row["device"]: row for row in run.usage().rows()}
    count = rows["0"]["count"]
    assert rows["0"]["middle_ratio"] == pytest.approx(4 / count)
    assert rows["0"]["high_ratio"] == pytest.approx(1 - 4 / count)
    assert (rows["1"]["low_ratio"], rows["1"]["high_ratio"]) == (0, 1)
    borders = run.usage("cpu_busy_ratio", low=0.5, high=0.5).rows()[0]
    assert (borders["low_ratio"], borders["middle_ratio"], borders["high_ratio"]) == (0, 1, 0)


def test_cores_count_where_no_gpu_was_sampled(tmp_path: Path) -> None:
    """Half of the samples of one core and all of another are above 90%."""
    output = DebuggerOutput(tmp_path / "profiler-output")
    cores = {"cpu0": (95, 20), "cpu1": (95, 95)}
    output.system(
        "algo-1",
        [
            sample("CPUUtilization", core, values[second % 2], second=second)
            for core, values in cores.items()
            for second in range(10)
        ],
    )
    output.imported(tmp_path / "run")
    rows = stepscope.access.open(tmp_path / "run").usage().rows()
    assert [(row["metric"], row["device"], row["high_ratio"]) for row in rows] == [
        ("core_busy_ratio", "0", 0.5),
        ("core_busy_ratio", "1", 1),
    ]


# --- loading and functions -------------------------------------------------------------------


@pytest.mark.seed("DBP-13", "DBU-11")
def test_dataloader(run: OpenRun) -> None:
    result = run.dataloader()
    assert result.wait_ns is not None
    assert result.fetch_ns is not None
    assert result.iterator_start_ns is None
    assert (result.wait_ns.count, result.wait_ns.maximum) == (2 * STEPS, 600 * MS)
    assert (result.fetch_ns.count, result.fetch_ns.mean) == (2 * STEPS, 80 * MS)
    assert [(w.worker, w.rank) for w in result.workers] == [(0, 0), (0, 1)]
    assert all(w.fetch_ns is not None and w.fetch_ns.count == STEPS for w in result.workers)
    (slow,) = result.slow_waits.rows()
    assert (slow["rank"], slow["step"], slow["duration_ns"]) == (1, 7, 600 * MS)
    assert slow["ready_count"] == 0
    start = slow["start_ns"]
    around = run.system(
        metric="gpu_busy_ratio", start=start - 500 * MS, end=start + 1100 * MS
    ).numpy()["value"]
    assert slow["gpu_busy_ratio"] == pytest.approx(around.mean())
    assert result.missing == []
    assert run.dataloader(rank=0).wait_ns != result.wait_ns


def test_dataloader_says_what_is_missing(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 5 | backward 5 | optimizer 1", 30)
    result = stepscope.open(builder.write()).dataloader()
    assert len(result.missing) == 2
    assert (result.wait_ns, result.fetch_ns, result.workers) == (None, None, [])
    assert len(result.waits) == len(result.slow_waits) == 0


@pytest.mark.seed("DBP-06")
def test_python_profile_by_phase_and_step(run: OpenRun) -> None:
    functions = {r["function"]: r for r in run.python_profile(rank=0).rows()}
    assert functions["log"]["own_ns"] == STEPS * 5 * MS
    assert functions["main"]["total_ratio"] == 1
    (loss, *outer) = run.python_profile(rank=0, phase="loss").rows()
    assert (loss["function"], loss["own_ns"], loss["own_ratio"]) == ("loss", STEPS * 3 * MS, 1)
    assert {row["own_ns"] for row in outer} == {0}
    (log, *_) = run.python_profile(rank=0, phase="other", steps=(10, 20)).rows()
    assert (log["function"], log["own_count"]) == ("log", 50)
    assert len(run.python_profile(rank=0, top=1)) == 1
    assert not len(run.python_profile(phase="checkpoint"))


def test_python_profile_of_workers(run: OpenRun) -> None:
    (decode, *_) = run.python_profile(rank=1, workers=True, top=1).rows()
    assert (decode["function"], decode["rank"]) == ("decode", "rank 1")
    assert decode["own_ns"] == STEPS * 70 * MS


def test_every_answer_is_the_same_twice(path: Path, tmp_path: Path) -> None:
    again = draw(tmp_path / "run").write()
    one, second = stepscope.open(path), stepscope.open(again)
    assert one.framework().rows() == second.framework().rows()
    assert one.python_profile().rows() == second.python_profile().rows()


def test_conditions_on_another_run(run: OpenRun, path: Path) -> None:
    assert run.compare(run).gate is None
    gate = run.compare(path, fail_if=["step_time>1ms"]).gate
    assert gate is not None
    assert gate.outcome == "failed"
    with pytest.raises(UsageError, match="Unknown metric"):
        run.compare(run, fail_if=["speed>+5%"])
    with pytest.raises(UsageError, match="Unknown group"):
        run.compare(run, allow_different=["weather"])
