"""Responses without a client, beyond the limits, or from a worker that dies."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.server.process import listen
from stepscope.server.settings import Limits
from tests.support.served import Served, serving
from tests.support.waiting import wait_until

RUN = "recorded"
TASKS = "tests.support.misbehaving_tasks"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def block_worker(served: Served, directory: Path) -> tuple[int, Callable[[], None]]:
    """Request a view that takes a minute; returns the worker's PID and a function to disconnect."""
    connection = served.connect()
    pid_file = directory / "block"
    connection.request("GET", f"/api/views/block?run={RUN}&pid={pid_file}&seconds=60")
    pid = wait_until(lambda: pid_file.exists() and pid_file.read_text())
    return int(pid), connection.close


def test_a_disconnect_cancels_the_task(misbehaving: Served, tmp_path: Path) -> None:
    worker, disconnect = block_worker(misbehaving, tmp_path)
    assert is_alive(worker)
    disconnect()
    wait_until(lambda: not is_alive(worker))
    assert misbehaving.view("pid", RUN).json != worker


def test_a_task_that_ends_within_the_grace_period_keeps_its_worker(
    runs: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    with serving(runs, tasks=TASKS, limits=Limits(grace_s=20.0)) as patient:
        connection = patient.connect()
        connection.request("GET", f"/api/views/block?run={RUN}&pid={pid_file}&seconds=0.1")
        wait_until(lambda: pid_file.exists() and pid_file.read_text())
        connection.close()
        assert str(patient.view("pid", RUN).json) == pid_file.read_text()


def test_a_request_leaves_the_queue_on_disconnect(misbehaving: Served, tmp_path: Path) -> None:
    _, disconnect = block_worker(misbehaving, tmp_path)
    connections = [misbehaving.connect() for _ in range(5)]
    for number, connection in enumerate(connections):
        connection.request(
            "GET", f"/api/views/block?run={RUN}&pid={tmp_path / str(number)}&seconds=60"
        )
    wait_until(lambda: misbehaving.pending_count == 6)
    for connection in connections:
        connection.close()
    disconnect()
    assert misbehaving.view("pid", RUN).status == 200
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["block"]


def test_a_response_that_takes_too_long(runs: Path, tmp_path: Path) -> None:
    with serving(runs, tasks=TASKS, limits=Limits(response_s=2.0)) as impatient:
        assert wait_until(lambda: impatient.view("pid", RUN).status == 200)
        response = impatient.view("block", RUN, pid=str(tmp_path / "pid"), seconds="60")
        assert response.status == 503
        assert response.error == "The response took more than 2 s and was cancelled."
        assert not is_alive(int((tmp_path / "pid").read_text()))
        assert wait_until(lambda: impatient.view("pid", RUN).status == 200)


def test_the_timeline_never_waits_for_a_screen(misbehaving: Served, tmp_path: Path) -> None:
    worker, disconnect = block_worker(misbehaving, tmp_path)
    assert misbehaving.view("timeline-pid", RUN).json != worker
    assert misbehaving.request("/api/jobs").status == 200
    assert is_alive(worker)  # the screen is still being made
    disconnect()


def test_a_worker_that_dies_does_not_affect_other_requests(misbehaving: Served) -> None:
    with ThreadPoolExecutor() as pool:
        dying = pool.submit(misbehaving.view, "die", RUN)
        healthy = [pool.submit(misbehaving.view, "pid", RUN) for _ in range(3)]
        assert dying.result().status == 500
        assert "The process that computed the response has died." in dying.result().error
        assert {future.result().status for future in healthy} == {200}


def test_a_worker_that_has_grown_is_replaced(misbehaving: Served) -> None:
    large = misbehaving.view("grow", RUN, bytes="120000000")
    assert large.status == 200
    replacement = misbehaving.view("grow", RUN, bytes="1000").json
    assert replacement != large.json
    assert misbehaving.view("pid", RUN).json == replacement


def test_a_response_that_is_too_large(misbehaving: Served) -> None:
    response = misbehaving.view("huge", RUN, bytes="5000000")
    assert response.status == 400
    assert response.error.startswith("The response of 5 MB is larger than the limit of 3 MB.")
    assert len(misbehaving.view("huge", RUN, bytes="2000000").json) == 2_000_000


def test_an_internal_error_is_one_sentence(misbehaving: Served) -> None:
    worker = misbehaving.view("pid", RUN).json
    response = misbehaving.view("fail", RUN)
    assert response.status == 500
    assert "please report it: ZeroDivisionError: division by <b>zero</b>" in response.error
    assert response.headers["content-type"] == "application/json"
    assert misbehaving.view("pid", RUN).json == worker


@pytest.mark.extended("one more server")
def test_no_worker_outlives_the_server(runs: Path, tmp_path: Path) -> None:
    with serving(runs, tasks=TASKS) as served:
        workers = [served.view("pid", RUN).json, served.view("timeline-pid", RUN).json]
        blocked, disconnect = block_worker(served, tmp_path)
    disconnect()
    wait_until(lambda: not any(is_alive(pid) for pid in (*workers, blocked)), timeout_s=5)


def test_responses_do_not_wait_for_acknowledgements() -> None:
    """Nagle's algorithm here and delayed acknowledgement in the client would cost 40 ms each."""

    async def read_option() -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_connect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            option.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(on_connect, sock=listener):
            _, client = await asyncio.open_connection(*listener.getsockname())
            client.close()
            return await option

    assert asyncio.run(read_option())
