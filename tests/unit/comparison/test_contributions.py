"""Contributions to the change of the mean step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.comparison.compare import compare_runs
from stepscope.comparison.contributions import (
    IDLE,
    NO_CALLS,
    OTHER_RANKS,
    Contribution,
    PartContributions,
)
from stepscope.comparison.payload import Comparison
from stepscope.run import Run
from stepscope.testing import RunBuilder
from tests.support.drawn_trace import event, kernel, launch, step

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000


def check_sums(result: Comparison) -> dict[str, PartContributions]:
    """Check that all changes sum up, and return the parts by name."""
    total = result.contributions
    assert total is not None
    assert sum(part.base_ns for part in total.parts) == total.base_ns
    assert sum(part.other_ns for part in total.parts) == total.other_ns
    assert (
        sum(part.change_ns for part in total.parts)
        == total.change_ns
        == total.other_ns - total.base_ns
    )
    for part in total.parts:
        assert sum(row.change_ns for row in part.rows) + part.rest_ns == part.change_ns
        for row in part.rows:
            assert row.change_ns == row.other_ns - row.base_ns
    assert result.steps is not None
    if result.steps.source == "recorded":  # exposed times are not scaled
        scales = [scale for part in total.parts for scale in (part.base_scale, part.other_scale)]
        assert scales == pytest.approx([1] * len(scales))
    assert total.change_ns == pytest.approx(result.steps.figures[0].change_ns, abs=1)
    return {part.part: part for part in total.parts}


def index_rows(part: PartContributions) -> dict[str, Contribution]:
    rows = {row.name: row for row in part.rows}
    assert len(rows) == len(part.rows)
    return rows


def draw_steps(*kernels: tuple[str, float, float], spare: float = 5) -> list[dict[str, Any]]:
    """Draw ten steps of 100 µs that launch kernels, given by name, start and duration.

    The first half of the kernels is launched from aten::mm, the second from aten::relu.
    """
    events = []
    for number in range(10):
        at = 100 * number
        events.append(step(number, at, 95))
        half = -(-len(kernels) // 2)
        events.append(event("cpu_op", "aten::mm", at + 2, 6))
        events.append(event("cpu_op", "aten::relu", at + 8, spare))
        for index, (name, start, duration) in enumerate(kernels):
            correlation = 10 * number + index + 1
            stream = 20 if name.startswith("nccl") else 7
            operator = at + 3 if index < half else at + 9
            events.append(launch(correlation, operator + 0.5 * index, 0.4))
            events.append(kernel(name, at + start, duration, correlation, stream=stream))
    return events


def compare_traces(imported: Imported, base: Any, candidate: Any) -> Comparison:
    return compare_runs([imported(a=base)], [imported(a=candidate)])


def test_a_slower_kernel(imported: Imported) -> None:
    base = draw_steps(("gemm", 20, 30), ("relu", 60, 10))
    candidate = draw_steps(("gemm", 20, 38), ("relu", 60, 10))
    parts = check_sums(compare_traces(imported, base, candidate))
    gemm = index_rows(parts["kernel"])["gemm"]
    assert (gemm.status, gemm.path, gemm.kind) == ("slower", ["aten::mm"], "device work")
    assert (gemm.base_ns, gemm.other_ns) == (30 * US, 38 * US)
    assert (gemm.base_calls, gemm.other_calls) == (1, 1)
    assert index_rows(parts["kernel"])["relu"].status == "unchanged"
    assert index_rows(parts["other"])[IDLE].change_ns == -8 * US


def test_a_collective_that_becomes_exposed(imported: Imported) -> None:
    """Its duration is the same, but the kernel at its side now starts when it ends."""
    base = draw_steps(("gemm", 20, 30), ("ncclDevKernel_AllReduce", 20, 25))
    candidate = draw_steps(("gemm", 50, 30), ("ncclDevKernel_AllReduce", 20, 25))
    parts = check_sums(compare_traces(imported, base, candidate))
    (row,) = parts["communication"].rows
    assert row.status == "less_overlapped"
    assert (row.base_ns, row.other_ns) == (0, 25 * US)
    assert row.base_busy_ns == row.other_busy_ns == 25 * US
    assert index_rows(parts["kernel"])["gemm"].status == "unchanged"


def test_a_collective_that_becomes_hidden(imported: Imported) -> None:
    base = draw_steps(("gemm", 50, 30), ("ncclDevKernel_AllReduce", 20, 25))
    candidate = draw_steps(("gemm", 20, 30), ("ncclDevKernel_AllReduce", 20, 25))
    parts = check_sums(compare_traces(imported, base, candidate))
    assert parts["communication"].rows[0].status == "more_overlapped"


def test_added_and_removed_calls(imported: Imported) -> None:
    """A removed operator includes the kernels that it launched."""
    base = draw_steps(("gemm", 20, 30), ("relu", 60, 10))
    candidate = [
        {**item, "name": "aten::gelu"} if item["name"] == "aten::relu" else item for item in base
    ]
    parts = check_sums(compare_traces(imported, base, candidate))
    rows = index_rows(parts["kernel"])
    assert rows["aten::relu"].status == "removed"
    assert rows["aten::relu"].change_ns == -10 * US
    assert rows["aten::gelu"].status == "added"
    assert rows["aten::gelu"].change_ns == 10 * US
    assert (rows["aten::relu"].base_calls, rows["aten::relu"].other_calls) == (1, 0)


def test_reordered_calls(imported: Imported) -> None:
    def draw_order(*names: str) -> list[dict[str, Any]]:
        steps = [step(number, 100 * number, 90) for number in range(10)]
        return steps + [
            event("cpu_op", name, 100 * number + 20 * index, 15)
            for number in range(10)
            for index, name in enumerate(names)
        ]

    base, candidate = draw_order("a", "b", "c", "d"), draw_order("b", "c", "d", "a")
    parts = check_sums(compare_traces(imported, base, candidate))
    rows = index_rows(parts["cpu_exec"])
    assert {name: row.status for name, row in rows.items()} == {
        "a": "reordered",
        "b": "unchanged",
        "c": "unchanged",
        "d": "unchanged",
    }


STAGES = {
    "read": "fetch > Rows.__getitem__ > read_rows",
    "crop": "fetch > Rows.__getitem__ > random_crop",
    "log": "main > train > report # print(loss)",
    "sync": "main > train > check # loss.item()",
}


def draw_job(path: Path, *, read: float, crop: float, log: float, sync: float) -> RunBuilder:
    run = RunBuilder(path, code=STAGES)
    rank = run.rank(workers=0, versions={"torch": "2.9"})
    making = read + crop
    rank.draw(
        f"wait {making} ( fetch {making} ( samples ( do:read {read} | do:crop {crop} ) ) ) "
        f"| forward 12 | backward 20 | optimizer 8 | do:log {log} | do:sync {sync}",
        60,
        jitter=0.05,
    )
    return run


def test_waiting_and_time_between_phases_of_a_monitored_job(tmp_path: Path) -> None:
    base = draw_job(tmp_path / "a", read=10, crop=20, log=4, sync=2).open()
    candidate = draw_job(tmp_path / "b", read=10, crop=50, log=4, sync=9).open()
    result = compare_runs([base], [candidate])
    parts = check_sums(result)
    waiting = parts["data_wait"]
    assert waiting.split_by == "input stages"
    rows = index_rows(waiting)
    assert rows["augmentation"].change_ns == pytest.approx(30 * MS, rel=0.1)
    assert abs(rows["reading"].change_ns) < 2 * MS
    between = parts["other"]
    assert between.split_by == "host causes"
    assert index_rows(between)["reading values from tensors"].change_ns == pytest.approx(
        7 * MS, rel=0.2
    )
    assert index_rows(between)["logging"].status in {"unchanged", "slower", "faster"}
    assert parts["forward"].rows == []
    assert parts["forward"].rest_ns == parts["forward"].change_ns
    assert result.contributions is not None
    assert result.contributions.missing == NO_CALLS


WINDOW = (
    "window ( forward 12 ( op:linear {linear} ( op:addmm {addmm} ) | op:relu 2 ) "
    "| backward 20 ( op:MulBackward 18 ) | optimizer 8 ( op:add_ 6 ) )"
)


def draw_window(path: Path, *, addmm: float, forward: float) -> RunBuilder:
    """Draw sixty measured steps, and a longer one in a window."""
    run = RunBuilder(path)
    rank = run.rank()
    rank.draw(f"forward {forward} | backward 20 | optimizer 8", 30)
    rank.draw(WINDOW.format(linear=addmm + 1, addmm=addmm))
    rank.draw(f"forward {forward} | backward 20 | optimizer 8", 30)
    return run


def test_traces_of_a_monitored_job_are_scaled_to_its_measured_steps(tmp_path: Path) -> None:
    base = draw_window(tmp_path / "a", addmm=4, forward=6).open()
    candidate = draw_window(tmp_path / "b", addmm=8, forward=9).open()
    result = compare_runs([base], [candidate])
    assert result.steps is not None
    assert result.steps.source == "watched"
    parts = check_sums(result)
    forward = parts["forward"]
    assert forward.split_by == "calls"
    assert (forward.base_ns, forward.other_ns) == (6 * MS, 9 * MS)
    assert forward.base_scale == pytest.approx(6 / 12)
    assert forward.other_scale == pytest.approx(9 / 12)
    addmm = index_rows(forward)["addmm"]
    assert addmm.path == ["linear"]
    assert addmm.base_ns == pytest.approx(4 * MS * 6 / 12, abs=2)
    assert addmm.other_ns == pytest.approx(8 * MS * 9 / 12, abs=2)
    assert addmm.status == "slower"
    assert parts["backward"].change_ns == 0


def test_the_traced_rank_is_scaled_to_its_own_steps(tmp_path: Path) -> None:
    """Rank 1, without a trace, has a backward pass of 60 ms; the mean of the two is 40 ms."""
    run = draw_window(tmp_path / "a", addmm=4, forward=6)
    run.rank(1).draw("forward 6 | backward 60 | optimizer 8", 60)
    result = compare_runs([run.open()], [draw_window(tmp_path / "b", addmm=4, forward=6).open()])
    backward = check_sums(result)["backward"]
    assert (backward.base_ns, backward.other_ns) == (40 * MS, 20 * MS)
    assert backward.base_scale == pytest.approx(1)
    rows = index_rows(backward)
    assert rows["MulBackward"].base_ns == rows["MulBackward"].other_ns == 18 * MS
    assert (rows[OTHER_RANKS].base_ns, rows[OTHER_RANKS].other_ns) == (20 * MS, 0)


def test_evaluation_within_a_traced_step_is_excluded(tmp_path: Path) -> None:
    """The traced step contains 30 ms of evaluation."""
    run = RunBuilder(tmp_path / "a")
    rank = run.rank()
    rank.draw("forward 6 | backward 20 | optimizer 8", 30)
    rank.draw(
        "window ( start 1 | wait 5 | predict 30 ( op:linear 30 ( op:addmm 28 ) ) | exhausted 1 "
        "| forward 12 ( op:linear 9 ( op:addmm 8 ) ) | backward 20 ( op:MulBackward 18 ) "
        "| optimizer 8 ( op:add_ 6 ) )"
    )
    rank.draw("forward 6 | backward 20 | optimizer 8", 30)
    opened = run.open()
    result = compare_runs([opened], [opened])
    forward = check_sums(result)["forward"]
    assert forward.base_scale == pytest.approx(6 / 12)
    addmm = index_rows(forward)["addmm"]
    assert addmm.base_ns == pytest.approx(8 * MS * 6 / 12, abs=2)
    assert addmm.base_calls == 1
    assert result.operators is not None
    names = {row.name: row.base_ns for row in result.operators.rows}
    assert names["addmm"] == 8 * MS
