"""Inputs of rules from the files of a run, read incrementally while it grows.

feed       inputs of rules over ranges of a growing run
steps      steps, and rows of tensors, each returned once
traces     traces as rules see them
selection  rules that are evaluated
check      evaluation on a run; files that cannot be read
learning   the verdict "is the model learning?", and recorded findings
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
