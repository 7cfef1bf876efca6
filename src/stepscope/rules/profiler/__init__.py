"""The built-in rules about time and resources, one file per kind of rule.

Belongs here: rules, and base classes of several of them (`bottleneck`, `step_share`). A new rule is
one class, in the file of its kind, and one entry in `RULES`; its docstring is its page.

    bottleneck             CPUBottleneck, IOBottleneck
    dataloader             Dataloader, DataloaderBottleneck
    gpu_memory             GPUMemoryIncrease, GPUMemoryLeak
    gpu_utilization        LowGPUUtilization, LoadBalancing
    host_memory            HostMemoryGrowth
    overall                OverallFrameworkMetrics, OverallSystemUsage
    step_share             CheckpointStall, CommunicationBound
    trace_recommendations  TraceRecommendations, PageableCopies

Each of the other files holds the rule of its name: `step_outlier` is StepOutlier.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.profiler.batch_size import BatchSize
from stepscope.rules.profiler.bottleneck import CPUBottleneck, IOBottleneck
from stepscope.rules.profiler.dataloader import Dataloader, DataloaderBottleneck
from stepscope.rules.profiler.framework_overhead import FrameworkOverhead
from stepscope.rules.profiler.gpu_memory import GPUMemoryIncrease, GPUMemoryLeak
from stepscope.rules.profiler.gpu_utilization import LoadBalancing, LowGPUUtilization
from stepscope.rules.profiler.host_memory import HostMemoryGrowth
from stepscope.rules.profiler.max_initialization_time import MaxInitializationTime
from stepscope.rules.profiler.overall import OverallFrameworkMetrics, OverallSystemUsage
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.rules.profiler.recompile_storm import RecompileStorm
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.rules.profiler.step_share import CheckpointStall, CommunicationBound
from stepscope.rules.profiler.step_time_regression import StepTimeRegression
from stepscope.rules.profiler.thermal_throttling import ThermalThrottling
from stepscope.rules.profiler.trace_recommendations import PageableCopies, TraceRecommendations

RULES: tuple[type[Rule[Any]], ...] = (
    CPUBottleneck,
    IOBottleneck,
    LowGPUUtilization,
    StepOutlier,
    GPUMemoryIncrease,
    BatchSize,
    MaxInitializationTime,
    LoadBalancing,
    OverallSystemUsage,
    Dataloader,
    OverallFrameworkMetrics,
    DataloaderBottleneck,
    GPUMemoryLeak,
    RankStraggler,
    CommunicationBound,
    FrameworkOverhead,
    PageableCopies,
    ThermalThrottling,
    CheckpointStall,
    StepTimeRegression,
    RecompileStorm,
    TraceRecommendations,
    HostMemoryGrowth,
)
"""Rules that Debugger has, in the order of its reports, then the others."""
PROFILER_REPORT = tuple(rule.__name__ for rule in RULES[:11])
"""Rules of Debugger's ProfilerReport, by the name of which all of them can be requested."""
RULE_METRICS = tuple(sorted({metric for rule in RULES for metric in rule.metrics}))
"""Metrics that these rules read."""
