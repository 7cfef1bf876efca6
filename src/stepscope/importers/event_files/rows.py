"""Rows of scalars, statistics and histograms, and the numbers that describe a tensor."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import schema, spool, store
from stepscope.importers.event_files.values import Histogram
from stepscope.quantities import count_of

VALUE_TABLES = ("scalars", "tensor_statistics", "tensor_elements", "tensor_histograms")
_LOG = "0e"
"""Log of the rows: imported files have no threads."""
_FLUSH_ROWS = 50_000
_BUCKETS_PER_ROW = 1 << 20
"""Distance of the sequence numbers of the histograms of two rows of statistics."""
_MAX_COUNT = 2.0**62


class Moment(NamedTuple):
    """Origin of a value: the process, the time and the step."""

    process: str
    t_ns: int
    """Epoch nanoseconds."""
    step: int
    mode: str = "TRAIN"


class _Extent(msgspec.Struct):
    first_ns: int
    last_ns: int


class Writer(Protocol):
    """The part of `RunWriter` that is needed."""

    def append(self, table: str, columns: Mapping[str, Any]) -> int:
        """Store rows."""
        ...

    def put_tensor(self, key: str, elements: bytes) -> None:
        """Store the elements of a tensor."""
        ...

    def put_process(self, info: schema.ProcessInfo) -> None:
        """Store the manifest of a process."""
        ...


class RowWriter(msgspec.Struct):
    """Writer of the rows of an import."""

    writer: Writer
    node: str
    _rows: defaultdict[str, list[dict[str, Any]]] = msgspec.field(
        default_factory=lambda: defaultdict(list)
    )
    _counts: defaultdict[tuple[str, str], int] = msgspec.field(
        default_factory=lambda: defaultdict(int)
    )
    """Rows so far, by table and process."""
    _extents: dict[str, _Extent] = msgspec.field(default_factory=dict)
    _element_bytes: int = 0
    _left_out: defaultdict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    """Tensors whose elements exceed the limit, by process."""

    def add_scalar(self, moment: Moment, name: str, value: float) -> None:
        """Add a number."""
        self._add("scalars", moment, {"step": moment.step, "name": name, "value": value})

    def add_tensor(
        self,
        moment: Moment,
        tensor: str,
        collection: str,
        statistics: Statistics,
        *,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        histogram: Histogram | None = None,
        elements: NDArray[Any] | None = None,
    ) -> None:
        """Add the statistics of a tensor, its histogram, and its elements in their shape."""
        labels = {
            "step": moment.step,
            "mode": moment.mode,
            "tensor": tensor,
            "collection": collection,
        }
        text = None if shape is None else "x".join(map(str, shape))
        row = {**labels, "shape": text, "dtype": dtype, **statistics}
        number = self._add("tensor_statistics", moment, row)
        if histogram is not None:
            self._add_histogram(moment, labels, histogram, number * _BUCKETS_PER_ROW)
        if elements is not None:
            self._add_elements(moment, {**labels, "shape": text or "", "dtype": dtype}, elements)

    def flush(self) -> None:
        """Store the rows."""
        for table, rows in self._rows.items():
            if rows:
                self.writer.append(table, _make_columns(table, rows))
                rows.clear()

    def finish(self, process: schema.ProcessInfo, form: str) -> None:
        """Store the rows and the manifest of a process, with the times of its values."""
        self.flush()
        extent = self._extents.get(process.process)
        if extent is not None:
            left_out, limit = (
                self._left_out[process.process],
                spool.DEFAULT_RAW_LIMIT_BYTES // 10**6,
            )
            process = msgspec.structs.replace(
                process,
                notes=[
                    f"elements of {count_of(left_out, 'tensor')} are beyond {limit} MB and "
                    "were not imported"
                ]
                if left_out
                else [],
                started_ns=extent.first_ns,
                ended_ns=extent.last_ns,
                facts=[msgspec.to_builtins(schema.ImportedFact(form=form))],
            )
            self.writer.put_process(process)

    def _add_elements(self, moment: Moment, labels: dict[str, Any], elements: NDArray[Any]) -> None:
        if self._element_bytes + elements.nbytes > spool.DEFAULT_RAW_LIMIT_BYTES:
            self._left_out[moment.process] += 1
            return
        self._element_bytes += elements.nbytes
        key = store.tensor_key(
            moment.process, _LOG, self._counts["tensor_elements", moment.process]
        )
        file = io.BytesIO()
        np.save(file, elements, allow_pickle=False)
        self.writer.put_tensor(key, file.getvalue())
        row = {**labels, "byte_count": elements.nbytes, "file": key}
        self._add("tensor_elements", moment, row)

    def _add_histogram(
        self, moment: Moment, labels: dict[str, Any], histogram: Histogram, first: int
    ) -> None:
        counts = np.nan_to_num(histogram.count, posinf=0, neginf=0)
        used = np.flatnonzero((counts >= 0.5) & (counts < _MAX_COUNT))[:_BUCKETS_PER_ROW]
        for seq, bucket in enumerate(used.tolist(), first):
            row = {
                "low": histogram.low[bucket],
                "high": histogram.limit[bucket],
                "count": round(counts[bucket]),
            }
            self._add("tensor_histograms", moment, {**labels, **row}, seq)

    def _add(self, table: str, moment: Moment, row: dict[str, Any], seq: int | None = None) -> int:
        key = table, moment.process
        number = self._counts[key] if seq is None else seq
        self._counts[key] += 1
        origin = {"node": self.node, "process": moment.process, "log": _LOG}
        self._rows[table].append({**origin, "seq": number, "t_ns": moment.t_ns, **row})
        extent = self._extents.setdefault(moment.process, _Extent(moment.t_ns, moment.t_ns))
        extent.first_ns = min(extent.first_ns, moment.t_ns)
        extent.last_ns = max(extent.last_ns, moment.t_ns)
        if len(self._rows[table]) >= _FLUSH_ROWS:
            self.flush()
        return number


def _make_columns(table: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for column in schema.TABLES[table].columns:
        values = [row.get(column.name) for row in rows]
        if column.type == "VARCHAR":
            columns[column.name] = store.DictColumn.encode(values)
        elif column.nullable:
            has_number = [value is not None and value == value for value in values]
            numbers = [
                value if is_known else 0 for value, is_known in zip(values, has_number, strict=True)
            ]
            columns[column.name] = np.ma.MaskedArray(
                np.array(numbers, dtype=np.float64 if column.type == "DOUBLE" else np.int64),
                mask=np.logical_not(has_number),
            )
        else:
            columns[column.name] = np.array(
                values, dtype=np.float64 if column.type == "DOUBLE" else np.int64
            )
    return columns


Statistics = dict[str, float]
"""Columns of `tensor_statistics` by name; those that are missing are unknown."""
_BLOCK_ELEMENTS = 1 << 20
_MAX_FACTORS = 4096


@np.errstate(over="ignore", invalid="ignore")
def describe_elements(elements: NDArray[Any]) -> Statistics:
    """Compute statistics of the elements of a tensor, in double precision.

    Args:
        elements: one-dimensional; of complex ones the absolute values are described.
    """
    element_count = len(elements)
    blocks = [
        elements[start : start + _BLOCK_ELEMENTS]
        for start in range(0, element_count, _BLOCK_ELEMENTS)
    ]
    nan_count = sum(int(np.isnan(block).sum()) for block in blocks)
    zero_count = sum(int((block == 0).sum()) for block in blocks)
    finite_count = sum(int(np.isfinite(block).sum()) for block in blocks)
    statistics: Statistics = {
        "element_count": element_count,
        "nan_count": nan_count,
        "infinite_count": element_count - finite_count - nan_count,
        "zero_count": zero_count,
    }
    if not finite_count:
        return statistics
    mean = sum(float(_finite(block).sum()) for block in blocks) / finite_count
    deviations = sum(float(((_finite(block) - mean) ** 2).sum()) for block in blocks)
    squares = sum(float((_finite(block) ** 2).sum()) for block in blocks)
    statistics |= {
        "min": min(float(_finite(block).min(initial=math.inf)) for block in blocks),
        "max": max(float(_finite(block).max(initial=-math.inf)) for block in blocks),
        "mean": mean,
        "std": math.sqrt(deviations / finite_count),
        "l1": sum(float(np.abs(_finite(block)).sum()) for block in blocks),
        "l2": math.sqrt(squares),
    }
    if element_count <= _MAX_FACTORS:
        statistics["product"] = float(np.prod(_finite(elements)))
    return statistics


def describe_histogram(histogram: Histogram) -> Statistics:
    """Return what a histogram states about its elements.

    The standard deviation follows from the sums of the elements and of their squares: of elements
    much larger than their differences it has few correct digits.
    """
    count = histogram.element_count
    if not 0 < count < 2**63:
        return {"element_count": 0} if count == 0 else {}
    mean = histogram.sum / count
    return {
        "element_count": round(count),
        "min": histogram.min,
        "max": histogram.max,
        "mean": mean,
        "std": math.sqrt(max(0.0, histogram.square_sum / count - mean * mean)),
        "l2": math.sqrt(max(0.0, histogram.square_sum)),
    }


_REDUCTIONS = {
    "min": "min", "max": "max", "mean": "mean", "std": "std", "prod": "product", "l1": "l1",
    "l2": "l2", "abs_sum": "l1", "abs_l1": "l1", "abs_l2": "l2",
}  # fmt: skip
"""Reductions of SageMaker Debugger and the columns with the same number."""


def describe_reductions(reductions: dict[str, float], element_count: int | None) -> Statistics:
    """Return the statistics that reductions of SageMaker Debugger give; others stay unknown.

    Args:
        reductions: values by name, such as `mean`, `abs_mean` or `l2`.
        element_count: elements of the tensor; None if unknown.
    """
    statistics = {
        _REDUCTIONS[name]: value for name, value in reductions.items() if name in _REDUCTIONS
    }
    variance = reductions.get("variance", math.nan)
    if variance >= 0:
        statistics.setdefault("std", math.sqrt(variance))
    if element_count:
        statistics["element_count"] = element_count
        if "sum" in reductions:
            statistics.setdefault("mean", reductions["sum"] / element_count)
        if "abs_mean" in reductions:
            statistics.setdefault("l1", reductions["abs_mean"] * element_count)
    return statistics


def _finite(block: NDArray[Any]) -> NDArray[np.float64]:
    """Return the finite elements, or absolute values of complex ones, as doubles."""
    values = np.abs(block) if block.dtype.kind == "c" else block
    finite: NDArray[np.float64] = values[np.isfinite(block)].astype(np.float64)
    return finite
