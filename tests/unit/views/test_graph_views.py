"""Views of traces in which a graph launches most of the device work, as HIP records it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.views.devices.kernels import show_kernels
from stepscope.views.operators.modules import show_modules
from stepscope.views.operators.operators import show_operators
from stepscope.views.operators.roofline import show_roofline
from tests.support.drawn_trace import Event, event, kernel

Imported = Callable[..., Run]
US = 1_000
CAPTURED = (("aten::mm", "gemm"), ("aten::relu", "relu"), ("aten::mm", "gemm"))


def replay(kernels: tuple[str, ...] = ("gemm", "relu", "gemm")) -> list[Event]:
    """Draw an operator with a kernel of 10 us, and a graph with kernels of 30 us each."""
    shapes: dict[str, Any] = {"Input Dims": [[2, 2], [2, 2]], "Input type": ["float", "float"]}
    return [
        event("cpu_op", "aten::mm", 0, 20, **shapes),
        event("cuda_runtime", "hipLaunchKernel", 5, 5, correlation=1),
        event("cuda_runtime", "hipGraphLaunch", 30, 5, cid=215, correlation=2),
        kernel("gemm", 40, 10, 1),
        *(kernel(name, 60 + 40 * index, 30, 2) for index, name in enumerate(kernels)),
    ]


def capture() -> list[Event]:
    """Draw the capture of three launches by operators; as HIP does, launches name their kernel."""
    events = [event("cuda_runtime", "hipStreamBeginCapture", 0, 1)]
    for index, (operator, name) in enumerate(CAPTURED):
        at = 10 + 20 * index
        events.append(event("cpu_op", operator, at, 10))
        args = {"cid": 169, "kernel": name, "correlation": 10 + index}
        events.append(event("cuda_runtime", "hipModuleLaunchKernel", at + 2, 3, **args))
    return [*events, event("cuda_runtime", "hipStreamEndCapture", 90, 1)]


def test_time_of_a_graph_is_a_row_of_its_own_in_operators(imported: Imported) -> None:
    (payload,) = show_operators(imported(a=replay())).traces
    assert [(row.name, row.device_self_ns) for row in payload.operators] == [
        ("no operator (graph)", 90 * US),
        ("aten::mm", 10 * US),
    ]
    assert payload.device_self_ns == 100 * US
    assert payload.operators[1].device_self_ratio == pytest.approx(0.1)
    assert payload.replayed == []
    (note,) = payload.notes
    assert note.startswith("90.0% of device time is in graphs whose operators are unknown")


def test_graphs_of_hip_are_listed_with_their_kernels(imported: Imported) -> None:
    (payload,) = show_kernels(imported(a=replay())).traces
    (graph,) = payload.graphs
    assert (graph.graph, graph.replays, graph.kernel_count) == (None, 1, 3)
    assert graph.share_ratio == pytest.approx(0.9)
    assert [(k.name, k.operator, k.calls, k.total_ns) for k in payload.graph_kernels] == [
        ("gemm", None, 2, 60 * US),
        ("relu", None, 1, 30 * US),
    ]


def test_a_capture_of_another_file_names_the_operators(imported: Imported) -> None:
    run = imported(a=replay(), b=capture())
    payload = next(t for t in show_operators(run).traces if t.trace == "a.json")
    assert [(row.name, row.work_count, row.device_ns) for row in payload.replayed] == [
        ("aten::mm", 2, 60 * US),
        ("aten::relu", 1, 30 * US),
    ]
    assert sum(row.device_ratio for row in payload.replayed) == pytest.approx(0.9)
    assert "follow from their captures" in payload.notes[0]
    kernels = next(t for t in show_kernels(run).traces if t.trace == "a.json")
    assert {k.name: k.operator for k in kernels.graph_kernels} == {
        "gemm": "aten::mm",
        "relu": "aten::relu",
    }


def test_a_capture_of_other_kernels_names_nothing(imported: Imported) -> None:
    run = imported(a=replay(("gemm", "gemm", "relu")), b=capture())
    payload = next(t for t in show_operators(run).traces if t.trace == "a.json")
    assert payload.replayed == []
    assert "are unknown" in payload.notes[0]


def test_time_of_a_graph_is_in_the_shares_of_modules_and_roofline(imported: Imported) -> None:
    run = imported(a=replay())
    (modules,) = show_modules(run).traces
    assert (modules.operator_device_ns, modules.no_operator_device_ns) == (10 * US, 90 * US)
    (roofline,) = show_roofline(run).traces
    families = {family.family: family.time_ratio for family in roofline.families}
    assert families["no operator"] == pytest.approx(0.9)
    assert sum(families.values()) == pytest.approx(1)
