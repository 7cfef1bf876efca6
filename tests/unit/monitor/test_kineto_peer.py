"""Daemon of libkineto: its responses, and its behaviour on invalid messages."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.capture import kineto_daemon as daemon
from stepscope.monitor.attached.target import OutsideProcess
from stepscope.monitor.windows.kineto_peer import ACTIVITIES, KinetoPeer, open_peer
from stepscope.monitor.windows.planner import (
    Planner,
    TrainingProcess,
    WindowSpec,
    WindowStart,
    find_training_processes,
)
from stepscope.spool import SpoolTree, WindowState, finished_file

PID = 4321
OTHER_USER = 65534
"""Uid without privileges."""


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[KinetoPeer]:
    peer = KinetoPeer(tmp_path)
    yield peer
    peer.close()


def message(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("=Q32s", len(payload), kind) + payload


def request(types: int = ACTIVITIES, pids: tuple[int, ...] = (PID, 1)) -> bytes:
    return message(b"req", struct.pack(f"=iiq{len(pids)}i", types, len(pids), 0, *pids))


def send(directory: Path, data: bytes) -> bytes:
    """Send a datagram and return the response, as libkineto would get it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.bind(str(directory / "client"))
        client.settimeout(10)
        try:
            client.sendto(data, str(directory / "dynolog"))
            return client.recv(65536)
        finally:
            (directory / "client").unlink()


def send_as(user: int, directory: Path, data: bytes) -> bytes | None:
    """Send a datagram as another user from a process of its own; None without a response."""
    directory.chmod(0o777)
    (directory / "dynolog").chmod(0o777)
    script = (
        "import os, socket, sys; os.setuid(int(sys.argv[1]));"
        "client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
        "client.bind(sys.argv[2] + '/other');"
        "client.sendto(bytes.fromhex(sys.argv[3]), sys.argv[2] + '/dynolog');"
        "client.settimeout(0.5); sys.stdout.buffer.write(client.recv(65536))"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, str(user), str(directory), data.hex()],
        capture_output=True,
        check=False,
    )
    assert child.returncode == 0 or b"TimeoutError" in child.stderr, child.stderr
    return child.stdout or None


