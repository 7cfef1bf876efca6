"""Waits of a process for requests: times in which it gives its device, or itself, no work.

A trace trains if it has a backward pass, an optimizer step or a fetch of a DataLoader. In one that
does not, the host has no work while it runs no operator and makes no runtime call, and

    with Python functions       every thread that runs operators is in a function that waits: for
                                a queue, a lock, a socket, a poll, or asleep
    without Python functions    this lasts for more than `MAX_CALL_NS`; whether the host waits for
                                requests or runs Python code is then not known
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepscope.analysis.operators import MAX_CALL_NS
from stepscope.intervals import EMPTY, Intervals, find_gaps, subtract, union, unite

_TRAINING = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*$|Optimizer\.")
WAIT_FUNCTIONS = (
    r"^<(built-in )?(method|function) '?(acquire|poll|select|control|sleep|accept|recv\w*)\b"
    r"|(^|[/\\])queue\.py\(\d+\): get$"
    r"|(^|[/\\])(threading|selectors)\.py\(\d+\): (wait|acquire|_?select)$"
    r"|(^|[/\\])multiprocessing[/\\]connection\.py\(\d+\): (wait|poll|_?recv\w*|accept)$"
)
"""Pattern of the names of Python functions that wait, of `re` and of DuckDB."""
_WAIT_FUNCTION = re.compile(WAIT_FUNCTIONS)


def is_training(name: str) -> bool:
    """Return True if an operator or a range is of a backward pass or an optimizer.

    >>> is_training("AddmmBackward0"), is_training("Optimizer.step#SGD.step")
    (True, True)
    >>> is_training("aten::addmm")
    False
    """
    return _TRAINING.match(name) is not None


def is_wait_function(name: str) -> bool:
    """Return True if a Python function waits for another thread or process, or sleeps.

    >>> is_wait_function("<built-in method acquire of _thread.lock object at 0x7f0>")
    True
    >>> is_wait_function("queue.py(154): get"), is_wait_function("dict.py(3): get")
    (True, False)
    """
    return _WAIT_FUNCTION.search(name) is not None


def find_waits_of_threads(
    threads: Sequence[tuple[Intervals, Intervals]], activity: Intervals
) -> Intervals:
    """Find the times in which all of some threads wait in a Python function, or run none.

    Args:
        threads: Python functions of each thread, and those among them that wait.
        activity: operators, runtime calls and the like, of any thread.
    """
    waits = [union(waiting) for _, waiting in threads]
    busy = [
        subtract(union(functions), waiting)
        for (functions, _), waiting in zip(threads, waits, strict=True)
    ]
    return subtract(unite(EMPTY, *waits), unite(activity, *busy))


def find_unrecorded_time(extent: tuple[int, int], activity: Intervals) -> Intervals:
    """Find the times without any activity that are longer than `MAX_CALL_NS`.

    Args:
        extent: start and end of the trace.
        activity: operators, runtime calls and the like.
    """
    gaps = find_gaps(union(activity), extent)
    rows = gaps.end - gaps.start > MAX_CALL_NS
    return Intervals(gaps.start[rows], gaps.end[rows])
