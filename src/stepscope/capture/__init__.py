"""Code that runs inside the training process.

In scope: the user's annotations, the adapters that detect steps and phases in an unmodified
script, the stack sampler, and the bootstrap that loads them into every process of the job.
Out of scope: analysis, Parquet, and network access.

Rules of this package: standard library only; import nothing heavy before the job does; never
block; never raise into the job (only `guard` suppresses exceptions); never change a result.
"""

from __future__ import annotations

from stepscope.capture.library import start_profiling, stop_profiling
from stepscope.capture.marks import (
    Span,
    annotate,
    annotation_begin,
    annotation_end,
    mode,
    record,
    scalar,
    step,
    steps,
)
from stepscope.capture.watching import watch
from stepscope.spool import StepSchedule

__all__ = [
    "Span",
    "StepSchedule",
    "annotate",
    "annotation_begin",
    "annotation_end",
    "mode",
    "record",
    "scalar",
    "start_profiling",
    "step",
    "steps",
    "stop_profiling",
    "watch",
]
