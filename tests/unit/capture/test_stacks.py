"""The stack sampler: its samples, and its transparency to the job."""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.capture import frames, guard, session, stacks
from stepscope.capture.frameworks import trainers


@pytest.fixture
def sampler(recording: Any) -> Iterator[Any]:
    """Provide the spool, and stop the sampler after the test."""
    yield recording
    stacks.stop()
    stacks._probe.alive = True


def wait_for(condition: Callable[[], object]) -> None:
    """Wait in a function of this file, so that samples contain its name and its line."""
    pause = threading.Event()
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.002)


def samples(spool: Any) -> list[Any]:
    return [r for r in spool.drain().records if r.table == "stacks"]


def user_function(spool: Any) -> None:
    stacks.watch_this_thread(0.001)
    wait_for(lambda: sum("wait_for|" in r.name for r in samples(spool)) > 3)


@pytest.mark.seed("DBP-06")
def test_samples_contain_the_stack_of_the_thread(sampler: Any) -> None:
    user_function(sampler)
    names = [r.name for r in samples(sampler)]
    assert any("user_function" in name for name in names)
    assert any(f"wait_for|{__file__}|" in name for name in names)
    assert not any("capture/stacks.py" in name for name in names), "frames of the sampler itself"
    sources = sampler.drain().facts("source")
    assert any("pause.wait(0.002)" in source["text"] for source in sources)
    functions = {fact["name"]: fact["uses"] for fact in sampler.drain().facts("function")}
    assert {"threading", "Event", "wait"} <= set(functions["wait_for"])


def acquire_in_line(lock: Any) -> None:
    str(lock.acquire(timeout=0.01))


def acquire_on_a_line_of_its_own(lock: Any) -> None:
    (
        lock
        .acquire(timeout=0.01)
    )  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells no positions in lines")
@pytest.mark.parametrize(
    ("acquire", "text"),
    [
        (acquire_in_line, "lock.acquire(timeout=0.01)"),
        (acquire_on_a_line_of_its_own, ".acquire(timeout=0.01)"),
    ],
)
def test_samples_tell_the_running_call_of_a_line(
    sampler: Any, acquire: Callable[[Any], None], text: str
) -> None:
    lock = threading.Lock()
    lock.acquire()
    stacks.watch_this_thread(0.001)
    deadline = time.monotonic() + 10
    calls: list[Any] = []
    while not calls:
        assert time.monotonic() < deadline
        acquire(lock)
        facts = sampler.drain().facts("source")
        calls = [fact for fact in facts if fact["text"] == text and fact["call"]]
    (call,) = calls
    assert call["call"] > 0
    assert any(f"<call {call['call']}>|{__file__}|" in r.name for r in samples(sampler))


def test_an_instruction_without_a_line_does_not_stop_the_sampler(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = SimpleNamespace(f_code=wait_for.__code__, f_lineno=None, f_lasti=-1, f_back=None)
    monkeypatch.setattr(frames.sys, "_current_frames", lambda: dict.fromkeys(range(2), frame))
    assert frames.walk(1) == [(wait_for.__code__, 0, -1)]
    watcher = stacks._Sampler(1, 60.0)
    watcher._sample(1)
    assert not watcher._stop.is_set()


def test_a_pause_of_the_recording_does_not_stop_the_sampler(sampler: Any) -> None:
    watcher = stacks._Sampler(threading.get_ident(), 60.0)
    assert session.current() is not None
    for now, switch in enumerate((session.pause, session.resume), start=1):
        switch()
        watcher._sample(now)
        assert not watcher._stop.is_set()
    assert len(samples(sampler)) == 1


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="there an allocation does not run the collector"
)
def test_nothing_is_collected_while_frames_are_walked() -> None:
    """A walk of thirty frames creates thirty objects, and the threshold of the collector is ten."""
    release, running = threading.Event(), threading.Event()

    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        else:
            running.set()
            release.wait(10)

    collected: list[str] = []
    record_phase = lambda phase, info: collected.append(phase)  # noqa: E731 - one line of bytecode
    thread = threading.Thread(target=deep, args=(30,))
    thread.start()
    thresholds = gc.get_threshold()
    try:
        assert running.wait(10)
        gc.collect()
        gc.callbacks.append(record_phase)
        gc.set_threshold(10)
        walked = frames.walk(thread.ident or 0)
        assert not collected
        assert gc.isenabled()
        gc.disable()
        assert frames.walk(thread.ident or 0) == walked
        assert not gc.isenabled()  # as set by the job
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
        if record_phase in gc.callbacks:
            gc.callbacks.remove(record_phase)
        release.set()
        thread.join()
    assert len(walked) > 30


def fill_slowly(results: queue.Queue[int]) -> None:
    """Fill a queue from a function of this file."""
    while results.empty():
        make_result()
    results.put(2)


def make_result() -> None:
    sum(range(1000))


