"""Modules and operators as one tree: nesting, and complete attribution of time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from stepscope.analysis.module_flame import Measure, ModuleFlame, build_module_flame
from stepscope.analysis.modules import build_module_table, find_python_module_calls
from stepscope.analysis.operator_tree import build_operator_tree
from tests.support.drawn_operators import numbers, strings


class Call(NamedTuple):
    """A call of a module if its name ends in a digit, otherwise of an operator."""

    name: str
    start: int
    duration: int
    inside: str | None = None
    """Caller of the same kind."""
    module: str | None = None
    """Innermost module around an operator."""
    device: int = 0
    forward: str | None = None
    """The operator whose gradients it computes."""
    track: int = 0


def recorded(*calls: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables of Python functions and of operators."""
    modules = [call for call in calls if call.name[-1].isdigit()]
    operators = [call for call in calls if not call.name[-1].isdigit()]
    number = {call.name: index for index, call in enumerate([*modules, *operators])}

    def of(name: str | None) -> int:
        return -1 if name is None else number[name]

    functions = {
        "id": numbers([number[call.name] for call in modules]),
        "name": strings([f"nn.Module: {call.name}" for call in modules]),
        "parent": numbers([of(call.inside) for call in modules]),
        "module": numbers([number[call.name] for call in modules]),
        "module_id": numbers([number[call.name] for call in modules]),
    }
    rows = {
        "id": numbers([number[call.name] for call in operators]),
        # A letter after a bar distinguishes calls of one name.
        "name": strings([call.name.partition("|")[0] for call in operators]),
        "parent": numbers([of(call.inside) for call in operators]),
        "depth": numbers([_depth(call, operators) for call in operators]),
        "python": numbers([of(call.module) for call in operators]),
        "forward": numbers([of(call.forward) for call in operators]),
        "device_self_ns": numbers([call.device for call in operators]),
    }
    for table, table_calls in ((functions, modules), (rows, operators)):
        for column, field in (("start_ns", "start"), ("duration_ns", "duration")):
            table[column] = numbers([getattr(call, field) for call in table_calls])
        table["track"] = numbers([call.track for call in table_calls])
    return functions, rows


def _depth(call: Call, calls: list[Call]) -> int:
    callers = [call_ for call_ in calls if call_.name == call.inside]
    return 1 + _depth(callers[0], calls) if callers else 0


def flame(measure: Measure, *calls: Call) -> ModuleFlame:
    functions, operators = recorded(*calls)
    of_modules = find_python_module_calls(functions, operators["python"])
    return build_module_flame(of_modules, build_operator_tree(operators), operators, measure)


def nodes_by_path(tree: ModuleFlame) -> dict[str, tuple[int, int, int]]:
    """Count, total and self time by path."""

    def path(node: int) -> str:
        parent = tree.parent[node]
        return f"{path(parent)}/{tree.name[node]}" if parent >= 0 else tree.name[node]

    return {
        path(node): (tree.count[node], tree.total_ns[node], tree.self_ns[node])
        for node in range(len(tree.name))
    }


PLAIN = (
    Call("Net_0", 100, 100),
    Call("Linear_1", 110, 40, "Net_0"),
    Call("linear", 112, 30, module="Linear_1"),
    Call("addmm", 115, 20, "linear", "Linear_1", device=7),
    Call("relu", 160, 10, module="Net_0", device=5),
    Call("relu|b", 175, 5, module="Net_0", device=1),
    Call("loss", 300, 9, device=60),
)
BACKWARD = (
    Call("AddmmBackward", 400, 50, track=1, forward="addmm"),
    Call("mm", 410, 20, "AddmmBackward", track=1, device=11),
)


def test_modules_hold_modules_and_operators() -> None:
    tree = flame("host", *PLAIN)
    assert nodes_by_path(tree) == {
        "Net_0": (1, 100, 100 - 40 - 10 - 5),
        "Net_0/Linear_1": (1, 40, 10),
        "Net_0/relu": (2, 15, 15),
        "Net_0/Linear_1/linear": (1, 30, 10),
        "Net_0/Linear_1/linear/addmm": (1, 20, 20),
    }
    assert tree.outside_ns == 9
    device = flame("device", *PLAIN)
    assert {path: total for path, (_, total, _) in nodes_by_path(device).items()} == {
        "Net_0": 13,
        "Net_0/Linear_1": 7,
        "Net_0/relu": 6,
        "Net_0/Linear_1/linear": 7,
        "Net_0/Linear_1/linear/addmm": 7,
    }
    assert device.outside_ns == 60


