"""Figures of many ranks, in parts that an engine maps over processes or machines.

Belongs here: functions of a part of the run, and the reduction of their tables. Does not: the
engines (`engines`).
"""
