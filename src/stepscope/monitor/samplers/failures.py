"""Failures of samplers, as the run describes them: since when, until when, and why."""

from __future__ import annotations

import msgspec

from stepscope.quantities import count_of, duration


class Failure(msgspec.Struct):
    """Failures of one source."""

    first_ns: int
    """Time of the first one, since the start of the job."""
    last_ns: int
    """Time from which it could be sampled again or was left out, or of the last one."""
    count: int
    """Number of times that it began to fail."""
    is_failing: bool
    reason: str


class SamplerFailures:
    """Failures of the samplers of this node, by group."""

    def __init__(self) -> None:
        self.by_group: dict[str, Failure] = {}

    def add(self, group: str, reason: str, elapsed_ns: int) -> None:
        """Note that a source cannot be sampled.

        Args:
            group: the source.
            reason: one clause.
            elapsed_ns: time since the start of the job.
        """
        failure = self.by_group.get(group)
        if failure is None:
            self.by_group[group] = Failure(elapsed_ns, elapsed_ns, 1, True, reason)
            return
        failure.count += not failure.is_failing
        failure.is_failing, failure.last_ns, failure.reason = True, elapsed_ns, reason

    def end(self, group: str, elapsed_ns: int) -> None:
        """Note that a source is sampled, or left out; *elapsed_ns* is the time since the start of
        the job."""
        failure = self.by_group.get(group)
        if failure is not None and failure.is_failing:
            failure.is_failing, failure.last_ns = False, elapsed_ns

    @property
    def notes(self) -> list[str]:
        """One clause per source."""
        return [_describe(group, failure) for group, failure in self.by_group.items()]


def _describe(group: str, failure: Failure) -> str:
    first, last = duration(failure.first_ns), duration(failure.last_ns)
    if failure.count > 1:
        times = count_of(failure.count, "time")
        when = f"{times} between {first} and {last} after the start of the job"
        if failure.is_failing:
            when += ", and still cannot be"
    elif failure.is_failing:
        when = f"from {first} after the start of the job on"
    else:
        when = f"from {first} to {last} after the start of the job"
    return f"{group} could not be sampled {when}: {failure.reason}"
