"""Plans of the recording of tensors."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.spool import TensorPlan


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"interval": 4}, [0, 4, 8]),
        ({"interval": 4, "first_step": 3}, [4, 8]),
        ({"interval": 3, "end_step": 6}, [0, 3]),
        ({"steps": [7, 2], "end_step": 0}, [2, 7]),
        ({"interval": 5, "steps": [6], "first_step": 5}, [5, 6]),
        ({"interval": 100}, [0]),
    ],
)
def test_steps_that_are_recorded(fields: dict[str, Any], expected: list[int]) -> None:
    """A step is recorded if it is listed, or inside the range and a multiple of the interval."""
    plan = TensorPlan.decode(TensorPlan(collections=["losses"], **fields).encode())
    assert [step for step in range(10) if plan.records_step(step)] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [(0, 0), (50, 100)]),
        ({"interval": 60}, [(0, 0), (30, 60), (60, 120)]),
        ({"interval": 7, "evaluation_interval": 50}, [(0, 0), (20, 50), (50, 100)]),
        ({"interval": 50, "first_step": 20, "end_step": 50}, [(20, 50)]),
        ({"steps": [30], "end_step": 0}, [(30, number) for number in range(60, 80)]),
    ],
)
def test_evaluations_that_are_recorded(
    fields: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    """A call is recorded if its step is listed, or in the range and the number of calls before it
    is a multiple of their interval. There are twenty calls after every tenth step."""
    plan = TensorPlan.decode(TensorPlan(collections=["losses"], **fields).encode())
    calls = [(10 * (number // 20), number) for number in range(140)]
    assert [call for call in calls if plan.records_evaluation(*call)] == expected


@pytest.mark.parametrize(
    ("ranks", "rank", "expected"),
    [(None, 3, True), ([0], None, True), ([0], 1, False), ([1, 2], 2, True)],
)
def test_ranks_that_record(ranks: list[int] | None, rank: int | None, expected: bool) -> None:
    plan = TensorPlan.decode(TensorPlan(collections=["losses"], ranks=ranks).encode())
    assert plan.records_rank(rank) is expected


def test_a_plan_reaches_the_processes_of_the_job_unchanged() -> None:
    plan = TensorPlan(
        collections=["weights"], patterns=["a.*"], interval=3, first_step=2, end_step=9, steps=[4],
        histograms=True, ranks=[1], joins_shards=True,
    )  # fmt: skip
    assert TensorPlan.decode(plan.encode()).fields == plan.fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"collections": ["weight"]}, "'weight' is none of weights, biases, gradients, losses"),
        ({"patterns": ["("]}, r"'\(' is not a regular expression: missing \)"),
        ({"interval": 0}, "the interval must be at least 1"),
        ({"evaluation_interval": 0}, "the interval must be at least 1"),
        ({"first_step": -1}, "the first step at least 0"),
    ],
)
def test_impossible_plans(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorPlan(**fields)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"unknown": 1}'])
def test_texts_that_are_no_plans(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TensorPlan.decode(text)
