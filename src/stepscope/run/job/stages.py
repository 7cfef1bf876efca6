"""Stages of a job: several trainings one after the other in its processes."""

from __future__ import annotations

from dataclasses import replace

from stepscope import analysis
from stepscope.run.model.engine import StepTable
from stepscope.run.model.run import Run
from stepscope.run.ranks.collectives import has_replicas


def list_stages(run: Run) -> list[analysis.Stage]:
    """List the stages of a run in the order of time: those of its first rank, whose steps the
    others take at the same times.

    Empty without steps, and where processes train on their own. The stages of a range are those of
    the whole run that reach into it.
    """
    stages = run.whole_run.derive(_find_stages)
    return [
        stage
        for stage in stages
        if stage.start_ns < run.period.end_ns and stage.end_ns > run.period.start_ns
    ]


def _find_stages(run: Run) -> list[analysis.Stage]:
    if not run.ranks or has_replicas(run):
        return []
    first = run.ranks[0]
    return analysis.find_stages(first.spans, first.steps)


def select_stage(run: Run, stage: analysis.Stage) -> Run:
    """Return the run restricted to a stage, of which the first steps are warm-up."""
    part = run.whole_run.between(stage.start_ns, stage.end_ns)
    part.all_ranks = [
        replace(rank, run=part, table=StepTable(analysis.pack_steps(steps.as_stage())))
        for rank in part.whole_run.all_ranks
        if len(steps := rank.steps.starting_within(*part.period))
    ]
    return part
