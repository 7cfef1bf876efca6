from .annotations import (
    read_annotated_kernels as read_annotated_kernels,
    read_annotations as read_annotations,
    read_script_annotations as read_script_annotations,
)
from .boosted_models import (
    BoostedModel as BoostedModel,
    count_label_rows as count_label_rows,
    list_boosted_models as list_boosted_models,
    read_model_values as read_model_values,
    read_round_scalars as read_round_scalars,
)
from .callbacks import measure_callbacks as measure_callbacks
from .clock import RunClock as RunClock
from .collective_records import (
    NO_CALLS as NO_CALLS,
    NO_RECORDER as NO_RECORDER,
    REPLICAS as REPLICAS,
    RecordedCollectives as RecordedCollectives,
    has_replicas as has_replicas,
    read_recorded_collectives as read_recorded_collectives,
)
from .configuration import (
    ConfigurationChange as ConfigurationChange,
    ConfigurationHistory as ConfigurationHistory,
    SettingChange as SettingChange,
    check_schedules as check_schedules,
    describe_changes as describe_changes,
    describe_rules as describe_rules,
    describe_schedule as describe_schedule,
    read_configuration as read_configuration,
)
from .damage import make_with_damage as make_with_damage
from .data_loading import (
    DataLoaderAnalysis as DataLoaderAnalysis,
    LoaderWorker as LoaderWorker,
    analyse_loading as analyse_loading,
    count_loader_workers as count_loader_workers,
)
from .device_work import (
    CarryOver as CarryOver,
    calls_of as calls_of,
    device_work_of as device_work_of,
    streams_of as streams_of,
)
from .engine import Engine as Engine
from .engine_choice import LocalEngine as LocalEngine, choose_engine as choose_engine
from .epochs import (
    Epochs as Epochs,
    find_epochs as find_epochs,
)
from .frames import (
    Frame as Frame,
    FrameColumns as FrameColumns,
    frame_of as frame_of,
    frame_of_query as frame_of_query,
    frame_of_table as frame_of_table,
    select_longest as select_longest,
)
from .graph_captures import (
    Replays as Replays,
    graph_calls_of as graph_calls_of,
    replays_of as replays_of,
)
from .group_mesh import read_group_mesh as read_group_mesh
from .heatmaps import (
    SampledHeatmap as SampledHeatmap,
    build_sampled_heatmap as build_sampled_heatmap,
)
from .incarnations import (
    IncarnationSteps as IncarnationSteps,
    explain_incarnations as explain_incarnations,
    find_repeated_ranks as find_repeated_ranks,
    list_incarnations as list_incarnations,
)
from .job_samples import read_job_samples as read_job_samples
from .job_spans import (
    Inside as Inside,
    list_names as list_names,
    list_phases as list_phases,
    read_job_spans as read_job_spans,
    summarize_job_spans as summarize_job_spans,
)
from .job_times import (
    JobStatistics as JobStatistics,
    explain_lost_node as explain_lost_node,
    explain_recording_end as explain_recording_end,
    find_recording_end as find_recording_end,
    has_ended as has_ended,
    is_lost as is_lost,
    job_borders as job_borders,
    job_state as job_state,
    job_statistics as job_statistics,
    machine_count as machine_count,
    node_state as node_state,
)
from .kernel_counters import kernel_counters_of as kernel_counters_of
from .listening import find_listening_nodes as find_listening_nodes
from .memory_timelines import (
    MemoryTimeline as MemoryTimeline,
    read_memory_timelines as read_memory_timelines,
)
from .metric_bins import (
    Bins as Bins,
    BinSeries as BinSeries,
    aggregate_samples as aggregate_samples,
    choose_bins as choose_bins,
)
from .metric_series import read_series as read_series
from .model_facts import (
    embedding_ratio as embedding_ratio,
    input_bytes as input_bytes,
    inputs_of as inputs_of,
    largest_model as largest_model,
    samples_at_a_time as samples_at_a_time,
)
from .name_totals import sum_by_name as sum_by_name
from .next_record import (
    find_next_record as find_next_record,
    has_records as has_records,
)
from .node_clocks import (
    NO_SHARED_COLLECTIVES as NO_SHARED_COLLECTIVES,
    NodeClocks as NodeClocks,
    align_node_clocks as align_node_clocks,
)
from .node_metrics import NodeMetrics as NodeMetrics
from .opening import (
    open_run as open_run,
    reopen_run as reopen_run,
)
from .period import Period as Period
from .phase_times import (
    MODES as MODES,
    PARTS as PARTS,
    PERIODS as PERIODS,
    TRAINING_PHASES as TRAINING_PHASES,
    divide_by_phase as divide_by_phase,
    find_modes as find_modes,
    find_periods as find_periods,
    find_step_phases as find_step_phases,
)
from .profile_selection import (
    PROFILE_BORDERS as PROFILE_BORDERS,
    PROFILE_MODES as PROFILE_MODES,
    ProfileSelection as ProfileSelection,
)
from .python_profiles import (
    ProfiledFunction as ProfiledFunction,
    read_python_profiles as read_python_profiles,
)
from .rank_collectives import combine_calls as combine_calls
from .rank_ends import RankEnd as RankEnd, read_rank_ends as read_rank_ends
from .rank_exchange import (
    measure_step_exchange as measure_step_exchange,
    read_calls as read_calls,
)
from .rank_figures import (
    RANK_FIGURES as RANK_FIGURES,
    measure_ranks as measure_ranks,
)
from .rank_mesh import (
    DIMENSIONS as DIMENSIONS,
    RankMesh as RankMesh,
    parse_mesh as parse_mesh,
)
from .rank_numbers import (
    number_ranges as number_ranges,
    number_ranks as number_ranks,
)
from .recovery import explain_recovery as explain_recovery
from .request_waits import name_wait_function as name_wait_function
from .rounding import explain_rounding as explain_rounding
from .run import (
    IDLE_GPU_RATIO as IDLE_GPU_RATIO,
    Rank as Rank,
    Run as Run,
)
from .scalars import (
    read_scalars as read_scalars,
    select_scalars as select_scalars,
)
from .shared_steps import (
    SharedSteps as SharedSteps,
    read_shared_steps as read_shared_steps,
)
from .span_table import (
    EndedSpans as EndedSpans,
    SpanRows as SpanRows,
    find_processes as find_processes,
    read_ended_spans as read_ended_spans,
    read_spans as read_spans,
    spans_of as spans_of,
)
from .stack_table import (
    find_stack_samples as find_stack_samples,
    sampling_period_ns as sampling_period_ns,
)
from .stage_operations import (
    has_stage_operations as has_stage_operations,
    read_stage_operations as read_stage_operations,
)
from .step_activity import (
    DividedTrace as DividedTrace,
    divide_trace as divide_trace,
    divide_traces as divide_traces,
    is_range as is_range,
)
from .stored import (
    DictColumn as DictColumn,
    RequestState as RequestState,
    RequestStatus as RequestStatus,
    RunReader as RunReader,
    UnreachableError as UnreachableError,
    cache_home as cache_home,
    literal as literal,
    size_of as size_of,
)
from .tensor_bins import (
    LastStatistics as LastStatistics,
    RecordedTensors as RecordedTensors,
    TensorHistograms as TensorHistograms,
    TensorSelection as TensorSelection,
    aggregate_tensors as aggregate_tensors,
    choose_step_columns as choose_step_columns,
    list_columns as list_columns,
    list_recorded_tensors as list_recorded_tensors,
    read_histograms as read_histograms,
    read_last_statistics as read_last_statistics,
)
from .tensor_elements import (
    TensorElements as TensorElements,
    list_elements as list_elements,
    read_elements as read_elements,
)
from .tensor_series import (
    frame_of_tensors as frame_of_tensors,
    list_tensors as list_tensors,
    read_tensors as read_tensors,
    select_tensors as select_tensors,
)
from .tensor_values import select_tensor_values as select_tensor_values
from .tf_data import (
    measure_tf_data as measure_tf_data,
)
from .trace_devices import (
    DeviceFacts as DeviceFacts,
    count_multiprocessors as count_multiprocessors,
    read_devices as read_devices,
)
from .trace_events import (
    DAY_NS as DAY_NS,
    DURATIONS as DURATIONS,
    EVENT_TABLES as EVENT_TABLES,
    list_event_names as list_event_names,
    read_trace_events as read_trace_events,
)
from .trace_fetches import (
    Fetches as Fetches,
    measure_fetches as measure_fetches,
    read_fetches as read_fetches,
)
from .trace_parts import (
    MeasuredTrace as MeasuredTrace,
    TraceCommunication as TraceCommunication,
    measure_traces as measure_traces,
)
from .trace_steps import (
    MarkedSteps as MarkedSteps,
    RecordedWork as RecordedWork,
    StepSource as StepSource,
    find_marked_steps as find_marked_steps,
    host_categories as host_categories,
    join_step_durations as join_step_durations,
    marked_steps as marked_steps,
    named_steps as named_steps,
    read_marks as read_marks,
    recorded_work as recorded_work,
    select_named as select_named,
)
from .traces import (
    QualityIssue as QualityIssue,
    Trace as Trace,
    load_traces as load_traces,
    reading_ahead as reading_ahead,
)
from .window_requests import (
    MAX_REQUESTED_STEPS as MAX_REQUESTED_STEPS,
    WindowContents as WindowContents,
    check_windows_enabled as check_windows_enabled,
    choose_contents as choose_contents,
    make_window_request as make_window_request,
    read_request_statuses as read_request_statuses,
    send_window_request as send_window_request,
)
