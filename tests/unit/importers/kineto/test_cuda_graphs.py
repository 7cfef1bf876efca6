"""Kernels of replayed graphs: one launch owns them all, and the capture names their operators."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support import kineto_files as kf

OPERATORS = ("aten::linear", "aten::relu", "aten::linear")


def capture() -> list[dict[str, Any]]:
    """Three operators, each with a launch that runs nothing, between begin and end of a capture."""
    events = [kf.launch(0, 10, 1, name="cudaStreamBeginCapture_v10000")]
    for place, name in enumerate(OPERATORS):
        start = 1_000 * (place + 1)
        events.append(kf.op(name, start, 500))
        events.append(kf.launch(start + 100, 50, 10 + place))
    return [*events, kf.launch(9_000, 10, 2, name="cudaStreamEndCapture")]


def replay(nodes: list[int], graph: int = 5) -> list[dict[str, Any]]:
    """A replay of a graph, its kernels in the order in which they ran."""
    events = [
        kf.op("replay", 20_000, 1_000),
        kf.launch(20_100, 100, 99, name="cudaGraphLaunch"),
    ]
    for place, node in enumerate(nodes):
        args = {"graph id": graph, "graph node id": node}
        events.append(kf.kernel(21_000 + 100 * place, 50, 99, args, name=f"kernel{node}"))
    return events


def operators_of_kernels(events: list[dict[str, Any]]) -> dict[str, str | None]:
    """Name of the captured operator of each kernel, by the kernel's name."""
    tables = kf.imported(kf.trace(*events))
    names = {row["id"]: row["name"] for row in tables.rows("operators")}
    return {row["name"]: names.get(row["captured_operator"]) for row in tables.rows("kernels")}


def test_all_kernels_of_a_replay_belong_to_its_launch() -> None:
    tables = kf.imported(kf.trace(*replay([7, 8, 9])))
    launches = {row["name"]: row["id"] for row in tables.rows("runtime_calls")}
    assert {row["launch"] for row in tables.rows("kernels")} == {launches["cudaGraphLaunch"]}
    assert [row["launched_ns"] for row in tables.rows("operators")] == [150]


def test_nodes_are_captured_launches_in_their_order() -> None:
    found = operators_of_kernels([*capture(), *replay([9, 7, 8])])
    assert found == {"kernel7": "aten::linear", "kernel8": "aten::relu", "kernel9": "aten::linear"}


def test_what_is_replayed_counts_for_the_operator_that_replays() -> None:
    """Whatever was captured: an operator's time on the device is of what it launched."""
    tables = kf.imported(kf.trace(*capture(), *replay([9, 7, 8])))
    launched = {row["name"]: row["launched_ns"] for row in tables.rows("operators")}
    assert launched == {"aten::linear": None, "aten::relu": None, "replay": 150}
    replaying = next(row["id"] for row in tables.rows("operators") if row["name"] == "replay")
    assert {row["operator"] for row in tables.rows("kernels")} == {replaying}


def test_that_operators_were_found_by_counting_is_on_record() -> None:
    quality = {row["kind"]: row for row in found_doubts([*capture(), *replay([9, 7, 8])])}
    assert quality["captured_by_kind"]["count"] == 3
    assert "unlinked_launch" not in quality  # a captured launch runs nothing
    assert "captured_by_kind" not in {row["kind"] for row in found_doubts(replay([7, 8, 9]))}


def found_doubts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(kf.imported(kf.trace(*events)).rows("quality"))


@pytest.mark.parametrize(
    "events",
    [
        [*capture(), *replay([7, 8])],
        [*replay([7, 8, 9])],
        # One capture and two graphs: it could have become either.
        [*capture(), *replay([7, 8, 9]), *replay([1, 2, 3], graph=6)],
    ],
    ids=["of another length", "none", "ambiguous"],
)
def test_captures_that_name_nothing(events: list[dict[str, Any]]) -> None:
    assert set(operators_of_kernels(events).values()) == {None}


def test_a_capture_of_other_kinds_names_nothing() -> None:
    events = [*capture(), *replay([7, 8])]
    args = {"graph id": 5, "graph node id": 9}
    events.append(kf.kernel(22_000, 50, 99, args, category="gpu_memcpy", name="Memcpy DtoD"))
    assert set(operators_of_kernels(events).values()) == {None}


def test_captures_that_are_alike_are_taken_in_their_order() -> None:
    again = [{**event, "args": {**event.get("args", {})}} for event in capture()]
    for event in again:
        event["ts"] = msgspec.Raw(str(float(bytes(event["ts"])) + 10).encode())
        if event["name"].startswith("aten"):
            event["name"] += "_again"
    events = [*capture(), *again, *replay([1, 2, 3], graph=6), *replay([7, 8, 9])]
    found = operators_of_kernels(events)
    assert found["kernel7"] == "aten::linear"
    assert found["kernel1"] == "aten::linear_again"


def test_launches_whose_kernel_is_not_there_are_counted() -> None:
    events = [kf.launch(0, 10, 1), kf.launch(20, 10, 2), kf.kernel(40, 10, 1)]
    events.append(kf.launch(50, 10, 3, name="cudaDeviceSynchronize"))
    (row,) = (row for row in found_doubts(events) if row["kind"] == "unlinked_launch")
    assert (row["count"], row["of_count"]) == (1, 2)


def test_graph_zero_is_no_graph() -> None:
    tables = kf.imported(
        kf.trace(kf.launch(0, 10, 1), kf.kernel(20, 10, 1, {"graph id": 0, "graph node id": 0}))
    )
    assert tables.one("kernels")["graph"] is None
