"""Events of planes by kind, as columns that `kineto` links and stores.

    /device:GPU:N    "Stream #K(…)"           kernels, copies and memory sets of stream K
    /device:TPU:N    "XLA Ops", "Async XLA …" operations as kernels
    any device       all other lines          left out: sums and copies of the above
    /host:CPU        calls with a correlation runtime calls, which launch what has the same one
                     "$file.py:12 function"   Python functions
                     a step number            steps, as `ProfilerStep#N`; "test 3" and "predict 3"
                     "path/MatMul:MatMul",    operators, by type; threads of TensorFlow's executor
                     an HLO operation         have the type alone
                     a fetch from tf.data     annotations, on any thread
                     other, thread of Python  annotations
                     other threads            other events

Names of events: https://github.com/openxla/xla/blob/main/xla/tsl/profiler/utils/xplane_schema.cc
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema
from stepscope.importers.kineto import Chunk, OtherKind
from stepscope.importers.wire import Int
from stepscope.importers.xplane.planes import ABSENT, Line, Plane

ANNOTATION = schema.event_kind("annotation")
KERNEL = schema.event_kind("kernel")
MEMCPY = schema.event_kind("memcpy")
MEMSET = schema.event_kind("memset")
OPERATOR = schema.event_kind("operator")
PYTHON_FUNCTION = schema.event_kind("python_function")
RUNTIME_CALL = schema.event_kind("runtime_call")

HOST_PREFIX = "/host:"
HOST_METADATA = "/host:metadata"
"""Plane that states versions."""
_DEVICE = re.compile(r"/device:(?P<type>GPU|TPU):(?P<number>\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_TPU_LINES = ("XLA Ops", "Async XLA Ops")
_PYTHON_LINE = re.compile(r"python|MainThread|main\b", re.IGNORECASE)
_PYTHON_NAME = re.compile(r"\$(?P<file>.+?):(?P<line>\d+) (?P<function>.+)")
_BUILT_IN_NAME = re.compile(r"\$(?P<module>\S+) (?P<function>[\w<>.]+)")
"""https://github.com/openxla/xla/blob/main/xla/python/profiler/internal/python_hooks.cc"""
_OPERATOR_NAME = re.compile(r"(?P<path>[\w./<>-]+):(?P<type>[A-Z]\w*)")
_EXECUTOR_LINE = re.compile(r"tf_(Compute|data_private_threadpool)\b")
_TYPE_NAME = re.compile(r"_?[A-Z]\w*")
_EXECUTOR_STATISTICS = ("_ct", "_pt")
"""Statistics of events by which one thread hands work to another; operators have none."""
_STEP_STATISTIC = "step_num"
_CORRELATION = "correlation_id"
_OPERATION_STATISTICS = ("hlo_op", "tf_op", "hlo_module")
_COPY_KINDS = {
    "HostToDevice": "HtoD", "DeviceToHost": "DtoH", "DeviceToDevice": "DtoD", "PeerToPeer": "PtoP",
    "HostToHost": "HtoH",
}  # fmt: skip
_Mask = NDArray[np.bool_]


def chunks_of(plane: Plane) -> Iterator[Chunk]:
    """Yield the events of each line of a plane; lines without events are left out."""
    device = _DEVICE.match(plane.name)
    for number, line in enumerate(plane.lines):
        if not len(line):
            continue
        if device is not None:
            chunk = _device_chunk(plane, line, device, number)
        elif plane.name.startswith(HOST_PREFIX):
            chunk = _host_chunk(plane, line)
        else:
            continue
        if chunk is not None:
            yield chunk


def describe_devices(planes: Sequence[Plane]) -> list[dict[str, Any]]:
    """Return the properties of the devices, under the names that Kineto gives them."""
    devices = []
    for plane in planes:
        match = _DEVICE.match(plane.name)
        if match is None or not plane.lines:
            continue
        statistics = plane.statistics
        vendor = statistics.get("device_vendor", "")
        name = statistics.get("device_type_string") or f"{vendor} {match['type']}".strip()
        properties = {
            "id": int(match["number"]),
            "name": name,
            "totalGlobalMem": statistics.get("memory_size"),
            "computeMajor": statistics.get("compute_cap_major"),
            "computeMinor": statistics.get("compute_cap_minor"),
            "numSms": statistics.get("core_count"),
        }
        devices.append({key: value for key, value in properties.items() if value is not None})
    return devices


