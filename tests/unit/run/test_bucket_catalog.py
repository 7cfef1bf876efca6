"""Runs below a URL: listings, the requests that they take, and unusual names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.run.catalog import bucket as bucket_catalog, resolve_root
from stepscope.run.catalog.base import RunRemovedError
from stepscope.run.catalog.bucket import BucketCatalog
from stepscope.store import revision_of
from stepscope.store.bucket import UnreachableError
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.served_runs import draw_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_job(tmp_path_factory.mktemp("job") / "job", 3)


def ids(catalog: BucketCatalog) -> set[str]:
    return {run.id for run in catalog.list_runs().runs}


def open_catalog(storage: Storage, prefix: str = "served") -> BucketCatalog:
    root = resolve_root(storage.url(prefix))
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
    job: Path, storage: Storage
) -> None:
    for key in ("a/run", "a/run/raw/inner", ".trash/run", "1/2/3/4/5/6", "1/2/3/4/5/7/7"):
        storage.put_run(job, f"served/{key}")
    storage.put("served/run.json.bak")
    storage.put("served/b/not-run.json")
    assert ids(open_catalog(storage)) == {"a/run", "1/2/3/4/5/6"}


def test_too_many_runs(job: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        bucket.put(f"served/{number}/run.json")
    monkeypatch.setattr(bucket_catalog, "MAX_RUNS", 2)
    listing = open_catalog(bucket).list_runs()
    assert len(listing.runs) == 2
    assert listing.notes == ["There are more than 2 runs; the others were left out."]
    monkeypatch.setattr(bucket_catalog, "MAX_OBJECTS", 3)
    assert "more than 3 objects" in open_catalog(bucket).list_runs().notes[0]


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


def test_an_invalid_name_deep_below_hides_nothing_else(job: Path, storage: Storage) -> None:
    for key in ("served/a", "served/m/run", "served/z"):
        storage.put_run(job, key)
    storage.put("served/m/other/x//y")
    listing = open_catalog(storage).list_runs()
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
