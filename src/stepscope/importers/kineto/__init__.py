"""Importer of Kineto and Chrome traces (JSON, plain or gzip).

Belongs here: everything between the text of such a file and the trace tables of a run.

    importer     many files in parallel
    trace_file   one file: read, linked and stored slice by slice
    blocks       the file as blocks of whole events; pool decodes them on all cores
    decode       a block as columns, by kind of event; categories, fields, repair help
    scanning     the same for usual events, by the compiled scanner (`_scan`) where it was built
    execution_trace  inputs of operators from an execution trace of the same process
    gather       the columns of all blocks, in memory or in a temporary file
    joins        launches, forward operators and arrows, joined over the whole file
    linking      the rest of the links, per slice of time
    tables       linked columns as rows of the trace tables
    timeline     levels of detail
    describe     tracks, devices, process groups, counters, the row in `traces`
    quality      the rows in `quality`
"""

from __future__ import annotations

from stepscope.importers.kineto._scan import scanner_state
from stepscope.importers.kineto.blocks import Frame, inflated
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.describe import Header, Identity
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.identify import identify_files
from stepscope.importers.kineto.importer import KinetoImporter
from stepscope.importers.kineto.kinds import OtherKind
from stepscope.importers.kineto.reading import Reading
from stepscope.importers.kineto.trace_file import import_trace, store_reading

__all__ = [
    "Chunk",
    "Frame",
    "Gathered",
    "Header",
    "Identity",
    "KinetoImporter",
    "OtherKind",
    "Reading",
    "identify_files",
    "import_trace",
    "inflated",
    "scanner_state",
    "store_reading",
]
