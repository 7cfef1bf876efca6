"""Views of the timeline: tracks, slices and counters of a window, event details, search and sums.

Belongs here: payloads, and names and groups of tracks. Does not: reading from the store and
computing on arrays (`timeline`, `analysis`).
"""
