"""`timeline`: the tree of tracks, steps to jump to, and findings of rules in time."""

from __future__ import annotations

from stepscope.rule_feed import recorded_rules
from stepscope.run import Run
from stepscope.views.options import ViewOptions
from stepscope.views.quality import note_run_quality
from stepscope.views.timeline.groups import build_groups
from stepscope.views.timeline.payload import FindingMark, TimelineView
from stepscope.views.timeline.steps import list_steps

NOTHING = (
    "the run has no timed events: run a job with `stepscope run -- CMD`, or import a trace with "
    "`stepscope import FILE -o RUN`"
)
NOTHING_IN_FILES = "the imported files contain no timed events"


def timeline(run: Run, options: ViewOptions) -> TimelineView:
    """Build the tree of tracks, with steps and findings."""
    clock = run.clock
    groups, notes = build_groups(run)
    steps, step_notes = list_steps(run)
    notes += step_notes
    names = {trace.trace: trace.name for trace in run.traces}
    shifted = [names[trace] for trace in clock.shift_by_trace_ns]
    if shifted:
        notes.append(
            "these traces have no clock base and are drawn from the origin of the run: "
            + ", ".join(shifted[:8])
            + (f" and {len(shifted) - 8} more" if len(shifted) > 8 else "")
        )
    return TimelineView(
        origin_ns=str(clock.origin_ns),
        end_after_ns=clock.end_ns - clock.origin_ns,
        groups=groups,
        steps=steps,
        findings=_list_findings(run),
        notes=notes,
        quality=note_run_quality(run, run.traces),
        missing=None if groups else NOTHING_IN_FILES if run.is_imported else NOTHING,
    )


def _list_findings(run: Run) -> list[FindingMark]:
    recorded = recorded_rules(run.reader)
    return [
        FindingMark(
            rule=finding.rule,
            sentence=finding.sentences[0] if finding.sentences else finding.rule,
            first_after_ns=run.clock.count_until(finding.first_ns),
            last_after_ns=run.clock.count_until(finding.last_ns or finding.first_ns),
        )
        for finding in (recorded.fired if recorded else [])
        if finding.first_ns is not None
    ]
