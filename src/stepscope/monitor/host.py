"""Description of the machine, and its instance type from local sources.

Cloud instance type of this machine, from local sources. The network is not used: a profiler sends
no requests without being told to, and a metadata service may be closed to a job, or limit its
requests. The remaining sources are the firmware, and the environment of a training service's
containers.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import schema
from stepscope.monitor.samplers.base import read_bytes
from stepscope.monitor.samplers.cgroup import cores_available, memory_limit_bytes
from stepscope.monitor.samplers.gpu import gpu_facts
from stepscope.monitor.samplers.machine import memory_total_bytes
from stepscope.spool import read_recording_end

if TYPE_CHECKING:
    from stepscope.monitor.config import MonitorConfig
    from stepscope.store import RunReader

_ANCHOR_TRIES = 5


def node_name() -> str:
    """Name of this node: `STEPSCOPE_NODE` if set, else the host name."""
    return os.environ.get("STEPSCOPE_NODE") or socket.gethostname()


def node_info(
    *,
    sample_interval_ns: int,
    spool: str,
    job_pid: int | None = None,
    metrics_missing: Mapping[str, str] | None = None,
    launcher: schema.LauncherInfo | None = None,
) -> schema.NodeInfo:
    """Describe this machine, with the limits of *job_pid* (default: the current process).

    Args:
        launcher: its launcher in a run of several.
    """
    memory_bytes = memory_total_bytes()
    limit_bytes = memory_limit_bytes(pid=job_pid)
    gpus, driver_version = gpu_facts()
    monotonic_ns, epoch_ns = _clock_anchors()
    end_ns = read_recording_end(spool)
    return schema.NodeInfo(
        node=node_name() if launcher is None else launcher.node,
        host=None if launcher is None else launcher.host,
        platform=platform.platform(),
        cpu_model=_cpu_model(),
        cores_total=os.cpu_count() or 1,
        cores_available=cores_available(pid=job_pid),
        memory_bytes=memory_bytes,
        memory_limit_bytes=(
            limit_bytes if limit_bytes is not None and limit_bytes < memory_bytes else None
        ),
        sample_interval_ns=sample_interval_ns,
        spool=spool,
        clock_anchor_monotonic_ns=monotonic_ns,
        clock_anchor_epoch_ns=epoch_ns,
        recording_end_ns=None if end_ns is None else end_ns - monotonic_ns + epoch_ns,
        gpus=gpus,
        driver_version=driver_version,
        metrics_missing=dict(metrics_missing or {}),
        instance_type=read_instance_type(),
    )


def resume_node_info(
    reader: RunReader, config: MonitorConfig, metrics_missing: Mapping[str, str]
) -> schema.NodeInfo:
    """Describe this node; a monitor that replaces another one keeps its clock anchors."""
    info = node_info(
        sample_interval_ns=config.interval_ms * 1_000_000,
        spool=config.spool,
        job_pid=config.job_pid,
        metrics_missing=metrics_missing,
        launcher=config.launcher,
    )
    return reader.nodes().get(info.node, info)


def _clock_anchors() -> tuple[int, int]:
    """Read the monotonic clock and the epoch time at the same moment, in nanoseconds.

    The epoch is read between two readings of the monotonic clock; the closest of several pairs is
    returned, as the monitor may lose its core in between.
    """
    best: tuple[int, int, int] | None = None
    for _ in range(_ANCHOR_TRIES):
        earlier_ns = time.monotonic_ns()
        epoch_ns = time.time_ns()
        later_ns = time.monotonic_ns()
        anchor = (later_ns - earlier_ns, (earlier_ns + later_ns) // 2, epoch_ns)
        best = anchor if best is None else min(best, anchor)
    assert best is not None  # noqa: S101 - the loop ran
    return best[1], best[2]


def _cpu_model(path: str = "/proc/cpuinfo") -> str:
    """Read the name of the processor; on ARM, whose kernel does not report it, the architecture."""
    try:
        lines = read_bytes(path).decode(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model", "cpu model"} and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


DMI = Path("/sys/class/dmi/id")
SERVICE_VARIABLE = "SM_CURRENT_INSTANCE_TYPE"
"""Variable in SageMaker's training containers, such as ml.p3.2xlarge."""
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def read_instance_type(dmi: Path = DMI, environment: Mapping[str, str] = os.environ) -> str | None:
    """Read the cloud instance type; None if no source has it.

    It is the product name of Amazon's Nitro machines. Older ones, and those of Google and Azure,
    name only the provider.
    """
    instance_type = environment.get(SERVICE_VARIABLE, "").strip()
    if instance_type:
        return instance_type
    if _read(dmi / "sys_vendor") == "Amazon EC2":
        product = _read(dmi / "product_name")
        return product if _EC2_TYPE.fullmatch(product) else None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