def test_gradients_belong_to_the_module_of_their_forward_operator() -> None:
    nodes = nodes_by_path(flame("host", *PLAIN, *BACKWARD))
    assert nodes["Net_0/Linear_1"] == (1, 90, 10)
    assert nodes["Net_0/Linear_1/AddmmBackward"] == (1, 50, 30)
    assert nodes["Net_0"] == (1, 150, 45)
    nodes = nodes_by_path(flame("device", *PLAIN, *BACKWARD))
    assert nodes["Net_0/Linear_1"][1] == 18


@pytest.mark.parametrize("calls", [PLAIN, PLAIN + BACKWARD])
def test_totals_are_those_of_the_table(calls: tuple[Call, ...]) -> None:
    functions, operators = recorded(*calls)
    of_modules = find_python_module_calls(functions, operators["python"])
    table = build_module_table(
        of_modules, build_operator_tree(operators), operators, on_device=True
    )
    host, device = (flame(measure, *calls) for measure in ("host", "device"))
    for row in table.rows:
        at = host.name.index(row.name)
        assert host.total_ns[at] == row.host_total_ns + (row.backward_host_ns or 0)
        assert device.total_ns[device.name.index(row.name)] == row.device_total_ns
    assert device.outside_ns == table.outside_device_ns


@pytest.mark.parametrize(
    ("calls", "nodes", "outside_ns"),
    [
        (  # operators that call modules are their parents, as in checkpointing: time counts once
            [
                Call("Net_0", 0, 100),
                Call("Checkpoint", 10, 80, module="Net_0"),
                Call("Block_1", 20, 60, "Net_0"),
                Call("mm", 30, 10, "Checkpoint", "Block_1"),
            ],
            {
                "Net_0": (1, 100, 20),
                "Net_0/Checkpoint": (1, 80, 20),
                "Net_0/Checkpoint/Block_1": (1, 60, 50),
                "Net_0/Checkpoint/Block_1/mm": (1, 10, 10),
            },
            0,
        ),
        (  # an operator around the model is ignored
            [
                Call("Parallel", 0, 100),
                Call("Net_0", 10, 50),
                Call("mm", 20, 10, "Parallel", "Net_0"),
            ],
            {"Net_0": (1, 50, 40), "Net_0/mm": (1, 10, 10)},
            50,
        ),
        (  # dispatched calls are merged
            [
                Call("Net_0", 0, 100),
                Call("mm", 10, 50, module="Net_0"),
                Call("mm|b", 20, 30, "mm", "Net_0"),
                Call("fill", 25, 5, "mm|b", "Net_0"),
            ],
            {"Net_0": (1, 100, 50), "Net_0/mm": (1, 50, 45), "Net_0/mm/fill": (1, 5, 5)},
            0,
        ),
    ],
)
def test_operators_around_modules(
    calls: list[Call], nodes: dict[str, tuple[int, int, int]], outside_ns: int
) -> None:
    tree = flame("host", *calls)
    assert (nodes_by_path(tree), tree.outside_ns) == (nodes, outside_ns)


def test_no_call_is_inside_itself() -> None:
    """A module that is called again for its gradients, by the operator that computes them."""
    tree = flame(
        "host",
        Call("Net_0", 20, 60),
        Call("CheckpointBackward", 10, 80),
        Call("mm", 30, 10, "CheckpointBackward", "Net_0"),
        Call("MmBackward", 50, 10, "CheckpointBackward", "Net_0", forward="mm"),
    )
    assert sum(tree.self_ns) + tree.outside_ns == 80
    assert nodes_by_path(tree)["Net_0"][1] == 60


def test_without_modules_everything_is_outside() -> None:
    tree = flame("host", Call("mm", 0, 5), Call("relu", 7, 2))
    assert (list(tree.name), tree.outside_ns) == ([], 7)
    assert nodes_by_path(flame("device")) == {}
