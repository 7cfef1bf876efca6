"""Importers of other tools' files: traces and samples become the tables of `schema`.

Belongs here: one package per format, and the registry that selects the importer of a file. Does
not belong here: the command line (`cli`), analysis of the imported data (`analysis`).
"""

from __future__ import annotations

from stepscope.importers.flight_recorder import (
    FlightDump,
    RecordedCall,
    load_plain,
    make_call_columns,
    make_called_collective,
    parse_flight_dump,
)
from stepscope.importers.registry import (
    Importer,
    find_files,
    import_files,
    installed_importers,
    trace_decoder,
)
from stepscope.importers.results import (
    DEBUGGER_TENSORS,
    EXECUTION_TRACE,
    FLIGHT_RECORDER,
    MEMORY_TIMELINE,
    NCCL_INSPECTOR,
    STAGE_OPERATIONS,
    TENSORBOARD,
    Imported,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
)
from stepscope.importers.workers import start_worker

__all__ = [
    "DEBUGGER_TENSORS",
    "EXECUTION_TRACE",
    "FLIGHT_RECORDER",
    "MEMORY_TIMELINE",
    "NCCL_INSPECTOR",
    "STAGE_OPERATIONS",
    "TENSORBOARD",
    "FlightDump",
    "Imported",
    "Importer",
    "ProgressCallback",
    "Recorded",
    "RecordedCall",
    "Refused",
    "Result",
    "find_files",
    "import_files",
    "installed_importers",
    "load_plain",
    "make_call_columns",
    "make_called_collective",
    "parse_flight_dump",
    "start_worker",
    "trace_decoder",
]
