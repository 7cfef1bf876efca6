"""Ranges of time that a run can be restricted to."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.intervals import Int, Mask


class Period(NamedTuple):
    """A range of time in epoch nanoseconds, the end exclusive."""

    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, start_ns: int | None, end_ns: int | None) -> Period:
        """Return the range between two times; None for an open end."""
        return ALWAYS.between(start_ns, end_ns)

    def contains(self, t_ns: Int) -> Mask:
        """Mask the times in the range."""
        return (t_ns >= self.start_ns) & (t_ns < self.end_ns)

    def condition(self, column: str) -> str:
        """Build the SQL condition for rows whose time is in the range."""
        return f"{column} >= {self.start_ns} AND {column} < {self.end_ns}"

    def between(self, start_ns: int | None, end_ns: int | None) -> Period:
        """Return the range with another start and end, where they are given."""
        return Period(
            self.start_ns if start_ns is None else start_ns,
            self.end_ns if end_ns is None else end_ns,
        )


ALWAYS = Period(-(1 << 62), 1 << 62)
"""Longer than any run."""
