"""torch.compile compiles again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import ordered, recording_scan, recordings, scan_ends
from stepscope.rules.parameters import Count
from stepscope.rules.signals import RankSteps, Series, Signals, scan_numbers
from stepscope.schema import Finding

NO_STACKS = (
    "neither stack samples of a training thread nor a recording with torch.compile's regions is in "
    "the run"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileStormParameters:
    """How much compiling is too much."""

    recompiles: Count = 8
    """Steps with a compiler in them, or variants of one compiled frame, above which it fires; 8
    is torch's own limit of variants."""
    patience: Count = 50
    """The first steps of each rank, in which everything is compiled once, are left out."""


@dataclass(slots=True)
class _Rank:
    node: str
    step_count: int = 0
    steps: list[int] = field(default_factory=list)
    """Numbers of steps with a compiler in them."""
    compiling_ns: int = 0
    wall_ns: int = 0
    fired: bool = False
    pending_t_ns: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pending_ns: Int = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Samples of steps that have not ended."""


@dataclass(slots=True)
class _State:
    ranks: dict[str, _Rank] = field(default_factory=dict)
    sampled: set[str] = field(default_factory=set)
    waiting: dict[str, list[Series]] = field(default_factory=dict)
    """Samples of ranks without a step so far."""
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By recording: its rank, and variants by frame."""
    accused: list[str] = field(default_factory=list)
    firing: Firing = field(default_factory=Firing)


class RecompileStorm(IncrementalRule[RecompileStormParameters, _State]):
    """Checks whether torch.compile compiles again and again.

    ## What it checks
    Stack samples of the training thread inside torch's compiler, by step; the first `patience`
    steps do not count. More than `recompiles` steps with a compiler in them fire the rule. So does
    a recording in which more than so many variants of one compiled frame ran. Datapoints are steps
    and recordings with compiled regions, violations those steps and recordings.

    ## Why it matters
    Each recompilation takes seconds in which the devices idle. After a few of them torch gives up
    and runs the frame without its compiler.

    ## What to do
    TORCH_LOGS=recompiles says which guard failed. Pad inputs to few shapes, mark dynamic
    dimensions (torch._dynamo.mark_dynamic), compile with dynamic=True, and keep Python numbers
    that change from step to step out of the compiled function.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = RecompileStormParameters
    recommendation = (
        "Run with TORCH_LOGS=recompiles; pad to few shapes, mark dynamic dimensions, or compile "
        "with dynamic=True."
    )
    evidence = ("steps", "operators")
    plots = ("step",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        compiling = signals.compiling
        state.sampled |= set(compiling)
        steps = {each.rank: each for each in signals.steps if len(each)}
        for name in compiling.keys() | steps.keys():
            rank = state.ranks.get(name)
            if name in steps and rank is None:
                rank = state.ranks[name] = _Rank(node=steps[name].node)
                for series in state.waiting.pop(name, []):
                    _keep(rank, series)
            if name in compiling and rank is None:
                state.waiting.setdefault(name, []).append(compiling[name])
            elif name in compiling and rank is not None:
                _keep(rank, compiling[name])
            if name in steps and rank is not None:
                state.firing.add(self._attribute(rank, steps[name], signals))
        self._look_at_recordings(state, signals)
        return state

    def _attribute(self, rank: _Rank, steps: RankSteps, signals: Signals) -> list[int]:
        """Give samples to the steps around them; ends of scans with too many such steps."""
        p = self.parameters
        judged = steps.number >= p.patience
        rank.step_count += int(judged.sum())
        rank.wall_ns += int(steps.wall_ns[judged].sum())
        spent = np.concatenate([[0], np.cumsum(rank.pending_ns)])
        begin = np.searchsorted(rank.pending_t_ns, steps.start_ns)
        end = np.searchsorted(rank.pending_t_ns, steps.end_ns)
        busy = judged & (end > begin)
        rank.compiling_ns += int((spent[end] - spent[begin])[judged].sum())
        before = len(rank.steps)
        rank.steps += steps.number[busy].tolist()
        done = int(end[-1])
        rank.pending_t_ns, rank.pending_ns = rank.pending_t_ns[done:], rank.pending_ns[done:]
        over = steps.end_ns[busy][max(0, p.recompiles - before) :]
        rank.fired |= len(over) > 0
        return scan_ends(signals, np.unique(scan_numbers(signals, over)))

    def _look_at_recordings(self, state: _State, signals: Signals) -> None:
        for recording in recordings(signals):
            variants = dict(recording.compiled_variants)
            if not variants:
                continue
            state.variants[recording.name] = {"rank": recording.rank, "variant_count": variants}
            if max(variants.values()) > self.parameters.recompiles:
                state.accused.append(recording.name)
                state.firing.add(recording_scan(signals, recording))

    def decide(self, state: _State) -> Finding | None:
        judged = {n: r for n, r in state.ranks.items() if n in state.sampled and r.step_count}
        if not judged and not state.variants:
            raise NotApplicable(NO_STACKS)
        wrong = {name: rank for name, rank in judged.items() if rank.fired}
        said = [
            f"{name}: a compiler ran in {len(rank.steps)} of {rank.step_count} steps past the "
            f"first {self.parameters.patience}, and took {rank.compiling_ns / rank.wall_ns:.1%} of "
            "their time."
            for name, rank in sorted(wrong.items())
        ]
        said += [
            f"In the recording {name}, {max(state.variants[name]['variant_count'].values())} "
            "variants of one compiled frame ran."
            for name in state.accused
        ]
        return self.finding(
            triggered=state.firing,
            violations=sum(len(rank.steps) for rank in judged.values()) + len(state.accused),
            datapoints=sum(rank.step_count for rank in judged.values()) + len(state.variants),
            details={
                "ranks": {
                    name: {
                        "compiling_step_count": len(rank.steps),
                        "compiling_steps": rank.steps[:200],
                        "compiling_share_ratio": rank.compiling_ns / max(1, rank.wall_ns),
                    }
                    for name, rank in sorted(judged.items())
                },
                "recordings": state.variants,
            },
            sentences=said,
            ranks=[*wrong, *(state.variants[name]["rank"] for name in state.accused)],
            nodes={rank.node for rank in wrong.values()},
        )


def _keep(rank: _Rank, series: Series) -> None:
    new = ordered(series)
    t_ns = np.concatenate([rank.pending_t_ns, new.t_ns])
    order = np.argsort(t_ns, kind="stable")
    rank.pending_t_ns = t_ns[order]
    rank.pending_ns = np.concatenate([rank.pending_ns, new.value.astype(np.int64)])[order]
