from __future__ import annotations

from stepscope.run.annotations import (
    read_annotated_kernels,
    read_annotations,
    read_script_annotations,
)
from stepscope.run.clock import RunClock
from stepscope.run.configuration import (
    ConfigurationChange,
    ConfigurationHistory,
    SettingChange,
    check_schedules,
    describe_changes,
    describe_rules,
    describe_schedule,
    read_configuration,
)
from stepscope.run.damage import make_with_damage
from stepscope.run.data_loading import (
    DataLoaderAnalysis,
    LoaderWorker,
    analyse_loading,
    count_loader_workers,
)
from stepscope.run.device_work import CarryOver, calls_of, device_work_of, streams_of
from stepscope.run.epochs import Epochs, find_epochs
from stepscope.run.frames import (
    Frame,
    FrameColumns,
    frame_of,
    frame_of_query,
    frame_of_table,
    select_longest,
)
from stepscope.run.graph_captures import Replays, graph_calls_of, replays_of
from stepscope.run.heatmaps import SampledHeatmap, build_sampled_heatmap
from stepscope.run.job_samples import read_job_samples
from stepscope.run.job_spans import (
    Inside,
    list_names,
    list_phases,
    read_job_spans,
    summarize_job_spans,
)
from stepscope.run.job_times import (
    JobStatistics,
    explain_recording_end,
    find_recording_end,
    is_lost,
    job_borders,
    job_state,
    job_statistics,
    machine_count,
)
from stepscope.run.kernel_counters import kernel_counters_of
from stepscope.run.listening import find_listening_nodes
from stepscope.run.memory_timelines import MemoryTimeline, read_memory_timelines
from stepscope.run.metric_bins import Bins, BinSeries, aggregate_samples, choose_bins
from stepscope.run.metric_series import read_series
from stepscope.run.model_facts import (
    embedding_ratio,
    input_bytes,
    inputs_of,
    largest_model,
    samples_at_a_time,
)
from stepscope.run.name_totals import sum_by_name
from stepscope.run.next_record import find_next_record, has_records
from stepscope.run.node_metrics import NodeMetrics
from stepscope.run.opening import open_run, reopen_run
from stepscope.run.period import Period
from stepscope.run.phase_times import (
    MODES,
    PARTS,
    PERIODS,
    TRAINING_PHASES,
    divide_by_phase,
    find_modes,
    find_periods,
    find_step_phases,
)
from stepscope.run.profile_selection import (
    PROFILE_BORDERS,
    PROFILE_MODES,
    ProfileSelection,
)
from stepscope.run.python_profiles import ProfiledFunction, read_python_profiles
from stepscope.run.rank_collectives import collective_calls
from stepscope.run.request_waits import name_wait_function
from stepscope.run.run import IDLE_GPU_RATIO, Rank, Run
from stepscope.run.scalars import LoggedScalars, read_scalars
from stepscope.run.span_table import (
    EndedSpans,
    SpanRows,
    find_processes,
    read_ended_spans,
    read_spans,
    spans_of,
)
from stepscope.run.stack_table import find_stack_samples, sampling_period_ns
from stepscope.run.step_activity import (
    DividedTrace,
    divide_trace,
    divide_traces,
    is_range,
)
from stepscope.run.trace_devices import DeviceFacts, count_multiprocessors, read_devices
from stepscope.run.trace_events import (
    DAY_NS,
    DURATIONS,
    EVENT_TABLES,
    list_event_names,
    read_trace_events,
)
from stepscope.run.trace_fetches import Fetches, TracedFetches, measure_fetches, read_fetches
from stepscope.run.trace_steps import (
    MarkedSteps,
    RecordedWork,
    StepSource,
    find_marked_steps,
    host_categories,
    join_step_durations,
    marked_steps,
    named_steps,
    read_marks,
    recorded_work,
    select_named,
)
from stepscope.run.traces import QualityIssue, Trace, load_traces, reading_ahead
from stepscope.run.window_requests import (
    MAX_REQUESTED_STEPS,
    WindowContents,
    check_windows_enabled,
    choose_contents,
    make_window_request,
    read_request_statuses,
    send_window_request,
)

