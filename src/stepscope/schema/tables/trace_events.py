"""Tables of the events of traces, and the columns that they share."""

from __future__ import annotations

from stepscope.schema.table import Table, column

TRACE = column("trace", "BIGINT", "Number of the trace; see `traces`.")
EVENT_ID = column("id", "BIGINT", "Index of the event in its file; unique within the trace.")
TRACK = column("track", "INTEGER", "Host thread or device stream; see `tracks`.")
NAME = column("name", "VARCHAR", "Name.")
START_NS = column("start_ns", "BIGINT", "Start.", "epoch_ns")
DURATION_NS = column("duration_ns", "BIGINT", "Duration.", "ns", stored_type="DOUBLE")
ARGS = column("args", "VARCHAR NULL", "All other arguments in the file, as a JSON object.")
STREAM = column("track", "INTEGER", "Stream of the device; see `tracks`.")
DEVICE = column("device", "INTEGER", "Number of the device.")
EVENT = (TRACE, EVENT_ID, TRACK)
"""Identity and track of an event."""
DEVICE_EVENT = (TRACE, EVENT_ID, STREAM, DEVICE)
NAMED_RANGE = (NAME, START_NS, DURATION_NS)
GRAPH_LINK = (
    column("graph", "BIGINT NULL", "Graph whose replay ran it."),
    column("graph_node", "BIGINT NULL", "Node in that graph."),
    column(
        "captured_operator",
        "BIGINT NULL",
        "Operator whose launch was captured as that node, if the trace contains the capture.",
    ),
)
LAUNCH_LINK = (
    column(
        "launch",
        "BIGINT NULL",
        "Runtime call that launched it; null for work launched before the window (carry-over) and "
        "for work whose launch is not in the file.",
    ),
    column("operator", "BIGINT NULL", "Operator that made that call."),
    column("correlation", "BIGINT NULL", "Correlation number that links it to its launch."),
    column(
        "carry_over",
        "SMALLINT",
        "1 if it was launched before the window: it has no launch, and it starts before any linked "
        "work of its device could.",
    ),
)


ANNOTATIONS = Table(
    name="annotations",
    doc="One row per named range: user annotations, the framework's optimizers and loaders, and "
    "profiler steps.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        *NAMED_RANGE,
        column(
            "on_device",
            "SMALLINT",
            "1 for the shadow of a host range on a device stream, which covers the work launched "
            "in the range.",
        ),
        column("host", "BIGINT NULL", "Host range of a shadow; a range has one shadow per stream."),
        column("python", "BIGINT NULL", "Innermost enclosing Python function."),
        ARGS,
    ),
)


COPIES = Table(
    name="copies",
    doc="One row per copy or fill of device memory.",
    key=("trace", "id"),
    columns=(
        *DEVICE_EVENT,
        column("kind", "VARCHAR", "memcpy or memset."),
        *NAMED_RANGE,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        column("bytes", "BIGINT NULL", "Bytes copied or set.", "bytes"),
        ARGS,
    ),
)


KERNELS = Table(
    name="kernels",
    doc="One row per kernel that a device ran.",
    key=("trace", "id"),
    columns=(
        *DEVICE_EVENT,
        *NAMED_RANGE,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        column("grid_x", "INTEGER NULL", "Blocks of the grid, x.", "count"),
        column("grid_y", "INTEGER NULL", "Blocks of the grid, y.", "count"),
        column("grid_z", "INTEGER NULL", "Blocks of the grid, z.", "count"),
        column("block_x", "INTEGER NULL", "Threads of a block, x.", "count"),
        column("block_y", "INTEGER NULL", "Threads of a block, y.", "count"),
        column("block_z", "INTEGER NULL", "Threads of a block, z.", "count"),
        column("registers_per_thread", "INTEGER NULL", "Registers per thread.", "count"),
        column("shared_memory_bytes", "INTEGER NULL", "Shared memory per block.", "bytes"),
        column("blocks_per_multiprocessor", "DOUBLE NULL", "Blocks per multiprocessor.", "count"),
        column("warps_per_multiprocessor", "DOUBLE NULL", "Warps per multiprocessor.", "count"),
        column(
            "occupancy_percent", "DOUBLE NULL", "Occupancy, estimated by the profiler.", "percent"
        ),
        ARGS,
    ),
)


