"""Frames of a run in pandas: the columns that Debugger's frames have, by time, steps and batch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepscope.access import OpenRun
from stepscope.testing.runs import EPOCH_NS
from tests.support.access_run import MS, STEPS

pandas: Any = pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.mark.seed("DBU-09")
def test_system_metrics(run: OpenRun) -> None:
    frame = run.system().pandas()
    assert {"t_ns", "node", "metric", "device", "value"} == set(frame.columns)
    assert len(frame) == len(run.system())
    busy = frame[(frame.metric == "gpu_busy_ratio") & (frame.device == "0")]
    times = pandas.to_datetime(busy.t_ns, unit="ns", utc=True)
    assert (times < pandas.Timestamp(EPOCH_NS + 2000 * MS, tz="UTC")).sum() == 4
    assert busy.value.tolist()[:5] == [0.2] * 4 + [1.0]
    second = run.system(start=timedelta(seconds=1), end=timedelta(seconds=2)).pandas()
    assert second.t_ns.between(EPOCH_NS + 1000 * MS, EPOCH_NS + 2000 * MS - 1).all()
    assert 0 < len(second) < len(frame)


@pytest.mark.seed("DBU-09")
def test_framework_metrics(run: OpenRun) -> None:
    frame = run.framework(kind="forward").pandas()
    assert frame.groupby("rank").duration_ns.agg(["count", "sum"]).to_numpy().tolist() == [
        [STEPS, STEPS * 12 * MS]
    ] * 2  # fmt: skip
    some = run.framework(kind="forward", steps=(3, 5), rank=1).pandas()
    assert some.step.tolist() == [3, 4]
    assert (some.end_ns - some.start_ns == some.duration_ns).all()
    assert {"node", "process", "thread", "phase", "name", "value"} <= set(frame.columns)


@pytest.mark.seed("DBU-09")
def test_batches(run: OpenRun) -> None:
    waits = run.dataloader().waits.pandas()
    assert len(waits) == 2 * STEPS
    slowest = waits.loc[waits.duration_ns.idxmax()]
    assert (slowest["rank"], slowest.step, slowest.duration_ns) == (1, 7, 600 * MS)
    assert {"start_ns", "node", "ready_count", "gpu_busy_ratio"} <= set(waits.columns)
