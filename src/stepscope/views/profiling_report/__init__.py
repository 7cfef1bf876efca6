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

from stepscope.views.profiling_report.blocks import (
    BarChart,
    Block,
    Boxes,
    Cell,
    Chart,
    Check,
    Column,
    Curves,
    Heatmap,
    Histogram,
    Lines,
    Listing,
    Matrix,
    Pie,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.report import (
    Report,
    ReportFacts,
    choose_report_rules,
    make_both_reports,
    make_report,
    make_report_facts,
)

__all__ = [
    "BarChart",
    "Block",
    "Boxes",
    "Cell",
    "Chart",
    "Check",
    "Column",
    "Curves",
    "Heatmap",
    "Histogram",
    "Lines",
    "Listing",
    "Matrix",
    "Pie",
    "Report",
    "ReportFacts",
    "Section",
    "Table",
    "Text",
    "choose_report_rules",
    "make_both_reports",
    "make_report",
    "make_report_facts",
]
