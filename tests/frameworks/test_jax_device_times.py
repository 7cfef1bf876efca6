"""Times of the device, of arrays that are ready when the test says so, by a clock of the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.framework_environments import find_python

pytestmark = pytest.mark.e2e
SETUP = """
import threading
from stepscope.capture.frameworks.jax import device_times

class Array:
    def __init__(self):
        self.awaited, self.ready = threading.Event(), threading.Event()
        self.is_ready = self.ready.is_set

    def block_until_ready(self):
        self.awaited.set()
        self.ready.wait()

class Recorder:
    def __init__(self):
        self.intervals = []

    def write(self, kind, name, start_ns, end_ns):
        self.intervals.append((threading.get_ident() == main, start_ns, end_ns))

main = threading.get_ident()
recorder = device_times._probe = Recorder()
now_ns = 0
device_times._now = lambda: now_ns
times = device_times.DeviceTimes()
"""
OTHER_THREAD = """
array = Array()
now_ns = 10
times.observe(array, None)
array.awaited.wait()
now_ns = 30
array.ready.set()
thread = threading.Thread(target=times.stop)
thread.start()
thread.join()
assert not recorder.intervals, recorder.intervals
times.observe(None, None)
assert recorder.intervals == [(True, 10, 30)], recorder.intervals
print("done")
"""
RESTING = """
resting, is_rested = threading.Event(), threading.Event()
device_times.time.sleep = lambda _: (resting.set(), is_rested.wait())
arrays = [Array() for _ in range(4)]
for now_ns, array in zip((10, 20, 30), arrays):
    times.observe(array, None)
arrays[0].awaited.wait()
now_ns = 40
arrays[0].ready.set()
resting.wait()
now_ns = 50
times.observe(arrays[3], None)
now_ns = 60
for array in arrays:
    array.ready.set()
is_rested.set()
times.stop()
assert recorder.intervals == [(True, 10, 40), (True, 40, 50)], recorder.intervals
print("done")
"""

STOPPED = """
array = Array()
times.observe(array, None)
array.awaited.wait()
join = times._thread.join

def join_and_compute(*limit):
    assert not limit, limit
    array.ready.set()
    join()

times._thread.join = join_and_compute
times.stop()
assert not times._thread.is_alive()
print("done")
"""


def run_code(code: str) -> None:
    done = subprocess.run(
        [find_python("jax"), "-c", SETUP + code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert done.stdout == "done\n", done.stderr


def test_an_interval_is_written_by_the_thread_whose_call_it_was() -> None:
    run_code(OTHER_THREAD)


def test_the_device_is_busy_until_the_last_call_that_found_it_busy() -> None:
    run_code(RESTING)


def test_a_long_computation_at_the_end_is_awaited() -> None:
    """A thread that is left in it would abort the process."""
    run_code(STOPPED)
