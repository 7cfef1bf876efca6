"""Alerts of a job that is stuck, sent to a real receiver."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.schema import (
    STUCK,
    CalledCollective,
    RankAccount,
    RankState,
    RuleSelection,
    StuckNode,
)
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from stepscope.watch import stuck_alert
from stepscope.watch.config import ActionConfig, WatchConfig
from stepscope.watch.lease import LeaseWatch
from stepscope.watch.process import Watch
from tests.support.waiting import wait_until

S = 1_000_000_000


def make_rank(rank: int, *, has_called: bool) -> RankAccount:
    calls = [CalledCollective(group="0", number=1, kind="barrier")]
    if has_called:
        calls.append(CalledCollective(group="0", number=2, kind="barrier", has_ended=False))
    return RankAccount(rank=rank, process="", pid=1, state=RankState.ANSWERED, calls=calls)


def test_each_time_that_a_job_is_stuck_is_told_once(
    new_run: Callable[..., RunBuilder], receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_alert, "READ_INTERVAL_S", 0)
    builder = new_run()
    builder.rank(0).draw("forward 10", 5)
    run = builder.write()
    watch = Watch(
        WatchConfig(
            run=str(run),
            launcher_pid=os.getpid(),
            scan_ns=10 * S,
            selection=RuleSelection(names=["StepOutlier"]),
            actions=[ActionConfig(kind="webhook", address=receiver.url, target="receiver")],
        ),
        LeaseWatch(str(run), None),
    )
    for number in range(1, 3):
        for resolved_ns in (None, None, 400 * S):
            account = StuckNode(
                node="n0",
                since_ns=100 * number * S,
                seen_ns=(100 * number + 40) * S,
                resolved_ns=resolved_ns,
                limit_ns=30 * S,
                groups={"0": [0, 1]},
                ranks=[make_rank(0, has_called=True), make_rank(1, has_called=False)],
            )
            with RunWriter(run, "n0") as writer:
                writer.put_document(STUCK, "n0", account)
            watch._announce_stuck()
            wait_until(lambda: not watch._deliveries.has_pending)
        assert len(receiver.bodies) == number, "once per time"
