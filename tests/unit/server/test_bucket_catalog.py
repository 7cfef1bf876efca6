"""Runs below a URL: listings, the requests that they take, and unusual names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.server import bucket_catalog
from stepscope.server.bucket_catalog import BucketCatalog
from stepscope.server.catalog import RunRemovedError
from stepscope.server.open_catalog import resolve_root
from stepscope.store import revision_of
from stepscope.store.bucket import UnreachableError
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


def ids(catalog: BucketCatalog) -> set[str]:
    return {run.id for run in catalog.list_runs().runs}


def open_catalog(bucket: TestBucket, prefix: str = "served") -> BucketCatalog:
    root = resolve_root(bucket.url(prefix))
    assert isinstance(root, str)
    return BucketCatalog(root)


def test_runs_and_their_revisions_come_from_one_listing(job: Path, bucket: TestBucket) -> None:
    for key in ("served/a/run", "served/b", "elsewhere/run", "served2/run"):
        bucket.put_run(job, key)
    catalog = open_catalog(bucket)
    with bucket.server.counted() as requests:
        runs = catalog.list_runs().runs
        revisions = catalog.revisions(runs)
        for _ in range(5):
            assert catalog.list_runs().runs == runs
    assert [request.is_listing for request in requests] == [True]
    assert {run.id: run.location for run in runs} == {
        "a/run": bucket.url("served/a/run"),
        "b": bucket.url("served/b"),
    }
    assert revisions == {run.id: revision_of(run.location) for run in runs}
    assert all(abs(run.created_ns - time.time_ns()) < 600e9 for run in runs)
    assert BucketCatalog(bucket.url("served/b")).list_runs().runs[0].id == "."


def test_prefixes_below_a_run_and_hidden_or_deep_ones_are_not_runs(
    job: Path, bucket: TestBucket
) -> None:
    for key in ("a/run", "a/run/raw/inner", ".trash/run", "1/2/3/4/5/6", "1/2/3/4/5/7/7"):
        bucket.put_run(job, f"served/{key}")
    bucket.put("served/run.json.bak")
    bucket.put("served/b/not-run.json")
    assert ids(open_catalog(bucket)) == {"a/run", "1/2/3/4/5/6"}


def test_too_many_runs(job: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        bucket.put(f"served/{number}/run.json")
    monkeypatch.setattr(bucket_catalog, "MAX_RUNS", 2)
    listing = open_catalog(bucket).list_runs()
    assert len(listing.runs) == 2
    assert listing.notes == ["There are more than 2 runs; the others were left out."]
    monkeypatch.setattr(bucket_catalog, "MAX_OBJECTS", 3)
    assert "more than 3 objects" in open_catalog(bucket).list_runs().notes[0]


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


@pytest.mark.parametrize("name", ["..", ".", "", "a\tb", "\x01", "a\x7fb"])
def test_names_that_are_not_paths(job: Path, bucket: TestBucket, name: str) -> None:
    for key in ("above/run", "served/-before", "served/team/run", "served/zebra"):
        bucket.put_run(job, key)
    for key in (f"served/{name}/run.json", f"served/team/{name}/run.json"):
        bucket.put(key)
    bucket.put(f"served/{name}/{name}/tables/x.parquet")
    catalog = open_catalog(bucket)
    run_ids, notes = ids(catalog), catalog.list_runs().notes
    # Runs that sort before the name or next to it may be missing; a note says so.
    assert {"team/run", "zebra"} <= run_ids <= {"team/run", "zebra", "-before"}
    assert notes
    assert all("objects whose names are not paths" in note for note in notes)
    with pytest.raises(NotARunError):
        catalog.locate(name)
    with pytest.raises(NotARunError):
        catalog.locate(f"{name}/run")


def test_an_invalid_name_deep_below_hides_nothing_else(job: Path, bucket: TestBucket) -> None:
    for key in ("served/a", "served/m/run", "served/z"):
        bucket.put_run(job, key)
    bucket.put("served/m/other/x//y")
    listing = open_catalog(bucket).list_runs()
    assert {run.id for run in listing.runs} == {"a", "m/run", "z"}
    assert listing.notes == [
        "Some runs below 'm/other/x/' may be missing: there are objects whose names are not paths."
    ]


@pytest.mark.parametrize(
    "name",
    ["../above/run", "a/../../above/run", "/above/run", "a//run", "./a/run", "a/run/", "a/run/.",
     "a\0run", "%2e%2e/above/run", "..\\above", "s3://other/run", "a" * 5000, "no/such", "\ud800",
     ".hidden/run"],
)  # fmt: skip
def test_names_that_lead_nowhere(job: Path, bucket: TestBucket, name: str) -> None:
    for key in ("above/run", "served/a/run", "served/.hidden/run"):
        bucket.put_run(job, key)
    catalog = open_catalog(bucket)
    with bucket.server.counted() as requests, pytest.raises(NotARunError) as caught:
        catalog.locate(name)
    assert not isinstance(caught.value, RunRemovedError)
    assert len(str(caught.value)) < 1000
    assert all(f"/{bucket.name}/served/" in request.path for request in requests)


def test_nothing_to_serve(bucket: TestBucket) -> None:
    with pytest.raises(UsageError, match="There is nothing below s3://"):
        resolve_root(bucket.url("none"))
    with pytest.raises(UnreachableError, match="bucket does not exist"):
        resolve_root("s3://no-such-bucket-here/runs")


def test_a_bucket_that_is_temporarily_unreachable(
    job: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_run(job, "served/a")
    monkeypatch.setattr(bucket_catalog, "LISTING_TTL_S", 0.0)
    catalog = open_catalog(bucket)
    assert ids(catalog) == {"a"}
    monkeypatch.setattr(BucketCatalog, "_update_listing", _no_network)
    catalog._expiry_s = 0.0
    listing = catalog.list_runs()
    assert [run.id for run in listing.runs] == ["a"]
    assert listing.notes == ["The list may be out of date: s3://x: it cannot be reached."]
    monkeypatch.undo()


def _no_network(_: object) -> None:
    raise UnreachableError(113, "it cannot be reached", "s3://x")


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
