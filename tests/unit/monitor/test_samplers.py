"""All samplers together on the real node, and the description of the node."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path

import pytest

from stepscope.monitor.host import node_info, node_name
from stepscope.monitor.samplers import Unavailable, build_samplers, gpu, read_bytes
from stepscope.monitor.samplers.processes import JobTree
from stepscope.schema.tables.metrics import METRIC_TYPES
from tests.support.waiting import wait_until

S = 1_000_000_000


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """Disable NVML, which other tests cover with a stub."""
    reason = "no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded"

    def refuse() -> None:
        raise Unavailable(reason)

    monkeypatch.setattr(gpu, "_open_nvml", refuse)
    monkeypatch.setattr(gpu, "_open_amdsmi", lambda: None)
    return reason


def cores_of_stat() -> bytes:
    return read_bytes("/proc/stat").partition(b"intr")[0]


def test_every_sample_is_a_metric_of_the_schema_once_per_device(no_gpu: str) -> None:
    job = JobTree(os.getpid(), lambda: (), lambda: ())
    samplers, missing = build_samplers(job)
    assert missing["gpu"] == no_gpu
    groups = [sampler.group for sampler in samplers]
    assert {"cpu", "memory", "processes"} <= set(groups)
    assert set(groups).isdisjoint(missing)
    assert all(reason for reason in missing.values())
    metrics: set[str] = set()
    ticks = count()

    def sample() -> set[str]:
        now_ns = next(ticks) * S
        samples = [sample for sampler in samplers for sample in sampler.sample(now_ns)]
        keys = [(sample.metric, sample.device) for sample in samples]
        assert len(keys) == len(set(keys))
        metrics.update(metric for metric, _ in keys)
        return metrics

    # Rates need a change of the kernel's counters between two samples.
    expected = {"cpu_busy_ratio", "job_cpu_cores", "memory_used_bytes", "process_cpu_cores"}
    wait_until(lambda: expected <= sample())
    assert metrics <= METRIC_TYPES.keys()


def test_a_missing_job_is_not_an_error(no_gpu: str) -> None:
    pid = 1 << 22  # above the largest pid
    samplers, _ = build_samplers(JobTree(pid, lambda: [pid], lambda: [pid]))
    for now_ns in (0, S):
        metrics = {sample.metric for sampler in samplers for sample in sampler.sample(now_ns)}
    assert "memory_used_bytes" in metrics
    assert "process_memory_bytes" not in metrics


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    text = os.urandom(300_000)
    (tmp_path / "long").write_bytes(text)
    assert read_bytes(str(tmp_path / "long")) == text


@pytest.mark.seed("SMP-07")
def test_node_info_describes_this_node(no_gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_NODE", "node-7")
    info = node_info(sample_interval_ns=S, spool="spool", metrics_missing={"gpu": no_gpu})
    assert info.node == "node-7"
    assert info.cores_total == os.cpu_count()
    assert 0 < info.cores_available <= info.cores_total
    assert info.memory_bytes > 1 << 26
    assert info.memory_limit_bytes is None or info.memory_limit_bytes < info.memory_bytes
    assert info.cpu_model
    assert info.gpus == []
    assert info.metrics_missing == {"gpu": no_gpu}
    offset_ns = info.clock_anchor_epoch_ns - info.clock_anchor_monotonic_ns
    assert abs(time.time_ns() - (time.monotonic_ns() + offset_ns)) < 50_000_000


def test_the_node_is_named_after_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPSCOPE_NODE", raising=False)
    assert node_name() == os.uname().nodename
