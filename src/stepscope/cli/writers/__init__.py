"""Payloads as text: one module per view with a custom layout, `generic` for the rest.

Belongs here: order, wording, columns. Does not: numbers; they are in the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console

from stepscope.cli.writers.compare import write_comparison
from stepscope.cli.writers.configuration import write_configuration
from stepscope.cli.writers.cost import write_cost
from stepscope.cli.writers.distributed import write_distributed
from stepscope.cli.writers.generic import (
    write_damage,
    write_generic,
    write_limitation,
    write_range,
)
from stepscope.cli.writers.input_pipeline import write_input_pipeline
from stepscope.cli.writers.insights import write_insights
from stepscope.cli.writers.overview import write_overview
from stepscope.cli.writers.series import (
    write_dashboard,
    write_heat,
    write_series,
    write_tensors,
)
from stepscope.cli.writers.steps import write_steps
from stepscope.cli.writers.system import write_system
from stepscope.cli.writers.usage import write_usage
from stepscope.comparison import Comparison
from stepscope.cost import Cost
from stepscope.schema import Payload
from stepscope.views import (
    ConfigurationView,
    Dashboard,
    DistributedView,
    InputPipelineView,
    InsightsView,
    Overview,
    Ranged,
    StepsView,
    SystemHeatView,
    SystemSeriesView,
    SystemView,
    TensorsView,
    UsageView,
)

_WRITERS: dict[type, Callable[[Console, Any], None]] = {
    Overview: write_overview,
    ConfigurationView: write_configuration,
    StepsView: write_steps,
    SystemView: write_system,
    InputPipelineView: write_input_pipeline,
    DistributedView: write_distributed,
    InsightsView: write_insights,
    Comparison: write_comparison,
    Cost: write_cost,
    Dashboard: write_dashboard,
    SystemHeatView: write_heat,
    SystemSeriesView: write_series,
    TensorsView: write_tensors,
    UsageView: write_usage,
}

__all__ = ["write", "write_generic"]


def write(out: Console, payload: msgspec.Struct) -> None:
    """Write the payload of any view."""
    if isinstance(payload, Payload):
        write_damage(out, payload.damage)
        write_limitation(out, payload.recording_end)
        write_limitation(out, payload.rounding)
    if isinstance(payload, Ranged) and payload.range is not None:
        write_range(out, payload.range)
    _WRITERS.get(type(payload), write_generic)(out, payload)
