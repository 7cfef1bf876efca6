"""Simulated fixes, checked: replays of real traces, another tool's critical path, true fixes.

    python -m benchmarks.what_if [--traces DIR] [--hta PYTHON] [--rounds N] [--only REGEX]

recordings  traces of a folder: errors of the replay, critical path, cost of the graph
hta         critical path of HolisticTraceAnalysis for the same traces
jobs        training loops, each with a bottleneck and without it
training    one of them, timed and recorded in a process of its own
pairs       predicted saving of a fix against the one that it achieves
page        tables of docs/what-if.md

Results are in benchmarks/results/what_if.json; `python -m tools.docs` writes the tables.
"""
