"""`recordings`: which recordings a run has, for a reader to choose from.

No range of time restricts it: a choice must not vanish because of a range that was chosen
elsewhere. A view of a recording that does not reach into the range says that.
"""

from __future__ import annotations

import msgspec

from stepscope.run import Run
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.trace_choice import missing_recordings


class RecordingName(msgspec.Struct, frozen=True, kw_only=True):
    """One recording of the framework's profiler."""

    trace: str
    """What `--trace` takes."""
    rank: int | None
    event_count: int
    duration_ns: int
    """From the start of its first event to the end of its last."""
    first_step: int | None
    """Of the window that it was made in; null for an imported file."""


class RecordingsView(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    recordings: list[RecordingName]
    """By rank."""
    missing: str | None


def recordings(run: Run, _options: ViewOptions = DEFAULTS) -> RecordingsView:
    """Which recordings a run has."""
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
        missing=missing_recordings(run, traces),
    )
