"""Times of the device, of arrays that are ready when the test says so, by a clock of the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.framework_environments import find_python

pytestmark = pytest.mark.extended(
    "the clock of the device in detail; test_jax_contracts.py has a job"
)

SETUP = """
import os, threading
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

SEEN = """
def call(start_ns):
    global now_ns
    now_ns = start_ns
    array = Array()
    times.observe(array, None)
    return array

def wait(start_ns, array, end_ns):
    global now_ns
    now_ns = start_ns
    times.wait("array", lambda array: end(array, end_ns), array)

def end(array, end_ns):
    global now_ns
    now_ns = end_ns
    array.ready.set()

for step in range(device_times.MIN_SEEN_COUNT):
    array = call(100 * step)
    array.awaited.wait()
    wait(100 * step + 5, array, 100 * step + 10)
other = Array()
times._queue.put(device_times._Computation(other, 0, 0, times._this_thread.caller))
other.awaited.wait()  # from here on the thread of its own waits for another result
times.observe(None, None)
recorder.intervals.clear()

first = call(1000)
wait(1002, Array(), 1005)  # for something else
second = call(1010)  # which finds the first missing
first.ready.set()
wait(1015, second, 1030)
assert times._queue.qsize() == 0
unseen = call(1100)
unseen.ready.set()
wait(1150, Array(), 1160)  # for something else, after the result was there
third = call(1170)
assert times._queue.qsize() == 1
times.observe(None, None)
intervals = [(1000, 1002), (1002, 1010), (1010, 1030)]
assert recorder.intervals == [(True, *interval) for interval in intervals], recorder.intervals
print("done", flush=True)
os._exit(0)
"""
MISSED = """
def call(number, is_seen):
    global now_ns
    now_ns = 100 * number
    array = Array()
    times.observe(array, None)
    is_queued.append(times._this_thread.caller.is_queued)
    times.wait("array", lambda array: array.ready.set(), array) if is_seen else array.ready.set()

is_queued = []
seen, weight = device_times.MIN_SEEN_COUNT, device_times.MISS_WEIGHT
results = [True] * (seen + weight) + [False] + [True, False] + [True] * weight + [True]
for number, is_seen in enumerate(results):
    call(number, is_seen)
call(len(results), True)
assert is_queued == [True] * seen + [False] * (weight + 3) + [True] * (weight - 1) + [False] * 3
times.stop()
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

READY = """
import jax
import jax.numpy as jnp
from stepscope.capture import session
from stepscope.capture.frameworks.jax import device_times

device_times.install_waits()
array = jax.block_until_ready(jnp.ones(3))
awaited = []
device_times.times.wait = lambda name, original, values: awaited.append(values)
session.live = 1
jax.block_until_ready(array)
array.block_until_ready()
assert awaited == [], awaited
structure = [array]
jax.block_until_ready(structure)
assert [one is structure for one in awaited] == [True], awaited
print("done")
"""

NESTED_STATE = """
import jax.numpy as jnp
from stepscope.capture.frameworks.jax.calls import describe_call

state = [jnp.ones(8), [jnp.zeros(()), jnp.zeros(())]]
loss = jnp.zeros(())
metrics = {"a": {"accuracy": jnp.zeros(())}, "loss": loss}
for result in ({"loss": loss}, state), (state, loss), (state, metrics):
    shape = describe_call((state, jnp.ones(4)), result)
    assert shape.find_result(result) is loss, shape
    assert shape.state_bytes == 40, shape
print("done")
"""


def run_code(code: str) -> None:
    done = subprocess.run(
        [find_python("keras"), "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert done.stdout == "done\n", done.stderr


def test_an_interval_is_written_by_the_thread_whose_call_it_was() -> None:
    run_code(SETUP + OTHER_THREAD)


def test_the_device_is_busy_until_the_last_call_that_found_it_busy() -> None:
    run_code(SETUP + RESTING)


def test_a_thread_that_reads_each_result_times_the_device_itself() -> None:
    run_code(SETUP + SEEN)


def test_a_result_that_is_rarely_missed_does_not_wake_the_other_thread() -> None:
    run_code(SETUP + MISSED)


def test_a_long_computation_at_the_end_is_awaited() -> None:
    """A thread that is left in it would abort the process."""
    run_code(SETUP + STOPPED)


def test_an_array_that_is_there_is_not_awaited() -> None:
    run_code(READY)


def test_a_loss_is_told_apart_from_the_scalars_of_an_optimizer() -> None:
    run_code(NESTED_STATE)
