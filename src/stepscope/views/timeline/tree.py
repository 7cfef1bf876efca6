"""`timeline`: the tree of tracks, steps to jump to, and what rules found when."""

from __future__ import annotations

from stepscope.rule_feed import recorded_rules
from stepscope.run import Run
from stepscope.views.options import ViewOptions
from stepscope.views.quality import notes_across
from stepscope.views.timeline.groups import groups_of
from stepscope.views.timeline.payload import FindingMark, TimelineView
from stepscope.views.timeline.steps import steps_of

NOTHING = (
    "nothing that has a time was recorded: run a job with `stepscope run -- CMD`, or bring a "
    "recording in with `stepscope import FILE -o RUN`"
)


def timeline(run: Run, options: ViewOptions) -> TimelineView:
    """What there is to draw, and when."""
    clock = run.clock
    groups, notes = groups_of(run)
    steps, more_notes = steps_of(run)
    notes += more_notes
    names = {trace.trace: trace.name for trace in run.traces}
    moved = [names[trace] for trace in clock.shift_by_trace_ns]
    if moved:
        notes.append(
            "these recordings state no base of their clock and are drawn from the origin on: "
            + ", ".join(moved[:8])
            + (f" and {len(moved) - 8} more" if len(moved) > 8 else "")
        )
    return TimelineView(
        origin_ns=str(clock.origin_ns),
        end_after_ns=clock.end_ns - clock.origin_ns,
        groups=groups,
        steps=steps,
        findings=_findings(run),
        notes=notes,
        quality=notes_across(run, run.traces),
        missing=None if groups else NOTHING,
    )


def _findings(run: Run) -> list[FindingMark]:
    origin_ns = run.clock.origin_ns
    recorded = recorded_rules(run.reader)
    return [
        FindingMark(
            rule=finding.rule,
            sentence=finding.sentences[0] if finding.sentences else finding.rule,
            first_after_ns=finding.first_ns - origin_ns,
            last_after_ns=(finding.last_ns or finding.first_ns) - origin_ns,
        )
        for finding in (recorded.fired if recorded else [])
        if finding.first_ns is not None
    ]
