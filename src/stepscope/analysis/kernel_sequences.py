"""Sequences of kernels that operators launch again and again: candidates for fusion.

A call is an outermost operator; its sequence is the names of the kernels that it and the operators
inside it launch, by start. Calls of one operator with the same sequence form a row. Fusing the
sequence into one kernel saves at most the gaps between its kernels, and the memory traffic of
intermediate results, which a trace does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.operator_tree import find_outermost
from stepscope.schema import field_label

MIN_KERNELS = 2
MAX_KERNELS = 12
"""Longer sequences are whole parts of the model."""
MIN_REPEATS = 2
SEQUENCE_KERNEL_COLUMNS = ("name", "operator", "start_ns", "duration_ns")
SEQUENCE_OPERATOR_COLUMNS = ("id", "name", "parent")
"""Columns of `kernels` and `operators` that are read here."""


class KernelSequence(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that an operator launches one after another."""

    operator: str
    kernels: list[str]
    """Names by start."""
    repeat_count: Annotated[int, field_label("times")]
    total_ns: Annotated[int, field_label("kernel time")]
    """Sum of the durations of the kernels."""
    gap_ns: Annotated[int, field_label("gaps")]
    """Time between the kernels of a sequence, summed."""
    share_ratio: Annotated[float | None, field_label("share", display="bar")]
    """Share of the durations of all kernels."""


@dataclass(slots=True)
class _Sums:
    repeat_count: int = 0
    total_ns: int = 0
    gap_ns: int = 0


def find_kernel_sequences(
    kernels: Columns, operators: Columns, is_range: NDArray[np.bool_], *, top: int = 0
) -> list[KernelSequence]:
    """Find the sequences that repeat, by descending kernel time.

    Args:
        kernels: `SEQUENCE_KERNEL_COLUMNS`.
        operators: `SEQUENCE_OPERATOR_COLUMNS`.
        is_range: mask of the operators that are ranges around others.
        top: limit of the rows, 0 for none.
    """
    owner = find_outermost(operators, is_range, kernels["operator"])
    rows = np.flatnonzero(owner >= 0)
    if not len(rows):
        return []
    start, duration = kernels["start_ns"], kernels["duration_ns"]
    rows = rows[np.lexsort((start[rows], owner[rows]))]
    first = np.flatnonzero(np.diff(owner[rows], prepend=-1))
    sums: dict[tuple[int, tuple[int, ...]], _Sums] = {}
    name_codes, operator_codes = kernels["name"].codes, operators["name"].codes
    for call in np.split(rows, first[1:]):
        if not MIN_KERNELS <= len(call) <= MAX_KERNELS:
            continue
        names = tuple(name_codes[call].tolist())
        key = (int(operator_codes[owner[call[0]]]), names)
        one = sums.setdefault(key, _Sums())
        end = np.maximum.accumulate(start[call] + duration[call])
        one.repeat_count += 1
        one.total_ns += int(duration[call].sum())
        one.gap_ns += int(np.maximum(start[call][1:] - end[:-1], 0).sum())
    all_ns = max(1, int(duration.sum()))
    repeated = [item for item in sums.items() if item[1].repeat_count >= MIN_REPEATS]
    repeated.sort(key=lambda item: -item[1].total_ns)
    return [
        KernelSequence(
            operator=str(operators["name"].values[operator]),
            kernels=[str(kernels["name"].values[name]) for name in names],
            repeat_count=one.repeat_count,
            total_ns=one.total_ns,
            gap_ns=one.gap_ns,
            share_ratio=one.total_ns / all_ns,
        )
        for (operator, names), one in repeated[: top or None]
    ]
