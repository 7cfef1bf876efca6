"""Where the change of the mean step comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.comparison.compare import comparison
from stepscope.comparison.parts import (
    IDLE,
    NO_CALLS,
    OTHER_RANKS,
    Contribution,
    PartContributions,
)
from stepscope.comparison.payload import Comparison
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.drawn_trace import event, kernel, launch, step

Imported = Callable[..., Run]
MS = 1_000_000
US = 1_000


def summed(found: Comparison) -> dict[str, PartContributions]:
    """The parts by name, after everything was added up."""
    of = found.contributions
    assert of is not None
    assert sum(part.base_ns for part in of.parts) == of.base_ns
    assert sum(part.other_ns for part in of.parts) == of.other_ns
    assert sum(part.change_ns for part in of.parts) == of.change_ns == of.other_ns - of.base_ns
    for part in of.parts:
        assert sum(row.change_ns for row in part.rows) + part.rest_ns == part.change_ns
        for row in part.rows:
            assert row.change_ns == row.other_ns - row.base_ns
    assert found.steps is not None
    if found.steps.source == "recorded":  # exposed times are those of the parts as they are
        scales = [scale for part in of.parts for scale in (part.base_scale, part.other_scale)]
        assert scales == pytest.approx([1] * len(scales))
    assert of.change_ns == pytest.approx(found.steps.figures[0].change_ns, abs=1)
    return {part.part: part for part in of.parts}


def rows_of(part: PartContributions) -> dict[str, Contribution]:
    found = {row.name: row for row in part.rows}
    assert len(found) == len(part.rows)
    return found


def recorded(*kernels: tuple[str, float, float], spare: float = 5) -> list[dict[str, Any]]:
    """Ten steps of 100 us that launch kernels by name, start and duration; the first half of them
    from aten::mm, the others from aten::relu."""
    events = []
    for number in range(10):
        at = 100 * number
        events.append(step(number, at, 95))
        half = -(-len(kernels) // 2)
        events.append(event("cpu_op", "aten::mm", at + 2, 6))
        events.append(event("cpu_op", "aten::relu", at + 8, spare))
        for place, (name, begin, lasts) in enumerate(kernels):
            own = 10 * number + place + 1
            stream = 20 if name.startswith("nccl") else 7
            base = at + 3 if place < half else at + 9
            events.append(launch(own, base + 0.5 * place, 0.4))
            events.append(kernel(name, at + begin, lasts, own, stream=stream))
    return events


def compared(imported: Imported, tmp_path: Path, base: Any, other: Any) -> Comparison:
    imported(a=base)
    (tmp_path / "run").rename(tmp_path / "base")
    after = imported(a=other)
    return comparison([Run(open_run(tmp_path / "base"))], [after])


def test_a_kernel_that_takes_longer(imported: Imported, tmp_path: Path) -> None:
    base = recorded(("gemm", 20, 30), ("relu", 60, 10))
    other = recorded(("gemm", 20, 38), ("relu", 60, 10))
    parts = summed(compared(imported, tmp_path, base, other))
    gemm = rows_of(parts["kernel"])["gemm"]
    assert (gemm.status, gemm.path, gemm.kind) == ("slower", ["aten::mm"], "device work")
    assert (gemm.base_ns, gemm.other_ns) == (30 * US, 38 * US)
    assert (gemm.base_calls, gemm.other_calls) == (1, 1)
    assert rows_of(parts["kernel"])["relu"].status == "unchanged"
    assert rows_of(parts["other"])[IDLE].change_ns == -8 * US


def test_a_collective_that_nothing_hides_any_more(imported: Imported, tmp_path: Path) -> None:
    """It takes as long as before; but the kernel beside it begins when it is done."""
    base = recorded(("gemm", 20, 30), ("ncclDevKernel_AllReduce", 20, 25))
    other = recorded(("gemm", 50, 30), ("ncclDevKernel_AllReduce", 20, 25))
    parts = summed(compared(imported, tmp_path, base, other))
    (row,) = parts["communication"].rows
    assert row.status == "less_overlapped"
    assert (row.base_ns, row.other_ns) == (0, 25 * US)
    assert row.base_busy_ns == row.other_busy_ns == 25 * US
    assert rows_of(parts["kernel"])["gemm"].status == "unchanged"


def test_one_that_is_hidden_now(imported: Imported, tmp_path: Path) -> None:
    base = recorded(("gemm", 50, 30), ("ncclDevKernel_AllReduce", 20, 25))
    other = recorded(("gemm", 20, 30), ("ncclDevKernel_AllReduce", 20, 25))
    parts = summed(compared(imported, tmp_path, base, other))
    assert parts["communication"].rows[0].status == "more_overlapped"


def test_what_came_and_went(imported: Imported, tmp_path: Path) -> None:
    """An operator that is gone takes the kernels it launched with it."""
    base = recorded(("gemm", 20, 30), ("relu", 60, 10))
    other = [
        {**each, "name": "aten::gelu"} if each["name"] == "aten::relu" else each for each in base
    ]
    parts = summed(compared(imported, tmp_path, base, other))
    rows = rows_of(parts["kernel"])
    assert rows["aten::relu"].status == "removed"
    assert rows["aten::relu"].change_ns == -10 * US
    assert rows["aten::gelu"].status == "added"
    assert rows["aten::gelu"].change_ns == 10 * US
    assert (rows["aten::relu"].base_calls, rows["aten::relu"].other_calls) == (1, 0)


def test_what_moved(imported: Imported, tmp_path: Path) -> None:
    def ordered(*names: str) -> list[dict[str, Any]]:
        steps = [step(number, 100 * number, 90) for number in range(10)]
        return steps + [
            event("cpu_op", name, 100 * number + 20 * place, 15)
            for number in range(10)
            for place, name in enumerate(names)
        ]

    base, other = ordered("a", "b", "c", "d"), ordered("b", "c", "d", "a")
    parts = summed(compared(imported, tmp_path, base, other))
    rows = rows_of(parts["cpu_exec"])
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


def job(path: Path, *, read: float, crop: float, log: float, sync: float) -> RunBuilder:
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


def test_waiting_and_the_time_between_phases_of_a_watched_job(tmp_path: Path) -> None:
    base = job(tmp_path / "a", read=10, crop=20, log=4, sync=2).open()
    other = job(tmp_path / "b", read=10, crop=50, log=4, sync=9).open()
    found = comparison([base], [other])
    parts = summed(found)
    waiting = parts["data_wait"]
    assert waiting.split_by == "input stages"
    rows = rows_of(waiting)
    assert rows["augmentation"].change_ns == pytest.approx(30 * MS, rel=0.1)
    assert abs(rows["reading"].change_ns) < 2 * MS
    between = parts["other"]
    assert between.split_by == "host causes"
    assert rows_of(between)["reading values from tensors"].change_ns == pytest.approx(
        7 * MS, rel=0.2
    )
    assert rows_of(between)["logging"].status in {"unchanged", "slower", "faster"}
    assert parts["forward"].rows == []
    assert parts["forward"].rest_ns == parts["forward"].change_ns
    assert found.contributions is not None
    assert found.contributions.missing == NO_CALLS


WINDOW = (
    "window ( forward 12 ( op:linear {linear} ( op:addmm {addmm} ) | op:relu 2 ) "
    "| backward 20 ( op:MulBackward 18 ) | optimizer 8 ( op:add_ 6 ) )"
)


def windowed(path: Path, *, addmm: float, forward: float) -> RunBuilder:
    """Sixty measured steps, and one in a window, which makes it longer."""
    run = RunBuilder(path)
    rank = run.rank()
    rank.draw(f"forward {forward} | backward 20 | optimizer 8", 30)
    rank.draw(WINDOW.format(linear=addmm + 1, addmm=addmm))
    rank.draw(f"forward {forward} | backward 20 | optimizer 8", 30)
    return run


def test_windows_of_a_watched_job_are_scaled_to_its_measured_steps(tmp_path: Path) -> None:
    base = windowed(tmp_path / "a", addmm=4, forward=6).open()
    other = windowed(tmp_path / "b", addmm=8, forward=9).open()
    found = comparison([base], [other])
    assert found.steps is not None
    assert found.steps.source == "watched"
    parts = summed(found)
    forward = parts["forward"]
    assert forward.split_by == "calls"
    assert (forward.base_ns, forward.other_ns) == (6 * MS, 9 * MS)
    assert forward.base_scale == pytest.approx(6 / 12)
    assert forward.other_scale == pytest.approx(9 / 12)
    addmm = rows_of(forward)["addmm"]
    assert addmm.path == ["linear"]
    assert addmm.base_ns == pytest.approx(4 * MS * 6 / 12, abs=2)
    assert addmm.other_ns == pytest.approx(8 * MS * 9 / 12, abs=2)
    assert addmm.status == "slower"
    assert parts["backward"].change_ns == 0


def test_the_recorded_rank_is_scaled_to_its_own_steps(tmp_path: Path) -> None:
    """Rank 1, which nobody recorded, has a backward pass of 60 ms; the mean of the two is 40."""
    run = windowed(tmp_path / "a", addmm=4, forward=6)
    run.rank(1).draw("forward 6 | backward 60 | optimizer 8", 60)
    found = comparison([run.open()], [windowed(tmp_path / "b", addmm=4, forward=6).open()])
    backward = summed(found)["backward"]
    assert (backward.base_ns, backward.other_ns) == (40 * MS, 20 * MS)
    assert backward.base_scale == pytest.approx(1)
    rows = rows_of(backward)
    assert rows["MulBackward"].base_ns == rows["MulBackward"].other_ns == 18 * MS
    assert (rows[OTHER_RANKS].base_ns, rows[OTHER_RANKS].other_ns) == (20 * MS, 0)


def test_evaluation_within_a_recorded_step_is_no_part_of_it(tmp_path: Path) -> None:
    """The step that was recorded evaluates for 30 ms before it goes on."""
    run = RunBuilder(tmp_path / "a")
    rank = run.rank()
    rank.draw("forward 6 | backward 20 | optimizer 8", 30)
    rank.draw(
        "window ( start 1 | wait 5 | predict 30 ( op:linear 30 ( op:addmm 28 ) ) | exhausted 1 "
        "| forward 12 ( op:linear 9 ( op:addmm 8 ) ) | backward 20 ( op:MulBackward 18 ) "
        "| optimizer 8 ( op:add_ 6 ) )"
    )
    rank.draw("forward 6 | backward 20 | optimizer 8", 30)
    signals = run.open()
    found = comparison([signals], [signals])
    forward = summed(found)["forward"]
    assert forward.base_scale == pytest.approx(6 / 12)
    addmm = rows_of(forward)["addmm"]
    assert addmm.base_ns == pytest.approx(8 * MS * 6 / 12, abs=2)
    assert addmm.base_calls == 1
    assert found.operators is not None
    names = {row.name: row.base_ns for row in found.operators.rows}
    assert names["addmm"] == 8 * MS
