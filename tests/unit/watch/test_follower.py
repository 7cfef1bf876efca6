"""Rules on a growing run: complete scans are evaluated, once, within a budget of reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.rule_feed import RULES_DOCUMENT
from stepscope.rules import IncrementalRule, Rule, RuleInputs
from stepscope.rules.base import Trigger
from stepscope.rules.parameters import NoParameters
from stepscope.schema import Finding, JobState, JobStatus, RuleRecord, RuleStatus
from stepscope.store import DictColumn, RunReader, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.watch.config import ReadingBudget
from stepscope.watch.follower import Follower, follow_records
from tests.support.store_rows import samples

SECOND_NS = 1_000_000_000
SCAN_NS = 10 * SECOND_NS


class Busy(IncrementalRule[NoParameters, Trigger]):
    """Fires when a GPU was busy at any time."""

    def start(self) -> Trigger:
        return Trigger()

    def update(self, state: Trigger, inputs: RuleInputs) -> Trigger:
        for series in inputs.series("gpu_busy_ratio").values():
            busy_ns = series.t_ns[series.value > 0.9]
            state.add_times(inputs, busy_ns)
            state.cover(busy_ns, busy_ns)
        return state

    def decide(self, state: Trigger) -> Finding:
        return self.finding(triggered=state)


class Broken(Rule[NoParameters]):
    """Raises an exception."""

    def check(self, inputs: RuleInputs) -> Finding | None:
        raise ZeroDivisionError("by zero")


class GrowingRun:
    """Run to which samples are added second by second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run = RunBuilder(path)
        run.rank(0).draw("forward 400 | backward 600", 1)
        run.status(JobState.IN_PROGRESS)
        run.write()
        self.second = 0

    def grow(self, seconds: int, *, busy: float = 0.1, state: JobState | None = None) -> None:
        """Add samples of some more seconds, and a heartbeat."""
        times = EPOCH_NS + np.arange(self.second, self.second + seconds) * SECOND_NS
        self.second += seconds
        rows = samples(times, ["gpu_busy_ratio"] * seconds)
        rows |= {"device": DictColumn.constant("0", seconds), "value": np.full(seconds, busy)}
        status = JobStatus(
            state=state or JobState.IN_PROGRESS,
            heartbeat_ns=EPOCH_NS + self.second * SECOND_NS,
            started_ns=EPOCH_NS,
        )
        with RunWriter(self.path, "n0") as writer:
            writer.append("metrics", rows | {"seq": times})
            writer.put_status(status)

    def follower(self, *rules: Rule[Any], **options: Any) -> Follower:
        options.setdefault("is_abandoned", lambda: False)
        return Follower(open_run(self.path), rules, scan_ns=SCAN_NS, **options)


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "run")


def script(*events: Callable[[], object]) -> Callable[[float], bool]:
    """Create a pause that runs one event per call, and then ends the loop."""
    remaining = iter(events)

    def pause(_seconds: float) -> bool:
        event = next(remaining, None)
        if event is not None:
            event()
        return event is not None

    return pause


def ends(records: list[RuleRecord]) -> list[float | None]:
    """End of the evaluated data at each record, in seconds."""
    return [None if r.end_ns is None else (r.end_ns - EPOCH_NS) / SECOND_NS for r in records]


def test_a_scan_is_evaluated_as_soon_as_its_data_are_there(run: GrowingRun) -> None:
    pause = script(
        lambda: run.grow(11),  # data of the first scan may still be missing
        lambda: run.grow(2),  # data arrive up to two seconds late
        lambda: run.grow(1, busy=1.0),
        lambda: None,
        lambda: run.grow(9),
        lambda: run.grow(3, state=JobState.COMPLETED),
    )
    records = list(run.follower(Busy()).follow(pause))
    assert ends(records) == pytest.approx([10, 20, 25])
    assert [r.progress for r in records] == ["running", "running", "ended"]
    assert [len(r.fired) for r in records] == [0, 1, 1]
    (finding,) = records[1].fired
    assert finding.first_ns == finding.last_ns == EPOCH_NS + 13 * SECOND_NS
    assert records[2].findings[0].first_ns == finding.first_ns
    assert records[0].findings[0].status is RuleStatus.IN_PROGRESS


