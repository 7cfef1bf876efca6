"""Pure functions from arrays to arrays: every figure that stepscope reports is computed here, once.

Belongs here: pure functions of arrays, each with its formula in the docstring. Does not: I/O,
clocks, printing, thresholds of findings (`rules`, `diagnosis`), formatting (`views`).

Building blocks:

    columns           input format: tables as arrays, strings as codes
    grouping          rows by key, with sums
    statistics        distributions, means with missing values
    histograms        values in bins
    buckets           equal time buckets, for curves
    growth            growth of a series
    payloads          payload of a distribution

Spans, samples and metrics of a run:

    spans             span table of one process as typed arrays
    phases            phases of a step, on the host and on the device
    evaluation        evaluation inside a training job
    steps             training steps: boundaries, and time by phase
    step_statistics   phases and slowest steps of one rank
    rank_steps        step durations by rank, stragglers
    input_pipeline    batch creation, and the data wait of the training thread
    code_stages       stage of an input pipeline that a stack belongs to
    host_work         work of the training thread outside phases
    function_profile  Python time by function
    utilization       node metrics, CPU contention
    sampling_ticks    samples taken together, heat maps
    exchange          exposed gradient exchange of DDP
    operators         work and framework overhead in compute phases

Traces of a framework's profiler, each of one process and one window:

    kernel_classes    communication, tensor cores and precision by kernel name
    device_work       kernels, copies and sets, and the runtime calls that launched them
    gpu_time          compute, exposed communication, exposed copies, idle
    gpu_metrics       utilization, SM efficiency, occupancy, tensor cores
    idle              idle time of streams by reason
    launches          cost of launches, delays, queue depth
    activity          kinds of activity and of copies
    collectives       matching across ranks: wait, transfer, bandwidth
    rank_time         time of one rank, and of its collectives
    trace_steps       steps of a trace, and exposed time by category
    exposed_time      exposed time by owner, down to the single call
    operator_tree     operators as a tree; operator_table, kernel_table, annotation_table
    call_paths        calls grouped by path
    modules           modules of the model; module_flame
    memory_*          memory over time, blocks, peak, operators
    roofline          work and traffic of operators against the peaks of their device
    timeline_*        events as slices, nested and summed
"""

from __future__ import annotations

