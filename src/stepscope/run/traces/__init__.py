"""Tables of traces: steps, kernels, events, activity of the host.

Belongs here: reading of imported trace tables. Does not: spans of the job (`job`).
"""
