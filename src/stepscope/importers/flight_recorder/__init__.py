"""Dumps of PyTorch's flight recorder: the collectives that a process has called.

dump           content of a dump as rows of `collective_calls`
importer       dumps that the watchdog of NCCL has written (TORCH_NCCL_DUMP_ON_TIMEOUT)
"""

from __future__ import annotations

from stepscope.importers.flight_recorder.dump import (
    FlightDump,
    RecordedCall,
    make_call_columns,
    make_called_collective,
    parse_flight_dump,
)

__all__ = [
    "FlightDump",
    "RecordedCall",
    "make_call_columns",
    "make_called_collective",
    "parse_flight_dump",
]
