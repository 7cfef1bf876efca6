"""How payloads look as text: one module per view with a form of its own, `generic` for the rest.

Belongs here: order, wording, columns. Does not: numbers; they are in the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console

from stepscope.cli.writers.generic import write_generic
from stepscope.cli.writers.input_pipeline import write_input_pipeline
from stepscope.cli.writers.overview import write_overview
from stepscope.cli.writers.steps import write_steps
from stepscope.cli.writers.system import write_system
from stepscope.views.input_pipeline import InputPipelineView
from stepscope.views.overview import Overview
from stepscope.views.steps import StepsView
from stepscope.views.system import SystemView

_OWN: dict[type, Callable[[Console, Any], None]] = {
    Overview: write_overview,
    StepsView: write_steps,
    SystemView: write_system,
    InputPipelineView: write_input_pipeline,
}

__all__ = ["write", "write_generic"]


def write(out: Console, payload: msgspec.Struct) -> None:
    """Write the payload of any view."""
    _OWN.get(type(payload), write_generic)(out, payload)
