"""Marks on the timeline that are no recorded events: findings, and calls of a stuck job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepscope import diagnosis, rule_feed, schema
from stepscope.run import Run
from stepscope.timeline import TrackId
from stepscope.views.options import shorten_name
from stepscope.views.timeline.payload import FindingMark, StandingCall, TrackGroup


def process_group_id(process: schema.ProcessInfo) -> str:
    """Return the id of the group of a process."""
    return str(TrackId("process", (process.process,)))


def list_findings(run: Run) -> list[FindingMark]:
    """List when rules fired."""
    recorded = rule_feed.recorded_rules(run.reader)
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


def list_standing_calls(run: Run, groups: Sequence[TrackGroup]) -> list[StandingCall]:
    """List the innermost functions of the user's code in which a stuck job is."""
    ids = {
        (process.node, process.pid): process_group_id(process)
        for process in run.processes
        if process.role == "main"
    }
    calls = []
    for node in diagnosis.read_stuck_nodes(run.reader).values():
        if not (node.was_stuck and node.has_reached_limit):
            continue
        for pid, frames in _iterate_main_stacks(node):
            group = _find_group(groups, ids.get((node.node, pid), ""))
            frame = diagnosis.find_user_frame(frames)
            if group is None or not group.tracks or frame is None:
                continue
            name = f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})"
            calls.append(
                StandingCall(
                    track=group.tracks[0].id,
                    name=shorten_name(name),
                    after_ns=run.clock.count_until(node.since_ns),
                )
            )
    return calls


def _iterate_main_stacks(
    node: schema.StuckNode,
) -> Iterator[tuple[int, Sequence[schema.StackFrame]]]:
    """Iterate over the stacks of the main threads, innermost frame first, with their processes."""
    yield from ((rank.pid, rank.frames) for rank in node.ranks)
    for process in node.processes:
        yield from ((process.pid, thread.frames) for thread in process.threads if thread.is_main)


def _find_group(groups: Sequence[TrackGroup], group_id: str) -> TrackGroup | None:
    """Find a group of tracks in a tree by its id; None if it is not listed."""
    for group in groups:
        match = group if group.id == group_id else _find_group(group.groups, group_id)
        if match is not None:
            return match
    return None
