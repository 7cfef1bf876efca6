"""Tables of a job: spans, stacks, scalars, collectives, profiles, stage operations, tensors."""

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
        column("labels", "VARCHAR NULL", "Labels of an annotation or checkpoint as a JSON object."),
        column("start_ns", "BIGINT", "Start.", "epoch_ns"),
        column("end_ns", "BIGINT NULL", "End; null if the process ended first.", "epoch_ns"),
        column("depth", "SMALLINT", "Enclosing spans.", "count"),
        column(
            "flags",
            "SMALLINT",
            "1 asynchronous, 2 gradients disabled, 4 ended without a result, 8 module in "
            "evaluation mode, 16 mark, 32 value includes a size, 64 no optimizer exists.",
            "bitmask",
        ),
        column("value", "BIGINT", "Number whose meaning depends on the kind; see `SPAN_KINDS`."),
    ),
)

SPAN_KINDS: dict[str, str] = {
    "annotation": "Interval that the user annotated. value: unused.",
    "step": "Mark at the end of a step, set by the user. value: the user's step number, or -1.",
    "mode": "Region that the user named TRAIN, EVAL, PREDICT or another mode; the name is the "
    "mode. RECORDING: stepscope computes figures of the model, or starts or ends a window.",
    "data_wait": "Wait of the training thread for a batch of a DataLoader iterator. "
    "value: batches that were ready at the start, 0 unless the next one was among them, -1 if "
    "unknown.",
    "loader_start": "Creation of a DataLoader iterator; worker processes start here. value: number "
    "of the DataLoader within the process, from 1; 0 if unknown.",
    "forward": "Outermost module call. value: identity of the module; with flag 32 its lower 44 "
    "bits are the number of elements of the first tensor, 0 if unknown.",
    "backward": "Backward pass; `backward` accumulates gradients in the parameters, `grad` returns "
    "them. value: until an optimizer steps, bit n: parameters of module n were updated since the "
    "pass before; bit 31 + n: their gradients were cleared.",
    "optimizer": "Optimizer step. value: identity of the optimizer.",
    "h2d": "Copy from host to device. value: bytes.",
    "communication": "Collective that the script calls itself. value: bytes, 0 if unknown.",
    "checkpoint": "Write of a checkpoint. value: bytes, 0 if unknown. labels: `path`, and `file`, "
    "the numbers of the device and of the file there, which it keeps when it is renamed; as far as "
    "they are known.",
    "checkpoint_load": "Read of a checkpoint. value and labels: as of a write.",
    "rendezvous": "Wait for the other ranks when the job starts: init_process_group.",
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


STACKS = Table(
    name="stacks",
    doc="One row per stack sample. The sampling period of steps is constant, so shares of samples "
    "estimate shares of time; the period is in the facts of the process. Samples whose `log` ends "
    "in `s` are of the main thread: from the start of the interpreter to the steps, after the "
    "training thread has ended, or of a process without steps. Each is of the time since the one "
    "before. Samples whose `log` ends in `e` are taken by a thread of itself, where it begins to "
    "save or load a checkpoint, or to evaluate: they tell the function that does.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time of the sample.", "epoch_ns"),
        column(
            "stack",
            "VARCHAR",
            "Frames from outermost to innermost, joined by ';'. A frame is function|file|library, "
            "for example Dataset.__getitem__|/home/u/data.py| . The library is empty for the "
            "user's code and 'python' for the standard library. <call N> after the innermost "
            "function of user code says that its line runs call N, whose source is in the facts. "
            "Where another thread fills a wait, <filled by>|line|threads and its frames "
            "follow: the line of its innermost frame of user code, and the threads that do the "
            "same. Frames of the import machinery are one, import|<frozen importlib._bootstrap>|"
            "python; of the modules of a library that import each other there are the first and "
            "the last. A stack of more than 40 frames lacks some in its middle.",
        ),
        column("line", "INTEGER", "Line of the innermost frame."),
        column("user_line", "INTEGER", "Line of the innermost frame of user code, 0 without one."),
    ),
)


SCALARS = Table(
    name="scalars",
    doc="One row per `stepscope.scalar(name, value)`, metric of XGBoost, or scalar of an imported "
    "file.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time of the call.", "epoch_ns"),
        column("name", "VARCHAR", "Name given by the user or by XGBoost."),
        column(
            "step",
            "BIGINT NULL",
            "Step in an imported file, or round of an XGBoost model; null otherwise.",
            "count",
        ),
        column("value", "DOUBLE", "Value."),
    ),
)


