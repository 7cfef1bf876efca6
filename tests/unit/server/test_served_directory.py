"""Runs below a directory over HTTP: names, links, damage and removals."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, trace_events

OUTSIDE = "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directory to serve, with one run, next to a private run."""
    root = tmp_path / "served"
    draw_job(root / "a" / "run", 3)
    draw_job(tmp_path / OUTSIDE, 3)
    return root


@pytest.fixture
def served(root: Path) -> Iterator[Served]:
    with serving(root) as server:
        yield server


def test_names_that_lead_nowhere_over_http(served: Served, root: Path) -> None:
    outside = root.parent / OUTSIDE
    for name in ("../outside", str(outside), "a/%2e%2e/../outside", "a%00", "a\0"):
        response = served.view("overview", name)
        assert response.status == 404
        assert "drawn" not in response.body.decode()
    # Encoded by hand, once and twice.
    for query in ("run=%2e%2e%2foutside", "run=%252e%252e%252foutside", "run=..%5coutside"):
        assert served.request(f"/api/views/overview?{query}").status == 404


def test_a_run_with_a_link_in_it_is_not_opened(served: Served, root: Path) -> None:
    node = next((root / "a" / "run" / "tables" / "spans").iterdir())
    (node / "00000009-00000009.parquet").symlink_to("/etc/passwd")
    response = served.view("overview", "a/run")
    assert response.status == 400
    assert "symbolic link" in response.error


def test_a_run_itself_can_be_served(root: Path) -> None:
    run = root / "a" / "run"
    with serving(run) as served:
        assert [job["id"] for job in served.request("/api/jobs").json["jobs"]] == ["."]
        assert served.view("overview", ".").status == 200


def test_a_run_that_is_removed(served: Served, root: Path) -> None:
    assert served.view("overview", "a/run").status == 200
    shutil.rmtree(root / "a" / "run")
    response = served.view("overview", "a/run")
    assert response.status == 410
    assert response.error == "The run 'a/run' has been removed."
    assert served.request("/api/jobs").json["jobs"] == []


def test_a_run_whose_tables_are_removed(served: Served, root: Path) -> None:
    """The list of files is older than the files."""
    assert served.view("overview", "a/run").status == 200
    shutil.rmtree(root / "a" / "run" / "tables")
    assert served.view("steps", "a/run").status == 200


def test_a_damaged_run_does_not_hide_other_runs(served: Served, root: Path) -> None:
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text('{"schema_version": 1, "run_id": 7}')
    (root / "newer").mkdir()
    (root / "newer" / "run.json").write_text('{"schema_version": 999}')
    jobs = {job["id"]: job["problem"] for job in served.request("/api/jobs").json["jobs"]}
    assert jobs["a/run"] is None
    assert "run.json is damaged" in jobs["broken"]
    assert "Upgrade stepscope" in jobs["newer"]
    assert served.view("overview", "broken").status == 400
    assert "schema version 999" in served.view("overview", "newer").error


def test_names_with_special_characters(served: Served, root: Path) -> None:
    names = ["<img src=x onerror=alert(1)>", "a?b#c&d=e", "ünï %41", "'; DROP TABLE--", "$(id)"]
    for name in names:
        shutil.copytree(root / "a" / "run", root / name)
    shutil.copytree(root / "a" / "run", root / "\udcff\udcfe")  # bytes that are not UTF-8
    payload = served.request("/api/jobs").json
    assert {job["id"] for job in payload["jobs"]} == {*names, "a/run"}
    assert payload["notes"] == ["A run was left out: its name is not valid text."]
    for name in names:
        assert served.view("overview", name).status == 200


def test_a_million_letters_in_a_name(root: Path) -> None:
    """The name of a kernel, which contains HTML."""
    name = "k" * 1_000_000
    import_trace(root / "long", trace_events(f"<script>alert(1)</script>{name}"))
    with serving(root) as server:
        response = server.view("kernels", "long")
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
