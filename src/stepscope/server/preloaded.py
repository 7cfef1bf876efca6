"""Imported once, in the process that workers are forked from: every view."""

from __future__ import annotations

from stepscope.views import VIEWS

for _view in VIEWS.values():
    _view.load()
