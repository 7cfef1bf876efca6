"""`overview` and `dashboard`: what a page shows first."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from stepscope.rule_feed.check import RULES_DOCUMENT, check_rules, choose_rules
from stepscope.run import Run
from stepscope.schema import RuleRecord
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.dashboard import BY_RECORDINGS, NO_CPU_SAMPLES, dashboard
from stepscope.views.overview import NOT_EVALUATED, overview
from tests.support.drawn_trace import copy, event, kernel, launch, training

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000
STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"


def starving(path: Path) -> RunBuilder:
    run = RunBuilder(path)
    process = run.rank(0, workers=1).draw(STEP, 100, jitter=0.1)
    process.workers[0].draw("fetch 95", 100)
    run.metric("gpu_busy_ratio", lambda s: 0.2 if s < 5 else 0.6, device="0")
    run.metric("gpu_busy_ratio", 0.4, device="1")
    run.metric("cpu_busy_ratio", 0.75)
    return run


def test_the_mean_step_and_its_parts(tmp_path: Path) -> None:
    signals = starving(tmp_path / "run").open()
    found = overview(signals)
    wall = signals.ranks[0].steps.wall_ns[10:]
    assert found.step_ns is not None
    assert found.step_ns.mean == pytest.approx(wall.mean())
    assert sum(part.mean_ns for part in found.step_parts) == pytest.approx(wall.mean())
    assert found.suspect_step_ns == pytest.approx(found.verdict.share_ratio * wall.mean())
    assert found.cpu_busy_ratio == pytest.approx(0.75)
    assert found.duration_ns == signals.reader.statuses()["n0"].heartbeat_ns - EPOCH_NS
    assert found.money is None
    assert found.findings_missing == NOT_EVALUATED


def test_money_per_step(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    said = msgspec.json.decode((path / "run.json").read_bytes())
    said["options"] = {"usd_per_hour": "32.77"}
    (path / "run.json").write_bytes(msgspec.json.encode(said))
    found = overview(Run(open_run(path)))
    assert found.money is not None
    assert found.money_missing is None
    mean_ns = round(found.verdict.mean_step_ns or 0)
    exact = Decimal("32.77") * mean_ns / Decimal(3600 * 10**9)
    assert found.money.step_usd == pytest.approx(float(exact))
    assert found.money.suspect_step_usd == pytest.approx(float(exact) * found.verdict.share_ratio)
    first = found.verdict.fixes[0].prediction
    assert first is not None
    assert first.saving_ratio > 0.1
    saved = float(exact) * (1 - first.step_ns / mean_ns)
    assert found.money.fix_savings_usd[0] == pytest.approx(saved, rel=1e-6)
    hours = found.duration_ns / 3.6e12
    assert found.money.job_usd == pytest.approx(32.77 * hours, abs=0.005)


def test_what_rules_found_while_the_job_ran(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    checked = check_rules(open_run(path), choose_rules())
    record = RuleRecord(
        progress="ended", end_ns=checked.end_ns, scan_ns=1, written_ns=1, findings=checked.findings
    )
    with RunWriter(path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    found = overview(Run(open_run(path)))
    assert {each.rule for each in found.findings} == set(checked.fired)
    assert "DataloaderBottleneck" in checked.fired
    assert found.findings_missing is None


def test_machines(tmp_path: Path) -> None:
    signals = starving(tmp_path / "run").open()
    found = dashboard(signals)
    first = signals.metrics["n0"].series("gpu_busy_ratio", "0")
    assert found.gpu_active is not None
    assert found.gpu_active.active_ratio == pytest.approx((first.mean() + 0.4) / 2)
    assert found.cpu_active is not None
    assert found.cpu_active.active_ratio == pytest.approx(0.75)
    over_time = found.utilisation
    assert over_time is not None
    (node,) = over_time.nodes
    # A piece is two samples long; both GPUs count.
    assert over_time.piece_ns == 1_000 * MS
    assert node.gpu_busy_ratio[0] == pytest.approx((0.2 + 0.4) / 2)
    assert node.gpu_busy_ratio[6] == pytest.approx((0.6 + 0.4) / 2)
    assert node.cpu_busy_ratio == pytest.approx([0.75] * len(node.cpu_busy_ratio))
    steps = found.step_durations
    assert steps is not None
    assert (steps.source, steps.count) == ("watched", 90)
    assert sum(steps.counts) + steps.above_count == 90
    assert steps.mean_ns == pytest.approx(signals.ranks[0].steps.wall_ns[10:].mean())
    assert set(found.missing_parts) == {"kernels_by_time", "memory_operations"}


def test_devices(imported: Imported) -> None:
    events = [
        *training(),
        launch(90, 150),
        kernel("ampere_sgemm_64x64", 170, 7, 90),
        event("cuda_runtime", "cudaDeviceSynchronize", 180, 8),
        copy("Memset (Device)", 190, 2, 91, 8),
    ]
    found = dashboard(imported(a=events))
    kernels = {each.name: each for each in found.kernels_by_time}
    assert (found.kernel_count, found.launch_count) == (3, 5)
    assert [each.total_ns for each in found.kernels_by_time] == [60 * US, 40 * US, 7 * US]
    assert kernels["ampere_sgemm_64x64"].share_ratio == pytest.approx(7 / 107)
    assert found.kernels_by_launches[-1].name == "ampere_sgemm_64x64"
    assert found.precision is not None
    assert {part.name: part.total_ns // US for part in found.precision.parts} == {
        "FP32": 67,
        "FP16": 40,
    }
    assert found.activity is not None
    assert {part.name: part.total_ns // US for part in found.activity.parts} == {
        "communication": 60,
        "compute": 47,
        "memcpy": 10,
        "synchronization": 8,
        "memset": 2,
    }
    assert found.memory_operations is not None
    assert {part.name: part.share_ratio for part in found.memory_operations.parts} == {
        "HtoD": pytest.approx(10 / 12),
        "memset": pytest.approx(2 / 12),
    }
    for pie in (found.precision, found.activity, found.memory_operations):
        assert sum(part.share_ratio for part in pie.parts) == pytest.approx(1)
    assert found.gpu_active is not None
    assert found.gpu_active.share_of == BY_RECORDINGS
    assert found.gpu_active.active_ratio == pytest.approx((90 + 2) / (192 - 33))
    assert found.step_durations is not None
    assert found.step_durations.source == "recorded"
    assert found.missing_parts == {
        "cpu_active": NO_CPU_SAMPLES,
        "utilisation": NO_CPU_SAMPLES,
    }


def test_only_fifteen_kernels_are_listed(imported: Imported) -> None:
    events = [kernel(f"k{n}", 100 * n, n, n) for n in range(1, 31)]
    found = dashboard(imported(a=events))
    assert [each.name for each in found.kernels_by_time] == [f"k{n}" for n in range(30, 15, -1)]
    assert found.kernel_count == 30
