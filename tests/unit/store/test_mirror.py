"""The mirror of a growing run in an object store: order, repetition, merges, other writers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stepscope.schema import JobState, JobStop, RunInfo
from stepscope.store import (
    Bucket,
    BucketLocation,
    RunMirror,
    RunWriter,
    SharedRun,
    UploadRefusedError,
    layout,
    open_run,
    remote,
)
from stepscope.store.mirror_journal import JOURNAL, UploadJournal
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.google_storage import google_storage
from tests.support.staged_runs import INFO, STATUS, Staged
from tests.support.store_outages import Fault, outages


def stored_files(url: str) -> dict[str, bytes]:
    bucket = Bucket(BucketLocation.parse(url))
    return {entry.key: bucket.get(entry.key) for entry in bucket.entries()}


def seqs(url: str) -> list[int]:
    values: list[int] = open_run(url).table("scalars", ["seq"])["seq"].tolist()
    return values


@pytest.fixture
def staged(bucket: TestBucket, tmp_path: Path) -> Staged:
    """Provide a staging directory for a bucket."""
    return Staged(tmp_path / "run", bucket.url("runs/a"))


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide a URL of Google Cloud Storage."""
    with google_storage() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield "gs://bucket/runs/a"


def check_growth(staged: Staged) -> None:
    """Send a run after each of twenty flushes, with merges, and compare all files at the end."""
    for number in range(20):
        staged.flush(compact=True)
        staged.send()
        if number % 5 == 0:
            assert seqs(staged.url) == list(range(staged.row_count))
    stored = stored_files(staged.url)
    lists = {key for key in stored if key.startswith("segments/")}
    assert lists == {"segments/scalars/n0.json"}
    assert {key: stored[key] for key in stored if key not in lists} == staged.files()
    assert staged.mirror.is_complete()
    assert seqs(staged.url) == list(range(60))


def test_the_store_has_what_the_directory_has(storage: Storage, tmp_path: Path) -> None:
    check_growth(Staged(tmp_path / "run", storage.url("runs/a")))


def test_google_has_what_the_directory_has(google: str, tmp_path: Path) -> None:
    check_growth(Staged(tmp_path / "run", google))


def test_nothing_is_sent_twice(staged: Staged, bucket: TestBucket) -> None:
    staged.flush()
    staged.send()
    with bucket.server.counted() as requests:
        staged.send()
    assert requests == []


def test_data_precede_what_names_them(staged: Staged, bucket: TestBucket) -> None:
    with outages(bucket.server.endpoint) as relay:
        os.environ["AWS_ENDPOINT_URL"] = relay.endpoint  # restored by the fixture of the bucket
        staged.flush()
        staged.send()
    paths = [path.partition("runs/a/")[2] for path, _ in relay.puts]
    assert paths == [
        "run.json",
        "tables/scalars/n0/00000000-00000000.parquet",
        "segments/scalars/n0.json",
        "nodes/n0/status.json",
    ]
    assert all(is_conditional for _, is_conditional in relay.puts)


def test_segments_are_merged_before_they_are_sent(staged: Staged, bucket: TestBucket) -> None:
    for _ in range(16):
        staged.flush()
    staged.flush(compact=True)
    staged.send()
    segments = [key for key in stored_files(staged.url) if key.startswith("tables/")]
    names = [key.rpartition("/")[2] for key in segments]
    assert names == ["00000000-00000015.parquet", "00000016-00000016.parquet"]


def test_readers_see_whole_flushes_at_every_object(staged: Staged) -> None:
    """A reader between any two objects of an upload, which replaces sent segments by a merged one,
    sees each row once."""
    for _ in range(15):
        staged.flush()
    staged.send()
    staged.flush(compact=True)
    rows: list[int] = []
    with staged.mirror.journal as journal:
        assert journal.take()
        while not staged.mirror.is_complete():
            sent_count = staged.mirror.sent_count
            staged.mirror.send(lambda before=sent_count: staged.mirror.sent_count > before)
            assert staged.mirror.sent_count > sent_count
            rows = seqs(staged.url)
            assert rows in (list(range(45)), list(range(48)))
    assert rows == list(range(48))


def test_a_lost_journal_changes_nothing(staged: Staged) -> None:
    for _ in range(3):
        staged.flush()
    staged.send()
    before = stored_files(staged.url)
    journal = staged.directory / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1][:20])  # torn by a crash
    staged.mirror = RunMirror(staged.directory)
    staged.send()
    assert stored_files(staged.url) == before
    assert staged.mirror.is_complete()


def test_an_answer_that_is_lost(staged: Staged, bucket: TestBucket) -> None:
    """Every request is acted on, and none is answered; the next attempt recognizes its objects."""
    with outages(bucket.server.endpoint) as relay:
        os.environ["AWS_ENDPOINT_URL"] = relay.endpoint
        staged.flush()
        relay.fault = Fault.CUT_AFTER
        with pytest.raises(OSError, match="cannot connect; check the network"):
            staged.send()
        relay.fault = Fault.NONE
        staged.send()
        assert seqs(staged.url) == [0, 1, 2]
    assert staged.mirror.is_complete()


def test_a_document_that_another_writer_has_replaced(staged: Staged, bucket: TestBucket) -> None:
    staged.flush()
    staged.send()
    bucket.put("runs/a/nodes/n0/status.json", b"of another writer")
    staged.flush()
    staged.send()
    assert open_run(staged.url).statuses()["n0"].heartbeat_ns == 6


