"""What a run contains: every table, column, unit and manifest, declared once.

Belongs here: names, types, units, one-sentence meanings, display hints, the schema version.
Does not: reading, writing, computing, formatting.
"""

from __future__ import annotations

from stepscope.schema.run import (
    SCHEMA_VERSION,
    JobState,
    JobStatus,
    NodeInfo,
    ProcessInfo,
    RunInfo,
)
from stepscope.schema.table import Column, Table
from stepscope.schema.tables.metrics import METRIC_TYPES, METRICS, MetricType
from stepscope.schema.tables.operators import OPERATORS
from stepscope.schema.tables.scalars import SCALARS
from stepscope.schema.tables.spans import SPANS
from stepscope.schema.tables.stacks import STACKS

TABLES: dict[str, Table] = {
    table.name: table for table in (SPANS, METRICS, STACKS, SCALARS, OPERATORS)
}
"""Every table of a run by name."""

__all__ = [
    "METRICS",
    "METRIC_TYPES",
    "OPERATORS",
    "SCALARS",
    "SCHEMA_VERSION",
    "SPANS",
    "STACKS",
    "TABLES",
    "Column",
    "JobState",
    "JobStatus",
    "MetricType",
    "NodeInfo",
    "ProcessInfo",
    "RunInfo",
    "Table",
]
