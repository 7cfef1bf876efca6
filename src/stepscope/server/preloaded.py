"""Import of what views use, once, in the fork server of the workers, which share its memory."""

from __future__ import annotations

import importlib

from stepscope import analysis, cost, diagnosis, rule_feed, views

for _view in views.VIEWS.values():
    _view.load()
for _package in (analysis, cost, diagnosis, rule_feed):
    for _name in _package.__all__:
        getattr(_package, _name)
for _module in ("_duckdb", "numpy.ma", "numpy.random"):  # imported on first use elsewhere
    importlib.import_module(_module)
