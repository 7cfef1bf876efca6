"""Events of runs that grow or are removed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.schema import JobState, JobStatus
from stepscope.store import RunWriter, open_run, revision_of, update_labels
from tests.support.served import Served, ServerResponse, serving
from tests.support.served_runs import draw_job
from tests.support.waiting import wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draw_job(tmp_path / "runs" / "job", 5)
    return tmp_path / "runs"


@pytest.fixture
def growing(root: Path) -> Iterator[Served]:
    with serving(root) as served:
        yield served


def write_heartbeat(run: Path, state: JobState = JobState.COMPLETED) -> None:
    now = time.time_ns()
    with RunWriter(run, "n0") as writer:
        writer.put_status(JobStatus(state=state, heartbeat_ns=now, started_ns=now - 10**9))


def wait_for_verdicts(served: Served) -> None:
    wait_until(lambda: not served.request("/api/jobs").json["pending_count"])


def test_a_change_event_has_the_revision(growing: Served, root: Path) -> None:
    run = root / "job"
    events = growing.events("/api/events", run="job")
    assert events.response.headers["content-type"].startswith("text/event-stream")
    assert events.next() == ("open", revision_of(run))
    write_heartbeat(run)
    assert events.next() == ("change", revision_of(run))
    events.close()


def test_change_events_are_at_least_a_second_apart(growing: Served, root: Path) -> None:
    events = growing.events("/api/events", run="job")
    events.next()
    times_s = []
    for _ in range(2):
        write_heartbeat(root / "job")
        assert events.next()[0] == "change"
        times_s.append(time.monotonic())
        write_heartbeat(root / "job")
    assert times_s[1] - times_s[0] >= 0.9
    events.close()


def test_a_view_of_a_run_that_has_grown_is_computed_again(growing: Served, root: Path) -> None:
    old = growing.view("overview", "job")
    write_heartbeat(root / "job", JobState.FAILED)
    headers = {"If-None-Match": old.headers["etag"]}

    def request() -> ServerResponse | None:  # the server caches revisions for a moment
        response = growing.request("/api/views/overview", run="job", headers=headers)
        return None if response.status == 304 else response

    new = wait_until(request)
    assert new.status == 200
    assert [node["state"] for node in new.json["nodes"]] == ["Failed"]


def test_a_returning_listener_gets_the_changes_that_it_missed(growing: Served, root: Path) -> None:
    run = root / "job"
    revision = revision_of(run)
    again = growing.events("/api/events", {"Last-Event-ID": str(revision)}, run="job")
    assert again.next() == ("open", revision)
    again.close()
    write_heartbeat(run)
    late = growing.events("/api/events", {"Last-Event-ID": str(revision)}, run="job")
    assert [late.next()[0], late.next()[0]] == ["open", "change"]
    late.close()


def test_an_event_of_a_run_that_is_removed(growing: Served, root: Path) -> None:
    events = growing.events("/api/events", run="job")
    events.next()
    shutil.rmtree(root / "job")
    assert events.next()[0] == "gone"
    events.close()
    assert growing.request("/api/events", run="job").status == 410
    assert growing.request("/api/events", run="never").status == 404


def test_events_of_new_runs_and_verdicts(growing: Served, root: Path) -> None:
    events = growing.events("/api/jobs/events")
    assert events.next()[0] == "open"
    draw_job(root / "second", 40)
    assert events.next()[0] == "change"
    deadline = time.monotonic() + 20
    while any(job["verdict"] is None for job in growing.request("/api/jobs").json["jobs"]):
        assert events.next()[0] == "change"
        assert time.monotonic() < deadline
    events.close()


def test_the_rows_that_changed_since_a_revision(growing: Served, root: Path) -> None:
    def list_since(revision: int) -> tuple[bool, list[tuple[str, str]], list[str], int]:
        jobs = growing.request("/api/jobs", since=str(revision)).json
        rows = [(row["id"], row["name"]) for row in jobs["jobs"]]
        return jobs["is_partial"], rows, jobs["removed"], jobs["revision"]

    draw_job(root / "other", 5)
    wait_for_verdicts(growing)
    is_partial, rows, _, first = list_since(0)
    assert (is_partial, sorted(rows)) == (False, [("job", "job"), ("other", "other")])
    assert list_since(first) == (True, [], [], first)
    update_labels(root / "job", title="renamed")
    _, rows, removed, second = list_since(first)
    assert (rows, removed) == ([("job", "renamed")], [])
    shutil.rmtree(root / "other")
    _, rows, removed, third = list_since(second)
    assert (rows, removed) == ([], ["other"])
    draw_job(root / "other", 5)
    _, rows, removed, fourth = list_since(third)
    assert (rows, removed) == ([("other", "other")], [])
    assert first < second < third < fourth
    # A client of another server, or of a revision that is to come, gets all rows.
    for revision in (first - 10**9, fourth + 10**9):
        is_partial, rows, _, _ = list_since(revision)
        assert (is_partial, len(rows)) == (False, 2)


def test_listeners_do_not_delay_the_end_of_the_server(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.server.process.SHUTDOWN_TIMEOUT_S", 60)
    with serving(root) as served:
        events = served.events("/api/events", run="job")
        events.next()
        start_s = time.monotonic()
    assert time.monotonic() - start_s < 30
    with pytest.raises(EOFError):
        events.next()
    events.close()


def test_verdicts_of_finished_runs_are_cached_on_disk(root: Path, tmp_path: Path) -> None:
    with serving(root) as served:
        wait_for_verdicts(served)
    # The server may not write into each run: without what is stored there, the cache answers.
    shutil.rmtree(root / "job" / "results", ignore_errors=True)
    files = list((tmp_path / "cache" / "stepscope").glob("summary-*.json"))
    assert len(files) == 1
    content = files[0].read_bytes().replace(b"not enough evidence", b"read from disk")
    files[0].write_bytes(content)
    with serving(root) as served:
        wait_for_verdicts(served)
        row = served.request("/api/jobs").json["jobs"][0]
    assert row["verdict"]["words"] == "read from disk"
    assert open_run(root / "job").info.run_id == "drawn"


@pytest.mark.slow("waits for events that are seconds apart")
def test_expensive_views_get_fewer_events(root: Path) -> None:
    """Otherwise an open page would take cores from the job that it shows."""
    with serving(root, tasks="tests.support.misbehaving_tasks") as served:
        events = served.events("/api/events", run="job")
        events.next()
        write_heartbeat(root / "job")
        events.next()
        pid = root.parent / "pid"
        assert served.view("block", "job", pid=str(pid), seconds="0.3").status == 200
        start_s = time.monotonic()
        for _ in range(2):  # the first event may precede the request
            write_heartbeat(root / "job")
            events.next()
        assert time.monotonic() - start_s > 2.5
        events.close()
