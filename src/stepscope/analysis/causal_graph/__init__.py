"""Causal graph of traces: what each operator, call and kernel had to wait for.

graph          points in time, edges with weights; replay, longest path, slack
host           threads: own time of operators and calls, work that one thread hands to another
fetches        batches: when each is ready
device         streams: launches, order, events, waits of the host
critical_path  the longest chain of a step, by kind of time and by activity
fixes          the same graph with changed weights: how long a step would take then
"""