def test_a_budget_delays_evaluations_and_changes_no_finding(run: GrowingRun) -> None:
    """Each evaluation costs a second, 1% of the time of a fake clock."""
    clock, seconds = {"now_s": 0.0}, count()
    budget = ReadingBudget(
        0.01, interval_s=0, clock=lambda: clock["now_s"], cpu_clock=lambda: float(next(seconds))
    )
    pause = script(
        lambda: run.grow(14, busy=1.0),
        lambda: clock.update(now_s=100.0),
        lambda: run.grow(10),
        lambda: run.grow(10),
        lambda: run.grow(3, state=JobState.COMPLETED),
    )
    delayed, last = run.follower(Busy(), budget=budget).follow(pause)
    assert ends([delayed, last]) == pytest.approx([10, 36])
    assert delayed.notes == [
        "rules wait 100 s for their next evaluation, to keep the CPU budget of stepscope"
    ]
    assert last.notes == []
    (unlimited,) = run.follower(Busy()).follow(script())
    assert last.findings == unlimited.findings


def test_it_ends_on_request_and_reports_that_evaluation_was_stopped(run: GrowingRun) -> None:
    records = list(run.follower(Busy()).follow(script(lambda: run.grow(5))))
    assert ends(records) == [4 + 1e-9]
    assert records[0].progress == "stopped"
    assert records[0].findings[0].status is RuleStatus.STOPPED


def test_a_failing_rule_does_not_affect_other_rules(run: GrowingRun) -> None:
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    (record,) = run.follower(Broken(), Busy()).follow(script())
    broken, busy = record.findings
    assert broken.status is RuleStatus.ERROR
    assert broken.error == "ZeroDivisionError: by zero"
    assert busy.fired


def test_a_corrupt_segment_is_skipped_and_noted(run: GrowingRun) -> None:
    run.grow(15)
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    first = sorted(run.path.glob("tables/metrics/*/*.parquet"))[0]
    first.write_bytes(b"torn")
    (record,) = run.follower(Busy()).follow(script())
    assert record.fired
    assert any(first.name in note for note in record.notes)