from stepscope.analysis.activity import (
    ACTIVITIES,
    ACTIVITY_COPY_COLUMNS,
    Activity,
    CopyKind,
    is_synchronization,
    parse_copy_direction,
    summarize_activities,
    summarize_copies,
)
from stepscope.analysis.annotation_table import (
    ANNOTATION_COLUMNS,
    AnnotationGroup,
    DurationHistogram,
    build_annotation_histograms,
    summarize_annotations,
)
from stepscope.analysis.buckets import Buckets, cut_into_buckets
from stepscope.analysis.call_paths import (
    STACK_COLUMNS,
    RowLabels,
    make_stack_labels,
    make_string_labels,
)
from stepscope.analysis.collectives import (
    CollectiveCalls,
    MatchedCalls,
    classify_collective,
    look_up_element_bytes,
    match_calls,
    measure_bandwidth,
)
from stepscope.analysis.columns import Columns
from stepscope.analysis.device_work import (
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    DeviceWork,
    RuntimeCalls,
    combine_device_work,
)
from stepscope.analysis.exchange import compute_exposed_exchange_ratio, count_exchanges_per_step
from stepscope.analysis.exposed_time import (
    CategoryRanges,
    ExposedTime,
    attribute_exposed_time,
    find_self_intervals,
    partition_steps,
)
from stepscope.analysis.function_profile import find_phase_at, profile_functions
from stepscope.analysis.gpu_metrics import (
    METRIC_KERNEL_COLUMNS,
    GpuMetrics,
    MultiprocessorLoad,
    measure_gpu_metrics,
    split_by_device,
)
from stepscope.analysis.gpu_time import GpuTime, measure_gpu_time, measure_gpu_time_by_device
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.growth import Growth, measure_growth
from stepscope.analysis.histograms import (
    DURATION_BINS,
    RATIO_BIN,
    Float,
    Histogram,
    build_histogram,
    make_duration_edges,
    make_range_edges,
    make_ratio_edges,
)
from stepscope.analysis.host_work import HOST_CAUSE_LABELS, HostCause, HostWork, attribute_host_work
from stepscope.analysis.idle import KERNEL_WAIT_BELOW_NS, StreamIdle, measure_stream_idle
from stepscope.analysis.input_pipeline import (
    BatchCreation,
    DataWait,
    Fetcher,
    StackSamples,
    StageShare,
    charge_busy_workers,
    measure_batch_creation,
    split_data_wait,
    weigh_samples,
)
from stepscope.analysis.kernel_classes import (
    classify_precision,
    is_communication,
    is_host_communication,
    match_rows,
    uses_tensor_cores,
)
from stepscope.analysis.kernel_table import (
    GRAPH_COLUMNS,
    LAUNCHER_COLUMNS,
    NAME_COLUMNS,
    PROPERTY_COLUMNS,
    GraphReplays,
    KernelRow,
    KernelTable,
    build_graph_table,
    build_kernel_table,
    build_kernel_table_by_properties,
)
from stepscope.analysis.launches import (
    DEFAULT_LAUNCH_THRESHOLDS,
    LaunchStatistics,
    QueueDepth,
    find_launches,
    measure_queue_depths,
    summarize_launches,
    summarize_launches_by_call,
)
from stepscope.analysis.memory_blocks import label_operators, list_largest_blocks, pair_blocks
from stepscope.analysis.memory_curve import (
    CURVE_COLUMNS,
    DeviceMemory,
    downsample_curve,
    split_memory_by_device,
)
from stepscope.analysis.memory_operators import OperatorMemory, summarize_memory_operators
from stepscope.analysis.memory_peak import (
    NO_BACKWARD,
    MemoryPeak,
    Passes,
    explain_peak,
    find_passes,
    is_backward,
)
from stepscope.analysis.module_flame import Measure, build_module_flame
from stepscope.analysis.modules import (
    FUNCTION_COLUMNS,
    MODULE_ANNOTATION_COLUMNS,
    MODULE_OPERATOR_COLUMNS,
    ModuleCalls,
    build_module_table,
    find_lightning_module_calls,
    find_python_module_calls,
)
from stepscope.analysis.operator_table import (
    LAUNCHED_KERNEL_COLUMNS,
    TABLE_COLUMNS,
    OperatorRow,
    build_operator_table,
)
from stepscope.analysis.operator_tree import (
    EXCLUDED_NAMES,
    EXCLUDED_PREFIXES,
    TREE_COLUMNS,
    OperatorTree,
    build_operator_tree,
    find_rows,
)
from stepscope.analysis.operators import ComputeProfile, profile_compute
from stepscope.analysis.payloads import Statistics, make_statistics, nan_to_none
from stepscope.analysis.phases import COMPUTE_PHASES, PHASE_OF_KIND, PHASES
from stepscope.analysis.rank_steps import (
    Matrix,
    build_step_matrix,
    downsample_columns,
    fill_step_matrix,
    find_stragglers,
)
from stepscope.analysis.rank_time import (
    CollectiveGroup,
    CollectiveTime,
    break_down_range,
    break_down_ranges,
    group_collectives,
    measure_collective_time,
)
from stepscope.analysis.roofline.accounting import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    ROOFLINE_OPERATOR_COLUMNS,
    Account,
    account_device_time,
)
from stepscope.analysis.roofline.calls import Family, Precision
from stepscope.analysis.roofline.device_table import Unit
from stepscope.analysis.roofline.groups import IMPOSSIBLE_RATIO, NS_PER_S, CallGroup, group_calls
from stepscope.analysis.roofline.peaks import Peaks, estimate_cpu_peaks, find_peaks, parse_peaks
from stepscope.analysis.roofline.summary import (
    FamilyTotals,
    RooflineGap,
    find_largest_gaps,
    sum_families,
)
from stepscope.analysis.roofline.utilization import FlopsUtilization, measure_step_utilization
from stepscope.analysis.sampling_ticks import (
    HEATMAP_METRICS,
    HEATMAP_TICKS,
    Heatmap,
    HeatmapRow,
    average_devices,
    build_heatmap,
    find_full_scale,
)
from stepscope.analysis.spans import FLAG_NO_GRAD, FLAG_NO_RESULT, Spans
from stepscope.analysis.statistics import (
    Distribution,
    average_present,
    estimate_lead_probability,
    summarize,
)
from stepscope.analysis.step_statistics import PhaseShare, find_slowest_steps, measure_phases
from stepscope.analysis.steps import (
    VALUED_KINDS,
    Steps,
    find_losses,
    find_phase_intervals,
    find_step_at,
    find_steps,
    select_window_steps,
)
from stepscope.analysis.timeline_nesting import CallTree, LineSums, NameSums, clip_events
from stepscope.analysis.timeline_slices import Slices, choose_width, limit_slices, merge_slices
from stepscope.analysis.trace_steps import (
    CATEGORIES,
    STEP_PREFIX,
    HostSteps,
    Overlap,
    TraceSteps,
    break_down_steps,
    find_device_categories,
    find_host_steps,
    find_trace_steps,
    is_data_loader,
    is_step,
    make_single_step,
    measure_overlap,
    merge_categories,
)
from stepscope.analysis.utilization import (
    Contention,
    Metrics,
    measure_contention,
    numeric_sort_key,
    summarize_metrics,
)

