"""Rules: conditions that a run is checked against, live or afterwards.

Belongs here: conditions, their parameters, their pages, and the state that makes a scan of a
growing run cheap. Does not belong here: reading a run (`diagnosis.rule_signals` does), formulas of
general use (`analysis`), what happens when a rule fires.

    base        what a rule is
    parameters  values that parameters take, how text becomes one
    settings    parameters of several rules: configuration, `Name.parameter=value`
    signals     what rules may ask of a run
    inputs      signals put in order: sorted, without failed readings, as shares
    tally       counts by value: quantiles of a whole run in little memory
    trailing    the latest samples across the borders of ranges
    phases_at   what ranks were doing at given moments
    firing      when a rule fired
    registry    which rules there are
    pages       what is written about each
    evaluate    runs them
    profiler/   the built-in ones, one per file
"""

from __future__ import annotations

from stepscope.rules.base import IncrementalRule, NotApplicable, Rule
from stepscope.rules.evaluate import Evaluation
from stepscope.rules.pages import page, summary
from stepscope.rules.parameters import describe
from stepscope.rules.phases_at import shares
from stepscope.rules.profiler.batch_size import BatchSizeParameters
from stepscope.rules.profiler.overall_framework_metrics import TRAINING
from stepscope.rules.registry import Registry, installed_rules, load_rule_file
from stepscope.rules.settings import make_rules, read_assignments, read_configuration
from stepscope.rules.signals import Batches, Device, RankSteps, Recording, Series, Signals

__all__ = [
    "TRAINING",
    "BatchSizeParameters",
    "Batches",
    "Device",
    "Evaluation",
    "IncrementalRule",
    "NotApplicable",
    "RankSteps",
    "Recording",
    "Registry",
    "Rule",
    "Series",
    "Signals",
    "describe",
    "installed_rules",
    "load_rule_file",
    "make_rules",
    "page",
    "read_assignments",
    "read_configuration",
    "shares",
    "summary",
]
