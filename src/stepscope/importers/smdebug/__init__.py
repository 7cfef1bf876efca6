"""Importer of the output of SageMaker Debugger's profiler.

Belongs here: the files that Debugger writes, and their content in the tables of a run. Does not
belong here: traces of a framework's own profiler (`kineto`), analysis of the numbers.

    importer    the importer of the registry
    forms       form of a file, by its content
    system      samples of the machine, one JSON object per line, become `metrics`
    events      framework events, arrays of Chrome events, as rows
    spans       rows of one process become `spans`
    operators   operators and kernels among the rows become traces
    python_profiles  files of cProfile and pyinstrument become `python_profiles`
    marshalled  the format of cProfile's files, without Python's own reader
    detail      traces of TensorFlow's profiler, started by Debugger: ordinary ones with a base
    output      everything of one job together: order, nodes, processes, missing data

A directory `profiler-output` holds `system/incremental/<hour>/<minute>.<node>.json`,
`framework/pevents/<hour>/<end>_<pid>-<node>_<suffix>.json` and more; files found elsewhere
are read as well.
"""

from __future__ import annotations

from stepscope.importers.smdebug.output import SMDebugImporter

__all__ = ["SMDebugImporter"]
