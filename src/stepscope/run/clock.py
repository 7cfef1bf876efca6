"""Where time begins: what a range of time, as people give it, counts from.

Epoch nanoseconds do not fit the doubles of a browser, and nobody wants to type them. So times are
given and shown as nanoseconds after the run's origin, which is the earliest time that anything was
recorded at.

A recording whose file states no base of its clock counts from somewhere else, often from when the
machine was started. Beside others it is moved so that it begins at the origin.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.store import RunReader

NEAR_NS = 7 * 24 * 3600 * 10**9
"""A clock without a base that differs less than this from the others is taken to be right."""


_LATEST = "SELECT trace, max(start_ns + duration_ns) AS latest FROM timeline GROUP BY trace"
"""A recording's own end is that of the kinds of events that are known; there may be others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """When a run was recorded, on one clock."""

    origin_ns: int
    """Epoch nanoseconds of the earliest record; 0 where there is none."""
    end_ns: int
    """Of the latest one."""
    moved_ns: dict[int, int] = field(default_factory=dict)
    """By recording that states no base of its clock: what its times are to be increased by."""

    def shift_ns(self, trace: int) -> int:
        """What is added to the times of a recording to put them on the run's clock."""
        return self.moved_ns.get(trace, 0)

    def origin_in(self, trace: int) -> int:
        """The run's origin on the clock of a recording."""
        return self.origin_ns - self.shift_ns(trace)


def clock_of(reader: RunReader) -> RunClock:
    """The clock of a run; footers, the table of recordings and their levels of detail know it."""
    known = [
        extent
        for table, columns in (("spans", ("start_ns", "end_ns")), ("metrics", ("t_ns",)))
        for times in reader.times(table).values()
        for column in columns
        if (extent := times.get(column)) is not None
    ]
    rows = reader.table("traces", ("trace", "start_ns", "end_ns", "base_ns"), order_by="start_ns")
    latest = reader.sql(_LATEST)
    ends = dict(zip(latest["trace"].tolist(), latest["latest"].tolist(), strict=True))
    recordings = [
        (trace, start, max(end, ends.get(trace, end)), base)
        for trace, start, end, base in zip(*(rows[name].tolist() for name in rows), strict=True)
    ]
    known += [(start, end) for _, start, end, base in recordings if base]
    baseless = [(trace, start, end) for trace, start, end, base in recordings if not base]
    if not known and baseless:  # the latest is the likeliest to count from 1970
        known = [baseless[-1][1:]]
    if not known:
        return RunClock(origin_ns=0, end_ns=0)
    first, last = min(start for start, _ in known), max(end for _, end in known)
    near = {
        trace for trace, start, end in baseless if start < last + NEAR_NS and end > first - NEAR_NS
    }
    origin = min([first, *(start for trace, start, _ in baseless if trace in near)])
    moved = {trace: origin - start for trace, start, _ in baseless if trace not in near}
    ended = [end + moved.get(trace, 0) for trace, _, end, _ in recordings]
    return RunClock(origin_ns=origin, end_ns=max([last, *ended]), moved_ns=moved)