INSPECTOR_LOG = "inspector"
"""`log` of calls from a verbose log of NCCL Inspector, which has their times."""
UNTIMED_INSPECTOR_LOG = "inspector-untimed"
"""`log` of calls from another log of NCCL Inspector: `t_ns` is the time at which a line was written
minus the duration, so that it tells nothing about who was late."""

COLLECTIVE_CALLS = Table(
    name="collective_calls",
    doc="One row per collective that a process has called, from the flight recorder of PyTorch. "
    "Calls with the same group and number are one collective. `log` is the recorder (`fr`, or "
    "`nccl` in builds with CUDA; `inspector` and `inspector-untimed` are logs of NCCL Inspector, "
    "whose sizes are bytes), `seq` the number of the call in it: a gap is a call that was "
    "overwritten before it was read.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time at which the process called it.", "epoch_ns"),
        column("rank", "INTEGER NULL", "Rank of the process; null if unknown."),
        column("group", "VARCHAR", "Name of the process group."),
        column("group_description", "VARCHAR NULL", "Purpose of the group."),
        column("group_ranks", "VARCHAR NULL", "Ranks of the group, separated by commas."),
        column("kind", "VARCHAR", "Kind of call, such as all_reduce."),
        column("backend", "VARCHAR NULL", "Communication backend, such as gloo or nccl."),
        column("number", "BIGINT", "Number of the collective within its group, from 1.", "count"),
        column("is_p2p", "SMALLINT", "1 for a call between two ranks, which has its own numbers."),
        column("input_sizes", "VARCHAR", "Sizes of the inputs, such as 64x32;64."),
        column("input_dtypes", "VARCHAR", "Types of the inputs, separated by semicolons."),
        column("output_sizes", "VARCHAR", "Sizes of the outputs."),
        column("output_dtypes", "VARCHAR", "Types of the outputs."),
        column(
            "started_ns",
            "BIGINT NULL",
            "When the watchdog saw that it had started on the device; null for backends that do "
            "not tell.",
            "epoch_ns",
        ),
        column("ended_ns", "BIGINT NULL", "When the watchdog saw that it had ended.", "epoch_ns"),
        column(
            "state",
            "VARCHAR",
            "ended, or, if it had not ended when the process was last read, scheduled or started.",
        ),
    ),
)


PYTHON_PROFILES = Table(
    name="python_profiles",
    doc="One row per function of one imported Python profile, which covers a range of time of one "
    "process. Profiles that stepscope takes itself are in `stacks`.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("profiler", "VARCHAR", "Tool that took the profile: cprofile or pyinstrument."),
        column("start_ns", "BIGINT", "Start of the profile.", "epoch_ns"),
        column("end_ns", "BIGINT", "End of the profile.", "epoch_ns"),
        column("start_at", "VARCHAR", "Mode, step and phase at its start: train-9-stepstart."),
        column("end_at", "VARCHAR", "Mode, step and phase at its end."),
        column("function", "VARCHAR", "Function."),
        column("file", "VARCHAR", "Source file; empty for a function in C."),
        column("line", "INTEGER", "Line of the definition; 0 for a function in C."),
        column("library", "VARCHAR", "Empty for the user's code, python for the standard library."),
        column("own_ns", "BIGINT", "Time in the function without its callees.", "ns"),
        column("total_ns", "BIGINT", "Time including callees; recursion counts once.", "ns"),
        column("calls", "BIGINT NULL", "Calls; null for a profile of samples.", "count"),
        column("primitive_calls", "BIGINT NULL", "Calls that are not recursive.", "count"),
    ),
)


STAGE_OPERATIONS = Table(
    name="stage_operations",
    doc="One row per operation of a worker in a step of a job with pipeline and data parallelism, "
    "of an imported trace.",
    key=("job", "id"),
    columns=(
        column("job", "BIGINT", "Number of the job; drawn at import."),
        column("id", "BIGINT", "Index of the operation in the file."),
        column("name", "VARCHAR", "Name of the file."),
        column("data_rank", "INTEGER", "Rank among those with the same part of the model."),
        column("stage", "INTEGER", "Pipeline stage, 0 for the first layers."),
        column("rank", "INTEGER NULL", "Rank in the job."),
        column("step", "BIGINT", "Number of the step."),
        column("kind", "VARCHAR", "Kind of operation, such as forward-compute or backward-recv."),
        column("sequence", "BIGINT", "Number among the worker's operations of the kind in a step."),
        column("chunk", "INTEGER NULL", "Chunk of the model among those of the stage."),
        column("model_chunk", "INTEGER NULL", "Chunk of the model in the order of the model."),
        column("microbatch", "INTEGER NULL", "Number of the microbatch."),
        column("start_ns", "BIGINT", "Start, from an origin that a step has in common.", "ns"),
        column("duration_ns", "BIGINT", "Duration.", "ns"),
    ),
)


