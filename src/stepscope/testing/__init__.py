"""What tests need, stepscope's own and those of whoever builds on it.

Belongs here: what makes a run directory without running a job, or opens a page. Does not:
assertions, fixtures of a test framework, anything that a command needs.

    drawing    the language: one line of text is the life of one thread
    runs       `RunBuilder`: threads, processes and nodes become a run directory
    browser    a real Chromium, for the pages that are drawn from runs
"""

from __future__ import annotations

from stepscope.testing.drawing import Drawing, stack_text
from stepscope.testing.runs import RunBuilder

__all__ = ["Drawing", "RunBuilder", "stack_text"]
