"""Views of steps, ranks, nodes, and the input pipeline.

Belongs here: time by step and rank. Does not: time by name (`operators`).
"""
