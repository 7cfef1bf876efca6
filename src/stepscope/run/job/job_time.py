"""Time of a job by class: what each rank did from the start of the job to its end.

A rank of a restarted job is several processes, one after the other. Processes without a rank that
do not run at the same time, such as the commands of a script, count as one rank. Programs that
record only their stacks (`schema.ProcessInfo`) are part of it where they run before, between or
after the processes that train. `analysis.job` divides the time.

Restarts. A process of an earlier incarnation lasts until the first of its ranks has died, or until
its last step: ranks that wait for a dead one make no progress. The checkpoint that a later
incarnation loads tells which steps were lost: those that ended after it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.run.job.checkpoints import SavedStates, read_saved_states
from stepscope.run.job.times import (
    find_recording_end,
    has_ended,
    job_borders,
    list_programs,
    read_last_times,
)
from stepscope.run.model.run import IDLE_GPU_RATIO, STEP_KINDS, Run
from stepscope.run.model.tables import of_thread, read_spans, read_stack_samples, spans_of

NO_JOB = (
    "a trace holds no job: it shows a few steps, not what came before and after them. Record one "
    "with `stepscope run`"
)
NO_PROCESS = "no process of the job was recorded"
NO_START_SAMPLES = (
    "no stack samples were recorded before the first step of {name}, so that imports and "
    "preparation are unknown"
)
CUT_OFF = "the records of {name} end before the job does: it was killed, or its end was not seen"
RECORDING_ENDED = "recording ended before the job did (--cpu-profiling-duration)"
LOST_RECORDS = "{count} records of {name} were lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJobTime:
    """Time of one rank by class."""

    rank: int | None
    """None outside a distributed job."""
    name: str
    node: str
    division: analysis.Division
    """Pieces of time, epoch nanoseconds."""
    totals: dict[str, int]
    """Nanoseconds by class, of all classes; they sum to the duration of the job."""
    functions: dict[str, list[analysis.ClassFunction]]
    """Functions by class, the longest first."""
    reasons: list[str]
    """Reasons for time that was not seen, one sentence each."""

    @property
    def edges(self) -> intervals.Int:
        """Start of each piece of time, and the end of the last one, epoch nanoseconds."""
        return self.division.edges

    @property
    def classes(self) -> NDArray[np.int8]:
        """Index in `analysis.JOB_CLASSES` of each piece."""
        return self.division.classes

    def list_pieces(self, max_count: int) -> list[tuple[str, int, int]]:
        """List pieces of time, merged to at most so many: class, start and end."""
        merged = self.division.coarsen(max_count)
        edges = merged.edges.tolist()
        keys = [analysis.JOB_CLASSES[code] for code in merged.classes.tolist()]
        return list(zip(keys, edges[:-1], edges[1:], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartTime:
    """Restart of the training processes of a job."""

    incarnation: int
    """Number of the incarnation that it began."""
    died_ns: int
    """Last record of the first process that ended, epoch nanoseconds."""
    launched_ns: int
    """Start of the first new process."""
    first_step_ns: int | None
    """Start of its first step; None without one."""
    steps_lost: int | None
    """Steps done since the checkpoint that was loaded; None where that is unknown."""

    @property
    def notice_ns(self) -> int:
        """Time until a new process was started."""
        return max(0, self.launched_ns - self.died_ns)

    @property
    def return_ns(self) -> int | None:
        """Time from there to the next step."""
        return None if self.first_step_ns is None else self.first_step_ns - self.launched_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """Time of a job by class; times of a class over ranks are sums."""

    start_ns: int
    """Start of the job, or of its first process, which may be before that of its monitor."""
    end_ns: int
    """End of the job; of a running one, the last record."""
    ranks: list[RankJobTime]
    functions: dict[str, list[analysis.ClassFunction]]
    """Functions by class over all ranks, the longest first."""
    first_step_ns: int | None
    """Time from the start of the job to its first step; None without steps."""
    restarts: list[RestartTime]
    device_busy_ratio: float | None
    """Mean busy share of the GPUs in use, from the first step to the last; None without GPUs."""
    is_final: bool
    """False for a job that runs still."""
    missing: str | None = None
    """Reason why there is no division, as a sentence without its dot."""
    planned: None = None
    """Reserved for the division of the job at its planned length."""
    totals: dict[str, int] = field(default_factory=dict)
    """Nanoseconds by class, summed over ranks."""

    @property
    def duration_ns(self) -> int:
        """Time from the start of the job to its end."""
        return self.end_ns - self.start_ns

    @property
    def rank_count(self) -> int:
        """Number of ranks; their classes sum to so many durations."""
        return len(self.ranks)

    def time_of(self, key: str) -> float:
        """Return the mean time of a class over ranks; the classes sum to the duration."""
        return self.totals[key] / self.rank_count if self.ranks else 0.0

    def share_of(self, key: str) -> float | None:
        """Return the share of the job that a class takes; None for a job without duration."""
        whole_ns = self.duration_ns * self.rank_count
        return self.totals[key] / whole_ns if whole_ns else None

    @property
    def goodput_ratio(self) -> float | None:
        """Share of the job that is steps whose result was kept."""
        return self.share_of("steps")

    @property
    def device_goodput_ratio(self) -> float | None:
        """Goodput times the busy share of the devices; None without devices."""
        if self.goodput_ratio is None or self.device_busy_ratio is None:
            return None
        return self.goodput_ratio * self.device_busy_ratio

    @property
    def steps_lost(self) -> int | None:
        """Steps that restarts lost; 0 without a restart, None where unknown."""
        lost = [restart.steps_lost for restart in self.restarts]
        return None if None in lost else sum(filter(None, lost))

    @property
    def notice_ns(self) -> int:
        """Time from deaths to new processes, over all restarts."""
        return sum(restart.notice_ns for restart in self.restarts)

    @property
    def restart_ns(self) -> int:
        """Time from new processes to their first steps, over all restarts."""
        return sum(restart.return_ns or 0 for restart in self.restarts)

    @property
    def reasons(self) -> list[str]:
        """Reasons for time that was not seen, of all ranks."""
        return list(dict.fromkeys(reason for rank in self.ranks for reason in rank.reasons))


def read_job_time(run: Run) -> JobTime:
    """Divide the time of a job, whole also where the run is restricted to a range of time."""
    return run.whole_run.derive(_read_job_time)


def _read_job_time(run: Run) -> JobTime:
    statuses = list(run.reader.statuses().values())
    start_ns, end_ns = job_borders(run)
    if not statuses:
        return _explain_missing(start_ns, end_ns, NO_JOB)
    job = _Job(run, start_ns, end_ns, is_final=has_ended(statuses))
    lanes = job.find_lanes()
    if not lanes:
        return _explain_missing(start_ns, job.end_ns, NO_PROCESS)
    job.start_ns = min([start_ns, *(job.launched(lane[0]) for lane in lanes)])
    ranks = [job.divide(lane) for lane in lanes]
    totals = {key: sum(rank.totals[key] for rank in ranks) for key in analysis.JOB_CLASSES}
    return JobTime(
        start_ns=job.start_ns,
        end_ns=job.end_ns,
        ranks=ranks,
        functions=analysis.add_functions(rank.functions for rank in ranks),
        first_step_ns=job.find_first_step(),
        restarts=job.list_restarts(),
        device_busy_ratio=_measure_busy_devices(run),
        is_final=job.is_final,
        totals=totals,
    )


def _explain_missing(start_ns: int, end_ns: int, reason: str) -> JobTime:
    return JobTime(
        start_ns=start_ns,
        end_ns=end_ns,
        ranks=[],
        functions={},
        first_step_ns=None,
        restarts=[],
        device_busy_ratio=None,
        is_final=True,
        missing=reason,
        totals=dict.fromkeys(analysis.JOB_CLASSES, 0),
    )


def _measure_busy_devices(run: Run) -> float | None:
    """Measure the mean busy share of the GPUs in use on the nodes of the ranks, from the first step
    to the last."""
    ratios = []
    for node in {rank.process.node for rank in run.ranks}:
        ranks = [rank for rank in run.ranks if rank.process.node == node]
        if node not in run.metrics:
            continue
        during = run.metrics[node].between(
            min(int(rank.steps.start[0]) for rank in ranks),
            max(int(rank.steps.end[-1]) for rank in ranks),
        )
        means = [during.mean("gpu_busy_ratio", gpu) for gpu in during.devices_of("gpu_busy_ratio")]
        ratios += [ratio for ratio in means if ratio is not None and ratio >= IDLE_GPU_RATIO]
    return float(np.mean(ratios)) if ratios else None


Lane = list[schema.ProcessInfo]
"""Processes of one rank in the order of their start."""


class _Job:
    """Processes of a job with their times."""

    def __init__(self, run: Run, start_ns: int, end_ns: int, *, is_final: bool) -> None:
        self._run = run
        self._last_ns = read_last_times(run)
        self._lanes: list[Lane] = []
        self.is_final = is_final
        self.start_ns = start_ns
        self.end_ns = end_ns
        if not is_final:  # the latest records are still to be read
            recorded = [self._last(process) for process in run.processes]
            self.end_ns = max(start_ns, min(end_ns, max(recorded, default=end_ns)))
        self._ranks = {rank.process.process: rank for rank in run.all_ranks}
        self._states = {node: status.state for node, status in run.reader.statuses().items()}
        self._signals = {node: status.signal for node, status in run.reader.statuses().items()}
        self._programs = list_programs(run)
        self._mains = [process for process in run.processes if process.role == "main"]
        self._latest = max((p.incarnation for p in self._mains), default=1)
        self._deaths = self._find_deaths()
        self._saved: SavedStates = read_saved_states(run, self._mains)

    def launched(self, process: schema.ProcessInfo) -> int:
        """Return when a process was created, or its first record."""
        return process.started_ns if process.launched_ns is None else process.launched_ns

    def _last(self, process: schema.ProcessInfo) -> int:
        """Return the time of the last record of a process."""
        return max(process.started_ns, self._last_ns.get(process.process, process.started_ns))

    def _end(self, process: schema.ProcessInfo) -> int:
        """Return when a process ended, as far as is known."""
        rank = self._ranks.get(process.process)
        death_ns = self._deaths.get(process.incarnation)
        if death_ns is not None and process.role == "main":
            last_step_ns = process.started_ns if rank is None else int(rank.steps.end[-1])
            return max(min(death_ns, self._last(process)), last_step_ns)
        if process.ended_ns is None or not self._has_ended_itself(process):
            return self._last(process)
        return max(process.ended_ns, process.started_ns)

    def _has_ended_itself(self, process: schema.ProcessInfo) -> bool:
        """Return True if a process ran to its end, or to an error; False if it was killed, or runs
        still."""
        if process.role == "main" and process.incarnation < self._latest:
            return False
        state = self._states.get(process.node)
        if state is schema.JobState.FAILED:
            return self._signals.get(process.node) is None
        return state is schema.JobState.COMPLETED

    def _find_deaths(self) -> dict[int, int]:
        """Find when the first process of each incarnation but the latest died."""
        return {
            number: min(self._last(p) for p in self._mains if p.incarnation == number)
            for number in {p.incarnation for p in self._mains}
            if number < self._latest
        }

    def find_lanes(self) -> list[Lane]:
        """Find the processes of each rank."""
        numbered = [process for process in self._mains if process.rank is not None]
        training = [process for process in self._mains if process.process in self._ranks]
        members = numbered or training or self._mains or self._find_roots(self._programs)
        lanes: list[Lane] = []
        for process in sorted(members, key=self.launched):
            fitting = (
                lane
                for lane in lanes
                if lane[-1].rank == process.rank and self._follows(lane[-1], process)
            )
            lane = next(fitting, None)
            if lane is None:
                lanes.append([process])
            else:
                lane.append(process)
        lanes.sort(key=lambda lane: (-1 if lane[0].rank is None else lane[0].rank, lane[0].pid))
        for lane in lanes:
            self._add_neighbours(lane)
        self._lanes = lanes
        return lanes

    def _follows(self, earlier: schema.ProcessInfo, later: schema.ProcessInfo) -> bool:
        """Return True if a process ran after another one; of two of one rank that ran at the same
        time, half of the time tells."""
        if earlier.rank is None:
            return self._end(earlier) <= self.launched(later)
        shared_ns = self._end(earlier) - self.launched(later)
        return 2 * shared_ns <= self._end(earlier) - self.launched(earlier)

    def _find_roots(self, programs: Iterable[schema.ProcessInfo]) -> list[schema.ProcessInfo]:
        programs = list(programs)
        started = {(program.node, program.pid) for program in programs}
        return [p for p in programs if (p.node, p.parent_pid) not in started]

    def _add_neighbours(self, lane: Lane) -> None:
        """Add the processes of the node that ran while no process of the rank did: those that
        prepare, convert or evaluate, but no launcher."""
        relatives = {(process.node, process.pid) for process in lane}
        by_pid = {(p.node, p.pid): p for p in (*self._run.processes, *self._programs)}
        ancestors = set[tuple[str, int]]()
        for process in lane:
            parent = by_pid.get((process.node, process.parent_pid))
            while parent is not None and (parent.node, parent.pid) not in ancestors:
                ancestors.add((parent.node, parent.pid))
                parent = by_pid.get((parent.node, parent.parent_pid))
        unranked = [p for p in self._mains if p.rank is None and p.process not in self._ranks]
        for candidate in sorted((*unranked, *self._programs), key=self.launched):
            key = (candidate.node, candidate.pid)
            is_relative = key in relatives or (candidate.node, candidate.parent_pid) in relatives
            if is_relative or key in ancestors or candidate.node != lane[0].node:
                continue
            if all(
                self._end(candidate) <= self.launched(process)
                or self._end(process) <= self.launched(candidate)
                for process in lane
            ):
                lane.append(candidate)
        lane.sort(key=self.launched)

    def divide(self, lane: Lane) -> RankJobTime:
        """Divide the time of a rank."""
        run, extent = self._run, (self.start_ns, self.end_ns)
        recording_end_ns = find_recording_end(run)
        unseen = intervals.EMPTY
        if recording_end_ns is not None:
            unseen = intervals.find_gaps(intervals.EMPTY, (recording_end_ns, self.end_ns))
        last = max((i for i, p in enumerate(lane) if p.process in self._ranks), default=len(lane))
        processes = [
            self._make(p, trains_later=i <= last, is_restart=self._is_restart(lane, i))
            for i, p in enumerate(lane)
        ]
        result = analysis.divide_rank(extent, processes, unseen)
        main = next((p for p in lane if p.role == "main"), lane[0])
        name = f"process {main.pid}" if main.rank is None else f"rank {main.rank}"
        totals = result.division.totals
        return RankJobTime(
            rank=main.rank,
            name=name,
            node=lane[-1].node,
            division=result.division,
            totals=totals,
            functions=result.functions,
            reasons=self._explain(lane, processes, name, recording_end_ns)
            if totals["not_seen"]
            else [],
        )

    def _explain(
        self,
        lane: Lane,
        processes: Sequence[analysis.JobProcess],
        name: str,
        recording_end_ns: int | None,
    ) -> list[str]:
        reasons = []
        if not all(process.is_sampled_from_start for process in processes):
            reasons.append(NO_START_SAMPLES.format(name=name))
        if recording_end_ns is not None:
            reasons.append(RECORDING_ENDED)
        elif not processes[-1].ended_itself and processes[-1].end_ns < self.end_ns:
            reasons.append(CUT_OFF.format(name=name))
        lost_count = sum(process.dropped_count for process in lane)
        if lost_count:
            reasons.append(LOST_RECORDS.format(count=lost_count, name=name))
        return reasons

    @staticmethod
    def _is_restart(lane: Lane, index: int) -> bool:
        """Return True for a process after those of one incarnation, up to the first of the next."""
        earlier = [p.incarnation for p in lane[:index] if p.role == "main"]
        later = [p.incarnation for p in lane[index:] if p.role == "main"]
        return bool(earlier and later) and earlier[-1] < later[0]

    def _make(
        self, process: schema.ProcessInfo, *, trains_later: bool, is_restart: bool
    ) -> analysis.JobProcess:
        run, rank = self._run, self._ranks.get(process.process)
        kinds = (*STEP_KINDS, *analysis.JOB_KINDS)
        rows = read_spans(run.reader, [process.process], kinds, node=process.node)
        thread = None if rank is None else rank.steps.thread
        samples = read_stack_samples(run.reader, process, of_thread(thread))
        first_ns = None if rank is None else int(rank.steps.start[0])
        state = self._states.get(process.node)
        return analysis.JobProcess(
            launched_ns=self.launched(process),
            ready_ns=process.ready_ns,
            end_ns=self._end(process),
            spans=spans_of(rows.get(process.process)),
            samples=samples,
            steps=None if rank is None else rank.steps,
            is_sampled_from_start=process.ready_ns is not None
            and len(samples.t_ns) > 0
            and (first_ns is None or int(samples.t_ns[0]) <= first_ns),
            has_completed=process.incarnation == self._latest
            and state is schema.JobState.COMPLETED,
            ended_itself=self._has_ended_itself(process),
            is_restart=is_restart,
            trains_later=trains_later,
            kept_until_ns=self._saved.kept_until(process.incarnation),
            stuck=self._find_stuck(process),
        )

    def _find_stuck(self, process: schema.ProcessInfo) -> intervals.Intervals:
        """Find the time in which the monitor of the node saw no progress."""
        node = self._run.reader.documents(schema.STUCK, schema.StuckNode).get(process.node)
        if node is None or not node.was_stuck or not node.has_reached_limit:
            return intervals.EMPTY
        end_ns = node.resolved_ns or max(node.seen_ns, self._end(process))
        if not self.launched(process) <= node.since_ns <= self._end(process):
            return intervals.EMPTY
        return intervals.find_gaps(intervals.EMPTY, (node.since_ns, max(end_ns, node.since_ns)))

    def find_first_step(self) -> int | None:
        """Find the time from the start of the job to its first step."""
        starts = [int(rank.steps.start[0]) for rank in self._ranks.values()]
        return min(starts) - self.start_ns if starts else None

    def list_restarts(self) -> list[RestartTime]:
        """List the restarts of the training processes."""
        numbers = sorted({process.incarnation for process in self._mains})
        restarts = []
        for earlier, number in pairwise(numbers):
            ranks = [r for r in self._ranks.values() if r.process.incarnation == number]
            restarts.append(
                RestartTime(
                    incarnation=number,
                    died_ns=self._deaths[earlier],
                    launched_ns=self._find_relaunch(earlier),
                    first_step_ns=min((int(r.steps.start[0]) for r in ranks), default=None),
                    steps_lost=self._count_lost(number),
                )
            )
        return restarts

    def _find_relaunch(self, earlier: int) -> int:
        """Find when the first process was created after those of an incarnation."""
        return min(
            self.launched(process)
            for lane in self._lanes
            for index, process in enumerate(lane)
            if self._is_restart(lane, index)
            and max(p.incarnation for p in lane[:index] if p.role == "main") == earlier
        )

    def _count_lost(self, number: int) -> int | None:
        """Count the steps that the restart which began an incarnation lost, of the rank that lost
        most; those that an earlier restart had lost count there."""
        kept_ns = self._saved.loaded_ns.get(number)
        if number not in self._saved.loaded_ns or kept_ns is None:
            return None
        lost: dict[object, int] = {}
        for rank in self._ranks.values():
            process = rank.process
            if process.incarnation >= number:
                continue
            before_ns = self._saved.kept_until(process.incarnation, before=number)
            is_lost = rank.steps.end > kept_ns
            if before_ns is not None:
                is_lost &= rank.steps.end <= before_ns
            key = process.rank if process.rank is not None else process.process
            lost[key] = lost.get(key, 0) + int(is_lost.sum())
        return max(lost.values(), default=0)
