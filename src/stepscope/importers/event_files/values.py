"""Messages of TensorFlow in an event file, from `Event` down to the numbers of a tensor.

Numbers of fields are those of event.proto, summary.proto, tensor.proto and types.proto in
https://github.com/tensorflow/tensorflow/tree/master/tensorflow/core. A message within a message is
read only where its meaning is known, so that the depth of others does not matter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import event_records, quantities
from stepscope.importers.content import Recorded, Refused, Result

_FLOAT32, _FLOAT64 = struct.Struct("<f"), struct.Struct("<d")
_SIGN_BIT, _MODULUS = 1 << 63, 1 << 64
_BFLOAT16 = 14
_INT32 = 3
_DTYPES = {
    1: "float32", 2: "float64", _INT32: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64",
    9: "int64", 10: "bool", _BFLOAT16: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16",
    22: "uint32", 23: "uint64",
}  # fmt: skip
"""Types of elements by their number; others, such as strings, are no numbers."""
_VALUE_DTYPES = {
    5: "<f4", 6: "<f8", 7: "int", 9: "<f4", 10: "int", 11: "int", 12: "<f8", 13: "int",
    16: "int", 17: "int",
}  # fmt: skip
"""Fields of a TensorProto with single elements, and their types in the message."""
_BIT_PATTERN_FIELD = 13
"""Field with the bits of 16-bit floats as integers."""
_PAIR_FIELDS = (9, 12)
"""Fields with real and imaginary parts in turns."""
MAX_REPEATED_ELEMENTS = 1 << 24
"""Elements of a tensor of which the message has fewer, because the last one is repeated."""


class Value(msgspec.Struct):
    """Value with a tag in an event."""

    tag: str = ""
    scalar: float | None = None
    histogram: memoryview | None = None
    """HistogramProto."""
    tensor: memoryview | None = None
    """TensorProto."""
    plugins: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Content of the metadata by the name of the plugin."""


class Event(msgspec.Struct):
    """Event: the values of a step."""

    wall_time_s: float = 0.0
    step: int = 0
    values: list[Value] = msgspec.field(default_factory=list)

    @property
    def t_ns(self) -> int | None:
        """Epoch nanoseconds; None if the time is impossible."""
        return round(self.wall_time_s * 1e9) if 0 <= self.wall_time_s < 9e9 else None


class Histogram(msgspec.Struct):
    """Histogram; sums are NaN where the message has none."""

    limit: NDArray[np.float64]
    """Upper end of each bucket."""
    count: NDArray[np.float64]
    low: NDArray[np.float64]
    """Lower end of each bucket."""
    min: float = math.nan
    max: float = math.nan
    element_count: float = 0.0
    sum: float = math.nan
    square_sum: float = math.nan


class Tensor(msgspec.Struct):
    """Numbers of a tensor. Those of 16-bit brain floats are single-precision floats here."""

    dtype: str
    shape: list[int]
    elements: NDArray[Any]
    """One-dimensional."""


def read_event(payload: bytes) -> Event:
    """Read an Event; MalformedMessageError if it is none."""
    event = Event()
    for entry in event_records.read_fields(payload):
        match entry.number, entry.wire_type:
            case 1, t if t == event_records.FIXED64:
                event.wall_time_s = _float(entry)
            case 2, t if t == event_records.VARINT:
                event.step = _signed(entry.number_value)
            case 5, t if t == event_records.BYTES:
                event.values += [
                    _read_value(value.content)
                    for value in event_records.read_fields(entry.content)
                    if (value.number, value.wire_type) == (1, event_records.BYTES)
                ]
    return event


def read_histogram(message: memoryview) -> Histogram:
    """Read a HistogramProto; MalformedMessageError if it is none."""
    numbers: dict[int, float] = {}
    columns: dict[int, list[NDArray[np.float64]]] = {6: [], 7: []}
    for entry in event_records.read_fields(message):
        if entry.number in columns and entry.wire_type in {
            event_records.BYTES,
            event_records.FIXED64,
        }:
            columns[entry.number].append(_from_bytes(entry.content, "<f8"))
        elif entry.wire_type == event_records.FIXED64:
            numbers[entry.number] = _float(entry)
    limit, count = (np.concatenate([np.empty(0), *columns[number]]) for number in (6, 7))
    if len(limit) != len(count):
        raise event_records.MalformedMessageError("a histogram needs as many limits as counts")
    # Fields with the value 0 are not written.
    low_end, high_end = numbers.get(1, 0.0), numbers.get(2, 0.0)
    low = np.concatenate([[-np.inf], limit])[: len(limit)]
    if low_end <= high_end:
        low, limit = np.clip(low, low_end, high_end), np.clip(limit, low_end, high_end)
    return Histogram(
        limit=limit,
        count=count,
        low=low,
        min=low_end,
        max=high_end,
        element_count=numbers.get(3, 0.0),
        sum=numbers.get(4, 0.0),
        square_sum=numbers.get(5, 0.0),
    )


