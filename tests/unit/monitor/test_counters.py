"""Counters of the processor: software events of the real kernel, and a kernel set by a test."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from stepscope.monitor.samplers import Unavailable, counters
from stepscope.monitor.samplers.counters import (
    CYCLES,
    EVENTS,
    CounterSampler,
    Event,
    explain_refusal,
    open_counter,
)
from stepscope.monitor.samplers.processes import JobTree
from stepscope.schema.tables.metrics import METRIC_TYPES
from tests.support.command import run_command
from tests.support.waiting import wait_until

S = 1_000_000_000
TASK_CLOCK = Event(1, 1)
"""Nanoseconds of CPU time."""
PAGE_FAULTS = Event(1, 2)

BURNING = """
import hashlib, os, sys, threading, time
data = bytes(1 << 20)
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(data).digest()
sys.stdin.readline()
before = time.process_time()
burn(0.1)
threads = [threading.Thread(target=burn, args=(0.1,)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if os.fork() == 0:
    burn(0.4)
    os._exit(0)
os.wait()
print(time.process_time() - before, flush=True)
sys.stdin.readline()
"""
PAGES = 4000
MAX_READS = 16
"""Limit of the samples between two settings of a fake counter."""
TOUCHING = f"""
import mmap, sys
memory = mmap.mmap(-1, {PAGES * mmap.PAGESIZE}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
sys.stdin.readline()
for page in range({PAGES}):
    memory[page * {mmap.PAGESIZE}] = 1
print(flush=True)
sys.stdin.readline()
"""


def no_pids() -> Iterable[int]:
    return ()


def refusal_of(event: Event) -> OSError | None:
    """Return the error with which this kernel refuses to count an event; None if it counts."""
    try:
        os.close(open_counter(event, 0))
    except OSError as error:
        return error
    return None


def by_metric(sampler: CounterSampler, now_ns: int, pid: int) -> dict[str, float]:
    samples = [s for s in sampler.sample(now_ns) if s.device == str(pid)]
    values = {sample.metric: sample.value for sample in samples}
    assert len(values) == len(samples)
    assert values.keys() <= METRIC_TYPES.keys()
    return values


def answer(process: subprocess.Popen[bytes]) -> str:
    """Let a waiting process continue, and return the line that it prints then."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process.stdout.readline().decode()


@pytest.fixture
def software_events() -> None:
    if refusal := refusal_of(TASK_CLOCK):
        pytest.skip(explain_refusal(refusal))


def wait_for_readline(pid: int) -> None:
    wait_until(lambda: "pipe_read" in Path(f"/proc/{pid}/wchan").read_text(), timeout_s=10)


def test_threads_that_start_later_count_and_forked_processes_do_not(
    start: Callable[[str], subprocess.Popen[bytes]], software_events: None
) -> None:
    root = start(BURNING)
    wait_for_readline(root.pid)
    sampler = CounterSampler(JobTree(root.pid, no_pids, no_pids), {"cycles": TASK_CLOCK})
    assert by_metric(sampler, 0, root.pid) == {}
    cpu_s = float(answer(root))
    values = by_metric(sampler, 2 * S, root.pid)
    assert values == {"process_cycles_per_s": pytest.approx(cpu_s * S / 2, rel=0.05)}


def test_events_of_one_tick_are_related_to_instructions(
    start: Callable[[str], subprocess.Popen[bytes]], software_events: None
) -> None:
    root = start(TOUCHING)
    wait_for_readline(root.pid)
    events = {"cycles": TASK_CLOCK, "instructions": TASK_CLOCK, "cache_misses": PAGE_FAULTS}
    sampler = CounterSampler(JobTree(root.pid, no_pids, no_pids), events)
    by_metric(sampler, 0, root.pid)
    answer(root)
    values = by_metric(sampler, S, root.pid)
    assert PAGES <= values["process_cache_misses_per_s"] < 1.1 * PAGES
    assert values["process_instructions_per_cycle"] == pytest.approx(1, rel=0.01)
    per_1000 = 1000 * values["process_cache_misses_per_s"] / values["process_instructions_per_s"]
    assert values["process_cache_misses_per_1000_instructions"] == pytest.approx(per_1000)


class FakeKernel:
    """Kernel whose counters are set by a test; its descriptors are real files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counters: dict[tuple[Event, int], int] = {}
        self.refusals: dict[tuple[Event, int] | Event | int, int] = {}
        """Error by event, thread, or both."""
        monkeypatch.setattr(counters, "_call_kernel", self._open)

    def _open(self, number: int, attributes: bytes, thread: int, *rest: int) -> int:
        type_, _, config = struct.unpack_from("=IIQ", attributes)
        event = Event(type_, config)
        for key in ((event, thread), event, thread):
            if key in self.refusals:
                ctypes.set_errno(self.refusals[key])
                return -1
        assert rest == (-1, -1, 8)
        descriptor = self.counters[event, thread] = os.memfd_create("counter")
        self.set(event, thread, 0, 0, 0)
        return descriptor

    def set(self, event: Event, thread: int, *reading: float) -> None:
        """Set value, time enabled and time running of a counter."""
        descriptor = self.counters[event, thread]
        # Several times, because a read of a file moves on and one of a counter does not.
        os.pwrite(descriptor, MAX_READS * struct.pack("=QQQ", *map(int, reading)), 0)
        os.lseek(descriptor, 0, os.SEEK_SET)

    def set_all(self, thread: int, value: float, enabled: float, running: float) -> None:
        for event in EVENTS.values():
            self.set(event, thread, value, enabled, running)

    @property
    def open_count(self) -> int:
        """Number of counters of threads that are open."""
        targets = []
        for link in Path("/proc/self/fd").iterdir():
            try:
                targets.append(str(link.readlink()))
            except FileNotFoundError:  # that of the directory itself
                continue
        return sum("memfd:counter" in target for target in targets)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    fake = FakeKernel(monkeypatch)
    yield fake
    for descriptor in fake.counters.values():
        try:
            os.close(descriptor)
        except OSError:
            pass


class FakeJob:
    """Processes in a fake procfs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "self").mkdir()
        self.start(1)

    def start(self, pid: int, *, threads: Iterable[int] = (), start_ticks: int = 1 << 60) -> None:
        for thread in (pid, *threads):
            (self.path / str(pid) / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
        fields = ["0" if pid == 1 else "1", *["0"] * 17, str(start_ticks), "0", "0"]
        (self.path / str(pid) / "stat").write_text(f"{pid} (python) R {' '.join(fields)}\n")
        children = " ".join(p.name for p in self.path.iterdir() if p.name not in {"1", "self"})
        (self.path / "1" / "task" / "1" / "children").write_text(children)

    def end(self, pid: int) -> None:
        (self.path / str(pid) / "stat").unlink()

    def sampler(self) -> CounterSampler:
        proc = str(self.path)
        return CounterSampler(JobTree(1, no_pids, no_pids, proc=proc), proc=proc)


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path)


def test_counters_of_all_threads_add_up(kernel: FakeKernel, job: FakeJob) -> None:
    job.start(1, threads=[2, 3])
    sampler = job.sampler()
    assert by_metric(sampler, 0, 1) == {}
    for thread, factor in ((1, 1), (2, 2), (3, 3)):
        kernel.set(EVENTS["cycles"], thread, 4000 * factor, 9, 9)
        kernel.set(EVENTS["instructions"], thread, 6000 * factor, 9, 9)
        kernel.set(EVENTS["cache_misses"], thread, 60 * factor, 9, 9)
        kernel.set(EVENTS["itlb_misses"], thread, 6 * factor, 9, 9)
    assert by_metric(sampler, 2 * S, 1) == {
        "process_cycles_per_s": 6 * 4000 / 2,
        "process_instructions_per_s": 6 * 6000 / 2,
        "process_cache_misses_per_s": 6 * 60 / 2,
        "process_itlb_misses_per_s": 6 * 6 / 2,
        "process_instructions_per_cycle": 1.5,
        "process_cache_misses_per_1000_instructions": 10,
        "process_itlb_misses_per_1000_instructions": 1,
    }


def test_events_that_take_turns_are_scaled_by_their_time(kernel: FakeKernel, job: FakeJob) -> None:
    sampler = job.sampler()
    by_metric(sampler, 0, 1)
    kernel.set_all(1, 1000, 100, 50)
    assert by_metric(sampler, S, 1)["process_cycles_per_s"] == 1000 * 100 / 50
    # The next interval has shares of its own: 300 events in 10 of 30 ns.
    kernel.set_all(1, 1300, 130, 60)
    assert by_metric(sampler, 2 * S, 1)["process_cycles_per_s"] == 300 * 30 / 10


def test_a_counter_that_never_ran_is_missing_and_an_idle_process_has_no_events(
    kernel: FakeKernel, job: FakeJob
) -> None:
    sampler = job.sampler()
    by_metric(sampler, 0, 1)
    kernel.set_all(1, 1000, 100, 100)
    kernel.set(EVENTS["cycles"], 1, 0, 100, 0)
    values = by_metric(sampler, S, 1)
    assert "process_cycles_per_s" not in values
    assert "process_instructions_per_cycle" not in values
    assert values["process_instructions_per_s"] == 1000
    idle = by_metric(sampler, 2 * S, 1)
    assert idle == {f"process_{name}_per_s": 0 for name in EVENTS}


def test_counters_of_ended_processes_are_closed_and_of_their_successors_start_from_zero(
    kernel: FakeKernel, job: FakeJob
) -> None:
    before = kernel.open_count
    job.start(5, threads=[6])
    sampler = job.sampler()
    by_metric(sampler, 0, 5)
    assert kernel.open_count - before == 3 * len(EVENTS)
    kernel.set_all(5, 1000, 100, 100)
    job.start(5, start_ticks=(1 << 60) + 1)
    assert by_metric(sampler, S, 5) == {}
    kernel.set_all(5, 70, 10, 10)
    assert by_metric(sampler, 2 * S, 5)["process_cycles_per_s"] == 70
    job.end(5)
    by_metric(sampler, 3 * S, 5)
    assert kernel.open_count - before == len(EVENTS)


def test_an_event_that_the_processor_lacks_is_missing(kernel: FakeKernel, job: FakeJob) -> None:
    kernel.refusals[EVENTS["itlb_misses"]] = errno.ENOENT
    sampler = job.sampler()
    assert sampler.missing == {
        "process_itlb_misses": "the processor cannot count them: No such file or directory"
    }
    by_metric(sampler, 0, 1)
    kernel.set(EVENTS["cycles"], 1, 10, 1, 1)
    values = by_metric(sampler, S, 1)
    assert values["process_cycles_per_s"] == 10
    assert "process_itlb_misses_per_s" not in values


def test_a_process_that_cannot_be_counted_is_reported_once_after_the_others(
    kernel: FakeKernel, job: FakeJob
) -> None:
    job.start(5)
    job.start(7)
    kernel.refusals[5] = errno.EACCES
    sampler = job.sampler()
    with pytest.raises(OSError, match="process 5: Permission denied"):
        list(sampler.sample(0))
    kernel.set_all(7, 10, 1, 1)
    assert {sample.device for sample in sampler.sample(S)} == {"1", "7"}


def test_a_thread_that_ends_meanwhile_is_no_problem(kernel: FakeKernel, job: FakeJob) -> None:
    kernel.refusals[5] = errno.ESRCH
    job.start(5)
    before = kernel.open_count
    sampler = job.sampler()
    assert list(sampler.sample(0)) == []
    assert kernel.open_count - before == len(EVENTS)  # of process 1


def test_counters_leave_half_of_the_open_files_to_the_monitor(
    kernel: FakeKernel, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters.resource, "getrlimit", lambda _: (20, 20))
    job.start(5, threads=[6])
    sampler = job.sampler()
    sentence = "process 5: its 2 threads need 8 open files; raise `ulimit -n`"
    with pytest.raises(OSError, match=sentence) as refused:
        list(sampler.sample(0))
    assert refused.value.errno == errno.EMFILE


NO_PMU = "performance monitoring unit (PMU) is not visible in this virtual machine; enable it in"
REFUSALS = [
    (errno.ENOENT, "2", "0", "hypervisor", NO_PMU),
    (errno.ENODEV, "2", "0", "fpu", "(PMU) is not visible; enable it in the firmware or"),
    (errno.EACCES, "4", "0", "fpu", "kernel.perf_event_paranoid is 4, which forbids counters; run"),
    (errno.EPERM, "4", "2", "fpu", "seccomp filter blocks perf_event_open; start the container"),
    (errno.ENOSYS, "2", "2", "fpu", "seccomp filter blocks perf_event_open; start the container"),
    (errno.ENOSYS, "2", "0", "fpu", "no perf_event_open; use one with CONFIG_PERF_EVENTS=y"),
    # No cause is known: SELinux, for example.
    (errno.EACCES, "2", "0", "fpu", "perf_event_open failed: Permission denied"),
    (errno.EACCES, "-1", "2", "fpu", "perf_event_open failed: Permission denied"),
]


@pytest.mark.parametrize(("code", "level", "filtered", "flag", "sentence"), REFUSALS)
def test_a_refusal_names_the_setting(
    code: int, level: str, filtered: str, flag: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"Name:\tpython\nSeccomp:\t{filtered}\n")
    (tmp_path / "cpuinfo").write_text(
        f"processor\t: 0\nflags\t\t: fpu {flag} vme\nbugs\t: hypervisor\n"
    )
    (tmp_path / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "sys" / "kernel" / "perf_event_paranoid").write_text(f"{level}\n")
    text = explain_refusal(OSError(code, os.strerror(code)), proc=str(tmp_path))
    assert sentence in text
    assert "\n" not in text


def test_an_old_kernel_is_told_from_an_unknown_event(
    kernel: FakeKernel, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_new = counters._call_kernel

    def open_old(number: int, attributes: bytes, *rest: int) -> int:
        *_, flags = struct.unpack_from("=IIQQQQQ", attributes)
        if flags >> 35:
            ctypes.set_errno(errno.EINVAL)
            return -1
        return open_new(number, attributes, *rest)

    monkeypatch.setattr(counters, "_call_kernel", open_old)
    with pytest.raises(Unavailable, match=r"need Linux 5\.13 or later"):
        job.sampler()


def doctor() -> dict[str, tuple[bool, str]]:
    done = run_command(Path.cwd(), "doctor", "--json")
    checks = json.loads(done.stdout)["checks"]
    return {check["name"]: (check["available"], check["detail"]) for check in checks}


@pytest.mark.seed("SMP-25")
def test_doctor_explains_the_refusal_of_this_kernel() -> None:
    refusal = refusal_of(CYCLES)
    expected = (True, "sampled") if refusal is None else (False, explain_refusal(refusal))
    assert doctor()["cpu_counters metrics"] == expected
    if refusal is not None and refusal.errno == errno.ENOENT:
        assert "PMU" in expected[1]


FILTERED_DOCTOR = """
import ctypes, runpy, struct, sys
LOAD_NUMBER, IF_EQUAL, RETURN = (0x20, 0, 0, 0), 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
program = [LOAD_NUMBER, (IF_EQUAL, 0, 1, {number}), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
header = struct.pack("@HP", len(program), ctypes.addressof(code))
library = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
assert library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert library.prctl(SECCOMP, FILTER, header, 0, 0) == 0
sys.argv = ["stepscope", "doctor", "--json"]
runpy.run_module("stepscope", run_name="__main__")
"""


@pytest.mark.seed("SMP-25")
def test_doctor_names_the_filter_of_a_container() -> None:
    number = counters._SYSCALL_NUMBERS[platform.machine()]
    script = FILTERED_DOCTOR.format(number=number)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the container's seccomp filter blocks perf_event_open" in done.stdout
