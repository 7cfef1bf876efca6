"""Execution traces: what torch's `ExecutionTraceObserver` knows of the operators of a trace.

A node of an execution trace (Chakra) is a call of an operator, with its inputs and outputs. Its
`rf_id` is the number of the record function, which Kineto writes as "Record function id", or as
"External id" before it wrote the former. Numbers count up within a process, so a node describes the
operator with the same number and name in a trace of the same process.

An operator gets what its trace lacks: shapes, types, strides and values of its inputs, in the form
in which Kineto writes them with `record_shapes=True`:

    node                                   type          shape          value
    Tensor(T)                              T             shape          none
    list of tensors                        TensorList    shapes         none
    Int, Double, Bool, …                   Scalar        []             text
    list of numbers, or an empty list      ScalarList    []             text
    None, Device and the rest              none          []             none
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import errors, schema
from stepscope.importers.content import read_content, read_head
from stepscope.importers.kineto.arguments import OPERATOR, check_nesting
from stepscope.importers.kineto.gather import Gathered

NODE_KEY = "Execution trace node"
"""Key of the number of a node in the column `args` of an operator."""
_SCHEMA = re.compile(rb'\s*\{\s*"schema"\s*:\s*"')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_TENSOR = re.compile(r"Tensor\((.+)\)")
_SCALARS = frozenset({"Int", "Double", "Bool", "ComplexDouble", "SymInt", "SymFloat", "SymBool"})
_MIN_SAME_NAMES = 0.5
"""Share of the equal numbers that also have equal names, below which processes differ."""
_COLUMNS = ("input_dims", "input_types", "input_strides", "concrete_inputs")


class _Inputs(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Node(msgspec.Struct):
    """Node, in the form of schema 1.1 or, with fields of its own for each list, of 1.0."""

    id: int
    name: str
    inputs: _Inputs | list[Any] = []
    attrs: list[_Attribute] = []
    rf_id: int | None = None
    input_shapes: list[Any] = []
    input_types: list[str] = []

    @property
    def record_function(self) -> int:
        """Number of the record function; 0 for a node of a process or thread."""
        if self.rf_id is not None:
            return self.rf_id
        numbers = (attribute.value for attribute in self.attrs if attribute.name == "rf_id")
        return next((number for number in numbers if isinstance(number, int)), 0)

    @property
    def arguments(self) -> _Inputs:
        """Inputs of the operator."""
        if isinstance(self.inputs, _Inputs):
            return self.inputs
        return _Inputs(values=self.inputs, shapes=self.input_shapes, types=self.input_types)


class _File(msgspec.Struct):
    nodes: list[_Node]
    pid: int | None = None


class ExecutionTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one process by the number of their record function."""

    path: Path
    pid: int | None
    nodes: Mapping[int, _Node]


class Linked(msgspec.Struct, frozen=True):
    """Operators of a trace that an execution trace describes."""

    path: Path
    operator_count: int


def is_execution_trace(path: Path) -> bool:
    """Return True for a file that begins like an execution trace."""
    head = read_head(path)
    return bool(_SCHEMA.match(head) and _NODES.search(head))


def read_execution_trace(path: Path) -> ExecutionTrace:
    """Read an execution trace.

    Raises:
        UnreadableTraceError: the file is incomplete or damaged.
        OSError: the file cannot be read.
    """
    try:
        content = read_content(path)
        check_nesting(content)
        file = msgspec.json.decode(content, type=_File)
    except (*schema.MALFORMED_JSON, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise errors.UnreadableTraceError(
            f"{path} is no complete execution trace: {error}."
        ) from None
    nodes = {number: node for node in file.nodes if (number := node.record_function) > 0}
    return ExecutionTrace(path=path, pid=file.pid, nodes=nodes)


def describe_operators(gathered: Gathered, traces: Sequence[ExecutionTrace]) -> Linked | None:
    """Give operators the inputs that their trace lacks, from the execution trace that fits best.

    Returns:
        The execution trace that describes most operators; None if none belongs to the process.
    """
    if not traces:
        return None
    columns = gathered.columns(OPERATOR, "name", "record_function", "external", "args", *_COLUMNS)
    numbers = columns["record_function"]
    if not (numbers > 0).any():
        numbers = columns["external"]
    pids = {str(pid) for pid, _ in gathered.tracks}
    matches = [
        (trace, nodes)
        for trace in traces
        if (trace.pid is None or str(trace.pid) in pids)
        and (nodes := _match(gathered, columns["name"].tolist(), numbers.tolist(), trace))
    ]
    if not matches:
        return None
    trace, nodes = max(matches, key=lambda match: len(match[1]))
    texts = {row: _to_kineto(node) for row, node in nodes.items()}
    for name in _COLUMNS:
        codes = columns[name].astype(np.int32)
        for row, text in texts.items():
            value = text[name]
            if codes[row] < 0 and value is not None:
                codes[row] = gathered.code_of(value)
        gathered.extend(OPERATOR, name, codes)
    args = columns["args"].astype(np.int32)
    for row, node in nodes.items():
        number = f'"{NODE_KEY}":{node.id}}}'
        start = gathered.strings[args[row]][:-1] + "," if args[row] >= 0 else "{"
        args[row] = gathered.code_of(start + number)
    gathered.extend(OPERATOR, "args", args)
    return Linked(trace.path, len(nodes))


def _match(
    gathered: Gathered, names: Sequence[int], numbers: Sequence[int], trace: ExecutionTrace
) -> dict[int, _Node]:
    """Match operators with nodes, by row; empty if they are of different processes."""
    nodes = {row: trace.nodes[n] for row, n in enumerate(numbers) if n in trace.nodes}
    same = {row: node for row, node in nodes.items() if gathered.strings[names[row]] == node.name}
    return same if len(same) >= _MIN_SAME_NAMES * len(nodes) else {}


def _to_kineto(node: _Node) -> dict[str, str | None]:
    """Return the inputs of a node as columns of `operators`; None for what is not recorded."""
    inputs = node.arguments
    count = len(inputs.types)
    if not count or len(inputs.shapes) != count:
        return dict.fromkeys(_COLUMNS)
    is_tensor = [kind.startswith(("Tensor(", "GenericList[Tensor(")) for kind in inputs.types]
    has_strides, has_values = len(inputs.strides) == count, len(inputs.values) == count
    types = [_to_type(kind) for kind in inputs.types]
    values = [
        _to_text(value) if kind.startswith("Scalar") else ""
        for kind, value in zip(types, inputs.values, strict=has_values)
    ]
    return {
        "input_types": _json(types),
        "input_dims": _json(_only(inputs.shapes, is_tensor)),
        "input_strides": _json(_only(inputs.strides, is_tensor)) if has_strides else None,
        "concrete_inputs": _json(values) if has_values else None,
    }


def _to_type(kind: str) -> str:
    if kind.startswith("GenericList["):
        return "TensorList" if kind.startswith("GenericList[Tensor(") else "ScalarList"
    tensor = _TENSOR.fullmatch(kind)
    if tensor is not None:
        return tensor[1]
    return "Scalar" if kind in _SCALARS else ""


def _to_text(value: Any) -> str:
    """Write a value like Kineto, which ends whole floating-point numbers with their point."""
    text = str(value)
    return text[:-1] if isinstance(value, float) and text.endswith(".0") else text


def _only(values: Sequence[Any], is_tensor: Sequence[bool]) -> list[Any]:
    """Return the values of tensors, and an empty list for every other input."""
    return [value if is_one else [] for value, is_one in zip(values, is_tensor, strict=True)]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