_TENSOR = (
    *PROVENANCE,
    column("t_ns", "BIGINT", "Time of the optimizer step.", "epoch_ns"),
    column("step", "BIGINT", "Number of steps of the process before this one.", "count"),
    column("mode", "VARCHAR", "TRAIN, EVAL or PREDICT."),
    column("tensor", "VARCHAR", "Name of the tensor, such as `gradient/layers.0.weight`."),
    column("collection", "VARCHAR", "Collection of the tensor, such as weights or gradients."),
)

TENSOR_STATISTICS = Table(
    name="tensor_statistics",
    doc="One row per tensor and recorded step (option `--tensors`). Numbers from `min` on describe "
    "the finite elements, and are null without one. Of a complex tensor they describe the absolute "
    "values. Numbers that an imported file does not have are null. Gradients are those that the "
    "optimizer uses, weights those after its step.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column(
            "shape",
            "VARCHAR NULL",
            "Sizes, such as 768x192; empty for a single number, null if unknown.",
        ),
        column("dtype", "VARCHAR NULL", "Type of the elements; null if unknown."),
        column("element_count", "BIGINT NULL", "Elements.", "count"),
        column("nan_count", "BIGINT NULL", "Elements that are NaN.", "count"),
        column("infinite_count", "BIGINT NULL", "Elements that are infinite.", "count"),
        column("zero_count", "BIGINT NULL", "Elements that are zero.", "count"),
        column("min", "DOUBLE NULL", "Smallest element."),
        column("max", "DOUBLE NULL", "Largest element."),
        column("mean", "DOUBLE NULL", "Mean."),
        column(
            "std", "DOUBLE NULL", "Standard deviation of the elements (divided by their count)."
        ),
        column("l1", "DOUBLE NULL", "Sum of the absolute values."),
        column("l2", "DOUBLE NULL", "Square root of the sum of the squares."),
        column("product", "DOUBLE NULL", "Product; null for more than 4,096 elements."),
        column(
            "update_l2",
            "DOUBLE NULL",
            "L2 norm of the change by the optimizer step; null if it was not recorded.",
        ),
    ),
)

TENSOR_HISTOGRAMS = Table(
    name="tensor_histograms",
    doc="One row per bin with elements, of each row of `tensor_statistics` (option "
    "`--tensor-histograms`). Bins are powers of two on both sides of zero. `seq` is 64 times that "
    "of the row of statistics, plus the position of the bin; of an imported histogram, 2^20 times.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("low", "DOUBLE", "Lower end of the bin."),
        column("high", "DOUBLE", "Upper end of the bin."),
        column("count", "BIGINT", "Elements in the bin.", "count"),
    ),
)

TENSOR_VALUES = Table(
    name="tensor_values",
    doc="One row per number of a small matrix with named rows and columns: the importance of "
    "features, and figures of labels and predictions (option `--tensors`). `seq` has the order "
    "of the rows.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("row_name", "VARCHAR", "Row: a feature, a class, or the number of a bin."),
        column("column_name", "VARCHAR", "Column: a class, or what is measured, such as `count`."),
        column("value", "DOUBLE NULL", "Number; null if it is not defined."),
    ),
)

TENSOR_ELEMENTS = Table(
    name="tensor_elements",
    doc="One row per tensor and step whose elements are recorded (option `--tensors-raw`). They "
    "are in a file of NumPy's format. Its type is that of the tensor, except for types that "
    "NumPy does not have: bfloat16 is stored as uint16, and 8-bit floating-point numbers as uint8, "
    "bit by bit.",
    key=RECORD_KEY,
    columns=(
        *_TENSOR,
        column("shape", "VARCHAR", "Sizes, such as 768x192; empty for a single number."),
        column("dtype", "VARCHAR", "Type of the elements."),
        column("byte_count", "BIGINT", "Size of the elements.", "bytes"),
        column("file", "VARCHAR", "File with the elements, relative to the run."),
    ),
)
