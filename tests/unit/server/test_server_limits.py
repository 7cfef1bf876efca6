"""Answers that nobody wants any more, that take too long, are too large, or kill their worker."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stepscope.server.process import listen
from tests.support.served import Served, serving

RUN = "recorded"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def fall_asleep(odd: Served, place: Path, *, view: str = "sleep") -> tuple[int, Callable[[], None]]:
    """Ask for a view that sleeps for a minute: who does, and how to hang up."""
    connection = odd.connect()
    pid_file = place / view
    address = f"/api/views/{view}?run={RUN}&pid={pid_file}&seconds=60"
    connection.request("GET", address)
    assert within(10, lambda: pid_file.exists() and pid_file.read_text() != "")
    return int(pid_file.read_text()), connection.close


def test_a_browser_that_hangs_up_ends_the_work(odd: Served, tmp_path: Path) -> None:
    sleeper, hang_up = fall_asleep(odd, tmp_path)
    assert alive(sleeper)
    hang_up()
    assert within(odd.settings.limits.grace_s + 3, lambda: not alive(sleeper))
    assert odd.view("pid", RUN).json != sleeper


def test_work_that_ends_within_the_grace_keeps_its_worker(odd: Served, tmp_path: Path) -> None:
    connection = odd.connect()
    pid_file = tmp_path / "pid"
    connection.request("GET", f"/api/views/sleep?run={RUN}&pid={pid_file}&seconds=0.1")
    assert within(10, lambda: pid_file.exists() and pid_file.read_text() != "")
    connection.close()
    assert str(odd.view("pid", RUN).json) == pid_file.read_text()


def test_who_waits_and_hangs_up_leaves_the_queue(odd: Served, tmp_path: Path) -> None:
    _, hang_up = fall_asleep(odd, tmp_path)
    others = [odd.connect() for _ in range(5)]
    for number, connection in enumerate(others):
        connection.request(
            "GET", f"/api/views/sleep?run={RUN}&pid={tmp_path / str(number)}&seconds=60"
        )
    time.sleep(0.2)
    for connection in others:
        connection.close()
    hang_up()
    assert odd.view("pid", RUN).status == 200
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["sleep"]


def test_an_answer_that_takes_too_long(odd: Served, tmp_path: Path) -> None:
    began = time.monotonic()
    answer = odd.view("sleep", RUN, pid=str(tmp_path / "pid"), seconds="60")
    assert answer.status == 503
    assert answer.error == "The answer took more than 2 s and was stopped."
    assert time.monotonic() - began < 10
    assert not alive(int((tmp_path / "pid").read_text()))
    assert odd.view("pid", RUN).status == 200


def test_the_timeline_never_waits_for_a_screen(odd: Served, tmp_path: Path) -> None:
    sleeper, hang_up = fall_asleep(odd, tmp_path)
    began = time.monotonic()
    assert odd.view("timeline-pid", RUN).json != sleeper
    assert odd.ask("/api/jobs").status == 200
    assert time.monotonic() - began < 1.5
    assert alive(sleeper)
    hang_up()


def test_a_worker_that_dies_harms_nobody(odd: Served) -> None:
    with ThreadPoolExecutor() as pool:
        dying = pool.submit(odd.view, "die", RUN)
        others = [pool.submit(odd.view, "pid", RUN) for _ in range(3)]
        assert dying.result().status == 500
        assert "has died" in dying.result().error
        assert {each.result().status for each in others} == {200}


def test_a_worker_that_has_grown_is_replaced(odd: Served) -> None:
    grown = odd.view("grow", RUN, bytes="120000000")
    assert grown.status == 200
    fresh = odd.view("grow", RUN, bytes="1000").json
    assert fresh != grown.json
    assert odd.view("pid", RUN).json == fresh


def test_an_answer_that_is_too_large(odd: Served) -> None:
    answer = odd.view("huge", RUN, bytes="5000000")
    assert answer.status == 400
    assert answer.error.startswith("The answer would be 5 MB and may be 3 MB: ask for less")
    assert len(odd.view("huge", RUN, bytes="2000000").json) == 2_000_000


def test_a_defect_is_one_sentence(odd: Served) -> None:
    worker = odd.view("pid", RUN).json
    answer = odd.view("fail", RUN)
    assert answer.status == 500
    assert "a defect of stepscope: ZeroDivisionError: division by <b>zero</b>" in answer.error
    assert answer.headers["content-type"] == "application/json"
    assert odd.view("pid", RUN).json == worker


def test_no_worker_outlives_the_server(runs: Path, tmp_path: Path) -> None:

    with serving(runs, tasks="tests.support.odd_tasks") as served:
        workers = [served.view("pid", RUN).json, served.view("timeline-pid", RUN).json]
        sleeper, hang_up = fall_asleep(served, tmp_path)
    hang_up()
    assert within(5, lambda: not any(alive(pid) for pid in (*workers, sleeper)))


def test_answers_wait_for_no_acknowledgement() -> None:
    """Nagle's algorithm on our side and delayed acknowledgement on theirs would cost 40 ms each."""

    async def accepted() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ours = writer.get_extra_info("socket")
            seen.set_result(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listener):
            _, theirs = await asyncio.open_connection(*listener.getsockname())
            theirs.close()
            return await seen

    assert asyncio.run(accepted())
