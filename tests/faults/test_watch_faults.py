"""Whatever happens to the watch process and to those it tells: the job does not notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.rule_feed.check import recorded_rules
from stepscope.schema import DeliveryState, JobState, RuleRecord, RuleStatus
from stepscope.spool import process_start_ticks
from stepscope.store import open_run
from tests.support.job_control import Job, steps_command, wait_for
from tests.support.webhooks import receiving

Start = Callable[..., Job]
OWN = """
from stepscope.rules import Rule

class Always(Rule):
    def check(self, signals):
        return self.finding(triggered=1, sentences=["it always is."])

class Wrong(Rule):
    def check(self, signals):
        return 1 / 0
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A file of rules."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def record(run: Path) -> RuleRecord:
    found = recorded_rules(open_run(run))
    assert found is not None
    return found


def fired(job: Job) -> bool:
    made = (job.run / "run.json").exists()
    found = recorded_rules(open_run(job.run)) if made else None
    return found is not None and any(e.state is DeliveryState.SENT for e in found.deliveries)


def assert_undisturbed(job: Job, count: int) -> None:
    assert job.wait() == 0, job.errors.read_text()
    assert job.done == count
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED


def test_kill_9_of_the_watch(start: Start, own: str) -> None:
    with receiving() as receiver:
        options = ("--rule", f"{own}:Always", "--scan-interval", "1", "--webhook", receiver.url)
        job = start(*steps_command("--count", "4000"), options=options)
        first = job.wait_child("watch")
        wait_for(lambda: fired(job), what="a first finding")
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: job.children().get("watch", first) != first, what="a new watch")
        assert_undisturbed(job, 4000)
        assert len(receiver.bodies) == 1
    assert record(job.run).progress == "ended"


def test_kill_9_of_the_watch_again_and_again(start: Start, own: str) -> None:
    """The last evaluation is made all the same, and counts."""
    options = ("--rule", f"{own}:Always", "--fail-on", "Always")
    job = start(*steps_command("--count", "3000"), options=options)
    killed = 0
    while job.done < 2990 and job.launcher.poll() is None:
        watch = job.children().get("watch")
        if watch is not None:
            os.kill(watch, signal.SIGKILL)
            killed += 1
            wait_for(lambda w=watch: job.children().get("watch") != w, what="its end")
    assert killed >= 2
    assert job.wait() == 3, job.errors.read_text()
    assert job.done == 3000
    assert record(job.run).progress == "ended"


def test_a_launcher_that_is_gone_does_not_keep_the_watch(start: Start, own: str) -> None:
    job = start(*steps_command("--count", "1500"), options=("--rule", f"{own}:Always"))
    watch = job.wait_child("watch")
    job.wait_monitor()
    job.wait_done(100)
    os.kill(job.launcher.pid, signal.SIGKILL)
    job.launcher.wait()
    wait_for(lambda: process_start_ticks(watch) is None, limit_s=60, what="the end of the watch")
    assert record(job.run).progress == "ended"


def test_receivers_that_fail_in_every_way(start: Start, own: str) -> None:
    with receiving(0) as hanging, receiving(500) as broken, receiving(500, 204) as late:
        hooks = [hanging.url, broken.url, late.url, "http://127.0.0.1:9/"]
        options = [word for url in hooks for word in ("--webhook", url)]
        options += ["--on-finding", "sleep 300", "--on-finding", "exit 3"]
        options += ["--rule", f"{own}:Always", "--scan-interval", "1"]
        job = start(*steps_command("--count", "1500"), options=tuple(options))
        assert_undisturbed(job, 1500)
    found = {(each.action, each.number): each for each in record(job.run).deliveries}
    states = {number: each.state for (action, number), each in found.items()}
    sent = [number for number, state in states.items() if state is DeliveryState.SENT]
    assert [found["webhook", number].try_count for number in sent] == [2]
    assert len(states) == 6
    assert DeliveryState.PENDING not in states.values()
    said = job.errors.read_text()
    assert "answered 500" in said
    assert "Connection refused" in said
    assert "ended with status 3" in said


def test_a_rule_that_raises_is_reported(start: Start, own: str) -> None:
    rules = f"{own}:Wrong,{own}:Always"
    job = start(*steps_command("--count", "300"), options=("--rules", rules))
    assert_undisturbed(job, 300)
    wrong, always = record(job.run).findings
    assert wrong.status is RuleStatus.ERROR
    assert always.fired
    assert "the rule Wrong failed: ZeroDivisionError" in job.errors.read_text()
