"""Rules about the share of one part of the step: checkpoints, exposed communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities, schema
from stepscope.rules import samples, templates
from stepscope.rules.base import NotApplicable, last_indices, require_more_than
from stepscope.rules.inputs import RankStepTimes, RuleInputs, RuleTrace, scan_indices
from stepscope.rules.parameters import Count, Percentage, percent_beside, share_beside

MIN_STEPS = 20
"""Minimum number of steps for a decision."""
MAX_DESCRIBED = 4
"""Traces that are described where the rule did not fire on any, and there are no other steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShareParameters:
    """Parameters of all these rules."""

    threshold: Percentage
    """The rule fires if the part takes more of the step's wall time (%) than this."""
    window: Count = 100
    """Latest steps of a rank over which the share is computed; at least 20."""
    patience: Count = 10
    """First steps of each rank, in which everything starts up, that are left out."""


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the part in the steps of one rank.

    Each rule names the first field after its part: `data_wait_share_ratio`.
    """

    part_share_ratio: float = 0.0
    """Share of the wall time of all steps that count."""
    highest_window_share_ratio: float | None = None
    """Highest share among the windows in which the rule fired."""
    steps_above_threshold_count: int = 0
    """Steps in which the part takes more than the threshold."""
    compute_share_ratio: float = 0.0
    phase_share_ratio: dict[str, float] = {}
    """Share of each phase."""


class TraceShare(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one trace."""

    rank: str = ""


D = TypeVar("D", bound=RankShare)
P = TypeVar("P", bound=StepShareParameters)
T = TypeVar("T", bound=TraceShare)


class StepShareDetails(msgspec.Struct, Generic[D], frozen=True, kw_only=True):
    """Shares by rank."""

    ranks: dict[str, D] = {}


class TracedShareDetails(StepShareDetails[D], Generic[D, T], frozen=True, kw_only=True):
    """Shares by rank and by trace."""

    recordings: dict[str, T] = {}


class RankShareState(templates.RankState, kw_only=True):
    """Latest steps of one rank, and totals of all that count."""

    window: samples.RollingWindow
    """Rows of (part, wall)."""
    part_ns: int = 0
    phase_ns: dict[str, int] = msgspec.field(default_factory=dict)
    highest_ratio: float = 0.0
    """Highest share among the windows in which the rule fired."""
    first_violation_ns: int | None = None
    """Start of the first step above the threshold."""
    highest_step_count: int = 0
    """Steps of that window."""
    has_samples: bool = False
    """True if there are stack samples of the training thread; set by rules that ask for them."""
    is_imported: bool = False

    @property
    def wall_ns(self) -> int:
        """Wall time of all steps that count."""
        return sum(self.phase_ns.values())


