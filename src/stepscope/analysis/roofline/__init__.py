"""What each operator had to do, how fast it did it, and how fast the device could have.

calls          one call as recorded; what a model says of it
matrix, convolution, attention, normalization, pointwise, optimizers
               the models: floating-point operations and bytes from shapes
registry       which operator has which model
device_table   what devices can do, by their vendors' documents
peaks          the peaks of one device
accounting     every kernel accounted once, to one call
groups         calls with the same arguments, against the roofline
utilization    the share of the peak that each step used
"""
