"""Intervals of the job's own time: phases of a step, input-pipeline work, annotations."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, Column, Table

SPANS = Table(
    name="spans",
    doc="One row per interval or mark recorded inside the job. Spans of one thread nest; "
    "`depth` counts the spans open around one when it began.",
    key=("process", "log", "seq"),
    columns=(
        *PROVENANCE,
        Column(name="kind", type="VARCHAR", doc="What the interval is; see `SPAN_KINDS`."),
        Column(name="name", type="VARCHAR", doc="Name given by the user or the adapter."),
        Column(
            name="labels",
            type="VARCHAR",
            nullable=True,
            doc="Labels of an annotation as a JSON object.",
        ),
        Column(name="start_ns", type="BIGINT", unit="epoch_ns", doc="When it began."),
        Column(
            name="end_ns",
            type="BIGINT",
            unit="epoch_ns",
            nullable=True,
            doc="When it ended; null when the process ended first.",
        ),
        Column(name="depth", type="SMALLINT", unit="count", doc="Spans open around it."),
        Column(
            name="flags",
            type="SMALLINT",
            unit="bitmask",
            doc="1 asynchronous, 2 gradients disabled, 4 ended without a result.",
        ),
        Column(
            name="value",
            type="BIGINT",
            doc="A number whose meaning depends on the kind; see `SPAN_KINDS`.",
        ),
    ),
)

SPAN_KINDS: dict[str, str] = {
    "annotation": "The user's own interval. value: unused.",
    "step": "A mark: the user said that a step ends here. value: the user's step number, or -1.",
    "mode": "A region the user named TRAIN, EVAL, PREDICT or another mode; the name says which.",
    "data_wait": "The training thread asks a DataLoader iterator for a batch. "
    "value: batches that lay ready when it asked, 0 unless the next one was among them, -1 if "
    "unknown.",
    "loader_start": "A DataLoader iterator is made; worker processes start here.",
    "forward": "Outermost module call. value: identity of the module. Flag 2: gradients disabled.",
    "backward": "A backward pass.",
    "optimizer": "An optimizer step. value: identity of the optimizer.",
    "h2d": "A copy from host to device. value: bytes.",
    "communication": "A collective the script calls itself. value: bytes, 0 if unknown.",
    "checkpoint": "A checkpoint is written. value: bytes, 0 if unknown.",
    "compile": "torch.compile compiles; the name says what asked for it. value: how often the same "
    "code was compiled before.",
    "garbage_collection": "Python's garbage collector runs for 0.1 ms or longer; the name is the "
    "line of the user's that was running. value: the generation.",
    "fetch": "One batch is made, in a worker or in the training thread. "
    "value: nanoseconds of CPU the thread used.",
    "samples": "All __getitem__ or next calls of one batch; duration is the batch's extent. "
    "value: nanoseconds inside the calls. labels: none; name: the dataset class.",
    "sample": "One __getitem__ or next call that took at least 0.1 ms.",
    "transform": "All calls of one transform in one batch. value: nanoseconds inside the calls.",
    "collate": "Samples become a batch.",
    "pin": "A batch is copied into pinned memory.",
    "device": "A phase as the device executed it; the name is the phase.",
    "window": "The framework's own profiler records here. value: the number of the window.",
}
"""Every value of `kind`, with what it means and what `value` holds."""
