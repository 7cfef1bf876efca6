"""`stepscope ui` as users start it: its address, token and end; and a job stopped from the page."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.watch.config import STOP_REQUEST_FILE, StopRequest, write_stop_request
from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import (
    JOB_TIMEOUT_S,
    STEPSCOPE,
    TIMEOUT_S,
    bearer_of,
    serving,
    training,
)
from tests.support.waiting import wait_until

in_detail = pytest.mark.extended("another server; its answers are in tests/unit/server")


def get(url: str, path: str, **headers: str) -> tuple[int, Any]:
    """Send a GET request; returns the status and the payload, or the text of a page."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path, headers=bearer_of(url) | headers)
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, json.loads(text) if path.startswith("/api") else text
    finally:
        connection.close()


def post(url: str, path: str, content: dict[str, Any]) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        kind = {"Content-Type": "application/json"} | bearer_of(url)
        connection.request("POST", path, json.dumps(content), kind)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("user") / "stepscope-runs"
    run = RunBuilder(directory / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    run.write()
    return directory


@pytest.mark.parametrize(
    "cwd", extend_all_but({"runs"}, ["runs", "above", "run"], "another directory")
)
def test_runs_of_the_current_directory_are_served(runs: Path, cwd: str) -> None:
    directory = {"runs": runs, "above": runs.parent, "run": runs / "job"}[cwd]
    with serving(cwd=directory) as (url, _):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", url)
        jobs = get(url, "/api/jobs")[1]["jobs"]
        assert [job["id"] for job in jobs] == ["." if cwd == "run" else "job"]


def test_ctrl_c_ends_all_processes_without_an_error(runs: Path) -> None:
    with serving(str(runs)) as (url, process):
        assert get(url, "/api/views/overview?run=job")[0] == 200
        listener = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=TIMEOUT_S)
        listener.request("GET", "/api/events?run=job", headers=bearer_of(url))
        assert listener.getresponse().status == 200
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        os.killpg(process.pid, signal.SIGINT)  # to all processes, as a terminal does
        assert process.wait(TIMEOUT_S) == 0
        assert "Traceback" not in process.stderr.read()
        listener.close()
        assert psutil.wait_procs(children, timeout=TIMEOUT_S)[1] == []


@in_detail
def test_no_worker_outlives_a_server_that_is_killed(runs: Path) -> None:
    with serving(str(runs)) as (url, process):
        assert get(url, "/api/views/overview?run=job")[0] == 200
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert psutil.wait_procs(children, timeout=TIMEOUT_S)[1] == []


@in_detail
def test_a_port_in_use(runs: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = subprocess.run(
            [*STEPSCOPE, "ui", str(runs), "--no-browser", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
        )
    assert result.returncode == 2
    assert result.stderr == (
        f"stepscope: Port {port} of 127.0.0.1 is in use. Choose another one with --port.\n"
    )


@in_detail
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["no-such-directory"], "is not a directory. Pass a directory that contains runs."),
        (["s3://"], "is not a bucket URL"),
        ([".", "--token", "short"], "The token is too short; use at least 12 characters."),
        ([".", "--host", "no.such.host.invalid"], "is not an address of this machine"),
    ],
)
def test_invalid_options(options: list[str], sentence: str) -> None:
    result = subprocess.run(
        [*STEPSCOPE, "ui", "--no-browser", *options],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
    )
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@in_detail
def test_two_servers_have_two_ports(runs: Path) -> None:
    with serving(str(runs)) as (first, _), serving(str(runs)) as (second, _):
        assert first != second
        assert get(first, "/api/jobs")[0] == get(second, "/api/jobs")[0] == 200


@pytest.mark.seed("SMP-32")
@pytest.mark.parametrize(
    "host",
    extend_all_but({"127.0.0.1"}, ["127.0.0.1", "0.0.0.0"], "another address"),  # noqa: S104
)
def test_every_address_requires_the_printed_token(runs: Path, host: str) -> None:
    """Loopback too: all users of a login node share it."""
    with serving(str(runs), "--host", host) as (url, process):
        token = url.partition("?token=")[2]
        assert len(token) > 40
        local_url = f"http://127.0.0.1:{urlsplit(url).port}"
        assert get(local_url, "/api/jobs")[0] == 401
        assert "<form" in get(local_url, "/")[1]
        assert get(local_url, "/api/jobs", Authorization=f"Bearer {token}")[0] == 200
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        assert token not in process.stdout.read() + process.stderr.read()


