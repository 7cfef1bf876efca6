"""Selection of tensors by name and of ranks, as the plan asks for."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable

from stepscope.capture.frameworks.pytorch.ranks import find_rank
from stepscope.spool import TensorPlan

MAX_SEARCHED_NAMES = 5000
"""Limit of the names among which the nearest ones are looked for."""
MAX_COMPARED_NAMES = 50
"""Of these, those that are compared character by character: they have the most pairs of
neighbouring characters in common with the pattern."""
NEAREST_COUNT = 3
_SPECIAL_CHARACTERS = re.compile(r"[\\^$*+?()\[\]{}|]")


class NamePatterns:
    """Regular expressions for whole names, and the names that they were compared with."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._matches: dict[str, bool] = {}
        self._unmatched = {pattern.pattern: None for pattern in self._patterns}

    def match(self, name: str) -> bool:
        """Return True if a pattern matches a name."""
        if not self._patterns:
            return False
        result = self._matches.get(name)
        if result is None:
            matching = [pattern for pattern in self._patterns if pattern.fullmatch(name)]
            for pattern in matching:
                self._unmatched.pop(pattern.pattern, None)
            result = self._matches[name] = bool(matching)
        return result

    def describe_unmatched(self, step_count: int) -> list[str]:
        """Describe each pattern that no name has matched, with the nearest names.

        Args:
            step_count: number of recorded steps.
        """
        if not self._matches:  # nothing was called or trained in this process
            return []
        steps = "1 recorded step" if step_count == 1 else f"{step_count} recorded steps"
        return [
            f"The pattern {pattern!r} has matched no tensor in {steps}; the nearest names "
            f"are {', '.join(self._find_nearest(pattern))}"
            for pattern in self._unmatched
        ]

    def _find_nearest(self, pattern: str) -> list[str]:
        from difflib import get_close_matches

        text = _SPECIAL_CHARACTERS.sub("", pattern.replace(".*", ""))
        pairs = _list_pairs(text)

        def similarity(name: str) -> float:
            name_pairs = _list_pairs(name)
            return len(pairs & name_pairs) / max(1, len(pairs) + len(name_pairs))

        # The exact comparison takes 50 times as long, and the training waits.
        names = list(self._matches)[:MAX_SEARCHED_NAMES]
        names = heapq.nlargest(MAX_COMPARED_NAMES, names, key=similarity)
        return get_close_matches(text, names, NEAREST_COUNT, cutoff=0.0)


def _list_pairs(text: str) -> set[str]:
    """Return the pairs of neighbouring characters."""
    return {text[start : start + 2] for start in range(len(text) - 1)}


def is_recorded_rank(plan: TensorPlan) -> bool:
    """Return True if the plan asks for the rank of this process.

    The script may set its rank, or start `torch.distributed`, after the import of torch.
    """
    return plan.ranks is None or plan.records_rank(find_rank())
