"""Importer of the output of SageMaker Debugger's profiler.

Belongs here: the files that Debugger writes, and their content in the tables of a run. Does not
belong here: traces of a framework's own profiler (`kineto`), analysis of the numbers.

    output      everything of one job together, with the importer of the registry
    system      samples of the machine, one JSON object per line, become `metrics`
    events      form of a file, by its content; framework events as rows
    spans       rows of one process become `spans`
    operators   operators and kernels among the rows become traces
    python_profiles  files of cProfile and pyinstrument become `python_profiles`

A directory `profiler-output` holds `system/incremental/<hour>/<minute>.<node>.json`,
`framework/pevents/<hour>/<end>_<pid>-<node>_<suffix>.json` and more; files found elsewhere
are read as well.
"""

from __future__ import annotations

from stepscope.importers.smdebug.output import SMDebugImporter

__all__ = ["SMDebugImporter"]
