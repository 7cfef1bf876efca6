"""Every sampler of this node made to fail: the others are still sampled, and none holds them up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from stepscope.monitor.samplers import (
    GuardedSampler,
    JobTree,
    Sample,
    Sampler,
    SamplerError,
    SamplerFailures,
    SamplerThread,
    base,
    build_samplers,
    machine,
)
from stepscope.monitor.samplers.gpu import AmdSampler, NvmlSampler
from tests.support.waiting import wait_until

S = 1_000_000_000
METRIC = "memory_used_bytes"


@pytest.fixture
def samplers() -> list[Sampler]:
    """Build the samplers of this node."""
    return build_samplers(JobTree(os.getpid(), lambda: (), lambda: ()))[0]


def _raise(now_ns: int) -> Iterable[Sample]:
    raise KeyError("a field that an older kernel does not have")


def _raise_midway(now_ns: int) -> Iterator[Sample]:
    yield Sample(METRIC, "", 1.0)
    raise RuntimeError


FAILURES: dict[str, Callable[[int], object]] = {
    "raises": _raise,
    "raises midway": _raise_midway,
    "no samples": lambda _: None,
    "no sample": lambda _: [7],
    "no number": lambda _: [Sample(METRIC, "", "much")],  # type: ignore[arg-type]
    "not finite": lambda _: [Sample(METRIC, "", float("nan"))],
    "unknown metric": lambda _: [Sample("luck", "", 1.0)],
    "exits": lambda _: (_ for _ in ()).throw(MemoryError()),
}


def read(guard: GuardedSampler, now_ns: int, thread: SamplerThread) -> list[Sample]:
    """Read one sampler; raises its error."""
    ((_, result),) = thread.read([guard], now_ns)
    if isinstance(result, SamplerError):
        raise result
    return result


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_any_sampler_leaves_the_others(
    samplers: list[Sampler], monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    guards, thread = [GuardedSampler(sampler) for sampler in samplers], SamplerThread()
    for broken, guard in zip(samplers, guards, strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(broken, "sample", FAILURES[failure], raising=True)
            for healthy in guards:
                if healthy is guard:
                    with pytest.raises(SamplerError, match=r"."):
                        read(healthy, S, thread)
                else:
                    read(healthy, S, thread)
        read(guard, 2 * S, thread)


def test_a_sampler_that_hangs_is_left_alone_until_it_responds(
    samplers: list[Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "RESPONSE_TIMEOUT_S", 0.01)
    thread = SamplerThread()
    for sampler in samplers:
        guard, calls, release = GuardedSampler(sampler), [], threading.Semaphore(0)

        def hang(
            now_ns: int, calls: list[int] = calls, release: threading.Semaphore = release
        ) -> list[Sample]:
            calls.append(now_ns)
            release.acquire()
            return [Sample(METRIC, "", float(now_ns))]

        monkeypatch.setattr(sampler, "sample", hang)
        for tick in (1, 2, 3):
            with pytest.raises(SamplerError, match="no response"):
                read(guard, tick, thread)
        assert wait_until(lambda calls=calls: calls) == [1]  # the thread may start late
        monkeypatch.setattr(base, "RESPONSE_TIMEOUT_S", 30)
        release.release(2)
        while True:
            try:
                samples = read(guard, 4, thread)
                break
            except SamplerError:  # the thread has not put the late response yet
                continue
        assert samples == [Sample(METRIC, "", 4.0)]
        monkeypatch.setattr(base, "RESPONSE_TIMEOUT_S", 0.01)


class Meeting:
    """Sampler that responds when others are sampled at the same time."""

    def __init__(self, group: str, barrier: threading.Barrier) -> None:
        self.group = group
        self._barrier = barrier

    def sample(self, now_ns: int) -> list[Sample]:
        self._barrier.wait()
        return [Sample(METRIC, self.group, 1.0)]


def test_samplers_that_hang_share_one_timeout() -> None:
    """One that does not respond holds up the others for a moment only."""
    barrier, thread = threading.Barrier(8), SamplerThread()
    guards = [GuardedSampler(Meeting(str(n), barrier)) for n in range(8)]
    results = dict(thread.read(guards, S))
    assert all(isinstance(results[str(n)], list) for n in range(8))
    barrier.abort()
    assert all(isinstance(result, SamplerError) for _, result in thread.read(guards, 2 * S))


def test_gpus_of_two_makers_are_two_sources() -> None:
    """One that fails beside one that works does not fail again at each tick."""
    assert NvmlSampler.group != AmdSampler.group


def test_the_run_says_from_when_to_when_a_source_failed() -> None:
    failures = SamplerFailures()
    failures.end("gpu", S)
    assert failures.notes == []
    failures.add("gpu", "no response", 40 * S)
    failures.add("gpu", "driver lost", 41 * S)
    start = "gpu could not be sampled"
    assert failures.notes == [f"{start} from 40 s after the start of the job on: driver lost"]
    failures.end("gpu", 50 * S)
    failures.end("gpu", 51 * S)
    assert failures.notes == [f"{start} from 40 s to 50 s after the start of the job: driver lost"]
    failures.add("gpu", "no response", 90 * S)
    failures.add("disk", "gone", 95 * S)
    assert failures.notes == [
        f"{start} 2 times between 40 s and 90 s after the start of the job, and still cannot be: "
        "no response",
        "disk could not be sampled from 95 s after the start of the job on: gone",
    ]
    failures.end("gpu", 100 * S)
    assert failures.notes[0] == (
        f"{start} 2 times between 40 s and 100 s after the start of the job: no response"
    )


def test_a_source_that_cannot_be_opened_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: JobTree, *, proc: str) -> Sampler:
        raise ValueError("a format that nothing knows")

    monkeypatch.setattr(machine, "CpuSampler", fail)
    samplers, missing = build_samplers(JobTree(os.getpid(), lambda: (), lambda: ()))
    assert missing["cpu"] == "cannot be read: a format that nothing knows"
    assert "memory" in {sampler.group for sampler in samplers}
