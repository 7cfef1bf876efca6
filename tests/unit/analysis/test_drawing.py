"""Text language that draws runs for tests."""

from __future__ import annotations

import pytest

from stepscope.testing import Drawing, stack_text
from stepscope.testing.drawing import MS, DrawnEvent, DrawnSpan


def test_drawn_pieces_are_sequential_and_nest() -> None:
    drawing = Drawing(now=5).draw(
        "wait=3 2 | optimizer:Adam 9 ( forward 4 | do 1 | predict ) | mark"
    )
    ms = MS
    assert drawing.spans == [
        DrawnSpan("data_wait", "", 5, 5 + 2 * ms, 0, 0, 3),
        DrawnSpan("optimizer", "Adam", 5 + 2 * ms, 5 + 11 * ms, 0, 0, 2),
        DrawnSpan("forward", "", 5 + 2 * ms, 5 + 6 * ms, 1, 0, 1),
        DrawnSpan("forward", "", 5 + 7 * ms, 5 + 7 * ms, 1, 2, 1),
        DrawnSpan("step", "", 5 + 11 * ms, 5 + 11 * ms, 0, 0, 0),
    ]


def test_operators_and_code_are_drawn_beside_spans() -> None:
    drawing = Drawing().draw("forward ( op:linear 2 ( op:addmm 1 ) | kernel:gemm 3 ) | do:sync 4")
    assert drawing.events == [
        DrawnEvent("cpu_op", "addmm", 0, 1 * MS),
        DrawnEvent("cpu_op", "linear", 0, 2 * MS),
        DrawnEvent("kernel", "gemm", 2 * MS, 5 * MS),
    ]
    assert drawing.activities == [("sync", 5 * MS, 9 * MS)]
    assert [span.kind for span in drawing.spans] == ["forward"]


def test_span_without_end() -> None:
    drawing = Drawing().draw("wait 1 | forward ?").pause(3)
    assert drawing.spans[-1].end is None
    assert drawing.table().unfinished.tolist() == [False, True]
    assert drawing.table().end.tolist() == [1 * MS, 4 * MS]


def test_jitter_is_bounded_and_repeatable() -> None:
    drawings = [Drawing().draw("forward 10", 50, jitter=0.2, seed=1) for _ in range(2)]
    durations = drawings[0].table().duration
    assert drawings[0].spans == drawings[1].spans
    assert durations.min() >= 8 * MS
    assert durations.max() <= 12 * MS
    assert durations.std() > 0


@pytest.mark.parametrize("text", ["frward 3", "wait x", "wait ( forward 3", "wait 1 ) | mark", "3"])
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown piece|parenthes"):
        Drawing().draw(text)


def test_frames() -> None:
    assert stack_text("main > g.<locals>.<lambda>@/job/a.py > loads@python:json/__init__.py") == (
        "main|/job/train.py|;g.<locals>.<lambda>|/job/a.py|;loads|/usr/lib/python3/json/__init__.py|python"
    )