def histogram_of_tensor(tensor: Tensor) -> Histogram:
    """Return the histogram in a tensor of lower end, upper end and count of each bucket."""
    if len(tensor.shape) != 2 or tensor.shape[1] != 3 or tensor.elements.dtype.kind == "c":
        raise event_records.MalformedMessageError("a histogram needs three numbers for each bucket")
    low, limit, count = tensor.elements.astype(np.float64).reshape(-1, 3).T
    return Histogram(limit=limit, count=count, low=low, element_count=float(count.sum()))


def read_tensor(message: memoryview) -> Tensor | None:
    """Read a TensorProto; None if its elements are no numbers.

    Raises:
        MalformedMessageError: it is none, or its elements do not fit its shape.
    """
    dtype_number, shape, content = 0, list[int](), memoryview(b"")
    parts: list[NDArray[Any]] = []
    part_field = 0
    for entry in event_records.read_fields(message):
        if (entry.number, entry.wire_type) == (1, event_records.VARINT):
            dtype_number = entry.number_value
        elif (entry.number, entry.wire_type) == (2, event_records.BYTES):
            shape = list(_read_shape(entry.content))
        elif (entry.number, entry.wire_type) == (4, event_records.BYTES):
            content = entry.content
        elif entry.number in _VALUE_DTYPES:
            part_field = entry.number
            parts.append(_read_elements(entry))
    dtype = _DTYPES.get(dtype_number)
    if dtype is None:
        return None
    if min(shape, default=0) < 0:
        raise event_records.MalformedMessageError("a tensor has a negative size")
    size = math.prod(shape)
    if len(content):
        if dtype_number == _INT32 and len(content) == 2 * size:
            dtype = "float16"  # SageMaker Debugger writes the type of a float16 so
        elements = _from_bytes(content, "<u2" if dtype == "bfloat16" else dtype)
        elements = _widen(elements) if dtype == "bfloat16" else elements
    else:
        stored = np.concatenate(parts) if parts else np.zeros(min(size, 1), dtype=np.int64)
        elements = _repeat_last(_as_dtype(stored, part_field, dtype), size)
    if len(elements) != size:
        raise event_records.MalformedMessageError(
            "a tensor has more or fewer elements than its shape"
        )
    return Tensor(dtype=dtype, shape=shape, elements=elements)


def _read_value(message: memoryview) -> Value:
    value = Value()
    for entry in event_records.read_fields(message):
        match entry.number, entry.wire_type:
            case 1, t if t == event_records.BYTES:
                value.tag = _text(entry)
            case 2, t if t == event_records.FIXED32:
                value.scalar = _float(entry)
            case 5, t if t == event_records.BYTES:
                value.histogram = entry.content
            case 8, t if t == event_records.BYTES:
                value.tensor = entry.content
            case 9, t if t == event_records.BYTES:
                value.plugins.update(_read_plugins(entry.content))
    return value


def _read_plugins(message: memoryview) -> Iterator[tuple[str, bytes]]:
    """Yield the plugins of a SummaryMetadata; Debugger's has two."""
    for entry in event_records.read_fields(message):
        if (entry.number, entry.wire_type) != (1, event_records.BYTES):
            continue
        name, content = "", b""
        for part in event_records.read_fields(entry.content):
            if (part.number, part.wire_type) == (1, event_records.BYTES):
                name = _text(part)
            elif (part.number, part.wire_type) == (2, event_records.BYTES):
                content = bytes(part.content)
        yield name, content


def _read_shape(message: memoryview) -> Iterator[int]:
    for dimension in event_records.read_fields(message):
        if (dimension.number, dimension.wire_type) == (2, event_records.BYTES):
            size = 0
            for entry in event_records.read_fields(dimension.content):
                if (entry.number, entry.wire_type) == (1, event_records.VARINT):
                    size = _signed(entry.number_value)
            yield size


