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
    build_samplers,
    cpu,
    guarded,
)

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


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_any_sampler_leaves_the_others(
    samplers: list[Sampler], monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    guards = [GuardedSampler(sampler) for sampler in samplers]
    for broken, guard in zip(samplers, guards, strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(broken, "sample", FAILURES[failure], raising=True)
            for healthy in guards:
                if healthy is guard:
                    with pytest.raises(SamplerError, match=r"."):
                        healthy.read(S)
                else:
                    healthy.read(S)
        guard.read(2 * S)


def test_a_sampler_that_hangs_is_left_alone_until_it_responds(
    samplers: list[Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "RESPONSE_TIMEOUT_S", 0.01)
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
                guard.read(tick)
        assert calls == [1]
        monkeypatch.setattr(guarded, "RESPONSE_TIMEOUT_S", 30)
        release.release(2)
        while True:
            try:
                samples = guard.read(4)
                break
            except SamplerError:  # the thread has not put the late response yet
                continue
        assert samples == [Sample(METRIC, "", 4.0)]
        monkeypatch.setattr(guarded, "RESPONSE_TIMEOUT_S", 0.01)


def test_a_source_that_cannot_be_opened_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: JobTree) -> Sampler:
        raise ValueError("a format that nothing knows")

    monkeypatch.setattr(cpu, "CpuSampler", fail)
    samplers, missing = build_samplers(JobTree(os.getpid(), lambda: (), lambda: ()))
    assert missing["cpu"] == "cannot be read: a format that nothing knows"
    assert "memory" in {sampler.group for sampler in samplers}
