"""A rank that makes the others wait, with evidence of a slow link between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities, schema
from stepscope.quantities import percent
from stepscope.rules.base import NotApplicable, Trigger
from stepscope.rules.inputs import RankStepTimes, RuleInputs, StepTimes, TracedSteps
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.templates import PerRankRule, Ranks, RankState, RankStates

UNSENT_METRIC = "network_unsent_bytes"
MAX_PENDING_SAMPLES = 100_000
"""Samples of a node kept until all ranks have reached them."""


class LinkEvidence(msgspec.Struct):
    """Transfer time of the compared steps, and send queues of the nodes during them."""

    transfer_ns: int = 0
    wall_ns: int = 0
    queues: dict[str, analysis.SendQueue] = msgspec.field(default_factory=dict)
    """By node."""
    pending: dict[str, analysis.Series] = msgspec.field(default_factory=dict)
    """Samples of nodes from the last compared step on."""

    def add_samples(self, inputs: RuleInputs) -> None:
        """Add the samples of a range."""
        for device, series in inputs.series(UNSENT_METRIC).items():
            earlier = self.pending.get(device.node)
            samples = analysis.merge_series([series] if earlier is None else [earlier, series])
            self.pending[device.node] = analysis.Series(
                samples.t_ns[-MAX_PENDING_SAMPLES:], samples.value[-MAX_PENDING_SAMPLES:]
            )

    def add_steps(
        self, nodes: Iterable[str], *, transfer_ns: int, wall_ns: int, start_ns: int, end_ns: int
    ) -> analysis.SlowLink | None:
        """Add consecutive steps of all ranks.

        Args:
            nodes: those of the ranks.
            transfer_ns: time in which all ranks communicate.
            wall_ns: wall time.
            start_ns, end_ns: their extent.

        Returns:
            The slow link of the steps so far; None if there is none.
        """
        self.transfer_ns += transfer_ns
        self.wall_ns += wall_ns
        for node in set(nodes):
            samples = self.pending.get(node)
            queue = self.queues.get(node, analysis.SendQueue())
            if samples is not None:
                first, last = np.searchsorted(samples.t_ns, [start_ns, end_ns])
                queue = queue.add(analysis.SendQueue.of(samples.value[first:last]))
                self.pending[node] = analysis.Series(samples.t_ns[last:], samples.value[last:])
            self.queues[node] = queue
        return analysis.find_slow_link(self.transfer_ns / self.wall_ns, self.queues)


def describe_slow_link(link: analysis.SlowLink) -> str:
    """Describe a slow link in a sentence."""
    return (
        f"Transfer takes {percent(link.transfer_ratio)} of step time, over a slow link from "
        f"{link.node}: data wait to be sent there {percent(link.waiting_ratio)} of the time, on "
        f"other nodes at most {percent(link.other_waiting_ratio)}."
    )


MAX_PENDING = 100_000
"""Steps of a rank kept until all others have reached them."""
MIN_TRACED_STEPS = 3
"""Minimum number of steps that the traces of all ranks have in common."""
MAX_PUNCTUAL_RATIO = 0.25
"""A straggler is late in the other steps of a block: by a coin toss once in 7,000 blocks of 50."""
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStragglerParameters:
    """Definition of a straggler."""

    threshold: Percentage = 10.0
    """A rank is late in a step if its own work exceeds the median of the other ranks' by more of
    the step's wall time (%) than this."""
    window: Count = 50
    """Steps that are compared at a time."""
    patience: Count = 10
    """First steps, in which everything starts up, that are left out."""


class RankWork(msgspec.Struct, frozen=True, kw_only=True):
    """Own work of one rank over the compared steps."""

    mean_own_work_s: float = 0.0
    """Mean of the wall time without communication and the recorded exchange in backward passes;
    without these passes where their exchange was not recorded for most steps. In traces, all but
    exposed communication."""
    mean_step_s: float = 0.0
    """Mean of the wall time of all compared steps."""
    slowest_in_count: int = 0
    """Steps in which the rank finished its own work last."""
    straggler_block_count: int = 0
    """Blocks of `window` steps in which the rank was a straggler; the steps of traces are one."""


class RankStragglerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Own work by rank, most work first."""

    ranks: dict[str, RankWork] = {}


class _ComparedRank(RankState, kw_only=True):
    pending: intervals.Int = msgspec.field(default_factory=lambda: np.empty((0, 7), dtype=np.int64))
    """Rows that have not been compared: columns of `_rows`."""
    work_ns: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """Own work by its definition, as of `_State.work_counts`."""
    wall_ns: int = 0
    slowest_count: int = 0


@dataclass(slots=True)
class _State(RankStates[_ComparedRank, msgspec.Struct]):
    work_counts: list[int] = field(default_factory=lambda: [0, 0])
    """Steps compared, by definition of own work: without backward passes, and without the recorded
    exchange in them."""
    block_count: int = 0
    incarnation: int = 1
    """Incarnation of the job whose ranks are compared: the latest."""
    is_traced: bool = False
    """True if they are those of imported traces."""
    traced: dict[str, intervals.Int] = field(default_factory=dict)
    """Rows of the steps of imported traces, by rank."""
    trace_ends: Trigger = field(default_factory=Trigger)
    """Scans in which these traces end."""
    links: LinkEvidence = field(default_factory=LinkEvidence)
    slow_link: analysis.SlowLink | None = None
    """Slow link of the steps up to the last block in which there was one."""
    link_block_count: int = 0
    """Blocks up to which there was one."""

    @property
    def compared_count(self) -> int:
        """Steps compared."""
        return sum(self.work_counts)

    def mean_work_ns(self, name: str) -> float:
        """Own work of a rank per step, by the definition of more steps."""
        definition = int(np.argmax(self.work_counts))
        return self.ranks[name].work_ns[definition] / self.work_counts[definition]

    def peer_work_ns(self, name: str) -> float:
        """Own work per step of the other ranks than *name*, their median."""
        return float(np.median([self.mean_work_ns(peer) for peer in self.ranks if peer != name]))


class RankStraggler(PerRankRule[RankStragglerParameters, _ComparedRank, _State]):
    """Checks whether one rank, or the link of one node, makes the others wait.

    ## What it checks
    The own work of a rank in a step is its wall time without communication, in which it may wait
    for others. Gradients are exchanged in backward passes: from the last collective that the rank
    calls in one to its end, as the recorder of collectives has it. Where that is not known, the
    whole backward pass is left out; own work is reported as measured for more of the steps. Steps
    of all ranks are compared by number, `window` of them at a time: a rank is late in a step if its
    own work exceeds the median of the other ranks' by more than `threshold` percent of the step,
    and a straggler if it is late in more than three quarters of the steps. The view `ranks`
    measures lateness in the same way, from 5% on. Datapoints are steps that all ranks have
    completed. The details list the ranks by own work, and the number of steps in which each
    finished its own work last. In imported traces, own work is all but exposed communication, and
    the steps that the traces of all ranks have in common, at least three, are compared at once.

    All ranks wait alike for a slow link between nodes, so none of them is late. The rule names the
    node before it: the one on which data wait to be sent for half of the transfer time at least,
    and four times as long as on any other node. That is known of backends that send by TCP from the
    host, such as Gloo, where the transfer takes a fifth of step time.

    ## Why it matters
    Ranks that exchange gradients proceed at the pace of the slowest. On the other ranks the loss
    looks like communication.

    ## What to do
    Check what takes longer on the straggler (`stepscope show RUN steps`), whether its node is busy
    with something else or its GPU is throttled, and whether all ranks get equal amounts of data.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its LoadBalancing compares GPU utilization. Without recorded
    collectives, a rank that is slower only in its backward pass is not detected here: that requires
    traces.
    """

    topic = "step time"
    parameters_type = RankStragglerParameters
    recommendation = (
        "Check what takes longer on the slow rank, what else runs on its node, and whether it gets "
        "more data than the others; of a slow link, the speed of the node's network interface."
    )
    evidence = ("steps", "system")
    metrics = (UNSENT_METRIC,)
    plots = ("step",)
    rests_on_devices = True
    missing_in_traces = (
        f"the traces of two or more ranks do not have {MIN_TRACED_STEPS} steps in common"
    )
    run_state = _State

    def select_steps(self, inputs: RuleInputs) -> Sequence[RankStepTimes]:
        return inputs.settled_steps

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        super().update(state, inputs)
        state.links.add_samples(inputs)
        if len(state.ranks) > 1:
            self._compare_ranks(state, inputs)
        return state

    def update_rank(self, state: _State, steps: RankStepTimes, inputs: RuleInputs) -> None:
        if steps.process.rank is not None and len(steps):
            incarnation = steps.process.incarnation
            if incarnation > state.incarnation:  # the others will not reach its steps any more
                state.ranks.clear()
                state.work_counts, state.block_count = [0, 0], 0
                state.links = LinkEvidence(pending=state.links.pending)
                state.slow_link, state.link_block_count = None, 0
                state.incarnation = incarnation
                state.trigger = Trigger()
            elif incarnation < state.incarnation:
                return
            rank = state.ranks.setdefault(steps.rank, _ComparedRank(node=steps.node))
            new_rows = _rows(
                steps, backward_ns=steps.phase_ns["backward"], exchange_ns=_exchange(steps)
            )
            new_rows = new_rows[steps.number >= self.parameters.patience]
            rows = np.concatenate([rank.pending, new_rows])
            rank.pending = rows[-MAX_PENDING:]

    def update_traced(self, state: _State, steps: TracedSteps, inputs: RuleInputs) -> None:
        times = steps.times
        if steps.rank_number is None:
            return
        rows = _rows(times, backward_ns=0, exchange_ns=_UNKNOWN)
        earlier = state.traced.get(times.rank, rows[:0])
        state.traced[times.rank] = np.concatenate([earlier, rows])
        state.trace_ends.add_times(inputs, [int(times.end_ns[-1]) - 1])

    def _compare_ranks(self, state: _State, inputs: RuleInputs) -> None:
        """Compare complete blocks of steps that all ranks have reached."""
        window = self.parameters.window
        ranks = list(state.ranks.values())
        if not all(len(rank.pending) for rank in ranks):
            return
        first = max(int(rank.pending[0, 0]) // window for rank in ranks)
        # A rank has completed a block with the last step of it, or a later one.
        end = min((int(rank.pending[-1, 0]) + 1) // window for rank in ranks)
        edges = np.arange(first, max(first, end) + 1) * window
        cuts = [np.searchsorted(rank.pending[:, 0], edges) for rank in ranks]
        for block in range(len(edges) - 1):
            rows = [r.pending[c[block] : c[block + 1]] for r, c in zip(ranks, cuts, strict=True)]
            if all(len(rank_rows) == window for rank_rows in rows):
                block_rows = np.stack(rows)
                if self._compare_block(state, block_rows):
                    state.trigger.add_times(inputs, [int(block_rows[:, -1, 3].max())])
                    state.trigger.cover(block_rows[:, 0, 4], block_rows[:, -1, 3])
        for rank, cut in zip(ranks, cuts, strict=True):
            rank.pending = rank.pending[cut[-1] :]

    def _compare_block(self, state: _State, rows: NDArray[np.int64]) -> bool:
        """Compare one block: rows of `pending` by rank and step.

        Returns:
            True if it has a straggler or waits for a slow link.
        """
        has_exchange = (rows[:, :, 6] != _UNKNOWN).all(axis=0)
        is_recorded = bool(has_exchange.mean() >= analysis.MIN_RECORDED_RATIO)
        if is_recorded:
            rows = rows[:, has_exchange]
            work = rows[:, :, 1] - rows[:, :, 6]
        else:
            work = rows[:, :, 1] - rows[:, :, 5]
        wall = rows[:, :, 2]
        limit = self.parameters.threshold / 100 * np.median(wall, axis=0)
        is_late = analysis.compare_with_others(work.astype(float)) > limit
        is_straggler = (~is_late).mean(axis=1) < MAX_PUNCTUAL_RATIO
        slowest = np.bincount(work.argmax(axis=0), minlength=len(state.ranks))
        state.work_counts[is_recorded] += work.shape[1]
        state.block_count += 1
        sums = np.stack([work.sum(axis=1), wall.sum(axis=1), slowest, is_straggler], axis=1)
        for rank, (work_ns, wall_ns, slowest_count, violations) in zip(
            state.ranks.values(), sums.tolist(), strict=True
        ):
            rank.work_ns[is_recorded] += work_ns
            rank.wall_ns += wall_ns
            rank.slowest_count += slowest_count
            rank.violation_count += violations
            rank.triggered = rank.violation_count > 0
        has_slow_link = is_recorded and self._compare_queues(state, rows, wall - work)
        return bool(is_straggler.any()) or has_slow_link

    def _compare_queues(
        self, state: _State, rows: NDArray[np.int64], communication_ns: NDArray[np.int64]
    ) -> bool:
        """Compare the send queues of the nodes during one block: True if one link is slow.

        The exchange of gradients is recorded of backends alone that send by TCP, from the host.
        """
        link = state.links.add_steps(
            [rank.node for rank in state.ranks.values()],
            transfer_ns=int(communication_ns.min(axis=0).sum()),
            wall_ns=int(rows[:, :, 2].mean(axis=0).sum()),
            start_ns=int(rows[:, 0, 4].min()),
            end_ns=int(rows[:, -1, 3].max()),
        )
        state.slow_link = link or state.slow_link
        state.link_block_count += link is not None
        return link is not None

    def _compare_traces(self, state: _State) -> _State:
        """Compare the steps that the traces of all ranks have in common."""
        result = _State(is_traced=True)
        numbers = [rows[:, 0] for rows in state.traced.values()]
        shared = set.intersection(*(set(row.tolist()) for row in numbers)) if numbers else set()
        if len(numbers) < 2 or len(shared) < MIN_TRACED_STEPS:
            return result
        result.ranks = {name: _ComparedRank(node="") for name in state.traced}
        firsts = [np.unique(row, return_index=True)[1] for row in numbers]
        rows = [rows[first] for rows, first in zip(state.traced.values(), firsts, strict=True)]
        common = [row[np.isin(row[:, 0], list(shared))] for row in rows]
        if self._compare_block(result, np.stack(common)):
            result.trigger.ends_ns = state.trace_ends.ends_ns
            for rows_of_rank in common:
                result.trigger.cover(rows_of_rank[:, 4], rows_of_rank[:, 3])
        return result

    def decide(self, state: _State) -> schema.Finding | None:
        finding = super().decide(state if state.ranks else self._compare_traces(state))
        link = state.slow_link
        if finding is None or link is None:
            return finding
        return msgspec.structs.replace(
            finding,
            nodes=sorted({*finding.nodes, link.node}),
            violations=finding.violations + state.link_block_count,
        )

    def require_inputs(self, state: _State) -> None:
        if len(state.ranks) < 2:
            raise NotApplicable("fewer than two ranks with steps")
        if not state.compared_count:
            window = self.parameters.window
            raise NotApplicable(f"the ranks have fewer than {window} steps in common")

    def datapoint_count(self, state: _State) -> int:
        """Count the blocks of steps that were compared."""
        return state.block_count

    def details(self, state: _State, ranks: Ranks[_ComparedRank]) -> RankStragglerDetails:
        ordered = sorted(state.ranks.items(), key=lambda item: -state.mean_work_ns(item[0]))
        return RankStragglerDetails(
            ranks={
                name: RankWork(
                    mean_own_work_s=state.mean_work_ns(name) / 1e9,
                    mean_step_s=rank.wall_ns / state.compared_count / 1e9,
                    slowest_in_count=rank.slowest_count,
                    straggler_block_count=rank.violation_count,
                )
                for name, rank in ordered
            }
        )

    def sentences(
        self, state: _State, ranks: Ranks[_ComparedRank], triggered: Ranks[_ComparedRank]
    ) -> Iterable[str]:
        window = self.parameters.window
        for name, rank in triggered.items():
            blocks = (
                f"over the {state.compared_count} steps of the traces"
                if state.is_traced
                else f"in {rank.violation_count} of {state.block_count} blocks of {window} steps"
            )
            yield (
                f"{name}: straggler {blocks}. Its own work takes "
                f"{quantities.duration(state.mean_work_ns(name))} per step, that of the others "
                f"{quantities.duration(state.peer_work_ns(name))} in the median."
            )
        if state.slow_link is not None:
            yield describe_slow_link(state.slow_link)


def _rows(
    steps: StepTimes, *, backward_ns: intervals.Int | int, exchange_ns: intervals.Int | int
) -> intervals.Int:
    """Return rows of (number, wall without communication, wall, end, start, backward passes,
    exchange in them)."""
    columns = (
        steps.number,
        steps.wall_ns - steps.phase_ns["communication"],
        steps.wall_ns,
        steps.end_ns,
        steps.start_ns,
        backward_ns,
        exchange_ns,
    )
    rows: intervals.Int = np.stack(np.broadcast_arrays(*columns), axis=1)
    return rows


def _exchange(steps: RankStepTimes) -> intervals.Int | int:
    if steps.exchange_ns is None:
        return _UNKNOWN
    exchange = np.nan_to_num(steps.exchange_ns, nan=_UNKNOWN)
    return np.asarray(np.rint(exchange), dtype=np.int64)
