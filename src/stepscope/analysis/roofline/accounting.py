"""Attribution of device time to operator calls, and lengths of sequences in inference batches.

A kernel belongs to the operator that launched it, and is attributed to the outermost enclosing
operator with a model: `_scaled_dot_product_flash_attention` rather than the
`_flash_attention_forward` inside it. Without such an operator it is attributed to its launcher. So
no parent counts in addition to its children, and no kernel counts twice. Per call,

    device time = union of its kernels, copies and sets

In a trace without devices, host self times are used instead.

Lengths of the sequences in the batches of inference servers, from the names of annotations. Servers
name each step after its batch. Where they sum the lengths of its sequences, with q new tokens and k
tokens each, the work of attention is known:

    vLLM    execute_…_context_n(sq…sk…sqsq…sqsk…)_generation_n(sq…sk…sqsq…sqsk…)
    SGLang  step[… c_sq=… c_sk=… c_sqsq=… c_sqsk=… g_sq=… …]

with Σ q, Σ k, Σ q² and Σ q k of sequences that are read (context, c) and continued (generation, g).
Other names have at most the number of new tokens. Source of the names: TraceLens
(https://github.com/AMD-AGI/TraceLens/blob/main/TraceLens/TraceUtils/annotation_utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Strings, group_rows
from stepscope.analysis.kernel_classes import is_communication, is_host_communication, match_rows
from stepscope.analysis.operators.operator_tree import find_rows
from stepscope.analysis.roofline.calls import MATRIX_FAMILIES, BatchLengths, Call, Family, Work
from stepscope.analysis.roofline.registry import OperatorModel, estimate_work, find_model
from stepscope.analysis.roofline.serving import BATCH_OPERATORS

SIGNATURE_COLUMNS = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns of `operators` that distinguish calls."""
ROOFLINE_OPERATOR_COLUMNS = ("id", "parent", "start_ns", *SIGNATURE_COLUMNS)
"""Columns of `operators` that `account_device_time` reads, of rows that launched device work or
have such a row below them."""
HOST_COLUMNS = (*ROOFLINE_OPERATOR_COLUMNS, "host_self_ns")
"""Columns of all operators that it reads in a trace without devices."""
EVENT_COLUMNS = ("operator", "name", "start_ns", "duration_ns", "carry_over")
"""Columns of `kernels` and of `copies` that `account_device_time` reads."""

_TF32 = re.compile(r"tf32|xf32|s1688gemm", re.IGNORECASE)
_HOST_COPY = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost", re.IGNORECASE)
_WINDOW = re.compile(r"sliding", re.IGNORECASE)
_decoder = msgspec.json.Decoder()


