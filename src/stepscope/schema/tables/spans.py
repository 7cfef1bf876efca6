"""Table of spans in the job: phases of a step, input-pipeline work, annotations."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

SPANS = Table(
    name="spans",
    doc="One row per interval or mark recorded inside the job. Spans of one thread nest; `depth` "
    "counts the spans that are open when one starts.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("kind", "VARCHAR", "Kind of span; see `SPAN_KINDS`."),
        column("name", "VARCHAR", "Name given by the user or the framework adapter."),
        column("labels", "VARCHAR NULL", "Labels of an annotation as a JSON object."),
        column("start_ns", "BIGINT", "Start.", "epoch_ns"),
        column("end_ns", "BIGINT NULL", "End; null if the process ended first.", "epoch_ns"),
        column("depth", "SMALLINT", "Enclosing spans.", "count"),
        column(
            "flags",
            "SMALLINT",
            "1 asynchronous, 2 gradients disabled, 4 ended without a result, 8 module in "
            "evaluation mode, 16 mark, 32 value includes a size, 64 no torch optimizer exists.",
            "bitmask",
        ),
        column("value", "BIGINT", "Number whose meaning depends on the kind; see `SPAN_KINDS`."),
    ),
)

SPAN_KINDS: dict[str, str] = {
    "annotation": "Interval that the user annotated. value: unused.",
    "step": "Mark at the end of a step, set by the user. value: the user's step number, or -1.",
    "mode": "Region that the user named TRAIN, EVAL, PREDICT or another mode; the name is the "
    "mode. RECORDING: stepscope computes figures of the model.",
    "data_wait": "Wait of the training thread for a batch of a DataLoader iterator. "
    "value: batches that were ready at the start, 0 unless the next one was among them, -1 if "
    "unknown.",
    "loader_start": "Creation of a DataLoader iterator; worker processes start here.",
    "forward": "Outermost module call. value: identity of the module; with flag 32 its lower 44 "
    "bits are the number of elements of the first tensor, 0 if unknown.",
    "backward": "Backward pass; `backward` accumulates gradients in the parameters, `grad` returns "
    "them. value: until an optimizer steps, bit n: parameters of module n were updated since the "
    "pass before; bit 31 + n: their gradients were cleared.",
    "optimizer": "Optimizer step. value: identity of the optimizer.",
    "h2d": "Copy from host to device. value: bytes.",
    "communication": "Collective that the script calls itself. value: bytes, 0 if unknown.",
    "checkpoint": "Write of a checkpoint. value: bytes, 0 if unknown.",
    "dispatch": "Call of a function that JAX compiles; the name is that of the function. value: "
    "bytes of the results that have the shape and type of an argument.",
    "device_wait": "Wait of a thread for results of JAX.",
    "compile": "Compilation: by torch.compile, where the name is the cause, or by JAX, where it is "
    "that of the function. value: earlier compilations of the same code.",
    "garbage_collection": "Garbage collection by Python of 0.1 ms or longer; the name is the line "
    "of user code that was running. value: the generation.",
    "run_queue": "Time since a stack sample in which the sampled thread was runnable without a "
    "core. value: nanoseconds without a core.",
    "fetch": "Creation of one batch, in a worker or in the training thread. "
    "value: nanoseconds of CPU time of the thread; -1 where neither that nor samples, transforms "
    "and collation are recorded: of quick batches one in N is recorded in detail, and the others "
    "not at all in the training thread, where the wait for data contains them.",
    "samples": "All __getitem__ or next calls of one batch, from the first to the last. "
    "value: nanoseconds inside the calls. labels: none; name: the dataset class.",
    "sample": "One __getitem__ or next call of 0.1 ms or longer.",
    "transform": "All calls of one transform in one batch. value: nanoseconds inside the calls.",
    "collate": "Collation of samples into a batch.",
    "pin": "Copy of a batch into pinned memory.",
    "device": "Phase as the device ran it; the name is the phase.",
    "window": "Window of the framework's own profiler. value: the number of the window.",
}
"""Every value of `kind`, with its meaning and that of `value`."""

DURATION_VALUE_KINDS = ("fetch", "samples", "transform")
"""Kinds whose `value` is a duration of the work in the span, or negative for none."""

AGGREGATE_KINDS: dict[str, str] = {"transform": "samples", "run_queue": "run_queue"}
"""Kinds of which a span is no interval, but a sum of short times: `value` is the sum, and they are
somewhere between `start_ns` and `end_ns`. With each, the kind of the span of the same thread and
extent inside which the sum is drawn."""
