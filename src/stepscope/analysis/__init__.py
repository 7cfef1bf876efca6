"""Tables in, tables out: every number that stepscope states is computed here, once.

Belongs here: pure functions of arrays, each with its formula in the docstring. Does not: I/O,
clocks, printing, thresholds that accuse (`diagnosis`), formatting (`views`).

    intervals       the algebra: nesting, self time, unions, overlaps
    spans           the span table of one process as typed arrays
    statistics      distributions
    steps           where steps begin and end, and what each is spent on
    utilization     what the node was doing
    input_pipeline  how batches are made, and what the training thread waits for
    code_stages     which stage of a pipeline a stack of frames belongs to
    host_work       what the training thread does between its phases
    operators       large operators or the overhead of small ones
"""
