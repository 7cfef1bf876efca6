"""Work of devices in traces: launches, kernels, memory, busy and idle time.

Belongs here: figures of one device or stream. Does not: steps (`trace_steps`), work by operator
(`operators`, `roofline`).
"""
