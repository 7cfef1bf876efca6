"""The timeline: what there is to draw, slices and counters of a window, and questions about them.

Belongs here: payloads and how tracks are named and grouped. Does not: reading a window from the
store (`diagnosis.timeline_*`), summing up slices (`analysis.timeline_*`).
"""
