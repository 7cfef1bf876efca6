"""The output of SageMaker Debugger's profiler, into a run.

Belongs here: which files it wrote, what is in them, and what that is called in our tables. Does
not: traces of a framework's own profiler (`trace_file`), what follows from the numbers.

    recognise   what a file is, by its content
    system      samples of the machine, one JSON object per line, become `metrics`
    events      framework events, arrays of Chrome events, as rows
    spans       rows of one process become `spans`
    detail      TensorFlow's profiler, started by Debugger: ordinary traces with a base
    output      everything of one job together: order, nodes, processes, what was lost

A directory `profiler-output` holds `system/incremental/<hour>/<minute>.<node>.json`,
`framework/pevents/<hour>/<end>_<pid>-<node>_<suffix>.json` and more; files found elsewhere
are read as well.
"""

from __future__ import annotations

from stepscope.importers.smdebug.importer import SMDebugImporter

__all__ = ["SMDebugImporter"]
