"""Importers of other tools' files: traces and samples become the tables of `schema`.

Belongs here: one package or file per format. Does not belong here: the command line (`cli`),
analysis of the imported data (`analysis`).

    registry           selects the importer of a document
    documents          archives and concatenated traces as documents; copies
    forms              forms that no importer reads, and what to do with them
    wire               wire format of protocol buffers
    content            contents of files, and what an import has found
    kineto/            traces of PyTorch and Chrome
    perfetto/          traces of Perfetto
    xplane/            traces of TensorFlow, JAX and TPUs
    smdebug/           output of SageMaker Debugger's profiler
    event_files/       tensors and scalars of TensorBoard and Debugger
    flight_recorder/, nccl_inspector, memory_timeline, stage_operations
                       collectives, memory by category, operations of pipeline stages
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
