"""Cores wait for storage while GPUs wait for data."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.bottleneck import Bottleneck, BottleneckParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class IOBottleneckParameters(BottleneckParameters):
    """When storage holds GPUs up."""

    io_threshold: Percentage = 50.0
    """A core waits for storage when its share of I/O wait (%) is above this."""


class IOBottleneck(Bottleneck[IOBottleneckParameters]):
    """Checks whether cores wait for storage while GPUs have nothing to do.

    ## What it checks
    Every sampling time of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, when at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job spent more than `io_threshold` per cent waiting for disk requests.
    The rule fires when more than `threshold` per cent of the snapshots are bottlenecks, on a node
    or on all of them together.

    ## Why it matters
    GPUs that wait while cores wait for storage are waiting for data to arrive from it.

    ## What to do
    Prefetch, keep data in a binary format that reads in large pieces, or put it on faster storage.

    ## Where the numbers differ from SageMaker Debugger's
    As for CPUBottleneck: snapshots are those of a node, and both shares are given. The default of
    `gpu_threshold` is that of Debugger's code and reports, 10; its documentation says 70.
    """

    parameters_type = IOBottleneckParameters
    metric = "cpu_iowait_max_ratio"
    subject = "I/O wait of a core"
    recommendation = "Prefetch data, use a binary file format, or use faster storage."
    evidence = ("system", "input-pipeline")
    plots = ("cpu_iowait_max_ratio", "cpu_iowait_ratio", "gpu_busy_ratio")

    @property
    def busy_threshold(self) -> float:
        return self.parameters.io_threshold
