"""stepscope says what a training job is waiting for.

Nothing of it is needed inside a script: `stepscope run -- python train.py` watches an unchanged
one. These verbs say more where a script wants to:

    annotate(name)                    context manager and decorator: a named interval
    annotation_begin, annotation_end  the same, where it begins and ends in different places
    step(), steps(iterable)           where training steps end
    mode(name)                        a region that trains, evaluates or predicts
    scalar(name, value)               a number, such as a loss
    start_profiling, stop_profiling   record from here to there, without `stepscope run`

Importing it loads nothing but the standard library.
"""

from stepscope._version import __version__
from stepscope.capture import (
    Span,
    annotate,
    annotation_begin,
    annotation_end,
    mode,
    scalar,
    start_profiling,
    step,
    steps,
    stop_profiling,
)

__all__ = [
    "Span",
    "__version__",
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
