"""Importer of SQLite exports of Nsight Systems (`nsys export --type=sqlite`).

Belongs here: everything between the tables of such a file and events in the form of `kineto`, whose
linking, tables and levels of detail do the rest.

    database   tables in large chunks of numpy columns, as far as the file has and can read them
    events     tables with events, and the chunks of each process
    devices    kernels, copies, sets and waits
    host       calls and NVTX ranges
    builder    chunks of events
    importer   one file after the other, one trace per process

Columns differ between versions of the schema, and tables are created only for what was recorded:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference
"""

from __future__ import annotations

from stepscope.importers.nsys.importer import NsysImporter

__all__ = ["NsysImporter"]
