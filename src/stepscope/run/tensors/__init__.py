"""Tensors, scalars and boosted models of a run.

Belongs here: reading and binning of tensor tables. Does not: traces or spans.
"""