class StepShare(
    templates.PerRankRule[P, RankShareState, templates.RankStates[RankShareState, T]], Generic[P, T]
):
    """Fires if a part takes more than a share of the latest steps of some rank."""

    rank_type: ClassVar[type[RankShare]]
    """Details of one rank."""
    part: ClassVar[str]
    """Name of the part in sentences."""
    run_state = templates.RankStates

    def part_ns(self, steps: RankStepTimes) -> intervals.Int:
        """Return the time of the part in each step."""
        raise NotImplementedError

    def update_rank(
        self,
        state: templates.RankStates[RankShareState, T],
        steps: RankStepTimes,
        inputs: RuleInputs,
    ) -> None:
        p = self.parameters
        included = np.flatnonzero(
            ~steps.profiled & (steps.number >= p.patience) & (steps.wall_ns > 0)
        )
        if not len(included):
            return
        start, end = int(included[0]), int(included[-1]) + 1
        # Consecutive rows need no copy.
        rows = slice(start, end) if end - start == len(included) else included
        rank = state.ranks.setdefault(
            steps.rank, RankShareState(node=steps.node, window=samples.RollingWindow(p.window))
        )
        part, wall = self.part_ns(steps)[rows], steps.wall_ns[rows]
        rank.step_count += len(part)
        rank.part_ns += int(part.sum())
        is_above = 100 * part > p.threshold * wall
        rank.violation_count += int(is_above.sum())
        if rank.first_violation_ns is None and is_above.any():
            rank.first_violation_ns = int(steps.start_ns[rows][is_above][0])
        templates.add_times(
            rank.phase_ns, {p: int(ns[rows].sum()) for p, ns in steps.phase_ns.items()}
        )
        columns = (part, wall, steps.start_ns[rows], steps.end_ns[rows])
        joined, previous = rank.window.extend(np.stack(columns, axis=1).astype(np.int64))
        scans = scan_indices(inputs, steps.end_ns[rows])
        last = last_indices(scans)
        ends = last + previous + 1
        part_sum, wall_sum = samples.rolling_sums(joined[:, :2], ends, p.window).T
        step_count = np.minimum(ends, p.window)
        fires = (step_count >= MIN_STEPS) & (100 * part_sum > p.threshold * wall_sum)
        if fires.any():
            rank.triggered = True
            ratio = part_sum[fires] / wall_sum[fires]
            highest = int(ratio.argmax())
            if ratio[highest] > rank.highest_ratio:
                rank.highest_ratio = float(ratio[highest])
                rank.highest_step_count = int(step_count[fires][highest])
        state.trigger.add_scans(inputs, scans[last[fires]])
        if fires.any() and rank.first_violation_ns is not None:
            until = joined[: int(ends[fires][-1])]
            violating = until[100 * until[:, 0] > p.threshold * until[:, 1]]
            state.trigger.cover(rank.first_violation_ns, violating[:, 3])

    def require_inputs(self, state: templates.RankStates[RankShareState, T]) -> None:
        if not state.ranks:
            raise NotApplicable(samples.NO_STEPS, advice=samples.STEP_ADVICE)
        step_count = max(rank.step_count for rank in state.ranks.values())
        require_more_than(MIN_STEPS - 1, step_count, "steps per rank after the first ones")

    def details(
        self, state: templates.RankStates[RankShareState, T], ranks: templates.Ranks[RankShareState]
    ) -> StepShareDetails[RankShare]:
        return StepShareDetails(ranks=self.rank_details(ranks))

    def rank_details(self, ranks: templates.Ranks[RankShareState]) -> dict[str, RankShare]:
        """Return the details by rank; shares are of the wall time of the steps that count."""
        return {
            name: self.rank_type(
                part_share_ratio=rank.part_ns / rank.wall_ns,
                highest_window_share_ratio=rank.highest_ratio or None,
                steps_above_threshold_count=rank.violation_count,
                compute_share_ratio=sum(
                    rank.phase_ns.get(phase, 0) for phase in (*analysis.COMPUTE_PHASES, "execution")
                )
                / rank.wall_ns,
                phase_share_ratio=templates.shares_of_total(rank.phase_ns),
            )
            for name, rank in ranks.items()
        }

    def sentences(
        self,
        state: templates.RankStates[RankShareState, T],
        ranks: templates.Ranks[RankShareState],
        triggered: templates.Ranks[RankShareState],
    ) -> Iterable[str]:
        """Describe each rank on which the rule fired, or else the one with the highest share."""
        share = {name: rank.part_ns / rank.wall_ns for name, rank in ranks.items()}
        for name in triggered or sorted(ranks, key=lambda name: -share[name])[:1]:
            yield f"{name}: {self.part} takes {self._share_text(ranks[name])}."

    def _share_text(self, rank: RankShareState) -> str:
        threshold = self.parameters.threshold
        share = rank.part_ns / rank.wall_ns
        first = f"after the first {quantities.count_of(self.parameters.patience, 'step')}"
        if not rank.triggered or 100 * rank.part_ns > threshold * rank.wall_ns:
            return share_beside(share, f"step time {first}", threshold)
        # The rule fired on a window; the share of all steps alone would contradict that.
        steps = f"{rank.highest_step_count} consecutive steps"
        highest = share_beside(rank.highest_ratio, steps, threshold)
        return f"up to {highest}, {percent_beside(share, threshold)} of all steps {first}"


