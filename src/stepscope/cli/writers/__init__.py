"""Payloads as text: one module per view with a custom layout, `generic` for the rest.

Belongs here: order, wording, columns. Does not: numbers; they are in the payload.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console

from stepscope import schema, views
from stepscope.cli.writers.generic import (
    write_damage,
    write_doubts,
    write_generic,
    write_limitation,
    write_range,
)

WRITERS = {
    "Comparison": "compare:write_comparison",
    "ConfigurationView": "job:write_configuration",
    "Cost": "cost:write_cost",
    "CriticalPathView": "critical_path:write_critical_path",
    "Dashboard": "series:write_dashboard",
    "DistributedView": "steps:write_distributed",
    "Fleet": "fleet:write_fleet",
    "InputPipelineView": "steps:write_input_pipeline",
    "InsightsView": "findings:write_insights",
    "JobTimeView": "job_time:write_job_time",
    "NodesView": "steps:write_nodes",
    "Overview": "job:write_overview",
    "RanksView": "steps:write_ranks",
    "StepsView": "steps:write_steps",
    "SystemHeatView": "series:write_heat",
    "SystemSeriesView": "series:write_series",
    "SystemView": "job:write_system",
    "TensorsView": "series:write_tensors",
    "WhatIfView": "critical_path:write_what_if",
    "XgboostView": "boosting:write_xgboost",
    "UsageView": "job:write_usage",
}
"""Module and function by the name of the payload. A module is imported when it is used: together
they import half of the project."""

__all__ = ["WRITERS", "load_writer", "write", "write_generic"]


def write(out: Console, payload: msgspec.Struct) -> None:
    """Write the payload of any view."""
    if isinstance(payload, schema.Payload):
        write_damage(out, payload.damage)
        write_doubts(out, payload.doubts)
        payload = _leave_out_doubts(payload)
        write_limitation(out, payload.recording_end)
        write_limitation(out, payload.rounding)
    if isinstance(payload, views.Ranged) and payload.range is not None:
        write_range(out, payload.range)
    load_writer(type(payload))(out, payload)


def _leave_out_doubts(payload: schema.Payload) -> schema.Payload:
    """Leave the doubts, which are the first lines, out of the quality issues of a payload."""
    quality: Sequence[views.QualityNote] = getattr(payload, "quality", ())
    rest = [note for note in quality if not any(doubt in note.sentence for doubt in payload.doubts)]
    return payload if len(rest) == len(quality) else msgspec.structs.replace(payload, quality=rest)


def load_writer(payload_type: type) -> Callable[[Console, Any], None]:
    """Import the writer of a payload: of an installed view always `write_generic`."""
    is_installed = payload_type.__module__.partition(".")[0] != __name__.partition(".")[0]
    if is_installed or payload_type.__name__ not in WRITERS:
        return write_generic
    module, _, function = WRITERS[payload_type.__name__].partition(":")
    writer: Callable[[Console, Any], None] = getattr(
        importlib.import_module(f"{__name__}.{module}"), function
    )
    return writer
