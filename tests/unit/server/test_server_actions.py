"""Window requests and stop requests: only to jobs that accept them, only from allowed clients."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.run.catalog.directory import DirectoryCatalog
from stepscope.schema import (
    ConfigurationDecision,
    JobConfiguration,
    JobState,
    JobStatus,
    RuleSelection,
    WindowSchedule,
)
from stepscope.store import (
    ConfigurationChanges,
    RequestState,
    RequestStatus,
    RunWriter,
    WindowRequests,
    WindowStatus,
)
from stepscope.watch.config import STOP_REQUEST_FILE, StopRequest, read_stop_request
from tests.support.served import Served, ServerResponse, serving
from tests.support.served_runs import draw_job


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return draw_job(tmp_path / "runs" / "job", 3)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Launcher's directory."""
    directory = tmp_path / f"stepscope-{os.getuid()}-test"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def served(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(DirectoryCatalog, "revision_ttl_s", 0.0)
    with serving(run.parent) as server:
        yield server


def write_status(
    run: Path, state: JobState = JobState.IN_PROGRESS, *, heartbeat_age_s: float = 0
) -> None:
    heartbeat_ns = time.time_ns() - round(1e9 * heartbeat_age_s)
    status = JobStatus(state=state, heartbeat_ns=heartbeat_ns, started_ns=heartbeat_ns - 10**10)
    with RunWriter(run, "n0") as writer:
        writer.put_status(status)


def set_options(run: Path, **options: Any) -> None:
    """Set the recorded options of the launcher."""
    manifest = run / "run.json"
    info = msgspec.json.decode(manifest.read_bytes())
    manifest.unlink()
    manifest.write_bytes(msgspec.json.encode(info | {"options": options}))


def session(served: Served, run: str = "job") -> Any:
    return served.request("/api/session", run=run).json


def copy_run(run: Path, number: int, **options: Any) -> Path:
    """Copy a run for other options, which the server reads once."""
    copy = Path(shutil.copytree(run, run.with_name(f"job{number}")))
    set_options(copy, **options)
    return copy


def assert_refused(response: ServerResponse, sentence: str) -> None:
    assert response.status == 400
    assert sentence in response.error


# --- stopping ------------------------------------------------------------------------------------


def test_a_job_that_allows_stop_requests_is_stopped(served: Served, run: Path, spool: Path) -> None:
    set_options(run, allow_stop=True, spool=str(spool))
    write_status(run)
    assert session(served)["can_stop"]
    response = served.post("/api/stop", {"run": "job"})
    assert response.status == 200
    assert "in the web UI (from 127.0.0.1)" in response.json["by"]
    assert read_stop_request(spool / STOP_REQUEST_FILE) == StopRequest(by=response.json["by"])
    assert "already" in session(served)["why_not_stop"]
    assert served.post("/api/stop", {"run": "job"}).status == 400


def test_a_job_that_cannot_be_stopped(served: Served, run: Path, spool: Path) -> None:
    advice = "started without --allow-stop: `stepscope run --allow-stop -- CMD`"
    cases = [
        ({}, JobState.IN_PROGRESS, 0, advice),
        ({"allow_stop": False}, JobState.IN_PROGRESS, 0, "started without"),
        ({"allow_stop": True}, JobState.COMPLETED, 0, "the job has ended"),
        ({"allow_stop": True}, JobState.STOPPING, 0, "already stopping"),
        ({"allow_stop": True}, JobState.IN_PROGRESS, 60, "no heartbeat"),
    ]
    for number, (options, state, heartbeat_age_s, sentence) in enumerate(cases):
        copy = copy_run(run, number, spool=str(spool), **options)
        write_status(copy, state, heartbeat_age_s=heartbeat_age_s)
        assert sentence in session(served, copy.name)["why_not_stop"]
        assert_refused(served.post("/api/stop", {"run": copy.name}), sentence)
        assert list(spool.iterdir()) == []


def test_a_run_cannot_cause_writes_to_other_directories(
    served: Served, run: Path, spool: Path
) -> None:
    """A run from elsewhere may name any directory."""
    private = spool.with_name("other")
    private.mkdir()
    link = spool.with_name(f"stepscope-{os.getuid()}-link")
    link.symlink_to(private)
    relative = os.path.relpath(spool)
    open_to_all = spool.with_name(f"stepscope-{os.getuid()}-open")
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for path in (private, link, relative, open_to_all, "", None, 7, "\0", spool / "none"):
        set_options(run, allow_stop=True, spool=path if path in {None, 7} else str(path))
        write_status(run)
        assert "only on the machine of its launcher" in session(served)["why_not_stop"], path
        assert served.post("/api/stop", {"run": "job"}).status == 400
    assert list(private.iterdir()) == []


# --- capturing -----------------------------------------------------------------------------------


def test_a_window_request_and_its_progress(served: Served, run: Path) -> None:
    set_options(run, window="auto")
    write_status(run)
    assert session(served)["can_capture"]
    response = served.post("/api/capture", {"run": "job", "steps": 7, "stacks": True})
    name = response.json["request"]
    requests = WindowRequests(str(run))
    (request,) = requests.read_new()
    assert (request.name, request.step_count, request.depth) == (name, 7, "full")
    assert request.options == ["stacks"]

    def progress() -> Any:
        return served.request("/api/capture", run="job", request=name).json

    assert progress() == {
        "request": name,
        "finished": False,
        "stored_count": 0,
        "failure": None,
        "nodes": {},
    }
    requests.put_status(name, "n0", RequestStatus(state=RequestState.RECORDING))
    assert progress()["nodes"]["n0"]["state"] == "recording"
    window = WindowStatus(process="1", number=0, rank=0, state=RequestState.STORED)
    requests.put_status(name, "n0", RequestStatus(state=RequestState.STORED, windows=[window]))
    assert progress()["finished"]
    assert progress()["stored_count"] == 1
    requests.put_status(name, "n0", RequestStatus(state=RequestState.FAILED, message="no steps"))
    assert progress()["failure"] == "no steps"


def test_a_job_that_accepts_no_window_requests(served: Served, run: Path) -> None:
    cases = [
        ({"window": "off"}, JobState.IN_PROGRESS, 0, "was started with --window off"),
        ({}, JobState.COMPLETED, 0, "is over"),
        ({}, JobState.IN_PROGRESS, 60, "has sent no heartbeat for"),
    ]
    for number, (options, state, heartbeat_age_s, sentence) in enumerate(cases):
        copy = copy_run(run, number, **options)
        write_status(copy, state, heartbeat_age_s=heartbeat_age_s)
        assert sentence in session(served, copy.name)["why_not_capture"]
        assert_refused(served.post("/api/capture", {"run": copy.name, "steps": 5}), sentence)
        assert WindowRequests(str(copy)).read_new() == []


def test_invalid_window_requests(served: Served, run: Path) -> None:
    write_status(run)
    for fields in (
        {"steps": 0}, {"steps": 10**9}, {"steps": "5"}, {"full": False, "stacks": True}, {"more": 1}
    ):  # fmt: skip
        assert served.post("/api/capture", {"run": "job"} | fields).status == 400, fields


def test_requests_of_another_form(served: Served) -> None:
    capture = {"path": "/api/capture", "method": "POST"}
    invalid = served.request(**capture, headers={"Content-Type": "application/json"}, body=b"{")
    text = served.request(**capture, headers={"Content-Type": "text/plain"}, body=b"{}")
    for response, sentence in (
        (invalid, "The body is invalid: "),
        (text, "The content type of the body must be application/json."),
        (served.request("/api/views/steps"), "The query parameter 'run' is missing."),
        (served.request("/api/views/steps", run="none"), "There is no run 'none'."),
        (served.request("/api/import", **{"import": "none"}), "There is no such import."),
    ):
        assert sentence in response.error
        assert 400 <= response.status < 500


def test_a_job_that_ends_before_its_window(served: Served, run: Path) -> None:
    write_status(run)
    name = served.post("/api/capture", {"run": "job", "steps": 5}).json["request"]
    write_status(run, JobState.COMPLETED)

    progress = served.request("/api/capture", run="job", request=name).json
    assert progress["finished"]
    assert progress["failure"] == "the job ended before the window was recorded"


# --- configuring ---------------------------------------------------------------------------------


@pytest.mark.seed("DBI-07", "DBP-10")
def test_a_change_of_the_configuration_and_its_progress(served: Served, run: Path) -> None:
    set_options(run, interval_ms=500, window="auto", windows=[], rules={"names": ["StepOutlier"]})
    write_status(run)
    assert session(served)["can_configure"]
    schedule = {"first_step": 40, "step_count": 3, "interval": 50}
    body = {
        "run": "job",
        "interval_ns": 100_000_000,
        "schedules": [schedule],
        "rules": ["BatchSize"],
    }
    body |= {"assignments": ["StepOutlier.stddev=4"], "automatic": False}
    assert served.post("/api/configure", body).json == {"number": 1}
    changes = ConfigurationChanges(run)
    request = changes.read_request(1)
    assert "in the web UI (from 127.0.0.1)" in request.by
    assert request.configuration == JobConfiguration(
        interval_ms=100,
        window="asked",
        schedules=[WindowSchedule(first_step=40, step_count=3, interval=50)],
        rules=RuleSelection(
            names=["StepOutlier", "BatchSize"], assignments=["StepOutlier.stddev=4"]
        ),
    )

    def progress(number: object = 1) -> Any:
        return served.request("/api/configure", run="job", number=str(number))

    assert progress().json == {"number": 1, "finished": False, "failure": None}
    waiting = served.post("/api/configure", {"run": "job", "interval_ns": 200_000_000})
    assert waiting.status == 400
    assert "another change of job is being applied" in waiting.error
    changes.decide(1, ConfigurationDecision(decided_ns=1, configuration=None, refusal="too late"))
    assert progress().json == {"number": 1, "finished": True, "failure": "too late"}
    assert served.post("/api/configure", {"run": "job", "interval_ns": 500_000_000}).json == {
        "number": None
    }  # a refused change has changed nothing
    assert "is not the number of a change" in progress("../../run").error
    served.post("/api/configure", {"run": "job", "interval_ns": 200_000_000})
    write_status(run, JobState.COMPLETED)
    assert progress(2).json["failure"] == "the job ended before the change was applied"
    assert "the job of drawn is over" in session(served)["why_not_configure"]


def test_invalid_changes(served: Served, run: Path) -> None:
    set_options(run, interval_ms=500, window="auto", rules={"names": ["StepOutlier"]})
    write_status(run)
    for fields, sentence in (
        ({"interval_ns": 300_000_000}, "a sampling interval of 300 ms is not possible"),
        ({"rules": ["Nope"]}, "Unknown rule 'Nope'"),
        ({"rules": ["/job/mine.py:Mine"]}, "with `stepscope configure RUN --rule FILE:RULE` only"),
        ({"assignments": ["StepOutlier.stddev=many"]}, "Invalid value 'many'"),
        ({"without_rules": ["StepOutlier"]}, "No rule would remain"),
        (
            {"schedules": [{"first_step": 1, "step_count": 5, "interval": 5}]},
            "steps would overlap every 5 steps",
        ),
        ({"schedules": [{"first_step": 1, "step_count": 0}]}, "step_count"),
        ({"schedules": [{"first_step": -1, "step_count": 1}]}, "first_step"),
        ({"more": 1}, "more"),
    ):
        assert_refused(served.post("/api/configure", {"run": "job"} | fields), sentence)
    cases = [
        ({"window": "off"}, {"automatic": True}, "the job of job0 was started with --window off"),
        ({"rules": None}, {"rules": ["StepOutlier"]}, "it was started with --no-rules"),
    ]
    for number, (options, fields, sentence) in enumerate(cases):
        copy = copy_run(run, number, interval_ms=500, **options)
        write_status(copy)
        assert_refused(served.post("/api/configure", {"run": copy.name} | fields), sentence)
    assert ConfigurationChanges(run).read_request(1) is None


def test_a_request_with_the_name_of_a_file(served: Served, run: Path) -> None:
    write_status(run)
    response = served.request("/api/capture", run="job", request="../../run")
    assert response.json["nodes"] == {}


# --- notes ---------------------------------------------------------------------------------------


def change(served: Served, **parts: Any) -> ServerResponse:
    return served.post("/api/notes", {"run": "job", **parts})


def test_notes_and_saved_views_are_stored_with_the_run(served: Served, run: Path) -> None:
    late = {"text": "slow from here", "from_after_ns": 50, "to_after_ns": 90}
    early = {"text": "warm-up", "from_after_ns": 5, "to_after_ns": None}
    views = [{"name": "k", "path": "/kernels?sort=-calls"}, {"name": "a", "path": "/timeline"}]
    assert change(served, add={"notes": [late, early], "views": views}).status == 200
    moved = {"name": "k", "path": "/operators"}
    response = change(served, add={"views": [moved]}, remove={"notes": [early]})
    expected = {"notes": [late], "views": [views[1], moved]}
    assert response.json == expected == served.request("/api/notes", run="job").json
    assert msgspec.json.decode((run / "labels" / "notes.json").read_bytes()) == expected


def test_notes_that_are_refused(served: Served, run: Path) -> None:
    at_start = {"from_after_ns": 0}
    cases = [
        ({"notes": [{"text": " ", **at_start}]}, "A note has 1 to 2000 characters, not 1."),
        ({"notes": [{"text": "x" * 2001, **at_start}]}, "not 2001"),
        (
            {"notes": [{"text": "x", "from_after_ns": 5, "to_after_ns": 4}]},
            "The range of a note ends before its start.",
        ),
        (
            {"notes": [{"text": str(n), **at_start} for n in range(501)]},
            "A run has at most 500 notes and saved views.",
        ),
        *(
            ({"views": [{"name": "x", "path": path}]}, "not one of this page")
            for path in ("//evil.example/a", "https://evil.example", "javascript:x", "/\\evil", "")
        ),
    ]
    for add, sentence in cases:
        assert_refused(change(served, add=add), sentence)
    assert not (run / "labels").exists()
    (run / "labels").write_text("in the way")
    sentence = "The run cannot be changed: "
    assert_refused(served.post("/api/tag", {"run": "job", "title": "a"}), sentence)
    assert_refused(change(served, add={"notes": [{"text": "x", **at_start}]}), sentence)


def test_the_result_of_a_query_as_an_arrow_file(served: Served) -> None:
    ipc = pytest.importorskip("pyarrow.ipc")
    query = "SELECT 7 AS a, 1.5 AS b"
    response = served.request("/api/sql-arrow", run="job", query=query)
    assert ipc.open_file(response.body).read_all().to_pylist() == [{"a": 7, "b": 1.5}]
    assert response.headers["content-disposition"] == 'attachment; filename="job.arrow"'
    assert_refused(served.request("/api/sql-arrow", run="job", query="DROP TABLE x"), "SELECT")


def test_the_file_for_perfetto(served: Served) -> None:
    response = served.request("/api/perfetto", run="job")
    assert response.status == 200
    assert response.headers["content-disposition"] == 'attachment; filename="job.pftrace"'
    assert b"forward" in response.body
