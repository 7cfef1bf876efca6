"""Device times, on a simulated device with a clock and a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from stepscope.capture import guard
from stepscope.capture.frameworks.progress import Progress
from stepscope.capture.frameworks.pytorch import device_clock
from stepscope.capture.frameworks.pytorch.device_clock import DeviceClock

MS = 1_000_000
HOST_START = 5_000_000_000_000
DEVICE_START = 77_000_000_000


class Device:
    """A stream that executes launched work in order."""

    def __init__(self, *, drift: float = 0.0) -> None:
        self.now = HOST_START
        self.busy_until = HOST_START
        self.capturing = False
        self.initialized = True
        self.event_count = 0
        self.drift = drift

    def launch(self, duration_ns: int, *, host_ns: int = 10_000) -> None:
        """Queue work; the launch takes *host_ns* of host time."""
        self.now += host_ns
        self.busy_until = max(self.busy_until, self.now) + duration_ns

    def wait(self) -> None:
        self.now = max(self.now, self.busy_until)

    def clock(self, host_ns: int) -> float:
        """Return the time of the device clock at a time of the host clock."""
        return DEVICE_START + (host_ns - HOST_START) * (1 + self.drift)

    # The part of torch.cuda that the clock uses.

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - named as in torch
        assert enable_timing
        self.event_count += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.time_ns = -1

    def record(self) -> None:
        assert not self.device.capturing, "recording would become part of the graph"
        self.time_ns = max(self.device.now, self.device.busy_until)

    def query(self) -> bool:
        return self.time_ns <= self.device.now

    def elapsed_time(self, end: Event) -> float:
        """Return milliseconds in single precision, like the driver."""
        import numpy as np

        assert self.query()
        assert end.query()
        elapsed = self.device.clock(end.time_ns) - self.device.clock(self.time_ns)
        return float(np.float32(elapsed / MS))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Name, start and end of each written phase."""
    phases: list[tuple[str, int, int]] = []

    class Probe:
        def write(self, kind: int, name: str, start: int, end: int) -> None:
            phases.append((name, start, end))

    monkeypatch.setattr(device_clock, "_probe", Probe())
    return phases


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Device, DeviceClock]]:
    def make(**options: Any) -> tuple[Device, DeviceClock]:
        device = Device(**options)
        monkeypatch.setattr(device_clock, "_now", lambda: device.now)
        return device, DeviceClock(device)

    return make


def run_phase(device: Device, clock: DeviceClock, name: str, duration_ns: int) -> tuple[int, int]:
    """Run one phase; returns its true start and end in host time."""
    phase = clock.start(name)
    assert phase is not None
    start = phase.start.time_ns
    device.launch(duration_ns)
    clock.end(phase)
    return start, phase.end.time_ns


def test_phases_are_converted_to_the_host_clock(simulated: Any, written: Any) -> None:
    device, clock = simulated()
    expected = [
        run_phase(device, clock, "forward", 3 * MS),
        run_phase(device, clock, "backward", MS),
    ]
    device.wait()
    clock.poll()
    assert [(s, e) for _, s, e in written] == [pytest.approx(t, abs=2_000) for t in expected]
    assert [name for name, _, _ in written] == ["forward", "backward"]


def test_unfinished_phases_stay_queued(simulated: Any, written: Any) -> None:
    """Polling does not wait, and reads completed phases in launch order."""
    device, clock = simulated()
    run_phase(device, clock, "first", 10 * MS)
    run_phase(device, clock, "second", 10 * MS)
    clock.poll()
    assert written == []
    device.now += 11 * MS
    clock.poll()
    assert [name for name, _, _ in written] == ["first"]
    device.wait()
    clock.poll()
    assert [name for name, _, _ in written] == ["first", "second"]


def test_completion_out_of_order_delays_but_loses_nothing(simulated: Any, written: Any) -> None:
    """A phase on another stream may end before an earlier one on this stream."""
    device, clock = simulated()
    run_phase(device, clock, "slow stream", 50 * MS)
    fast = clock.start("fast stream")
    clock.end(fast)
    fast.start.time_ns, fast.end.time_ns = device.now, device.now + MS
    device.now += 5 * MS
    clock.poll()
    assert written == []
    device.wait()
    clock.poll()
    assert {name: end - start for name, start, end in written} == {
        "slow stream": pytest.approx(50 * MS, abs=20_000),
        "fast stream": pytest.approx(MS, abs=1_000),
    }
    (_, slow_start, slow_end), (_, fast_start, fast_end) = written
    assert slow_start < fast_start < fast_end < slow_end


def test_a_backlog_at_the_start_is_corrected_when_the_device_idles(
    simulated: Any, written: Any
) -> None:
    """The first phase is launched into a full queue: it starts long after its launch."""
    device, clock = simulated()
    device.launch(500 * MS)
    first = run_phase(device, clock, "first", MS)
    device.wait()
    device.now += 20 * MS
    second = run_phase(device, clock, "second", MS)
    device.wait()
    clock.poll()
    assert written[0][1] <= first[0]
    assert written[1][1:] == pytest.approx(second, abs=2_000)


