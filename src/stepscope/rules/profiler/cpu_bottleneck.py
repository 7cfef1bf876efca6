"""Busy CPU cores while GPUs are idle."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.bottleneck import Bottleneck, BottleneckParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUBottleneckParameters(BottleneckParameters):
    """Thresholds of a CPU bottleneck."""

    cpu_threshold: Percentage = 90.0
    """A core is busy if its utilization (%) is above this."""


class CPUBottleneck(Bottleneck[CPUBottleneckParameters]):
    """Checks whether CPU cores are busy while GPUs are not.

    ## What it checks
    Each sampling tick of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, if at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job is above `cpu_threshold`. The rule fires if more than `threshold`
    percent of the snapshots are bottlenecks, on a node or on all nodes together.

    ## Why it matters
    GPUs that wait while cores are at their limit are waiting for batches: preprocessing is too
    expensive for the available cores.

    ## What to do
    Increase the number of DataLoader workers or their prefetching. Make preprocessing cheaper, do
    it once, or move it to the GPU.

    ## Where the numbers differ from SageMaker Debugger's
    Snapshots are per node. Debugger mixes nodes: if their clocks differ, each node adds snapshots
    of its own; if they agree, a busy core of one node is combined with an idle GPU of another.
    Debugger's report labels the share of all snapshots as a share of those with a low GPU; here
    both shares are reported, each under its name. Debugger looks at all cores of the machine,
    including those that the job may not use.
    """

    topic = "data loading"
    parameters_type = CPUBottleneckParameters
    core_metric = "cpu_busy_max_ratio"
    subject = "CPU core utilization"
    recommendation = (
        "Increase the number of DataLoader workers or their prefetching, or make preprocessing "
        "cheaper."
    )
    metrics = ("cpu_busy_max_ratio", "gpu_busy_ratio")
    evidence = ("system", "input-pipeline")
    plots = ("cpu_busy_max_ratio", "cpu_busy_ratio", "gpu_busy_ratio")

    @property
    def core_threshold(self) -> float:
        return self.parameters.cpu_threshold