MEMORY_EVENTS = Table(
    name="memory_events",
    doc="One row per allocation or release by the framework's allocator.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("t_ns", "BIGINT", "Time.", "epoch_ns"),
        column("device_type", "SMALLINT", "0 host, 1 CUDA, else the framework's device type."),
        column("device", "INTEGER", "Number of the device; -1 for the host."),
        column("address", "BIGINT NULL", "Address, equal for an allocation and its release."),
        column("size_bytes", "BIGINT", "Bytes, negative for a release.", "bytes"),
        column("allocated_bytes", "BIGINT NULL", "Bytes in use on the device afterwards.", "bytes"),
        column(
            "reserved_bytes",
            "BIGINT NULL",
            "Bytes that the allocator holds on the device afterwards.",
            "bytes",
        ),
        column("operator", "BIGINT NULL", "Innermost operator running on the thread."),
        ARGS,
    ),
)


OPERATORS = Table(
    name="operators",
    doc="One row per operator of the framework, with its position in the operator tree of its "
    "thread.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        *NAMED_RANGE,
        column("parent", "BIGINT NULL", "Innermost enclosing operator on its thread."),
        column("depth", "SMALLINT", "Enclosing operators.", "count"),
        column("python", "BIGINT NULL", "Innermost enclosing function; see `python_functions`."),
        column("sequence", "BIGINT NULL", "Number shared by forward and backward operators."),
        column(
            "forward_thread",
            "BIGINT NULL",
            "Non-zero in a backward operator: the profiler's number of the forward thread.",
        ),
        column("forward", "BIGINT NULL", "Forward operator whose gradient it computes."),
        column("record_function", "BIGINT NULL", "Identifier in execution traces (Chakra)."),
        column("input_dims", "VARCHAR NULL", "Input shapes as JSON, such as [[64,3,224,224],[]]."),
        column("input_types", "VARCHAR NULL", "Input element types as a JSON array of strings."),
        column("input_strides", "VARCHAR NULL", "Input strides as JSON."),
        column("concrete_inputs", "VARCHAR NULL", "Scalar inputs as a JSON array of strings."),
        column(
            "call_stack",
            "VARCHAR NULL",
            "Python stack in the format of older profilers, outermost last, joined by ';'.",
        ),
        column(
            "runtime_ns",
            "BIGINT NULL",
            "Total duration of the runtime calls that it makes itself; null if it makes none. Its "
            "self time is its duration minus this and minus the durations of its children.",
            "ns",
        ),
        column(
            "launched_ns",
            "BIGINT NULL",
            "Total duration of the kernels, copies and sets that its own runtime calls launched; "
            "null if they launched none.",
            "ns",
        ),
        column(
            "launched_below_ns",
            "BIGINT NULL",
            "The same total for all operators inside it; null if they launched none.",
            "ns",
        ),
        ARGS,
    ),
)


OTHER_EVENTS = Table(
    name="other_events",
    doc="One row per event of a kind without a table of its own: profiler overhead, marks.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("phase", "VARCHAR", "Event type in the file: X for a range, i for an instant."),
        column("category", "VARCHAR NULL", "Category in the file."),
        NAME,
        START_NS,
        column("duration_ns", "BIGINT NULL", "Duration; null for an instant.", "ns"),
        ARGS,
    ),
)


PYTHON_FUNCTIONS = Table(
    name="python_functions",
    doc="One row per call of a Python function or of a module's forward in a trace with stacks.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("name", "VARCHAR", "file(line): function, or nn.Module: Class_number for a module."),
        START_NS,
        DURATION_NS,
        column("parent", "BIGINT NULL", "Calling Python function."),
        column("module", "BIGINT NULL", "Innermost enclosing module call, itself included."),
        column("module_id", "BIGINT NULL", "Profiler's number of the module, for a module call."),
        ARGS,
    ),
)


