"""Kinds of slices, by which the timeline is coloured.

Levels of detail store names alone, so a kind follows from the name and the kind of track.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from stepscope import analysis

SliceKind = Literal[
    "computation", "communication", "copies", "fetching batches", "forward", "backward",
    "optimizer", "operators", "modules", "Python", "launching work", "waiting for the device",
    "compilation", "checkpoints", "evaluation", "starting", "annotations", "other",
]  # fmt: skip
TrackSource = Literal["spans", "host", "device"]
"""Spans of the job, a thread of a trace, a stream of a device."""

_CACHE_SIZE = 1 << 16
_SPANS: dict[str, SliceKind] = {
    "data_wait": "fetching batches", "loader_start": "fetching batches",
    "fetch": "fetching batches", "samples": "fetching batches", "sample": "fetching batches",
    "transform": "fetching batches", "collate": "fetching batches", "pin": "fetching batches",
    "forward": "forward", "backward": "backward", "optimizer": "optimizer", "h2d": "copies",
    "communication": "communication", "checkpoint": "checkpoints",
    "checkpoint_load": "checkpoints", "rendezvous": "starting", "dispatch": "launching work",
    "device_wait": "waiting for the device", "compile": "compilation",
    "garbage_collection": "Python", "run_queue": "other", "window": "other",
    "device": "computation", "step": "annotations",
}  # fmt: skip
"""By kind of span; `schema.SPAN_KINDS` explains them. Those that are not here are annotations."""
_EVALUATION = ("EVAL", "PREDICT", "VALIDATE", "TEST")
_HOST: tuple[tuple[re.Pattern[str], SliceKind], ...] = (
    (re.compile(r"(gloo|nccl|mpi|ucc|c10d|symm_mem|hccl|xccl):|record_param_comms"),
     "communication"),
    (re.compile(r"enumerate\(Data|.*DataLoader|tf_data|Iterator::"), "fetching batches"),
    (re.compile(r"Optimizer\.|.*optimizer", re.IGNORECASE), "optimizer"),
    (re.compile(r"nn\.Module: "), "modules"),
    (re.compile(r".*\(\d+\): |<built-in |<method |\$"), "Python"),
    (re.compile(r"(cu|cuda|hip)[A-Z]\w*(Synchronize|WaitEvent|StreamWait)"),
     "waiting for the device"),
    (re.compile(r"(cuda|hip|cu|xpu|ze|acl|mtia)[A-Z]\w*$"), "launching work"),
    (re.compile(r"autograd::|torch::autograd|.*Backward\d*$|.*backward", re.IGNORECASE),
     "backward"),
    (re.compile(r".*(Torch-)?Compil|TorchDynamo|inductor", re.IGNORECASE), "compilation"),
    (re.compile(r"\w+::\w|(detach|triton_\w+)$"), "operators"),
    (re.compile(r".*forward", re.IGNORECASE), "forward"),
)  # fmt: skip
"""By the first pattern that matches the beginning of the name of an event of the host."""
_COPY = re.compile(r"mem(cpy|set)", re.IGNORECASE)


@lru_cache(_CACHE_SIZE)
def classify_slice(name: str, source: TrackSource) -> SliceKind:
    """Classify a slice by its name.

    >>> classify_slice("forward: Linear", "spans"), classify_slice("my region", "spans")
    ('forward', 'annotations')
    >>> classify_slice("cudaStreamSynchronize", "host"), classify_slice("aten::mm", "host")
    ('waiting for the device', 'operators')
    >>> classify_slice("Memcpy HtoD", "device"), classify_slice("sgemm_32x32", "device")
    ('copies', 'computation')
    """
    if source == "spans":
        kind = name.partition(":")[0]
        return "evaluation" if name in _EVALUATION else _SPANS.get(kind, "annotations")
    if analysis.is_step(name):
        return "annotations"
    if source == "device":
        if _COPY.match(name):
            return "copies"
        return "communication" if analysis.is_communication(name) else "computation"
    return next((kind for pattern, kind in _HOST if pattern.match(name)), "annotations")
