"""Content of a run: every table, column, unit and manifest, declared once.

Belongs here: names, types, units, one-sentence meanings, labels of payload fields, display hints,
JSON schemas, the schema version. Does not: reading, writing, computation, formatting.
"""

from __future__ import annotations

from stepscope.schema.configuration import (
    INTERVALS_MS,
    ConfigurationDecision,
    ConfigurationRequest,
    JobConfiguration,
    RuleSelection,
    WindowMode,
    WindowSchedule,
)
from stepscope.schema.event_declaration import Argument, EventKind, ExportedKey
from stepscope.schema.event_kinds import (
    EVENT_KINDS,
    EVENT_TABLES,
    NESTED_TABLES,
    STREAM_TABLES,
    event_kind,
)
from stepscope.schema.fact import Fact
from stepscope.schema.facts import (
    DEBUGGER,
    FACT_TYPES,
    BoostedModelFact,
    DataLoaderFact,
    DataLoaderSettingsFact,
    DataLoaderWorkerFact,
    DdpFact,
    FactT,
    FlightRecorderFact,
    FunctionFact,
    ImportedFact,
    LoaderSettings,
    ModelFact,
    ModelInput,
    ModelInputsFact,
    OptimizerFact,
    RankFact,
    ReplicasFact,
    SettingsFact,
    ShardedTensorsFact,
    SourceLineFact,
    StackCapture,
    StackSamplerFact,
    ThinnedFact,
    VersionsFact,
    WindowFact,
    WindowMissedFact,
    WindowUnfinishedFact,
    decode_facts,
)
from stepscope.schema.field_labels import (
    IDENTITY_FIELDS,
    FieldLabel,
    field_label,
    labels_of,
    structs_in,
    title_of,
)
from stepscope.schema.finding import (
    Delivery,
    DeliveryState,
    Finding,
    Progress,
    RuleRecord,
    RuleStatus,
)
from stepscope.schema.json_schemas import make_schemas
from stepscope.schema.launchers import Incarnation, JobStop, LauncherInfo, Lease, RankClaim
from stepscope.schema.malformed import MALFORMED_JSON
from stepscope.schema.nan_facts import (
    NanFollower,
    NanOriginFact,
    NanSearchFact,
    TensorValues,
)
from stepscope.schema.payload import Payload
from stepscope.schema.run import (
    SCHEMA_VERSION,
    SILENT_NS,
    IntervalChange,
    JobState,
    JobStatus,
    NodeInfo,
    ProcessInfo,
    RunInfo,
    SourceFile,
)
from stepscope.schema.runtime_names import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    COPY_LAUNCH,
    GRAPH_LAUNCH,
    SET_LAUNCH,
    WORK_LAUNCHES,
)
from stepscope.schema.source_files import library_of
from stepscope.schema.stuck import (
    STUCK,
    STUCK_ALERT,
    CalledCollective,
    RankAccount,
    RankState,
    StackFrame,
    StuckNode,
)
from stepscope.schema.table import RECORD_KEY, Column, Table
from stepscope.schema.tables.collective_calls import (
    COLLECTIVE_CALLS,
    INSPECTOR_LOG,
    UNTIMED_INSPECTOR_LOG,
)
from stepscope.schema.tables.collectives import COLLECTIVES
from stepscope.schema.tables.counters import COUNTERS
from stepscope.schema.tables.devices import DEVICES
from stepscope.schema.tables.flows import FLOWS
from stepscope.schema.tables.memory_categories import (
    MEMORY_ACTIONS,
    MEMORY_CATEGORIES,
    MEMORY_CATEGORY_NAMES,
)
from stepscope.schema.tables.metrics import METRIC_TYPES, METRICS, MetricType
from stepscope.schema.tables.other_events import OTHER_EVENTS
from stepscope.schema.tables.process_groups import PROCESS_GROUPS
from stepscope.schema.tables.python_profiles import PYTHON_PROFILES
from stepscope.schema.tables.quality import QUALITY, QUALITY_CHECKS
from stepscope.schema.tables.scalars import SCALARS
from stepscope.schema.tables.spans import AGGREGATE_KINDS, DURATION_VALUE_KINDS, SPAN_KINDS, SPANS
from stepscope.schema.tables.stacks import STACKS
from stepscope.schema.tables.stage_operations import STAGE_OPERATIONS
from stepscope.schema.tables.tensor_statistics import (
    TENSOR_ELEMENTS,
    TENSOR_HISTOGRAMS,
    TENSOR_STATISTICS,
    TENSOR_VALUES,
)
from stepscope.schema.tables.timeline import TIMELINE
from stepscope.schema.tables.traces import TRACES
from stepscope.schema.tables.tracks import TRACKS
from stepscope.schema.trace_names import (
    PROFILER_SUFFIXES,
    TRACE_SUFFIXES,
    XPLANE_SUFFIX,
    TraceFileName,
    is_event_file_name,
    parse_trace_name,
    rank_in_name,
)
from stepscope.schema.trials import Change, LossComparison, TrialPair, TriedChange
from stepscope.schema.units import Unit

