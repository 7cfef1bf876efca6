"""Lengths of the sequences in the batches of inference servers, from the names of annotations.

Servers name each step after its batch. Where they sum the lengths of its sequences, with q new
tokens and k tokens each, the work of attention is known:

    vLLM    execute_…_context_n(sq…sk…sqsq…sqsk…)_generation_n(sq…sk…sqsq…sqsk…)
    SGLang  step[… c_sq=… c_sk=… c_sqsq=… c_sqsk=… g_sq=… …]

with Σ q, Σ k, Σ q² and Σ q k of sequences that are read (context, c) and continued (generation, g).
Other names have at most the number of new tokens. Source of the names: TraceLens
(https://github.com/AMD-AGI/TraceLens/blob/main/TraceLens/TraceUtils/annotation_utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.columns import Columns
from stepscope.analysis.roofline.calls import BatchLengths
from stepscope.intervals import Int

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
    start_ns: Int, annotations: Columns | None
) -> tuple[Int, Sequence[BatchLengths | None]]:
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
