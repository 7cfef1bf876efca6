"""Views of devices: GPU time, kernels, metrics, memory.

Belongs here: one file per screen of device work. Does not: steps and ranks (`steps`), operators.
"""
