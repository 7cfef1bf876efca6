from .activity import (
    ACTIVITIES as ACTIVITIES,
    ACTIVITY_COPY_COLUMNS as ACTIVITY_COPY_COLUMNS,
    ActivityKind as ActivityKind,
    CopyBandwidth as CopyBandwidth,
    CopyKind as CopyKind,
    is_synchronization as is_synchronization,
    measure_copy_bandwidth as measure_copy_bandwidth,
    parse_copy_direction as parse_copy_direction,
    summarize_activities as summarize_activities,
    summarize_copies as summarize_copies,
)
from .annotation_table import (
    ANNOTATION_COLUMNS as ANNOTATION_COLUMNS,
    AnnotationGroup as AnnotationGroup,
    AnnotationHistogram as AnnotationHistogram,
    build_annotation_histograms as build_annotation_histograms,
    match_annotations as match_annotations,
    summarize_annotations as summarize_annotations,
)
from .buckets import Buckets as Buckets, cut_into_buckets as cut_into_buckets
from .call_paths import (
    STACK_COLUMNS as STACK_COLUMNS,
    RowLabels as RowLabels,
    make_stack_labels as make_stack_labels,
    make_string_labels as make_string_labels,
)
from .clock_alignment import (
    SYNCHRONIZING_KINDS as SYNCHRONIZING_KINDS,
    CollectiveTimes as CollectiveTimes,
    NodeClock as NodeClock,
    align_clocks as align_clocks,
)
from .code_stages import NO_DATASET_CODE as NO_DATASET_CODE, STAGE_LABELS as STAGE_LABELS
from .collective_lateness import (
    Lateness as Lateness,
    RankArrivals as RankArrivals,
    RankLateness as RankLateness,
    measure_lateness as measure_lateness,
    summarize_lateness as summarize_lateness,
)
from .collectives import (
    CollectiveCalls as CollectiveCalls,
    MatchedCalls as MatchedCalls,
    RankCalls as RankCalls,
    classify_collective as classify_collective,
    look_up_element_bytes as look_up_element_bytes,
    match_calls as match_calls,
    measure_bandwidth as measure_bandwidth,
)
from .columns import (
    TIME_COLUMNS as TIME_COLUMNS,
    Columns as Columns,
    make_intervals as make_intervals,
    nan_to_none as nan_to_none,
    none_if_negative as none_if_negative,
    round_significant as round_significant,
)
from .compiled_steps import find_training_calls as find_training_calls
from .confusion import (
    ConfusionScores as ConfusionScores,
    Scores as Scores,
    score_confusion as score_confusion,
)
from .copy_waits import (
    CopyWaits as CopyWaits,
    HostCalls as HostCalls,
    find_copy_waits as find_copy_waits,
)
from .core_delays import measure_core_delays as measure_core_delays
from .device_work import (
    COPY_COLUMNS as COPY_COLUMNS,
    KERNEL as KERNEL,
    KERNEL_COLUMNS as KERNEL_COLUMNS,
    MEMCPY as MEMCPY,
    MEMSET as MEMSET,
    DeviceWork as DeviceWork,
    RuntimeCalls as RuntimeCalls,
    combine_device_work as combine_device_work,
)
from .exchange import (
    MIN_RECORDED_RATIO as MIN_RECORDED_RATIO,
    RecordedCalls as RecordedCalls,
    compute_exposed_exchange_ratio as compute_exposed_exchange_ratio,
    count_exchanges_per_step as count_exchanges_per_step,
    estimate_backward_compute as estimate_backward_compute,
    measure_exchange as measure_exchange,
)
from .exposed_time import (
    CategoryRanges as CategoryRanges,
    ExposedTime as ExposedTime,
    attribute_exposed_time as attribute_exposed_time,
    find_self_intervals as find_self_intervals,
    partition_steps as partition_steps,
)
from .function_profile import (
    StackNode as StackNode,
    build_stack_tree as build_stack_tree,
    find_phase_at as find_phase_at,
    profile_functions as profile_functions,
    select_samples as select_samples,
)
from .gpu_metrics import (
    METRIC_KERNEL_COLUMNS as METRIC_KERNEL_COLUMNS,
    DeviceKernels as DeviceKernels,
    GpuMetrics as GpuMetrics,
    MultiprocessorLoad as MultiprocessorLoad,
    measure_gpu_metrics as measure_gpu_metrics,
    split_by_device as split_by_device,
)
from .gpu_time import (
    GpuTime as GpuTime,
    measure_gpu_time as measure_gpu_time,
    measure_gpu_time_by_device as measure_gpu_time_by_device,
)
from .graph_replays import (
    GRAPH_WORK_COLUMNS as GRAPH_WORK_COLUMNS,
    Capture as Capture,
    GraphKernel as GraphKernel,
    GraphReplays as GraphReplays,
    GraphWork as GraphWork,
    ReplayedOperator as ReplayedOperator,
    build_graph_table as build_graph_table,
    collect_graph_work as collect_graph_work,
    list_graph_kernels as list_graph_kernels,
    name_captured_operators as name_captured_operators,
    split_graph_time as split_graph_time,
    sum_replayed_operators as sum_replayed_operators,
)
from .grouping import group_rows as group_rows
from .growth import Growth as Growth, measure_growth as measure_growth
from .histograms import (
    DURATION_BINS as DURATION_BINS,
    RATIO_BIN as RATIO_BIN,
    Float as Float,
    Histogram as Histogram,
    build_histogram as build_histogram,
    make_duration_edges as make_duration_edges,
    make_range_edges as make_range_edges,
    make_ratio_edges as make_ratio_edges,
)
from .host_work import (
    HOST_CAUSE_LABELS as HOST_CAUSE_LABELS,
    HostCause as HostCause,
    HostLine as HostLine,
    HostWork as HostWork,
    attribute_host_work as attribute_host_work,
    measure_stack_depth as measure_stack_depth,
)
from .idle import (
    KERNEL_WAIT_BELOW_NS as KERNEL_WAIT_BELOW_NS,
    StreamIdle as StreamIdle,
    measure_stream_idle as measure_stream_idle,
)
from .input_pipeline import (
    MIN_SAMPLES as MIN_SAMPLES,
    BatchCreation as BatchCreation,
    DataWait as DataWait,
    Fetcher as Fetcher,
    StackSamples as StackSamples,
    StageShare as StageShare,
    charge_busy_workers as charge_busy_workers,
    find_slow_waits as find_slow_waits,
    measure_batch_creation as measure_batch_creation,
    split_data_wait as split_data_wait,
    weigh_samples as weigh_samples,
)
from .kernel_classes import (
    CommunicationDefinition as CommunicationDefinition,
    classify_precision as classify_precision,
    is_collective_operator as is_collective_operator,
    is_communication as is_communication,
    is_host_communication as is_host_communication,
    is_narrow_communication as is_narrow_communication,
    match_rows as match_rows,
    may_communicate as may_communicate,
    uses_tensor_cores as uses_tensor_cores,
)
from .kernel_counters import (
    COUNTER_CATEGORY as COUNTER_CATEGORY,
    COUNTER_RANGE_COLUMNS as COUNTER_RANGE_COLUMNS,
    CounterFlops as CounterFlops,
    KernelCounter as KernelCounter,
    NamedGroups as NamedGroups,
    count_flops as count_flops,
    find_launching_operators as find_launching_operators,
    is_kernel_launch as is_kernel_launch,
    read_counters as read_counters,
    summarize_counter as summarize_counter,
    summarize_flops as summarize_flops,
)
from .kernel_durations import (
    SHORT_NS as SHORT_NS,
    KernelDurationClass as KernelDurationClass,
    count_kernels_by_duration as count_kernels_by_duration,
)
from .kernel_sequences import (
    SEQUENCE_KERNEL_COLUMNS as SEQUENCE_KERNEL_COLUMNS,
    SEQUENCE_OPERATOR_COLUMNS as SEQUENCE_OPERATOR_COLUMNS,
    KernelSequence as KernelSequence,
    find_kernel_sequences as find_kernel_sequences,
)
from .kernel_table import (
    LAUNCHER_COLUMNS as LAUNCHER_COLUMNS,
    NAME_COLUMNS as NAME_COLUMNS,
    PROPERTY_COLUMNS as PROPERTY_COLUMNS,
    KernelGroup as KernelGroup,
    KernelLaunches as KernelLaunches,
    KernelTable as KernelTable,
    build_kernel_table as build_kernel_table,
    build_kernel_table_by_properties as build_kernel_table_by_properties,
)
from .late_chain import (
    GroupArrivals as GroupArrivals,
    LateChains as LateChains,
    find_late_chains as find_late_chains,
)
from .late_ranks import (
    MIN_LATE_RATIO as MIN_LATE_RATIO,
    PERSISTENT_RATIO as PERSISTENT_RATIO,
    LateRank as LateRank,
    LateRanks as LateRanks,
    compare_with_others as compare_with_others,
    find_episodes as find_episodes,
    find_late_ranks as find_late_ranks,
)
from .launches import (
    DEFAULT_LAUNCH_THRESHOLDS as DEFAULT_LAUNCH_THRESHOLDS,
    CallLaunches as CallLaunches,
    StreamQueue as StreamQueue,
    find_launches as find_launches,
    measure_queue_depths as measure_queue_depths,
    summarize_launches as summarize_launches,
    summarize_launches_by_call as summarize_launches_by_call,
    summarize_launches_by_operator as summarize_launches_by_operator,
)
from .memory_blocks import (
    MemoryBlockRow as MemoryBlockRow,
    label_operators as label_operators,
    list_largest_blocks as list_largest_blocks,
    pair_blocks as pair_blocks,
)
from .memory_categories import (
    CATEGORY_COLUMNS as CATEGORY_COLUMNS,
    CategoryCurve as CategoryCurve,
    CategoryLevels as CategoryLevels,
    CategoryMemory as CategoryMemory,
    downsample_levels as downsample_levels,
    measure_category_levels as measure_category_levels,
    summarize_categories as summarize_categories,
)
from .memory_curve import (
    CURVE_COLUMNS as CURVE_COLUMNS,
    DeviceMemory as DeviceMemory,
    downsample_curve as downsample_curve,
    measure_step_memory as measure_step_memory,
    split_memory_by_device as split_memory_by_device,
)
from .memory_operators import (
    OperatorMemory as OperatorMemory,
    summarize_memory_operators as summarize_memory_operators,
)
from .memory_peak import (
    MemoryPeak as MemoryPeak,
    Passes as Passes,
    explain_peak as explain_peak,
    find_passes as find_passes,
    is_backward as is_backward,
)
from .module_flame import Measure as Measure, build_module_flame as build_module_flame
from .modules import (
    FUNCTION_COLUMNS as FUNCTION_COLUMNS,
    MODULE_ANNOTATION_COLUMNS as MODULE_ANNOTATION_COLUMNS,
    MODULE_OPERATOR_COLUMNS as MODULE_OPERATOR_COLUMNS,
    Module as Module,
    ModuleCalls as ModuleCalls,
    build_module_table as build_module_table,
    find_lightning_module_calls as find_lightning_module_calls,
    find_python_module_calls as find_python_module_calls,
)
from .operator_table import (
    LAUNCHED_WORK_COLUMNS as LAUNCHED_WORK_COLUMNS,
    TABLE_COLUMNS as TABLE_COLUMNS,
    OperatorGroup as OperatorGroup,
    OperatorShape as OperatorShape,
    OperatorStack as OperatorStack,
    build_operator_table as build_operator_table,
    measure_eligible_ratio as measure_eligible_ratio,
)
from .operator_tree import (
    EXCLUDED_NAMES as EXCLUDED_NAMES,
    EXCLUDED_PREFIXES as EXCLUDED_PREFIXES,
    TREE_COLUMNS as TREE_COLUMNS,
    OperatorTree as OperatorTree,
    build_operator_tree as build_operator_tree,
    find_outermost as find_outermost,
    find_rows as find_rows,
)
from .operators import (
    MAX_CALL_NS as MAX_CALL_NS,
    WORK_NS as WORK_NS,
    ComputeProfile as ComputeProfile,
    profile_compute as profile_compute,
)
from .outside_stacks import (
    SampledBatchWork as SampledBatchWork,
    SampledShare as SampledShare,
    ThreadActivity as ThreadActivity,
    estimate_wait_share as estimate_wait_share,
    measure_sampled_batches as measure_sampled_batches,
    measure_thread_activity as measure_thread_activity,
)
from .packed_steps import (
    PackedSteps as PackedSteps,
    pack_steps as pack_steps,
)
from .phases import (
    COMPUTE_PHASES as COMPUTE_PHASES,
    PHASE_OF_KIND as PHASE_OF_KIND,
    PHASES as PHASES,
    WORK_KINDS as WORK_KINDS,
)
from .rank_steps import (
    Matrix as Matrix,
    build_step_matrix as build_step_matrix,
    downsample_columns as downsample_columns,
    fill_step_matrix as fill_step_matrix,
    find_stragglers as find_stragglers,
)
from .rank_time import (
    Collective as Collective,
    CollectiveSize as CollectiveSize,
    CollectiveTime as CollectiveTime,
    RangeTimes as RangeTimes,
    break_down_range as break_down_range,
    break_down_ranges as break_down_ranges,
    group_collectives as group_collectives,
    group_collectives_by_size as group_collectives_by_size,
    measure_collective_time as measure_collective_time,
)
from .recomputation import (
    RECOMPUTATION_COLUMNS as RECOMPUTATION_COLUMNS,
    Recomputation as Recomputation,
    find_recomputation as find_recomputation,
)
from .recorded_utilization import (
    RecordedKernels as RecordedKernels,
    find_recorded_kernels as find_recorded_kernels,
    measure_recorded_utilization as measure_recorded_utilization,
)
from .repeated_ranges import (
    NamedRange as NamedRange,
    find_optimizer_steps as find_optimizer_steps,
    find_repeated_steps as find_repeated_steps,
)
from .request_waits import (
    WAIT_FUNCTIONS as WAIT_FUNCTIONS,
    find_unrecorded_time as find_unrecorded_time,
    find_waits_of_threads as find_waits_of_threads,
    is_training as is_training,
    is_wait_function as is_wait_function,
)
from .roofline.accounting import (
    EVENT_COLUMNS as EVENT_COLUMNS,
    HOST_COLUMNS as HOST_COLUMNS,
    ROOFLINE_OPERATOR_COLUMNS as ROOFLINE_OPERATOR_COLUMNS,
    Account as Account,
    account_device_time as account_device_time,
)
from .roofline.batches import (
    BATCH_COLUMNS as BATCH_COLUMNS,
    BATCH_CONDITION as BATCH_CONDITION,
)
from .roofline.calls import Precision as Precision
from .roofline.device_table import Unit as Unit
from .roofline.groups import (
    IMPOSSIBLE_RATIO as IMPOSSIBLE_RATIO,
    RooflineGroup as RooflineGroup,
    group_calls as group_calls,
)
from .roofline.peaks import (
    Peaks as Peaks,
    estimate_cpu_peaks as estimate_cpu_peaks,
    find_peaks as find_peaks,
    parse_peaks as parse_peaks,
)
from .roofline.summary import (
    FamilyTotals as FamilyTotals,
    RooflineGap as RooflineGap,
    find_largest_gaps as find_largest_gaps,
    sum_families as sum_families,
)
from .roofline.utilization import (
    Utilization as Utilization,
    measure_step_utilization as measure_step_utilization,
)
from .sampling_ticks import (
    HEATMAP_METRICS as HEATMAP_METRICS,
    HEATMAP_TICKS as HEATMAP_TICKS,
    Heatmap as Heatmap,
    HeatmapRow as HeatmapRow,
    average_devices as average_devices,
    build_heatmap as build_heatmap,
    find_full_scale as find_full_scale,
)
from .series import (
    Device as Device,
    Series as Series,
    merge_series as merge_series,
    numeric_sort_key as numeric_sort_key,
)
from .slow_link import (
    SendQueue as SendQueue,
    SlowLink as SlowLink,
    find_slow_link as find_slow_link,
)
from .spans import (
    FLAG_ASYNC as FLAG_ASYNC,
    FLAG_EVAL_MODE as FLAG_EVAL_MODE,
    FLAG_NEW_MODEL as FLAG_NEW_MODEL,
    FLAG_NO_GRAD as FLAG_NO_GRAD,
    FLAG_NO_OPTIMIZER as FLAG_NO_OPTIMIZER,
    FLAG_NO_RESULT as FLAG_NO_RESULT,
    FLAG_SIZED as FLAG_SIZED,
    SIZE_BITS as SIZE_BITS,
    Spans as Spans,
)
from .stage_operations import (
    AlignedOperations as AlignedOperations,
    StageOperations as StageOperations,
    StageOperationsError as StageOperationsError,
    align_operations as align_operations,
)
from .stage_slowdown import (
    StageSlowdown as StageSlowdown,
    Worker as Worker,
    measure_slowdown as measure_slowdown,
)
from .statistics import (
    DurationStatistics as DurationStatistics,
    Statistics as Statistics,
    average_present as average_present,
    estimate_lead_probability as estimate_lead_probability,
    summarize as summarize,
    summarize_groups as summarize_groups,
)
from .step_parts import (
    DATA_PARTS as DATA_PARTS,
    OVERHEAD_PARTS as OVERHEAD_PARTS,
    PART_NAMES as PART_NAMES,
    STEP_PARTS as STEP_PARTS,
    StepActivity as StepActivity,
    allocates_memory as allocates_memory,
    divide_host_steps as divide_host_steps,
    divide_steps as divide_steps,
    find_idle_before_queued as find_idle_before_queued,
    is_compilation as is_compilation,
)
from .step_statistics import (
    PhaseShare as PhaseShare,
    compute_pooled_median as compute_pooled_median,
    explain_unknown_time as explain_unknown_time,
    find_slowest_steps as find_slowest_steps,
    measure_phases as measure_phases,
    select_durations_s as select_durations_s,
    summarize_phases as summarize_phases,
    thin_out_steps as thin_out_steps,
)
from .step_work import (
    measure_growth_at_equal_work as measure_growth_at_equal_work,
    measure_work as measure_work,
)
from .steps import (
    STEP_SOURCES as STEP_SOURCES,
    VALUED_KINDS as VALUED_KINDS,
    Steps as Steps,
    find_losses as find_losses,
    find_phase_intervals as find_phase_intervals,
    find_step_at as find_step_at,
    find_steps as find_steps,
    select_window_steps as select_window_steps,
)
from .stuck_collectives import (
    Call as Call,
    StuckCollective as StuckCollective,
    find_last_collective as find_last_collective,
    find_stuck_collective as find_stuck_collective,
    is_open as is_open,
)
from .stuck_transfers import (
    StuckTransfer as StuckTransfer,
    find_stuck_transfer as find_stuck_transfer,
)
from .tensor_series import (
    REDUCTIONS as REDUCTIONS,
    STORED_REDUCTIONS as STORED_REDUCTIONS,
    LoggedScalars as LoggedScalars,
    TensorSeries as TensorSeries,
    TensorValues as TensorValues,
)
from .timeline_nesting import (
    CallTree as CallTree,
    LineSums as LineSums,
    NameSums as NameSums,
    clip_events as clip_events,
)
from .timeline_slices import (
    Slices as Slices,
    choose_width as choose_width,
    limit_slices as limit_slices,
    merge_slices as merge_slices,
)
from .trace_steps import (
    CATEGORIES as CATEGORIES,
    STEP_PREFIX as STEP_PREFIX,
    HostSteps as HostSteps,
    Overlap as Overlap,
    TraceSteps as TraceSteps,
    break_down_steps as break_down_steps,
    find_device_categories as find_device_categories,
    find_host_steps as find_host_steps,
    find_trace_steps as find_trace_steps,
    is_data_loader as is_data_loader,
    is_step as is_step,
    make_single_step as make_single_step,
    measure_overlap as measure_overlap,
    merge_categories as merge_categories,
)
from .trials import (
    MedianEstimate as MedianEstimate,
    compare_losses as compare_losses,
    estimate_median as estimate_median,
)
from .utilization import (
    Contention as Contention,
    UsageShares as UsageShares,
    find_low_use as find_low_use,
    measure_contention as measure_contention,
    measure_usage as measure_usage,
)
