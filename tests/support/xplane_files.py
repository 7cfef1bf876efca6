"""XPlane files, written by Google's protobuf, as an independent implementation of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_INTEGER, _UNSIGNED, _DOUBLE, _TEXT, _BYTES, _MESSAGE = 3, 4, 1, 9, 12, 11
_FIELDS: Mapping[str, Sequence[tuple[str, int, Any, bool]]] = {
    "XSpace": [("planes", 1, "XPlane", True), ("hostnames", 4, _TEXT, True)],
    "XPlane": [
        ("id", 1, _INTEGER, False), ("name", 2, _TEXT, False), ("lines", 3, "XLine", True),
        ("event_metadata", 4, "EventEntry", True), ("stat_metadata", 5, "StatEntry", True),
        ("stats", 6, "XStat", True),
    ],
    "XLine": [
        ("id", 1, _INTEGER, False), ("display_id", 10, _INTEGER, False), ("name", 2, _TEXT, False),
        ("display_name", 11, _TEXT, False), ("timestamp_ns", 3, _INTEGER, False),
        ("duration_ps", 9, _INTEGER, False), ("events", 4, "XEvent", True),
    ],
    "XEvent": [
        ("metadata_id", 1, _INTEGER, False), ("offset_ps", 2, _INTEGER, False),
        ("num_occurrences", 5, _INTEGER, False), ("duration_ps", 3, _INTEGER, False),
        ("stats", 4, "XStat", True),
    ],
    "XStat": [
        ("metadata_id", 1, _INTEGER, False), ("double_value", 2, _DOUBLE, False),
        ("uint64_value", 3, _UNSIGNED, False), ("int64_value", 4, _INTEGER, False),
        ("str_value", 5, _TEXT, False), ("bytes_value", 6, _BYTES, False),
        ("ref_value", 7, _UNSIGNED, False),
    ],
    "EventEntry": [("key", 1, _INTEGER, False), ("value", 2, "XEventMetadata", False)],
    "StatEntry": [("key", 1, _INTEGER, False), ("value", 2, "XStatMetadata", False)],
    "XEventMetadata": [
        ("id", 1, _INTEGER, False), ("name", 2, _TEXT, False), ("display_name", 4, _TEXT, False),
    ],
    "XStatMetadata": [("id", 1, _INTEGER, False), ("name", 2, _TEXT, False)],
}  # fmt: skip
"""Name, number, type and repetition of the fields; a map is a list of entries on the wire."""


def _declare() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="xplane_test.proto", package="test")
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, is_repeated in fields:
            is_message = isinstance(kind, str)
            field = declared.field.add(
                name=name,
                number=number,
                type=_MESSAGE if is_message else kind,
                label=3 if is_repeated else 1,
            )
            if is_message:
                field.type_name = f".test.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.XSpace"))


XSpace = _declare()
"""Class of the message."""


class PlaneWriter:
    """Writes the events of a plane."""

    def __init__(self, space: Any, name: str, **statistics: Any) -> None:
        self.plane = space.planes.add(name=name)
        self._events: dict[str, int] = {}
        self._names: dict[str, int] = {}
        for statistic, value in statistics.items():
            self._set(self.plane.stats.add(), statistic, value)

    def line(self, name: str, number: int = 1, timestamp_ns: int = 0) -> Any:
        """Add a line."""
        return self.plane.lines.add(id=number, name=name, timestamp_ns=timestamp_ns)

    def event(
        self, line: Any, name: str, start_ns: float, duration_ns: float, **statistics: Any
    ) -> None:
        """Add an event; times are relative to the line, and exact to a picosecond."""
        if name not in self._events:
            self._events[name] = len(self._events) + 1
            entry = self.plane.event_metadata.add(key=self._events[name])
            entry.value.id, entry.value.name = self._events[name], name
        event = line.events.add(
            metadata_id=self._events[name],
            offset_ps=round(start_ns * 1000),
            duration_ps=round(duration_ns * 1000),
        )
        for statistic, value in statistics.items():
            self._set(event.stats.add(), statistic, value)

    def reference(self, text: str) -> Reference:
        """Return a reference to a text, which the plane holds once."""
        return Reference(self._name(text))

    def _name(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = len(self._names) + 1
            entry = self.plane.stat_metadata.add(key=self._names[name])
            entry.value.id, entry.value.name = self._names[name], name
        return self._names[name]

    def _set(self, statistic: Any, name: str, value: Any) -> None:
        statistic.metadata_id = self._name(name)
        if isinstance(value, Reference):
            statistic.ref_value = value
        elif isinstance(value, str):
            statistic.str_value = value
        elif isinstance(value, bytes):
            statistic.bytes_value = value
        elif isinstance(value, float):
            statistic.double_value = value
        else:
            statistic.int64_value = value


class Reference(int):
    """Id of a text that statistics refer to."""


START_NS = 1_700_000_000_000_000_000
"""Start of the profile."""
STEPS = 12


def training_space() -> Any:
    """Write a training on one GPU: each step launches a kernel, and each second one a copy."""
    space = XSpace(hostnames=["node-7"])
    host = PlaneWriter(space, "/host:CPU")
    python, executor = host.line("python", 11), host.line("tf_Compute/12", 12)
    gpu = PlaneWriter(
        space, "/device:GPU:0", memory_size=2**35, core_count=108, device_type_string="A100"
    )
    stream, modules = gpu.line("Stream #7(Kernel)", 7), gpu.line("XLA Modules", 8)
    hlo = gpu.reference("fusion.3")
    for step in range(STEPS):
        start = 1_000_000 * step
        host.event(python, "train", start, 900_000, step_num=step)
        host.event(python, "$train.py:12 step", start + 1000, 800_000)
        host.event(python, "load", start + 2000, 3000.4)
        host.event(python, "cuLaunchKernel", start + 10_000, 5000, correlation_id=2 * step + 1)
        host.event(executor, "dense/MatMul:MatMul", start + 20_000, 30_000)
        host.event(executor, "ExecutorDoneCallback", start + 60_000, 1000, _ct=15)
        gpu.event(
            *(stream, "loop_fusion", start + 100_000, 300_000),
            correlation_id=2 * step + 1,
            hlo_op=hlo,
            kernel_details="regs:32 static_shared:16 dynamic_shared:4 grid:4,2,1 block:256,1,1 "
            "occ_pct:50",
        )
        gpu.event(modules, "jit_step", start + 100_000, 300_000)
        if step % 2:
            details = "kind:HostToDevice size:4096 dest:0 async:1"
            gpu.event(stream, "copy", start + 500_000, 1000, memcpy_details=details)
    PlaneWriter(space, "Task Environment", profile_start_time=START_NS)
    return space
