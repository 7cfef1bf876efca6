"""Replays of graphs: their work, and the operators of fitting captures."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.analysis.device_work import KERNEL, MEMCPY
from stepscope.analysis.graph_replays import (
    Capture,
    build_graph_table,
    collect_graph_work,
    list_graph_kernels,
    name_captured_operators,
    sum_replayed_operators,
)
from tests.support.drawn_operators import numbers, strings

CALL = 90


def columns(
    names: list[str], launches: list[int], *, graph: int = -1, nodes: list[int] | None = None
) -> dict[str, Any]:
    """Return kernels of 10 ns each, one after the other."""
    count = len(names)
    return {
        "name": strings(names),
        "kind": strings([None] * count),
        "start_ns": numbers([100 * index for index in range(count)]),
        "duration_ns": numbers([10] * count),
        "launch": numbers(launches),
        "operator": numbers([-1] * count),
        "graph": numbers([graph] * count),
        "graph_node": numbers(nodes or [-1] * count),
        "captured_operator": numbers([-1] * count),
    }


def capture(kernels: list[str | None], operators: list[str | None]) -> Capture:
    return Capture(
        kinds=(KERNEL,) * len(kernels), kernels=tuple(kernels), operators=tuple(operators)
    )


def operators_of(work: Any, *captures: Capture) -> list[str | None]:
    return name_captured_operators(work, captures)


def test_work_of_calls_without_numbers_of_graphs_is_grouped_by_its_kernels() -> None:
    """HIP records neither graphs nor nodes: the same kernels in the same order are one graph."""
    kernels = columns(["a", "b", "a", "b", "c", "a"], [CALL, CALL, 91, 91, 92, 5])
    work = collect_graph_work(kernels, columns([], []), numbers([CALL, 91, 92]))
    assert len(work) == 5  # call 5 launched a single kernel
    pair, single = build_graph_table(work, 60)
    assert (pair.number, pair.graph, pair.replays, pair.kernel_count) == (1, None, 2, 4)
    assert (pair.distinct_kernel_count, pair.share_ratio) == (2, pytest.approx(40 / 60))
    assert (single.number, single.replays, single.total_ns) == (2, 1, 10)


def test_a_capture_fits_by_the_names_of_its_kernels() -> None:
    work = collect_graph_work(
        columns(["a", "b", "a"], [CALL] * 3), columns([], []), numbers([CALL])
    )
    fitting = capture(["a", "b", "a"], ["mm", "relu", None])
    assert operators_of(work, fitting) == ["mm", "relu", None]
    assert operators_of(work, fitting, fitting) == ["mm", "relu", None]
    assert operators_of(work, capture(["a", "a", "b"], ["mm", "mm", "relu"])) == [None] * 3
    assert operators_of(work, capture(["a", "b"], ["mm", "relu"])) == [None] * 3
    rival = capture(["a", "b", "a"], ["mm", "gelu", None])
    assert operators_of(work, fitting, rival) == [None] * 3
    replayed = sum_replayed_operators(work, ["mm", "relu", None], 40)
    assert [(row.name, row.work_count, row.device_ns, row.device_ratio) for row in replayed] == [
        ("mm", 1, 10, 0.25),
        ("relu", 1, 10, 0.25),
    ]
    kernels = list_graph_kernels(work, ["mm", "relu", None], 40)
    assert {(row.name, row.operator): row.calls for row in kernels} == {
        ("a", "mm"): 1,
        ("b", "relu"): 1,
        ("a", None): 1,
    }


def test_without_names_of_kernels_a_capture_needs_numbered_nodes_and_no_rival() -> None:
    unnamed = capture([None, None], ["mm", "relu"])
    calls, nothing = numbers([CALL, 91]), columns([], [])
    with_nodes = columns(["b", "a"], [CALL] * 2, graph=3, nodes=[8, 7])
    work = collect_graph_work(with_nodes, nothing, calls)
    assert [work.names[code] for code in work.name] == ["a", "b"]  # in the order of nodes
    assert operators_of(work, unnamed) == ["mm", "relu"]
    without_nodes = collect_graph_work(columns(["a", "b"], [CALL] * 2), nothing, calls)
    assert operators_of(without_nodes, unnamed) == [None, None]
    two = columns(["a", "b", "c", "d"], [CALL, CALL, 91, 91], graph=3, nodes=[7, 8, 7, 8])
    two["graph"][2:] = 4
    assert operators_of(collect_graph_work(two, nothing, calls), unnamed) == [None] * 4


def test_copies_are_work_of_the_graph_too() -> None:
    copies = columns(["Memcpy DtoD"], [CALL])
    copies["kind"], copies["start_ns"] = strings(["memcpy"]), numbers([50])
    work = collect_graph_work(columns(["a", "b"], [CALL] * 2), copies, numbers([CALL]))
    assert work.kind.tolist() == [KERNEL, MEMCPY, KERNEL]
    fitting = Capture(
        kinds=(KERNEL, MEMCPY, KERNEL), kernels=("a", None, "b"), operators=("mm", "copy_", "relu")
    )
    assert operators_of(work, fitting) == ["mm", "copy_", "relu"]


def test_no_graphs() -> None:
    work = collect_graph_work(columns(["a"], [CALL]), columns([], []), numbers([]))
    assert build_graph_table(work, 10) == []
    assert operators_of(work) == []
