"""Traces below the served directory, and their import on request of a page."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stepscope.server.settings import Limits
from tests.support.kineto_files import kernel, launch, op, trace
from tests.support.served import Served, ServerResponse, serving
from tests.support.served_runs import draw_job
from tests.support.waiting import wait_until

TRACE = trace(op("aten::mm", 0, 900), launch(100, 50, 1), kernel(400, 800, 1))
OTHER_TRACE = trace(op("aten::add", 0, 900))
MS = 1_623_143_089_861
WORKER = f"rank3.{MS}.pt.trace.json.gz"
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directory to serve: a run, two traces, and files that are no traces."""
    root = tmp_path / "served"
    draw_job(root / "job", 3)
    (root / "log").mkdir()
    (root / "log" / WORKER).write_bytes(gzip.compress(TRACE))
    (root / "log" / "other.json").write_bytes(OTHER_TRACE)
    (root / "log" / "config.json").write_text('{"ph": 1}')
    (root / "log" / ".hidden.json").write_bytes(TRACE)
    (root / "job" / "trace.json").write_bytes(TRACE)
    (tmp_path / "outside.json").write_bytes(TRACE)
    (root / "log" / "link.json").symlink_to(tmp_path / "outside.json")
    return root


@pytest.fixture
def served(root: Path) -> Iterator[Served]:
    with serving(root, runs_directory="runs") as server:
        yield server


def traces(served: Served) -> list[str]:
    return [row["id"] for row in served.request("/api/jobs").json["traces"]]


def upload(
    served: Served, name: str, content: bytes = TRACE, headers: dict[str, str] = BYTES
) -> ServerResponse:
    """Send a trace as a page does."""
    path = f"/api/upload?name={quote(name, safe='')}"
    return served.request(path, method="POST", headers=headers, body=content)


def finished(served: Served, response: ServerResponse) -> Any:
    """Wait for the end of an import; return its last progress."""
    assert response.status == 200, response.body
    import_id = response.json["id"]

    def progress() -> Any:
        return served.request("/api/import", **{"import": import_id}).json

    wait_until(lambda: progress()["finished"], timeout_s=120, waiting_for="the import")
    return progress()


def test_traces_that_are_in_no_run_are_listed(served: Served) -> None:
    listed = served.request("/api/jobs").json
    assert listed["why_not_import"] is None
    rows = {row.pop("id"): row for row in listed["traces"]}
    assert set(rows) == {f"log/{WORKER}", "log/other.json"}
    row = rows[f"log/{WORKER}"]
    assert (row["worker"], row["rank"], row["changed_ms"]) == ("rank3", 3, MS)
    row = rows["log/other.json"]
    assert (row["worker"], row["rank"], row["size_bytes"]) == (None, None, len(OTHER_TRACE))


def test_an_import_of_one_trace(served: Served, root: Path) -> None:
    progress = finished(served, served.post("/api/import", {"traces": [f"log/{WORKER}"]}))
    assert progress["failure"] is None
    assert (progress["run"], progress["done_ratio"]) == (f"runs/rank3.{MS}", 1)
    shown = served.view("recordings", progress["run"]).json["recordings"]
    assert [(item["trace"], item["rank"]) for item in shown] == [("rank3", 3)]
    listed = served.request("/api/jobs").json
    assert {job["id"] for job in listed["jobs"]} == {"job", progress["run"]}
    assert [row["id"] for row in listed["traces"]] == ["log/other.json"]
    assert [path.name for path in (root / "runs").iterdir()] == [f"rank3.{MS}"]

    changed_ns = (root / "log" / WORKER).stat().st_mtime_ns + 1
    os.utime(root / "log" / WORKER, ns=(changed_ns, changed_ns))
    assert set(traces(served)) == {f"log/{WORKER}", "log/other.json"}


@pytest.mark.extended("one more server")
def test_several_traces_are_one_run_named_after_their_directory(served: Served) -> None:
    for name in ("runs/log", "runs/log-2"):
        response = served.post("/api/import", {"traces": [f"log/{WORKER}", "log/other.json"]})
        progress = finished(served, response)
        assert progress["run"] == name
        assert len(served.view("recordings", name).json["recordings"]) == 2
    assert traces(served) == []


