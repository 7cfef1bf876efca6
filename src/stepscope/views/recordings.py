"""`recordings`: traces of a run, to choose from.

A range of time does not restrict the list: a choice must not vanish because of a range selected
elsewhere. A view of a trace outside the range explains that itself.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.run import Run
from stepscope.schema import Payload, field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.trace_choice import explain_no_traces


class RecordingName(msgspec.Struct, frozen=True, kw_only=True):
    """One trace of the framework's profiler."""

    trace: str
    """Name for `--trace`."""
    rank: int | None
    event_count: int
    duration_ns: int
    """Time from the start of its first event to the end of its last."""
    first_step: Annotated[int | None, field_label(display="identifier")]
    """First step of its window; null for an imported file."""


class RecordingsView(Payload, frozen=True, kw_only=True):
    """Payload of `recordings`."""

    recordings: list[RecordingName]
    """Traces by rank."""
    missing: str | None


def show_recordings(run: Run, _options: ViewOptions = DEFAULTS) -> RecordingsView:
    """Show the traces of a run."""
    traces = run.traces
    return RecordingsView(
        recordings=[
            RecordingName(
                trace=trace.name,
                rank=trace.rank,
                event_count=trace.event_count,
                duration_ns=trace.end_ns - trace.start_ns,
                first_step=None if trace.window_facts is None else trace.window_facts.first_step,
            )
            for trace in traces
        ],
        missing=explain_no_traces(run, traces),
    )
