"""Tables of traces: devices, process groups, quality, tracks, levels of detail, memory."""

from __future__ import annotations

from stepscope.schema.table import Table, column
from stepscope.schema.tables.trace_events import ARGS, TRACE, TRACK

DEVICES = Table(
    name="devices",
    doc="One row per device that a trace describes.",
    key=("trace", "device"),
    columns=(
        TRACE,
        column("device", "INTEGER", "Number of the device in the file."),
        column("name", "VARCHAR", "Model."),
        column("memory_bytes", "BIGINT NULL", "Memory.", "bytes"),
        column("compute_major", "INTEGER NULL", "Compute capability, major (AMD: architecture)."),
        column("compute_minor", "INTEGER NULL", "Compute capability, minor."),
        column(
            "multiprocessor_count", "INTEGER NULL", "Multiprocessors or compute units.", "count"
        ),
        column(
            "threads_per_multiprocessor",
            "INTEGER NULL",
            "Maximum resident threads per multiprocessor.",
            "count",
        ),
        column("threads_per_block", "INTEGER NULL", "Maximum threads per block.", "count"),
        column("warp_size", "INTEGER NULL", "Threads per warp or wavefront.", "count"),
        column("registers_per_block", "INTEGER NULL", "Maximum registers per block.", "count"),
        column(
            "shared_memory_per_block_bytes",
            "BIGINT NULL",
            "Maximum shared memory per block.",
            "bytes",
        ),
        ARGS,
    ),
)


