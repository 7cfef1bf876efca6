"""Table of quality issues of each trace."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE
from stepscope.schema.table import Table, column

QUALITY = Table(
    name="quality",
    doc="Quality of the traces: one row per check that found an issue, or that counts events.",
    key=("trace", "kind"),
    columns=(
        TRACE,
        column("kind", "VARCHAR", "Check; see `QUALITY_CHECKS`."),
        column("count", "BIGINT", "Affected events.", "count"),
        column("of_count", "BIGINT NULL", "Checked events.", "count"),
        column("worst_ns", "BIGINT NULL", "Largest violation, if violations have a size.", "ns"),
        column("detail", "VARCHAR NULL", "One sentence with further information."),
    ),
)
QUALITY_CHECKS: dict[str, str] = {
    "unlinked_device": "Kernels, copies and sets whose launch is not in the file.",
    "carry_over": "Device work that was launched before the window began.",
    "unlinked_launch": "Launches whose kernel is not in the file.",
    "captured_by_kind": "Work of replayed graphs whose captured operators were identified by the "
    "number and kinds of the launches; no file records which capture became which graph.",
    "zero_correlation": "Device work without a correlation number, as some profilers write it.",
    "duplicate_correlation": "Launches that share a correlation number with another launch.",
    "same_stream_overlap": "Device work that starts before earlier work of its stream has ended.",
    "impossible_duration": "Events whose duration is negative or extends far outside the window; "
    "they are excluded from every sum.",
    "impossible_time": "Events whose start is zero or far outside the window; they are excluded "
    "from every sum.",
    "overhang": "Ranges that end after the range in which they start; if it is at most 1000 ns "
    "later, the range counts as nested.",
    "unmatched_external_id": "Runtime calls whose operator was identified by time, not by number.",
    "lost_text": "Bytes of the file that contain no readable event.",
    "repaired_event": "Events read after repairing invalid JSON.",
    "shortened_text": "Texts of more than 65,536 characters, of which only the start was kept.",
    "truncated": "The file is truncated.",
    "dropped_by_recorder": "Records that the profiler reports as lost or left out.",
    "duplicate_step": "Steps that occur more than once in the file.",
    "unmatched_flow": "Arrows with only one end.",
    "clock_base": "Reference of the file's times.",
}
"""Every value of `kind`, with what it counts."""
