"""Adapters: one package per framework, each importing its framework only when installed.

registry    which adapter is installed after which import; oldest supported releases
progress    step boundaries, for code that acts on them; samplers; versions; waits for batches
windows     detailed windows, as planned by the monitor
profilers   what windows need of the profiler of a framework
xplane      recorders of windows that write XPlane files
tables      what is private in the frameworks other than PyTorch
trainers    Accelerate, Lightning, Transformers and Ray Train
"""
