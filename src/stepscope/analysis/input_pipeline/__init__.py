"""Input pipeline: batches, the stages of their creation, and Python time by function.

Belongs here: how batches come about. Does not: the wait for them as a phase of the step (`steps`).
"""
