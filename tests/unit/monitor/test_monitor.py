"""A whole monitor beside a real process: sources that fail, and its budget on a large node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.budget import Budget
from stepscope.monitor import sampling
from stepscope.monitor.config import MonitorConfig, WindowSettings
from stepscope.monitor.host import node_info
from stepscope.monitor.loop import Monitor
from stepscope.monitor.samplers import JobTree, Sample, Sampler, base
from stepscope.monitor.sampling import Sampling, list_levels
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, IntervalChange, JobState, JobStatus
from stepscope.store import RunWriter, create_run, open_run
from tests.support.fake_procfs import FakeProcfs
from tests.support.staged_runs import INFO
from tests.support.waiting import wait_until

Start = Callable[[str], "subprocess.Popen[bytes]"]
IDLE = "import signal; signal.pause()"
METRIC = "memory_used_bytes"
S = 1_000_000_000
TENTH_NS = S // 10
MEASUREMENT_S = 1.7
"""Two of the longest intervals of the test."""
FAST_MONITOR = """
import sys
import msgspec
from stepscope.monitor import sampling
from stepscope.monitor.config import MonitorConfig
from stepscope.monitor.loop import Monitor

sampling.PERIOD_NS, sampling.MAX_INTERVAL_NS = 300_000_000, 800_000_000
Monitor(msgspec.json.decode(sys.argv[1], type=MonitorConfig), proc=sys.argv[2]).run()
"""


def make_config(tmp_path: Path, job_pid: int, **options: Any) -> MonitorConfig:
    """Create a run; the monitor creates the spool."""
    run = tmp_path / "run"
    create_run(str(run), msgspec.structs.replace(INFO, schema_version=SCHEMA_VERSION))
    return MonitorConfig(
        run=str(run),
        spool=str(tmp_path / "spool"),
        job_pid=job_pid,
        launcher_pid=None,
        windows=WindowSettings(enabled=False),
        **options,
    )


def read_status(run: str) -> JobStatus:
    (status,) = open_run(run).statuses().values()
    return status


@pytest.fixture(autouse=True)
def _restored_signal_handler() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


class Scripted:
    """Sampler that does what a test says at each tick."""

    def __init__(self, group: str, act: Callable[[int], object]) -> None:
        self.group = group
        self._act = act
        self._tick = 0

    def sample(self, now_ns: int) -> Iterator[Sample]:
        self._tick += 1
        self._act(self._tick)
        yield Sample(METRIC, self.group, float(self._tick))


def test_sources_that_raise_and_hang_leave_the_others_and_the_job(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(IDLE)
    release = threading.Event()

    def fail(tick: int) -> None:
        if tick in {2, 3}:
            raise KeyError("a field that no kernel writes")

    def hang(tick: int) -> None:
        if tick == 2:
            release.wait()

    def end_job(tick: int) -> None:
        if tick == 6:
            job.kill()
            job.wait()

    samplers: list[Sampler] = [
        Scripted("broken", fail),
        *(Scripted(f"hanging {n}", hang) for n in range(3)),
        Scripted("healthy", end_job),
    ]
    monkeypatch.setattr(sampling, "build_samplers", lambda *_, **__: (samplers, {}))
    monkeypatch.setattr(base, "RESPONSE_TIMEOUT_S", 1.0)
    config = make_config(tmp_path, job.pid, interval_ms=100)
    try:
        assert Monitor(config).run()
    finally:
        release.set()
    metrics = Run(open_run(config.run)).metrics
    (node,) = metrics
    assert metrics[node].series(METRIC, "healthy").tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert metrics[node].series(METRIC, "broken").tolist() == [1, 4, 5, 6, 7]
    assert metrics[node].series(METRIC, "hanging 0").tolist() == [1]
    broken, *hanging = read_status(config.run).notes
    assert broken.startswith("broken could not be sampled from ")
    assert broken.endswith("after the start of the job: 'a field that no kernel writes'")
    assert len(hanging) == 3
    assert all("after the start of the job on: no response" in note for note in hanging)


def test_a_monitor_that_replaces_another_one_samples_as_configured(
    start: Start, tmp_path: Path
) -> None:
    job = start(IDLE)
    config = make_config(tmp_path, job.pid, interval_ms=100)
    info = node_info(
        sample_interval_ns=TENTH_NS, spool=config.spool, job_pid=job.pid, metrics_missing={}
    )
    reduced = IntervalChange(t_ns=1, interval_ns=4 * TENTH_NS, reason="the budget")
    RunWriter(config.run, info.node).put_node(
        msgspec.structs.replace(info, interval_changes=[reduced])
    )
    monitor = Monitor(config)
    job.kill()
    job.wait()
    assert monitor.run()
    _, adopted = open_run(config.run).nodes()[info.node].interval_changes
    assert adopted.interval_ns == TENTH_NS
    assert adopted.reason == "the monitor was started again"


def test_a_monitor_that_replaces_another_one_knows_its_failures_and_its_level(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one cannot sample a source, and then leaves it out; the second one neither samples
    it nor forgets that."""

    def fail(tick: int) -> None:
        raise KeyError("a field that no kernel writes")

    monkeypatch.setattr(
        sampling, "build_samplers", lambda *_, **__: ([Scripted("threads", fail)], {})
    )
    job = start(IDLE)
    config = make_config(tmp_path, job.pid, interval_ms=100)
    first = Sampling(JobTree(job.pid, lambda: (), lambda: ()), config, proc="/proc")
    first.read(0, 40 * S)
    reduction = first.throttle.reduction
    *_, lowest = list_levels(TENTH_NS, {"threads"})
    first.throttle.resume(
        msgspec.structs.replace(reduction, level=lowest, max_level=lowest, reduced_ns=50 * S)
    )
    first.read(0, 51 * S)
    failed, reduced = first.notes
    assert failed.startswith("threads could not be sampled from 40 s to 51 s after the start of ")
    assert "no threads of processes" in reduced
    Path(config.spool).mkdir()
    first.store()
    monitor = Monitor(config)
    job.kill()
    job.wait()
    assert monitor.run()
    assert read_status(config.run).notes == [failed, reduced]


