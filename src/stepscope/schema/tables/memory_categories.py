"""Table of memory by category, as torch's memory profiler tells it."""

from __future__ import annotations

from stepscope.schema.table import Table, column

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