def test_one_process_at_a_time(staged: Staged) -> None:
    with UploadJournal(staged.directory) as journal:
        assert journal.take()
        assert not staged.mirror.journal.take()
    with staged.mirror.journal as journal:
        assert journal.take()


def test_a_journal_is_rewritten_when_it_is_long(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.store.mirror_journal._MAX_STALE_LINES", 3)
    for _ in range(9):
        staged.flush()
        staged.send()
    lines = (staged.directory / JOURNAL).read_bytes().splitlines()
    assert len(lines) < 9 + 9 + 9  # segments, lists, statuses
    uploads = UploadJournal(staged.directory).uploads
    assert uploads == staged.mirror.journal.uploads
    assert len(uploads) == 9 + 3


JOB = msgspec.structs.replace(INFO, job="slurm 1.0")


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (msgspec.structs.replace(INFO, run_id="b"), "already holds another run"),
        (msgspec.structs.replace(INFO, job="slurm 2.0"), "already holds a run of the job slurm 2"),
        (None, "already holds a damaged run"),
    ],
)
def test_the_url_of_another_run(
    bucket: TestBucket, tmp_path: Path, stored: RunInfo | None, message: str
) -> None:
    staged = Staged(tmp_path / "run", bucket.url("runs/a"), JOB)
    bucket.put("runs/a/run.json", b"{" if stored is None else msgspec.json.encode(stored))
    staged.flush()
    with pytest.raises(UploadRefusedError, match=message):
        staged.send()
    assert bucket.keys() == ["runs/a/run.json"]


def test_two_machines_record_one_run(bucket: TestBucket, tmp_path: Path) -> None:
    url = bucket.url("runs/a")
    machines = [Staged(tmp_path / node, url, JOB, node) for node in ("a", "b")]
    for machine in machines:
        machine.register(machine.node)
        machine.flush()
        SharedRun(machine.directory).take_lease(1, machine.node)
        machine.send()
    reader = open_run(url)
    assert sorted(reader.statuses()) == ["a", "b"]
    assert seqs(url) == [0, 1, 2, 0, 1, 2]
    assert SharedRun(url).read_lease() is None  # that of one machine says nothing about the other


def test_two_machines_exchange_stops(bucket: TestBucket, tmp_path: Path) -> None:
    url = bucket.url("runs/a")
    machines = [Staged(tmp_path / node, url, JOB, node) for node in ("a", "b")]
    stops = [
        JobStop(node=machine.node, incarnation=1, rule="Stuck", stopped_ns=number)
        for number, machine in enumerate(machines, 2)
    ]
    for machine, stop in zip(machines, stops, strict=True):
        SharedRun(machine.directory).add_stop(stop)  # both are stops/1.json of their machine
        machine.send()
    machines[0].send()
    late = Staged(tmp_path / "c", url, msgspec.structs.replace(JOB, created_ns=3), "c")
    late.send()  # the first stop is from before its start
    machines[1].mirror = RunMirror(machines[1].directory)  # its monitor was started again
    machines[1].send()
    assert SharedRun(url).read_stops() == stops
    local = [SharedRun(machine.directory).read_stops() for machine in (*machines, late)]
    assert local == [stops, stops[::-1], stops[1:]]


def test_two_machines_of_one_name(bucket: TestBucket, tmp_path: Path) -> None:
    machines = [Staged(tmp_path / name, bucket.url("runs/a"), JOB) for name in ("a", "b")]
    for machine in machines:
        machine.register("n0", machine=machine.directory.name)
        machine.flush()
    machines[0].send()
    with pytest.raises(UploadRefusedError, match="Another machine, or an earlier start on it"):
        machines[1].send()
    assert seqs(bucket.url("runs/a")) == [0, 1, 2]


def test_a_job_of_that_name_has_completed(bucket: TestBucket, tmp_path: Path) -> None:
    machines = [
        Staged(tmp_path / node, bucket.url("runs/a"), info, node)
        for node, info in (("a", JOB), ("b", msgspec.structs.replace(JOB, created_ns=2)))
    ]
    machines[0].register("a")
    with RunWriter(machines[0].directory, "a") as writer:
        writer.put_status(msgspec.structs.replace(STATUS, state=JobState.COMPLETED))
    machines[0].send()
    with pytest.raises(UploadRefusedError, match="which has completed"):
        machines[1].send()


def test_a_segment_of_something_else(staged: Staged, bucket: TestBucket) -> None:
    staged.flush()
    bucket.put("runs/a/tables/scalars/n0/00000000-00000000.parquet", b"other")
    with pytest.raises(UploadRefusedError, match="something else has written it"):
        staged.send()


def test_segments_of_a_large_run_are_found_by_lists(
    staged: Staged, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        staged.flush()
    staged.writer = RunWriter(staged.directory, "n0")  # leaves the mark of a second writer
    staged.row_count = 12
    staged.flush()
    staged.send()
    monkeypatch.setattr(remote, "MAX_FULL_LISTING", 3)
    with bucket.server.counted() as requests:
        assert seqs(staged.url) == list(range(15))
    listings = [request.path for request in requests if request.is_listing]
    assert not any("tables" in path for path in listings)
    # A copy without lists, and one with a damaged list, are read by listing the bucket.
    for content in (b"{", None):
        key = f"runs/a/{layout.segments_key_of('tables/scalars/n0/x')}"
        bucket.put(key, content) if content else bucket.remove(key)
        assert seqs(staged.url) == list(range(15))
