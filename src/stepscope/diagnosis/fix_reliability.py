"""Outcomes of tried fixes, by kind: the first change that a fix makes.

`python -m benchmarks.fix_outcomes` writes `fix_outcomes.json` from the outcomes of `stepscope try`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from stepscope.diagnosis.verdict import Fix

OUTCOMES = Path(__file__).with_name("fix_outcomes.json")
MAX_WRONG_RATIO = 0.1
MIN_WRONG_COUNT = 2
"""One wrong outcome alone says little about a kind."""


class OutcomeCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcomes of one kind of fix for which a shorter step was predicted."""

    tried_count: int
    right_count: int
    """The whole interval of the measured saving was above zero."""
    wrong_count: int
    """The whole interval was below zero: the fix made the step longer."""
    median_ratio: float | None
    """Median of measured / predicted saving; None where only bounds were predicted."""

    @property
    def is_often_wrong(self) -> bool:
        """True if the sign was wrong more than once in ten."""
        return (
            self.wrong_count >= MIN_WRONG_COUNT
            and self.wrong_count > MAX_WRONG_RATIO * self.tried_count
        )


class FixOutcomes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcomes by kind of fix."""

    kinds: dict[str, OutcomeCounts] = {}


def is_often_wrong(fix: Fix) -> bool:
    """Return True for a kind of fix whose predicted sign was wrong more than once in ten.

    Such a fix is listed after the others.
    """
    counts = load_outcomes().kinds.get(fix.changes[0].name) if fix.changes else None
    return counts is not None and counts.is_often_wrong


@cache
def load_outcomes() -> FixOutcomes:
    """Load the outcomes that came with this version."""
    return msgspec.json.decode(OUTCOMES.read_bytes(), type=FixOutcomes)
