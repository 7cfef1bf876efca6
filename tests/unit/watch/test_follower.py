"""A run that grows between two looks: scans are evaluated when they are complete, and once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.diagnosis.rule_check import RULES_DOCUMENT
from stepscope.rules import IncrementalRule, Rule, Signals
from stepscope.rules.firing import Firing
from stepscope.rules.parameters import NoParameters
from stepscope.schema import Finding, JobState, JobStatus, RuleRecord, RuleStatus
from stepscope.store import DictColumn, RunReader, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.watch.follower import Follower, follow_records

SECOND_NS = 1_000_000_000
SCAN_NS = 10 * SECOND_NS


class Busy(IncrementalRule[NoParameters, Firing]):
    """Fires where a GPU was ever busy."""

    def start(self) -> Firing:
        return Firing()

    def update(self, state: Firing, signals: Signals) -> Firing:
        series = signals.series("gpu_busy_ratio").values()
        if any(bool((each.value > 0.9).any()) for each in series):
            state.add([signals.end_ns])
        return state

    def decide(self, state: Firing) -> Finding:
        return self.finding(triggered=state)


class Broken(Rule[NoParameters]):
    """Has a mistake."""

    def check(self, signals: Signals) -> Finding | None:
        raise ZeroDivisionError("by zero")


class Growing:
    """A run to which seconds are added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run = RunBuilder(path)
        run.rank(0).draw("forward 400 | backward 600", 1)
        run.status(JobState.IN_PROGRESS)
        run.write()
        self.second = 0

    def grow(self, seconds: int, *, busy: float = 0.1, state: JobState | None = None) -> None:
        """Sample for some more seconds, and say so."""
        times = EPOCH_NS + np.arange(self.second, self.second + seconds) * SECOND_NS
        self.second += seconds
        count = len(times)
        with RunWriter(self.path, "n0") as writer:
            writer.append(
                "metrics",
                {
                    **{
                        name: DictColumn.constant(value, count)
                        for name, value in {
                            "node": "n0",
                            "process": "1-1-0",
                            "log": "1f",
                            "metric": "gpu_busy_ratio",
                            "device": "0",
                        }.items()
                    },
                    "seq": times,
                    "t_ns": times,
                    "value": np.full(count, busy),
                },
            )
            writer.put_status(
                JobStatus(
                    state=state or JobState.IN_PROGRESS,
                    heartbeat_ns=EPOCH_NS + self.second * SECOND_NS,
                    started_ns=EPOCH_NS,
                )
            )

    def follower(self, *rules: Rule[Any], **options: Any) -> Follower:
        options.setdefault("abandoned", lambda: False)
        return Follower(open_run(self.path), rules, scan_ns=SCAN_NS, **options)


@pytest.fixture
def run(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "run")


def script(*happenings: Callable[[], object]) -> Callable[[float], bool]:
    """A pause in which things happen, one per call; then nobody is interested any more."""
    left = iter(happenings)

    def pause(_seconds: float) -> bool:
        happening = next(left, None)
        if happening is not None:
            happening()
        return happening is not None

    return pause


def ends(records: list[RuleRecord]) -> list[float | None]:
    """Up to when the run was looked at each time, in seconds."""
    return [None if r.end_ns is None else (r.end_ns - EPOCH_NS) / SECOND_NS for r in records]


def test_a_scan_is_evaluated_as_soon_as_its_data_are_there(run: Growing) -> None:
    pause = script(
        lambda: run.grow(11),  # of the first scan something may be missing still
        lambda: run.grow(2),  # that lags by two seconds
        lambda: run.grow(1, busy=1.0),
        lambda: None,
        lambda: run.grow(9),
        lambda: run.grow(3, state=JobState.COMPLETED),
    )
    records = list(run.follower(Busy()).records(pause))
    assert ends(records) == pytest.approx([10, 20, 25])
    assert [r.progress for r in records] == ["running", "running", "ended"]
    assert [len(r.fired) for r in records] == [0, 1, 1]
    (finding,) = records[1].fired
    assert finding.first_ns == EPOCH_NS + 20 * SECOND_NS
    assert records[2].findings[0].first_ns == finding.first_ns
    assert records[0].findings[0].status is RuleStatus.IN_PROGRESS


