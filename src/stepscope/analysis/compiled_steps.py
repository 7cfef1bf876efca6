"""Step boundaries of a process that calls functions compiled by JAX.

A compiled function may be anything, a whole training step or the preparation of a batch. The one
that trains is inferred: it returns parameters, their gradients or the state of an optimizer, that
is, arrays of the shapes and types of its arguments. Of the functions that do so and are called
regularly it is the one that returns most, and of several the one called most often. So a
micro-batch is no step if a function that is called less often updates more.

Each of its calls ends a step, together with the waits for results that follow before any other
work: reading the loss of a step belongs to it.
"""

from __future__ import annotations

import numpy as np

from stepscope.analysis.phases import PhaseSpans
from stepscope.analysis.spans import Spans
from stepscope.intervals import Int, Intervals, contains

MIN_CALL_RATIO = 1 / 64
"""Functions that are called less often than this share of the most often called one that returns
state do not train."""


def find_training_calls(spans: Spans) -> Spans:
    """Find the calls of the function that trains; empty if no function returns state.

    Args:
        spans: spans of the training thread, or of all threads.
    """
    calls = spans.of("dispatch")
    calls = calls.take((calls.value > 0) & ~calls.unfinished)
    if not len(calls):
        return calls
    names, function, counts = np.unique(calls.name, return_inverse=True, return_counts=True)
    state_bytes = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(state_bytes, function, calls.value)
    state_bytes[counts < MIN_CALL_RATIO * counts.max()] = 0
    training = np.lexsort([counts, state_bytes])[-1]
    return calls.take(function == training)


def find_call_boundaries(phases: PhaseSpans, evaluation: Intervals) -> Int:
    """Find the ends of the calls that end steps, with the waits that follow each."""
    calls = find_training_calls(phases.spans)
    calls = calls.take(~contains(evaluation, calls.start))
    top = phases.spans.take(phases.parent < 0)
    row = np.searchsorted(top.start, calls.start)
    is_other = ~top.is_kind("device_wait", "garbage_collection")
    work = np.append(np.flatnonzero(is_other), len(top))
    following = work[np.searchsorted(work, row, side="right")]
    # Spans that are not nested end in the order in which they start.
    return np.maximum(calls.end, top.end[following - 1]) if len(calls) else calls.end
