"""Comparison of two runs, or of repeated runs of two programs.

    programs            runs of one program and their steps
    step_changes        change of the steps and its noise
    contributions       parts, calls and stages that contribute to the change of the mean step
    mean_step           the mean step of a program, and its tree of calls
    tree_alignment      the trees of two programs, matched
    names               time by name of kernel or operator; settings that differ
    before_after        table of a change: utilization, times, hours, dollars
    workload_contract   properties that must be equal for the same work
    conditions, gate    figures and conditions of `--fail-if`, and their evaluation
    last_run            the last run of a command
    compare             all of these together, as a `Comparison` (`payload`)

Formulas for one run belong to `analysis`, costs to `cost`, text to `cli`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
