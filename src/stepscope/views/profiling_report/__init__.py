"""Profiling report of a run, for people and for programs.

Belongs here: the sections of a report, their sentences and numbers. Does not belong here: formulas
(`analysis`, `rules`), HTML, colours and layout (`report`, the web).

    blocks             parts of sections: texts, tables, charts
    building           limits, texts and charts that sections share, and their input
    job                start, training and end of the job; time by phase, operator and kernel
    system, usage      utilization of every node
    boosting           models of XGBoost
    training, gpus     the training loop rule by rule
    report             the report, with all rules in a table

Every list, chart and name has a limit, and the report states how many items it omits. Figures in
tables and sentences cover the whole run.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
