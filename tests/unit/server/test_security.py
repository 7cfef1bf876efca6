"""Access control, and the headers that restrict pages in a browser."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.server.security import HEADERS
from stepscope.server.settings import Limits
from tests.support.served import Served, ServerResponse, serving

TOKEN = "correct-horse-battery-staple"  # noqa: S105
SHORT_TIMEOUT = Limits(body_s=0.5)


@pytest.fixture(scope="module")
def locked(runs: Path) -> Iterator[Served]:
    """Server that requires a token."""
    with serving(runs, token=TOKEN) as served:
        yield served


@pytest.fixture(scope="module")
def everywhere(runs: Path) -> Iterator[Served]:
    """Server that listens on all addresses."""
    with serving(runs, host="0.0.0.0", token=TOKEN, allowed_hosts=("proxy.example",)) as served:  # noqa: S104
        yield served


def cookie_of(response: ServerResponse) -> str:
    return response.headers["set-cookie"].partition(";")[0]


# --- tokens --------------------------------------------------------------------------------------


def test_nothing_is_served_without_the_token(locked: Served) -> None:
    for path in ("/api/jobs", "/api/views/overview?run=recorded", "/api/openapi.json", "/api/x"):
        response = locked.request(path)
        assert response.status == 401
        assert response.error == "Log in with the token that `stepscope ui` has printed."
    for path in ("/", "/timeline?run=recorded", "/icon.svg", "/favicon.ico"):
        response = locked.request(path)
        assert response.status == 401
        assert b"<form" in response.body
        assert b"<script" not in response.body
    assert locked.request("/assets/no-such-file.js").status == 404, "the bundle is public"
    assert locked.post("/api/stop", {"run": "recorded"}).status == 401
    assert locked.post("/api/tag", {"run": "recorded"}).status == 401


def test_wrong_tokens(locked: Served) -> None:
    for headers in (
        *({"Authorization": f"Bearer {text}"} for text in ("wrong", f"{TOKEN}x", TOKEN[:-1], "")),
        {"Authorization": TOKEN},
        *({"Cookie": text} for text in (f"stepscope={TOKEN}", "=;;;\x7f", "a" * 20_000)),
        {"X-Token": TOKEN},
    ):
        assert locked.request("/api/jobs", headers=headers).status == 401
        cookie = headers.get("Cookie", "").replace("stepscope", f"stepscope-{locked.settings.port}")
        both = headers | {"Cookie": cookie}
        assert locked.request("/api/jobs", headers=both).status == 401


def test_the_printed_address_logs_in_and_loses_the_token(locked: Served) -> None:
    response = locked.request(f"/kernels?run=a%2Fb&token={TOKEN}&top=3")
    assert response.status == 303
    assert response.headers["location"] == "/kernels?run=a%2Fb&top=3"
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    with_cookie = {"Cookie": cookie_of(response)}
    assert locked.request("/api/jobs", headers=with_cookie).status == 200
    again = locked.request(f"/?token={TOKEN}", headers=with_cookie)
    assert (again.status, again.headers["location"]) == (303, "/")


def test_a_wrong_token_is_reported_after_a_delay(locked: Served) -> None:
    start_s = time.monotonic()
    response = locked.request("/?token=wrong")
    assert response.status == 401
    assert b"The token is not correct." in response.body
    assert "set-cookie" not in response.headers
    assert time.monotonic() - start_s > 0.25


def test_logging_in_redirects_to_no_other_server(locked: Served) -> None:
    for path in ("//evil.example/", "/\\evil.example", "/%2f/evil.example"):
        location = locked.request(f"{path}?token={TOKEN}").headers["location"]
        assert location.startswith("/")
        assert location[1:2] not in {"/", "\\"}


def test_login_from_the_page_and_from_a_script(locked: Served) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = f"token={TOKEN}".encode()
    from_page = locked.request("/api/login", method="POST", headers=form, body=body)
    assert (from_page.status, from_page.headers["location"]) == (303, "/")
    from_script = locked.post("/api/login", {"token": TOKEN})
    assert from_script.status == 200
    for response in (from_page, from_script):
        assert locked.request("/api/jobs", headers={"Cookie": cookie_of(response)}).status == 200
    wrong = locked.request("/api/login", method="POST", headers=form, body=b"token=x")
    assert wrong.status == 401
    assert b"The token is not correct." in wrong.body
    assert locked.post("/api/login", {"token": "x"}).error == "The token is not correct."
    assert locked.post("/api/login", {"token": 7}).status == 400


def test_a_script_may_send_the_token_itself(locked: Served) -> None:
    assert locked.request("/api/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


# --- hosts and origins ---------------------------------------------------------------------------


def test_only_own_host_names_are_allowed(server: Served) -> None:
    port = server.settings.port
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "a b",
        f"[::g]:{port}",
        "u@localhost",
    ):
        response = server.request("/api/jobs", headers={"Host": host})
        assert response.status in {400, 403}, host
    for host in (
        f"localhost:{port}",
        f"LOCALHOST:{port}",
        f"127.0.0.1:{port}",
        "[::1]",
        "127.0.0.2",
    ):
        assert server.request("/api/jobs", headers={"Host": host}).status == 200, host
    page = server.request("/", headers={"Host": "evil.example"})
    assert page.status == 403
    assert "--allow-host" in page.error


def test_host_names_of_a_server_on_all_addresses(everywhere: Served) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for host in ("proxy.example", "10.1.2.3:8420", "[fe80::1]", socket.gethostname()):
        assert everywhere.request("/api/jobs", headers=bearer | {"Host": host}).status == 200, host
    response = everywhere.request("/api/jobs", headers=bearer | {"Host": "evil.example"})
    assert response.status == 403


def test_pages_of_other_origins(server: Served) -> None:
    same_origin = {"Origin": f"http://{server.authority}", "Sec-Fetch-Site": "same-origin"}
    assert server.request("/api/jobs", headers=same_origin).status == 200
    origins = ("http://evil.example", "null", "http://localhost:1", "file://")
    for headers in (
        *({"Origin": origin} for origin in origins),
        *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")),
    ):
        assert server.request("/api/jobs", headers=headers).status == 403
        assert server.request("/api/jobs/events", headers=headers).status == 403
        assert server.post("/api/stop", {"run": "recorded"}, **headers).status == 403
        assert server.post("/api/tag", {"run": "recorded"}, **headers).status == 403


def test_every_response_has_the_security_headers(server: Served, locked: Served) -> None:
    responses = [
        server.request("/"),
        server.request("/api/jobs"),
        server.request("/api/nonsense"),
        server.request("/api/jobs", headers={"Host": "evil.example"}),
        locked.request("/"),
        locked.request("/api/jobs"),
        locked.request(f"/?token={TOKEN}"),
    ]
    for response in responses:
        assert HEADERS.items() <= response.headers.items()
        assert "server" not in response.headers
        assert "access-control-allow-origin" not in response.headers
    policy = HEADERS["content-security-policy"]
    assert "script-src 'self';" in policy
    for directive in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
        assert directive in policy


# --- requests ------------------------------------------------------------------------------------


def test_bodies(server: Served) -> None:
    assert server.request("/api/stop", method="POST", body=b"{}").status == 400
    text = {"Content-Type": "text/plain"}
    assert server.request("/api/stop", method="POST", headers=text, body=b"{}").status == 400
    assert server.post("/api/stop", {"run": 7}).status == 400
    assert server.post("/api/stop", {"run": "recorded", "more": 1}).status == 400
    assert server.post("/api/stop", ["recorded"]).status == 400
    large = server.post("/api/stop", {"run": "x" * 100_000})
    assert large.error == "The body is larger than 64000 bytes."


def test_a_body_that_does_not_arrive(runs: Path) -> None:
    with serving(runs, limits=SHORT_TIMEOUT) as served:
        connection = served.connect()
        connection.putrequest("POST", "/api/stop")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"{")
        response = connection.getresponse()
        assert response.status == 400
        assert "The body did not arrive within 500 ms." in response.read().decode()
        connection.close()


def test_a_connection_without_a_request(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.server.process.HEADER_TIMEOUT_S", 0.3)
    with (
        serving(runs) as served,
        socket.create_connection(
            (served.settings.host, served.settings.port), timeout=10
        ) as silent,
    ):
        silent.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert silent.recv(1) == b""


def test_files_outside_the_bundle(server: Served) -> None:
    for path in (
        "/../../../../etc/passwd.x",
        "/assets/../../../__init__.py",
        "/assets/%2e%2e/%2e%2e/%2e%2e/__init__.py",
        "/..%2f..%2f__init__.py",
        "/%00.js",
        "//etc/hosts.allow",
        "/assets/" + "a" * 5000 + ".js",
    ):
        response = server.request(path)
        assert (response.status, response.error) == (404, "There is no such file.")
