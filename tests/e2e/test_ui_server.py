"""`stepscope ui` as users start it: address, token and end; and a job stopped from the page."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.under_stepscope import LIMIT_S, PATIENCE_S, STEPSCOPE, serving, training

pytestmark = pytest.mark.e2e


def get(url: str, path: str, **headers: str) -> tuple[int, Any]:
    """Status and payload; of a page, its text."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if path.startswith("/api") else text
    finally:
        connection.close()


def post(url: str, path: str, content: dict[str, Any]) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        kind = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(content), kind)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def until(condition: Any, seconds: float = PATIENCE_S) -> Any:
    """What comes of a condition once it holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place") / "stepscope-runs"
    run = RunBuilder(place / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    run.write()
    return place


@pytest.mark.parametrize("cwd", ["runs", "above", "run"])
def test_runs_are_found_where_the_user_is(runs: Path, cwd: str) -> None:
    where = {"runs": runs, "above": runs.parent, "run": runs / "job"}[cwd]
    with serving(cwd=where) as (url, _):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        jobs = get(url, "/api/jobs")[1]["jobs"]
        assert [job["id"] for job in jobs] == ["." if cwd == "run" else "job"]


def test_ctrl_c_ends_all_of_it_without_a_word_of_trouble(runs: Path) -> None:
    with serving(str(runs)) as (url, process):
        assert get(url, "/api/views/overview?run=job")[0] == 200
        listener = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=PATIENCE_S)
        listener.request("GET", "/api/events?run=job")
        assert listener.getresponse().status == 200
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of them get it
        assert process.wait(PATIENCE_S) == 0
        assert "Traceback" not in process.stderr.read()
        listener.close()
        assert psutil.wait_procs(children, timeout=10)[1] == []


def test_no_worker_outlives_a_server_that_is_killed(runs: Path) -> None:
    with serving(str(runs)) as (url, process):
        assert get(url, "/api/views/overview?run=job")[0] == 200
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert psutil.wait_procs(children, timeout=10)[1] == []


def test_a_port_that_is_taken(runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*STEPSCOPE, "ui", str(runs), "--no-browser", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"stepscope: The port {port} of 127.0.0.1 is taken; name another one with --port.\n"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["no-such-directory"], "is no directory; name one that holds runs."),
        (["s3://"], "is no URL of a bucket"),
        ([".", "--token", "short"], "A token of fewer than 12 characters is soon guessed."),
        ([".", "--host", "no.such.host.invalid"], "is no address of this machine"),
    ],
)
def test_what_cannot_be_served(options: list[str], sentence: str) -> None:
    done = subprocess.run(
        [*STEPSCOPE, "ui", "--no-browser", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_servers_have_two_ports(runs: Path) -> None:
    with serving(str(runs)) as (first, _), serving(str(runs)) as (second, _):
        assert first != second
        assert get(first, "/api/jobs")[0] == get(second, "/api/jobs")[0] == 200


def test_any_other_address_demands_the_token_that_is_printed(runs: Path) -> None:
    with serving(str(runs), "--host", "0.0.0.0") as (url, process):  # noqa: S104
        token = url.partition("?token=")[2]
        assert len(token) > 40
        here = f"http://127.0.0.1:{urlsplit(url).port}"
        assert get(here, "/api/jobs")[0] == 401
        assert "<form" in get(here, "/")[1]
        assert get(here, "/api/jobs", Authorization=f"Bearer {token}")[0] == 200
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert token not in process.stdout.read() + process.stderr.read()


def test_a_token_from_the_environment(runs: Path) -> None:
    with serving(str(runs), STEPSCOPE_TOKEN="from-the-environment") as (url, _):  # noqa: S106
        assert url.endswith("/?token=from-the-environment")
        assert get(url, "/api/jobs")[0] == 401


def test_a_job_is_looked_into_and_stopped_from_the_page(tmp_path: Path) -> None:
    """A window of a few steps reaches the run. Its launcher allows stopping; its status says who
    did it."""
    run = tmp_path / "run"
    with training(run, tmp_path) as launcher:
        until((run / "nodes").exists)
        with serving(str(run)) as (url, _):
            until(lambda: get(url, "/api/views/overview?run=.")[1]["rank_count"], LIMIT_S)
            assert get(url, "/api/session?run=.")[1]["can_stop"]
            status, asked = post(url, "/api/capture", {"run": ".", "steps": 5})
            assert status == 200
            progress = f"/api/capture?run=.&request={asked['request']}"
            until(lambda: get(url, progress)[1]["finished"], LIMIT_S)
            assert get(url, progress)[1]["stored_count"] == 1
            recorded = get(url, "/api/views/overview?run=.")[1]["recordings"]
            asked_for = [each["window"] for each in recorded]
            assert ("requested", 5) in [(each["reason"], each["step_count"]) for each in asked_for]
            status, stopped = post(url, "/api/stop", {"run": "."})
            assert status == 200
            _, errors = launcher.communicate(timeout=LIMIT_S)
            (standing,) = open_run(run).statuses().values()
            assert standing.state is JobState.STOPPED
            assert standing.reason == f"{stopped['by']} stopped the job (signal 15)"
            assert standing.reason in errors
            assert launcher.returncode == -signal.SIGTERM
            assert get(url, "/api/session?run=.")[1]["why_not_stop"] == "the job is over"


def test_a_job_whose_launcher_allows_nothing_goes_on(tmp_path: Path) -> None:
    """Even where somebody writes the wish themselves."""
    from stepscope.watch.stop_request import FILE_NAME, StopRequest, write_stop_request

    run = tmp_path / "run"
    script = [sys.executable, "-c", "import time; time.sleep(4)"]
    launcher = subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--no-rules", "--out", str(run), "--", *script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((run / "run.json").exists)
    spool = Path(open_run(run).info.options["spool"])
    write_stop_request(spool / FILE_NAME, StopRequest(by="a stranger"))
    assert launcher.wait(LIMIT_S) == 0
    (standing,) = open_run(run).statuses().values()
    assert standing.state is JobState.COMPLETED
