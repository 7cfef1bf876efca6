"""Rows of tensors in a spool become rows of tables, exactly once; see `stepscope.spool.row_log`."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema, spool, store

STATISTICS, HISTOGRAMS = "tensor_statistics", "tensor_histograms"
TABLES = (spool.TENSOR_ELEMENTS, STATISTICS, HISTOGRAMS, spool.TENSOR_VALUES)
"""In the order in which they are stored: who sees statistics finds the elements."""
NUMPY_TYPES = {
    **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128", "bool")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bfloat16": "uint16",
    "complex32": "uint32",
}
"""Types in NumPy of the elements of PyTorch's; others are stored byte by byte."""
BINS_PER_ROW = 64
SIDE_BINS = 31
"""Bins of a histogram on each side of zero."""
_SIGN, _INFINITE, _BIAS = 256, 255, 127
"""Of single-precision numbers: the sign above the exponent field, the field of those that are not
finite, and the field of 2**0."""
_VALUE_NAMES = ("tensor", "row", "column")
_COUNTS = ("element_count", "nan_count", "infinite_count", "zero_count")
_STATISTICS = {
    *_COUNTS,
    *("min", "max", "sum", "deviation_square_sum", "abs_sum", "product", "update_square_sum"),
}


class _Header(msgspec.Struct):
    first: int
    count: int
    t_ns: int
    step: int
    mode: str
    statistics: list[str] = []
    table: str = STATISTICS


class _Labels(msgspec.Struct):
    collection: str = ""
    shape: list[int] = []
    dtype: str = ""


class RowFile(msgspec.Struct):
    """File of rows, and the tables that do not have them yet."""

    path: Path
    log: str
    header: _Header
    names: dict[str, NDArray[np.int64]]
    """Numbers of the names of each row: `tensor`; of single numbers also `row` and `column`."""
    numbers: dict[str, NDArray[np.float64]]
    """Statistics by name; or `value`; or `byte_count`."""
    powers: NDArray[np.int32] | None
    """(row, sign and exponent) -> elements."""
    missing: set[str] = msgspec.field(default_factory=set)


class NewRows(msgspec.Struct):
    """Rows of one file for one table."""

    process: str
    names: Mapping[int, tuple[str, str | None]]
    """Text and labels of the names of the process."""
    file: RowFile
    table: str

    @property
    def element_key(self) -> str:
        """Key of the file with the elements of a tensor."""
        return store.tensor_key(self.process, self.file.log, self.file.header.first)

    def commit(self) -> None:
        """Note that they are stored; remove the file when all of its rows are."""
        self.file.missing.discard(self.table)
        if not self.file.missing:
            self.file.path.unlink(missing_ok=True)


StoredSequences = Callable[[str, str, str, int, int], NDArray[np.int64]]


def open_row_file(path: Path, process: str, log: str, stored: StoredSequences) -> RowFile | None:
    """Read a file of rows; None if it is missing, or was not written by stepscope.

    Args:
        process: name of the process.
        log: name of the log.
        stored: finds the sequence numbers that the store already has.
    """
    try:
        fields, columns = spool.read_rows(path.read_bytes())
        header = msgspec.convert(fields, _Header)
        names = {
            name: np.frombuffer(columns[name][2], dtype=np.int64)
            for name in (_VALUE_NAMES if header.table == spool.TENSOR_VALUES else _VALUE_NAMES[:1])
        }
        numbers = _read_numbers(header, columns)
    except (FileNotFoundError, KeyError, ValueError, msgspec.ValidationError):
        return None
    if any(len(column) != header.count for column in (*names.values(), *numbers.values())):
        return None
    powers = None
    if "powers" in columns:
        powers = np.frombuffer(columns["powers"][2], dtype=np.int32).reshape(-1, spool.POWER_BINS)
    file = RowFile(path, log, header, names, numbers, powers)
    for table, scale in ((header.table, 1), (HISTOGRAMS, BINS_PER_ROW)):
        if table != HISTOGRAMS or powers is not None:
            first, count = header.first * scale, header.count * scale
            if not len(stored(table, process, log, first, count)):
                file.missing.add(table)
    return file


