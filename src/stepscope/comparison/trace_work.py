"""Work of a trace for the contract: shapes of the layers that its operators carry out.

A trace of a profiler names neither the model nor its DataLoader. Where it was recorded with shapes,
the inputs of layer operators show both: one input is the layer's weight, and the leading dimension
of the other is the number of samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from stepscope.run import Trace
from stepscope.schema import MALFORMED_JSON

LAYERS: Mapping[str, tuple[int, int]] = {
    **{f"aten::conv{dimensions}d": (0, 1) for dimensions in (1, 2, 3)},
    "aten::linear": (0, 1),
    "aten::embedding": (1, 0),
}
"""Operators of PyTorch that carry out a layer, with the indices of its input and of its weight:
https://docs.pytorch.org/docs/stable/nn.functional.html."""


@dataclass(frozen=True, slots=True)
class TraceWork:
    """Layers of the forward passes of a trace."""

    weights: frozenset[tuple[str, str]]
    """Operator and shape of every different weight."""
    batch: int
    """Most frequent leading dimension of the inputs of layers."""


def describe_trace_work(trace: Trace) -> TraceWork | None:
    """Describe the layers of a trace; None if it has no layers with shapes."""
    rows = trace.reader.sql(
        "SELECT name, input_dims, count(*) AS calls FROM operators WHERE trace = ? "
        "AND input_dims IS NOT NULL AND list_contains(?, name) GROUP BY ALL",
        [trace.trace, list(LAYERS)],
        traces=[trace.trace],
    )
    weights: set[tuple[str, str]] = set()
    batches: Counter[int] = Counter()
    for name, text, calls in zip(rows["name"], rows["input_dims"], rows["calls"], strict=True):
        shapes = _parse_shapes(text)
        data, weight = LAYERS[name]
        if len(shapes) <= max(data, weight) or not shapes[data] or not shapes[weight]:
            continue
        weights.add((name, str(shapes[weight])))
        batches[shapes[data][0]] += int(calls)
    if not weights:
        return None
    return TraceWork(
        weights=frozenset(weights),
        batch=max(batches, key=lambda size: (batches[size], size)),
    )


def _parse_shapes(text: str) -> list[list[int]]:
    """Parse recorded shapes; lists of tensors are nested deeper, and no layer has one."""
    try:
        return msgspec.json.decode(text, type=list[list[int]])
    except MALFORMED_JSON:
        return []
