"""Kernels of replayed graphs: one launch owns all, and the capture names their operators."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support import kineto_files as kf

OPERATORS = ("aten::linear", "aten::relu", "aten::linear")


def capture() -> list[dict[str, Any]]:
    """Return three operators with one launch each, between begin and end of a capture."""
    events = [kf.launch(0, 10, 1, name="cudaStreamBeginCapture_v10000")]
    for index, name in enumerate(OPERATORS):
        start = 1_000 * (index + 1)
        events.append(kf.op(name, start, 500))
        events.append(kf.launch(start + 100, 50, 10 + index))
    return [*events, kf.launch(9_000, 10, 2, name="cudaStreamEndCapture")]


def replay(nodes: list[int], graph: int = 5) -> list[dict[str, Any]]:
    """Return a replay of a graph, with its kernels in the order of execution."""
    events = [kf.op("replay", 20_000, 1_000), kf.launch(20_100, 100, 99, name="cudaGraphLaunch")]
    for index, node in enumerate(nodes):
        args = {"graph id": graph, "graph node id": node}
        events.append(kf.kernel(21_000 + 100 * index, 50, 99, args, name=f"kernel{node}"))
    return events


def operators_of_kernels(events: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the name of the captured operator of each kernel, by the kernel's name."""
    tables = kf.imported(kf.trace(*events))
    names = {row["id"]: row["name"] for row in tables.rows("operators")}
    return {row["name"]: names.get(row["captured_operator"]) for row in tables.rows("kernels")}


def test_all_kernels_of_a_replay_belong_to_its_launch() -> None:
    tables = kf.imported(kf.trace(*replay([7, 8, 9])))
    launches = {row["name"]: row["id"] for row in tables.rows("runtime_calls")}
    assert {row["launch"] for row in tables.rows("kernels")} == {launches["cudaGraphLaunch"]}
    assert [row["launched_ns"] for row in tables.rows("operators")] == [150]


def test_nodes_are_captured_launches_in_their_order() -> None:
    operators = operators_of_kernels([*capture(), *replay([9, 7, 8])])
    assert operators == {
        "kernel7": "aten::linear",
        "kernel8": "aten::relu",
        "kernel9": "aten::linear",
    }


def test_replayed_work_counts_for_the_replaying_operator() -> None:
    """Device time of an operator is that of the work it launched, not of captured work."""
    tables = kf.imported(kf.trace(*capture(), *replay([9, 7, 8])))
    launched = {row["name"]: row["launched_ns"] for row in tables.rows("operators")}
    assert launched == {"aten::linear": None, "aten::relu": None, "replay": 150}
    replaying = next(row["id"] for row in tables.rows("operators") if row["name"] == "replay")
    assert {row["operator"] for row in tables.rows("kernels")} == {replaying}


def test_the_quality_record_counts_matched_captures() -> None:
    quality = {row["kind"]: row for row in quality_rows([*capture(), *replay([9, 7, 8])])}
    assert quality["captured_by_kind"]["count"] == 3
    assert "unlinked_launch" not in quality  # a captured launch runs nothing
    assert "captured_by_kind" not in {row["kind"] for row in quality_rows(replay([7, 8, 9]))}


def quality_rows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(kf.imported(kf.trace(*events)).rows("quality"))


@pytest.mark.parametrize(
    "events",
    [
        [*capture(), *replay([7, 8])],
        [*replay([7, 8, 9])],
        # One capture and two graphs: either could be its graph.
        [*capture(), *replay([7, 8, 9]), *replay([1, 2, 3], graph=6)],
    ],
    ids=["of another length", "none", "ambiguous"],
)
def test_captures_without_a_match(events: list[dict[str, Any]]) -> None:
    assert set(operators_of_kernels(events).values()) == {None}


def test_a_capture_of_other_kinds_does_not_match() -> None:
    events = [*capture(), *replay([7, 8])]
    args = {"graph id": 5, "graph node id": 9}
    events.append(kf.kernel(22_000, 50, 99, args, category="gpu_memcpy", name="Memcpy DtoD"))
    assert set(operators_of_kernels(events).values()) == {None}


def test_similar_captures_match_in_their_order() -> None:
    again = [{**event, "args": {**event.get("args", {})}} for event in capture()]
    for event in again:
        event["ts"] = msgspec.Raw(str(float(bytes(event["ts"])) + 10).encode())
        if event["name"].startswith("aten"):
            event["name"] += "_again"
    events = [*capture(), *again, *replay([1, 2, 3], graph=6), *replay([7, 8, 9])]
    operators = operators_of_kernels(events)
    assert operators["kernel7"] == "aten::linear"
    assert operators["kernel1"] == "aten::linear_again"


def test_launches_without_a_kernel_are_counted() -> None:
    events = [kf.launch(0, 10, 1), kf.launch(20, 10, 2), kf.kernel(40, 10, 1)]
    events.append(kf.launch(50, 10, 3, name="cudaDeviceSynchronize"))
    (row,) = (row for row in quality_rows(events) if row["kind"] == "unlinked_launch")
    assert (row["count"], row["of_count"]) == (1, 2)


def test_graph_zero_is_no_graph() -> None:
    tables = kf.imported(
        kf.trace(kf.launch(0, 10, 1), kf.kernel(20, 10, 1, {"graph id": 0, "graph node id": 0}))
    )
    assert tables.one("kernels")["graph"] is None
