"""Rules: conditions that a run is checked against, live or afterwards.

Belongs here: conditions, their parameters, details and pages, and the state that makes a scan of a
growing run cheap. Does not belong here: reading a run (`rule_feed`), general formulas
(`analysis`), actions on a finding (`watch`).

    base            Rule, IncrementalRule
    templates       rules with a statistic per device or rank, results per trace
    parameters      accepted values of parameters, conversion from text
    settings        parameters of several rules: configuration, `Name.parameter=value`
    inputs          protocol of the inputs of a rule
    traces          protocol of a trace
    samples         sorted samples, snapshots
    details         details of findings
    quantile_sketch quantiles of a whole run in little memory
    rolling_window  latest samples across the borders of ranges
    usage           latest utilization samples and a sketch of all of them
    step_phases     phases of the steps that contain given times
    threshold_text  values in sentences beside a threshold
    trigger         scans in which a condition held
    registry        rules by name
    pages           documentation pages
    evaluate        evaluation of several rules
    profiler/       built-in rules about time and resources, one per file
    tensor/         built-in rules about what a model learns, one per file
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