def test_a_token_on_the_command_line_is_hidden_and_warned_of(runs: Path) -> None:
    token = "on-the-command-line"  # noqa: S105
    with serving(str(runs), "--token", token) as (url, process):
        assert url.endswith(f"/?token={token}")
        assert token not in " ".join(psutil.Process(process.pid).cmdline())
        os.killpg(process.pid, signal.SIGINT)
        _, messages = process.communicate(timeout=TIMEOUT_S)
    assert "in the list of processes while the command starts; set STEPSCOPE_TOKEN" in messages


@in_detail
def test_a_token_from_the_environment(runs: Path) -> None:
    with serving(str(runs), STEPSCOPE_TOKEN="from-the-environment") as (url, _):  # noqa: S106
        assert url.endswith("/?token=from-the-environment")
        assert get(url, "/api/jobs")[0] == 200


@pytest.mark.extended("test_ui_live.py stops a job from the page")
def test_a_window_and_a_stop_requested_from_the_page(tmp_path: Path) -> None:
    """A window of a few steps reaches the run. The launcher allows stop requests; the status of the
    job names the requester."""
    run = tmp_path / "run"
    with training(run, tmp_path) as launcher:
        wait_until((run / "nodes").exists)
        with serving(str(run)) as (url, _):
            overview = "/api/views/overview?run=."
            wait_until(lambda: get(url, overview)[1]["rank_count"], timeout_s=JOB_TIMEOUT_S)
            assert get(url, "/api/session?run=.")[1]["can_stop"]
            status, accepted = post(url, "/api/capture", {"run": ".", "steps": 5})
            assert status == 200
            progress = f"/api/capture?run=.&request={accepted['request']}"
            wait_until(lambda: get(url, progress)[1]["finished"], timeout_s=JOB_TIMEOUT_S)
            assert get(url, progress)[1]["stored_count"] == 1

            def recorded() -> list[tuple[str, int]]:
                windows = [trace["window"] for trace in get(url, overview)[1]["recordings"]]
                return [(win["reason"], win["step_count"]) for win in windows if win is not None]

            wait_until(lambda: ("requested", 5) in recorded(), timeout_s=JOB_TIMEOUT_S)
            status, stop = post(url, "/api/stop", {"run": "."})
            assert status == 200
            _, errors = launcher.communicate(timeout=JOB_TIMEOUT_S)
            (job_status,) = open_run(run).statuses().values()
            assert job_status.state is JobState.STOPPED
            assert job_status.reason == f"{stop['by']} stopped the job (signal 15)"
            assert job_status.reason in errors
            assert launcher.returncode == -signal.SIGTERM
            assert get(url, "/api/session?run=.")[1]["why_not_stop"] == "the job has ended"


@in_detail
def test_a_job_that_does_not_allow_stop_requests_continues(tmp_path: Path) -> None:
    """Even if another process writes the request itself."""
    run = tmp_path / "run"
    script = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    launcher = subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--no-rules", "--out", str(run), "--", *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def heartbeat_ns() -> int:
        statuses = open_run(run).statuses().values()
        return max((status.heartbeat_ns for status in statuses), default=0)

    wait_until((run / "run.json").exists)
    start_ns = wait_until(heartbeat_ns)
    spool = Path(open_run(run).info.options["spool"])
    write_stop_request(spool / STOP_REQUEST_FILE, StopRequest(by="a stranger"))
    wait_until(lambda: heartbeat_ns() > start_ns + 3_000_000_000)
    launcher.communicate(timeout=JOB_TIMEOUT_S)  # closes the standard input of the job
    assert launcher.returncode == 0
    (job_status,) = open_run(run).statuses().values()
    assert job_status.state is JobState.COMPLETED
