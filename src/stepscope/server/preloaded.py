"""Import of every view, once, in the fork server of the workers."""

from __future__ import annotations

from stepscope.views import VIEWS

for _view in VIEWS.values():
    _view.load()
