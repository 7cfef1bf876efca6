"""What is doubtful about each recording."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE
from stepscope.schema.table import Column, Table

QUALITY = Table(
    name="quality",
    doc=(
        "How far a recording can be trusted: one row per check that found something, or that "
        "counts."
    ),
    key=("trace", "kind"),
    columns=(
        TRACE,
        Column(name="kind", type="VARCHAR", doc="What was checked; see `QUALITY_CHECKS`."),
        Column(name="count", type="BIGINT", unit="count", doc="Events concerned."),
        Column(name="of_count", type="BIGINT", unit="count", nullable=True, doc="Out of how many."),
        Column(
            name="worst_ns",
            type="BIGINT",
            unit="ns",
            nullable=True,
            doc="The largest violation, where one has a size.",
        ),
        Column(
            name="detail",
            type="VARCHAR",
            nullable=True,
            doc="One sentence with what a reader should know.",
        ),
    ),
)
QUALITY_CHECKS: dict[str, str] = {
    "unlinked_device": "Kernels, copies and sets whose launch the file does not hold.",
    "carry_over": "Device work that was launched before the window began.",
    "unlinked_launch": "Launches whose kernel the file does not hold.",
    "captured_by_kind": "Work of replayed graphs whose captured operators were found by the number "
    "and kinds of the launches; no file says which capture became which graph.",
    "zero_correlation": "Device work without a correlation number, as some recorders write it.",
    "duplicate_correlation": "Launches that share a correlation number with another.",
    "same_stream_overlap": "Device work that begins before earlier work of its stream has ended.",
    "impossible_duration": "Events whose duration is negative or reaches far outside the window; "
    "they are left out of every sum.",
    "impossible_time": "Events whose start is zero or far outside the window; left out likewise.",
    "overhang": "Ranges that end after the one they begin in; up to 1 us late they belong to it.",
    "unmatched_external_id": "Runtime calls whose operator was found by time, not by number.",
    "lost_text": "Bytes of the file that held no readable event.",
    "repaired_event": "Events read after mending what is no valid JSON.",
    "truncated": "The file ends before its end.",
    "dropped_by_recorder": "Records that the recorder says it lost or left out.",
    "duplicate_step": "Steps that the file names more than once.",
    "unmatched_flow": "Arrows with only one end.",
    "clock_base": "How the file's times are based.",
}
"""Every value of `kind`, with what it counts."""
