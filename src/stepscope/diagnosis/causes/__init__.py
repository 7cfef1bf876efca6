"""Causes within a suspect, each from its evidence.

Belongs here: why a part of the step takes its time. Does not: its share (`shares`),
its remedy (`fixes`).
"""
