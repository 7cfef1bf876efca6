"""Faults of single ranks of a job on two hosts: is the right rank named, for the right reason?

    job      training job, one of whose ranks may be slow
    hosts    two hosts on one machine, network namespaces or names alone
    faults   faults, and what is expected of the views

`python -m benchmarks.late_ranks` runs every fault with every seed, and healthy jobs.
"""
