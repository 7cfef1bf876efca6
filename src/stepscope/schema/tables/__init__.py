"""Declarations of tables.

job           spans, stacks, scalars, collectives and tensors of the job
metrics       samples of nodes
trace_events  events of traces
traces        traces, their devices, tracks, process groups and quality
"""
