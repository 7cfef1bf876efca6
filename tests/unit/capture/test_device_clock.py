"""Device times, on a device whose clocks and queue are simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from stepscope.capture import guard
from stepscope.capture.frameworks.pytorch import copies, device_clock
from stepscope.capture.frameworks.pytorch.device_clock import DeviceClock
from stepscope.capture.frameworks.pytorch.progress import Progress

MS = 1_000_000
HOST_START = 5_000_000_000_000
DEVICE_START = 77_000_000_000


class Device:
    """One stream of work: what is launched runs in order, each piece after the one before."""

    def __init__(self, *, drift: float = 0.0) -> None:
        self.now = HOST_START
        self.busy_until = HOST_START
        self.capturing = False
        self.initialized = True
        self.event_count = 0
        self.drift = drift

    def launch(self, duration_ns: int, *, host_ns: int = 10_000) -> None:
        """Queue work; launching takes the host some time of its own."""
        self.now += host_ns
        self.busy_until = max(self.busy_until, self.now) + duration_ns

    def wait(self) -> None:
        self.now = max(self.now, self.busy_until)

    def clock(self, host_ns: int) -> float:
        """What the device's own clock shows at a moment of the host's."""
        return DEVICE_START + (host_ns - HOST_START) * (1 + self.drift)

    # The part of torch.cuda that the clock uses.

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Event(self, *, enable_timing: bool) -> Event:  # noqa: N802 - torch's own spelling
        assert enable_timing
        self.event_count += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = -1

    def record(self) -> None:
        assert not self.device.capturing, "recording would become part of the graph"
        self.at = max(self.device.now, self.device.busy_until)

    def query(self) -> bool:
        return self.at <= self.device.now

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds, in single precision as the driver gives them."""
        import numpy as np

        assert self.query()
        assert other.query()
        passed = self.device.clock(other.at) - self.device.clock(self.at)
        return float(np.float32(passed / MS))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Name, start and end of each phase that was written out."""
    found: list[tuple[str, int, int]] = []

    class Probe:
        def write(self, kind: int, name: str, start: int, end: int) -> None:
            found.append((name, start, end))

    monkeypatch.setattr(device_clock, "_probe", Probe())
    return found


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Device, DeviceClock]]:
    def make(**options: Any) -> tuple[Device, DeviceClock]:
        device = Device(**options)
        monkeypatch.setattr(device_clock, "_now", lambda: device.now)
        return device, DeviceClock(device)

    return make


def run_phase(device: Device, clock: DeviceClock, name: str, duration_ns: int) -> tuple[int, int]:
    """One phase; returns when it truly ran, in host time."""
    phase = clock.begin(name)
    assert phase is not None
    start = phase.start.at
    device.launch(duration_ns)
    clock.end(phase)
    return start, phase.end.at


def test_phases_are_laid_on_the_host_clock(simulated: Any, written: Any) -> None:
    device, clock = simulated()
    true = [run_phase(device, clock, "forward", 3 * MS), run_phase(device, clock, "backward", MS)]
    device.wait()
    clock.poll()
    assert [(s, e) for _, s, e in written] == [pytest.approx(t, abs=2_000) for t in true]
    assert [name for name, _, _ in written] == ["forward", "backward"]


def test_what_is_not_finished_stays_queued(simulated: Any, written: Any) -> None:
    """Polling waits for nothing, and takes what is ready in the order of the launches."""
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
    """Another stream's phase may be over before an earlier one of this stream."""
    device, clock = simulated()
    run_phase(device, clock, "slow stream", 50 * MS)
    fast = clock.begin("fast stream")
    clock.end(fast)
    fast.start.at, fast.end.at = device.now, device.now + MS
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


def test_a_backlog_at_the_start_is_made_good_when_the_device_idles(
    simulated: Any, written: Any
) -> None:
    """The first phase is launched into a full queue: its launch says little of its start."""
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
    """Re-anchoring keeps the resolution; bounds from both sides keep clocks together."""
    device, clock = simulated(drift=drift)
    worst = 0.0
    for _ in range(3600):
        true = run_phase(device, clock, "forward", 10 * MS)
        device.wait()
        device.now += 2_000  # the host polls soon after the device has finished
        clock.poll()
        worst = max(worst, abs(written[-1][1] - true[0]))
        device.now += 990 * MS
    assert worst < 0.5 * MS
    durations = [end - start for _, start, end in written]
    assert all(abs(d - 10 * MS) < 20_000 for d in durations)
    assert device.event_count < 10, "events are used again"


