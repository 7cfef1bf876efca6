"""Figures of traces and tensors that rules evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from stepscope.analysis import ActivityKind, GpuTime, TensorValues
from tests.support.fake_rule_inputs import ORIGIN_NS, SECOND_NS


def make_gpu_time(total: int, exposed: int) -> GpuTime:
    """Make a GPU that is busy all the time, some of it with exposed communication."""
    return GpuTime(
        total_ns=total,
        busy_ns=total,
        idle_ns=0,
        compute_ns=total - exposed,
        memset_ns=0,
        comm_ns=exposed,
        exposed_comm_ns=exposed,
        exposed_memcpy_ns=0,
        same_stream_overlap_count=0,
        gpu_event_count=1,
    )


def synchronizations(count: int) -> list[ActivityKind]:
    kind = "synchronization"
    return [ActivityKind(kind=kind, count=count, total_ns=5, share_ratio=1.0, mean_ns=None)]


def matrix(
    name: str,
    collection: str,
    columns: Mapping[str, ArrayLike],
    *,
    rows: Sequence[str] | None = None,
    step: int = 0,
    process: str = "p0",
    t_ns: int | None = None,
) -> TensorValues:
    """Make a matrix of a step, recorded half a second after as many seconds by default."""
    values = np.stack([np.asarray(column, np.float64) for column in columns.values()], axis=1)
    return TensorValues(
        name=name,
        collection=collection,
        process=process,
        rank=int(process[1:]),
        mode="TRAIN",
        step=step,
        t_ns=ORIGIN_NS + round((step + 0.5) * SECOND_NS) if t_ns is None else t_ns,
        rows=tuple(map(str, range(len(values))) if rows is None else rows),
        columns=tuple(columns),
        values=values,
    )
