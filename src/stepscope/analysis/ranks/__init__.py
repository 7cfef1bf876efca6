"""Several ranks: clocks, collectives, lateness, pipeline stages, stuck jobs.

Belongs here: what compares ranks. Does not: the time of one rank by phase (`steps`).
"""
