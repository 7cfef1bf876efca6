"""Findings that the watch process stored in a run while its job ran under `stepscope run`.

Reading them evaluates nothing and imports no rule.
"""

from __future__ import annotations

from stepscope.schema import RuleRecord
from stepscope.store import RunReader

RULES_DOCUMENT = "rules"
"""Name of the document among a run's findings that the watch process writes."""


def recorded_rules(reader: RunReader) -> RuleRecord | None:
    """Read the record of the watch process; None where there was none."""
    return reader.document(RULES_DOCUMENT, as_type=RuleRecord)
