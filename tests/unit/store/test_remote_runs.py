"""A run in a bucket: what is asked of the bucket, what is kept, and what changes mean."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import NotARunError, RunExistsError, UsageError
from stepscope.schema import JobState, JobStatus, RunInfo
from stepscope.store import (
    RunReader,
    RunWriter,
    create_run,
    open_run,
    open_store,
    remote,
    repeated_runs,
    revision_of,
    size_of,
)
from stepscope.store.bucket import UnreachableError
from stepscope.store.cache import LIMIT_VARIABLE, RECENT_S, cache_home
from stepscope.store.upload import check_free, upload
from tests.support.buckets import TestBucket

Rows = Callable[..., dict[str, Any]]


def seqs(reader: RunReader) -> list[int]:
    found: list[int] = reader.table("spans", ["seq"])["seq"].tolist()
    return found


def copies() -> list[Path]:
    return sorted((cache_home() / "objects").glob("*/*.parquet"))


def grow(writer: RunWriter, spans: Rows, *, up_to: int, since: int = 0) -> None:
    for number in range(since, up_to):
        writer.append("spans", spans([number]))


def test_a_run_reads_the_same(
    run: Path, writer: RunWriter, spans: Rows, samples: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=20)
    writer.append("metrics", samples([1, 2, 3], ["a", "b", "a"]))
    writer.compact("spans")
    writer.put_status(JobStatus(state=JobState.COMPLETED, heartbeat_ns=1, started_ns=0))
    local, there = open_run(run), open_run(bucket.put_run(run, "team/run"))
    assert there.info == local.info
    assert there.statuses() == local.statuses()
    assert seqs(there) == seqs(local) == list(range(20))
    assert there.times("spans") == local.times("spans")
    assert there.row_count("metrics") == 3
    assert there.damage == []
    assert local.is_local
    assert not there.is_local


def test_only_what_is_asked_for_is_fetched_and_only_once(
    run: Path, writer: RunWriter, spans: Rows, samples: Rows, bucket: TestBucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(remote, "BELIEVED_S", 60.0)  # however busy this machine is
    grow(writer, spans, up_to=5)
    writer.append("metrics", samples([1], ["a"]))
    url = bucket.put_run(run, "run")
    with bucket.server.counted() as first:
        assert seqs(open_run(url)) == [0, 1, 2, 3, 4]
    assert sum(each.is_segment for each in first) == 5
    assert not any("metrics" in each.path for each in first if each.is_segment)
    with bucket.server.counted() as second:
        reader = open_run(url)
        for _ in range(4):
            seqs(reader)
    assert [each.is_segment for each in second] == [False, False]  # run.json, and one listing
    assert [each.is_listing for each in second] == [False, True]


def test_copies_are_nobody_elses_business(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=1)
    (cache_home() / "objects").mkdir(parents=True)
    seqs(open_run(bucket.put_run(run, "run")))
    (copy,) = copies()
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (copy.parent, copy.parent.parent)}
    assert modes == {0o700}


def test_a_run_that_grows(run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket) -> None:
    grow(writer, spans, up_to=3)
    bucket.put_files(run, "run")
    reader = open_run(bucket.url("run"))
    assert seqs(reader) == [0, 1, 2]
    grow(writer, spans, since=3, up_to=4)
    bucket.put_files(run, "run")
    reader.look_again()
    with bucket.server.counted() as requests:
        assert seqs(reader) == [0, 1, 2, 3]
    assert sum(each.is_segment for each in requests) == 1


def test_segments_that_are_merged_away_between_listing_and_reading(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=4)
    bucket.put_files(run, "run")
    reader = open_run(bucket.url("run"))
    assert reader.has("spans")
    listed = open_store(bucket.url("run")).list("tables/")
    grow(writer, spans, since=4, up_to=16)
    writer.compact("spans")
    bucket.put_files(run, "run")
    for key in listed:
        bucket.remove(f"run/{key}")
    assert seqs(reader) == list(range(16))
    assert reader.damage == []


def test_another_run_of_the_same_name(
    run: Path, writer: RunWriter, spans: Rows, info: RunInfo, tmp_path: Path, bucket: TestBucket
) -> None:
    """Its segments have the same keys, and other rows."""
    grow(writer, spans, up_to=2)
    assert seqs(open_run(bucket.put_run(run, "run"))) == [0, 1]
    bucket.remove_run("run")
    create_run(tmp_path / "other", info)
    with RunWriter(tmp_path / "other", "n0") as other:
        grow(other, spans, since=7, up_to=9)
    assert seqs(open_run(bucket.put_run(tmp_path / "other", "run"))) == [7, 8]


def test_what_is_damaged_is_left_out(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=3)
    url = bucket.put_run(run, "run")
    key = "tables/spans/n0/00000001-00000001.parquet"
    bucket.put(f"run/{key}", b"no rows")
    reader = open_run(url)
    assert seqs(reader) == [0, 2]
    assert reader.damage[0].startswith(f"{key} cannot be read: ")


def test_the_revision_is_another_one_for_every_change(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=1)
    url = bucket.put_run(run, "run")
    seen = [revision_of(url)]
    assert revision_of(url) == seen[0]
    for change in (
        lambda: bucket.put("run/nodes/n0/status.json", b"{}"),
        lambda: bucket.put("run/nodes/n0/status.json", b"[]"),
        lambda: bucket.put("run/tables/spans/n0/00000001-00000001.parquet"),
        lambda: bucket.remove("run/tables/spans/n0/00000001-00000001.parquet"),
    ):
        change()
        seen.append(revision_of(url))
    assert len(set(seen)) == len(seen) - 1  # the last change has undone the one before
    bucket.put("run2/nodes/n0/status.json")
    with bucket.server.counted() as requests:
        assert revision_of(url) == seen[-1]
    assert [each.is_listing for each in requests] == [True]
    bucket.remove("run/run.json")
    with pytest.raises(NotARunError):
        revision_of(url)


def test_the_revision_is_another_one_when_nothing_comes_any_more(
    run: Path, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put_run(run, "run")
    before, now = revision_of(url), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(url) == before
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(url) != before


def test_its_size(run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket) -> None:
    grow(writer, spans, up_to=3)
    with bucket.server.counted() as requests:
        assert size_of(bucket.put_run(run, "run")) == size_of(run) > 1000
    assert not any(each.is_segment for each in requests)


def test_copies_give_way_to_newer_ones(
    run: Path, writer: RunWriter, spans: Rows, samples: Rows, bucket: TestBucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    grow(writer, spans, up_to=4)
    writer.append("metrics", samples([1], ["a"]))
    reader = open_run(bucket.put_run(run, "run"))
    assert seqs(reader) == [0, 1, 2, 3]
    monkeypatch.setenv(LIMIT_VARIABLE, str(1e-9 * sum(each.stat().st_size for each in copies())))
    # One of them, used by a query that is still going on, was used less long ago.
    old, *others = copies()
    for each in (old, *others):
        os.utime(each, times=(0, time.time() - RECENT_S - (100 if each == old else 50)))
    with others[0].open("rb") as held:
        assert open_run(bucket.url("run")).row_count("metrics") == 1
        assert old not in copies()
        assert len(copies()) in {3, 4}  # as many as there is room for, and the new one
        assert held.read(4) == b"PAR1"
    left = len([each for each in others if each.exists()])
    with bucket.server.counted() as requests:  # the first reader has lost a file
        assert seqs(reader) == [0, 1, 2, 3]
        assert reader.damage == []
    assert sum(each.is_segment for each in requests) == 4 - left


def test_what_was_used_just_now_stays(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    grow(writer, spans, up_to=3)
    assert seqs(open_run(bucket.put_run(run, "run"))) == [0, 1, 2]
    assert len(copies()) == 3


def test_several_readers_at_once_fetch_nothing_twice(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=6)
    url = bucket.put_run(run, "run")
    with bucket.server.counted() as requests, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: seqs(open_run(url, threads=1)), range(4)))
    assert found == [list(range(6))] * 4
    assert sum(each.is_segment for each in requests) == 6


def test_a_torn_download_is_begun_anew(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(writer, spans, up_to=1)
    url = bucket.put_run(run, "run")

    def torn(_self: object, _key: str, _tag: str, file: Any) -> None:
        file.write(b"half a seg")
        raise UnreachableError(5, "the network went away", "s3://somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(remote.Bucket, "download", torn)
        with pytest.raises(UnreachableError, match="the network went away"):
            seqs(open_run(url))
    assert copies() == []
    assert seqs(open_run(url)) == [0]


def test_writing_it_there(info: RunInfo, spans: Rows, bucket: TestBucket) -> None:
    """No command does this; what it takes is there."""
    url = bucket.url("run")
    create_run(url, info)
    with pytest.raises(RunExistsError):
        create_run(url, info)
    with RunWriter(url, "n0") as writer, RunWriter(url, "n0") as second:
        grow(writer, spans, up_to=10)
        grow(second, spans, since=10, up_to=17)  # goes on behind the first
        assert writer.compact("spans") == 1
    assert sorted(seqs(open_run(url))) == list(range(17))
    assert len(list(open_store(url).list("tables/spans/"))) == 2
    assert not list((cache_home() / "objects").glob("*/.*"))  # nothing staged is left


def test_an_import_is_there_as_a_whole_or_not_at_all(
    run: Path, writer: RunWriter, spans: Rows, bucket: TestBucket
) -> None:
    grow(writer, spans, up_to=3)
    url = bucket.url("run")
    check_free(url)
    taken = "run/tables/spans/n0/00000001-00000001.parquet"
    bucket.put(taken)
    with pytest.raises(RunExistsError, match="meanwhile"):
        upload(run, url)
    assert bucket.keys() == [taken]
    with pytest.raises(UsageError, match="is not empty, and holds no run"):
        check_free(url)
    bucket.remove(taken)
    upload(run, url)
    with pytest.raises(RunExistsError, match="already holds a run"):
        check_free(url)
    assert seqs(open_run(url)) == [0, 1, 2]


def test_runs_of_one_program_in_a_directory_or_below_a_url(
    tmp_path: Path, run: Path, bucket: TestBucket
) -> None:
    place = tmp_path / "program"
    for name in ("b", "a"):
        shutil.copytree(run, place / name)
        url = bucket.put_run(run, f"program/{name}").rpartition("/")[0]
    (place / "notes").mkdir()
    assert repeated_runs(place) == [str(place / "a"), str(place / "b")]
    assert repeated_runs(place / "a") == [str(place / "a")]
    assert repeated_runs(tmp_path / "nowhere") == [str(tmp_path / "nowhere")]
    assert repeated_runs(url + "/") == [f"{url}/a", f"{url}/b"]
    assert repeated_runs(f"{url}/a") == [f"{url}/a"]
