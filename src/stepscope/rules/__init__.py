"""Rules: conditions that a run is checked against, live or afterwards.

Belongs here: conditions, their parameters, details and pages, and the state that makes a scan of a
growing run cheap. Does not belong here: reading a run (`rule_feed`), general formulas
(`analysis`), actions on a finding (`watch`).

    base            Rule, IncrementalRule
    templates       rules with a statistic per device or rank, results per trace
    parameters      accepted values of parameters, conversion from text
    settings        parameters of several rules: configuration, `Name.parameter=value`
    inputs          protocol of the inputs of a rule
    traces          protocol of a trace
    samples         sorted samples, snapshots
    details         details of findings
    quantile_sketch quantiles of a whole run in little memory
    rolling_window  latest samples across the borders of ranges
    usage           latest utilization samples and a sketch of all of them
    step_phases     phases of the steps that contain given times
    threshold_text  values in sentences beside a threshold
    trigger         scans in which a condition held
    registry        rules by name
    pages           documentation pages
    evaluate        evaluation of several rules
    profiler/       built-in rules, one per file
"""

from __future__ import annotations

from stepscope.analysis import Device, Series
from stepscope.rules.base import IncrementalRule, NotApplicable, Rule
from stepscope.rules.details import BoxPlot, HistogramCounts, read_details
from stepscope.rules.evaluate import Evaluation
from stepscope.rules.inputs import Batches, RankStepTimes, RuleInputs
from stepscope.rules.pages import page, summary
from stepscope.rules.parameters import describe_parameters
from stepscope.rules.profiler import RULE_METRICS
from stepscope.rules.profiler.batch_size import BatchSizeDetails, BatchSizeParameters
from stepscope.rules.profiler.bottleneck import BottleneckDetails, NodeBottlenecks
from stepscope.rules.profiler.dataloader import DataloaderDetails, LoaderUsage
from stepscope.rules.profiler.gpu_memory_increase import GPUMemoryIncreaseDetails
from stepscope.rules.profiler.load_balancing import LoadBalancingDetails
from stepscope.rules.profiler.low_gpu_utilization import LowGPUUtilizationDetails
from stepscope.rules.profiler.overall_framework_metrics import (
    TRAINING_PHASES,
    OperatorTime,
    OverallFrameworkMetricsDetails,
)
from stepscope.rules.profiler.overall_system_usage import (
    NodeUsage,
    OverallSystemUsageDetails,
    UsageQuantiles,
)
from stepscope.rules.profiler.step_outlier import RankDurations, StepOutlierDetails
from stepscope.rules.registry import Registry, installed_rules, load_rule_file
from stepscope.rules.settings import make_rules, read_assignments, read_configuration
from stepscope.rules.step_phases import shares_of_total
from stepscope.rules.threshold_text import percent_beside
from stepscope.rules.traces import RuleTrace, StepTimes, TracedBatches, TracedGpu, TracedSteps
from stepscope.rules.trigger import Trigger

__all__ = [
    "RULE_METRICS",
    "TRAINING_PHASES",
    "BatchSizeDetails",
    "BatchSizeParameters",
    "Batches",
    "BottleneckDetails",
    "BoxPlot",
    "DataloaderDetails",
    "Device",
    "Evaluation",
    "GPUMemoryIncreaseDetails",
    "HistogramCounts",
    "IncrementalRule",
    "LoadBalancingDetails",
    "LoaderUsage",
    "LowGPUUtilizationDetails",
    "NodeBottlenecks",
    "NodeUsage",
    "NotApplicable",
    "OperatorTime",
    "OverallFrameworkMetricsDetails",
    "OverallSystemUsageDetails",
    "RankDurations",
    "RankStepTimes",
    "Registry",
    "Rule",
    "RuleInputs",
    "RuleTrace",
    "Series",
    "StepOutlierDetails",
    "StepTimes",
    "TracedBatches",
    "TracedGpu",
    "TracedSteps",
    "Trigger",
    "UsageQuantiles",
    "describe_parameters",
    "installed_rules",
    "load_rule_file",
    "make_rules",
    "page",
    "percent_beside",
    "read_assignments",
    "read_configuration",
    "read_details",
    "shares_of_total",
    "summary",
]
