"""Runs in a bucket: requests, the cache, and changes."""

from __future__ import annotations

import os
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import NotARunError, RunExistsError, UsageError
from stepscope.schema import JobState, JobStatus
from stepscope.store import (
    Results,
    RunReader,
    RunWriter,
    UnreachableError,
    create_run,
    open_run,
    open_store,
    remote,
    repeated_runs,
    revision_of,
    size_of,
)
from stepscope.store.cache import LIMIT_VARIABLE, RECENT_S, cache_home
from stepscope.store.location import check_free, upload_run
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.store_rows import INFO, samples, spans


def seqs(reader: RunReader) -> list[int]:
    numbers: list[int] = reader.table("spans", ["seq"])["seq"].tolist()
    return numbers


def copies() -> list[Path]:
    return sorted((cache_home() / "objects").glob("*/*.parquet"))


def grow(writer: RunWriter, *, up_to: int, since: int = 0) -> None:
    for number in range(since, up_to):
        writer.append("spans", spans([number]))


def test_a_run_reads_the_same(run: Path, writer: RunWriter, storage: Storage) -> None:
    grow(writer, up_to=20)
    writer.append("metrics", samples([1, 2, 3], ["a", "b", "a"]))
    writer.compact("spans")
    writer.put_status(JobStatus(state=JobState.COMPLETED, heartbeat_ns=1, started_ns=0))
    local, copy = open_run(run), open_run(storage.put_run(run, "team/run"))
    assert copy.info == local.info
    assert copy.statuses() == local.statuses()
    assert seqs(copy) == seqs(local) == list(range(20))
    assert copy.times("spans") == local.times("spans")
    assert copy.row_count("metrics") == 3
    assert copy.damage == []
    assert local.is_local
    assert not copy.is_local


