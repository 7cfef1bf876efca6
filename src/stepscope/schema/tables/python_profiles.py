"""Table of Python profiles that other tools summed up by function."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

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
