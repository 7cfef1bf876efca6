"""Roofline analysis: work of each operator call, achieved rates, and peaks of the device.

calls          one call as recorded, and the work of it
matrix, convolution, attention, experts, normalization, pointwise, serving, optimizers
               models: floating-point operations and bytes from shapes
server_operators, registry
               models by operator
batches        lengths of the sequences that an inference server works on
device_table   peaks of devices, from their vendors' documents
peaks          peaks of one device
accounting     attribution of every kernel to one call
groups         calls with the same arguments, against the roofline
summary        totals by family, largest gaps to the roofline
utilization    share of the peak used by each step
"""
