"""Runs, traces and views, written in the formats of other tools.

Belongs here: one file per format, from the tables of `schema` or the payloads of `views` to a file;
traces in pieces of bounded size. Does not belong here: computing (`analysis`), choosing traces or
talking (`cli`).

    registry           exporters by name, built-in and installed
    chrome             traces as Chrome JSON; `chrome_events` and `chrome_header` are its parts
    timeline           whole runs as Chrome JSON, with marks of bottlenecks (`timeline_marks`)
    perfetto           the same as Perfetto traces
    speedscope, pprof  stack samples and operators, as `profiles` collects them
    python_profile     Python functions and trees of calls as HTML
    tensorboard        scalars and tensors as event files
    summary            the summary of a run as JSON
    columnar           tables of views as Parquet and Arrow
    protobuf           fields of messages, for all formats in protobuf
    view_tables        payloads of views as flat tables, CSV and XLSX
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
