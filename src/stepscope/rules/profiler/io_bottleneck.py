"""CPU cores in I/O wait while GPUs are idle."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.bottleneck import Bottleneck, BottleneckParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class IOBottleneckParameters(BottleneckParameters):
    """Thresholds of an I/O bottleneck."""

    io_threshold: Percentage = 50.0
    """A core waits for storage if its I/O wait (%) is above this."""


class IOBottleneck(Bottleneck[IOBottleneckParameters]):
    """Checks whether CPU cores wait for storage while GPUs are idle.

    ## What it checks
    Each sampling tick of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, if at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job spent more than `io_threshold` percent of the time waiting for disk
    requests. The rule fires if more than `threshold` percent of the snapshots are bottlenecks, on
    a node or on all nodes together.

    ## Why it matters
    GPUs that wait while cores wait for storage are waiting for data from that storage.

    ## What to do
    Prefetch, store data in a binary format that is read in large blocks, or use faster storage.

    ## Where the numbers differ from SageMaker Debugger's
    As for CPUBottleneck: snapshots are per node, and both shares are reported. The default of
    `gpu_threshold` is that of Debugger's code and reports, 10; its documentation says 70.
    """

    topic = "data loading"
    parameters_type = IOBottleneckParameters
    core_metric = "cpu_iowait_max_ratio"
    subject = "CPU core I/O wait"
    recommendation = "Prefetch data, use a binary file format, or use faster storage."
    metrics = ("cpu_iowait_max_ratio", "gpu_busy_ratio")
    evidence = ("system", "input-pipeline")
    plots = ("cpu_iowait_max_ratio", "cpu_iowait_ratio", "gpu_busy_ratio")

    @property
    def core_threshold(self) -> float:
        return self.parameters.io_threshold