__all__ = [
    "DAY_NS",
    "DURATIONS",
    "EVENT_TABLES",
    "IDLE_GPU_RATIO",
    "MAX_REQUESTED_STEPS",
    "MODES",
    "PARTS",
    "PERIODS",
    "PROFILE_BORDERS",
    "PROFILE_MODES",
    "TRAINING_PHASES",
    "BinSeries",
    "Bins",
    "CarryOver",
    "ConfigurationChange",
    "ConfigurationHistory",
    "DataLoaderAnalysis",
    "DeviceFacts",
    "DictColumn",
    "DividedTrace",
    "EndedSpans",
    "Epochs",
    "Fetches",
    "Frame",
    "FrameColumns",
    "Inside",
    "JobStatistics",
    "LoaderWorker",
    "LoggedScalars",
    "MarkedSteps",
    "MemoryTimeline",
    "NodeMetrics",
    "Period",
    "ProfileSelection",
    "ProfiledFunction",
    "QualityIssue",
    "Rank",
    "RecordedWork",
    "Replays",
    "RequestState",
    "RequestStatus",
    "Run",
    "RunClock",
    "RunReader",
    "SampledHeatmap",
    "SettingChange",
    "SpanRows",
    "StepSource",
    "Trace",
    "TracedFetches",
    "UnreachableError",
    "WindowContents",
    "aggregate_samples",
    "analyse_loading",
    "build_sampled_heatmap",
    "cache_home",
    "calls_of",
    "check_schedules",
    "check_windows_enabled",
    "choose_bins",
    "choose_contents",
    "collective_calls",
    "count_loader_workers",
    "count_multiprocessors",
    "describe_changes",
    "describe_rules",
    "describe_schedule",
    "device_work_of",
    "divide_by_phase",
    "divide_trace",
    "divide_traces",
    "embedding_ratio",
    "explain_recording_end",
    "find_epochs",
    "find_listening_nodes",
    "find_marked_steps",
    "find_modes",
    "find_next_record",
    "find_periods",
    "find_processes",
    "find_recording_end",
    "find_stack_samples",
    "find_step_phases",
    "frame_of",
    "frame_of_query",
    "frame_of_table",
    "graph_calls_of",
    "has_records",
    "host_categories",
    "input_bytes",
    "inputs_of",
    "is_lost",
    "is_range",
    "job_borders",
    "job_state",
    "job_statistics",
    "join_step_durations",
    "kernel_counters_of",
    "largest_model",
    "list_event_names",
    "list_names",
    "list_phases",
    "literal",
    "load_traces",
    "machine_count",
    "make_window_request",
    "make_with_damage",
    "marked_steps",
    "measure_fetches",
    "name_wait_function",
    "named_steps",
    "open_run",
    "read_annotated_kernels",
    "read_annotations",
    "read_configuration",
    "read_devices",
    "read_ended_spans",
    "read_fetches",
    "read_job_samples",
    "read_job_spans",
    "read_marks",
    "read_memory_timelines",
    "read_python_profiles",
    "read_request_statuses",
    "read_scalars",
    "read_script_annotations",
    "read_series",
    "read_spans",
    "read_trace_events",
    "reading_ahead",
    "recorded_work",
    "reopen_run",
    "replays_of",
    "samples_at_a_time",
    "sampling_period_ns",
    "select_longest",
    "select_named",
    "send_window_request",
    "size_of",
    "spans_of",
    "streams_of",
    "sum_by_name",
    "summarize_job_spans",
]


from stepscope.store import (
    DictColumn,
    RequestState,
    RequestStatus,
    RunReader,
    UnreachableError,
    cache_home,
    literal,
    size_of,
)
