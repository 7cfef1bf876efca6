"""Views of tensors, scalars and boosted models.

Belongs here: what a model learns. Does not: how long it takes.
"""
