"""Classes of the read model: `Run`, `Rank`, `Trace`, `NodeMetrics`, and their tables.

Belongs here: what a view, a rule or the verdict is handed. Does not: how one table is read (`job`,
`traces`, `tensors`).
"""
