"""Roofline analysis: work of each operator call, achieved rates, and peaks of the device.

calls        one call as recorded, and the work of it
matrix, attention, layers, pointwise, serving
             models: floating-point operations and bytes from shapes
registry     models by operator
peaks        peaks of a device, with the table of vendors' figures
accounting   attribution of every kernel to one call
groups       calls with the same arguments, against the roofline; totals by family
utilization  share of the peak used by each step
"""
