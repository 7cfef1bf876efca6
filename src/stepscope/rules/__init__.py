"""Rules: conditions that a run is checked against, live or afterwards.

Belongs here: conditions, their parameters, details and pages, and the state that makes a scan of a
growing run cheap. Does not belong here: reading a run (`rule_feed`), general formulas
(`analysis`), actions on a finding (`watch`).

    profiler/       built-in rules about time and resources, one file per kind of rule
    tensor/         built-in rules about what a model learns, one file per kind of rule
    base            Rule, IncrementalRule, details of findings, when a condition holds
    templates       rules with a statistic per device or rank, results per trace
    evaluate        evaluation of several rules
    inputs          protocols of the inputs of a rule and of a trace
    samples         sorted samples, latest ones across the borders of ranges, utilization
    parameters      accepted values of parameters, conversion from text
    registry        rules by name, their settings, their documentation pages
    quantile_sketch quantiles of a whole run in little memory
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
