"""Second verdict: does the model learn?"""

from __future__ import annotations

from typing import Literal

import msgspec

LEARNING_TITLE = "Is the model learning?"
LearningState = Literal["healthy", "issue", "not_judged"]


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to "is the model learning?", from the rules about tensors and losses."""

    state: LearningState
    """`healthy`: the loss decreases and no rule fired; `issue`: a rule fired; `not_judged`: too
    little was recorded."""
    headline: str
    rule: str | None = None
    """The rule that fired first, by the time of its data."""
    first_ns: int | None = None
    """Time of the first data that violated its condition, epoch nanoseconds."""
    evidence: list[str] = []
    advice: str = ""
    also: list[str] = []
    """Rules that fired after it, in order."""
    not_recorded: list[str] = []
    """Reasons why parts could not be judged."""

    @property
    def lines(self) -> list[str]:
        """The answer, its evidence and what to do, as sentences."""
        return [
            self.headline,
            *self.evidence,
            *([f"What to do: {self.advice}"] if self.advice else []),
            *([f"Fired later: {', '.join(self.also)}."] if self.also else []),
            *self.not_recorded,
        ]
