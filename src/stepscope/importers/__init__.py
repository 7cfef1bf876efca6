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
    nsys/, rocprof     traces of Nsight Systems and rocprofv3
    torch_trace/       logs of torch.compile
    smdebug/           output of SageMaker Debugger's profiler
    event_files/       tensors and scalars of TensorBoard and Debugger
    gpu_samples        samples of nvidia-smi and DCGM
    flight_recorder/, nccl_inspector, stage_operations
                       collectives, operations of pipeline stages
    memory_timeline, memory_snapshot
                       memory by category, blocks of the caching allocator
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
