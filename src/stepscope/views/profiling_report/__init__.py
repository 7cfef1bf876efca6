"""The profiling report of a run: what people read, and what machines read.

Belongs here: which sections a report has, their sentences, and every number in them. Does not
belong here: formulas (`analysis`, `rules`), HTML, colours, layout (`report`, the web).

    blocks        what sections are made of
    words         units, words and bounds that sections share
    evaluated     the run and its findings, which sections are made from
    job           when it began, trained and ended
    system, heat  what every node used
    framework     what the framework spent its time on
    rule_summary  all rules in a table
    training      the training loop rule by rule: steps, gpus, loading, bottlenecks
    whole         all of it

A report is bounded by construction: every list, chart and name has a limit, and says how much
was left out. Figures in tables and sentences are those of the whole run.
"""

from __future__ import annotations

from stepscope.views.profiling_report.blocks import (
    Block,
    Boxes,
    Cell,
    Chart,
    Check,
    Column,
    Heatmap,
    Histogram,
    Lines,
    Listing,
    Missing,
    Pie,
    Section,
    Table,
    Text,
)
from stepscope.views.profiling_report.whole import (
    Report,
    ReportFacts,
    make_report,
    report_facts,
    report_rules,
)

__all__ = [
    "Block",
    "Boxes",
    "Cell",
    "Chart",
    "Check",
    "Column",
    "Heatmap",
    "Histogram",
    "Lines",
    "Listing",
    "Missing",
    "Pie",
    "Report",
    "ReportFacts",
    "Section",
    "Table",
    "Text",
    "make_report",
    "report_facts",
    "report_rules",
]
