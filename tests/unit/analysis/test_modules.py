"""Modules: tree of calls, and one tree with operators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.operators.modules import (
    Measure,
    Module,
    ModuleFlame,
    ModuleTable,
    build_module_flame,
    build_module_table,
    find_lightning_module_calls,
    find_python_module_calls,
)
from stepscope.analysis.operators.operator_tree import build_operator_tree, find_paths
from tests.support.drawn_operators import Op, numbers, op, operator_columns, strings

ENGINE = "autograd::engine::evaluate_function: "


def functions(*rows: tuple[int, str, int, int]) -> dict[str, Any]:
    """Python functions: id, name, id of the caller, duration. `Net_0` with a number is a module."""
    names = {number: name for number, name, _, _ in rows}
    caller = {number: above for number, _, above, _ in rows}

    def module(number: int) -> int:
        while number >= 0 and not names[number][-1].isdigit():
            number = caller[number]
        return number

    return {
        "id": numbers([number for number, *_ in rows]),
        "name": strings([f"nn.Module: {n}" if n[-1].isdigit() else n for _, n, _, _ in rows]),
        "parent": numbers([above for _, _, above, _ in rows]),
        "module": numbers([module(number) for number, *_ in rows]),
        "module_id": numbers([int(n[-1]) if n[-1].isdigit() else -1 for _, n, _, _ in rows]),
        "track": numbers([0 for _ in rows]),
        "start_ns": numbers([number for number, *_ in rows]),
        "duration_ns": numbers([duration for *_, duration in rows]),
    }


def table_of(
    calls: dict[str, Any],
    *roots: Op,
    python: list[int],
    forward: dict[int, int] | None = None,
    **options: Any,
) -> ModuleTable:
    columns = operator_columns(*roots)
    columns["python"] = numbers(python)
    for backward, forward_row in (forward or {}).items():
        columns["forward"][backward] = columns["id"][forward_row]
    return build_module_table(
        find_python_module_calls(calls, columns["python"]),
        build_operator_tree(columns),
        columns,
        on_device=True,
        **options,
    )


NET = functions(
    (1, "train", -1, 500),
    (10, "Net_0", 1, 100),
    (11, "forward", 10, 90),
    (20, "Linear_0", 11, 30),
    (21, "forward", 20, 20),
    (30, "Linear_1", 11, 40),
    (40, "Net_0", 1, 200),
    (50, "Linear_0", 40, 60),
)


def kernel(duration: int) -> list[tuple[str, int]]:
    return [("kernel", duration)]


def by_name(table: ModuleTable) -> dict[str, Module]:
    return {f"{row.name}": row for row in table.rows}


def test_calls_of_one_instance_below_the_same_module_are_one_row() -> None:
    table = table_of(
        NET,
        op("linear", 1, op("addmm", 2, kernels=kernel(7))),
        op("relu", 1, kernels=kernel(5)),
        op("linear", 1, kernels=kernel(20)),
        op("loss", 1, kernels=kernel(68)),
        python=[21, 21, 11, 50, 1],
    )
    assert [(row.depth, row.name, row.occurrences) for row in table.rows] == [
        (0, "Net_0", 2),
        (1, "Linear_0", 2),
        (1, "Linear_1", 1),
    ]
    rows = by_name(table)
    net, first = rows["Net_0"], rows["Linear_0"]
    assert (net.host_total_ns, net.host_self_ns) == (300, 300 - 30 - 40 - 60)
    assert (first.host_total_ns, first.host_self_ns) == (90, 90)
    assert (first.operator_count, net.operator_count, rows["Linear_1"].operator_count) == (2, 1, 0)
    assert (first.device_self_ns, first.device_total_ns) == (27, 27)
    assert (net.device_self_ns, net.device_total_ns, net.device_ratio) == (5, 32, 0.32)
    assert (table.operator_device_ns, table.outside_device_ns) == (100, 68)
    assert net.backward_host_ns is net.backward_device_ns is None


def test_modules_are_ordered_by_their_first_calls() -> None:
    calls = functions((5, "B_0", -1, 9), (7, "C_0", 5, 1), (6, "D_0", 5, 1), (1, "A_0", -1, 9))
    table = table_of(calls, python=[])
    assert [row.name for row in table.rows] == ["A_0", "B_0", "D_0", "C_0"]


def test_backward_operators_belong_to_the_module_of_their_forward_operator() -> None:
    table = table_of(
        NET,
        op("linear", 1, op("addmm", 2, kernels=kernel(7))),
        op(ENGINE + "AddmmBackward0", 1, op("AddmmBackward0", 2, op("mm", 3, kernels=kernel(11)))),
        op(ENGINE + "torch::autograd::AccumulateGrad", 4, kernels=kernel(2)),
        python=[21, 21, -1, -1, -1, -1],
        forward={3: 1},
    )
    rows = by_name(table)
    net, first = rows["Net_0"], rows["Linear_0"]
    assert (first.backward_device_ns, first.device_self_ns, first.operator_count) == (11, 18, 1)
    assert (first.backward_host_ns, net.backward_host_ns) == (6, 6)
    assert (net.device_self_ns, net.device_total_ns, net.backward_device_ns) == (0, 18, 11)
    assert table.outside_device_ns == 2


def test_backward_within_the_step_of_an_old_recording() -> None:
    table = table_of(
        NET,
        op(
            "ProfilerStep#1",
            1,
            op("mm", 1, kernels=kernel(3)),
            op("MmBackward", 2, kernels=kernel(4)),
        ),
        python=[1, 21, -1],
        forward={2: 1},
    )
    assert (by_name(table)["Linear_0"].device_self_ns, table.outside_device_ns) == (7, 0)


def test_heaviest_modules_are_listed_with_their_ancestors() -> None:
    table = table_of(NET, op("linear", 1, kernels=kernel(7)), python=[30], top=1)
    assert [row.name for row in table.rows] == ["Net_0"]
    table = table_of(NET, op("linear", 1, kernels=kernel(7)), python=[30], top=2)
    assert [row.name for row in table.rows] == ["Net_0", "Linear_1"]
    assert table.module_count == 3


def test_modules_annotated_by_lightning() -> None:
    annotations = {
        "name": strings(
            ["[pl][module]Net: net", "[pl][module]Linear: net.l", "[pl][profile]run_step", "step"]
        ),
        "track": numbers([0, 0, 0, 1]),
        "start_ns": numbers([1000, 1002, 990, 0]),
        "duration_ns": numbers([20, 4, 100, 2000]),
    }
    columns = operator_columns(
        op("a", 1, kernels=kernel(1)), op("b", 3, kernels=kernel(2)), op("c", 1, kernels=kernel(4))
    )
    columns["start_ns"] = numbers([1001, 1003, 1030])
    table = build_module_table(
        find_lightning_module_calls(annotations, columns),
        build_operator_tree(columns),
        columns,
        on_device=True,
    )
    assert table.source == "lightning"
    assert [(row.name, row.depth, row.instance, row.device_self_ns) for row in table.rows] == [
        ("Net: net", 0, None, 1),
        ("Linear: net.l", 1, None, 2),
    ]
    assert (table.rows[0].host_self_ns, table.outside_device_ns) == (16, 4)


def test_no_modules() -> None:
    table = table_of(functions((1, "train", -1, 5)), op("a", 1), python=[1])
    assert (table.rows, table.module_count) == ([], 0)
    table = table_of(functions(), python=[])
    assert table.rows == []


forests = st.lists(st.integers(-1, 30), max_size=30).map(
    lambda drawn: np.array([min(above, row - 1) for row, above in enumerate(drawn)], dtype=np.int64)
)


@given(forests, st.randoms())
def test_paths_equal_spelled_paths(parent: Any, random: Any) -> None:
    keys = np.array([random.randrange(3) for _ in parent], dtype=np.int64)

    def spell(row: int) -> tuple[int, ...]:
        return (*spell(int(parent[row])), int(keys[row])) if row >= 0 else ()

    spelled = [spell(row) for row in range(len(parent))]
    paths = find_paths(parent, keys)
    assert len(paths) == len(set(spelled))
    for row, path in enumerate(spelled):
        path_index = int(paths.of_call[row])
        assert spelled[int(paths.first[path_index])] == path
        parent_path = int(paths.parent[path_index])
        assert (spelled[int(paths.first[parent_path])] if parent_path >= 0 else ()) == path[:-1]
        assert parent_path < path_index
    ones = np.ones(len(paths), dtype=np.int64)
    below = [
        sum(spelled_path[: len(path)] == path for spelled_path in set(spelled)) for path in spelled
    ]
    assert paths.totals(ones)[paths.of_call].tolist() == below


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
