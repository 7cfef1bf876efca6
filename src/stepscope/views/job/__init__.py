"""Views of the whole job: overview, jobs, insights, dashboard, configuration.

Belongs here: what is said of a job as one. Does not: single steps, devices, tensors.
"""
