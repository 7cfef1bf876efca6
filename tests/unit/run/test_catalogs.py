"""Runs below a directory or a URL: names, listings and the requests that they take."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.run.catalog import bucket as bucket_catalog, resolve_root
from stepscope.run.catalog.base import RunRemovedError
from stepscope.run.catalog.bucket import BucketCatalog
from stepscope.run.catalog.directory import DirectoryCatalog
from stepscope.store import revision_of
from stepscope.store.bucket import UnreachableError
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.permissions import public_directory, restricted  # noqa: F401 - a fixture
from tests.support.served_runs import draw_job

OUTSIDE = "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directory to serve, with one run, next to a private run."""
    root = tmp_path / "served"
    draw_job(root / "a" / "run", 3)
    draw_job(tmp_path / OUTSIDE, 3)
    return root


def list_ids(root: Path) -> set[str]:
    return {run.id for run in DirectoryCatalog(root.resolve()).list_runs().runs}


def test_names_that_lead_out_of_a_directory(root: Path) -> None:
    catalog = DirectoryCatalog(root.resolve())
    for name in (
        "../outside", "a/../../outside", "a/run/../../../outside", "/etc", "..", "a//run",
        "a/./run", "./a/run", "a/run/", "", "a\0run", "a/run\0", "%2e%2e/outside",
        "..%2foutside", "..\\outside", "a" * 100_000, "a/run/run.json", "no/such", "\ud800",
    ):  # fmt: skip
        with pytest.raises(NotARunError) as caught:
            catalog.locate(name)
        assert not isinstance(caught.value, RunRemovedError), name
        assert len(str(caught.value)) < 1000


def test_links_that_leave_the_directory(root: Path) -> None:
    (root / "link").symlink_to(root.parent / OUTSIDE)
    (root / "up").symlink_to(root.parent)
    (root / "a" / "inside").symlink_to(root / "a" / "run")
    (root / "a" / "circle").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    assert list_ids(root) == {"a/run"}
    catalog = DirectoryCatalog(root.resolve())
    for name in ("link", "up/outside", "loop"):
        with pytest.raises(NotARunError):
            catalog.locate(name)
    assert catalog.locate("a/inside") == str(root / "a" / "run")


def test_a_directory_whose_manifest_is_a_link_is_no_run_unless_links_are_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "b").mkdir()
    (root / "b" / "run.json").symlink_to(root.parent / OUTSIDE / "run.json")
    assert list_ids(root) == {"a/run"}
    with pytest.raises(NotARunError):
        DirectoryCatalog(root.resolve()).locate("b")
    monkeypatch.setenv("STEPSCOPE_FOLLOW_LINKS", "1")
    assert list_ids(root) == {"a/run", "b"}


def test_directories_below_a_run_and_hidden_ones_are_not_runs(root: Path) -> None:
    shutil.copytree(root / "a" / "run", root / "a" / "run" / "raw" / "inner")
    shutil.copytree(root / "a" / "run", root / ".trash" / "run")
    assert list_ids(root) == {"a/run"}


def test_directories_that_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        resolve_root(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is not a bucket URL"):
        resolve_root("s3://")


def test_a_directory_that_cannot_be_read_is_not_empty(public_directory: Path) -> None:  # noqa: F811
    served = public_directory / "served"
    draw_job(served / "mine", 3).chmod(0o755)
    draw_job(served / "other" / "run", 3).chmod(0o755)
    with restricted([served / "other"], 0):
        listing = DirectoryCatalog(served).list_runs()
    assert [run.id for run in listing.runs] == ["mine"]
    assert listing.notes == [
        "No permission to read 1 directory, e.g. other; runs in there are not listed."
    ]
    for mode in (0, 0o444):  # names can be listed, but nothing in it can be opened
        with (
            restricted([served], mode),
            pytest.raises(UsageError, match="served cannot be read: Permission denied"),
        ):
            resolve_root(str(served))


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
    monkeypatch.setattr("stepscope.run.catalog.base.MAX_RUNS", 2)
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


def test_names_that_lead_nowhere(job: Path, bucket: TestBucket) -> None:
    for key in ("above/run", "served/a/run", "served/.hidden/run"):
        bucket.put_run(job, key)
    catalog = open_catalog(bucket)
    with bucket.server.counted() as requests:
        for name in (
            "../above/run", "a/../../above/run", "/above/run", "a//run", "./a/run", "a/run/",
            "a/run/.", "a\0run", "%2e%2e/above/run", "..\\above", "s3://other/run", "a" * 5000,
            "no/such", "\ud800", ".hidden/run",
        ):  # fmt: skip
            with pytest.raises(NotARunError) as caught:
                catalog.locate(name)
            assert not isinstance(caught.value, RunRemovedError), name
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
