"""Cores are busy while GPUs are not."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.rules.parameters import Percentage
from stepscope.rules.profiler.bottleneck import Bottleneck, BottleneckParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUBottleneckParameters(BottleneckParameters):
    """When the CPU holds GPUs up."""

    cpu_threshold: Percentage = 90.0
    """A core is busy when its utilisation (%) is above this."""


class CPUBottleneck(Bottleneck[CPUBottleneckParameters]):
    """Checks whether cores are busy while GPUs are not.

    ## What it checks
    Every sampling time of a node is a snapshot, and a datapoint. It is a bottleneck, and a
    violation, when at least one GPU of the node is below `gpu_threshold` and at least one of the
    cores available to the job is above `cpu_threshold`. The rule fires when more than `threshold`
    per cent of the snapshots are bottlenecks, on a node or on all of them together.

    ## Why it matters
    GPUs that wait while cores are at their limit are waiting for batches: preprocessing is too
    heavy for the cores it has.

    ## What to do
    Give the DataLoader more workers or let it prefetch more; make preprocessing cheaper, do it
    once, or move it to the GPU.

    ## Where the numbers differ from SageMaker Debugger's
    Snapshots are those of a node; Debugger mixes nodes, so that with clocks that differ each node
    adds snapshots of its own and with clocks that agree one node's busy core meets another's idle
    GPU. Debugger's report calls the share of all snapshots a share of those with a low GPU; here
    both shares are given, each by its name. Debugger looks at all cores of the machine, also at
    those that only others may use.
    """

    parameters_type = CPUBottleneckParameters
    metric = "cpu_busy_max_ratio"
    subject = "CPU utilisation of a core"
    recommendation = (
        "Give the DataLoader more workers, let it prefetch, or make preprocessing cheaper."
    )
    evidence = ("system", "input-pipeline")
    plots = ("cpu_busy_max_ratio", "cpu_busy_ratio", "gpu_busy_ratio")

    @property
    def busy_threshold(self) -> float:
        return self.parameters.cpu_threshold
