"""Comparison of two runs, or of repeated runs of two programs.

    programs            runs of one program and their steps
    step_changes        change of the steps and its noise, with location_shift
    contributions       parts and calls that contribute to the change of the mean step: mean_step,
                        mean_tree, tree_alignment, sequences, stages, apportionment
    names               time by name of kernel or operator
    job_figures         figures of whole jobs
    before_after        table of a change: utilization, times, hours, dollars
    targets             targets of a fix, reached or not
    configuration       settings that differ
    workload_contract   properties that must be equal for the same work
    conditions, gate    conditions of `--fail-if`, and their evaluation
    compare             all of these together, as a `Comparison`

Formulas for one run belong to `analysis`, costs to `cost`, text to `cli`.
"""

from __future__ import annotations

from stepscope.comparison.before_after import BeforeAfter
from stepscope.comparison.compare import compare_runs
from stepscope.comparison.conditions import parse_condition
from stepscope.comparison.configuration import SettingChange
from stepscope.comparison.contributions import Contribution, Contributions, PartContributions
from stepscope.comparison.gate import Gate, parse_allowed_groups
from stepscope.comparison.job_figures import FigureChange
from stepscope.comparison.names import NameChanges
from stepscope.comparison.payload import ComparedRun, Comparison, StepChanges
from stepscope.comparison.step_changes import StepChange
from stepscope.comparison.targets import TargetOutcome
from stepscope.comparison.workload_contract import ContractDifference, ContractTerms

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
    "TargetOutcome",
    "compare_runs",
    "parse_allowed_groups",
    "parse_condition",
]