def test_the_time_between_two_monitors_counts_as_missed_samples(
    start: Start, tmp_path: Path
) -> None:
    """They sample at different intervals, and the second one starts 4 seconds after the last
    heartbeat of the first one: samples of the second interval are missing for that time."""
    job = start(IDLE)
    config = make_config(tmp_path, job.pid, interval_ms=100)
    info = node_info(
        sample_interval_ns=TENTH_NS, spool=config.spool, job_pid=job.pid, metrics_missing={}
    )
    last_ns = time.monotonic_ns() - 4 * S + info.epoch_offset_ns
    reduced = IntervalChange(t_ns=1, interval_ns=4 * TENTH_NS, reason="the budget")
    with RunWriter(config.run, info.node) as writer:
        writer.put_node(msgspec.structs.replace(info, interval_changes=[reduced]))
        writer.put_status(
            JobStatus(
                state=JobState.IN_PROGRESS,
                heartbeat_ns=last_ns,
                started_ns=last_ns - 9 * S,
                elapsed_ns=9 * S,
            )
        )
    monitor = Monitor(config)
    job.kill()
    job.wait()
    assert monitor.run()
    metrics = Run(open_run(config.run)).metrics[info.node]
    (first, *_) = metrics.series("missed_samples")
    assert first >= 39


@pytest.mark.extended("samples a thousand processes")
def test_a_large_node_is_sampled_within_the_budget(
    start: Start, tmp_path: Path, nvml_directory: Path
) -> None:
    """256 cores, 8 GPUs, 600 processes with 2 threads each, at ten samples a second.

    CPU time is that of the kernel's clock of the monitor; time that other processes of a busy
    machine take from it makes it smaller.
    """
    job = start(IDLE)
    (tmp_path / "proc").mkdir()
    procfs = FakeProcfs(
        tmp_path / "proc", cores=256, root_pid=job.pid, process_count=600, thread_count=2
    )
    budget = Budget(cpu_ratio=0.05)
    config = make_config(tmp_path, job.pid, interval_ms=100, budget=budget)
    environment = os.environ | {"STUB_GPUS": "8", "LD_LIBRARY_PATH": str(nvml_directory)}
    command = [sys.executable, "-c", FAST_MONITOR, msgspec.json.encode(config).decode()]
    monitor = subprocess.Popen([*command, str(procfs.path)], env=environment)
    measured = [(time.monotonic(), 0.0)]

    def keeps_the_budget() -> bool:
        procfs.advance()
        assert monitor.poll() is None
        (then_s, then_cpu_s), now_s = measured[-1], time.monotonic()
        if now_s - then_s < MEASUREMENT_S:
            return False
        measured.append((now_s, cpu_s := read_cpu_s(monitor.pid)))
        ratio = (cpu_s - then_cpu_s) / (now_s - then_s)
        is_reduced = any(node.interval_changes for node in open_run(config.run).nodes().values())
        return is_reduced and ratio <= budget.cpu_ratio

    try:
        wait_until(keeps_the_budget, timeout_s=60)
    finally:
        monitor.terminate()
        monitor.wait(60)
    reader = open_run(config.run)
    (node,) = reader.nodes().values()
    assert node.interval_changes[0].interval_ns == 2 * TENTH_NS
    assert all("its budget is 5.0%" in str(change.reason) for change in node.interval_changes)
    assert node.configured_interval_ns == TENTH_NS
    notes = read_status(config.run).notes
    (note,) = (n for n in notes if n.startswith("the monitor has recorded less since "))
    assert "instead of 100 ms" in note
    metrics = Run(reader).metrics[node.node]
    assert len(metrics.devices_of("core_busy_ratio")) == 256
    assert len(metrics.devices_of("gpu_busy_ratio")) == 8
    assert len(metrics.devices_of("process_memory_bytes")) == 600
    # Means weigh each sample by its interval; the stub's GPU n is busy for 10 (n + 1) %.
    assert metrics.mean("gpu_busy_ratio", "3") == pytest.approx(0.4)


def read_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