@pytest.mark.seed("DBU-15")
def test_data_that_cannot_be_read_are_read_later(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules read, too: no rule gets an error from it or sees half of a scan."""
    follower = run.follower(Busy())
    real_sql = RunReader.sql
    failure_count = 0
    is_broken = True

    def sql(self: RunReader, *arguments: Any, **options: Any) -> Any:
        nonlocal failure_count
        if is_broken:
            failure_count += 1
            raise OSError(5, "the disk is gone")
        return real_sql(self, *arguments, **options)

    def recover() -> None:
        nonlocal is_broken
        is_broken = False

    monkeypatch.setattr(RunReader, "sql", sql)
    pause = script(lambda: run.grow(15, busy=1.0), lambda: None, recover)
    record = next(follower.follow(pause))
    assert failure_count
    assert ends([record]) == [10]
    assert record.fired
    assert record.notes == []


def test_a_disk_that_stays_unreadable_ends_with_a_note(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = run.follower(Busy())

    def ranges(*, final: bool) -> Any:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(follower._feed, "ranges", ranges)
    run.grow(15, state=JobState.COMPLETED)
    (record,) = follower.follow(lambda _seconds: True)
    assert "the disk is gone" in record.notes[0]


def test_a_job_without_heartbeats_counts_as_stopped_once_its_launcher_exits(
    run: GrowingRun,
) -> None:
    run.grow(15)  # years ago
    has_exited = False

    def exit_launcher() -> None:
        nonlocal has_exited
        has_exited = True

    follower = run.follower(Busy(), is_abandoned=lambda: has_exited)
    pause = script(lambda: None, exit_launcher, *[lambda: None] * 9)
    first, last = follower.follow(pause)
    assert (first.progress, last.progress) == ("running", "stopped")
    assert pause(0)  # it did not wait for the end of the script


def test_a_finished_run_is_evaluated_once(run: GrowingRun) -> None:
    run.grow(15, state=JobState.COMPLETED)
    reader = open_run(run.path)
    records = list(follow_records(reader, lambda: [Busy()], scan_ns=SCAN_NS, pause=script()))
    assert [r.progress for r in records] == ["ended"]


def put_record(run: GrowingRun, **fields: Any) -> RuleRecord:
    document = RuleRecord(**({"scan_ns": SCAN_NS, "findings": []} | fields))
    with RunWriter(run.path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, document)
    return document


def test_records_of_a_watch_process_are_used(run: GrowingRun) -> None:
    def record(end_s: int, progress: str) -> Callable[[], object]:
        end_ns = EPOCH_NS + end_s * SECOND_NS
        return lambda: put_record(run, progress=progress, end_ns=end_ns, written_ns=time.time_ns())

    record(10, "running")()
    pause = script(lambda: None, record(20, "running"), record(23, "ended"))
    reader = open_run(run.path)
    records = list(follow_records(reader, _unexpected, scan_ns=SCAN_NS, pause=pause))
    assert ends(records) == [10, 20, 23]


def test_a_stale_record_is_not_waited_for(run: GrowingRun) -> None:
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    old = put_record(run, progress="running", end_ns=None, written_ns=EPOCH_NS)
    reader = open_run(run.path)
    records = list(follow_records(reader, lambda: [Busy()], scan_ns=SCAN_NS, pause=script()))
    assert [r.progress for r in records] == ["running", "ended"]
    assert records[0] == old
    assert records[1].fired


def _unexpected() -> list[Rule[Any]]:
    raise AssertionError("the watch process evaluates the rules")


class Reading:
    """Operations of a given cost, each as soon as the budget allows it."""

    def __init__(self, max_share: float, *, interval_s: float = 0.0, credit_s: float = 0.0) -> None:
        self.now_s = self.cpu_s = 0.0
        self.budget = ReadingBudget(
            max_share,
            interval_s=interval_s,
            credit_s=credit_s,
            clock=lambda: self.now_s,
            cpu_clock=lambda: self.cpu_s,
        )

    def read(self, cost_s: float, *, every_s: float) -> float:
        """Read once; returns the wait before."""
        self.now_s += every_s
        wait_s = self.budget.wait_s
        self.now_s += wait_s
        assert self.budget.allows
        with self.budget.spending():
            self.cpu_s += cost_s
            self.now_s += cost_s
        return wait_s


def test_each_reading_keeps_the_share() -> None:
    reading = Reading(0.1, interval_s=3)
    reading.read(1, every_s=0)
    assert reading.budget.wait_s == pytest.approx(10)
    reading.read(0.1, every_s=0)
    assert reading.budget.wait_s == pytest.approx(3)


def test_a_credit_pays_for_the_first_readings_and_the_average_is_kept() -> None:
    reading = Reading(0.01, credit_s=300)
    waits = [reading.read(0.1, every_s=5) for _ in range(1000)]
    assert waits[:20] == [0] * 20  # 100 s of 2% are 1 s more than the share, of 3 s
    assert waits[-1] == pytest.approx(0.1 / 0.01 - 5 - 0.1)
    paid_s = reading.cpu_s - 0.1 - 300 * 0.01  # before the last reading
    assert paid_s / reading.now_s <= 0.01
    reading.now_s += 10_000  # no more credit than that of the period
    assert sum(reading.read(0.1, every_s=0) == 0 for _ in range(100)) == pytest.approx(31, abs=1)