class CallSignature(msgspec.Struct, frozen=True, kw_only=True):
    """One operator with one set of arguments."""

    name: str
    dims: str | None
    types: str | None
    strides: str | None
    values: str | None
    family: Family | None
    """Family of the model; None for an operator without a model."""
    work: Work | None
    reason: str | None
    """Reason for missing figures."""

    @property
    def is_matrix(self) -> bool:
        """True if the operator is for matrix units, even if its work is unknown."""
        return self.family in MATRIX_FAMILIES


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the calls with work on a device (or the host); arrays have one entry per call."""

    signatures: Sequence[CallSignature]
    signature: intervals.Int
    """Index into `signatures`."""
    start_ns: intervals.Int
    """Start of the call on the host."""
    busy_ns: intervals.Int
    """Union of the device work that the call launched, or its host time."""
    tf32: NDArray[np.bool_]
    """True if a kernel of the call multiplies in TF32 when the operands are FP32."""
    host_copy: NDArray[np.bool_]
    """True for copies between host and device: memory bandwidth does not bound them."""
    communication: NDArray[np.bool_]
    """True for collectives: the network bounds them."""
    on_device: bool
    unlinked_ns: int
    """Sum of the device time of work in the window whose operator is unknown."""
    carry_over_ns: int
    """Sum of the device time of work launched before the window."""

    @property
    def communication_ns(self) -> int:
        """Time of collectives."""
        return int(self.busy_ns[self.communication].sum())

    @property
    def total_ns(self) -> int:
        """Time of all other calls and of work whose operator is unknown."""
        return int(self.busy_ns.sum()) - self.communication_ns + self.unlinked_ns


class _Events(msgspec.Struct, frozen=True):
    """Device work; `name` indexes `names`."""

    operator: intervals.Int
    name: intervals.Int
    start: intervals.Int
    duration: intervals.Int
    names: list[str]

    def take(self, rows: NDArray[Any]) -> _Events:
        return _Events(
            self.operator[rows], self.name[rows], self.start[rows], self.duration[rows], self.names
        )


def account_device_time(
    operators: Columns,
    kernels: Columns | None,
    copies: Columns | None,
    annotations: Columns | None = None,
) -> Account:
    """Attribute the device time of a trace to operator calls.

    Args:
        operators: see `ROOFLINE_OPERATOR_COLUMNS` and `HOST_COLUMNS`.
        kernels, copies: see `EVENT_COLUMNS`; both None, or without rows, for a trace of the host
            alone.
        annotations: see `BATCH_COLUMNS`; None for none.
    """
    tables = [table for table in (kernels, copies) if table is not None]
    events, carry_over_ns = _combine_events(tables)
    on_device = bool(len(events.start)) or carry_over_ns > 0
    row = find_rows(operators["id"], events.operator) if on_device else None
    batch, batches = find_batches(operators["start_ns"], annotations)
    batch[~match_rows(operators["name"], BATCH_OPERATORS.__contains__)] = 0
    if row is not None and len(batches) > 1:
        batch[_find_windowed_rows(events, row)] = 0
    grouping = group_rows(*(operators[column].codes for column in SIGNATURE_COLUMNS), batch)
    signature = grouping.group
    kernel_names = _find_kernel_names(signature, events, row) if row is not None else {}
    signatures = [
        _describe_signature(
            operators, int(first), kernel_names.get(code), batches[int(batch[first])]
        )
        for code, first in enumerate(grouping.first)
    ]
    models = [find_model(s.name) for s in signatures]
    if row is None:
        signatures = _drop_wrappers(operators, signature, signatures, models)
    owner = _find_owners(operators, signature, signatures, models)
    if row is None:
        return _account_host_time(operators, signature, signatures, owner)
    linked = row >= 0
    calls, call_of_event = np.unique(owner[row[linked]], return_inverse=True)
    linked_events = events.take(linked)
    return Account(
        signatures=signatures,
        signature=signature[calls],
        start_ns=operators["start_ns"][calls],
        busy_ns=_measure_unions(call_of_event, linked_events, len(calls)),
        tf32=_has_event_named(_is_tf32, call_of_event, linked_events, len(calls)),
        host_copy=_has_event_named(_is_host_copy, call_of_event, linked_events, len(calls)),
        communication=_has_event_named(is_communication, call_of_event, linked_events, len(calls)),
        on_device=True,
        unlinked_ns=int(events.duration[~linked].sum()),
        carry_over_ns=carry_over_ns,
    )


def _account_host_time(
    operators: Columns,
    signature: intervals.Int,
    signatures: Sequence[CallSignature],
    owner: intervals.Int,
) -> Account:
    calls, call_of_row = np.unique(owner, return_inverse=True)
    busy_ns = np.zeros(len(calls), dtype=np.int64)
    np.add.at(busy_ns, call_of_row, np.maximum(operators["host_self_ns"], 0))
    none = np.zeros(len(calls), dtype=np.bool_)
    return Account(
        signatures=signatures,
        signature=signature[calls],
        start_ns=operators["start_ns"][calls],
        busy_ns=busy_ns,
        tf32=none,
        host_copy=none,
        communication=match_rows(operators["name"], _is_host_collective)[calls],
        on_device=False,
        unlinked_ns=0,
        carry_over_ns=0,
    )


def _combine_events(tables: list[Columns]) -> tuple[_Events, int]:
    """Combine the work launched in the window, and sum the time of work launched before."""
    names: list[str] = []
    parts: list[
        tuple[intervals.Int, intervals.Int, intervals.Int, intervals.Int, intervals.Int]
    ] = []
    for table in tables:
        strings: Strings = table["name"]
        codes = np.asarray(strings.codes, dtype=np.int64) + len(names)
        names.extend(value or "" for value in strings.values)
        parts.append(
            (
                np.asarray(table["operator"], dtype=np.int64),
                codes,
                table["start_ns"],
                table["duration_ns"],
                np.asarray(table["carry_over"], dtype=np.int64),
            )
        )
    empty = np.empty(0, dtype=np.int64)
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [empty] * 5
    operator, name, start, duration, carry_over = columns
    events = _Events(operator, name, start, duration, names)
    valid = duration > 0
    carry_over_ns = int(duration[valid & (carry_over == 1)].sum())
    return events.take(valid & (carry_over != 1)), carry_over_ns


def _find_windowed_rows(events: _Events, row: intervals.Int) -> intervals.Int:
    """Find the rows that launched attention within a window, which lengths do not tell."""
    windowed = np.array([_WINDOW.search(name) is not None for name in events.names], dtype=np.bool_)
    return row[(row >= 0) & windowed[events.name]]


def _describe_signature(
    operators: Columns, row: int, kernel: str | None, batch: BatchLengths | None
) -> CallSignature:
    """Describe the signature of a row, with the work that its model estimates."""
    texts = [_look_up_text(operators[column], row) for column in SIGNATURE_COLUMNS]
    name, dims, types, strides, values = texts
    model = find_model(name or "")
    work: Work | str = "the operator has no model"
    if model is not None:
        work = "the shapes of its arguments were not recorded"
        if dims and types:
            try:
                call = Call(
                    name=name or "",
                    dims=_decoder.decode(dims),
                    types=_decoder.decode(types),
                    strides=_decoder.decode(strides) if strides else (),
                    values=_decoder.decode(values) if values else (),
                    kernel=kernel,
                    batch=batch,
                )
            except schema.MALFORMED_JSON:
                work = "its recorded arguments cannot be read"
            else:
                work = estimate_work(call)
    return CallSignature(
        name=name or "",
        dims=dims,
        types=types,
        strides=strides,
        values=values,
        family=model.family if model is not None else None,
        work=work if isinstance(work, Work) else None,
        reason=work if isinstance(work, str) else None,
    )


def _look_up_text(strings: Strings, row: int) -> str | None:
    code = int(strings.codes[row])
    return strings.values[code] if code >= 0 else None


def _find_kernel_names(
    signature: intervals.Int, events: _Events, row: intervals.Int
) -> dict[int, str]:
    """Find the name of one kernel that calls of each signature launched themselves."""
    linked = np.flatnonzero(row >= 0)
    codes, first = np.unique(signature[row[linked]], return_index=True)
    return {
        int(code): events.names[int(events.name[linked[index]])]
        for code, index in zip(codes, first, strict=True)
    }


def _find_owners(
    operators: Columns,
    signature: intervals.Int,
    signatures: Sequence[CallSignature],
    models: Sequence[OperatorModel | None],
) -> intervals.Int:
    """Find the row that the work of each row is attributed to."""
    owns_descendants = np.array(
        [
            model is not None and not model.leaf_only and described.work is not None
            for model, described in zip(models, signatures, strict=True)
        ],
        dtype=np.bool_,
    )[signature]
    owner = np.arange(len(signature), dtype=np.int64)
    parent = find_rows(operators["id"], operators["parent"])
    rows = np.flatnonzero(parent >= 0)
    ancestor = parent[rows]
    while len(rows):
        owns = owns_descendants[ancestor]
        owner[rows[owns]] = ancestor[owns]
        ancestor = parent[ancestor]
        rows, ancestor = rows[ancestor >= 0], ancestor[ancestor >= 0]
    return owner


def _measure_unions(call: intervals.Int, events: _Events, count: int) -> intervals.Int:
    """Measure the union of the events of each call.

    Calls are shifted to follow each other on one axis, so that one union serves all of them.
    """
    event_end = events.start + events.duration
    start: intervals.Int = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start, call, events.start)
    end: intervals.Int = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(end, call, event_end)
    length: intervals.Int = end - start
    has_one_event = np.bincount(call, minlength=count) == 1
    rows = ~has_one_event[call]
    if not rows.any():
        return length
    base = np.cumsum(length + 1) - length - 1
    shift = (base - start)[call[rows]]
    merged = intervals.union(
        intervals.Intervals(events.start[rows] + shift, event_end[rows] + shift)
    )
    covered = np.zeros(count, dtype=np.int64)
    owner = np.searchsorted(base, merged.start, side="right") - 1
    np.add.at(covered, owner, merged.end - merged.start)
    return np.where(has_one_event, length, covered).astype(np.int64)


def _drop_wrappers(
    operators: Columns,
    signature: intervals.Int,
    signatures: Sequence[CallSignature],
    models: Sequence[OperatorModel | None],
) -> list[CallSignature]:
    """Drop the models of wrappers, for host times.

    Every operator takes some time on the host, so a wrapper is one that calls operators.
    """
    parent = find_rows(operators["id"], operators["parent"])
    calls_operators = np.zeros(len(signatures), dtype=np.bool_)
    calls_operators[signature[parent[parent >= 0]]] = True
    return [
        replace(
            described, family=None, work=None, reason="its work is in the operators that it calls"
        )
        if model is not None and model.leaf_only and calls_operators[code]
        else described
        for code, (described, model) in enumerate(zip(signatures, models, strict=True))
    ]


def _is_tf32(name: str) -> bool:
    return _TF32.search(name) is not None


def _is_host_copy(name: str) -> bool:
    return _HOST_COPY.search(name) is not None


def _is_host_collective(name: str) -> bool:
    return (
        name == "record_param_comms"
        or name.startswith("c10d::")
        or is_communication(name)
        or is_host_communication(name)
    )


def _has_event_named(
    predicate: Callable[[str], bool], call: intervals.Int, events: _Events, count: int
) -> NDArray[np.bool_]:
    """Mask the calls with an event whose name satisfies a predicate."""
    matches = np.array([predicate(name) for name in events.names], dtype=np.bool_)
    mask = np.zeros(count, dtype=np.bool_)
    if matches.any():
        mask[call[matches[events.name]]] = True
    return mask


BATCH_COLUMNS = ("name", "on_device", "start_ns", "duration_ns")
"""Columns of `annotations` that `find_batches` reads."""
BATCH_CONDITION = "name LIKE '%sqsk%'"
"""Rows of `annotations` that can hold lengths."""

_FIELDS = {"sq": "queries", "sk": "keys", "sqsq": "squares", "sqsk": "products"}
_NAME = re.compile(r"execute_\d+_context_\d+\(|step\[")
_SUM = re.compile(r"(sqsq|sqsk|sq|sk)=?(\d+)")


def parse_batch(name: str) -> BatchLengths | None:
    """Parse the name of an annotation; None if it does not hold the lengths.

    >>> parse_batch("execute_5_context_1(sq3sk7sqsq9sqsk21)_generation_2(sq2sk9sqsq2sqsk9)")
    BatchLengths(queries=5, keys=16, squares=11, products=30)
    """
    if _NAME.match(name) is None:
        return None
    totals: dict[str, int] = {}
    for kind, text in _SUM.findall(name):
        totals[kind] = totals.get(kind, 0) + int(text)
    if totals.keys() != _FIELDS.keys():
        return None
    return BatchLengths(**{field: totals[kind] for kind, field in _FIELDS.items()})


def find_batches(
    start_ns: intervals.Int, annotations: Columns | None
) -> tuple[intervals.Int, Sequence[BatchLengths | None]]:
    """Find the batch that the host works on at given times.

    Args:
        start_ns: times.
        annotations: see `BATCH_COLUMNS`; None for none.

    Returns:
        For each time the index of its batch, and the batches; the first is None, for no batch.
    """
    batches: list[BatchLengths | None] = [None]
    index = np.zeros(len(start_ns), dtype=np.int64)
    if annotations is None:
        return index, batches
    codes = {
        code: batch
        for code, name in enumerate(annotations["name"].values)
        if (batch := parse_batch(name or "")) is not None
    }
    is_batch = np.isin(annotations["name"].codes, list(codes)) & (annotations["on_device"] == 0)
    rows = np.flatnonzero(is_batch)
    rows = rows[np.argsort(annotations["start_ns"][rows], kind="stable")]
    if not len(rows):
        return index, batches
    batches += [codes[code] for code in annotations["name"].codes[rows].tolist()]
    batch_start, duration = annotations["start_ns"][rows], annotations["duration_ns"][rows]
    position = np.searchsorted(batch_start, start_ns, side="right") - 1
    inside = (position >= 0) & (start_ns < (batch_start + duration)[position])
    index[inside] = position[inside] + 1
    return index, batches
