"""Utilization of devices over time, against every nanosecond counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import (
    DeviceWork,
    cut_into_buckets,
    find_recorded_kernels,
    measure_recorded_utilization,
)

END = 100
Piece = tuple[int, int, int, int]
"""Start, duration, kind and device of a piece of work."""


def make_work(pieces: list[Piece]) -> DeviceWork:
    start, duration, kind, device = np.array(pieces, dtype=np.int64).reshape(-1, 4).T
    nothing = np.zeros(len(start), dtype=np.int64)
    return DeviceWork(
        track=nothing,
        device=device,
        start=start,
        end=start + duration,
        kind=kind.astype(np.int8),
        communication=nothing.astype(np.bool_),
        carry_over=nothing.astype(np.bool_),
        launch=nothing,
    )


pieces = st.tuples(
    st.integers(0, END - 1), st.integers(0, 40), st.integers(0, 2), st.integers(0, 1)
)
recordings = st.tuples(
    st.lists(pieces, max_size=8), st.integers(0, 60), st.integers(1, 40), st.integers(-5, 50)
)


@given(st.lists(recordings, min_size=1, max_size=3), st.integers(1, 30))
def test_each_bucket_is_the_share_of_its_recorded_nanoseconds(
    traces: list[tuple[list[Piece], int, int, int]], width_ns: int
) -> None:
    devices, busy_ns, recorded_ns = [], np.zeros(400), np.zeros(400)
    for work, start, length, shift in traces:
        recorded = slice(start + shift + 100, start + shift + length + 100)
        for device in (0, 1):
            devices.append(
                find_recorded_kernels(
                    make_work(work), device, (start, start + length), shift_ns=shift
                )
            )
            is_busy = np.zeros(400)
            for first, duration, kind, number in work:
                if kind == 0 and number == device:
                    is_busy[first + shift + 100 : first + duration + shift + 100] = 1
            busy_ns[recorded] += is_busy[recorded]
            recorded_ns[recorded] += 1
    buckets = cut_into_buckets(-100, 300, width_ns)
    edges = buckets.edges + 100
    expected = [
        busy_ns[a:b].sum() / recorded_ns[a:b].sum() if recorded_ns[a:b].any() else None
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    assert measure_recorded_utilization(devices, buckets) == pytest.approx(expected)