PROCESS_GROUPS = Table(
    name="process_groups",
    doc="One row per group of ranks that a trace describes.",
    key=("trace", "name"),
    columns=(
        TRACE,
        column("name", "VARCHAR", "Name of the group."),
        column("description", "VARCHAR NULL", "Purpose of the group."),
        column("backend", "VARCHAR NULL", "Communication backend."),
        column("size", "INTEGER NULL", "Ranks in the group.", "count"),
        column("ranks", "VARCHAR NULL", "Ranks as a JSON array; the profiler may cut it off."),
        ARGS,
    ),
)


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
MAX_EARLY_NS = 10_000
"""Error of the clock of a device, by which work may start before the call that launched it."""
QUALITY_CHECKS: dict[str, str] = {
    "device_not_understood": "Events that resemble work of a device, and whose meaning is not "
    "known, so nothing is concluded from an idle or absent device.",
    "several_processes": "Processes of the host in the file that launch work or mark steps, as of "
    "several ranks; launches whose number another process has, too, are tied to no work.",
    "unreadable_rank": "Ranks in the file that are no numbers of ranks.",
    "copied_event": "Events that equal an earlier one of the file in everything, and do not count.",
    "device_layout": "Events read as work of devices, or as calls of their runtime, by the layout "
    "of another maker or by their launches.",
    "unlinked_device": "Kernels, copies and sets whose launch is not in the file.",
    "carry_over": "Device work that was launched before the window began.",
    "unlinked_launch": "Launches whose kernel is not in the file.",
    "captured_by_kind": "Work of replayed graphs whose captured operators were identified by the "
    "number and kinds of the launches; no file records which capture became which graph.",
    "zero_correlation": "Device work without a correlation number, as some profilers write it.",
    "duplicate_correlation": "Launches that share a correlation number with another launch.",
    "same_stream_overlap": "Device work that starts before earlier work of its stream has ended.",
    "overflow": "Device work that lasts more than 10 us beyond the start of the next work of its "
    "stream; it is cut there.",
    "clock_setback": "Times at which the clock was set back: steps, or operators and calls of one "
    "thread, that start before those that began earlier by their numbers.",
    "unended": "Events that end long after all others of the file, by their duration: device work "
    "by more than the time of these and 100 ms, operators, calls and annotations by ten times that "
    "and 10 s. They are cut where the last of the others ends.",
    "crowded_stream": "Device work of streams that would have more than 32 works at once, which no "
    "device does: their durations are wrong.",
    "unit": "Almost all launches, or operators, last longer than 1 ms or shorter than 100 ns: the "
    "times are perhaps in another unit than microseconds.",
    "late_device": "Waits of the host for a device that end more than 10 us before the work that "
    "was launched before them, where these are at least half of them: the clocks of host and "
    "device differ.",
    "early_device": "Device work that starts more than 10 us before the call that launched it: the "
    "clocks of host and device differ.",
    "impossible_duration": "Events whose duration is negative or extends far outside the window; "
    "they are excluded from every sum.",
    "impossible_time": "Events whose start is zero or far outside the window; they are excluded "
    "from every sum.",
    "unpaired": "Begin events without an end, and end events without a beginning: their ranges are "
    "in no figure.",
    "overhang": "Ranges that end after the range in which they start; if it is at most 1000 ns "
    "later, the range counts as nested.",
    "unmatched_external_id": "Runtime calls whose operator was identified by time, not by number.",
    "lost_text": "Bytes of the file that contain no readable event.",
    "repaired_event": "Events read after repairing invalid JSON.",
    "shortened_text": "Texts of more than 65,536 characters, of which only the start was kept.",
    "truncated": "The end of the file is missing, of unknown length.",
    "wrong_checksum": "Compressed streams whose text is another than the one that was compressed.",
    "dropped_by_recorder": "Records that the profiler reports as lost or left out.",
    "duplicate_step": "Steps that occur more than once in the file; the last of each counts.",
    "unmatched_flow": "Arrows with only one end.",
    "missing_column": "Tables and columns that the file lacks, as those of another version; their "
    "values are unknown.",
    "left_out_process": "Processes of the file that call the runtime without any work or range, "
    "which are not imported.",
    "recorder_message": "Warnings and errors of the profiler about the recording.",
    "no_step_range": "Ranges that were named as steps, and are not in the file.",
    "copy": "Files of the import that hold the same trace, which counts once.",
    "refused": "Files of the import that were not imported; noted at its first trace.",
    "clock_base": "Reference of the file's times.",
}
"""Every value of `kind`, with what it counts."""
DOUBTS: dict[str, str] = {
    "several_processes": "One file holds {count} processes that launch work or mark steps, as of "
    "several ranks ({detail}): whose work is whose, and who waits for whom, is unknown",
    "copied_event": "{count} of {of_count} events equal an earlier one of the file, and count once",
    "clock_setback": "The clock was set back during the recording (setbacks: {count}, by up to "
    "{worst}): {detail}",
    "crowded_stream": "{count} of {of_count} kernels, copies and sets are on streams that would "
    "have {detail}, which no device does: the durations are wrong",
    "late_device": "{count} of {of_count} waits of the host for the device end before the work "
    "that they wait for, by about {worst}: the clocks of host and device differ, or durations are "
    "wrong",
    "unit": "The unit of the times is in doubt: {detail}",
    "impossible_time": "{count} of {of_count} events {have} no possible time, and {are} in no "
    "figure{more}",
    "device_not_understood": "{count} of {of_count} events resemble work of a device and are not "
    "understood, so nothing is concluded about it ({detail})",
    "unreadable_rank": "The file states a rank that is no number of one ({detail}), so the trace "
    "has none",
    "lost_text": "{share} of the text could not be read",
    "truncated": "The end of the file is missing, of unknown length: {detail}",
    "wrong_checksum": "The file is damaged: {detail}",
    "impossible_duration": "{count} of {of_count} events {have} an impossible duration, and "
    "{are} in no figure{more}",
    "unpaired": "{count} of {of_count} begin and end events {have} no partner, and the range of "
    "each is in no figure{more}",
    "unended": "Events whose end was not recorded: {count}. They last up to {worst} longer than "
    "everything else in the file, and are cut there",
    "overflow": "{count} of {of_count} kernels, copies and sets last beyond the start of the next "
    "one of their stream, by up to {worst}, and are cut there",
    "early_device": "{count} of {of_count} kernels, copies and sets start before their launch: the "
    "clocks of host and device differ by about {worst}",
    "duplicate_step": "{count} step ranges have the number of a later one, which counts instead",
    "no_step_range": "No range of the trace is called {detail}, so its steps are those that other "
    "ranges show",
}
"""Checks whose issues change what a trace seems to say, with a sentence each; the worst first."""


TRACES = Table(
    name="traces",
    doc="One row per trace: one process, one window of a framework's profiler. It is written last, "
    "so a trace without a row was not stored completely.",
    key=("trace",),
    columns=(
        column("trace", "BIGINT", "Number of the trace, unique within the run."),
        column("name", "VARCHAR", "Label: the imported file, its worker, or process and window."),
        column("node", "VARCHAR NULL", "Host on which it was recorded, if known."),
        column(
            "process",
            "VARCHAR NULL",
            "Process that recorded it; its manifest is processes/<process>.json. Null for an "
            "imported file.",
        ),
        column(
            "window",
            "INTEGER NULL",
            "Number of the window in its process; of an imported file, that of the span of its "
            "worker, from 1, if a worker has several.",
        ),
        column("rank", "INTEGER NULL", "Rank of the process in its job."),
        column("world_size", "INTEGER NULL", "Ranks of the job.", "count"),
        column("backend", "VARCHAR NULL", "Communication backend in the file, such as nccl."),
        column("start_ns", "BIGINT", "Start of the earliest complete event.", "epoch_ns"),
        column("end_ns", "BIGINT", "End of the latest complete event.", "epoch_ns"),
        column(
            "base_ns",
            "BIGINT",
            "Offset of all times in the file; it is included in every stored time.",
            "epoch_ns",
        ),
        column("event_count", "BIGINT", "Events in the file, of every kind.", "count"),
        column("has_shapes", "SMALLINT", "1 if operators have the shapes of their inputs."),
        column("has_stacks", "SMALLINT", "1 if it contains Python functions or call stacks."),
        column("has_memory", "SMALLINT", "1 if it contains allocations."),
        column("metadata", "VARCHAR", "All other top-level fields of the file, as a JSON object."),
    ),
)


