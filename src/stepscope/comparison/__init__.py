from __future__ import annotations

from stepscope.comparison.before_after import BeforeAfter
from stepscope.comparison.compare import comparison
from stepscope.comparison.conditions import parse_condition
from stepscope.comparison.gate import ContractDifference, ContractTerms, Gate, allowed_groups
from stepscope.comparison.parts import Contribution, Contributions, PartContributions
from stepscope.comparison.payload import (
    ComparedRun,
    Comparison,
    FigureChange,
    NameChanges,
    SettingChange,
    StepChange,
    StepChanges,
)

__all__ = [
    "BeforeAfter",
    "ComparedRun",
    "Comparison",
    "ContractDifference",
    "ContractTerms",
    "Contribution",
    "Contributions",
    "FigureChange",
    "Gate",
    "NameChanges",
    "PartContributions",
    "SettingChange",
    "StepChange",
    "StepChanges",
    "allowed_groups",
    "comparison",
    "parse_condition",
]