def test_the_abstract_socket_is_served_without_a_directory(tmp_path: Path) -> None:
    """libkineto ends the abstract name with a zero."""
    peer = open_peer("")
    assert peer is not None
    peer.offer(PID, "A=1\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.bind("\0stepscope-test-client\0")
        client.settimeout(10)
        client.sendto(request(), "\0dynolog\0")
        assert text_of(client.recv(65536)) == "A=1\n"
    peer.close()


def text_of(response: bytes) -> str:
    size, kind = struct.unpack_from("=Q32s", response)
    assert kind.rstrip(b"\0") == b"req"
    assert size == len(response) - 40
    return response[40:].decode()


def test_an_offer_is_the_response_to_one_request(peer: KinetoPeer, tmp_path: Path) -> None:
    """One of the process for a window of all activities, until it is withdrawn."""
    assert text_of(send(tmp_path, request())) == ""
    peer.offer(PID, "A=1\n")
    assert text_of(send(tmp_path, request(pids=(PID + 1, PID)))) == ""
    assert text_of(send(tmp_path, request(types=1))) == "", "it records a trace"
    assert peer.has_offer(PID)
    assert text_of(send(tmp_path, request())) == "A=1\n"
    assert text_of(send(tmp_path, request())) == ""
    assert not peer.has_offer(PID)
    peer.offer(PID, "A=1\n")
    assert (peer.withdraw(PID), peer.withdraw(PID)) == (True, False)
    assert text_of(send(tmp_path, request())) == ""


def test_a_window_that_libkineto_refused_is_offered_again(peer: KinetoPeer, tmp_path: Path) -> None:
    """It refuses one that it fetched, or for which it checked, a moment too late. Then it polls
    outside a trace after the planned end, and there is no file."""
    spool = tmp_path / "spool"
    spool.mkdir()
    tree, pid = SpoolTree(str(spool), 1 << 20), os.getpid()
    outside = OutsideProcess(tree, pid, [], period_ns=100_000_000)
    send(tmp_path, request(pids=(pid,)))
    outside.follow_windows(peer)
    processes: dict[str, TrainingProcess] = {}
    find_training_processes(tree, processes, 0)
    (process,) = processes.values()
    planner = Planner(peer, by_duration=True)
    spec = WindowSpec(reason="requested", duration_ns=1)
    planner.assign(spec, [process], WindowStart(first_step=None, start_ns=time.monotonic_ns()))

    def fetch(types: int = ACTIVITIES) -> str:
        configuration = text_of(send(tmp_path, request(types, (pid,))))
        outside.follow_windows(peer)
        assert process.window_state == WindowState.RECORDING
        return configuration

    refused = fetch()
    assert fetch(types=0) == "", "a trace is being recorded"
    accepted = fetch()
    assert "PROFILE_START_TIME" in refused
    assert accepted > refused, "it starts later"
    assert fetch() == "", "it is ahead"
    Path(finished_file(str(process.directory), 0, pid)).write_text("{}")
    outside.follow_windows(peer)
    assert process.window_state == WindowState.OVER


def test_it_records_the_polls_of_a_process(peer: KinetoPeer, tmp_path: Path) -> None:
    assert peer.last_poll(PID) is None
    send(tmp_path, request())
    assert peer.last_poll(PID) is not None
    assert peer.poll_interval_s(PID) is None
    send(tmp_path, request())
    assert (peer.poll_interval_s(PID) or 0) > 0


def test_the_response_to_a_registration_is_a_number(peer: KinetoPeer, tmp_path: Path) -> None:
    response = send(tmp_path, message(b"ctxt", struct.pack("=iiq", 0, PID, 0)))
    assert response == message(b"ctxt", struct.pack("=i", 1))


INVALID = (
    b"",
    b"x",
    bytes(40),
    message(b"other", b""),
    message(b"ctxt", b"short"),
    message(b"req", b"short"),
    message(b"req", struct.pack("=iiq", 3, 2**31 - 1, 0)),
    message(b"req", struct.pack("=iiq", 3, -1, 0)),
    message(b"req", struct.pack("=iiqi", 3, 2, 0, PID)),
    struct.pack("=Q32s", 2**63, b"req") + b"payload",
)


def test_invalid_messages_do_no_harm(peer: KinetoPeer, tmp_path: Path) -> None:
    for data in INVALID:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(data, str(tmp_path / "dynolog"))  # from an unnamed socket as well
        peer.offer(PID, "A=1\n")
        assert text_of(send(tmp_path, request())) == "A=1\n", data


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    KinetoPeer.respond(_NoSocket(), data)
    KinetoPeer.respond(_NoSocket(), message(b"req", data))


class _NoSocket(KinetoPeer):
    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()
        self._offers = {}
        self._polls = {}


def test_it_replaces_a_socket_of_a_killed_monitor(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "dynolog"))
    peer = open_peer(str(tmp_path))
    assert peer is not None
    assert text_of(send(tmp_path, request())) == ""
    peer.close()
    assert not (tmp_path / "dynolog").exists()


def test_there_is_no_peer_without_a_socket(tmp_path: Path) -> None:
    assert open_peer(None) is None
    assert open_peer(str(tmp_path / "absent")) is None


def test_the_directory_is_short_and_private_and_sets_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    path = daemon.make_directory()
    assert path is not None
    directory = Path(path)
    try:
        assert len(f"{directory}/dynoconfigclient{'x' * 36}") < 108
        assert directory.stat().st_mode & 0o77 == 0
        variables = daemon.libkineto_variables(path, "/spool")
        assert variables["KINETO_ONDEMAND_TRACE_DIR"] == "/spool"
        assert "INTERVAL_SECS=1" in Path(variables["KINETO_CONFIG"]).read_text()
        monkeypatch.setenv("KINETO_CONFIG", "/user/kineto.conf")
        assert "KINETO_CONFIG" not in daemon.libkineto_variables(path, "/spool")
    finally:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def test_a_long_temporary_directory_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KINETO_USE_DAEMON", raising=False)
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    path = daemon.make_directory()
    assert path is not None
    assert not path.startswith(str(long))
    for file in Path(path).iterdir():
        file.unlink()
    Path(path).rmdir()


def test_a_daemon_of_the_user_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    assert daemon.make_directory() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_response() -> None:
    with tempfile.TemporaryDirectory() as name:  # below tmp_path, only this user can go
        directory = Path(name)
        another = KinetoPeer(directory)
        try:
            another.offer(PID, "A=1\n")
            assert send_as(OTHER_USER, directory, request()) is None
            assert another.has_offer(PID)
            assert another.last_poll(PID) is None
            (directory / "other").unlink()
            assert text_of(send_as(0, directory, request()) or b"") == "A=1\n"
        finally:
            another.close()