def test_only_requested_segments_are_fetched_once(
    run: Path, writer: RunWriter, bucket: TestBucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(remote, "LISTING_MAX_AGE_S", 60.0)  # also on a busy machine
    grow(writer, up_to=5)
    writer.append("metrics", samples([1], ["a"]))
    url = bucket.put_run(run, "run")
    with bucket.server.counted() as first:
        assert seqs(open_run(url)) == [0, 1, 2, 3, 4]
    assert sum(request.is_segment for request in first) == 5
    assert not any("metrics" in request.path for request in first if request.is_segment)
    with bucket.server.counted() as second:
        reader = open_run(url)
        for _ in range(4):
            seqs(reader)
    assert [request.is_segment for request in second] == [False, False]  # run.json and a listing
    assert [request.is_listing for request in second] == [False, True]


def test_copies_are_private_and_stay(
    run: Path, writer: RunWriter, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    grow(writer, up_to=3)
    (cache_home() / "objects").mkdir(parents=True)
    assert seqs(open_run(bucket.put_run(run, "run"))) == [0, 1, 2]
    assert len(copies()) == 3, "recently used"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in copies()[0].parents[:2]}
    assert modes == {0o700}


def test_a_run_that_grows(run: Path, writer: RunWriter, bucket: TestBucket) -> None:
    grow(writer, up_to=3)
    bucket.put_files(run, "run")
    with bucket.server.counted() as requests:
        assert size_of(bucket.url("run")) == size_of(run) > 1000
    assert not any(request.is_segment for request in requests)
    reader = open_run(bucket.url("run"))
    assert seqs(reader) == [0, 1, 2]
    grow(writer, since=3, up_to=4)
    bucket.put_files(run, "run")
    reader.refresh()
    with bucket.server.counted() as requests:
        assert seqs(reader) == [0, 1, 2, 3]
    assert sum(request.is_segment for request in requests) == 1


def test_segments_merged_between_listing_and_reading(
    run: Path, writer: RunWriter, bucket: TestBucket
) -> None:
    grow(writer, up_to=4)
    bucket.put_files(run, "run")
    reader = open_run(bucket.url("run"))
    assert reader.has("spans")
    old_keys = open_store(bucket.url("run")).list("tables/")
    grow(writer, since=4, up_to=16)
    writer.compact("spans")
    bucket.put_files(run, "run")
    for key in old_keys:
        bucket.remove(f"run/{key}")
    assert seqs(reader) == list(range(16))
    assert reader.damage == []


def test_another_run_of_the_same_name(
    run: Path, writer: RunWriter, tmp_path: Path, bucket: TestBucket
) -> None:
    """Its segments have the same keys and different rows."""
    grow(writer, up_to=2)
    assert seqs(open_run(bucket.put_run(run, "run"))) == [0, 1]
    bucket.remove_run("run")
    create_run(tmp_path / "other", INFO)
    with RunWriter(tmp_path / "other", "n0") as writer:
        grow(writer, since=7, up_to=9)
    assert seqs(open_run(bucket.put_run(tmp_path / "other", "run"))) == [7, 8]


def test_damaged_segments_are_skipped(run: Path, writer: RunWriter, bucket: TestBucket) -> None:
    grow(writer, up_to=3)
    url = bucket.put_run(run, "run")
    key = "tables/spans/n0/00000001-00000001.parquet"
    bucket.put(f"run/{key}", b"no rows")
    reader = open_run(url)
    assert seqs(reader) == [0, 2]
    assert reader.damage == [f"{key} cannot be read: it is cut short or no Parquet file."]


def test_every_change_changes_the_revision(
    run: Path, writer: RunWriter, bucket: TestBucket
) -> None:
    grow(writer, up_to=1)
    url = bucket.put_run(run, "run")
    revisions = [revision_of(url)]
    assert revision_of(url) == revisions[0]
    for change in (
        lambda: bucket.put("run/nodes/n0/status.json", b"{}"),
        lambda: bucket.put("run/nodes/n0/status.json", b"[]"),
        lambda: bucket.put("run/tables/spans/n0/00000001-00000001.parquet"),
        lambda: bucket.remove("run/tables/spans/n0/00000001-00000001.parquet"),
    ):
        change()
        revisions.append(revision_of(url))
    assert len(set(revisions)) == len(revisions) - 1  # the last change undoes the one before
    bucket.put("run2/nodes/n0/status.json")
    with bucket.server.counted() as requests:
        assert revision_of(url) == revisions[-1]
    assert [request.is_listing for request in requests] == [True]
    bucket.remove("run/run.json")
    with pytest.raises(NotARunError):
        revision_of(url)


def test_results_hold_until_an_object_changes(run: Path, bucket: TestBucket) -> None:
    url = bucket.put_run(run, "run")
    revision = revision_of(url)
    assert Results(url, "maker").put("verdict", b"[7]")
    assert revision_of(url) == revision
    assert Results(url, "maker").get("verdict", list[int]) == [7]
    assert Results(url, "other").get("verdict", list[int]) is None
    before = Results(url, "maker")
    bucket.put("run/nodes/n0/status.json", b"{}")
    assert Results(url, "maker").get("verdict", list[int]) is None
    assert not before.put("verdict", b"[8]"), "the run has changed since"


def test_the_revision_changes_when_a_run_becomes_quiet(
    run: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put_run(run, "run")
    before, now = revision_of(url), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(url) == before
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(url) != before


def test_old_copies_are_evicted(
    run: Path, writer: RunWriter, bucket: TestBucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    grow(writer, up_to=4)
    writer.append("metrics", samples([1], ["a"]))
    reader = open_run(bucket.put_run(run, "run"))
    assert seqs(reader) == [0, 1, 2, 3]
    monkeypatch.setenv(LIMIT_VARIABLE, str(1e-9 * sum(path.stat().st_size for path in copies())))
    # All but one were used more recently, one of them by a query that is still running.
    old, *newer = copies()
    for path in (old, *newer):
        os.utime(path, times=(0, time.time() - RECENT_S - (100 if path == old else 50)))
    with newer[0].open("rb") as open_file:
        assert open_run(bucket.url("run")).row_count("metrics") == 1
        assert old not in copies()
        assert len(copies()) in {3, 4}  # as many as fit, and the new one
        assert open_file.read(4) == b"PAR1"
    remaining = len([path for path in newer if path.exists()])
    with bucket.server.counted() as requests:  # the first reader lost a file
        assert seqs(reader) == [0, 1, 2, 3]
        assert reader.damage == []
    assert sum(request.is_segment for request in requests) == 4 - remaining


def test_concurrent_readers_fetch_each_segment_once(
    run: Path, writer: RunWriter, bucket: TestBucket
) -> None:
    grow(writer, up_to=6)
    url = bucket.put_run(run, "run")
    with bucket.server.counted() as requests, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: seqs(open_run(url, threads=1)), range(4)))
    assert results == [list(range(6))] * 4
    assert sum(request.is_segment for request in requests) == 6


def test_an_interrupted_download_is_repeated(
    run: Path, writer: RunWriter, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(writer, up_to=1)
    url = bucket.put_run(run, "run")

    def torn(_self: object, _key: str, file: Any, *, tag: str) -> None:
        file.write(b"half a seg")
        raise UnreachableError(5, "the network went away", "s3://somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(remote.Bucket, "download", torn)
        with pytest.raises(UnreachableError, match="the network went away"):
            seqs(open_run(url))
    assert copies() == []
    assert seqs(open_run(url)) == [0]


def test_writing_to_a_bucket(storage: Storage) -> None:
    """No command does this, but the store supports it."""
    url = storage.url("run")
    create_run(url, INFO)
    with pytest.raises(RunExistsError):
        create_run(url, INFO)
    with RunWriter(url, "n0") as writer, RunWriter(url, "n0") as second:
        grow(writer, up_to=10)
        grow(second, since=10, up_to=17)  # continues after the first
        assert writer.compact("spans") == 1
    assert sorted(seqs(open_run(url))) == list(range(17))
    segments = [key for key in open_store(url).list("tables/spans/") if key.endswith(".parquet")]
    assert len(segments) == 2
    assert not list((cache_home() / "objects").glob("*/.*"))  # no staged files remain


def test_an_upload_is_complete_or_absent(run: Path, writer: RunWriter, storage: Storage) -> None:
    grow(writer, up_to=3)
    url = storage.url("run")
    check_free(url)
    conflicting = "run/tables/spans/n0/00000001-00000001.parquet"
    storage.put(conflicting)
    with pytest.raises(RunExistsError, match="another process created a run there meanwhile"):
        upload_run(run, url)
    assert storage.keys() == [conflicting]
    with pytest.raises(UsageError, match="is not empty but not a run"):
        check_free(url)
    storage.remove(conflicting)
    upload_run(run, url)
    with pytest.raises(RunExistsError, match="already holds a run"):
        check_free(url)
    assert seqs(open_run(url)) == [0, 1, 2]


def test_repeated_runs_in_a_directory_or_below_a_url(
    tmp_path: Path, run: Path, storage: Storage
) -> None:
    directory = tmp_path / "program"
    for name in ("b", "a"):
        shutil.copytree(run, directory / name)
        url = storage.put_run(run, f"program/{name}").rpartition("/")[0]
    (directory / "notes").mkdir()
    assert repeated_runs(directory) == [str(directory / "a"), str(directory / "b")]
    assert repeated_runs(directory / "a") == [str(directory / "a")]
    assert repeated_runs(tmp_path / "nowhere") == [str(tmp_path / "nowhere")]
    assert repeated_runs(url + "/") == [f"{url}/a", f"{url}/b"]
    assert repeated_runs(f"{url}/a") == [f"{url}/a"]