def _read_elements(entry: event_records.Field) -> NDArray[Any]:
    """Read elements of a tensor, which a writer may have packed."""
    dtype = _VALUE_DTYPES[entry.number]
    if dtype != "int":
        return _from_bytes(entry.content, dtype)
    if entry.wire_type == event_records.VARINT:
        return np.array([_signed(entry.number_value)], dtype=np.int64)
    if entry.wire_type == event_records.BYTES:
        return _from_varints(entry.content)
    raise event_records.MalformedMessageError("an integer of a tensor is a float")


def _from_varints(content: memoryview) -> NDArray[np.int64]:
    """Read integers of seven bits per byte, all at once."""
    data = np.frombuffer(content, dtype=np.uint8)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    if not len(data):
        return np.empty(0, dtype=np.int64)
    if not len(ends) or ends[-1] != len(data) - 1 or (ends - starts >= 10).any():
        raise event_records.MalformedMessageError("an integer does not end")
    position = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    bits = (data & 0x7F).astype(np.uint64) << (7 * position).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64)


def _as_dtype(stored: NDArray[Any], number: int, dtype: str) -> NDArray[Any]:
    """Convert elements from a field of single elements to those of the tensor."""
    if number in _PAIR_FIELDS:
        if len(stored) % 2:
            raise event_records.MalformedMessageError("a complex number has no imaginary part")
        stored = stored[::2] + 1j * stored[1::2]
    elif number == _BIT_PATTERN_FIELD:
        bits = stored.astype(np.uint16)
        return _widen(bits) if dtype == "bfloat16" else bits.view(np.float16)
    if stored.dtype.kind == "c" and not dtype.startswith("complex"):
        raise event_records.MalformedMessageError("a real tensor has complex elements")
    with np.errstate(invalid="ignore", over="ignore"):
        return stored.astype("float32" if dtype == "bfloat16" else dtype)


def _repeat_last(stored: NDArray[Any], size: int) -> NDArray[Any]:
    """Repeat the last element up to the size of the tensor, as TensorFlow does."""
    missing = size - len(stored)
    if missing <= 0 or not len(stored):
        return stored
    if size > MAX_REPEATED_ELEMENTS:
        raise event_records.MalformedMessageError("a tensor has fewer elements than its shape")
    return np.concatenate([stored, np.repeat(stored[-1:], missing)])


def _widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return brain floats, the upper halves of single-precision floats, as the latter."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _from_bytes(content: memoryview, dtype: str) -> NDArray[Any]:
    if len(content) % np.dtype(dtype).itemsize:
        raise event_records.MalformedMessageError("the last number is incomplete")
    return np.frombuffer(content, dtype=dtype)


def _float(entry: event_records.Field) -> float:
    number: float = (_FLOAT64 if entry.wire_type == event_records.FIXED64 else _FLOAT32).unpack(
        entry.content
    )[0]
    return number


def _signed(value: int) -> int:
    return value - _MODULUS if value & _SIGN_BIT else value


def _text(entry: event_records.Field) -> str:
    return bytes(entry.content).decode(errors="replace")


class EventFile:
    """Event file, read by iteration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.value_count = 0
        """Values that the importer has taken over."""
        self.unreadable_count = 0
        """Values that it has left out because they cannot be read."""
        self._record_count = 0
        self._damage: str | None = None

    def events(self) -> Iterator[tuple[Event, int]]:
        """Yield the events and their times in epoch nanoseconds, up to the first damage.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            for payload in event_records.read_records(self.path):
                self._record_count += 1
                try:
                    event = read_event(payload)
                except event_records.MalformedMessageError:
                    self.unreadable_count += 1
                    continue
                t_ns = event.t_ns
                if t_ns is None:
                    self.unreadable_count += len(event.values)
                else:
                    yield event, t_ns
        except event_records.DamagedRecordError as error:
            self._damage = str(error)

    def result(self, form: str) -> Result:
        """Return the result of the import, after iteration."""
        if not self._record_count:
            reason = self._damage or "it is empty"
            return Refused(self.path, f"{self.path} has no events: {reason}.")
        losses = [] if self._damage is None else [self._damage]
        if self.unreadable_count:
            losses.append(
                f"{quantities.count_of(self.unreadable_count, 'value')} could not be read"
            )
        return Recorded(
            name=self.path.name,
            form=form,
            event_count=self.value_count,
            lost=" and ".join(losses) or None,
        )
