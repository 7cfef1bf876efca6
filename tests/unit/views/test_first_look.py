"""`overview` and `dashboard`: what a page shows first."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.rule_feed import RULES_DOCUMENT, check_rules, choose_rules
from stepscope.run import Run
from stepscope.schema import RuleRecord
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.job.dashboard import SHARE_OF_TRACES, TIMING, show_dashboard
from stepscope.views.job.overview import NOT_EVALUATED, show_overview
from stepscope.views.system import NOT_IN_FILES
from stepscope.views.trace_data import find_profiled_range
from tests.support.drawn_trace import copy, distributed, event, kernel, launch, step, training

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000
STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"


def starving(path: Path) -> RunBuilder:
    builder = RunBuilder(path)
    process = builder.rank(0, workers=1).draw(STEP, 100, jitter=0.1)
    process.workers[0].draw("fetch 95", 100)
    builder.metric("gpu_busy_ratio", lambda s: 0.2 if s < 5 else 0.6, device="0")
    builder.metric("gpu_busy_ratio", 0.4, device="1")
    builder.metric("cpu_busy_ratio", 0.75).metric("cpu_busy_max_ratio", 0.9)
    return builder


def test_the_mean_step_and_its_parts(drawn_once: Callable[..., Run]) -> None:
    run = drawn_once(starving)
    payload = show_overview(run)
    wall = run.ranks[0].steps.wall_ns[10:]
    assert payload.step_ns is not None
    assert payload.step_ns.mean == pytest.approx(wall.mean())
    assert sum(part.mean_ns for part in payload.step_parts) == pytest.approx(wall.mean())
    assert payload.suspect_step_ns == pytest.approx(payload.verdict.share_ratio * wall.mean())
    assert payload.cpu_busy_ratio == pytest.approx(0.75)
    assert payload.duration_ns == run.reader.statuses()["n0"].heartbeat_ns - EPOCH_NS
    assert payload.money is None
    assert payload.findings_missing == NOT_EVALUATED


def test_a_healthy_job_has_no_time_of_a_suspect(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("wait 5 | forward 50 | backward 40 | optimizer 5", 100)
    path = run.write()
    manifest = msgspec.json.decode((path / "run.json").read_bytes())
    manifest["options"] = {"usd_per_hour": "32.77"}
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    payload = show_overview(Run(open_run(path)))
    assert payload.verdict.suspect == "healthy"
    assert payload.suspect_step_ns is None
    assert payload.money is not None
    assert payload.money.step_usd is not None
    assert payload.money.suspect_step_usd is None


def test_money_per_step(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    manifest = msgspec.json.decode((path / "run.json").read_bytes())
    manifest["options"] = {"usd_per_hour": "32.77"}
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    payload = show_overview(Run(open_run(path)))
    assert payload.money is not None
    assert payload.money_missing is None
    mean_ns = round(payload.verdict.mean_step_ns or 0)
    exact = Decimal("32.77") * mean_ns / Decimal(3600 * 10**9)
    assert payload.money.step_usd == pytest.approx(float(exact))
    assert payload.money.suspect_step_usd == pytest.approx(
        float(exact) * payload.verdict.share_ratio
    )
    first = payload.verdict.fixes[0].prediction
    assert first is not None
    assert first.saving_ratio == pytest.approx(1 - 95e6 / mean_ns, rel=1e-3)  # the fetch
    saved = float(exact) * (1 - first.step_ns / mean_ns)
    assert payload.money.fix_savings_usd[0] == pytest.approx(saved, rel=1e-6)
    hours = payload.duration_ns / 3.6e12
    assert payload.money.job_usd == pytest.approx(32.77 * hours, abs=0.005)


def test_what_rules_found_while_the_job_ran(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    checked = check_rules(open_run(path), choose_rules())
    record = RuleRecord(
        progress="ended", end_ns=checked.end_ns, scan_ns=1, written_ns=1, findings=checked.findings
    )
    with RunWriter(path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    payload = show_overview(Run(open_run(path)))
    assert {row.rule for row in payload.findings} == set(checked.fired)
    assert "DataloaderBottleneck" in checked.fired
    assert payload.findings_missing is None


@pytest.mark.seed("SMP-11", "SMP-13", "SMP-14")
def test_machines(drawn_once: Callable[..., Run]) -> None:
    run = drawn_once(starving)
    payload = show_dashboard(run)
    first = run.metrics["n0"].series("gpu_busy_ratio", "0")
    assert payload.gpu_active is not None
    # The other GPU is the busiest one as long as this one is at 0.2.
    assert payload.gpu_active.active_ratio == pytest.approx(np.maximum(first, 0.4).mean())
    assert payload.cpu_active is not None
    assert payload.cpu_active.active_ratio == pytest.approx(0.9)
    gpus, cpus = payload.gpu_utilization, payload.cpu_utilization
    assert gpus is not None
    assert cpus is not None
    # A bin is two samples long; both GPUs count.
    assert gpus.piece_ns == cpus.piece_ns == 1_000 * MS
    (node,) = gpus.series
    assert node.name == "n0"
    assert node.busy_ratio[0] == pytest.approx((0.2 + 0.4) / 2)
    assert node.busy_ratio[6] == pytest.approx((0.6 + 0.4) / 2)
    (node,) = cpus.series
    assert node.busy_ratio == pytest.approx([0.75] * len(node.busy_ratio))
    steps = payload.step_durations
    assert steps is not None
    assert (steps.source, steps.count) == ("watched", 90)
    assert sum(steps.counts) + steps.above_count == 90
    assert steps.mean_ns == pytest.approx(run.ranks[0].steps.wall_ns[10:].mean())
    assert set(payload.missing_parts) == {"kernels_by_time", "memory_operations"}


@pytest.mark.seed("SMP-21", "SMP-22", "SMP-29")
def test_devices(imported: Imported) -> None:
    events = [
        *training(),
        launch(90, 150),
        kernel("ampere_sgemm_64x64", 170, 7, 90),
        event("cuda_runtime", "cudaDeviceSynchronize", 180, 8),
        copy("Memset (Device)", 190, 2, 91, 8),
    ]
    payload = show_dashboard(imported(a=events))
    kernels = {row.name: row for row in payload.kernels_by_time}
    assert (payload.kernel_count, payload.launch_count) == (3, 5)
    assert [row.total_ns for row in payload.kernels_by_time] == [60 * US, 40 * US, 7 * US]
    assert kernels["ampere_sgemm_64x64"].share_ratio == pytest.approx(7 / 107)
    assert payload.kernels_by_launches[-1].name == "ampere_sgemm_64x64"
    assert payload.precision is not None
    assert {part.name: part.total_ns // US for part in payload.precision.parts} == {
        "FP32": 67,
        "FP16": 40,
    }
    assert payload.activity is not None
    assert {part.name: part.total_ns // US for part in payload.activity.parts} == {
        "communication": 60,
        "compute": 47,
        "memcpy": 10,
        "synchronization": 8,
        "memset": 2,
    }
    assert payload.memory_operations is not None
    assert {part.name: part.share_ratio for part in payload.memory_operations.parts} == {
        "HtoD": pytest.approx(10 / 12),
        "memset": pytest.approx(2 / 12),
    }
    for pie in (payload.precision, payload.activity, payload.memory_operations):
        assert sum(part.share_ratio for part in pie.parts) == pytest.approx(1)
    assert payload.gpu_active is not None
    assert payload.gpu_active.share_of == SHARE_OF_TRACES
    assert payload.gpu_active.active_ratio == pytest.approx((90 + 2) / (192 - 33))
    assert payload.step_durations is not None
    assert payload.step_durations.source == "recorded"
    assert payload.missing_parts == {"cpu_active": NOT_IN_FILES, "cpu_utilization": NOT_IN_FILES}


@pytest.mark.seed("SMP-17")
def test_only_fifteen_kernels_are_ranked_but_all_are_charted(imported: Imported) -> None:
    events = [kernel(f"k{n}", 100 * n + m, 1, 100 * n + m) for n in range(1, 31) for m in range(n)]
    payload = show_dashboard(imported(a=events))
    ranked = [row.name for row in payload.kernels_by_launches]
    assert sorted(ranked) == sorted(f"k{n}" for n in range(30, 15, -1))
    assert payload.kernel_count == 30
    launches = {row.name: row.launch_count for row in payload.all_kernels}
    assert launches == {f"k{n}": n for n in range(1, 31)}


def test_kernels_are_ranked_by_time(imported: Imported) -> None:
    events = [kernel(f"k{n}", 100 * n, n, n) for n in range(1, 31)]
    payload = show_dashboard(imported(a=events))
    assert [row.name for row in payload.kernels_by_time] == [f"k{n}" for n in range(30, 15, -1)]


@pytest.mark.seed("SMP-20")
def test_integers_of_different_width_are_different_precisions(imported: Imported) -> None:
    names = {
        "turing_int8_i8816gemm_int8_128x128_ldg16_relu_tn": 5,
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>": 3,
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>>": 2,
    }
    events = [kernel(name, 100 * n, us, n) for n, (name, us) in enumerate(names.items(), 1)]
    precision = show_dashboard(imported(a=events)).precision
    assert precision is not None
    shares = {part.name: part.share_ratio for part in precision.parts}
    assert shares == pytest.approx({"INT8": 0.5, "INT32": 0.3, "INT64": 0.2})


@pytest.mark.seed("SMP-19")
def test_the_clock_of_step_durations(
    tmp_path: Path, imported: Imported, drawn_once: Callable[..., Run]
) -> None:
    on_device = [*training()]
    on_host = [step(n, 1_000 * n, 900) for n in range(3)]
    on_host += [event("cpu_op", "aten::mm", 1_000 * n + 10, 800) for n in range(3)]
    files = {"device": on_device, "host": on_host}
    for timed_on, names in (("device", ["device"]), ("host", ["host"]), ("both", files)):
        run = imported(**{name: files[name] for name in names})
        durations = show_dashboard(run).step_durations
        assert durations is not None
        assert durations.source == "recorded"
        assert (durations.timed_on, durations.timing) == (timed_on, TIMING[durations.timed_on])
    durations = show_dashboard(drawn_once(starving)).step_durations
    assert durations is not None
    assert (durations.source, durations.timing) == ("watched", TIMING["host"])
    job = RunBuilder(tmp_path / "job")
    job.rank(0).draw("wait 5 | forward ( device:forward 20 ) | backward 40 | optimizer 5", 20)
    durations = show_dashboard(job.open()).step_durations
    assert durations is not None
    assert durations.timed_on == "host"
    assert durations.timing.endswith("; its phases are timed on the device")


@pytest.mark.seed("SMP-12")
def test_utilization_of_traces_over_time(imported: Imported) -> None:
    """Two ranks of 30 us; a bin has 100 ns. Copies do not count, kernels of two streams once."""
    ends = [event("cpu_op", "aten::mm", 0, 1), event("cpu_op", "aten::mm", 29, 1)]
    first = [
        *ends,
        kernel("gemm", 10, 10, 1),
        kernel("add", 15, 5, 2, stream=8),
        copy("Memcpy HtoD (Pageable -> Device)", 0, 30, 3, 100),
    ]
    second = [*ends, kernel("gemm", 0, 30, 1)]
    run = imported(a=distributed(first, 0, 2), b=distributed(second, 1, 2))
    payload = show_dashboard(run).gpu_utilization
    assert payload is not None
    assert (payload.start_after_ns, payload.piece_ns) == (0, 100)
    curves = {series.name: series.busy_ratio for series in payload.series}
    assert curves == {
        "rank 0, GPU 0": [0.0] * 100 + [1.0] * 100 + [0.0] * 100,
        "rank 1, GPU 0": [1.0] * 300,
    }
    payload = show_dashboard(run.within(5 * US, 15 * US)).gpu_utilization
    assert payload is not None
    assert (payload.start_after_ns, payload.series[0].name) == (5 * US, "rank 0, GPU 0")
    ratios = [ratio for ratio in payload.series[0].busy_ratio if ratio is not None]
    assert np.mean(ratios) == pytest.approx(0.5, abs=0.01)


@pytest.mark.seed("SMP-12")
def test_utilization_of_traces_is_a_mean_per_node_where_they_name_it(imported: Imported) -> None:
    """Names as `tensorboard_trace_handler` writes them: two workers on one host, one on another."""
    files = {}
    for number, (host, busy_us) in enumerate((("left", 1), ("left", 30), ("right", 30))):
        pid = 10 + number
        events = [event("cpu_op", "aten::mm", at, 1, pid=pid) for at in (0, 29)]
        events.append(kernel("gemm", 0, busy_us, 1))
        files[f"{host}_{pid}.170000000000{number}.pt.trace"] = distributed(events, number, 3)
    payload = show_dashboard(imported(**files)).gpu_utilization
    assert payload is not None
    curves = {series.name: series.busy_ratio for series in payload.series}
    assert curves == {"left": [1.0] * 10 + [0.5] * 290, "right": [1.0] * 300}


@pytest.mark.parametrize(
    "name", ["ddp_2ranks_nccl.a100.json.gz", "resnet50_num_workers_0.v100.json.gz"]
)
@pytest.mark.seed("SMP-12")
def test_utilization_of_a_real_trace_sums_to_that_of_its_kernels(
    real: Callable[[str], Run], name: str
) -> None:
    run = real(name)
    payload = show_dashboard(run).gpu_utilization
    assert payload is not None
    (trace,) = run.traces
    start_ns, end_ns = find_profiled_range(trace)
    kernels = trace.columns("kernels", ("start_ns", "duration_ns"))
    busy = np.zeros(-(-(end_ns - start_ns) // 1000), dtype=np.bool_)
    for start, length in zip(kernels["start_ns"], kernels["duration_ns"], strict=True):
        busy[max(0, start - start_ns) // 1000 : max(0, start + length - start_ns) // 1000] = True
    (series,) = payload.series
    widths = [payload.piece_ns] * (len(series.busy_ratio) - 1)
    widths.append(end_ns - start_ns - sum(widths))
    covered_ns = sum(r * w for r, w in zip(series.busy_ratio, widths, strict=True) if r is not None)
    assert covered_ns / (end_ns - start_ns) == pytest.approx(busy.mean(), abs=0.02)