__all__ = [
    "AGGREGATE_KINDS",
    "CAPTURE_BEGIN",
    "CAPTURE_END",
    "COPY_LAUNCH",
    "DEBUGGER",
    "DURATION_VALUE_KINDS",
    "EVENT_KINDS",
    "EVENT_TABLES",
    "FACT_TYPES",
    "GRAPH_LAUNCH",
    "IDENTITY_FIELDS",
    "INSPECTOR_LOG",
    "INTERVALS_MS",
    "MALFORMED_JSON",
    "MEMORY_ACTIONS",
    "MEMORY_CATEGORY_NAMES",
    "METRIC_TYPES",
    "NESTED_TABLES",
    "PROFILER_SUFFIXES",
    "QUALITY_CHECKS",
    "RECORD_KEY",
    "SCHEMA_VERSION",
    "SET_LAUNCH",
    "SILENT_NS",
    "SPANS",
    "SPAN_KINDS",
    "STREAM_TABLES",
    "STUCK",
    "STUCK_ALERT",
    "TABLES",
    "TRACE_SUFFIXES",
    "TRACE_TABLES",
    "UNTIMED_INSPECTOR_LOG",
    "WORK_LAUNCHES",
    "XPLANE_SUFFIX",
    "Argument",
    "BoostedModelFact",
    "CalledCollective",
    "Change",
    "Column",
    "ConfigurationDecision",
    "ConfigurationRequest",
    "DataLoaderFact",
    "DataLoaderSettingsFact",
    "DataLoaderWorkerFact",
    "DdpFact",
    "Delivery",
    "DeliveryState",
    "EventKind",
    "ExportedKey",
    "Fact",
    "FactT",
    "FieldLabel",
    "Finding",
    "FlightRecorderFact",
    "FunctionFact",
    "ImportedFact",
    "Incarnation",
    "IntervalChange",
    "JobConfiguration",
    "JobState",
    "JobStatus",
    "JobStop",
    "LauncherInfo",
    "Lease",
    "LoaderSettings",
    "LossComparison",
    "MetricType",
    "ModelFact",
    "ModelInput",
    "ModelInputsFact",
    "NanFollower",
    "NanOriginFact",
    "NanSearchFact",
    "NodeInfo",
    "OptimizerFact",
    "Payload",
    "ProcessInfo",
    "Progress",
    "RankAccount",
    "RankClaim",
    "RankFact",
    "RankState",
    "ReplicasFact",
    "RuleRecord",
    "RuleSelection",
    "RuleStatus",
    "RunInfo",
    "SettingsFact",
    "ShardedTensorsFact",
    "SourceFile",
    "SourceLineFact",
    "StackCapture",
    "StackFrame",
    "StackSamplerFact",
    "StuckNode",
    "Table",
    "TensorValues",
    "ThinnedFact",
    "TraceFileName",
    "TrialPair",
    "TriedChange",
    "Unit",
    "VersionsFact",
    "WindowFact",
    "WindowMissedFact",
    "WindowMode",
    "WindowSchedule",
    "WindowUnfinishedFact",
    "decode_facts",
    "event_kind",
    "field_label",
    "is_event_file_name",
    "labels_of",
    "library_of",
    "make_schemas",
    "parse_trace_name",
    "rank_in_name",
    "structs_in",
    "title_of",
]


TRACE_TABLES = (
    TRACES,
    QUALITY,
    TRACKS,
    DEVICES,
    PROCESS_GROUPS,
    *EVENT_TABLES,
    OTHER_EVENTS,
    COLLECTIVES,
    FLOWS,
    COUNTERS,
    TIMELINE,
)
"""Tables of the traces of a framework's profiler."""
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(SPANS, METRICS, STACKS, SCALARS, TENSOR_STATISTICS, TENSOR_HISTOGRAMS, TENSOR_VALUES),
        *(TENSOR_ELEMENTS, MEMORY_CATEGORIES, PYTHON_PROFILES, COLLECTIVE_CALLS, STAGE_OPERATIONS),
        *TRACE_TABLES,
    )
}
"""Tables of a run by name."""
