"""Pure functions from arrays to arrays: every figure that stepscope reports is computed here, once.

Belongs here: pure functions of arrays, each with its formula in the docstring. Does not: I/O,
clocks, printing, thresholds of findings (`rules`, `diagnosis`), formatting (`views`).

Building blocks:

    columns           input format: tables as arrays, strings as codes
    grouping          rows by key, with sums
    statistics        distributions, means with missing values
    histograms        values in bins
    buckets           equal time buckets, for curves
    growth            growth of a series

Spans, samples and metrics of a run:

    spans             span table of one process as typed arrays
    phases            phases of a step, on the host and on the device
    evaluation        evaluation inside a training job
    steps             training steps: boundaries, and time by phase
    step_statistics   phases and slowest steps of one rank
    clock_alignment   offset and drift of nodes' clocks by matched collectives
    late_chain        first late rank of a chain of groups
    late_ranks        lateness, waiting and transfer by rank and step, episodes of lateness
    rank_steps        step durations by rank, stragglers
    slow_link         link out of one node that transfers wait for
    confusion         scores of a classifier
    input_pipeline    batch creation, and the data wait of the training thread
    code_stages       stage of an input pipeline that a stack belongs to
    core_delays       time of the training thread without a core, by phase
    host_work         work of the training thread outside phases
    function_profile  Python time by function
    utilization       node metrics, CPU contention
    sampling_ticks    samples taken together, heat maps
    exchange          exposed gradient exchange of DDP
    stuck_collectives  collective at which a job is stuck, and the ranks that others wait for
    stuck_transfers   the same for sends and receives between two ranks
    operators         work and framework overhead in compute phases
    collective_lateness  lateness of ranks at the collectives that PyTorch's recorder numbers

Traces of a framework's profiler, each of one process and one window:

    kernel_classes    communication, tensor cores and precision by kernel name
    device_work       kernels, copies and sets, and the runtime calls that launched them
    gpu_time          compute, exposed communication, exposed copies, idle
    gpu_metrics       utilization, SM efficiency, occupancy, tensor cores
    recorded_utilization  utilization of devices over time
    idle              idle time of streams by reason
    launches          cost of launches, delays, queue depth
    kernel_sequences  kernels that operators launch again and again
    graph_replays     work of replayed graphs, and the operators that were captured
    activity          kinds of activity and of copies
    collectives       matching across ranks: wait, transfer, bandwidth
    rank_time         time of one rank, and of its collectives
    trace_steps       steps of a trace, and exposed time by category
    repeated_ranges   steps of a trace that names none
    step_parts        parts of the steps: device work, and the host's reasons for none
    copy_waits        waits of the host for copies
    request_waits     times in which nothing asks the host for work
    exposed_time      exposed time by owner, down to the single call
    operator_tree     operators as a tree; operator_table, kernel_table, annotation_table
    kernel_durations  kernels by class of duration
    kernel_counters   hardware counters by kernel and operator
    recomputation     forward operators that run again in the backward pass
    call_paths        calls grouped by path
    modules           modules of the model; module_flame
    memory_*          memory over time, blocks, peak, operators
    roofline          work and traffic of operators against the peaks of their device
    timeline_*        events as slices, nested and summed

Operations of jobs with pipeline stages, each of one worker and step:

    stage_operations  operations aligned over steps and data ranks
    stage_graph       dependencies between them
    stage_slowdown    steps replayed: slowdown by stragglers, and what replacing them gains
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