class TracedShare(StepShare[P, T], Generic[P, T]):
    """Also evaluates traces, which have more detail than steps."""

    def evaluate_trace(self, trace: RuleTrace) -> tuple[T, bool] | None:
        """Return the details of a trace and True if the rule fires; None if it has no such part."""
        raise NotImplementedError

    def trace_sentence(self, name: str, trace: T) -> str:
        """Describe a trace."""
        raise NotImplementedError

    def update(
        self, state: templates.RankStates[RankShareState, T], inputs: RuleInputs
    ) -> templates.RankStates[RankShareState, T]:
        for trace in samples.sort_traces(inputs):
            result = self.evaluate_trace(trace)
            if result is not None:
                details, fires = result
                state.traces.add(trace, details, fires=fires, inputs=inputs, trigger=state.trigger)
        return super().update(state, inputs)

    def details(
        self, state: templates.RankStates[RankShareState, T], ranks: templates.Ranks[RankShareState]
    ) -> TracedShareDetails[RankShare, T]:
        return TracedShareDetails(ranks=self.rank_details(ranks), recordings=state.traces.details)

    def sentences(
        self,
        state: templates.RankStates[RankShareState, T],
        ranks: templates.Ranks[RankShareState],
        triggered: templates.Ranks[RankShareState],
    ) -> Iterable[str]:
        yield from super().sentences(state, ranks, triggered)
        described = [] if ranks else list(state.traces.details)[:MAX_DESCRIBED]
        for name in state.traces.triggered or described:
            yield self.trace_sentence(name, state.traces.details[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStallParameters(StepShareParameters):
    """Threshold of the time that checkpoints take."""

    threshold: Percentage = 5.0
    """The rule fires if saving takes more of the steps' wall time (%) than this."""
    window: Count = 1000
    """Latest steps of a rank over which the share is computed: enough for several checkpoints."""


class CheckpointShare(RankShare, frozen=True, kw_only=True):
    """Share of checkpoints in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="checkpoint_share_ratio")


class CheckpointStall(StepShare[CheckpointStallParameters, TraceShare]):
    """Checks whether training stalls while checkpoints are written.

    ## What it checks
    For each rank, at the end of each scan, the share of torch.save and similar calls in the wall
    time of its last `window` steps. Datapoints are steps; violations are steps in which a
    checkpoint takes more than `threshold` percent of the step.

    ## Why it matters
    While one rank writes, all others wait. A few seconds every few hundred steps add up to several
    percent of the cost.

    ## What to do
    Save less often, write asynchronously (torch.distributed.checkpoint.async_save), save shards
    from each rank instead of everything from one, or write to local disk first.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "step time"
    parameters_type = CheckpointStallParameters
    recommendation = "Save less often, asynchronously, or in shards from each rank."
    evidence = ("steps",)
    plots = ("step", "checkpoint")
    missing_in_traces = "imported traces do not show when checkpoints are saved"
    rank_type = CheckpointShare
    part = "saving checkpoints"

    def part_ns(self, steps: RankStepTimes) -> intervals.Int:
        return steps.phase_ns["checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationBoundParameters(StepShareParameters):
    """Threshold of exposed communication."""

    threshold: Percentage = 20.0
    """The rule fires if exposed communication takes more of the step's wall time, or of a trace's
    device time, (%) than this."""


class CommunicationShare(RankShare, frozen=True, kw_only=True):
    """Share of exposed communication in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="exposed_communication_share_ratio")


class TraceCommunication(TraceShare, frozen=True, kw_only=True):
    """Communication in one trace, as shares of device time."""

    exposed_communication_share_ratio: float = 0.0
    communication_share_ratio: float = 0.0
    """Exposed or not."""


class CommunicationBound(TracedShare[CommunicationBoundParameters, TraceCommunication]):
    """Checks whether ranks wait for exposed communication.

    ## What it checks
    For each rank, at the end of each scan, the share in its last `window` steps of collectives that
    the script calls, plus the share of DDP's gradient exchange that DDP itself reports as not
    hidden behind the backward pass. Both contain the time in which the rank waits for slower ranks;
    the verdict counts that time for the work of the slowest rank. And in each trace of the
    framework's profiler, the share of device time with communication and no computation. Datapoints
    are steps and traces; violations are those above `threshold`.

    ## Why it matters
    Communication that overlaps computation is free; exposed communication is time in which all
    devices of the job wait for the network.

    ## What to do
    Overlap it (bucket sizes of DDP, prefetching of FSDP), send less (gradient accumulation with
    no_sync, lower precision), keep groups that communicate often within a node, and look for a
    straggler.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = CommunicationBoundParameters
    recommendation = (
        "Overlap communication with computation, send less, or keep groups that communicate often "
        "within a node."
    )
    evidence = ("gpu-time", "steps")
    plots = ("step", "communication", "backward")
    rests_on_devices = True
    missing_in_traces = samples.NO_DEVICE_WORK_IN_TRACES
    rank_type = CommunicationShare
    part = "exposed communication, with waiting for slower ranks,"

    def part_ns(self, steps: RankStepTimes) -> intervals.Int:
        ddp_facts = steps.process.facts_of(schema.DdpFact)
        exposed = analysis.compute_exposed_exchange_ratio(ddp_facts[-1]) if ddp_facts else 0.0
        exchange: intervals.Int = np.rint(exposed * steps.phase_ns["backward"]).astype(np.int64)
        return steps.phase_ns["communication"] + exchange

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceCommunication, bool] | None:
        time = trace.gpu_time
        if time is None or not time.total_ns:
            return None
        details = TraceCommunication(
            rank=trace.rank,
            exposed_communication_share_ratio=time.exposed_comm_ns / time.total_ns,
            communication_share_ratio=time.comm_ns / time.total_ns,
        )
        return details, 100 * time.exposed_comm_ns > self.parameters.threshold * time.total_ns

    def trace_sentence(self, name: str, trace: TraceCommunication) -> str:
        exposed = trace.exposed_communication_share_ratio
        share = share_beside(exposed, "device time", self.parameters.threshold)
        return f"Trace {name}: exposed communication takes {share}."

    def require_inputs(
        self, state: templates.RankStates[RankShareState, TraceCommunication]
    ) -> None:
        communicates = any(rank.part_ns for rank in state.ranks.values())
        if len(state.ranks) < 2 and not communicates and not state.traces.details:
            raise NotApplicable("a single rank, no collectives, and no trace with device work")
