"""Tables in, tables out: every number that stepscope states is computed here, once.

Belongs here: pure functions of arrays, each with its formula in the docstring. Does not: I/O,
clocks, printing, thresholds that accuse (`diagnosis`), formatting (`views`).

Of the spans, samples and metrics of a whole run:

    spans           the span table of one process as typed arrays
    statistics      distributions
    steps           where steps begin and end, and what each is spent on
    utilization     what the node was doing
    input_pipeline  how batches are made, and what the training thread waits for
    code_stages     which stage of a pipeline a stack of frames belongs to
    host_work       what the training thread does between its phases
    operators       large operators or the overhead of small ones

Of the recordings of a framework's profiler, each of one process and one window:

    columns         what they are handed
    kernel_classes  what the name of a kernel tells: communication, tensor cores, precision
    device_work     kernels, copies and sets, and which runtime call launched them
    gpu_time        computing, communicating, copying, idle
    idle            why streams were idle
    launches        what launching costs, how long it waits, how much is queued
    trace_steps     where recorded steps begin and end, and what each is spent on
    gpu_metrics     utilisation, efficiency, occupancy, tensor cores
    activity        kinds of activity and of copies
    buckets         time cut into equal pieces, for curves
    grouping        rows by key, for the tables of operators, kernels, memory and annotations
    roofline        work and traffic of operators against the peaks of their device
"""