TRACKS = Table(
    name="tracks",
    doc="One row per host thread or device stream of a trace.",
    key=("trace", "track"),
    columns=(
        TRACE,
        column("track", "INTEGER", "Number of the track within its trace."),
        column("kind", "VARCHAR", "host, device or other."),
        column("pid", "VARCHAR", "Process in the file; the device number for device streams."),
        column("tid", "VARCHAR", "Thread in the file; the stream number for device streams."),
        column("pid_is_text", "SMALLINT", "Strings in the file: bit 1 the pid, bit 2 the tid."),
        column("device", "INTEGER NULL", "Device of a stream."),
        column("stream", "BIGINT NULL", "Number of a stream."),
        column("process_name", "VARCHAR NULL", "Name of the process."),
        column("process_labels", "VARCHAR NULL", "Labels of the process, such as CPU or GPU 0."),
        column("process_order", "BIGINT NULL", "Sort position of the process in the profiler."),
        column("thread_name", "VARCHAR NULL", "Name of the thread or stream."),
        column("thread_order", "BIGINT NULL", "Sort position of the thread in the profiler."),
    ),
)


TIMELINE = Table(
    name="timeline",
    doc="Summaries of a trace for zoomed-out pictures. A bucket of level L is 4^L microseconds "
    "wide. One row sums up the events of a track's row that are shorter than a bucket and start in "
    "it. Events that are longer than the buckets of the finest level have rows of their own: a "
    "picture at level L consists of the summaries of that level and of the events whose level is L "
    "or higher.",
    key=("trace", "track", "depth", "level", "start_ns"),
    columns=(
        TRACE,
        TRACK,
        column(
            "depth",
            "SMALLINT",
            "Row within the track: number of enclosing ranges or, for an event that overlaps "
            "another one, the first free row below. Negative rows hold the shadows of host ranges.",
            "count",
        ),
        column(
            "level",
            "SMALLINT",
            "Level of detail. For an event: the coarsest level whose buckets are not longer than "
            "it, or the coarsest level of all if it was moved to a lower row.",
        ),
        column("id", "BIGINT NULL", "Id of an event; null for a summary."),
        column("start_ns", "BIGINT", "Start of the first event.", "epoch_ns"),
        column("duration_ns", "BIGINT", "Until the last event ends.", "ns", stored_type="DOUBLE"),
        column("count", "BIGINT", "Number of events.", "count"),
        column("busy_ns", "BIGINT", "Sum of the durations.", "ns", stored_type="DOUBLE"),
        column("longest_ns", "BIGINT", "Longest duration.", "ns", stored_type="DOUBLE"),
        column("longest_name", "VARCHAR", "Name of the longest event."),
    ),
)


MEMORY_CATEGORIES = Table(
    name="memory_categories",
    doc="One row per change of memory of a category in a memory timeline of torch.profiler "
    "(`export_memory_timeline`), which is of one device.",
    key=("timeline", "id"),
    columns=(
        column("timeline", "BIGINT", "Number of the memory timeline; drawn at import."),
        column("id", "BIGINT", "Index of the change in the file."),
        column("name", "VARCHAR", "Name of the file."),
        column("t_ns", "BIGINT", "Time; that of the first change for earlier memory.", "epoch_ns"),
        column(
            "action",
            "VARCHAR NULL",
            "preexisting: allocated before; create; increment_version: moved to or from the "
            "category by a write; destroy. Null in a file of sums by time.",
        ),
        column(
            "category",
            "VARCHAR",
            "parameter, optimizer_state, input, temporary, activation, gradient, autograd_detail "
            "or unknown.",
        ),
        column("size_bytes", "BIGINT", "Bytes, negative for a decrease.", "bytes"),
    ),
)
MEMORY_ACTIONS = ("preexisting", "create", "increment_version", "destroy")
"""Actions by torch's number of them, which counts from 1."""
MEMORY_CATEGORY_NAMES = (
    *("parameter", "optimizer_state", "input", "temporary", "activation"),
    *("gradient", "autograd_detail", "unknown"),
)
"""Categories by torch's number of them, which counts from 0."""
