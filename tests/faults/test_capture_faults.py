"""Capture in the training process under kills, full disks and resource limits."""

from __future__ import annotations

import functools
import gc
import mmap
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.capture import session
from stepscope.monitor.drain import SpoolDrain
from stepscope.spool import SEGMENT_BYTES, SEGMENT_RECORDS
from tests.support.small_disks import mount_small_disk
from tests.support.waiting import wait_until


@pytest.fixture
def recording(spool: Any) -> Iterator[Any]:
    """Provide the spool, while this process and its forks record into it."""
    session.attach(str(spool.path), spool.limit_bytes)
    yield spool
    session.detach()


class Victim:
    """A forked child that records in a tight loop and reports its progress in a mapped word."""

    def __init__(self, loop: Callable[[memoryview], None]) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("Q")
        self.pid = os.fork()
        if not self.pid:
            try:
                gc.freeze()  # objects of other tests, such as sockets of zmq, must not end here
                loop(self._words)
            finally:
                os._exit(1)

    @property
    def announced(self) -> int:
        """Number of the last iteration whose records are complete."""
        return self._words[0]

    def kill(self, *, after_s: float, iteration: int = 1) -> int:
        """Kill the child a given time after an iteration; returns its last iteration."""
        wait_until(lambda: self.announced >= iteration, waiting_for=f"iteration {iteration}")
        process = os.pidfd_open(self.pid)
        has_ended, _, _ = select.select([process], [], [], after_s)
        os.close(process)
        assert not has_ended
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return self.announced


def record_forever(announce: memoryview) -> None:
    """Record steps, scalars, nested annotations with new names, and one that stays open."""
    stepscope.annotation_begin("open", part=1)
    for n in count(1):
        with stepscope.annotate("outer"), stepscope.annotate(f"name {n // 10}", n=n % 3):
            stepscope.step(n)
        stepscope.scalar("n", n)
        announce[0] = n


BORDER = SEGMENT_RECORDS // 3
"""Iteration of `record_forever` after which a segment is full: each records three spans."""


