"""The monitor as libkineto's daemon: answers, and what it does with what is no question."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.capture import kineto_daemon as daemon
from stepscope.monitor.windows.kineto_peer import ACTIVITIES, KinetoPeer, open_peer

PID = 4321


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[KinetoPeer]:
    made = KinetoPeer(tmp_path)
    yield made
    made.close()


def message(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("=Q32s", len(payload), kind) + payload


def question(kinds: int = ACTIVITIES, pids: tuple[int, ...] = (PID, 1)) -> bytes:
    return message(b"req", struct.pack(f"=iiq{len(pids)}i", kinds, len(pids), 0, *pids))


def asked(directory: Path, data: bytes) -> bytes:
    """The answer to a datagram, as libkineto would get it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(directory / "client"))
        own.settimeout(10)
        try:
            own.sendto(data, str(directory / "dynolog"))
            return own.recv(65536)
        finally:
            (directory / "client").unlink()


def text_of(answer: bytes) -> str:
    size, kind = struct.unpack_from("=Q32s", answer)
    assert kind.rstrip(b"\0") == b"req"
    assert size == len(answer) - 40
    return answer[40:].decode()


def test_an_offer_is_the_answer_to_one_question(peer: KinetoPeer, tmp_path: Path) -> None:
    assert text_of(asked(tmp_path, question())) == ""
    peer.offer(PID, "A=1\n")
    assert text_of(asked(tmp_path, question(pids=(PID + 1, PID)))) == ""
    assert text_of(asked(tmp_path, question())) == "A=1\n"
    assert text_of(asked(tmp_path, question())) == ""
    assert not peer.has_offer(PID)


def test_a_process_that_is_recording_is_offered_nothing(peer: KinetoPeer, tmp_path: Path) -> None:
    peer.offer(PID, "A=1\n")
    assert text_of(asked(tmp_path, question(kinds=1))) == ""
    assert peer.has_offer(PID)


def test_an_offer_can_be_taken_back(peer: KinetoPeer, tmp_path: Path) -> None:
    peer.offer(PID, "A=1\n")
    assert peer.withdraw(PID)
    assert not peer.withdraw(PID)
    assert text_of(asked(tmp_path, question())) == ""


def test_it_remembers_when_a_process_asked(peer: KinetoPeer, tmp_path: Path) -> None:
    assert peer.last_poll(PID) is None
    asked(tmp_path, question())
    assert peer.last_poll(PID) is not None
    assert peer.poll_interval_s(PID) is None
    asked(tmp_path, question())
    assert (peer.poll_interval_s(PID) or 0) > 0


def test_a_registration_is_answered_with_a_number(peer: KinetoPeer, tmp_path: Path) -> None:
    answer = asked(tmp_path, message(b"ctxt", struct.pack("=iiq", 0, PID, 0)))
    assert answer == message(b"ctxt", struct.pack("=i", 1))


@pytest.mark.parametrize(
    "data",
    [
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
    ],
)
def test_what_is_no_question_does_no_harm(peer: KinetoPeer, tmp_path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.sendto(data, str(tmp_path / "dynolog"))  # from nowhere, too
    peer.offer(PID, "A=1\n")
    assert text_of(asked(tmp_path, question())) == "A=1\n"


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    KinetoPeer.answer(_NoSocket(), data)
    KinetoPeer.answer(_NoSocket(), message(b"req", data))


class _NoSocket(KinetoPeer):
    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()
        self._offers = {}
        self._polls = {}


def test_it_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(tmp_path / "dynolog"))
    peer = open_peer(str(tmp_path))
    assert peer is not None
    assert text_of(asked(tmp_path, question())) == ""
    peer.close()
    assert not (tmp_path / "dynolog").exists()


def test_no_peer_where_no_socket_can_be(tmp_path: Path) -> None:
    assert open_peer(None) is None
    assert open_peer(str(tmp_path / "absent")) is None


def test_the_directory_is_short_private_and_asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    made = daemon.make_directory()
    assert made is not None
    directory = Path(made)
    try:
        assert len(f"{directory}/dynoconfigclient{'x' * 36}") < 108
        assert directory.stat().st_mode & 0o77 == 0
        given_ = daemon.variables(made)
        assert "INTERVAL_SECS=1" in Path(given_["KINETO_CONFIG"]).read_text()
        monkeypatch.setenv("KINETO_CONFIG", "/their/own")
        assert "KINETO_CONFIG" not in daemon.variables(made)
    finally:
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def test_a_long_temporary_directory_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KINETO_USE_DAEMON", raising=False)
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    made = daemon.make_directory()
    assert made is not None
    assert not made.startswith(str(long))
    for path in Path(made).iterdir():
        path.unlink()
    os.rmdir(made)  # noqa: PTH106


def test_a_daemon_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    assert daemon.make_directory() is None
