"""Start of a job under the profiler, with its monitor and watch.

Belongs here: what `run`, `attach` and `try` share. Does not: their options (`options`).
"""
