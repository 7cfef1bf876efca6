"""Training steps of a run: boundaries, phases, evaluation, statistics.

Belongs here: steps of recorded spans. Does not: steps of traces (`trace_steps`).
"""
