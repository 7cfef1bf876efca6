"""Stages of a job: several trainings one after the other in its processes."""

from __future__ import annotations

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.run.model.engine import StepTable
from stepscope.run.model.run import Rank, Run


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
    has_ranks = all(rank.process.rank is not None for rank in run.ranks)
    if not run.ranks or (len(run.ranks) > 1 and not has_ranks):
        return []
    first = run.ranks[0]
    return analysis.find_stages(first.spans, first.steps, _list_first_uses(first))


def _list_first_uses(rank: Rank) -> list[tuple[int, int]]:
    """List the recorded optimizers: the identity of each, and the time of its first use."""
    return [
        (fact.identity, fact.t_ns)
        for fact in rank.facts(schema.ObjectFact)
        if fact.object == "optimizer" and fact.identity is not None
    ]


def select_stage(run: Run, stage: analysis.Stage) -> Run:
    """Return the run restricted to a stage: the first steps are warm-up, and the facts of its
    processes are those of the models and optimizers that it uses."""
    part = run.whole_run.between(stage.start_ns, stage.end_ns)
    part.all_ranks = [
        Rank(
            part,
            _select_facts(rank, stage),
            StepTable(analysis.pack_steps(steps.as_stage())),
            rank.name,
        )
        for rank in part.whole_run.all_ranks
        if len(steps := rank.steps.starting_within(*part.period))
    ]
    return part


def _select_facts(rank: Rank, stage: analysis.Stage) -> schema.ProcessInfo:
    """Select the facts of a stage, of models by their classes and of optimizers by their order."""
    spans = rank.spans.on_thread(rank.steps.thread)
    inside = (spans.start >= stage.start_ns) & (spans.start < stage.end_ns)
    models = _list_names(spans.take(inside & spans.is_kind("forward")))
    updates = spans.is_kind("optimizer") & ~spans.is_named("GradScaler")
    identities = _list_identities(spans.take(updates), _list_first_uses(rank))
    optimizers = list(dict.fromkeys(identities))
    used = {identities[row] for row in np.flatnonzero(inside[updates]).tolist()}
    is_used = [identity in used for identity in optimizers]
    has_order = len(is_used) == len(rank.facts(schema.OptimizerFact))
    numbers = {fact.model for fact in rank.facts(schema.ModelFact) if fact.name in models}
    facts, row = [], 0
    for fact in rank.process.facts:
        match fact.get("fact"):
            case "model" | "model_inputs" if numbers and fact["model"] not in numbers:
                continue
            case "optimizer":
                row += 1
                if has_order and not is_used[row - 1]:
                    continue
        facts.append(fact)
    return msgspec.structs.replace(rank.process, facts=facts)


def _list_names(spans: analysis.Spans) -> set[str]:
    return {spans.names[code] for code in np.unique(spans.name).tolist()}


def _list_identities(
    updates: analysis.Spans, first_uses: list[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    number = analysis.count_first_uses(updates, first_uses)
    columns = (updates.name.tolist(), updates.value.tolist(), number.tolist())
    return list(zip(*columns, strict=True))