def test_it_ends_when_asked_and_says_that_evaluation_was_stopped(run: Growing) -> None:
    records = list(run.follower(Busy()).records(script(lambda: run.grow(5))))
    assert ends(records) == [4 + 1e-9]
    assert records[0].progress == "stopped"
    assert records[0].findings[0].status is RuleStatus.STOPPED


def test_a_rule_that_fails_harms_no_other(run: Growing) -> None:
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    (record,) = run.follower(Broken(), Busy()).records(script())
    broken, busy = record.findings
    assert broken.status is RuleStatus.ERROR
    assert broken.error == "ZeroDivisionError: by zero"
    assert busy.fired


def test_a_corrupt_segment_is_left_out_and_said_so(run: Growing) -> None:
    run.grow(15)
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    first = sorted(run.path.glob("tables/metrics/*/*.parquet"))[0]
    first.write_bytes(b"torn")
    (record,) = run.follower(Busy()).records(script())
    assert record.fired
    assert any(first.name in note for note in record.notes)


def test_what_cannot_be_read_for_a_while_is_read_later(
    run: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules read too: no rule is blamed for it, and none has seen half of a scan."""
    follower = run.follower(Busy())
    ask = RunReader.sql
    refused = 0
    refuse = True

    def sql(self: RunReader, *given: Any, **how: Any) -> Any:
        nonlocal refused
        if refuse:
            refused += 1
            raise OSError(5, "the disk is gone")
        return ask(self, *given, **how)

    def recover() -> None:
        nonlocal refuse
        refuse = False

    monkeypatch.setattr(RunReader, "sql", sql)
    pause = script(lambda: run.grow(15, busy=1.0), lambda: None, recover)
    record = next(follower.records(pause))
    assert refused
    assert ends([record]) == [10]
    assert record.fired
    assert record.notes == []


def test_a_disk_that_stays_away_ends_with_a_note(
    run: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = run.follower(Busy())

    def ranges(*, final: bool) -> Any:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(follower._feed, "ranges", ranges)
    run.grow(15, state=JobState.COMPLETED)
    (record,) = follower.records(lambda _seconds: True)
    assert "the disk is gone" in record.notes[0]


def test_a_job_that_nobody_ends_is_left_when_its_launcher_is_gone(run: Growing) -> None:
    run.grow(15)  # years ago
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True

    follower = run.follower(Busy(), abandoned=lambda: gone)
    pause = script(lambda: None, leave, *[lambda: None] * 9)
    first, last = follower.records(pause)
    assert (first.progress, last.progress) == ("running", "stopped")
    assert pause(0)  # it did not wait for the end of the script


def test_a_finished_run_is_evaluated_once(run: Growing) -> None:
    run.grow(15, state=JobState.COMPLETED)
    reader = open_run(run.path)
    records = list(follow_records(reader, lambda: [Busy()], scan_ns=SCAN_NS, pause=script()))
    assert [r.progress for r in records] == ["ended"]


def test_what_a_watch_process_records_is_taken_from_it(run: Growing) -> None:
    def record(end_s: int, progress: str) -> Callable[[], None]:
        def write() -> None:
            found = RuleRecord(
                progress=progress,  # type: ignore[arg-type]
                end_ns=EPOCH_NS + end_s * SECOND_NS,
                scan_ns=SCAN_NS,
                written_ns=time.time_ns(),
                findings=[],
            )
            with RunWriter(run.path, "n0") as writer:
                writer.put_document("findings", RULES_DOCUMENT, found)

        return write

    record(10, "running")()
    pause = script(lambda: None, record(20, "running"), record(23, "ended"))
    reader = open_run(run.path)
    records = list(follow_records(reader, _unwanted, scan_ns=SCAN_NS, pause=pause))
    assert ends(records) == [10, 20, 23]


def test_a_record_that_nobody_replaces_is_not_waited_for(run: Growing) -> None:
    run.grow(15, busy=1.0, state=JobState.COMPLETED)
    old = RuleRecord(
        progress="running", end_ns=None, scan_ns=SCAN_NS, written_ns=EPOCH_NS, findings=[]
    )
    with RunWriter(run.path, "n0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, old)
    reader = open_run(run.path)
    records = list(follow_records(reader, lambda: [Busy()], scan_ns=SCAN_NS, pause=script()))
    assert [r.progress for r in records] == ["running", "ended"]
    assert msgspec.structs.replace(records[0]) == old
    assert records[1].fired


def _unwanted() -> list[Rule[Any]]:
    raise AssertionError("the watch process evaluates the rules")