def _read_numbers(header: _Header, columns: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Read the numbers of all rows by name.

    Raises:
        KeyError: some are missing.
        ValueError: the file is of another table, or a number is missing.
    """
    if header.table == spool.TENSOR_ELEMENTS:
        return {"byte_count": np.array([columns["elements"][1]], dtype=np.float64)}
    if header.table == spool.TENSOR_VALUES:
        return {"value": np.frombuffer(columns["value"][2], dtype=np.float64)}
    if header.table != STATISTICS or not set(header.statistics) >= _STATISTICS:
        raise ValueError(header.table)
    values = np.frombuffer(columns["statistics"][2], dtype=np.float64)
    values = values.reshape(header.count, len(header.statistics))
    return {name: values[:, i] for i, name in enumerate(header.statistics)}


class RowColumns:
    """Columns of the tables, from rows of several files.

    Args:
        node: name of the node.
        epoch_offset_ns: epoch time minus monotonic time of the node.
        rows: rows for one table.
    """

    def __init__(self, node: str, epoch_offset_ns: int, rows: Sequence[NewRows]) -> None:
        self._node = node
        self._offset_ns = epoch_offset_ns
        self._rows = rows
        self._sizes = [row.file.header.count for row in rows]
        self._names = self._resolve("tensor")
        decoded = {text: _decode_labels(text) for text in {text for _, text in self._names}}
        self._labels = [decoded[text] for _, text in self._names]

    def make(self) -> dict[str, Any]:
        """Return the columns in the form that the store appends."""
        match self._rows[0].table:
            case "tensor_statistics":
                return self._make_statistics()
            case "tensor_values":
                return self._make_values()
            case "tensor_elements":
                return self._make_elements()
        return self._make_histograms()

    def _resolve(self, column: str) -> list[tuple[str, str | None]]:
        """Return the text and labels of each row's name in a column."""
        return [
            row.names.get(number, ("", None)) if number >= 0 else (str(-1 - number), None)
            for row in self._rows
            for number in row.file.names[column].tolist()
        ]

    def _make_values(self) -> dict[str, Any]:
        values = np.concatenate([row.file.numbers["value"] for row in self._rows])
        return {
            **self._describe(),
            "row_name": store.DictColumn.encode(text for text, _ in self._resolve("row")),
            "column_name": store.DictColumn.encode(text for text, _ in self._resolve("column")),
            "value": _nullable(values),
        }

    def _make_elements(self) -> dict[str, Any]:
        byte_counts = np.concatenate([row.file.numbers["byte_count"] for row in self._rows])
        return {
            **self._describe(),
            **self._describe_shapes(),
            "byte_count": byte_counts.astype(np.int64),
            "file": store.DictColumn.encode(row.element_key for row in self._rows),
        }

    def read_elements(self) -> Iterator[tuple[str, bytes]]:
        """Yield the key and the content of the files with the elements of tensors."""
        for row, label in zip(self._rows, self._labels, strict=True):
            _, columns = spool.read_rows(row.file.path.read_bytes())
            yield row.element_key, _make_npy(columns["elements"][2], label)

    def _describe_shapes(self) -> dict[str, Any]:
        return {
            "shape": store.DictColumn.encode(
                "x".join(map(str, label.shape)) for label in self._labels
            ),
            "dtype": store.DictColumn.encode(label.dtype for label in self._labels),
        }

    def _make_statistics(self) -> dict[str, Any]:
        numbers = {
            name: np.concatenate([row.file.numbers[name] for row in self._rows])
            for name in self._rows[0].file.numbers
        }
        counts = {name: numbers[name].astype(np.int64) for name in _COUNTS}
        finite = numbers["element_count"] - numbers["nan_count"] - numbers["infinite_count"]
        finite[finite == 0] = np.nan
        mean, deviations = numbers["sum"] / finite, numbers["deviation_square_sum"]
        return {
            **self._describe(),
            **self._describe_shapes(),
            **counts,
            "min": _nullable(numbers["min"]),
            "max": _nullable(numbers["max"]),
            "mean": _nullable(mean),
            "std": _nullable(np.sqrt(deviations / finite)),
            "l1": _nullable(numbers["abs_sum"]),
            "l2": _nullable(np.sqrt(deviations + finite * mean**2)),
            "product": _nullable(numbers["product"]),
            "update_l2": _nullable(np.sqrt(numbers["update_square_sum"])),
        }

    def _make_histograms(self) -> dict[str, Any]:
        powers = np.concatenate(
            [row.file.powers for row in self._rows if row.file.powers is not None]
        )
        exponents, bins = narrow(powers)
        row, position = np.nonzero(bins)
        low, high = bin_edges(exponents[row], position - SIDE_BINS)
        columns: dict[str, Any] = {
            name: store.DictColumn(column.codes[row], column.values)
            if isinstance(column, store.DictColumn)
            else column[row]
            for name, column in self._describe().items()
        }
        columns["seq"] = columns["seq"] * BINS_PER_ROW + position
        return {**columns, "low": low, "high": high, "count": bins[row, position].astype(np.int64)}

    def _describe(self) -> dict[str, Any]:
        headers = [row.file.header for row in self._rows]
        return {
            "node": store.DictColumn.constant(self._node, sum(self._sizes)),
            "process": self._repeat([row.process for row in self._rows]),
            "log": self._repeat([row.file.log for row in self._rows]),
            "seq": np.concatenate([h.first + np.arange(h.count) for h in headers]),
            "t_ns": np.repeat([h.t_ns + self._offset_ns for h in headers], self._sizes),
            "step": np.repeat([h.step for h in headers], self._sizes),
            "mode": self._repeat([h.mode for h in headers]),
            "tensor": store.DictColumn.encode(name for name, _ in self._names),
            "collection": store.DictColumn.encode(label.collection for label in self._labels),
        }

    def _repeat(self, texts: Sequence[str]) -> store.DictColumn:
        column = store.DictColumn.encode(texts)
        return store.DictColumn(np.repeat(column.codes, self._sizes), column.values)


def narrow(powers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Reduce histograms by sign and power of two to bins around zero.

    Args:
        powers: (row, 256 s + e) -> elements of sign `s` (1 if negative) and exponent field `e`.

    Returns:
        The exponent `x` of each row's largest element, whose absolute value is below 2**(x + 1),
        and (row, `SIDE_BINS` + k) -> elements: k = 0 are those below 2**(x - 30) in absolute value,
        k > 0 those in [2**(x - 31 + k), 2**(x - 30 + k)), and -k those of the opposite sign.
        Elements that are not finite are in no bin.
    """
    positive, negative = powers[:, :_INFINITE], powers[:, _SIGN : _SIGN + _INFINITE]
    fields = np.arange(_INFINITE)
    top = np.max(np.where(positive + negative > 0, fields, 1), axis=1)
    distance = np.maximum(SIDE_BINS - (top[:, None] - fields), 0)
    distance[:, 0] = 0  # zeros and subnormal numbers
    bins = np.zeros((len(powers), 2 * SIDE_BINS + 1), dtype=np.int32)
    rows = np.arange(len(powers))[:, None]
    is_used = fields <= top[:, None]
    for counts, sign in ((positive, 1), (negative, -1)):
        np.add.at(bins, (rows, SIDE_BINS + sign * np.where(is_used, distance, 0)), counts)
    return top - _BIAS, bins


def bin_edges(
    exponents: NDArray[np.int64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper ends of bins.

    Args:
        exponents: exponent of the largest element of the histogram of each bin.
        offsets: position of each bin, 0 for the one around zero.
    """
    outer = np.exp2(exponents - SIDE_BINS + 1.0 + np.abs(offsets))
    inner = np.where(offsets == 0, -outer, outer / 2)
    return np.where(offsets < 0, -outer, inner), np.where(offsets < 0, -inner, outer)


def _make_npy(content: bytes, label: _Labels) -> bytes:
    """Return a file of NumPy's format: https://numpy.org/doc/stable/reference/generated/
    numpy.lib.format.html"""
    dtype, shape = NUMPY_TYPES.get(label.dtype, "uint8"), label.shape
    elements = np.frombuffer(content, dtype=dtype)
    if elements.size == math.prod(shape):  # else of a type that is not known
        elements = elements.reshape(shape)
    file = io.BytesIO()
    np.save(file, elements, allow_pickle=False)
    return file.getvalue()


def _decode_labels(text: str | None) -> _Labels:
    try:
        return msgspec.json.decode(text or "{}", type=_Labels)
    except schema.MALFORMED_JSON:
        return _Labels()


def _nullable(values: NDArray[np.float64]) -> Any:
    return np.ma.MaskedArray(values, mask=np.isnan(values))
