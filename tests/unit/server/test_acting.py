"""Asking for a window and stopping a job: only where somebody hears it, and only who may."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.schema import JobState, JobStatus
from stepscope.store import RunWriter
from stepscope.store.window_requests import (
    AnsweredWindow,
    AnswerState,
    RequestBoard,
    WindowAnswer,
)
from stepscope.watch.stop_request import FILE_NAME, StopRequest, read_stop_request
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return draw_job(tmp_path / "runs" / "job", 3)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A launcher's directory."""
    place = tmp_path / f"stepscope-{os.getuid()}-test"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def served(run: Path) -> Iterator[Served]:
    with serving(run.parent) as server:
        yield server


def say(run: Path, state: JobState = JobState.IN_PROGRESS, *, heard_s_ago: float = 0) -> None:
    """Let the monitor say how the job stands."""
    heard = time.time_ns() - round(1e9 * heard_s_ago)
    with RunWriter(run, "n0") as writer:
        writer.put_status(JobStatus(state=state, heartbeat_ns=heard, started_ns=heard - 10**10))


def options(run: Path, **given: Any) -> None:
    """What the launcher was told."""
    manifest = run / "run.json"
    info = msgspec.json.decode(manifest.read_bytes())
    manifest.unlink()
    manifest.write_bytes(msgspec.json.encode(info | {"options": given}))


def session(served: Served) -> Any:
    time.sleep(0.3)  # a revision is believed for a moment
    return served.ask("/api/session", run="job").json


# --- stopping ------------------------------------------------------------------------------------


def test_a_job_whose_launcher_allows_it_is_stopped(served: Served, run: Path, spool: Path) -> None:
    options(run, allow_stop=True, spool=str(spool))
    say(run)
    assert session(served)["can_stop"]
    answer = served.post("/api/stop", {"run": "job"})
    assert answer.status == 200
    assert "in the web UI (from 127.0.0.1)" in answer.json["by"]
    assert read_stop_request(spool / FILE_NAME) == StopRequest(by=answer.json["by"])
    assert "already" in session(served)["why_not_stop"]
    assert served.post("/api/stop", {"run": "job"}).status == 400


@pytest.mark.parametrize(
    ("given", "state", "heard_s_ago", "sentence"),
    [
        (
            {},
            JobState.IN_PROGRESS,
            0,
            "does not allow it: start it with stepscope run --allow-stop",
        ),
        ({"allow_stop": False}, JobState.IN_PROGRESS, 0, "does not allow it"),
        ({"allow_stop": True}, JobState.COMPLETED, 0, "the job is over"),
        ({"allow_stop": True}, JobState.STOPPING, 0, "asked to stop already"),
        ({"allow_stop": True}, JobState.IN_PROGRESS, 60, "nothing has been heard"),
    ],
)
def test_a_job_that_cannot_be_stopped(
    served: Served,
    run: Path,
    spool: Path,
    given: dict[str, Any],
    state: JobState,
    heard_s_ago: float,
    sentence: str,
) -> None:
    options(run, spool=str(spool), **given)
    say(run, state, heard_s_ago=heard_s_ago)
    assert sentence in session(served)["why_not_stop"]
    answer = served.post("/api/stop", {"run": "job"})
    assert answer.status == 400
    assert sentence in answer.error
    assert list(spool.iterdir()) == []


def test_a_run_cannot_have_files_written_anywhere(served: Served, run: Path, spool: Path) -> None:
    """It may come from anywhere and name any place."""
    other = spool.with_name("other")
    other.mkdir()
    link = spool.with_name(f"stepscope-{os.getuid()}-link")
    link.symlink_to(other)
    relative = os.path.relpath(spool)
    open_to_all = spool.with_name(f"stepscope-{os.getuid()}-open")
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for place in (other, link, relative, open_to_all, "", None, 7, "\0", spool / "none"):
        options(run, allow_stop=True, spool=place if place in {None, 7} else str(place))
        say(run)
        assert "only on the machine of its launcher" in session(served)["why_not_stop"], place
        assert served.post("/api/stop", {"run": "job"}).status == 400
    assert list(other.iterdir()) == []


# --- capturing -----------------------------------------------------------------------------------


def test_a_window_is_asked_for_and_followed(served: Served, run: Path) -> None:
    options(run, window="auto")
    say(run)
    assert session(served)["can_capture"]
    answer = served.post("/api/capture", {"run": "job", "steps": 7, "stacks": True})
    name = answer.json["request"]
    board = RequestBoard(str(run))
    (request,) = board.new_requests()
    assert (request.name, request.step_count, request.depth) == (name, 7, "full")
    assert request.options == ["stacks"]

    def progress() -> Any:
        return served.ask("/api/capture", run="job", request=name).json

    assert progress() == {
        "request": name,
        "finished": False,
        "stored_count": 0,
        "failure": None,
        "nodes": {},
    }
    board.put_answer(name, "n0", WindowAnswer(state=AnswerState.RECORDING))
    assert progress()["nodes"]["n0"]["state"] == "recording"
    window = AnsweredWindow(process="1", number=0, rank=0, state=AnswerState.STORED)
    board.put_answer(name, "n0", WindowAnswer(state=AnswerState.STORED, windows=[window]))
    assert progress()["finished"]
    assert progress()["stored_count"] == 1
    board.put_answer(name, "n0", WindowAnswer(state=AnswerState.FAILED, message="no steps"))
    assert progress()["failure"] == "no steps"


@pytest.mark.parametrize(
    ("given", "state", "heard_s_ago", "sentence"),
    [
        ({"window": "off"}, JobState.IN_PROGRESS, 0, "--window off"),
        ({}, JobState.COMPLETED, 0, "is over; a window needs a running job"),
        ({}, JobState.IN_PROGRESS, 60, "has not been heard for"),
    ],
)
def test_a_job_that_cannot_hear(
    served: Served,
    run: Path,
    given: dict[str, Any],
    state: JobState,
    heard_s_ago: float,
    sentence: str,
) -> None:
    options(run, **given)
    say(run, state, heard_s_ago=heard_s_ago)
    assert sentence in session(served)["why_not_capture"]
    answer = served.post("/api/capture", {"run": "job", "steps": 5})
    assert answer.status == 400
    assert sentence in answer.error
    assert RequestBoard(str(run)).new_requests() == []


@pytest.mark.parametrize(
    "wanted",
    [{"steps": 0}, {"steps": 10**9}, {"steps": "5"}, {"full": False, "stacks": True}, {"more": 1}],
)
def test_windows_that_there_cannot_be(served: Served, run: Path, wanted: dict[str, Any]) -> None:
    say(run)
    assert served.post("/api/capture", {"run": "job"} | wanted).status == 400


def test_a_job_that_ends_before_its_window(served: Served, run: Path) -> None:
    say(run)
    name = served.post("/api/capture", {"run": "job", "steps": 5}).json["request"]
    say(run, JobState.COMPLETED)
    time.sleep(0.3)
    progress = served.ask("/api/capture", run="job", request=name).json
    assert progress["finished"]
    assert progress["failure"] == "the job has ended before the window was recorded"


def test_a_request_with_a_name_of_a_file(served: Served, run: Path) -> None:
    say(run)
    answer = served.ask("/api/capture", run="job", request="../../run")
    assert answer.json["nodes"] == {}
