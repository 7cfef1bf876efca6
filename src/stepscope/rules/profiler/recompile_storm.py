"""Repeated compilation by torch.compile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stepscope.analysis import Series
from stepscope.intervals import Int
from stepscope.quantities import percent
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes, RuleInputs
from stepscope.rules.parameters import Count
from stepscope.rules.samples import sort_series, sort_traces
from stepscope.rules.templates import PerRankRule, Ranks, RankState, RankStates
from stepscope.rules.traces import RuleTrace, imported_steps

MAX_LISTED = 200
"""Steps per rank in the details."""
MIN_TRACED_STEPS = 3
"""A trace of fewer steps does not show that compilation repeats."""
NO_STACKS = "no stack samples of a training thread, and no trace with regions of torch.compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileStormParameters:
    """Limits of recompilation."""

    recompiles: Count = 8
    """The rule fires if there are more steps with compilation, or variants of one compiled frame,
    than this; 8 is torch's own limit of variants."""
    patience: Count = 50
    """First steps of each rank, in which everything is compiled once, that are left out."""


class RankCompilation(msgspec.Struct, frozen=True, kw_only=True):
    """Compilation on one rank."""

    compiling_step_count: int = 0
    compiling_steps: list[int] = []
    """Numbers of the first 200 steps with compilation."""
    compiling_share_ratio: float = 0.0
    """Share of the wall time of the steps that count."""


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


@dataclass(slots=True, kw_only=True)
class _CompilingRank(RankState):
    steps: list[int] = field(default_factory=list)
    """Numbers of steps with compilation."""
    compiling_ns: int = 0
    wall_ns: int = 0
    pending_t_ns: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pending_ns: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Samples of steps that have not ended."""

    def add_samples(self, samples: Series) -> None:
        """Add stack samples in a compiler, to be attributed to steps later."""
        new = sort_series(samples)
        t_ns = np.concatenate([self.pending_t_ns, new.t_ns])
        order = np.argsort(t_ns, kind="stable")
        self.pending_t_ns = t_ns[order]
        self.pending_ns = np.concatenate([self.pending_ns, new.value.astype(np.int64)])[order]


@dataclass(slots=True)
class _State(RankStates[_CompilingRank, TraceVariants]):
    sampled: set[str] = field(default_factory=set)
    """Ranks whose stacks are sampled."""
    early_samples: dict[str, list[Series]] = field(default_factory=dict)
    """Samples of ranks without any step so far."""


class RecompileStorm(PerRankRule[RecompileStormParameters, _CompilingRank, _State]):
    """Checks whether torch.compile compiles repeatedly.

    ## What it checks
    Stack samples of the training thread inside torch's compiler, by step; the first `patience`
    steps do not count. More than `recompiles` steps with compilation fire the rule. So does a trace
    in which more variants than that of one compiled frame ran, and an imported trace with more such
    steps in which a compiler runs while the device has no work, or if all of its steps are, at
    least three. Datapoints are steps, traces with compiled regions and imported traces with steps;
    violations are those steps and traces.

    ## Why it matters
    Each recompilation takes seconds in which the devices are idle. After a few of them torch gives
    up and runs the frame uncompiled.

    ## What to do
    TORCH_LOGS=recompiles shows the guards that failed. Pad inputs to a few shapes, mark dynamic
    dimensions (torch._dynamo.mark_dynamic), compile with dynamic=True, and keep Python numbers that
    change from step to step out of the compiled function.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = RecompileStormParameters
    recommendation = (
        "Run with TORCH_LOGS=recompiles. Pad inputs to a few shapes, mark dynamic dimensions, or "
        "compile with dynamic=True."
    )
    evidence = ("steps", "operators")
    plots = ("step",)
    missing_in_traces = "the traces have no steps with operators, and no regions of torch.compile"

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        state.sampled |= set(inputs.compiler_time)
        for steps in inputs.steps:
            if len(steps) and steps.rank not in state.ranks:
                rank = state.ranks[steps.rank] = _CompilingRank(node=steps.node)
                for samples in state.early_samples.pop(steps.rank, []):
                    rank.add_samples(samples)
        for name, samples in inputs.compiler_time.items():
            if name in state.ranks:
                state.ranks[name].add_samples(samples)
            else:
                state.early_samples.setdefault(name, []).append(samples)
        super().update(state, inputs)
        for trace in sort_traces(inputs):
            variants = _measure_compilation(trace)
            if variants.variant_count or variants.step_count:
                fires = self._is_storm(variants)
                state.traces.add(trace, variants, fires=fires, inputs=inputs, trigger=state.trigger)
        return state

    def update_rank(self, state: _State, steps: RankStepTimes, inputs: RuleInputs) -> None:
        """Attribute the samples of a rank to its steps."""
        if not len(steps):
            return
        p, rank = self.parameters, state.ranks[steps.rank]
        counts = steps.number >= p.patience
        rank.step_count += int(counts.sum())
        rank.wall_ns += int(steps.wall_ns[counts].sum())
        cumulative_ns = np.concatenate([[0], np.cumsum(rank.pending_ns)])
        first = np.searchsorted(rank.pending_t_ns, steps.start_ns)
        end = np.searchsorted(rank.pending_t_ns, steps.end_ns)
        compiles = counts & (end > first)
        rank.compiling_ns += int((cumulative_ns[end] - cumulative_ns[first])[counts].sum())
        previous_count = rank.violation_count
        rank.steps += steps.number[compiles].tolist()
        rank.violation_count = len(rank.steps)
        attributed = int(end[-1])
        rank.pending_t_ns = rank.pending_t_ns[attributed:]
        rank.pending_ns = rank.pending_ns[attributed:]
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
        return {name: r for name, r in ranks if name in state.sampled and r.step_count}

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
