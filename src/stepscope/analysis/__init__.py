"""Pure functions from arrays to arrays: every figure that stepscope reports is computed here, once.

Belongs here: pure functions of arrays, each with its formula in the docstring. Does not: I/O,
clocks, printing, thresholds of findings (`rules`, `diagnosis`), formatting (`views`).

    arrays/          columns, groups, statistics, histograms

Spans, samples and metrics of a run:

    steps/           boundaries and phases of training steps, evaluation, statistics
    input_pipeline/  batches, the wait for them, stages, Python time by function
    ranks/           clocks, collectives, lateness, pipeline stages, stuck jobs
    machines         metrics of nodes, contention for cores
    host_memory      memory of the job on a node, its limit and when that is full
    memory_growth    growth of memory over steps, and when it is full
    tensors          statistics of tensors and scalars, scores of a classifier

Traces of a framework's profiler, each of one process and one window:

    kernel_classes   communication, tensor cores and precision by kernel name
    devices/         busy and idle time, kernels, launches, memory
    trace_steps/     steps of a trace, exposed time, what the host does meanwhile
    operators/       operators, modules, annotations
    roofline/        work and traffic of operators against the peaks of their device
    timeline         events as slices, nested and summed
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
