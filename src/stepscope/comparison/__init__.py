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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
