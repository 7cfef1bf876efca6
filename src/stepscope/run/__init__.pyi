from .engines import LocalEngine as LocalEngine, choose_engine as choose_engine
from .frames import (
    DictColumn as DictColumn,
    Frame as Frame,
    FrameColumns as FrameColumns,
    Note as Note,
    RequestState as RequestState,
    RequestStatus as RequestStatus,
    RunLabels as RunLabels,
    RunNotes as RunNotes,
    RunReader as RunReader,
    SavedView as SavedView,
    UnreachableError as UnreachableError,
    cache_home as cache_home,
    frame_of as frame_of,
    frame_of_query as frame_of_query,
    frame_of_table as frame_of_table,
    identifier as identifier,
    literal as literal,
    query_error as query_error,
    read_notes as read_notes,
    run_name as run_name,
    select_longest as select_longest,
    size_of as size_of,
    update_labels as update_labels,
    update_notes as update_notes,
)
from .job.data_loading import (
    DataLoaderAnalysis as DataLoaderAnalysis,
    LoaderWorker as LoaderWorker,
    analyse_loading as analyse_loading,
    count_loader_workers as count_loader_workers,
    find_line_waits as find_line_waits,
)
from .job.host_memory import (
    NO_MEMORY_SAMPLES as NO_MEMORY_SAMPLES,
    NodeMemory as NodeMemory,
    ProcessMemory as ProcessMemory,
    read_host_memory as read_host_memory,
)
from .job.job_time import (
    JobTime as JobTime,
    RankJobTime as RankJobTime,
    RestartTime as RestartTime,
    read_job_time as read_job_time,
)
from .job.memory_holders import (
    Holder as Holder,
    MemoryCensus as MemoryCensus,
    read_memory_censuses as read_memory_censuses,
    read_memory_holders as read_memory_holders,
    recommend as recommend,
)
from .job.opening import (
    explain_damage as explain_damage,
    explain_recovery as explain_recovery,
    explain_rounding as explain_rounding,
    find_next_record as find_next_record,
    has_records as has_records,
    make_with_damage as make_with_damage,
    open_run as open_run,
    reopen_run as reopen_run,
)
from .job.profiles import (
    PROFILE_BORDERS as PROFILE_BORDERS,
    PROFILE_MODES as PROFILE_MODES,
    ProfiledFunction as ProfiledFunction,
    ProfileSelection as ProfileSelection,
    read_python_profiles as read_python_profiles,
)
from .job.requests import (
    MAX_REQUESTED_STEPS as MAX_REQUESTED_STEPS,
    ConfigurationChange as ConfigurationChange,
    ConfigurationHistory as ConfigurationHistory,
    SettingChange as SettingChange,
    WindowContents as WindowContents,
    check_schedules as check_schedules,
    check_windows_enabled as check_windows_enabled,
    choose_contents as choose_contents,
    describe_changes as describe_changes,
    describe_rules as describe_rules,
    describe_schedule as describe_schedule,
    find_listening_nodes as find_listening_nodes,
    make_census_request as make_census_request,
    make_window_request as make_window_request,
    read_configuration as read_configuration,
    read_request_statuses as read_request_statuses,
    request_growth_census as request_growth_census,
    send_window_request as send_window_request,
)
from .job.results import (
    RESULTS_MAKER as RESULTS_MAKER,
    find_results as find_results,
    recall as recall,
    results_of as results_of,
    stores_results as stores_results,
)
from .job.samples import (
    Bins as Bins,
    BinSeries as BinSeries,
    SampledHeatmap as SampledHeatmap,
    aggregate_samples as aggregate_samples,
    build_sampled_heatmap as build_sampled_heatmap,
    choose_bins as choose_bins,
    read_job_samples as read_job_samples,
)
from .job.spans import (
    MODES as MODES,
    PARTS as PARTS,
    PERIODS as PERIODS,
    TRAINING_PHASES as TRAINING_PHASES,
    Inside as Inside,
    divide_by_phase as divide_by_phase,
    find_modes as find_modes,
    find_periods as find_periods,
    find_step_phases as find_step_phases,
    list_names as list_names,
    list_phases as list_phases,
    measure_callbacks as measure_callbacks,
    read_job_spans as read_job_spans,
    summarize_job_spans as summarize_job_spans,
)
from .job.stages import list_stages as list_stages, select_stage as select_stage
from .job.times import (
    Epochs as Epochs,
    IncarnationSteps as IncarnationSteps,
    JobStatistics as JobStatistics,
    RankEnd as RankEnd,
    count_cores as count_cores,
    count_devices_with_work as count_devices_with_work,
    count_gpus as count_gpus,
    count_machines as count_machines,
    count_ranks as count_ranks,
    explain_incarnations as explain_incarnations,
    explain_lost_node as explain_lost_node,
    explain_recording_end as explain_recording_end,
    find_epochs as find_epochs,
    find_recording_end as find_recording_end,
    find_repeated_ranks as find_repeated_ranks,
    has_ended as has_ended,
    is_lost as is_lost,
    job_borders as job_borders,
    job_state as job_state,
    job_statistics as job_statistics,
    list_incarnations as list_incarnations,
    machine_count as machine_count,
    node_state as node_state,
    read_rank_ends as read_rank_ends,
)
from .model.clock import Period as Period, RunClock as RunClock
from .model.engine import Engine as Engine
from .model.metrics import NodeMetrics as NodeMetrics, read_series as read_series
from .model.operator_threads import executes_with_jax as executes_with_jax
from .model.process_names import names_by_pid as names_by_pid, process_names as process_names
from .model.rank_numbers import (
    DIMENSIONS as DIMENSIONS,
    RankMesh as RankMesh,
    name_traces as name_traces,
    number_ranges as number_ranges,
    number_ranks as number_ranks,
    parse_mesh as parse_mesh,
    read_group_mesh as read_group_mesh,
)
from .model.run import (
    FETCH_KINDS as FETCH_KINDS,
    IDLE_GPU_RATIO as IDLE_GPU_RATIO,
    Rank as Rank,
    Run as Run,
)
from .model.tables import (
    EndedSpans as EndedSpans,
    SpanRows as SpanRows,
    find_processes as find_processes,
    find_stack_samples as find_stack_samples,
    read_ended_spans as read_ended_spans,
    read_spans as read_spans,
    sampling_period_ns as sampling_period_ns,
    spans_of as spans_of,
)
from .model.trace_records import (
    EXCLUDING as EXCLUDING,
    Doubt as Doubt,
    QualityIssue as QualityIssue,
)
from .model.traces import (
    Trace as Trace,
    load_traces as load_traces,
    reading_ahead as reading_ahead,
    release_memory as release_memory,
)
from .ranks.causal_graph import (
    MAX_REPLAY_ERROR_RATIO as MAX_REPLAY_ERROR_RATIO,
    PathPieces as PathPieces,
    PathRow as PathRow,
    RunGraph as RunGraph,
    build_run_graph as build_run_graph,
    build_run_graphs as build_run_graphs,
    explain_no_graph as explain_no_graph,
    get_run_graphs as get_run_graphs,
    list_path_rows as list_path_rows,
    name_path_pieces as name_path_pieces,
)
from .ranks.collectives import (
    NO_CALLS as NO_CALLS,
    NO_RECORDER as NO_RECORDER,
    NO_SHARED_COLLECTIVES as NO_SHARED_COLLECTIVES,
    REPLICAS as REPLICAS,
    NodeClocks as NodeClocks,
    RecordedCollectives as RecordedCollectives,
    SharedSteps as SharedSteps,
    align_node_clocks as align_node_clocks,
    has_replicas as has_replicas,
    measure_step_exchange as measure_step_exchange,
    read_calls as read_calls,
    read_recorded_collectives as read_recorded_collectives,
    read_shared_steps as read_shared_steps,
)
from .ranks.figures import (
    RANK_FIGURES as RANK_FIGURES,
    embedding_ratio as embedding_ratio,
    input_bytes as input_bytes,
    inputs_of as inputs_of,
    largest_model as largest_model,
    measure_ranks as measure_ranks,
    samples_at_a_time as samples_at_a_time,
)
from .ranks.span_graph import (
    build_span_graph as build_span_graph,
    explain_no_span_graph as explain_no_span_graph,
    get_span_graph as get_span_graph,
)
from .ranks.trace_parts import (
    MeasuredTrace as MeasuredTrace,
    TraceCommunication as TraceCommunication,
    combine_calls as combine_calls,
    measure_traces as measure_traces,
)
from .tensors.bins import (
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
from .tensors.boosted_models import (
    BoostedModel as BoostedModel,
    count_label_rows as count_label_rows,
    list_boosted_models as list_boosted_models,
    read_model_values as read_model_values,
    read_round_scalars as read_round_scalars,
)
from .tensors.elements import (
    TensorElements as TensorElements,
    list_elements as list_elements,
    read_elements as read_elements,
)
from .tensors.series import (
    frame_of_tensors as frame_of_tensors,
    list_tensors as list_tensors,
    read_scalars as read_scalars,
    read_tensors as read_tensors,
    select_scalars as select_scalars,
    select_tensor_values as select_tensor_values,
    select_tensors as select_tensors,
)
from .traces.compilations import (
    read_compilations as read_compilations,
    read_compiled_work as read_compiled_work,
)
from .traces.events import (
    DAY_NS as DAY_NS,
    DURATIONS as DURATIONS,
    EVENT_TABLES as EVENT_TABLES,
    DeviceFacts as DeviceFacts,
    MemoryTimeline as MemoryTimeline,
    count_multiprocessors as count_multiprocessors,
    has_stage_operations as has_stage_operations,
    list_event_names as list_event_names,
    read_devices as read_devices,
    read_memory_timelines as read_memory_timelines,
    read_stage_operations as read_stage_operations,
    read_trace_events as read_trace_events,
)
from .traces.kernels import (
    TF_DATA_PREFIX as TF_DATA_PREFIX,
    Replays as Replays,
    graph_calls_of as graph_calls_of,
    kernel_counters_of as kernel_counters_of,
    measure_tf_data as measure_tf_data,
    read_annotated_kernels as read_annotated_kernels,
    read_annotations as read_annotations,
    read_script_annotations as read_script_annotations,
    replays_of as replays_of,
    sum_by_name as sum_by_name,
)
from .traces.memory_snapshots import (
    MemorySnapshot as MemorySnapshot,
    read_memory_snapshots as read_memory_snapshots,
)
from .traces.step_activity import (
    DividedTrace as DividedTrace,
    begins_with_start_up as begins_with_start_up,
    divide_trace as divide_trace,
    divide_traces as divide_traces,
    is_compiled as is_compiled,
    is_range as is_range,
    name_wait_function as name_wait_function,
)
from .traces.steps import (
    CarryOver as CarryOver,
    Fetches as Fetches,
    MarkedSteps as MarkedSteps,
    RecordedWork as RecordedWork,
    StepSource as StepSource,
    accelerator_of as accelerator_of,
    calls_of as calls_of,
    device_work_of as device_work_of,
    find_marked_steps as find_marked_steps,
    host_categories as host_categories,
    join_step_durations as join_step_durations,
    marked_steps as marked_steps,
    measure_fetches as measure_fetches,
    named_steps as named_steps,
    read_fetches as read_fetches,
    read_marks as read_marks,
    recorded_work as recorded_work,
    select_named as select_named,
    streams_of as streams_of,
)
from .traces.unlike import (
    NO_COLLECTIVE as NO_COLLECTIVE,
    NO_DEVICE_WORK as NO_DEVICE_WORK,
    NO_HOST_WORK as NO_HOST_WORK,
    OTHER_STEPS as OTHER_STEPS,
    UnlikeTraces as UnlikeTraces,
    compare_traces as compare_traces,
    find_time_groups as find_time_groups,
    find_unlike_traces as find_unlike_traces,
    group_by_time as group_by_time,
    has_clock as has_clock,
    list_run_doubts as list_run_doubts,
    number_recordings as number_recordings,
)
