"""Rows to write into the tables of a run, and descriptions of a run and a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepscope.schema import SCHEMA_VERSION, NodeInfo, RunInfo
from stepscope.store import DictColumn

INFO = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="r1",
    created_ns=1_700_000_000_000_000_000,
    command=["python", "train.py"],
    working_directory="/home/u",
    stepscope_version="0",
)

NODE = NodeInfo(
    node="n0",
    platform="linux",
    cpu_model="x",
    cores_total=8,
    cores_available=1.5,
    memory_bytes=1,
    memory_limit_bytes=None,
    sample_interval_ns=5,
    spool="/spool",
    clock_anchor_monotonic_ns=1,
    clock_anchor_epoch_ns=2,
)
Columns = dict[str, Any]


def spans(
    seqs: Sequence[int], *, node: str = "n0", names: Sequence[str] | None = None, **changed: Any
) -> Columns:
    """Build one span per number: it starts there and lasts 5 ns; every third has no end."""
    seq = np.array(seqs, dtype=np.int64)
    count = len(seq)
    return {
        "node": DictColumn.constant(node, count),
        "process": DictColumn.constant("1-2-3", count),
        "log": DictColumn.constant("7c", count),
        "seq": seq,
        "kind": DictColumn.encode(["step" if number % 2 else "fetch" for number in seqs]),
        "name": DictColumn.encode(names or [f"span {number % 7}" for number in seqs]),
        "labels": DictColumn.encode([None if number % 2 else '{"a": 1}' for number in seqs]),
        "start_ns": seq,
        "end_ns": np.ma.MaskedArray(seq + 5, mask=seq % 3 == 0),
        "depth": np.zeros(count, dtype=np.int16),
        "flags": np.zeros(count, dtype=np.int16),
        "value": seq * 10,
        **changed,
    }


def samples(times: Sequence[int], metrics: Sequence[str], *, node: str = "n0") -> Columns:
    """Build one sample per time, of the metric at the same index."""
    count = len(times)
    return {
        "node": DictColumn.constant(node, count),
        "process": DictColumn.constant("1-2-3", count),
        "log": DictColumn.constant("7c", count),
        "seq": np.arange(count),
        "t_ns": np.array(times, dtype=np.int64),
        "metric": DictColumn.encode(metrics),
        "device": DictColumn.constant("", count),
        "value": np.array(times, dtype=np.float64),
    }