def test_nothing_is_recorded_into_a_captured_graph(simulated: Any, written: Any) -> None:
    device, clock = simulated()
    device.capturing = True
    assert clock.begin("forward") is None
    device.capturing = False
    phase = clock.begin("forward")
    device.capturing = True
    clock.end(phase)
    device.capturing = False
    device.wait()
    clock.poll()
    assert written == []
    true = run_phase(device, clock, "after", MS)
    device.wait()
    clock.poll()
    assert written == [("after", *(pytest.approx(t, abs=20_000) for t in true))]


def test_a_job_that_has_not_touched_its_device_is_not_made_to(simulated: Any) -> None:
    device, clock = simulated()
    device.initialized = False
    assert clock.begin("forward") is None
    assert device.event_count == 0


def test_a_device_that_never_finishes_costs_bounded_memory(
    simulated: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "MAX_PENDING", 10)
    device, clock = simulated()
    device.launch(10**15)
    begun = [clock.begin("forward") for _ in range(3)]
    for _ in range(100):
        phase = clock.begin("forward")
        if phase is not None:
            clock.end(phase)
    assert sum(phase is not None for phase in begun) == 3
    assert device.event_count <= 2 * 13


def test_a_device_error_switches_it_off_and_nothing_else(
    simulated: Any, recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of two devices cannot be compared, for one; steps are still to be counted."""
    monkeypatch.setattr(guard, "STRICT", False)
    device, clock = simulated()
    probe = guard.Probe("device times")
    monkeypatch.setattr(device_clock, "_probe", probe)
    monkeypatch.setattr(device_clock, "_clock", clock)
    monkeypatch.setattr(Event, "elapsed_time", _fail)
    progress = Progress()
    heard = []
    progress.on_boundary(probe.protect(clock.poll))
    progress.on_boundary(lambda: heard.append(progress.step_count))
    for _ in range(3):
        phase = device_clock.begin("forward")
        device_clock.end(phase)
        device.wait()
        progress.optimizer_stepped()
        progress.work_begins()
    assert heard == [1, 2, 3]
    assert device_clock.begin("forward") is None
    assert len(recording.drain().notes) == 1


def _fail(*_: object) -> float:
    raise RuntimeError("device-side error")


@pytest.mark.parametrize(
    ("args", "kwargs", "goes"),
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
def test_only_copies_to_a_device_are_copies(args: Any, kwargs: Any, goes: bool) -> None:
    assert copies.goes_to_device(args, kwargs) is goes


def test_types_and_other_tensors_as_targets() -> None:
    import torch

    here = torch.ones(1)
    assert not copies.goes_to_device((torch.float16,), {})
    assert not copies.goes_to_device((here,), {})
    assert not copies.goes_to_device((), {"other": here})
    assert copies.goes_to_device((torch.device("cuda"),), {})
    assert copies.goes_to_device((), {"other": torch.ones(1, device="meta")})


def test_a_tensor_that_cannot_be_described_is_copied_all_the_same() -> None:
    import torch

    sparse = torch.eye(3).to_sparse()
    assert copies._describe(sparse)[0] == "pageable"
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert copies._describe(nested)[0] == "pageable"


class TestProgress:
    def test_a_step_ends_where_the_next_work_begins(self) -> None:
        progress, heard = Progress(), []
        progress.on_boundary(lambda: heard.append(1))
        for _ in range(3):
            progress.work_begins()
            progress.optimizer_stepped()
            progress.optimizer_stepped()  # two networks, one step
        progress.work_begins()
        progress.work_begins()
        assert (progress.step_count, len(heard)) == (3, 3)

    def test_steps_that_the_script_marks_are_not_counted_twice(self) -> None:
        progress = Progress()
        for _ in range(5):
            progress.work_begins()
            progress.optimizer_stepped()
            progress.work_begins()
            progress.marked()
        assert progress.step_count == 6, "the first one was guessed before the script spoke up"

    def test_a_thread_that_only_loads_ends_no_step(self) -> None:
        import threading

        progress, heard = Progress(), []
        progress.on_boundary(lambda: heard.append(threading.get_ident()))
        progress.optimizer_stepped()
        thread = threading.Thread(target=progress.work_begins)
        thread.start()
        thread.join()
        assert heard == []
        progress.work_begins()
        assert heard == [threading.get_ident()]
