"""Import of every view, once, in the fork server of the workers."""

from __future__ import annotations

from stepscope import views

for _view in views.VIEWS.values():
    _view.load()
