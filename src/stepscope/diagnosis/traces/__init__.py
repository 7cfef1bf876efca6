"""Diagnosis of a run that holds traces of a profiler and no watched job.

trace_shares    share of step time of each suspect, waiting of ranks for the slowest
trace_details   what the traces show of data loading, launches, waits, precision and occupancy
trace_python    Python of the script between operators
trace_inputs    what several causes are told apart by
trace_causes    cause within a suspect
trace_fixes     fixes, and the step without a cause
trace_obstacles reasons for no verdict
trace_verdict   all of these together, as a `Verdict`
"""

from __future__ import annotations

from stepscope.diagnosis.traces.trace_verdict import diagnose_traces

__all__ = ["diagnose_traces"]
