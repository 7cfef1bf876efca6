"""Profiling report of a run, for people and for programs.

Belongs here: the sections of a report, their sentences and numbers. Does not belong here: formulas
(`analysis`, `rules`), HTML, colours and layout (`report`, the web).

    blocks             parts of sections: texts, tables, charts
    building           limits, texts and charts that sections share
    rule_results       input of sections: the run and the findings of its rules
    job                start, training and end of the job
    system             utilization of every node
    framework          time by phase, operator and kernel
    rule_summary       all rules in a table
    boosting           models of XGBoost
    training           the training loop rule by rule: steps, gpus, loading
    report             the report

Every list, chart and name has a limit, and the report states how many items it omits. Figures in
tables and sentences cover the whole run.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
