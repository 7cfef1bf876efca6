"""The built-in rules about what a model learns, one per file.

A new rule is one file and one entry in `TENSOR_RULES`; its docstring is its page.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.tensor.nan_origin import NanOrigin

TENSOR_RULES: tuple[type[Rule[Any]], ...] = (NanOrigin,)
"""Rules in the order of their pages."""
