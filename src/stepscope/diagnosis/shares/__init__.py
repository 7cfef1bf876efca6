"""Shares of the suspects in the time of a step.

Belongs here: how much. Does not: why (`causes`).
"""
