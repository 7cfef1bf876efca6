"""Kinds of activity and of copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepscope.analysis.activity import is_synchronization, summarize_activities, summarize_copies
from stepscope.store import DictColumn


def copies(*rows: tuple[str, int, int]) -> dict[str, Any]:
    names, durations, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    kinds = ["memset" if name.startswith("Memset") else "memcpy" for name in names]
    return {
        "device": np.zeros(len(rows), dtype=np.int64),
        "kind": DictColumn.encode(kinds),
        "name": DictColumn.encode(names),
        "duration_ns": np.array(durations, dtype=np.int64),
        "bytes": np.array(sizes, dtype=np.int64),
    }


def named(*rows: tuple[str, int]) -> dict[str, Any]:
    return {
        "name": DictColumn.encode(name for name, _ in rows),
        "duration_ns": np.array([duration for _, duration in rows], dtype=np.int64),
    }


def test_activities() -> None:
    activities = summarize_activities(
        named(("gemm", 10), ("ncclKernel_AllReduce_RING_LL_Sum_float", 7), ("add", 5)),
        copies(("Memcpy HtoD (Pageable -> Device)", 3, 100), ("Memset (Device)", 2, 8)),
        named(("cudaLaunchKernel", 50), ("cudaStreamSynchronize", 20), ("hipEventSynchronize", 1)),
    )
    assert [(one.kind, one.count, one.total_ns) for one in activities] == [
        ("compute", 2, 15),
        ("communication", 1, 7),
        ("memcpy", 1, 3),
        ("memset", 1, 2),
        ("synchronization", 2, 21),
    ]
    assert not is_synchronization("cudaStreamWaitEvent")  # the device waits, not the host


def test_copies_by_direction_and_memory() -> None:
    kinds = summarize_copies(
        copies(
            ("Memcpy HtoD (Pageable -> Device)", 100, 1000),
            ("Memcpy HtoD (Pinned -> Device)", 10, 1000),
            ("Memcpy HtoD (Pinned -> Device)", 10, 500),
            ("Memcpy HtoD (Pinned -> Device)", 10, -1),  # of unknown size
            ("Memset (Device)", 5, 64),
        )
    )
    assert [
        (k.direction, k.source, k.target, k.count, k.total_ns, k.moved_bytes) for k in kinds
    ] == [
        ("HtoD", "pageable", "device", 1, 100, 1000),
        ("HtoD", "pinned", "device", 3, 30, 1500),
        ("memset", None, None, 1, 5, 64),
    ]
    # 1500 bytes in 20 ns are 75 bytes a nanosecond, which is 75 GB/s.
    assert kinds[1].achieved_bytes_per_s == pytest.approx(75e9)


@pytest.mark.seed("SMP-22")
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("Memcpy HtoH (Host -> Host)", "HtoH"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToDevice", "DtoD"),
        ("Memset (Unknown)", "memset"),
        ("something else", "something else"),
    ],
)
def test_directions(name: str, direction: str) -> None:
    (kinds,) = summarize_copies(copies((name, 1, -1)))
    assert kinds.direction == direction
    assert (kinds.moved_bytes, kinds.achieved_bytes_per_s) == (None, None)


def test_no_copies() -> None:
    assert summarize_copies(copies()) == []
