"""Runs drawn as text, for tests: stepscope's own, and those of whoever builds on it.

Belongs here: what makes a run directory without running a job. Does not: assertions, fixtures of
a test framework, anything that a command needs.

    drawing    the language: one line of text is the life of one thread
    runs       `RunBuilder`: threads, processes and nodes become a run directory
"""

from __future__ import annotations

from stepscope.testing.drawing import Drawing, stack_text
from stepscope.testing.runs import RunBuilder

__all__ = ["Drawing", "RunBuilder", "stack_text"]
