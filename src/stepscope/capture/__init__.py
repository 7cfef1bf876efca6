"""What runs inside the training job.

Belongs here: the user's annotations, the adapters that find steps and phases in an unchanged
script, the stack sampler, and the bootstrap that brings them into every process of the job.
Does not belong here: anything that analyses, writes Parquet or leaves the machine.

Rules of this package: standard library only; import nothing heavy before the job does; never
block; never raise into the job (`guard` is the one place that swallows); never change a result.
"""

from __future__ import annotations

from stepscope.capture.library import start_profiling, stop_profiling
from stepscope.capture.marks import (
    Span,
    annotate,
    annotation_begin,
    annotation_end,
    mode,
    scalar,
    step,
    steps,
)

__all__ = [
    "Span",
    "annotate",
    "annotation_begin",
    "annotation_end",
    "mode",
    "scalar",
    "start_profiling",
    "step",
    "steps",
    "stop_profiling",
]