RUNTIME_CALLS = Table(
    name="runtime_calls",
    doc="One row per call of the device's runtime or driver.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("name", "VARCHAR", "Called function, such as cudaLaunchKernel."),
        START_NS,
        DURATION_NS,
        column("driver", "SMALLINT", "1 for the driver API, 0 for the runtime API."),
        column("correlation", "BIGINT NULL", "Correlation number of the call and its work."),
        column("operator", "BIGINT NULL", "Operator that made the call."),
        column(
            "python",
            "BIGINT NULL",
            "Innermost enclosing Python function, for calls outside every operator.",
        ),
        ARGS,
    ),
)


SYNCHRONISATIONS = Table(
    name="synchronisations",
    doc="One row per wait for device work: of the host for an event, a stream or a device, or of a "
    "stream for an event.",
    key=("trace", "id"),
    columns=(
        *EVENT,
        column("name", "VARCHAR", "Kind of the wait, such as Stream Wait Event or Context Sync."),
        START_NS,
        DURATION_NS,
        column("device", "INTEGER", "Number of the device."),
        column(
            "stream",
            "BIGINT NULL",
            "Stream that waits for an event, or that the host waits for; null for all streams.",
        ),
        column("waited_stream", "BIGINT NULL", "Stream on which the event was recorded."),
        column("event", "BIGINT NULL", "Number of the event."),
        column(
            "record_correlation", "BIGINT NULL", "Correlation number of the call that recorded it."
        ),
        column("correlation", "BIGINT NULL", "Correlation number of the call that waits."),
        ARGS,
    ),
)


COLLECTIVES = Table(
    name="collectives",
    doc="One row per event that describes a collective: the operator that requested it, and the "
    "kernel that ran it.",
    key=("trace", "id"),
    columns=(
        TRACE,
        column("id", "BIGINT", "Operator or kernel."),
        column("on_device", "SMALLINT", "1 for a kernel, 0 for an operator."),
        NAME,
        column("dtype", "VARCHAR NULL", "Element type as the profiler writes it."),
        column("in_elements", "BIGINT NULL", "Elements sent by this rank.", "count"),
        column("out_elements", "BIGINT NULL", "Elements received by this rank.", "count"),
        column("group", "VARCHAR NULL", "Name of the process group."),
        column("group_description", "VARCHAR NULL", "Purpose of the group."),
        column("group_size", "INTEGER NULL", "Ranks in the group.", "count"),
        column("group_ranks", "VARCHAR NULL", "Ranks as the profiler writes them; may be cut off."),
        column("sequence", "BIGINT NULL", "Number of the collective within its group."),
        column("peer_source", "INTEGER NULL", "Sending rank of a point-to-point operation."),
        column("peer_destination", "INTEGER NULL", "Receiving rank of a point-to-point operation."),
        column("in_split", "VARCHAR NULL", "Sizes sent to the ranks."),
        column("out_split", "VARCHAR NULL", "Sizes received from the ranks."),
        ARGS,
    ),
)


COUNTERS = Table(
    name="counters",
    doc="One row per value of a counter in a trace.",
    key=("trace", "id", "series"),
    columns=(
        *EVENT,
        NAME,
        column("t_ns", "BIGINT", "Time of the value.", "epoch_ns"),
        column("series", "VARCHAR", "Series of the counter."),
        column("value", "DOUBLE", "Value."),
    ),
)


FLOWS = Table(
    name="flows",
    doc="One row per arrow between two events that no other table implies: launches are in "
    "kernels.launch, gradients also in operators.forward.",
    key=("trace", "kind", "flow"),
    columns=(
        TRACE,
        column("kind", "VARCHAR", "Category of the arrow, such as fwdbwd."),
        NAME,
        column("flow", "BIGINT", "Number of the arrow in the file."),
        column("source_track", "INTEGER NULL", "Track on which it starts."),
        column("source_ns", "BIGINT NULL", "Time at which it starts.", "epoch_ns"),
        column("source", "BIGINT NULL", "Event that starts there."),
        column("target_track", "INTEGER NULL", "Track on which it ends."),
        column("target_ns", "BIGINT NULL", "Time at which it ends.", "epoch_ns"),
        column("target", "BIGINT NULL", "Event that starts there."),
    ),
)
