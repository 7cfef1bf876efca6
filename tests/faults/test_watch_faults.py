"""Failures of the watch process and of its receivers: the job is not affected."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.rule_feed import recorded_rules
from stepscope.schema import DeliveryState, JobState, RuleRecord, RuleStatus
from stepscope.spool import process_start_ticks
from stepscope.store import open_run
from tests.support.job_control import Job, steps_command
from tests.support.waiting import wait_until
from tests.support.webhooks import receiving

Start = Callable[..., Job]
RULES = """
from stepscope.rules import Rule

class Always(Rule):
    def check(self, signals):
        return self.finding(triggered=1, sentences=["it always fires."])

class Wrong(Rule):
    def check(self, signals):
        return 1 / 0
"""


@pytest.fixture
def rule_file(tmp_path: Path) -> str:
    """Make a file of rules."""
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    return str(path)


def record(run: Path) -> RuleRecord:
    rules = recorded_rules(open_run(run))
    assert rules is not None
    return rules


def fired(job: Job) -> bool:
    has_run = (job.run / "run.json").exists()
    rules = recorded_rules(open_run(job.run)) if has_run else None
    return rules is not None and any(e.state is DeliveryState.SENT for e in rules.deliveries)


def assert_undisturbed(job: Job, count: int) -> None:
    assert job.wait() == 0, job.errors.read_text()
    assert job.done == count
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED


@pytest.mark.extended("test_kills.py kills the watch")
def test_kill_9_of_the_watch(start: Start, rule_file: str) -> None:
    with receiving() as receiver:
        options = (
            "--rule",
            f"{rule_file}:Always",
            "--scan-interval",
            "1",
            "--webhook",
            receiver.url,
        )
        job = start(*steps_command("--count", "4000"), options=options)
        first = job.wait_child("watch")
        wait_until(lambda: fired(job), waiting_for="a first finding")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: job.children().get("watch", first) != first, waiting_for="a new watch")
        assert_undisturbed(job, 4000)
        assert len(receiver.bodies) == 1
    assert record(job.run).progress == "ended"


@pytest.mark.extended("a long job; test_kills.py kills the watch")
def test_kill_9_of_the_watch_again_and_again(start: Start, rule_file: str) -> None:
    """The final evaluation still runs, and --fail-on uses it."""
    options = ("--rule", f"{rule_file}:Always", "--fail-on", "Always")
    job = start(*steps_command("--count", "3000"), options=options)
    killed = 0
    while job.done < 2990 and job.launcher.poll() is None:
        watch = job.children().get("watch")
        if watch is not None:
            os.kill(watch, signal.SIGKILL)
            killed += 1
            wait_until(
                lambda w=watch: job.children().get("watch") != w, waiting_for="the end of the watch"
            )
    assert killed >= 2
    assert job.wait() == 3, job.errors.read_text()
    assert job.done == 3000
    assert record(job.run).progress == "ended"


@pytest.mark.extended("another job; test_kills.py kills the launcher")
def test_the_watch_ends_after_its_launcher(start: Start, rule_file: str) -> None:
    job = start(*steps_command("--count", "1500"), options=("--rule", f"{rule_file}:Always"))
    watch = job.wait_child("watch")
    job.wait_monitor()
    job.wait_done(100)
    os.kill(job.launcher.pid, signal.SIGKILL)
    job.launcher.wait()
    wait_until(
        lambda: process_start_ticks(watch) is None, timeout_s=60, waiting_for="the end of the watch"
    )
    assert record(job.run).progress == "ended"


@pytest.mark.extended("tests/unit/watch has receivers that fail")
def test_receivers_that_fail_in_every_way(start: Start, rule_file: str) -> None:
    with receiving(0) as hanging, receiving(500) as broken, receiving(500, 204) as late:
        hooks = [hanging.url, broken.url, late.url, "http://127.0.0.1:9/"]
        options = [word for url in hooks for word in ("--webhook", url)]
        options += ["--on-finding", "sleep 300", "--on-finding", "exit 3"]
        options += ["--rule", f"{rule_file}:Always", "--scan-interval", "1"]
        job = start(*steps_command("--count", "1500"), options=tuple(options))
        assert_undisturbed(job, 1500)
    deliveries = {
        (delivery.action, delivery.number): delivery for delivery in record(job.run).deliveries
    }
    states = {number: delivery.state for (action, number), delivery in deliveries.items()}
    sent = [number for number, state in states.items() if state is DeliveryState.SENT]
    assert [deliveries["webhook", number].try_count for number in sent] == [2]
    assert len(states) == 6
    assert DeliveryState.PENDING not in states.values()
    errors = job.errors.read_text()
    assert "the webhook returned 500" in errors
    assert "Connection refused" in errors
    assert "exited with status 3" in errors


@pytest.mark.extended("another job; such rules are in tests/unit/rule_feed")
def test_a_rule_that_raises_is_reported(start: Start, rule_file: str) -> None:
    rules = f"{rule_file}:Wrong,{rule_file}:Always"
    job = start(*steps_command("--count", "300"), options=("--rules", rules))
    assert_undisturbed(job, 300)
    wrong, always = record(job.run).findings
    assert wrong.status is RuleStatus.ERROR
    assert always.fired
    assert "the rule Wrong failed: ZeroDivisionError" in job.errors.read_text()