def test_a_trace_that_a_page_sends(served: Served, root: Path) -> None:
    progress = finished(served, upload(served, "../../rank5.json"))
    assert progress["run"] == "runs/rank5"
    (shown,) = served.view("recordings", progress["run"]).json["recordings"]
    assert (shown["trace"], shown["rank"]) == ("rank5.json", 5)
    assert [path.name for path in (root / "runs").iterdir()] == ["rank5"]
    assert not list(root.parent.glob("*rank5*"))


def test_damage_is_one_sentence(served: Served, root: Path) -> None:
    for content in (b"# Notes", gzip.compress(TRACE)[:20], b""):
        progress = finished(served, upload(served, "bad.json", content))
        assert progress["run"] is None
        assert "bad.json" in progress["failure"]
        assert "Traceback" not in progress["failure"]
        assert list((root / "runs").iterdir()) == []


def test_only_listed_files_are_imported(served: Served, root: Path) -> None:
    names = ["../outside.json", "log/link.json", "log/.hidden.json", "log/config.json"]
    names += ["log/missing.json", "log", "log/../log/other.json", "log//other.json", "/etc/passwd"]
    for name in (*names, "", "a\0b"):
        response = served.post("/api/import", {"traces": ["log/other.json", name]})
        assert response.status == 400, name
        assert "There is no trace" in response.error
    assert not (root / "runs").exists()


def test_an_empty_request(served: Served) -> None:
    assert served.post("/api/import", {"traces": []}).status == 400
    assert served.request("/api/import", **{"import": "unknown"}).status == 404
    assert served.request("/api/upload", method="POST", headers=BYTES, body=TRACE).status == 400


def test_pages_of_other_origins_import_nothing(served: Served, root: Path) -> None:
    foreign = {"Origin": "http://evil.example"}
    assert served.post("/api/import", {"traces": ["log/other.json"]}, **foreign).status == 403
    for headers in (
        BYTES | foreign,
        BYTES | {"Sec-Fetch-Site": "cross-site"},
        BYTES | {"Host": "rebound.example"},
    ):
        assert upload(served, "a.json", headers=headers).status == 403
    plain = {"Content-Type": "text/plain"}  # a form can send it to any origin
    assert upload(served, "a.json", headers=plain).status == 400
    assert not list((root / "runs").glob("*"))


def test_imports_need_the_token(root: Path) -> None:
    with serving(root, token="a long secret") as served:  # noqa: S106 - of this test
        assert served.post("/api/import", {"traces": ["log/other.json"]}).status == 401
        assert upload(served, "a.json").status == 401
    assert not list(root.glob(".import*"))


def test_a_trace_that_is_too_large(root: Path) -> None:
    limits = Limits(trace_bytes=len(TRACE) - 1)
    with serving(root, limits=limits) as served:
        response = upload(served, "a.json")
        assert response.status == 413
        assert "The trace is larger than" in response.error
    assert not list(root.glob(".import*"))


def test_a_run_takes_no_imports(root: Path) -> None:
    with serving(root / "job") as served:
        assert "is a run" in served.request("/api/jobs").json["why_not_import"]
        response = upload(served, "a.json")
        assert response.status == 400
        assert "is a run" in response.error


def test_a_new_trace_is_announced(served: Served, root: Path) -> None:
    events = served.events("/api/jobs/events")
    try:
        assert events.next()[0] == "open"
        (root / "log" / "new.json").write_bytes(TRACE)
        while events.next()[0] != "change" or "log/new.json" not in traces(served):
            pass
    finally:
        events.close()


def test_a_server_that_ends_leaves_no_part_of_an_import(root: Path) -> None:
    with serving(root, runs_directory="runs") as served:
        response = served.post("/api/import", {"traces": ["log/other.json"]})
        assert response.status == 200
    names = [path.name for path in (root / "runs").iterdir()]
    assert names in ([], ["other"])
