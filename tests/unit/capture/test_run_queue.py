"""Time without a core of a real thread that shares its core with a busy process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.capture import stacks
from stepscope.capture.stacks import RunQueueDelay


@pytest.fixture
def shared_core() -> Iterator[None]:
    """Share the core of this thread with a busy process."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    busy.kill()
    busy.wait()
    os.sched_setaffinity(0, cores)


def test_counts_the_time_without_a_core(shared_core: None) -> None:
    delay = RunQueueDelay(threading.get_native_id())
    if not delay.is_available:
        pytest.skip("this kernel does not count delays")
    start_ns, total_ns = time.monotonic_ns(), 0
    while total_ns < 20_000_000:
        total_ns += delay.take_ns()
        assert time.monotonic_ns() - start_ns < 60_000_000_000
    assert total_ns <= time.monotonic_ns() - start_ns
    delay.close()
    assert delay.take_ns() == 0
    assert not delay.is_available


def test_a_thread_that_has_ended_has_no_counter() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    while pathlib.Path(f"/proc/self/task/{thread.native_id}").exists():
        os.sched_yield()
    assert not RunQueueDelay(thread.native_id).is_available


def test_the_sampler_records_delays(recording: Any, shared_core: None) -> None:
    def delays() -> list[Any]:
        return [record for record in recording.drain().records if record.kind == "run_queue"]

    stacks.watch_this_thread(0.001)
    try:
        deadline = time.monotonic() + 60
        while not delays():
            assert time.monotonic() < deadline
            sum(range(100_000))
    finally:
        stacks.stop()
    facts = recording.drain().facts("stack_sampler")
    assert facts[0]["counts_delays"]
    for record in delays():
        assert 0 < record.value <= record.end - record.start