__all__ = [
    "ACTIVITIES",
    "ACTIVITY_COPY_COLUMNS",
    "ANNOTATION_COLUMNS",
    "CATEGORIES",
    "COMPUTE_PHASES",
    "COPY_COLUMNS",
    "CURVE_COLUMNS",
    "DEFAULT_LAUNCH_THRESHOLDS",
    "DURATION_BINS",
    "EVENT_COLUMNS",
    "EXCLUDED_NAMES",
    "EXCLUDED_PREFIXES",
    "FLAG_NO_GRAD",
    "FLAG_NO_RESULT",
    "FUNCTION_COLUMNS",
    "GRAPH_COLUMNS",
    "HEATMAP_METRICS",
    "HEATMAP_TICKS",
    "HOST_CAUSE_LABELS",
    "HOST_COLUMNS",
    "IMPOSSIBLE_RATIO",
    "KERNEL_COLUMNS",
    "KERNEL_WAIT_BELOW_NS",
    "LAUNCHED_KERNEL_COLUMNS",
    "LAUNCHER_COLUMNS",
    "METRIC_KERNEL_COLUMNS",
    "MODULE_ANNOTATION_COLUMNS",
    "MODULE_OPERATOR_COLUMNS",
    "NAME_COLUMNS",
    "NO_BACKWARD",
    "NS_PER_S",
    "PHASES",
    "PHASE_OF_KIND",
    "PROPERTY_COLUMNS",
    "RATIO_BIN",
    "ROOFLINE_OPERATOR_COLUMNS",
    "STACK_COLUMNS",
    "STEP_PREFIX",
    "TABLE_COLUMNS",
    "TREE_COLUMNS",
    "VALUED_KINDS",
    "Account",
    "Activity",
    "AnnotationGroup",
    "BatchCreation",
    "Buckets",
    "CallGroup",
    "CallTree",
    "CategoryRanges",
    "CollectiveCalls",
    "CollectiveGroup",
    "CollectiveTime",
    "Columns",
    "ComputeProfile",
    "Contention",
    "CopyKind",
    "DataWait",
    "DeviceMemory",
    "DeviceWork",
    "Distribution",
    "DurationHistogram",
    "ExposedTime",
    "Family",
    "FamilyTotals",
    "Fetcher",
    "Float",
    "FlopsUtilization",
    "GpuMetrics",
    "GpuTime",
    "GraphReplays",
    "Growth",
    "Heatmap",
    "HeatmapRow",
    "Histogram",
    "HostCause",
    "HostSteps",
    "HostWork",
    "KernelRow",
    "KernelTable",
    "LaunchStatistics",
    "LineSums",
    "MatchedCalls",
    "Matrix",
    "Measure",
    "MemoryPeak",
    "Metrics",
    "ModuleCalls",
    "MultiprocessorLoad",
    "NameSums",
    "OperatorMemory",
    "OperatorRow",
    "OperatorTree",
    "Overlap",
    "Passes",
    "Peaks",
    "PhaseShare",
    "Precision",
    "QueueDepth",
    "RooflineGap",
    "RowLabels",
    "RuntimeCalls",
    "Slices",
    "Spans",
    "StackSamples",
    "StageShare",
    "Statistics",
    "Steps",
    "StreamIdle",
    "TraceSteps",
    "Unit",
    "account_device_time",
    "attribute_exposed_time",
    "attribute_host_work",
    "average_devices",
    "average_present",
    "break_down_range",
    "break_down_ranges",
    "break_down_steps",
    "build_annotation_histograms",
    "build_graph_table",
    "build_heatmap",
    "build_histogram",
    "build_kernel_table",
    "build_kernel_table_by_properties",
    "build_module_flame",
    "build_module_table",
    "build_operator_table",
    "build_operator_tree",
    "build_step_matrix",
    "charge_busy_workers",
    "choose_width",
    "classify_collective",
    "classify_precision",
    "clip_events",
    "combine_device_work",
    "compute_exposed_exchange_ratio",
    "count_exchanges_per_step",
    "cut_into_buckets",
    "downsample_columns",
    "downsample_curve",
    "estimate_cpu_peaks",
    "estimate_lead_probability",
    "explain_peak",
    "fill_step_matrix",
    "find_device_categories",
    "find_full_scale",
    "find_host_steps",
    "find_largest_gaps",
    "find_launches",
    "find_lightning_module_calls",
    "find_losses",
    "find_passes",
    "find_peaks",
    "find_phase_at",
    "find_phase_intervals",
    "find_python_module_calls",
    "find_rows",
    "find_self_intervals",
    "find_slowest_steps",
    "find_step_at",
    "find_steps",
    "find_stragglers",
    "find_trace_steps",
    "group_calls",
    "group_collectives",
    "group_rows",
    "is_backward",
    "is_communication",
    "is_data_loader",
    "is_host_communication",
    "is_step",
    "is_synchronization",
    "label_operators",
    "limit_slices",
    "list_largest_blocks",
    "look_up_element_bytes",
    "make_duration_edges",
    "make_range_edges",
    "make_ratio_edges",
    "make_single_step",
    "make_stack_labels",
    "make_statistics",
    "make_string_labels",
    "match_calls",
    "match_rows",
    "measure_bandwidth",
    "measure_batch_creation",
    "measure_collective_time",
    "measure_contention",
    "measure_gpu_metrics",
    "measure_gpu_time",
    "measure_gpu_time_by_device",
    "measure_growth",
    "measure_overlap",
    "measure_phases",
    "measure_queue_depths",
    "measure_step_utilization",
    "measure_stream_idle",
    "merge_categories",
    "merge_slices",
    "nan_to_none",
    "numeric_sort_key",
    "pair_blocks",
    "parse_copy_direction",
    "parse_peaks",
    "partition_steps",
    "profile_compute",
    "profile_functions",
    "select_window_steps",
    "split_by_device",
    "split_data_wait",
    "split_memory_by_device",
    "sum_families",
    "summarize",
    "summarize_activities",
    "summarize_annotations",
    "summarize_copies",
    "summarize_launches",
    "summarize_launches_by_call",
    "summarize_memory_operators",
    "summarize_metrics",
    "uses_tensor_cores",
    "weigh_samples",
]
