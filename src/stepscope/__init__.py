"""stepscope says what a training job is waiting for.

Nothing of it is needed inside a script: `stepscope run -- python train.py` watches an unchanged
one. These verbs say more where a script wants to:

    annotate(name)                    context manager and decorator: a named interval
    annotation_begin, annotation_end  the same, where it begins and ends in different places
    step(), steps(iterable)           where training steps end
    mode(name)                        a region that trains, evaluates or predicts
    scalar(name, value)               a number, such as a loss
    start_profiling, stop_profiling   record from here to there, without `stepscope run`

What was recorded is read by

    open(run)                         an `OpenRun`: metrics, spans and what follows from them

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

TYPE_CHECKING = False  # the real one comes with a module that is not light
if TYPE_CHECKING:
    from typing import Any

    from stepscope.access import open as open  # noqa: A004

# Not `open`: `from stepscope import *` must keep the built-in one, and load nothing more.
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


def __getattr__(name: str) -> "Any":
    """Load `open` on first use: it needs modules that no training process must import."""
    if name == "open":
        from stepscope import access

        return access.open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
