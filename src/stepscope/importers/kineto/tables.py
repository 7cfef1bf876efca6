"""A linked slice as rows of the trace tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.cells import text_of
from stepscope.importers.kineto.decode import Columns, int64
from stepscope.importers.kineto.fields import CollectiveArgs
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.kinds import Kind
from stepscope.importers.kineto.linking import Linked
from stepscope.schema import TABLES, Column
from stepscope.store import NUMPY_TYPES, DictColumn

Rows = Mapping[str, Any]
_COPY_KINDS = ((Kind.MEMCPY, "memcpy"), (Kind.MEMSET, "memset"))


class TableMaker:
    """Makes the rows of one trace.

    Args:
        trace: its number.
        base_ns: what is added to the times of the file.
        gathered: its strings.
    """

    def __init__(self, trace: int, base_ns: int, gathered: Gathered) -> None:
        self._trace = trace
        self._base_ns = base_ns
        self._gathered = gathered
        hosts = gathered.select(Kind.ANNOTATION, ("id", "external"), "external")
        order = np.argsort(hosts["external"], kind="stable")
        self._host_numbers, self._host_ids = hosts["external"][order], hosts["id"][order]
        self._values: list[str] = []

    def tables(self, linked: Linked) -> Iterator[tuple[str, Rows]]:
        """Tables with at least one row."""
        made = [
            ("operators", self._operators(linked.operators)),
            ("annotations", self._annotations(linked)),
            ("runtime_calls", self._calls(linked.calls)),
            ("python_functions", self._python(linked.python)),
            ("memory_events", self._memory(linked.memory)),
            ("kernels", self._kernels(linked.device[Kind.KERNEL])),
            ("copies", self._copies(linked)),
            ("collectives", self._collectives(linked)),
            ("other_events", self._others(linked)),
        ]
        for name, columns in made:
            if columns and len(next(iter(columns.values()))):
                yield name, self.complete(name, columns)

    def complete(self, table: str, columns: Rows) -> Rows:
        """Columns as the store takes them: every declared one, -1 as null where it may be."""
        rows = len(next(iter(columns.values())))
        whole: dict[str, Any] = {}
        for column in TABLES[table].columns:
            values = columns.get(column.name)
            if column.name == "trace":
                whole["trace"] = np.full(rows, self._trace, dtype=np.int64)
            elif column.type == "VARCHAR":
                whole[column.name] = self._strings(values, rows)
            elif values is None:
                whole[column.name] = np.ma.MaskedArray(np.zeros(rows, dtype=np.int64), mask=True)
            elif column.type == "DOUBLE":
                absent = np.isnan(values) & column.nullable
                whole[column.name] = np.ma.MaskedArray(values, mask=absent)
            else:
                whole[column.name] = _fitting(column, values)
        return whole

    def _strings(self, values: Any, rows: int) -> DictColumn:
        if values is None:
            return DictColumn(np.full(rows, -1, dtype=np.int32), [])
        if isinstance(values, DictColumn):
            return values
        if len(self._values) != len(self._gathered.strings):
            # A list of its own: rows are stored beside the making of the next, which may add to it.
            self._values = list(self._gathered.strings)
        return DictColumn(values, self._values)

    def _range(self, columns: Columns) -> dict[str, Any]:
        return {
            "id": columns["id"],
            "track": columns["track"],
            "name": columns["name"],
            "start_ns": columns["start"] + self._base_ns,
            "duration_ns": columns["duration"],
            "args": columns["args"],
        }

    def _operators(self, columns: Columns) -> Rows:
        same = (
            "parent",
            "depth",
            "python",
            "sequence",
            "forward_thread",
            "forward",
            "record_function",
            "input_dims",
            "input_types",
            "input_strides",
            "concrete_inputs",
            "call_stack",
        )
        return {
            **self._range(columns),
            **{name: columns[name] for name in same},
            "runtime_ns": _or_null(columns["runtime_ns"]),
            "launched_ns": _or_null(columns["launched_ns"]),
            "launched_below_ns": _or_null(columns["device_total"] - columns["launched_ns"]),
        }

    def _annotations(self, linked: Linked) -> Rows:
        host, device = linked.annotations, linked.device_annotations
        joined = {
            name: np.concatenate([host[name], device[name]])
            for name in ("id", "track", "name", "start", "duration", "args")
        }
        absent = np.full(len(device["id"]), -1, dtype=np.int64)
        no_host = np.full(len(host["id"]), -1, dtype=np.int64)
        on_device = np.repeat(np.array([0, 1]), [len(host["id"]), len(device["id"])])
        return {
            **self._range(joined),
            "on_device": on_device,
            "host": np.concatenate([no_host, self._hosts(device.get("external", absent))]),
            "python": np.concatenate([host["python"], absent]),
        }

    def _hosts(self, external: NDArray[np.int64]) -> NDArray[np.int64]:
        """Host ranges of shadows by the number that both carry, -1 for none."""
        if not len(self._host_ids):
            return np.full(len(external), -1, dtype=np.int64)
        row = np.searchsorted(self._host_numbers, external, side="right") - 1
        fits = (external > 0) & (self._host_numbers[np.maximum(row, 0)] == external)
        return np.where(fits, self._host_ids[row], -1)

    def _calls(self, columns: Columns) -> Rows:
        same = ("driver", "correlation", "operator", "python")
        return {**self._range(columns), **{name: columns[name] for name in same}}

    def _python(self, columns: Columns) -> Rows:
        same = ("parent", "module", "module_id")
        return {**self._range(columns), **{name: columns[name] for name in same}}

    def _memory(self, columns: Columns) -> Rows:
        return {
            "id": columns["id"],
            "track": columns["track"],
            "t_ns": columns["start"] + self._base_ns,
            "device_type": columns["device_type"],
            "device": columns["device"],
            "address": columns["address"],
            "size_bytes": columns["size"],
            "allocated_bytes": columns["allocated"],
            "reserved_bytes": columns["reserved"],
            "operator": columns["operator"],
            "args": columns["args"],
        }

    def _device(self, columns: Columns) -> dict[str, Any]:
        same = (
            *("device", "launch", "operator", "correlation", "carry_over"),
            *("graph", "graph_node", "captured_operator"),
        )
        return {**self._range(columns), **{name: columns[name] for name in same}}

    def _kernels(self, columns: Columns) -> Rows:
        sizes = {
            f"{name}_{axis}": columns[name][:, place]
            for name in ("grid", "block")
            for place, axis in enumerate("xyz")
        }
        return {
            **self._device(columns),
            **sizes,
            "registers_per_thread": columns["registers"],
            "shared_memory_bytes": columns["shared_memory"],
            "blocks_per_multiprocessor": columns["blocks"],
            "warps_per_multiprocessor": columns["warps"],
            "occupancy_percent": columns["occupancy"],
        }

    def _copies(self, linked: Linked) -> Rows:
        parts = [self._device(linked.device[kind]) for kind, _ in _COPY_KINDS]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        lengths = [len(part["id"]) for part in parts]
        codes = np.repeat(np.array([0, 1], dtype=np.int32), lengths)
        sizes = np.concatenate([linked.device[kind]["size"] for kind, _ in _COPY_KINDS])
        kinds = DictColumn(codes, [name for _, name in _COPY_KINDS])
        return {**joined, "kind": kinds, "bytes": sizes}

    def _collectives(self, linked: Linked) -> Rows:
        ids: list[int] = []
        on_device: list[int] = []
        found: list[CollectiveArgs] = []
        for device, columns in ((0, linked.operators), (1, linked.device[Kind.KERNEL])):
            rows = np.flatnonzero(columns["collective"] >= 0)
            ids += columns["id"][rows].tolist()
            on_device += [device] * len(rows)
            found += [
                msgspec.json.decode(self._gathered.strings[code], type=CollectiveArgs)
                for code in columns["collective"][rows].tolist()
            ]
        numbers = {
            name: int64([getattr(args, name) for args in found])
            for name in (
                "in_elements",
                "out_elements",
                "group_size",
                "sequence",
                "peer_source",
                "peer_destination",
            )
        }
        texts = {
            name: DictColumn.encode(text_of(getattr(args, name)) for args in found)
            for name in (
                "name",
                "dtype",
                "group_description",
                "group_ranks",
                "in_split",
                "out_split",
            )
        }
        group = DictColumn.encode(
            text_of(args.group_id if args.group is None else args.group) for args in found
        )
        rest = DictColumn.encode(_rest(args) for args in found)
        return {
            "id": np.array(ids, dtype=np.int64),
            "on_device": np.array(on_device, dtype=np.int64),
            **numbers,
            **texts,
            "group": group,
            "args": rest,
        }

    def _others(self, linked: Linked) -> Rows:
        parts = []
        for kind, columns in linked.others:
            rows = len(columns["id"])
            if kind is Kind.OTHER:
                duration = np.where(columns["has_duration"] > 0, columns["duration"], -1)
                known = columns["has_duration"] > 0
            else:
                duration = columns.get("duration", np.zeros(rows, dtype=np.int64))
                known = np.full(rows, "duration" in columns)
            category = self._gathered.place(CATEGORY_NAMES[kind]) if kind in CATEGORY_NAMES else -1
            phase = self._gathered.place("i" if kind is Kind.MEMORY else "X")
            parts.append(
                {
                    "id": columns["id"],
                    "track": columns["track"],
                    "name": columns["name"],
                    "start_ns": columns["start"] + self._base_ns,
                    "duration_ns": duration,
                    "instant": ~known,
                    "args": columns.get("args", np.full(rows, -1, dtype=np.int32)),
                    "phase": columns.get("phase", np.full(rows, phase, dtype=np.int32)),
                    "category": columns.get("category", np.full(rows, category, dtype=np.int32)),
                }
            )
        if not parts:
            return {}
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        unknown = joined.pop("instant")
        return {
            **joined,
            "duration_ns": np.ma.MaskedArray(joined["duration_ns"], mask=unknown),
        }


CATEGORY_NAMES = {
    Kind.OPERATOR: "cpu_op",
    Kind.ANNOTATION: "user_annotation",
    Kind.DEVICE_ANNOTATION: "gpu_user_annotation",
    Kind.RUNTIME: "cuda_runtime",
    Kind.DRIVER: "cuda_driver",
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.PYTHON: "python_function",
    Kind.MEMORY: "cpu_instant_event",
}
"""The recorder's present spelling of each kind's category."""


def _fitting(column: Column, values: Any) -> Any:
    """Integers as their column takes them: what is absent or does not fit is null, or -1."""
    given = isinstance(values, np.ma.MaskedArray)
    data, absent = np.ma.getdata(values), np.ma.getmaskarray(values) if given else values == -1
    limits = np.iinfo(NUMPY_TYPES[column.type])
    if np.iinfo(data.dtype).bits > limits.bits and len(data):
        wrong = (data < limits.min) | (data > limits.max)
        if wrong.any():
            data, absent = np.where(wrong, -1, data), absent | wrong
    return np.ma.MaskedArray(data, mask=absent) if column.nullable else data


def _or_null(sums: NDArray[np.int64]) -> Any:
    """Sums of nothing are null: nulls take no room."""
    return np.ma.MaskedArray(sums, mask=sums == 0)


def _rest(args: CollectiveArgs) -> str | None:
    held = {
        name: value
        for name, value in (
            ("Comms Id", args.communicator),
            ("Rank", args.rank),
            ("Global rank start", args.rank_start),
            ("Global rank stride", args.rank_stride),
        )
        if value is not None
    }
    return msgspec.json.encode(held).decode() if held else None
