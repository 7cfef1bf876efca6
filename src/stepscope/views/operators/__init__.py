"""Views of operators, modules, annotations and the roofline.

Belongs here: time by name. Does not: kernels on the device (`devices`).
"""
