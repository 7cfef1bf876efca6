"""Small tables of ranks, which tasks make of a part of a run each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stepscope import analysis, schema

MAX_PART_PROCESSES = 8
"""Processes of one node that are read in one part of the run."""


class StepTable(NamedTuple):
    """Steps of one training process."""

    steps: analysis.PackedSteps
    waiting: analysis.DataWait | None = None
    """Waiting of the measured steps, which every verdict needs; None if not measured yet."""


class SpanSource(Protocol):
    """Run, as far as tables are made of it."""

    def cache_step_spans(self, processes: Sequence[schema.ProcessInfo]) -> None:
        """Read the spans by which steps are found, of processes of one node."""

    def step_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        """Return the spans by which steps are found."""


def find_step_tables(
    run: SpanSource, processes: Sequence[schema.ProcessInfo], *, end_kinds: tuple[str, ...]
) -> dict[str, StepTable]:
    """Find the steps of some processes, by process; those without a complete step are omitted.

    Args:
        run: the run.
        processes: processes of one node.
        end_kinds: as of `find_steps`.
    """
    run.cache_step_spans(processes)
    tables = {}
    for process in processes:
        spans = run.step_spans(process)
        steps = analysis.find_steps(spans, end_kinds)
        if steps is not None:
            waiting = analysis.split_data_wait(spans, steps, steps.measured())
            tables[process.process] = StepTable(analysis.pack_steps(steps), waiting)
    return tables


def split_by_node(processes: Sequence[schema.ProcessInfo]) -> list[list[schema.ProcessInfo]]:
    """Split processes into parts that one task reads: a few processes of one node each."""
    nodes: dict[str, list[schema.ProcessInfo]] = {}
    for process in processes:
        nodes.setdefault(process.node, []).append(process)
    return [
        members[first : first + MAX_PART_PROCESSES]
        for members in nodes.values()
        for first in range(0, len(members), MAX_PART_PROCESSES)
    ]
