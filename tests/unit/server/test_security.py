"""Who may ask, and what a browser may do with the answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.server.security import HEADERS
from stepscope.server.settings import Limits
from tests.support.served import Answered, Served, serving

TOKEN = "correct-horse-battery-staple"  # noqa: S105
IMPATIENT = Limits(body_s=0.5)


@pytest.fixture(scope="module")
def locked(runs: Path) -> Iterator[Served]:
    """One that demands a token."""
    with serving(runs, token=TOKEN) as served:
        yield served


@pytest.fixture(scope="module")
def everywhere(runs: Path) -> Iterator[Served]:
    """One that listens on all addresses."""
    with serving(runs, host="0.0.0.0", token=TOKEN, allowed_hosts=("proxy.example",)) as served:  # noqa: S104
        yield served


def cookie_of(answer: Answered) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


# --- tokens --------------------------------------------------------------------------------------


def test_nothing_is_said_without_the_token(locked: Served) -> None:
    for path in ("/api/jobs", "/api/views/overview?run=recorded", "/api/openapi.json", "/api/x"):
        answer = locked.ask(path)
        assert answer.status == 401
        assert answer.error == "Log in with the token that stepscope ui has printed."
    for path in ("/", "/timeline?run=recorded", "/icon.svg", "/favicon.ico"):
        answer = locked.ask(path)
        assert answer.status == 401
        assert b"<form" in answer.body
        assert b"<script" not in answer.body
    assert locked.ask("/assets/no-such-file.js").status == 404, "files of the bundle are no secret"
    assert locked.post("/api/stop", {"run": "recorded"}).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer "},
        {"Cookie": f"stepscope={TOKEN}"},
        {"Cookie": "=;;;\x7f"},
        {"Cookie": "a" * 20_000},
        {"X-Token": TOKEN},
    ],
)
def test_wrong_tokens(locked: Served, headers: dict[str, str]) -> None:
    assert locked.ask("/api/jobs", headers=headers).status == 401
    named = headers.get("Cookie", "").replace("stepscope", f"stepscope-{locked.settings.port}")
    assert locked.ask("/api/jobs", headers=headers | {"Cookie": named}).status == 401


def test_the_printed_address_logs_in_and_forgets_the_token(locked: Served) -> None:
    answer = locked.ask(f"/kernels?run=a%2Fb&token={TOKEN}&top=3")
    assert answer.status == 303
    assert answer.headers["location"] == "/kernels?run=a%2Fb&top=3"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    held = {"Cookie": cookie_of(answer)}
    assert locked.ask("/api/jobs", headers=held).status == 200
    again = locked.ask(f"/?token={TOKEN}", headers=held)
    assert (again.status, again.headers["location"]) == (303, "/")


def test_a_wrong_address_is_told_and_delayed(locked: Served) -> None:
    began = time.monotonic()
    answer = locked.ask("/?token=wrong")
    assert answer.status == 401
    assert b"That is not the token." in answer.body
    assert "set-cookie" not in answer.headers
    assert time.monotonic() - began > 0.25


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%2f/evil.example"])
def test_logging_in_leads_nowhere_else(locked: Served, path: str) -> None:
    location = locked.ask(f"{path}?token={TOKEN}").headers["location"]
    assert location.startswith("/")
    assert location[1:2] not in {"/", "\\"}


def test_logging_in_by_the_page_and_by_a_script(locked: Served) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    by_page = locked.ask("/api/login", method="POST", headers=form, body=f"token={TOKEN}".encode())
    assert (by_page.status, by_page.headers["location"]) == (303, "/")
    by_script = locked.post("/api/login", {"token": TOKEN})
    assert by_script.status == 200
    for answer in (by_page, by_script):
        assert locked.ask("/api/jobs", headers={"Cookie": cookie_of(answer)}).status == 200
    wrong = locked.ask("/api/login", method="POST", headers=form, body=b"token=x")
    assert wrong.status == 401
    assert b"That is not the token." in wrong.body
    assert locked.post("/api/login", {"token": "x"}).error == "That is not the token."
    assert locked.post("/api/login", {"token": 7}).status == 400


def test_a_script_may_bring_the_token_itself(locked: Served) -> None:
    assert locked.ask("/api/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


# --- hosts and origins ---------------------------------------------------------------------------


def test_only_our_own_names(server: Served) -> None:
    port = server.settings.port
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "a b",
        f"[::g]:{port}",
        "u@localhost",
    ):
        answer = server.ask("/api/jobs", headers={"Host": host})
        assert answer.status in {400, 403}, host
    for host in (
        f"localhost:{port}",
        f"LOCALHOST:{port}",
        f"127.0.0.1:{port}",
        "[::1]",
        "127.0.0.2",
    ):
        assert server.ask("/api/jobs", headers={"Host": host}).status == 200, host
    page = server.ask("/", headers={"Host": "evil.example"})
    assert page.status == 403
    assert "--allow-host" in page.error


def test_names_of_a_server_on_all_addresses(everywhere: Served) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for host in ("proxy.example", "10.1.2.3:8420", "[fe80::1]", socket.gethostname()):
        assert everywhere.ask("/api/jobs", headers=bearer | {"Host": host}).status == 200, host
    answer = everywhere.ask("/api/jobs", headers=bearer | {"Host": "evil.example"})
    assert answer.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_others(server: Served, headers: dict[str, str]) -> None:
    assert server.ask("/api/jobs", headers=headers).status == 403
    assert server.ask("/api/jobs/events", headers=headers).status == 403
    assert server.post("/api/stop", {"run": "recorded"}, **headers).status == 403


def test_our_own_page(server: Served) -> None:
    ours = {"Origin": f"http://{server.authority}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("/api/jobs", headers=ours).status == 200


def test_every_answer_says_what_a_browser_may_do(server: Served, locked: Served) -> None:
    answers = [
        server.ask("/"),
        server.ask("/api/jobs"),
        server.ask("/api/nonsense"),
        server.ask("/api/jobs", headers={"Host": "evil.example"}),
        locked.ask("/"),
        locked.ask("/api/jobs"),
        locked.ask(f"/?token={TOKEN}"),
    ]
    for answer in answers:
        assert HEADERS.items() <= answer.headers.items()
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    policy = HEADERS["content-security-policy"]
    assert "script-src 'self';" in policy
    for directive in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
        assert directive in policy


# --- requests ------------------------------------------------------------------------------------


def test_bodies(server: Served) -> None:
    assert server.ask("/api/stop", method="POST", body=b"{}").status == 400
    text = {"Content-Type": "text/plain"}
    assert server.ask("/api/stop", method="POST", headers=text, body=b"{}").status == 400
    assert server.post("/api/stop", {"run": 7}).status == 400
    assert server.post("/api/stop", {"run": "recorded", "more": 1}).status == 400
    assert server.post("/api/stop", ["recorded"]).status == 400
    large = server.post("/api/stop", {"run": "x" * 100_000})
    assert large.error == "The body may have 64000 bytes."


def test_a_body_that_does_not_arrive(runs: Path) -> None:
    with serving(runs, limits=IMPATIENT) as served:
        connection = served.connect()
        connection.putrequest("POST", "/api/stop")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        answer = connection.getresponse()
        assert answer.status == 400
        assert b"did not arrive within 0.5 s" in answer.read()
        connection.close()


def test_a_connection_that_says_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.server.process.HEADER_S", 0.3)
    with (
        serving(runs) as served,
        socket.create_connection(
            (served.settings.host, served.settings.port), timeout=10
        ) as silent,
    ):
        silent.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd.x",
        "/assets/../../../__init__.py",
        "/assets/%2e%2e/%2e%2e/%2e%2e/__init__.py",
        "/..%2f..%2f__init__.py",
        "/%00.js",
        "//etc/hosts.allow",
        "/assets/" + "a" * 5000 + ".js",
    ],
)
def test_files_outside_the_bundle(server: Served, path: str) -> None:
    answer = server.ask(path)
    assert answer.status == 404
    assert answer.error == "There is no such file."
