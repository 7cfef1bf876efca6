"""Importer of Kineto and Chrome traces (JSON, plain or gzip).

Belongs here: everything between the text of such a file and the trace tables of a run.

    importer     files that are Kineto's, many of them in parallel
    trace_file   one file: read, linked and stored slice by slice; the rows in `quality`
    reading, blocks  the file as blocks of whole events; `pool` decodes them on all cores
    decode       a block as columns, by kind of event, or by the compiled scanner (`_scan`)
    categories, columns, arguments, repair  parts of decoding
    execution_trace  inputs of operators from an execution trace of the same process
    gather       the columns of all blocks, in memory or in a temporary file
    devices      work of devices that its category does not tell: layouts of other makers
    joins        launches, forward operators, arrows and graphs, joined over the whole file
    linking      the rest of the links, per slice of time
    tables       linked columns as rows of the trace tables, and their storing
    timeline     levels of detail
    describe     tracks, devices, process groups, counters, the row in `traces`
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
