"""Logs of TORCH_TRACE: what torch.compile did.

log            records of a log: a line of JSON, and a text of any length
compilations   compilations that the records are about, with their events
importer       logs of processes, as rows of `compilations` and `compilation_events`
"""

from __future__ import annotations

from stepscope.importers.torch_trace.importer import TorchTraceImporter

__all__ = ["TorchTraceImporter"]
