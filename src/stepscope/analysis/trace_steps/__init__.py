"""Steps of traces: boundaries, exposed time, what the host does while the device is idle.

Belongs here: time inside a trace by step. Does not: steps of recorded spans (`steps`).
"""
