"""Runs below a directory: a name leads to a directory below the served one, or nowhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.server.catalog import RunRemovedError
from stepscope.server.directory_catalog import DirectoryCatalog
from stepscope.server.open_catalog import resolve_root
from stepscope.store import revision_of
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, trace_events
from tests.support.waiting import wait_until

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


def ids(root: Path) -> set[str]:
    return {run.id for run in DirectoryCatalog(root.resolve()).list_runs().runs}


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "a/run/../../../outside",
        "/etc",
        "..",
        "a//run",
        "a/./run",
        "./a/run",
        "a/run/",
        "",
        "a\0run",
        "a/run\0",
        "%2e%2e/outside",
        "..%2foutside",
        "..\\outside",
        "a" * 100_000,
        "a/run/run.json",
        "no/such",
        "\ud800",
    ],
)
def test_names_that_lead_nowhere(root: Path, name: str) -> None:
    with pytest.raises(NotARunError) as caught:
        DirectoryCatalog(root.resolve()).locate(name)
    assert not isinstance(caught.value, RunRemovedError)
    assert len(str(caught.value)) < 1000


def test_names_that_lead_nowhere_over_http(served: Served, root: Path) -> None:
    outside = root.parent / OUTSIDE
    for name in ("../outside", str(outside), "a/%2e%2e/../outside", "a%00", "a\0"):
        response = served.view("overview", name)
        assert response.status == 404
        assert "drawn" not in response.body.decode()
    # Encoded by hand, once and twice.
    for query in ("run=%2e%2e%2foutside", "run=%252e%252e%252foutside", "run=..%5coutside"):
        assert served.request(f"/api/views/overview?{query}").status == 404


def test_links_that_leave_the_directory(root: Path) -> None:
    (root / "link").symlink_to(root.parent / OUTSIDE)
    (root / "up").symlink_to(root.parent)
    (root / "a" / "inside").symlink_to(root / "a" / "run")
    (root / "a" / "circle").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    assert ids(root) == {"a/run"}
    catalog = DirectoryCatalog(root.resolve())
    for name in ("link", "up/outside", "loop"):
        with pytest.raises(NotARunError):
            catalog.locate(name)
    assert catalog.locate("a/inside") == str(root / "a" / "run")


def test_a_run_with_a_link_in_it_is_not_opened(served: Served, root: Path) -> None:
    node = next((root / "a" / "run" / "tables" / "spans").iterdir())
    (node / "00000009-00000009.parquet").symlink_to("/etc/passwd")
    response = served.view("overview", "a/run")
    assert response.status == 400
    assert "symbolic link" in response.error


def test_a_directory_whose_manifest_is_a_link_is_not_a_run(root: Path) -> None:
    (root / "b").mkdir()
    (root / "b" / "run.json").symlink_to(root.parent / OUTSIDE / "run.json")
    assert ids(root) == {"a/run"}
    with pytest.raises(NotARunError):
        DirectoryCatalog(root.resolve()).locate("b")


def test_a_run_itself_can_be_served(root: Path) -> None:
    run = root / "a" / "run"
    with serving(run) as served:
        assert [job["id"] for job in served.request("/api/jobs").json["jobs"]] == ["."]
        assert served.view("overview", ".").status == 200


def test_directories_below_a_run_and_hidden_ones_are_not_runs(root: Path) -> None:
    shutil.copytree(root / "a" / "run", root / "a" / "run" / "raw" / "inner")
    shutil.copytree(root / "a" / "run", root / ".trash" / "run")
    assert ids(root) == {"a/run"}


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


def test_directories_that_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        resolve_root(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is not a bucket URL"):
        resolve_root("s3://")


def wait_for_clock_tick(probe: Path) -> None:
    """Wait until the file system stamps a later time than now."""

    def touch() -> int:
        probe.touch()
        return probe.stat().st_mtime_ns

    start_ns = touch()
    wait_until(lambda: touch() > start_ns)


def test_every_change_gives_a_new_revision(root: Path, tmp_path: Path) -> None:
    run = root / "a" / "run"
    revisions = {revision_of(run)}
    assert {revision_of(run)} == revisions
    node, findings, spans = run / "nodes" / "n0", run / "findings", run / "tables" / "spans" / "n0"
    changes = [
        (node / "new").touch,
        lambda: (node / "new").rename(node / "status.json"),
        findings.mkdir,
        (findings / "rules.json").touch,
        (spans / "x.parquet").touch,
        (spans / "x.parquet").unlink,
    ]
    for number, change in enumerate(changes, 2):
        wait_for_clock_tick(tmp_path / "probe")
        change()
        revisions.add(revision_of(run))
        assert len(revisions) == number
    shutil.rmtree(run)
    with pytest.raises(NotARunError):
        revision_of(run)


def test_a_run_without_heartbeats_gets_a_new_revision(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = root / "a" / "run"
    revision, now = revision_of(run), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(run) == revision
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(run) != revision
