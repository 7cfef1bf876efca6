"""The process itself, as the launcher starts it: on a run that is there, with real receivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.diagnosis.rule_check import recorded_rules
from stepscope.schema import DeliveryState, JobState, RuleRecord, RuleStatus
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.watch.config import ActionConfig, WatchConfig

LOADING = "wait 600 | forward 120 | backward 200 | optimizer 80"
SECOND_NS = 1_000_000_000


@pytest.fixture
def loading(tmp_path: Path) -> RunBuilder:
    """A job that waits for its data."""
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(LOADING, 60)
    run.metric("cpu_busy_ratio", 0.5)
    return run


def watch(run: Path, *actions: ActionConfig, **settings: Any) -> subprocess.Popen[bytes]:
    config = WatchConfig(
        run=str(run),
        launcher_pid=settings.pop("launcher_pid", os.getpid()),
        scan_ns=10 * SECOND_NS,
        rules=settings.pop("rules", ["DataloaderBottleneck"]),
        actions=list(actions),
        **settings,
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stepscope.watch"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(msgspec.json.encode(config))
    return process


def record(run: Path) -> RuleRecord:
    found = recorded_rules(open_run(run))
    assert found is not None
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold in time"
        time.sleep(0.02)


def hook(url: str) -> ActionConfig:
    return ActionConfig(kind="webhook", address=url, target="http://127.0.0.1")


def test_a_finished_run_is_evaluated_recorded_and_told_once(
    loading: RunBuilder, receiver: Any, tmp_path: Path
) -> None:
    run, wish = loading.write(), tmp_path / "wish"
    stop = ActionConfig(
        kind="stop", address=str(wish), target="the job", rules=["DataloaderBottleneck"]
    )
    for _ in range(2):  # the second finds what the first has recorded
        assert watch(run, stop, hook(receiver.url)).wait(30) == 0
    assert len(receiver.bodies) == 1
    assert not wish.exists()
    found = record(run)
    assert found.progress == "ended"
    assert [each.rule for each in found.fired] == ["DataloaderBottleneck"]
    assert receiver.bodies[0]["recorded_ns"] == found.recorded_ns["DataloaderBottleneck"]
    assert [(each.action, each.state) for each in found.deliveries] == [
        ("stop", DeliveryState.FAILED),
        ("webhook", DeliveryState.SENT),
    ]


def test_kill_9_and_another_one_repeats_nothing(loading: RunBuilder, receiver: Any) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    first = watch(run, hook(receiver.url))
    wait_for(
        lambda: (
            (found := recorded_rules(open_run(run))) is not None
            and any(each.state is DeliveryState.SENT for each in found.deliveries)
        )
    )
    first.kill()
    first.wait()
    before = record(run)
    second = watch(run, hook(receiver.url))
    wait_for(lambda: record(run).written_ns > before.written_ns)
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    assert len(receiver.bodies) == 1
    assert record(run).recorded_ns == before.recorded_ns


def test_a_receiver_that_hangs_does_not_hold_up_the_record(
    loading: RunBuilder, receiver: Any
) -> None:
    receiver.answers = [0]
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    process = watch(run, hook(receiver.url))
    wait_for(lambda: receiver.bodies and record(run).deliveries)
    assert record(run).fired
    assert record(run).deliveries[0].state is DeliveryState.PENDING
    process.kill()
    process.wait()


def test_it_ends_when_its_launcher_is_gone_and_nothing_is_heard(loading: RunBuilder) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)  # years ago
    run = loading.write()
    unreached = ["DataloaderBottleneck.threshold=90"]
    assert watch(run, launcher_pid=1, assignments=unreached).wait(30) == 0
    found = record(run)
    assert found.progress == "stopped"
    assert found.findings[0].status is RuleStatus.STOPPED


def test_a_rule_of_ones_own_that_fails(loading: RunBuilder, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from stepscope.rules import Rule\n"
        "class Wrong(Rule):\n    def check(self, signals):\n        return 1 / 0\n"
        "class Strange(Rule):\n    def check(self, signals):\n"
        "        return self.finding(triggered=1, details={'what': object()})\n"
    )
    run = loading.write()
    rules = [f"{own}:Wrong", f"{own}:Strange", "DataloaderBottleneck"]
    assert watch(run, rules=rules).wait(30) == 0
    wrong, strange, loader = record(run).findings
    assert wrong.error == "ZeroDivisionError: division by zero"
    assert strange.status is RuleStatus.ERROR
    assert "object" in str(strange.error)
    assert loader.fired


def test_a_run_that_cannot_be_written_for_a_while(loading: RunBuilder) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    findings, aside = run / "findings", run / "aside"
    process = watch(run)
    wait_for(lambda: (findings / "rules.json").exists() and record(run).fired)
    findings.rename(aside)
    findings.write_text("a file where the directory should be")
    with RunWriter(run, "n0") as writer:
        ended = msgspec.structs.replace(loading.statuses["n0"], state=JobState.COMPLETED)
        writer.put_status(ended)
    time.sleep(2)
    assert process.poll() is None
    findings.unlink()
    aside.rename(findings)
    assert process.wait(30) == 0
    assert record(run).progress == "ended"
