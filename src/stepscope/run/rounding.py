"""Runs whose oldest records were rounded to keep the run within its size limit."""

from __future__ import annotations

from stepscope.quantities import duration, memory
from stepscope.run.run import Run


def explain_rounding(run: Run) -> str | None:
    """Explain in one sentence which records of a run or range are rounded; None if none are."""
    limit_bytes = run.reader.info.options.get("max_run_size_bytes")
    if limit_bytes is None:
        return None
    times = run.reader.rounded_times()
    if times is None or times[1] < run.period.start_ns or times[0] >= run.period.end_ns:
        return None
    start_ns, end_ns = times
    return (
        f"Spans and samples of the first {duration(end_ns - start_ns)} of the recording are "
        f"rounded to keep the run within {memory(limit_bytes)} (--max-run-size): their "
        "counts and the total time of each kind of span are exact, single times and samples are "
        "not; detailed windows are as they were recorded."
    )
