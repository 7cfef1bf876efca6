"""A run that grows is told of, and one that disappears."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.schema import JobState, JobStatus
from stepscope.store import RunWriter, open_run, revision_of
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job


@pytest.fixture
def place(tmp_path: Path) -> Path:
    draw_job(tmp_path / "runs" / "job", 5)
    return tmp_path / "runs"


@pytest.fixture
def growing(place: Path) -> Iterator[Served]:
    with serving(place) as served:
        yield served


def beat(run: Path, state: JobState = JobState.COMPLETED) -> None:
    """Let a monitor say how the job stands."""
    now = time.time_ns()
    with RunWriter(run, "n0") as writer:
        writer.put_status(JobStatus(state=state, heartbeat_ns=now, started_ns=now - 10**9))


def test_a_change_is_told_with_its_revision(growing: Served, place: Path) -> None:
    run = place / "job"
    events = growing.events("/api/events", run="job")
    assert events.answer.headers["content-type"].startswith("text/event-stream")
    assert events.next() == ("open", revision_of(run))
    beat(run)
    assert events.next() == ("change", revision_of(run))
    events.close()


def test_changes_come_at_most_once_a_second(growing: Served, place: Path) -> None:
    events = growing.events("/api/events", run="job")
    events.next()
    told = []
    for _ in range(2):
        beat(place / "job")
        assert events.next()[0] == "change"
        told.append(time.monotonic())
        beat(place / "job")
    assert told[1] - told[0] >= 0.9
    events.close()


def test_a_view_of_a_run_that_has_grown_is_another(growing: Served, place: Path) -> None:
    before = growing.view("overview", "job")
    beat(place / "job", JobState.FAILED)
    time.sleep(0.3)  # a page asks for several views at once: they are of one moment
    after = growing.ask(
        "/api/views/overview", run="job", headers={"If-None-Match": before.headers["etag"]}
    )
    assert after.status == 200
    assert [node["state"] for node in after.json["nodes"]] == ["Failed"]


def test_who_comes_back_is_told_what_was_missed(growing: Served, place: Path) -> None:
    run = place / "job"
    seen = revision_of(run)
    again = growing.events("/api/events", {"Last-Event-ID": str(seen)}, run="job")
    assert again.next() == ("open", seen)
    again.close()
    beat(run)
    late = growing.events("/api/events", {"Last-Event-ID": str(seen)}, run="job")
    assert [late.next()[0], late.next()[0]] == ["open", "change"]
    late.close()


def test_a_run_that_disappears_is_told_of(growing: Served, place: Path) -> None:
    events = growing.events("/api/events", run="job")
    events.next()
    shutil.rmtree(place / "job")
    assert events.next()[0] == "gone"
    events.close()
    assert growing.ask("/api/events", run="job").status == 410
    assert growing.ask("/api/events", run="never").status == 404


def test_new_runs_and_verdicts_are_told_of(growing: Served, place: Path) -> None:
    events = growing.events("/api/jobs/events")
    assert events.next()[0] == "open"
    draw_job(place / "second", 40)
    assert events.next()[0] == "change"
    deadline = time.monotonic() + 20
    while any(job["verdict"] is None for job in growing.ask("/api/jobs").json["jobs"]):
        assert events.next()[0] == "change"
        assert time.monotonic() < deadline
    events.close()


def test_listeners_do_not_keep_the_server(place: Path) -> None:
    with serving(place) as served:
        events = served.events("/api/events", run="job")
        events.next()
        began = time.monotonic()
    assert time.monotonic() - began < 2.5
    with pytest.raises(EOFError):
        events.next()
    events.close()


def test_verdicts_of_finished_runs_are_kept(place: Path, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "stepscope"
    with serving(place) as served:
        while served.ask("/api/jobs").json["pending_count"]:
            time.sleep(0.05)
    files = list(kept.glob("summary-*.json"))
    assert len(files) == 1
    said = files[0].read_bytes().replace(b"not enough evidence", b"read from disk")
    files[0].write_bytes(said)
    with serving(place) as served:
        while served.ask("/api/jobs").json["pending_count"]:
            time.sleep(0.05)
        row = served.ask("/api/jobs").json["jobs"][0]
    assert row["verdict"]["words"] == "read from disk"
    assert open_run(place / "job").info.run_id == "drawn"


def test_a_page_that_draws_slowly_is_told_less_often(place: Path) -> None:
    """Else a run that grows faster than it is read would never be seen."""
    with serving(place, tasks="tests.support.odd_tasks") as served:
        events = served.events("/api/events", run="job")
        events.next()
        beat(place / "job")
        events.next()
        pid = place.parent / "pid"
        assert served.view("sleep", "job", pid=str(pid), seconds="1.0").status == 200
        began = time.monotonic()
        for _ in range(2):  # the first may have been on its way already
            beat(place / "job")
            events.next()
        assert time.monotonic() - began > 2.5
        events.close()
