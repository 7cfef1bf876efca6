"""The built-in rules about tensors and losses, one per file.

Belongs here: rules, and base classes of several of them (`base`). A new rule is one file and one
entry in `RULES`; its docstring is its page.
"""

from __future__ import annotations

from typing import Any

from stepscope.rules.base import Rule
from stepscope.rules.tensor.all_zero import AllZero
from stepscope.rules.tensor.exploding_tensor import ExplodingTensor
from stepscope.rules.tensor.tensor_variance import TensorVariance
from stepscope.rules.tensor.unchanged_tensor import UnchangedTensor
from stepscope.rules.tensor.vanishing_gradient import VanishingGradient
from stepscope.rules.tensor.weight_update_ratio import WeightUpdateRatio

RULES: tuple[type[Rule[Any]], ...] = (
    AllZero,
    ExplodingTensor,
    TensorVariance,
    UnchangedTensor,
    VanishingGradient,
    WeightUpdateRatio,
)
"""Rules that Debugger has, then the others."""
