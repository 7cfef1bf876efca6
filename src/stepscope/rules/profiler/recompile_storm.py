"""Repeated compilation by torch.compile, JAX or the tracing of TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals
from stepscope.quantities import count_of, duration, percent
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes, RuleInputs, RuleTrace, imported_steps
from stepscope.rules.parameters import Count
from stepscope.rules.samples import sort_series, sort_traces
from stepscope.rules.templates import PerRankRule, Ranks, RankState, RankStates

MAX_LISTED = 200
"""Steps per rank in the details."""
MIN_TRACED_STEPS = 3
"""A trace of fewer steps does not show that compilation repeats."""
NO_STACKS = (
    "no recorded compilation, no stack samples of a training thread, and no trace with regions of "
    "torch.compile"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileStormParameters:
    """Limits of recompilation."""

    recompiles: Count = 8
    """The rule fires if there are more steps with compilation, or variants of one compiled frame,
    than this; 8 is torch's own limit of variants."""
    patience: Count = 50
    """First steps of each rank, in which everything is compiled once, that are left out."""


class FunctionCompilation(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded compilations of one function in the steps that count."""

    count: int = 0
    total_ns: int = 0


class RankCompilation(msgspec.Struct, frozen=True, kw_only=True):
    """Compilation on one rank."""

    compiling_step_count: int = 0
    compiling_steps: list[int] = []
    """Numbers of the first 200 steps with compilation."""
    compiling_share_ratio: float = 0.0
    """Share of the wall time of the steps that count."""
    functions: dict[str, FunctionCompilation] = {}
    """By function, of torch.compile by cause."""


class TraceVariants(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled variants and compilation in one trace."""

    rank: str = ""
    variant_count: dict[str, int] = {}
    """Variants that ran, by compiled frame."""
    step_count: int | None = None
    """Marked steps of an imported trace; None for a window of a watched job."""
    compiling_step_count: int = 0
    """Steps of these in which the device has no work while a compiler runs."""
    compiling_share_ratio: float = 0.0
    """Share of that time of all steps."""


class RecompileStormDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Compilation by rank and by trace."""

    ranks: dict[str, RankCompilation] = {}
    recordings: dict[str, TraceVariants] = {}


class _CompilingRank(RankState, kw_only=True):
    steps: list[int] = msgspec.field(default_factory=list)
    """Numbers of steps with compilation."""
    compiling_ns: int = 0
    wall_ns: int = 0
    functions: dict[str, FunctionCompilation] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class _State(RankStates[_CompilingRank, TraceVariants]):
    pending: dict[str, dict[str | None, analysis.Series]] = field(default_factory=dict)
    """What ranks have compiled in steps that have not ended, by rank: recorded compilations by
    function, and under None stack samples in a compiler. A rank without is not watched."""

    def add(self, rank: str, name: str | None, series: analysis.Series) -> None:
        """Add compilations of a rank, to be attributed to steps later."""
        pending = self.pending.setdefault(rank, {})
        earlier = [pending[name]] if name in pending else []
        pending[name] = sort_series(analysis.merge_series([*earlier, series]))


class RecompileStorm(PerRankRule[RecompileStormParameters, _CompilingRank, _State]):
    """Checks whether torch.compile or JAX compiles, or TensorFlow traces functions, repeatedly.

    ## What it checks
    Recorded compilations, and stack samples of the training thread inside torch's compiler, by
    step; the first `patience` steps do not count. More than `recompiles` steps with compilation
    fire the rule. So does a trace in which more variants than that of one compiled frame ran, and
    an imported trace with more such steps in which a compiler runs while the device has no work, or
    if all of its steps are, at least three. Datapoints are steps, traces with compiled regions and
    imported traces with steps; violations are those steps and traces.

    ## Why it matters
    Each recompilation takes seconds in which the devices are idle. After a few of them torch gives
    up and runs the frame uncompiled.

    ## What to do
    TORCH_LOGS=recompiles shows the guards that failed, JAX_EXPLAIN_CACHE_MISSES=1 the reason for
    which JAX compiles. Pad inputs to a few shapes, and keep Python numbers and static arguments
    that change from step to step out of the compiled function. With torch, mark dynamic dimensions
    (torch._dynamo.mark_dynamic), or compile with dynamic=True.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = RecompileStormParameters
    recommendation = (
        "Pad inputs to a few shapes, and pass numbers that change as tensors or arrays. "
        "TORCH_LOGS=recompiles and JAX_EXPLAIN_CACHE_MISSES=1 show why functions compile."
    )
    evidence = ("steps", "operators")
    plots = ("step",)
    missing_in_traces = "the traces have no steps with operators, and no regions of torch.compile"
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for rank, samples in inputs.compiler_time.items():
            state.add(rank, None, samples)
        for rank, functions in inputs.compilations.items():
            for name, compilations in functions.items():
                state.add(rank, name, compilations)
        for steps in inputs.steps:
            if len(steps) and steps.rank not in state.ranks:
                state.ranks[steps.rank] = _CompilingRank(node=steps.node)
        super().update(state, inputs)
        for trace in sort_traces(inputs):
            variants = _measure_compilation(trace)
            if variants.variant_count or variants.step_count:
                fires = self._is_storm(variants)
                state.traces.add(trace, variants, fires=fires, inputs=inputs, trigger=state.trigger)
        return state

    def update_rank(self, state: _State, steps: RankStepTimes, inputs: RuleInputs) -> None:
        """Attribute the compilations of a rank to its steps."""
        if not len(steps):
            return
        p, rank = self.parameters, state.ranks[steps.rank]
        counts = steps.number >= p.patience
        rank.step_count += int(counts.sum())
        rank.wall_ns += int(steps.wall_ns[counts].sum())
        pending = state.pending.get(steps.rank, {})
        compiling_ns = steps.phase_ns["compilation"].copy()
        if None in pending:  # each sample stands for some of the same time
            compiling_ns = np.maximum(compiling_ns, _take(pending, None, steps).ns)
        compiles = counts & (compiling_ns > 0)
        rank.compiling_ns += int(compiling_ns[compiles].sum())
        for name in [*pending]:
            if name is None:
                continue
            function = _take(pending, name, steps)
            count = int(function.calls[compiles].sum())
            if count:
                earlier = rank.functions.get(name, FunctionCompilation())
                rank.functions[name] = FunctionCompilation(
                    count=earlier.count + count,
                    total_ns=earlier.total_ns + int(function.ns[compiles].sum()),
                )
        previous_count = rank.violation_count
        rank.steps += steps.number[compiles].tolist()
        rank.violation_count = len(rank.steps)
        excess = np.flatnonzero(compiles)[max(0, p.recompiles - previous_count) :]
        excess_end_ns = steps.end_ns[excess]
        rank.triggered |= len(excess_end_ns) > 0
        state.trigger.add_times(inputs, excess_end_ns)
        state.trigger.cover(steps.start_ns[excess], excess_end_ns)

    def _is_storm(self, trace: TraceVariants) -> bool:
        """Return True if too many variants ran, or too many steps compiled."""
        limit, compiling = self.parameters.recompiles, trace.compiling_step_count
        is_all = compiling >= MIN_TRACED_STEPS and compiling == trace.step_count
        return compiling > limit or is_all or _count_variants(trace) > limit

    def evaluated_ranks(self, state: _State) -> dict[str, _CompilingRank]:
        ranks = sorted(state.ranks.items())
        return {name: r for name, r in ranks if name in state.pending and r.step_count}

    def require_inputs(self, state: _State) -> None:
        if not self.evaluated_ranks(state) and not state.traces.details:
            raise NotApplicable(NO_STACKS)

    def datapoint_count(self, state: _State) -> int:
        ranks = self.evaluated_ranks(state).values()
        return sum(rank.step_count for rank in ranks) + len(state.traces.details)

    def details(self, state: _State, ranks: Ranks[_CompilingRank]) -> RecompileStormDetails:
        return RecompileStormDetails(
            ranks={
                name: RankCompilation(
                    compiling_step_count=len(rank.steps),
                    compiling_steps=rank.steps[:MAX_LISTED],
                    compiling_share_ratio=rank.compiling_ns / max(1, rank.wall_ns),
                    functions=rank.functions,
                )
                for name, rank in ranks.items()
            },
            recordings=state.traces.details,
        )

    def sentences(
        self, state: _State, ranks: Ranks[_CompilingRank], triggered: Ranks[_CompilingRank]
    ) -> Iterable[str]:
        for name, rank in triggered.items():
            yield (
                f"{name}: compilation in {len(rank.steps)} of {rank.step_count} steps after the "
                f"first {self.parameters.patience}, {percent(rank.compiling_ns / rank.wall_ns, 1)} "
                "of their time."
            )
            if rank.functions:
                function, total = max(rank.functions.items(), key=lambda item: item[1].total_ns)
                comparison = f", the most of {len(rank.functions)} functions"
                yield (
                    f"{name}: {function or 'a function without a name'} took "
                    f"{duration(total.total_ns)} in {count_of(total.count, 'compilation')}"
                    f"{comparison if len(rank.functions) > 1 else ''}."
                )
        for name in state.traces.triggered:
            trace = state.traces.details[name]
            if _count_variants(trace) > self.parameters.recompiles:
                yield f"Trace {name}: {_count_variants(trace)} variants of one compiled frame ran."
            if trace.compiling_step_count:
                yield (
                    f"Trace {name}: compilation in {trace.compiling_step_count} of "
                    f"{trace.step_count} steps, {percent(trace.compiling_share_ratio, 1)} of their "
                    "time."
                )


class _InSteps(NamedTuple):
    """Number and time of compilations by step."""

    calls: intervals.Int
    ns: intervals.Int


def _take(
    pending: dict[str | None, analysis.Series], name: str | None, steps: RankStepTimes
) -> _InSteps:
    """Take the compilations that started before the end of the last step, by step."""
    t_ns, ns = pending[name].t_ns, pending[name].value.astype(np.int64)
    first, end = np.searchsorted(t_ns, steps.start_ns), np.searchsorted(t_ns, steps.end_ns)
    cumulative_ns = np.concatenate([[0], np.cumsum(ns)])
    pending[name] = analysis.Series(t_ns[end[-1] :], pending[name].value[end[-1] :])
    return _InSteps(end - first, cumulative_ns[end] - cumulative_ns[first])


def _count_variants(trace: TraceVariants) -> int:
    return max(trace.variant_count.values(), default=0)


def _measure_compilation(trace: RuleTrace) -> TraceVariants:
    variants = TraceVariants(rank=trace.rank, variant_count=dict(trace.compiled_variants))
    steps = imported_steps(trace)
    if steps is None or not steps.has_host:
        return variants
    return msgspec.structs.replace(
        variants,
        step_count=len(steps.times),
        compiling_step_count=int((steps.times.phase_ns["compilation"] > 0).sum()),
        compiling_share_ratio=steps.share(["compilation"]),
    )