def check_everything(recorded: Any, process: str, announced: int) -> None:
    """Check the records of all announced iterations, and of at most one more."""
    records = [r for r in recorded.records if r.process == process]
    steps = [r.value for r in records if r.kind == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert announced <= len(steps) <= announced + 1
    scalars = [r.value for r in records if r.table == "scalars"]
    assert scalars == list(range(1, len(scalars) + 1))
    assert len(scalars) >= announced
    spans = sorted((r for r in records if r.kind == "annotation"), key=lambda r: r.seq)
    (open_span,) = (r for r in spans if r.name == "open")
    assert (open_span.end, open_span.labels) == (None, '{"part": 1}')
    inner = [r for r in spans if r.name.startswith("name ")]
    assert [r.name for r in inner] == [f"name {n // 10}" for n in range(1, len(inner) + 1)]
    assert all(r.labels == f'{{"n": {n % 3}}}' for n, r in enumerate(inner, 1))
    ended = [r for r in spans if r.end is not None]
    assert sum(r.name == "outer" for r in ended) >= announced
    assert sum(r.name != "outer" for r in ended) >= announced
    assert all(0 < r.start <= r.end for r in ended)
    assert len(spans) - len(ended) <= 3
    assert {r.depth for r in spans} <= {0, 1, 2}


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_instant_loses_no_complete_record(recording: Any, seed: int) -> None:
    chance = random.Random(seed)
    fates = {}
    for n in range(15):
        victim = Victim(record_forever)
        iteration = BORDER if n % 5 == 4 else 1
        fates[victim.pid] = victim.kill(after_s=0.02 * chance.random(), iteration=iteration)
    recorded = recording.drain(final=False)  # the drain detects that the processes have ended
    assert {p.pid for p in recorded.processes.values()} == set(fates)
    for name, process in recorded.processes.items():
        assert process.ended
        check_everything(recorded, name, fates[process.pid])
    logs = [path.name for path in recording.path.rglob("*f-1.log")]
    assert logs, "some processes crossed a segment border"


def test_a_kill_while_the_monitor_reads_and_removes(recording: Any) -> None:
    """Records that were read are removed from the spool, the others remain; none is read twice."""
    chance = random.Random(7)
    for _ in range(6):
        victim = Victim(record_forever)
        drain = SpoolDrain(recording.tree, node="n", epoch_offset_ns=0, stored=_nothing_stored)
        steps: list[int] = []
        deadline = time.monotonic() + 0.05 + chance.random() * 0.05
        while time.monotonic() < deadline or not victim.announced:
            steps += _flush(drain)
        announced = victim.kill(after_s=0)
        steps += _flush(drain)
        assert sorted(steps) == list(range(1, len(steps) + 1))
        assert announced <= len(steps) <= announced + 1
        drain.remove_drained()
        assert list(recording.path.iterdir()) == []


def _flush(drain: SpoolDrain) -> list[int]:
    steps: list[int] = []
    for table, rows in drain.collect().items():
        if table == "spans" and rows:
            columns = drain.columns(table, rows)
            step = columns["kind"].decode() == "step"
            steps += columns["value"][step].tolist()
        drain.commit(rows)
    return steps


def _nothing_stored(*_: object) -> Any:
    return np.empty(0, dtype=np.int64)


# --- disks and limits ----------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mount_small_disk(tmp_path / "small")


def test_a_full_disk_drops_records_and_does_not_end_the_job(small_disk: Path, spool: Any) -> None:
    """A store into a page without disk space would kill the process with SIGBUS."""
    shutil.rmtree(spool.path)
    spool.path = small_disk / "spool"
    spool.path.mkdir()
    spool.tree.root = str(spool.path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1024 * 1024 - 5 * SEGMENT_BYTES // 2))
    script = f"""
        import os, stepscope
        from stepscope.capture import marks
        from stepscope.spool import log
        log.RETRY_NS = 0
        marks.step_listeners.clear()  # stack samples would be dropped, too
        for n in range({4 * SEGMENT_RECORDS}):
            with stepscope.annotate("early" if n < 100 else "later"):
                pass
            stepscope.step(n)
        assert os.statvfs({str(small_disk)!r}).f_bavail * 4096 < {SEGMENT_BYTES}
        fill = open({str(small_disk / "rest")!r}, "wb", buffering=0)
        try:
            while True:
                fill.write(bytes(4096))
        except OSError:
            pass
        for n in range(200):
            with stepscope.annotate(f"a name the journal has no room for {{n}}" * 20):
                pass
        os.unlink({str(ballast)!r})
        os.unlink({str(small_disk / "rest")!r})
        with stepscope.annotate("room again"):
            stepscope.step(-7)
    """
    (small_disk / "spool-script.py").write_text("")  # reserves space for the script
    done = spool.run(script)
    assert done.stderr == ""
    recorded = spool.drain()
    assert recorded.count("annotation")["early"] == 100
    assert recorded.count("annotation")["room again"] == 1
    steps = [r.value for r in recorded.of("step")]
    assert steps[-1] == -7
    assert steps[:-1] == list(range(len(steps) - 1))
    stored_count = len(recorded.of("annotation")) + len(steps)
    assert recorded.dropped == 8 * SEGMENT_RECORDS + 200 + 2 - stored_count


LIMITED = """
    import os, resource, stepscope
    from stepscope.capture import marks
    {limit}
    for n in range({count}):
        with stepscope.annotate("a", n=n % 2), stepscope.mode("EVAL"):
            stepscope.step(n)
            stepscope.scalar("s", n)
    {after}
    print("the job is done")
"""


def test_a_limit_on_file_sizes(spool: Any) -> None:
    limit = f"""
    resource.setrlimit(resource.RLIMIT_FSIZE, ({SEGMENT_BYTES // 2},) * 2)
    marks.step_listeners.clear()  # stack samples would be dropped, too
    """
    done = spool.run(LIMITED.format(limit=limit, after="", count=1000))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")
    recorded = spool.drain()
    assert recorded.records == []
    (process,) = recorded.processes.values()
    assert process.dropped == {"EFBIG": 4 * 1000}
    assert not list(spool.path.rglob("*.new")), "no partial file is left"


def test_a_limit_on_file_sizes_below_a_page(spool: Any) -> None:
    """Neither the count of dropped records nor the journal has room; a link says so."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    done = spool.run(LIMITED.format(limit=limit, after="", count=10))
    assert done.stdout == "the job is done\n"
    assert done.stderr.count("is not recorded") == 1
    (process,) = spool.drain().processes.values()
    assert process.refusal == "EFBIG"


def test_no_descriptors_left(spool: Any) -> None:
    limit = """
    descriptors = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    try:
        while True:
            descriptors.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    """
    after = "import sys; sys.stdout.flush()"
    done = spool.run(LIMITED.format(limit=limit, after=after, count=1000))
    assert done.stdout == "the job is done\n"
    assert done.stderr.startswith("stepscope: process ")
    assert done.stderr.count("\n") == 1


def test_a_spool_that_is_removed_while_the_job_runs(spool: Any) -> None:
    limit = "import shutil; stepscope.step(-1); shutil.rmtree(os.environ['STEPSCOPE_SPOOL'])"
    done = spool.run(LIMITED.format(limit=limit, after="", count=2 * SEGMENT_RECORDS))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")


def test_a_spool_limit_of_zero(spool: Any) -> None:
    spool.limit_bytes = 0
    done = spool.run(LIMITED.format(limit="", after="", count=100))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")
    recorded = spool.drain()
    assert recorded.records == []
    assert recorded.dropped == 4 * 100


@pytest.mark.parametrize("python", ["/usr/bin/python3", "python3.9", "python3.12", "python3.13"])
@pytest.mark.parametrize(
    "statement",
    ["os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"],
    ids=["closed", "full"],
)
def test_a_standard_error_that_cannot_be_written(spool: Any, statement: str, python: str) -> None:
    """A message that stays in the buffer of stderr would change the exit status to 120."""
    if not is_supported(python):
        pytest.skip(f"{python} is missing, or older than Python 3.9")
    shutil.rmtree(spool.path)
    script = LIMITED.format(limit=statement, after="", count=1)
    done = spool.run(script, python=python, PYTHONUNBUFFERED="")
    assert done.stdout == "the job is done\n"


@functools.cache
def is_supported(python: str) -> bool:
    """Check whether an interpreter can run jobs that stepscope records."""
    if shutil.which(python) is None:
        return False
    code = "import sys; sys.exit(sys.version_info < (3, 9))"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def test_a_daemon_that_closes_every_descriptor(spool: Any) -> None:
    """The log and the journal must not depend on an open descriptor."""
    spool.run(
        """
        import os, stepscope
        stepscope.step(1)
        os.closerange(0, 256)
        for n in range(5000):
            with stepscope.annotate(f"name {n % 7}"):
                stepscope.step(2)
        """
    )
    recorded = spool.drain()
    assert len(recorded.of("step")) == 5001
    assert set(recorded.count("annotation")) == {f"name {n}" for n in range(7)}


def test_the_limits_of_the_test_process_are_unchanged() -> None:
    """Check that the tests above have not limited the process that runs the tests."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert sys.gettrace() is None
