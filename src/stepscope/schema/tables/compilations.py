"""Tables of compilations by torch.compile."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

COMPILATIONS = Table(
    name="compilations",
    doc="One row per compilation of a frame by torch.compile, from a log of TORCH_TRACE. `log` is "
    "`torch_trace`, `seq` the position in it. A frame that fails a guard is compiled again, with "
    "the same first number in `compile_id`.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("rank", "INTEGER NULL", "Rank of the process, if known."),
        column(
            "compile_id",
            "VARCHAR",
            "Number of the frame and of its compilation, such as 0/1; the names of regions in "
            "traces, Torch-Compiled Region: 0/1, have it. torch._dynamo.reset() starts at 0/0 "
            "again.",
        ),
        column(
            "direction",
            "VARCHAR",
            "`forward`, or `backward` for the graph of gradients where that is compiled later.",
        ),
        column("function", "VARCHAR", "Function of the frame."),
        column("file", "VARCHAR", "File of the function."),
        column("line", "INTEGER", "First line of the function; 0 if unknown."),
        column("start_ns", "BIGINT NULL", "Start; null if the log does not tell it.", "epoch_ns"),
        column(
            "duration_ns",
            "BIGINT NULL",
            "Time in the compiler; null if the log does not tell it, or ends before.",
            "ns",
        ),
        column("backend_ns", "BIGINT NULL", "Time of the backend in it.", "ns"),
        column("inductor_ns", "BIGINT NULL", "Time of Inductor in that of the backend.", "ns"),
        column("codegen_ns", "BIGINT NULL", "Time of code generation in Inductor's.", "ns"),
        column("restart_ns", "BIGINT NULL", "Time of attempts that were started again.", "ns"),
        column("earlier_count", "BIGINT NULL", "Compilations of the code before.", "count"),
        column("guard_count", "BIGINT NULL", "Guards of the compiled code.", "count"),
        column("operator_count", "BIGINT NULL", "Operators in the captured graph.", "count"),
        column(
            "graph_break_count",
            "BIGINT NULL",
            "Graph breaks; null if the log, of an older torch, has no record of them.",
            "count",
        ),
        column("failure", "VARCHAR NULL", "Type and reason of the failure; null without one."),
        column("has_ended", "SMALLINT", "1 if the log tells its end, 0 otherwise."),
    ),
)

GRAPH_CACHE, AUTOGRAD_CACHE = "fx_graph", "autograd"
"""Caches: of graphs, and of graphs with those of their gradients."""

COMPILATION_EVENTS = Table(
    name="compilation_events",
    doc="One row per event of a compilation; see `COMPILATION_EVENT_KINDS`.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("compilation", "BIGINT", "`seq` of its compilation in the same process."),
        column("kind", "VARCHAR", "Kind of event; see `COMPILATION_EVENT_KINDS`."),
        column("name", "VARCHAR", "Short name; its meaning depends on the kind."),
        column("detail", "VARCHAR NULL", "Text that the log has of it."),
        column(
            "key",
            "VARCHAR NULL",
            "Key of the graph in the cache. That of `fx_graph` is in the names of calls in traces: "
            "## Call CompiledFxGraph KEY ##.",
        ),
        column("file", "VARCHAR NULL", "File of the line of the user's code."),
        column("line", "INTEGER NULL", "Line of the user's code."),
        column("saved_ns", "BIGINT NULL", "Compilation time that a cache hit has saved.", "ns"),
    ),
)

COMPILATION_EVENT_KINDS: dict[str, str] = {
    "restart": "The frame was traced again from its start. name: cause.",
    "failed_guard": "Guard of an earlier compilation that was false: the frame was compiled again. "
    "name: guard; detail: compile id and guard.",
    "graph_break": "Operation outside of the graph, which Python runs. name: cause.",
    "cache_hit": "Result found in a cache. name: cache, `fx_graph` or `autograd`.",
    "cache_miss": "Result not found in a cache. name: cache.",
    "cache_bypass": "Cache that was not asked. name: cache; detail: reason.",
    "kernel": "Kernel that Inductor has written. name: its name; detail: file with its code.",
}
"""Every value of `kind` in `compilation_events`."""
