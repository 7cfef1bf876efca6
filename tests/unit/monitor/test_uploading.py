"""The thread that uploads a staging directory: outages, limits, and the end of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stepscope.monitor import BUSY, Uploader, discard_staging, node_info
from stepscope.monitor.node_writer import NodeWriter
from stepscope.monitor.uploading import NOTED_AFTER_S
from stepscope.schema import JobState
from stepscope.spool import DropCounts, Kind, SpanLog, SpoolTree, make_meta, process_start_ticks
from stepscope.store import LocalStore, open_run
from tests.support.buckets import TestBucket
from tests.support.staged_runs import INFO, STATUS, Staged
from tests.support.store_outages import Fault, Outages, outages
from tests.support.waiting import wait_until

TIMEOUT_S = 60


@pytest.fixture
def relay(bucket: TestBucket) -> Iterator[Outages]:
    """Provide a relay to the store, which the environment leads through."""
    with outages(bucket.server.endpoint) as relay:
        os.environ["AWS_ENDPOINT_URL"] = relay.endpoint  # restored by the fixture of the bucket
        yield relay


@pytest.fixture
def staged(relay: Outages, bucket: TestBucket, tmp_path: Path) -> Staged:
    """Provide a staging directory with three rows."""
    staged = Staged(tmp_path / "run", bucket.url("runs/a"))
    staged.flush()
    return staged


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.CUT_BEFORE, "cannot connect; check the network and the endpoint"),
        (Fault.UNAVAILABLE, "the service limits requests or is overloaded; try again later"),
        (Fault.THROTTLED, "the service limits requests or is overloaded; try again later"),
        (Fault.DENIED, "access denied; check the credentials in the environment"),
        (Fault.FULL, "the store is full or its quota is used up; delete objects or raise"),
    ],
)
def test_a_store_that_refuses_and_comes_back(
    staged: Staged, relay: Outages, fault: Fault, reason: str
) -> None:
    clock = Clock()
    uploader = Uploader(staged.directory, clock=clock)
    clock.now_s += NOTED_AFTER_S
    relay.fault = fault
    uploader.start()
    wait_until(lambda: reason in str(uploader.notes), timeout_s=TIMEOUT_S, waiting_for="a note")
    relay.fault = Fault.NONE
    assert uploader.finish().complete
    assert open_run(staged.url).row_count("scalars") == 3


def test_the_end_of_a_job_does_not_wait_for_a_store_that_is_away(
    staged: Staged, relay: Outages
) -> None:
    relay.fault = Fault.DENIED
    uploader = Uploader(staged.directory)
    end = uploader.finish(give_up_s=0)
    assert not end.complete
    assert end.remaining.startswith("3 files (")
    assert end.reason


def test_the_run_says_how_far_behind_the_store_is(staged: Staged, relay: Outages) -> None:
    clock = Clock()
    uploader = Uploader(staged.directory, clock=clock)
    assert uploader.notes == []
    clock.now_s += NOTED_AFTER_S + 35
    (note,) = uploader.notes
    assert note.startswith("the object store is 65 s behind, with 3 files (")
    assert note.endswith("to upload")
    uploader.start()
    wait_until(lambda: not uploader.notes, timeout_s=TIMEOUT_S, waiting_for="an upload")
    relay.fault = Fault.DENIED
    staged.flush()
    clock.now_s += 100
    uploader.finish(should_stop=lambda: relay.fault_count > 0)
    uploader.end_recording()
    assert uploader.notes == []  # it is no property of the run in the store


def test_what_waits_for_the_store_is_limited(staged: Staged, relay: Outages) -> None:
    size_bytes = sum(
        path.stat().st_size for path in staged.directory.rglob("*.*") if path.name[0] != "."
    )
    assert not Uploader(staged.directory).is_full
    assert not Uploader(staged.directory, limit_bytes=size_bytes + 1).is_full
    uploader = Uploader(staged.directory, limit_bytes=size_bytes)
    assert uploader.is_full
    uploader.start()
    wait_until(lambda: not uploader.is_full, timeout_s=TIMEOUT_S, waiting_for="an upload")
    (note,) = uploader.notes
    assert "reached --spool-limit; records since then may have been dropped" in note
    uploader.stop()


def test_records_stay_in_the_spool_while_too_much_waits(
    staged: Staged, relay: Outages, tmp_path: Path
) -> None:
    tree = SpoolTree(str(tmp_path / "spool"), 1 << 20)
    directory = tmp_path / "spool" / f"p-{os.getpid()}-{process_start_ticks(os.getpid())}-0"
    directory.mkdir(parents=True)
    log = SpanLog(tree, str(directory), 7, "c", DropCounts.create(str(directory)))
    uploader = Uploader(staged.directory, limit_bytes=1)
    info = node_info(sample_interval_ns=0, spool=str(tmp_path / "spool"))
    writer = NodeWriter(str(staged.directory), info, tree, uploader=uploader)
    log.write(make_meta(1, Kind.BACKWARD), 1, 2, 0)
    assert writer.flush() == 0
    assert writer.notes == uploader.notes
    uploader.start()
    wait_until(lambda: not uploader.is_full, timeout_s=TIMEOUT_S, waiting_for="an upload")
    relay.fault = Fault.DENIED
    assert writer.flush() == 1
    log.write(make_meta(1, Kind.BACKWARD), 3, 4, 0)
    assert writer.flush() == 0  # the new file waits
    assert writer.flush(final=True) == 1
    relay.fault = Fault.NONE
    assert uploader.finish().complete
    writer.close()
    assert open_run(staged.url).row_count("spans") == 2


def test_a_run_of_another_job_is_named(staged: Staged, bucket: TestBucket) -> None:
    bucket.put("runs/a/run.json", b"{}")
    uploader = Uploader(staged.directory, limit_bytes=1)
    uploader.start()
    wait_until(lambda: uploader.notes, timeout_s=TIMEOUT_S, waiting_for="a refusal")
    url = bucket.url("runs/a")
    assert uploader.notes == [f"the run is not uploaded: {url} already holds a damaged run"]
    assert not uploader.is_full  # nothing waits for the store
    end = uploader.finish()
    assert end.is_refused
    assert bucket.keys() == ["runs/a/run.json"]


@pytest.mark.extended("waits for a lease")
def test_another_process_that_uploads(staged: Staged) -> None:
    with staged.mirror.journal as journal:
        assert journal.take()
        end = Uploader(staged.directory).finish()
    assert (end.complete, end.reason) == (False, BUSY)
    assert end.is_visible
    assert BUSY == "another process of this machine is uploading the run"


def test_without_the_library(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    end = Uploader(staged.directory).finish(give_up_s=0.5)
    assert end.reason == "obstore is not installed: pip install 'stepscope[remote]'"


def test_an_uploaded_run_is_removed_here(staged: Staged) -> None:
    discard_staging(staged.directory)
    assert not staged.directory.exists()


def test_names_of_a_shared_run_stay(tmp_path: Path, bucket: TestBucket) -> None:
    info = msgspec.structs.replace(INFO, job="slurm 1")
    staged = Staged(tmp_path / "run", bucket.url("runs/a"), info)
    staged.register("n0")
    staged.flush()
    discard_staging(staged.directory)
    assert list(LocalStore(staged.directory).list("tables/"))  # the launcher is recording
    final = msgspec.structs.replace(STATUS, state=JobState.COMPLETED)
    staged.writer.put_status(final)
    discard_staging(staged.directory)
    assert not list(LocalStore(staged.directory).list("tables/"))
    assert list(LocalStore(staged.directory).list("launchers/")) == ["launchers/n0.json"]
