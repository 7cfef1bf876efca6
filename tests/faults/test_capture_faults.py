"""The part inside the job, when the process, the disk or the limits turn against it."""

from __future__ import annotations

import mmap
import os
import random
import resource
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


@pytest.fixture
def recording(spool: Any) -> Iterator[Any]:
    """The spool, while this process and its forks record into it."""
    session.attach(str(spool.path), spool.limit_bytes)
    yield spool
    session.detach()


class Victim:
    """A fork that records in a tight loop, and says through a mapped word how far it got."""

    def __init__(self, loop: Callable[[memoryview], None]) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("Q")
        self.pid = os.fork()
        if not self.pid:
            try:
                loop(self._words)
            finally:
                os._exit(1)

    @property
    def announced(self) -> int:
        """What it said it had ended; every record of it, and all before."""
        return self._words[0]

    def kill(self, *, after_s: float) -> int:
        """Kill it so long after its first word; returns its last."""
        while not self.announced:
            time.sleep(0.0002)
        time.sleep(after_s)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return self.announced


def record_for_ever(announce: memoryview) -> None:
    """Steps, nested annotations with ever new names, scalars; and one that stays open."""
    stepscope.annotation_begin("open", kept=True)
    for n in count(1):
        with stepscope.annotate("outer"), stepscope.annotate(f"name {n // 10}", n=n % 3):
            stepscope.step(n)
        stepscope.scalar("n", n)
        announce[0] = n


def check_everything(recorded: Any, process: str, announced: int) -> None:
    """All that was announced is there and whole; at most the one under way is besides."""
    mine = [r for r in recorded.records if r.process == process]
    steps = [r.value for r in mine if r.kind == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert announced <= len(steps) <= announced + 1
    scalars = [r.value for r in mine if r.table == "scalars"]
    assert scalars == list(range(1, len(scalars) + 1))
    assert len(scalars) >= announced
    spans = sorted((r for r in mine if r.kind == "annotation"), key=lambda r: r.seq)
    (forgotten,) = (r for r in spans if r.name == "open")
    assert (forgotten.end, forgotten.labels) == (None, '{"kept": true}')
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
def test_a_kill_at_any_instant_loses_nothing_that_was_ended(recording: Any, seed: int) -> None:
    chance = random.Random(seed)
    fates = {}
    for n in range(15):
        victim = Victim(record_for_ever)
        fates[victim.pid] = victim.kill(after_s=chance.random() * (0.1 if n % 5 == 4 else 0.02))
    recorded = recording.drain(final=False)  # that they are dead is for the drain to find out
    assert {p.pid for p in recorded.processes.values()} == set(fates)
    for name, process in recorded.processes.items():
        assert process.ended
        check_everything(recorded, name, fates[process.pid])
    logs = [path.name for path in recording.path.rglob("*f-1.log")]
    assert logs, "some went over the border of a segment"


def test_a_kill_while_the_monitor_reads_and_removes(recording: Any) -> None:
    """What has been read is gone from the spool, what was not is still there; nothing twice."""
    chance = random.Random(7)
    for _ in range(6):
        victim = Victim(record_for_ever)
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
    """A file system of one mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_costs_records_and_not_the_job(small_disk: Path, spool: Any) -> None:
    """A store into a page that the disk has no room for would kill the process with SIGBUS."""
    shutil.rmtree(spool.path)
    spool.path = small_disk / "spool"
    spool.path.mkdir()
    spool.tree.root = str(spool.path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1024 * 1024 - 5 * SEGMENT_BYTES // 2))
    script = f"""
        import os, time, stepscope
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
        time.sleep(0.15)
        with stepscope.annotate("room again"):
            stepscope.step(-7)
    """
    (small_disk / "spool-script.py").write_text("")  # there is room for it: it is made anew
    done = spool.run(script)
    assert done.stderr == ""
    recorded = spool.drain()
    assert recorded.count("annotation")["early"] == 100
    assert recorded.count("annotation")["room again"] == 1
    steps = [r.value for r in recorded.of("step")]
    assert steps[-1] == -7
    assert steps[:-1] == list(range(len(steps) - 1))
    kept = len(recorded.of("annotation")) + len(steps)
    assert recorded.dropped == 8 * SEGMENT_RECORDS + 200 + 2 - kept


LIMITED = """
    import os, resource, stepscope
    {limit}
    for n in range({count}):
        with stepscope.annotate("a", n=n % 2), stepscope.mode("EVAL"):
            stepscope.step(n)
            stepscope.scalar("s", n)
    {after}
    print("the job is done")
"""


def test_a_limit_on_file_sizes(spool: Any) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({SEGMENT_BYTES // 2},) * 2)"
    done = spool.run(LIMITED.format(limit=limit, after="", count=1000))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")
    recorded = spool.drain()
    assert recorded.records == []
    assert not list(spool.path.rglob("*.new")), "nothing half-made is left behind"


def test_no_descriptors_left(spool: Any) -> None:
    limit = """
    held = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    """
    after = "import sys; sys.stdout.flush()"
    done = spool.run(LIMITED.format(limit=limit, after=after, count=1000))
    assert done.stdout == "the job is done\n"
    assert done.stderr.startswith("stepscope: process ")
    assert done.stderr.count("\n") == 1


def test_a_spool_that_is_removed_under_way(spool: Any) -> None:
    limit = "import shutil; stepscope.step(-1); shutil.rmtree(os.environ['STEPSCOPE_SPOOL'])"
    done = spool.run(LIMITED.format(limit=limit, after="", count=2 * SEGMENT_RECORDS))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")


def test_a_spool_limit_of_nothing(spool: Any) -> None:
    spool.limit_bytes = 0
    done = spool.run(LIMITED.format(limit="", after="", count=100))
    assert (done.stdout, done.stderr) == ("the job is done\n", "")
    assert spool.drain().records == []


@pytest.mark.parametrize(
    "statement",
    ["os.close(2)", "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"],
    ids=["closed", "full"],
)
def test_a_standard_error_that_cannot_be_written(spool: Any, statement: str) -> None:
    """A message that stays in the buffer of stderr would change the exit status to 120."""
    shutil.rmtree(spool.path)
    script = LIMITED.format(limit=statement, after="", count=1)
    done = spool.run(script, PYTHONUNBUFFERED="")
    assert done.stdout == "the job is done\n"


def test_a_daemon_that_closes_every_descriptor(spool: Any) -> None:
    """As daemons do: the log and the journal must not depend on a descriptor of ours."""
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


def test_the_limits_of_this_test_run_are_as_before() -> None:
    """A guard on this file: nothing above may have limited the process that runs the tests."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert sys.gettrace() is None