class _Texts:
    """Strings of a chunk."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    @property
    def strings(self) -> list[str]:
        return list(self._codes)

    def code(self, text: str | None) -> int:
        """Return the code of a string, -1 for None."""
        return -1 if text is None else self._codes.setdefault(text, len(self._codes))

    def codes(self, texts: Sequence[str | None]) -> NDArray[np.int32]:
        """Return the codes of strings."""
        return np.array([self.code(text) for text in texts], dtype=np.int32)


class _LineChunk:
    """Chunk of one line, filled kind by kind."""

    def __init__(self, plane: Plane, line: Line) -> None:
        self.line = line
        self.texts = _Texts()
        self._start_ns, self._duration_ns = line.start_ns, line.duration_ns
        tid = line.id & 0x7FFF_FFFF_FFFF_FFFF
        self.chunk = Chunk(tracks=[(plane.name, tid)])
        if line.name:
            self.chunk.metadata.append(("thread_name", plane.name, tid, line.name))
        self.chunk.metadata.append(("process_name", plane.name, tid, plane.name))

    def add(self, kind: Any, rows: Int, names: NDArray[np.int32], **columns: Any) -> None:
        """Add the events of some rows."""
        if not len(rows):
            return
        self.chunk.columns[kind] = {
            "order": rows,
            "track": np.zeros(len(rows), dtype=np.int32),
            "name": names,
            "start": self._start_ns[rows],
            "duration": self._duration_ns[rows],
            **columns,
        }

    def finish(self) -> Chunk:
        """Return the complete chunk."""
        self.chunk.strings = self.texts.strings
        self.chunk.event_count = len(self.line)
        return self.chunk


def _name_codes(texts: _Texts, plane: Plane, metadata_id: Int) -> NDArray[np.int32]:
    """Return the code of the name of each event."""
    ids, inverse = np.unique(metadata_id, return_inverse=True)
    names = [plane.event_names.get(number, f"event {number}") for number in ids.tolist()]
    return texts.codes(names)[inverse] if len(ids) else np.empty(0, dtype=np.int32)


def _operation_codes(
    texts: _Texts, plane: Plane, line: Line, rows: Int
) -> NDArray[np.int32] | None:
    """Return the code of a JSON object with the operation of each event; None if none has any."""
    values: dict[str, list[str | None]] = {}
    for name in _OPERATION_STATISTICS:
        texts_of_line = plane.texts(line, name)
        column = [texts_of_line[row] for row in rows.tolist()]
        if any(column):
            values[name] = column
    if not values:
        return None
    objects: dict[tuple[str | None, ...], int] = {}
    codes = []
    for key in zip(*values.values(), strict=True):
        if key not in objects:
            present = {n: text for n, text in zip(values, key, strict=True) if text}
            objects[key] = texts.code(msgspec.json.encode(present).decode() if present else None)
        codes.append(objects[key])
    return np.array(codes, dtype=np.int32)


# --- devices -------------------------------------------------------------------------------------


def _device_chunk(plane: Plane, line: Line, device: re.Match[str], number: int) -> Chunk | None:
    match = _STREAM.match(line.name)
    is_work = match is not None if device["type"] == "GPU" else line.name in _TPU_LINES
    if not is_work:
        return None
    stream = int(match[1]) if match is not None else number
    builder = _LineChunk(plane, line)
    names = _name_codes(builder.texts, plane, line.metadata_id)
    correlation = plane.integers(line, _CORRELATION)
    is_copy = plane.has(line, "memcpy_details")
    is_set = plane.has(line, "memset_details") & ~is_copy
    for kind, mask in ((KERNEL, ~is_copy & ~is_set), (MEMCPY, is_copy), (MEMSET, is_set)):
        rows = np.flatnonzero(mask)
        columns: dict[str, Any] = {
            "device": np.full(len(rows), int(device["number"]), dtype=np.int64),
            "stream": np.full(len(rows), stream, dtype=np.int64),
            "correlation": correlation[rows],
        }
        args = _operation_codes(builder.texts, plane, line, rows)
        if args is not None:
            columns["args"] = args
        kind_names = names[rows]
        if kind is KERNEL:
            columns |= _kernel_columns(plane, line, rows)
        else:
            details = plane.texts(line, "memcpy_details", "memset_details")
            parsed = [_parse_details(details[row]) for row in rows.tolist()]
            sizes = [_whole(item.get("size") or item.get("num_bytes")) for item in parsed]
            columns["bytes"] = np.array(sizes, dtype=np.int64)
            if kind is MEMCPY:
                kind_names = builder.texts.codes([_copy_name(item) for item in parsed])
        builder.add(kind, rows, kind_names, **columns)
    return builder.finish()


def _kernel_columns(plane: Plane, line: Line, rows: Int) -> dict[str, Any]:
    """Return the launch configuration of kernels, as far as the file states it."""
    details = plane.texts(line, "kernel_details")
    distinct = list(dict.fromkeys(details))
    items = [_parse_details(text) for text in distinct]
    if not any(items):
        return {}
    indices = {text: index for index, text in enumerate(distinct)}
    row = np.array([indices[details[row]] for row in rows.tolist()], dtype=np.int64)
    shared = [
        _whole(item.get("static_shared", "0")) + _whole(item.get("dynamic_shared", "0"))
        if "static_shared" in item
        else ABSENT
        for item in items
    ]
    columns = {
        "registers_per_thread": np.array([_whole(item.get("regs")) for item in items]),
        "shared_memory_bytes": np.array(shared, dtype=np.int64),
        "grid": _sizes([item.get("grid") for item in items]),
        "block": _sizes([item.get("block") for item in items]),
        "occupancy_percent": np.array([_number(item.get("occ_pct")) for item in items]),
    }
    return {name: values[row] for name, values in columns.items()}


def _parse_details(text: str | None) -> dict[str, str]:
    """Parse details.

    >>> _parse_details("regs:32 grid:1,2,3 block:256,1,1")
    {'regs': '32', 'grid': '1,2,3', 'block': '256,1,1'}
    """
    pairs = (part.partition(":") for part in (text or "").split())
    return {key: value for key, _, value in pairs if value}


def _copy_name(details: dict[str, str]) -> str:
    kind = details.get("kind", "")
    return f"Memcpy {_COPY_KINDS.get(kind.replace('Async', ''), kind or 'unknown')}"


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else ABSENT


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else float("nan")
    except ValueError:
        return float("nan")


def _sizes(texts: Sequence[str | None]) -> NDArray[np.int32]:
    rows = []
    for text in texts:
        sizes = [_whole(part) for part in (text or "").split(",")]
        rows.append(sizes if len(sizes) == 3 else [ABSENT] * 3)
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


# --- host ----------------------------------------------------------------------------------------


def _host_chunk(plane: Plane, line: Line) -> Chunk:
    builder = _LineChunk(plane, line)
    texts = builder.texts
    names = _name_codes(texts, plane, line.metadata_id)
    strings = texts.strings
    correlation = plane.integers(line, _CORRELATION)
    steps = plane.integers(line, _STEP_STATISTIC)
    free = np.ones(len(line), dtype=np.bool_)

    def take(mask: _Mask) -> Int:
        """Return the rows of a mask that no kind has taken before, and take them."""
        rows = np.flatnonzero(mask & free)
        free[rows] = False
        return rows

    rows = take(correlation != ABSENT)
    builder.add(RUNTIME_CALL, rows, names[rows], correlation=correlation[rows])
    rows = take(steps != ABSENT)
    marks = [
        _step_name(strings[code], step)
        for code, step in zip(names[rows].tolist(), steps[rows].tolist(), strict=True)
    ]
    marked = (rows, texts.codes(marks))
    python = [_python_name(name) for name in strings]
    rows = take(np.array([name is not None for name in python], dtype=np.bool_)[names])
    renamed = texts.codes([name or "" for name in python])
    builder.add(PYTHON_FUNCTION, rows, renamed[names[rows]])
    types = [_operator_type(name) for name in strings]
    is_named = np.array([text is not None for text in types], dtype=np.bool_)[names]
    is_operator = is_named | plane.has(line, "hlo_op")
    if _EXECUTOR_LINE.match(line.name):
        is_type = [_TYPE_NAME.fullmatch(name) is not None for name in strings]
        is_operator |= np.array(is_type)[names] & ~plane.has(line, *_EXECUTOR_STATISTICS)
    rows = take(is_operator)
    operators = texts.codes([text or name for text, name in zip(types, strings, strict=True)])
    args = _operation_codes(texts, plane, line, rows)
    builder.add(OPERATOR, rows, operators[names[rows]], **({} if args is None else {"args": args}))
    is_fetch = [name.startswith(schema.TF_DATA_FETCH) for name in strings]
    is_python = _PYTHON_LINE.match(line.name) is not None
    ranges = take(np.ones_like(free) if is_python else np.array(is_fetch)[names])
    rows = np.concatenate([marked[0], ranges])
    order = np.argsort(rows, kind="stable")
    codes = np.concatenate([marked[1], names[ranges]])
    builder.add(ANNOTATION, rows[order], codes[order])
    rest = np.flatnonzero(free)
    count = len(rest)
    builder.add(
        OtherKind.OTHER,
        rest,
        names[rest],
        phase=np.full(count, texts.code("X"), dtype=np.int32),
        category=np.full(count, texts.code("trace_me"), dtype=np.int32),
        has_duration=np.ones(count, dtype=np.int8),
        args=np.full(count, -1, dtype=np.int32),
    )
    return builder.finish()


def _step_name(name: str, number: int) -> str:
    """Return the name of a step; steps of evaluation are no training steps."""
    is_evaluation = name in schema.EVALUATION_STEPS
    return f"{name} {number}" if is_evaluation else f"{schema.STEP_PREFIX}{number}"


def _python_name(name: str) -> str | None:
    """Return the name of a Python function as Kineto has it; None for another event.

    >>> _python_name("$train.py:12 step"), _python_name("$time sleep")
    ('train.py(12): step', '<built-in function sleep of time>')
    """
    match = _PYTHON_NAME.fullmatch(name)
    if match is not None:
        return f"{match['file']}({match['line']}): {match['function']}"
    match = _BUILT_IN_NAME.fullmatch(name)
    if match is None:
        return None
    if match["module"].startswith("<"):
        return f"<built-in method {match['function']}>"
    return f"<built-in function {match['function']} of {match['module']}>"


def _operator_type(name: str) -> str | None:
    """Return the type of an operator of TensorFlow; None for another event.

    >>> _operator_type("model/dense/MatMul:MatMul")
    'MatMul'
    """
    match = _OPERATOR_NAME.fullmatch(name)
    return None if match is None else match["type"]
