from __future__ import annotations

from stepscope.run.clock import RunClock
from stepscope.run.device_work import CarryOver, calls_of, device_work_of, streams_of
from stepscope.run.epochs import Epochs, find_epochs
from stepscope.run.job_times import (
    JobStatistics,
    is_lost,
    job_borders,
    job_statistics,
    machine_count,
)
from stepscope.run.metric_bins import Bins, BinSeries, aggregate_samples, choose_bins
from stepscope.run.model_facts import embedding_ratio, inputs_of, largest_model, samples_at_a_time
from stepscope.run.node_metrics import NodeMetrics
from stepscope.run.rank_collectives import RankCalls, collective_calls
from stepscope.run.run import Rank, Run
from stepscope.run.span_table import SpanRows, read_spans, spans_of
from stepscope.run.time_range import RunRange
from stepscope.run.trace_steps import (
    RecordedWork,
    host_categories,
    marked_steps,
    named_steps,
    recorded_work,
)
from stepscope.run.traces import QualityIssue, Trace, load_traces, reading_ahead, rows_in
from stepscope.run.window_requests import (
    MAX_REQUESTED_STEPS,
    WindowContents,
    answers_of,
    contents,
    listening_nodes,
    new_request,
)

__all__ = [
    "MAX_REQUESTED_STEPS",
    "BinSeries",
    "Bins",
    "CarryOver",
    "Epochs",
    "JobStatistics",
    "NodeMetrics",
    "QualityIssue",
    "Rank",
    "RankCalls",
    "RecordedWork",
    "Run",
    "RunClock",
    "RunRange",
    "SpanRows",
    "Trace",
    "WindowContents",
    "aggregate_samples",
    "answers_of",
    "calls_of",
    "choose_bins",
    "collective_calls",
    "contents",
    "device_work_of",
    "embedding_ratio",
    "find_epochs",
    "host_categories",
    "inputs_of",
    "is_lost",
    "job_borders",
    "job_statistics",
    "largest_model",
    "listening_nodes",
    "load_traces",
    "machine_count",
    "marked_steps",
    "named_steps",
    "new_request",
    "read_spans",
    "reading_ahead",
    "recorded_work",
    "rows_in",
    "samples_at_a_time",
    "spans_of",
    "streams_of",
]
