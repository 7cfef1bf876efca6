"""Versions of several frameworks in one process."""

from __future__ import annotations

from typing import Any

JOB = """
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.progress import record_versions

def fail():
    raise AttributeError("__version__")

record_versions(fail)
record_versions(lambda: {"jax": "0.7"})
progress.notify_mark()
"""


def test_a_version_that_cannot_be_found_leaves_the_others(spool: Any) -> None:
    spool.run(JOB, STEPSCOPE_STRICT="0")
    recorded = spool.drain()
    assert [fact["versions"] for fact in recorded.facts("versions")] == [{"jax": "0.7"}]
    (note,) = recorded.notes
    assert note.startswith("stopped recording versions of frameworks after an error: ")
