"""Runs below a directory or a URL over HTTP: names, links, damage, events."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from stepscope.run.catalog import bucket as bucket_catalog
from tests.support.buckets import TestBucket
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


def test_names_of_directories(served: Served, root: Path) -> None:
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


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_job(tmp_path_factory.mktemp("job") / "job", 3)


@pytest.fixture
def fresh_workers(bucket: TestBucket) -> Iterator[None]:
    """Restart the fork server, which keeps the environment of its start."""
    forkserver._forkserver._stop()
    yield
    forkserver._forkserver._stop()


in_bucket = pytest.mark.usefixtures("fresh_workers")


UNUSUAL_NAMES = [
    "<img src=x onerror=alert(1)>", "a?b#c&d=e", "ünï %41", "'; DROP TABLE--", "$(id)", "%2e%2e",
    "back\\slash", "\u202eright to left", " ",
]  # fmt: skip


@pytest.mark.slow("starts a server, and watches its files")
@in_bucket
def test_names_with_special_characters(job: Path, bucket: TestBucket) -> None:
    for name in UNUSUAL_NAMES:
        bucket.put_run(job, f"served/{name}")
    with serving(bucket.url("served")) as served_bucket:
        jobs = served_bucket.request("/api/jobs").json["jobs"]
        assert {job["id"] for job in jobs} == set(UNUSUAL_NAMES)
        assert [job["problem"] for job in jobs] == [None] * len(UNUSUAL_NAMES)
        for name in UNUSUAL_NAMES:
            assert served_bucket.view("overview", name).json["run_id"] == "drawn"


@pytest.fixture
def served_bucket(
    job: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    monkeypatch.setattr(bucket_catalog, "LISTING_TTL_S", 1.0)
    bucket.put_run(job, "served/team/job")
    with serving(bucket.url("served")) as server:
        yield server


@pytest.mark.extended("tests/unit/store reads buckets; test_remote_commands.py shows a run of one")
@in_bucket
def test_a_bucket_is_served_like_a_directory(
    served_bucket: Served, job: Path, bucket: TestBucket
) -> None:
    with serving(job) as directory:
        for view in ("overview", "steps", "system", "timeline"):
            local, remote = directory.view(view, "."), served_bucket.view(view, "team/job")
            assert (remote.status, remote.json) == (200, local.json)
        again = served_bucket.request(
            "/api/views/steps", run="team/job", headers={"If-None-Match": remote.headers["etag"]}
        )
        assert again.status == 304
    assert served_bucket.request("/api/jobs").json["root"] == bucket.url("served")
    assert served_bucket.view("overview", "team/none").status == 404
    assert served_bucket.view("overview", "../team/job").status == 404
    session = served_bucket.request("/api/session", run="team/job").json
    assert "object store" in session["why_not_capture"]
    assert not session["can_stop"]


@in_bucket
def test_change_events(served_bucket: Served, bucket: TestBucket) -> None:
    events = served_bucket.events("/api/events", run="team/job")
    kind, _ = events.next()
    assert kind == "open"
    bucket.put("served/team/job/findings/rules.json", b"{}")
    assert events.next()[0] == "change"
    bucket.remove_run("served/team/job")
    while (event := events.next())[0] == "change":
        pass
    assert event[0] == "gone"
    events.close()
    response = served_bucket.view("overview", "team/job")
    assert response.status == 410
    assert response.error == "The run 'team/job' has been removed."


@in_bucket
def test_requests_cause_few_listings(served_bucket: Served, bucket: TestBucket) -> None:
    # Beforehand what is computed once, and stored.
    wait_until(lambda: not served_bucket.request("/api/jobs").json["pending_count"])
    assert served_bucket.view("overview", "team/job").status == 200
    start_s = time.monotonic()
    with bucket.server.counted() as requests:
        for _ in range(10):
            assert served_bucket.request("/api/jobs").status == 200
        for _ in range(10):
            assert served_bucket.view("overview", "team/job").status == 200
    # One per second of all runs, by the setting of this test; one every two seconds of the run.
    limit = 4 + 2 * (time.monotonic() - start_s)
    assert sum(request.is_listing for request in requests) <= limit


@in_bucket
def test_source_files(job: Path, bucket: TestBucket, tmp_path: Path) -> None:
    """A run in a bucket grants no access: its working directory is one of another machine."""
    import msgspec

    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("one\ntwo\n")
    bucket.put_run(job, "served/job")
    info = msgspec.json.decode((job / "run.json").read_bytes())
    for key, directory in {"here": str(project), "job": "/far/away"}.items():
        bucket.put_run(job, f"served/{key}x")
        bucket.put(
            f"served/{key}x/run.json", msgspec.json.encode(info | {"working_directory": directory})
        )

    def request_source(server: Served, run: str, file: object) -> int:
        return server.request("/api/source", run=run, file=str(file), line="2").status

    with serving(bucket.url("served")) as server:
        assert request_source(server, "herex", project / "train.py") == 404
    with serving(bucket.url("served"), source_roots=(project,)) as server:
        assert request_source(server, "herex", project / "train.py") == 200
        assert (
            request_source(server, "jobx", "/far/away/train.py") == 200
        )  # a file of another machine
        assert request_source(server, "jobx", "/far/away/../../etc/passwd") == 404
        assert request_source(server, "jobx", "/far/train.py") == 404
