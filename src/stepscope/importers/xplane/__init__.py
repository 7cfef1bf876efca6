"""Importer of XPlane files (`*.xplane.pb`), which the profilers of TensorFlow, JAX and TPUs write.

Belongs here: everything between the bytes of such a file and events in the form of `kineto`, whose
linking, tables and levels of detail do the rest.

    wire       protocol buffers, many messages of one type at a time; no generated code
    planes     a file as planes, lines and events
    events     events by kind: kernels, copies, calls, operators, Python functions, annotations
    importer   one file after the other

The messages are those of
https://github.com/openxla/xla/blob/main/third_party/tsl/tsl/profiler/protobuf/xplane.proto
"""

from __future__ import annotations

from stepscope.importers.xplane.importer import XPlaneImporter, import_window

__all__ = ["XPlaneImporter", "import_window"]
