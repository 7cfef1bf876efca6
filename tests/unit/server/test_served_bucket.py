"""Runs below a URL over HTTP: names, events, listings and source files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from stepscope.run.catalog import bucket as bucket_catalog
from tests.support.buckets import TestBucket
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_job(tmp_path_factory.mktemp("job") / "job", 3)


@pytest.fixture(autouse=True)
def _workers_with_this_environment(bucket: TestBucket) -> Iterator[None]:
    """Restart the fork server, which keeps the environment of its start."""
    forkserver._forkserver._stop()
    yield
    forkserver._forkserver._stop()


UNUSUAL_NAMES = [
    "<img src=x onerror=alert(1)>", "a?b#c&d=e", "ünï %41", "'; DROP TABLE--", "$(id)", "%2e%2e",
    "back\\slash", "\u202eright to left", " ",
]  # fmt: skip


def test_names_with_special_characters(job: Path, bucket: TestBucket) -> None:
    for name in UNUSUAL_NAMES:
        bucket.put_run(job, f"served/{name}")
    with serving(bucket.url("served")) as served:
        jobs = served.request("/api/jobs").json["jobs"]
        assert {job["id"] for job in jobs} == set(UNUSUAL_NAMES)
        assert [job["problem"] for job in jobs] == [None] * len(UNUSUAL_NAMES)
        for name in UNUSUAL_NAMES:
            assert served.view("overview", name).json["run_id"] == "drawn"


@pytest.fixture
def served(job: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(bucket_catalog, "LISTING_TTL_S", 1.0)
    bucket.put_run(job, "served/team/job")
    with serving(bucket.url("served")) as server:
        yield server


def test_a_bucket_is_served_like_a_directory(served: Served, job: Path, bucket: TestBucket) -> None:
    with serving(job) as directory:
        for view in ("overview", "steps", "system", "timeline"):
            local, remote = directory.view(view, "."), served.view(view, "team/job")
            assert (remote.status, remote.json) == (200, local.json)
        again = served.request(
            "/api/views/steps", run="team/job", headers={"If-None-Match": remote.headers["etag"]}
        )
        assert again.status == 304
    assert served.request("/api/jobs").json["root"] == bucket.url("served")
    assert served.view("overview", "team/none").status == 404
    assert served.view("overview", "../team/job").status == 404
    session = served.request("/api/session", run="team/job").json
    assert "object store" in session["why_not_capture"]
    assert not session["can_stop"]


def test_change_events(served: Served, bucket: TestBucket) -> None:
    events = served.events("/api/events", run="team/job")
    kind, _ = events.next()
    assert kind == "open"
    bucket.put("served/team/job/findings/rules.json", b"{}")
    assert events.next()[0] == "change"
    bucket.remove_run("served/team/job")
    while (event := events.next())[0] == "change":
        pass
    assert event[0] == "gone"
    events.close()
    response = served.view("overview", "team/job")
    assert response.status == 410
    assert response.error == "The run 'team/job' has been removed."


def test_requests_cause_few_listings(served: Served, bucket: TestBucket) -> None:
    served.request("/api/jobs")
    start_s = time.monotonic()
    with bucket.server.counted() as requests:
        for _ in range(10):
            assert served.request("/api/jobs").status == 200
        for _ in range(10):
            assert served.view("overview", "team/job").status == 200
    # One per second of all runs, by the setting of this test; one every two seconds of the run.
    limit = 4 + 2 * (time.monotonic() - start_s)
    assert sum(request.is_listing for request in requests) <= limit


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
            f"served/{key}x/run.json",
            msgspec.json.encode(info | {"working_directory": directory}),
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
