"""The built-in rules about time and resources, one per file.

Belongs here: rules, and base classes of several of them (`bottleneck`, `step_share`). A new rule is
one file and one entry in `RULES`; its docstring is its page.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.profiler.batch_size import BatchSize
from stepscope.rules.profiler.checkpoint_stall import CheckpointStall
from stepscope.rules.profiler.communication_bound import CommunicationBound
from stepscope.rules.profiler.cpu_bottleneck import CPUBottleneck
from stepscope.rules.profiler.dataloader import Dataloader
from stepscope.rules.profiler.dataloader_bottleneck import DataloaderBottleneck
from stepscope.rules.profiler.framework_overhead import FrameworkOverhead
from stepscope.rules.profiler.gpu_memory_increase import GPUMemoryIncrease
from stepscope.rules.profiler.gpu_memory_leak import GPUMemoryLeak
from stepscope.rules.profiler.io_bottleneck import IOBottleneck
from stepscope.rules.profiler.load_balancing import LoadBalancing
from stepscope.rules.profiler.low_gpu_utilization import LowGPUUtilization
from stepscope.rules.profiler.max_initialization_time import MaxInitializationTime
from stepscope.rules.profiler.overall_framework_metrics import OverallFrameworkMetrics
from stepscope.rules.profiler.overall_system_usage import OverallSystemUsage
from stepscope.rules.profiler.pageable_copies import PageableCopies
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.rules.profiler.recompile_storm import RecompileStorm
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.rules.profiler.step_time_regression import StepTimeRegression
from stepscope.rules.profiler.thermal_throttling import ThermalThrottling
from stepscope.rules.profiler.trace_recommendations import TraceRecommendations

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
)
"""Rules that Debugger has, in the order of its reports, then the others."""
PROFILER_REPORT = tuple(rule.__name__ for rule in RULES[:11])
"""Rules of Debugger's ProfilerReport, by the name of which all of them can be requested."""
RULE_METRICS = tuple(sorted({metric for rule in RULES for metric in rule.metrics}))
"""Metrics that these rules read."""
