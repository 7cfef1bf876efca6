"""Profiler for training jobs that finds their bottleneck.

Scripts need no changes: `stepscope run -- python train.py`. Optional functions for a script:

    annotate(name)                    context manager and decorator: a named interval
    annotation_begin, annotation_end  the same with start and end in different places
    step(), steps(iterable)           marks for the ends of training steps
    mode(name)                        a region that trains, evaluates or predicts
    scalar(name, value)               a number, such as a loss
    record(labels=, predictions=)     counts of the classes of a batch
    watch(model)                      statistics of the tensors of a model
    start_profiling, stop_profiling   recording without `stepscope run`
    StepSchedule                      steps that it records in detail

Recorded data is read with

    open(run)                         an `OpenRun`: metrics, spans and statistics

Importing the package loads only the standard library.
"""

from stepscope._version import __version__
from stepscope.capture import (
    Span,
    StepSchedule,
    annotate,
    annotation_begin,
    annotation_end,
    mode,
    record,
    scalar,
    start_profiling,
    step,
    steps,
    stop_profiling,
    watch,
)

TYPE_CHECKING = False  # importing `typing` would slow down the start of a script
if TYPE_CHECKING:
    from typing import Any

    from stepscope.access import open as open  # noqa: A004

# Without `open`: `from stepscope import *` must not shadow the built-in function.
__all__ = [
    "Span",
    "StepSchedule",
    "__version__",
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


def __getattr__(name: str) -> "Any":
    """Load `open` on first use: it needs modules that no training process must import."""
    if name == "open":
        from stepscope import access

        return access.open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