def test_a_wait_is_recorded_with_the_thread_that_fills_it(sampler: Any) -> None:
    """A thread that uses `put` fills the queue; one that only runs does not."""
    results: queue.Queue[int] = queue.Queue()
    started, ended = threading.Event(), threading.Event()

    def run_beside() -> None:
        started.set()
        while not ended.is_set():
            make_result()

    beside = threading.Thread(target=run_beside)
    filler = threading.Thread(target=fill_slowly, args=(results,))
    beside.start()
    assert started.wait(10)
    filler.start()
    stacks.watch_this_thread(0.001)
    try:
        wait_for(lambda: any("<filled by>|" in r.name for r in samples(sampler)))
        names = [r.name for r in samples(sampler)]
    finally:
        results.put(1)
        ended.set()
        filler.join()
        beside.join()
    fillers = [name.partition(";<filled by>|")[2] for name in names if ";<filled by>|" in name]
    assert any(f"fill_slowly|{__file__}|;make_result" in text for text in fillers)


def test_a_process_that_works_for_the_job_says_so_unless_it_trains(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only in the script of Ray's workers the adapter of Ray Data samples."""
    monkeypatch.setattr(stacks, "WORKER_DELAY_S", 0.001)
    trainers.install_ray_data()
    assert stacks._sampler is None
    script = f"/x/site-packages/{trainers._RAY_WORKER}"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    trainers.install_ray_data()
    wait_for(lambda: sampler.drain().facts("worker_process"))
    (fact,) = sampler.drain().facts("worker_process")
    assert (fact["target"], fact["trains"]) == ("ray.data", False)
    stacks.stop()  # as at a fork, such as that of a DataLoader's worker before the first step
    stacks.watch_this_thread(0.001)  # as at the first step
    assert [f["trains"] for f in sampler.drain().facts("worker_process")] == [False, True]
    wait_for(lambda: len(samples(sampler)) > 1)


def test_a_coroutine_is_sampled_where_it_waits(sampler: Any) -> None:
    """The frames of what the event loop waits for follow those of the loop."""

    def list_waits() -> list[str]:
        names = [r.name for r in samples(sampler)]
        return [name for name in names if ".select|" in name and "fetch|" in name]

    async def fetch() -> None:
        deadline = time.monotonic() + 10
        while not any("sleep|" in name for name in list_waits()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def main() -> None:
        stacks.watch_this_thread(0.001)
        await asyncio.gather(fetch())

    asyncio.run(main())
    assert any("main|" in name and "sleep|" in name for name in list_waits())


def test_the_library_of_a_file_is_its_package() -> None:
    assert frames.library_of("/x/lib/python3.12/site-packages/PIL/Image.py") == "PIL"
    assert frames.library_of("/x/lib/python3/dist-packages/six.py") == "six"
    assert frames.library_of(threading.__file__) == "python"
    assert frames.library_of(guard.__file__) == "stepscope"
    assert frames.library_of("/home/me/train.py") == ""
    assert frames.library_of("<frozen importlib._bootstrap>") == "python"


def test_one_thread_is_watched_until_it_ends(sampler: Any) -> None:
    first = threading.Thread(target=user_function, args=(sampler,))
    first.start()
    first.join()
    wait_for(lambda: stacks._sampler is None)
    before = len(samples(sampler))
    stacks.watch_this_thread(0.001)
    stacks.watch_this_thread(0.001)
    assert sum(t.name == "stepscope-stacks" for t in threading.enumerate()) == 1
    wait_for(lambda: len(samples(sampler)) > before)


def test_a_job_that_cannot_start_a_thread_continues_without_samples(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(guard, "STRICT", False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    stacks.watch_this_thread(0.001)
    stacks.watch_this_thread(0.001)
    stacks.stop()
    assert ["can't start new thread" in note for note in sampler.drain().notes] == [True]
    assert sys.getswitchinterval() == pytest.approx(stacks.DEFAULT_SWITCH_INTERVAL_S)


def test_the_switch_interval_is_restored(sampler: Any) -> None:
    original = sys.getswitchinterval()
    stacks.watch_this_thread(0.001)
    assert sys.getswitchinterval() == pytest.approx(stacks.SWITCH_INTERVAL_S)
    stacks.stop()
    assert sys.getswitchinterval() == pytest.approx(original)
    sys.setswitchinterval(0.1)  # set by the job
    try:
        stacks.watch_this_thread(0.001)
        stacks.stop()
        assert sys.getswitchinterval() == pytest.approx(0.1)
    finally:
        sys.setswitchinterval(original)


def test_no_sampler_runs_during_a_fork(spool: Any) -> None:
    """Python 3.12 warns about a fork with several threads, and `-W error` makes it fatal."""
    spool.run(
        """
        import os, sys, time
        def tasks():
            return len(os.listdir("/proc/self/task"))
        during = []
        os.register_at_fork(before=lambda: during.append(tasks()))  # runs after later ones
        import stepscope
        from stepscope.capture import stacks
        interval = 0.005  # by default
        def work():
            stacks.watch_this_thread(0.001)
            stepscope.step(tasks())
            deadline = time.monotonic() + 0.1  # enough for several samples
            while time.monotonic() < deadline:
                pass
        for turn in range(4):
            work()
            pid = os.fork()
            if not pid:
                code = 10 * tasks() + (sys.getswitchinterval() != interval)
                os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10
        assert during == [1] * 4, during
        """,
        flags=("-W", "error"),
    )
    recorded = spool.drain()
    assert [r.value for r in recorded.of("step")] == [2] * 4, "the sampler runs again after a fork"
    assert len([r for r in recorded.records if r.table == "stacks"]) >= 4