@pytest.mark.parametrize("drift", [0.0, 30e-6, -30e-6])
def test_an_hour_later_it_is_still_on_the_host_clock(
    simulated: Any, written: Any, drift: float
) -> None:
    """Re-anchoring preserves the resolution; lower and upper bounds limit the clock drift."""
    device, clock = simulated(drift=drift)
    worst = 0.0
    for _ in range(3600):
        expected = run_phase(device, clock, "forward", 10 * MS)
        device.wait()
        device.now += 2_000  # the host polls soon after the device has finished
        clock.poll()
        worst = max(worst, abs(written[-1][1] - expected[0]))
        device.now += 990 * MS
    assert worst < 0.5 * MS
    durations = [end - start for _, start, end in written]
    assert all(abs(d - 10 * MS) < 20_000 for d in durations)
    assert device.event_count < 10, "events are used again"


def test_nothing_is_recorded_into_a_captured_graph(simulated: Any, written: Any) -> None:
    device, clock = simulated()
    device.capturing = True
    assert clock.start("forward") is None
    device.capturing = False
    phase = clock.start("forward")
    device.capturing = True
    clock.end(phase)
    device.capturing = False
    device.wait()
    clock.poll()
    assert written == []
    expected = run_phase(device, clock, "after", MS)
    device.wait()
    clock.poll()
    assert written == [("after", *(pytest.approx(t, abs=20_000) for t in expected))]


def test_the_clock_does_not_initialize_the_device(simulated: Any) -> None:
    device, clock = simulated()
    device.initialized = False
    assert clock.start("forward") is None
    assert device.event_count == 0


def test_a_device_that_never_finishes_costs_bounded_memory(
    simulated: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "MAX_PENDING", 10)
    device, clock = simulated()
    device.launch(10**15)
    phases = [clock.start("forward") for _ in range(3)]
    for _ in range(100):
        phase = clock.start("forward")
        if phase is not None:
            clock.end(phase)
    assert sum(phase is not None for phase in phases) == 3
    assert device.event_count <= 2 * 13


def test_a_device_error_disables_only_the_clock(
    simulated: Any, recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing events of two devices is such an error; steps are still counted."""
    monkeypatch.setattr(guard, "STRICT", False)
    device, clock = simulated()
    probe = guard.Probe("device times")
    monkeypatch.setattr(device_clock, "_probe", probe)
    monkeypatch.setattr(device_clock, "clock", clock)
    monkeypatch.setattr(Event, "elapsed_time", _fail)
    progress = Progress()
    steps = []
    progress.on_boundary(probe.protect(clock.poll))
    progress.on_boundary(lambda: steps.append(progress.step_count))
    for _ in range(3):
        phase = device_clock.start("forward")
        if phase is not None:
            device_clock.end(phase)
        device.wait()
        progress.notify_optimizer_step()
        progress.notify_work_start()
    assert steps == [1, 2, 3]
    assert device_clock.start("forward") is None
    assert len(recording.drain().notes) == 1


def _fail(*_: object) -> float:
    raise RuntimeError("device-side error")


@pytest.mark.parametrize(
    ("args", "kwargs", "is_copy"),
    [
        (("cuda",), {}, True),
        (("cuda:1",), {}, True),
        ((0,), {}, True),
        ((), {"device": "cuda"}, True),
        (("xpu",), {}, True),
        (("cpu",), {}, False),
        (("meta",), {}, False),
        ((), {}, False),
        ((), {"dtype": "float16"}, False),
        ((), {"non_blocking": True}, False),
        ((None,), {}, False),
        ((), {"device": None}, False),
    ],
)
def test_only_copies_to_a_device_are_copies(args: Any, kwargs: Any, is_copy: bool) -> None:
    assert device_clock.is_copy_to_device(args, kwargs) is is_copy


def test_types_and_other_tensors_as_targets() -> None:
    import torch

    host_tensor = torch.ones(1)
    assert not device_clock.is_copy_to_device((torch.float16,), {})
    assert not device_clock.is_copy_to_device((host_tensor,), {})
    assert not device_clock.is_copy_to_device((), {"other": host_tensor})
    assert device_clock.is_copy_to_device((torch.device("cuda"),), {})
    assert device_clock.is_copy_to_device((), {"other": torch.ones(1, device="meta")})


def test_tensors_without_plain_storage_are_copied() -> None:
    import torch

    sparse = torch.eye(3).to_sparse()
    assert device_clock._describe(sparse)[0] == "pageable"
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert device_clock._describe(nested)[0] == "pageable"


class TestProgress:
    def test_a_step_ends_at_the_start_of_the_next_work(self) -> None:
        progress, calls = Progress(), []
        progress.on_boundary(lambda: calls.append(1))
        for _ in range(3):
            progress.notify_work_start()
            progress.notify_optimizer_step()
            progress.notify_optimizer_step()  # two networks, one step
        progress.notify_work_start()
        progress.notify_work_start()
        assert (progress.step_count, len(calls)) == (3, 3)

    def test_steps_that_the_script_marks_are_not_counted_twice(self) -> None:
        progress = Progress()
        for _ in range(5):
            progress.notify_work_start()
            progress.notify_optimizer_step()
            progress.notify_work_start()
            progress.notify_mark()
        assert progress.step_count == 6, "the first step was detected before the first mark"

    def test_a_thread_that_only_loads_ends_no_step(self) -> None:
        import threading

        progress, threads = Progress(), []
        progress.on_boundary(lambda: threads.append(threading.get_ident()))
        progress.notify_optimizer_step()
        thread = threading.Thread(target=progress.notify_work_start)
        thread.start()
        thread.join()
        assert threads == []
        progress.notify_work_start()
        assert threads == [threading.get_ident()]
