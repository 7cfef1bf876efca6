"""Arrays in general: columns, groups, statistics, histograms.

Belongs here: what knows no subject. Does not: anything that knows a step, a rank or a device.
"""
