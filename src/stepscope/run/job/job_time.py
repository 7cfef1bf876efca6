"""Time of a job by class: what each rank did from the start of the job to its end.

`run.job.lanes` finds the processes of each rank, and `analysis.job` divides their time. The
checkpoint that an incarnation loads tells which steps were lost: those that ended after it was
written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema
from stepscope.run.job.checkpoints import LoadedState, read_loaded_states
from stepscope.run.job.lanes import JobProcesses, Lane
from stepscope.run.job.times import find_recording_end, has_ended, job_borders
from stepscope.run.model.process_names import process_names
from stepscope.run.model.process_tables import STEP_KINDS
from stepscope.run.model.run import IDLE_GPU_RATIO, Run
from stepscope.run.model.tables import (
    LARGE_READ,
    NO_SPANS,
    load_spans,
    of_thread,
    read_spans,
    read_stack_samples,
)

_LATEST_NS = sys.maxsize
NO_JOB = "a trace holds no job: it shows a few steps, not what came before and after them"
MAX_UNKNOWN_RATIO = 0.5
"""A job of which a larger share was not seen has no goodput."""
NO_STATUS = "no node of the run has stated when the job began and ended"
NO_PROCESS = "no process of the job was recorded"
NO_START_SAMPLES = (
    "no stack samples were recorded before the first step of {name}, so that imports and "
    "preparation are unknown"
)
CUT_OFF = "the records of {name} end before the job does: it was killed, or its end was not seen"
RECORDING_ENDED = "recording ended before the job did (--cpu-profiling-duration)"
LOST_RECORDS = "{count} records of {name} were lost"


class RankJobTime(msgspec.Struct, frozen=True, kw_only=True):
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
    def first_step_ns(self) -> int | None:
        """Time from the start of the job to the first step of the rank; None without steps."""
        starts = [self.division.select(key).start[:1] for key in analysis.STEP_CLASSES]
        first = np.concatenate(starts)
        return int(first.min() - self.division.edges[0]) if len(first) else None

    @property
    def edges(self) -> intervals.Int:
        """Start of each piece of time, and the end of the last one, epoch nanoseconds."""
        return self.division.edges

    @property
    def classes(self) -> NDArray[np.int8]:
        """Index in `analysis.JOB_CLASSES` of each piece."""
        return self.division.classes

    def list_pieces(self, max_count: int | None = None) -> list[tuple[str, int, int]]:
        """List pieces of time: class, start and end.

        Args:
            max_count: merge them to at most so many; None for all.
        """
        merged = self.division if max_count is None else self.division.coarsen(max_count)
        edges = merged.edges.tolist()
        keys = [analysis.JOB_CLASSES[code] for code in merged.classes.tolist()]
        return list(zip(keys, edges[:-1], edges[1:], strict=True))


class RestartTime(msgspec.Struct, frozen=True, kw_only=True):
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


class JobTime(msgspec.Struct, frozen=True, kw_only=True):
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
    totals: dict[str, int] = msgspec.field(default_factory=dict)
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
        """Share of the job that is steps whose result was kept; None where most of it was not
        seen."""
        unknown = self.share_of("not_seen")
        return None if unknown is None or unknown > MAX_UNKNOWN_RATIO else self.share_of("steps")

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
        reason = NO_JOB if run.is_imported else NO_STATUS
        return _explain_missing(start_ns, end_ns, reason)
    is_final = has_ended(statuses)
    job = JobProcesses(run, (start_ns, end_ns), is_final=is_final)
    if not job.lanes:
        return _explain_missing(start_ns, end_ns, NO_PROCESS)
    divider = _Divider(run, job)
    ranks = [divider.divide(lane) for lane in job.lanes]
    totals = {key: sum(rank.totals[key] for rank in ranks) for key in analysis.JOB_CLASSES}
    return JobTime(
        start_ns=job.start_ns,
        end_ns=job.end_ns,
        ranks=ranks,
        functions=analysis.add_functions(rank.functions for rank in ranks),
        first_step_ns=min(
            (t for rank in ranks if (t := rank.first_step_ns) is not None), default=None
        ),
        restarts=divider.list_restarts(),
        device_busy_ratio=_measure_busy_devices(run),
        is_final=is_final,
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


class _Divider:
    """Divides the time of the ranks of a job."""

    def __init__(self, run: Run, job: JobProcesses) -> None:
        self._run = run
        self._job = job
        self._states = read_loaded_states(run, job.mains)
        names = [process.process for lane in job.lanes for process in lane]
        self._with_job_kinds = read_spans(run.reader, names, analysis.JOB_KINDS).keys()
        if sum(len(rank.table.steps) for rank in run.ranks) > LARGE_READ:
            run.reader.release_memory()

    def divide(self, lane: Lane) -> RankJobTime:
        """Divide the time of a rank."""
        run, extent = self._run, (self._job.start_ns, self._job.end_ns)
        recording_end_ns = find_recording_end(run)
        unseen = intervals.EMPTY
        if recording_end_ns is not None:
            unseen = intervals.find_gaps(intervals.EMPTY, (recording_end_ns, self._job.end_ns))
        last = self._find_last_training(lane)
        processes = [
            self._make(p, trains_later=i <= last, is_restart=self._job.is_restart(lane, i))
            for i, p in enumerate(lane)
        ]
        result = analysis.divide_rank(extent, processes, unseen)
        main = next((p for p in lane if p.role == "main"), lane[0])
        name = process_names(run)[main.process] if main.rank is None else f"rank {main.rank}"
        totals = result.division.totals
        return RankJobTime(
            rank=main.rank,
            name=name,
            node=lane[-1].node,
            division=result.division,
            totals=totals,
            functions=result.functions,
            reasons=self._explain(
                lane, processes, name if main.rank is not None else f"the {name}", recording_end_ns
            )
            if totals["not_seen"]
            else [],
        )

    def _find_last_training(self, lane: Lane) -> int:
        """Find the index of the last process that trains, or was started again to train."""
        return max(
            (
                index
                for index, process in enumerate(lane)
                if process.process in self._job.ranks or self._job.is_restart(lane, index)
            ),
            default=len(lane),
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
        elif not processes[-1].ended_itself and processes[-1].end_ns < self._job.end_ns:
            reasons.append(CUT_OFF.format(name=name))
        lost_count = sum(process.dropped_count for process in lane)
        if lost_count:
            reasons.append(LOST_RECORDS.format(count=lost_count, name=name))
        return reasons

    def _make(
        self, process: schema.ProcessInfo, *, trains_later: bool, is_restart: bool
    ) -> analysis.JobProcess:
        run, rank = self._run, self._job.ranks.get(process.process)
        spans = self._read_spans(process)
        thread = None if rank is None else rank.steps.thread
        samples = read_stack_samples(run.reader, process, of_thread(thread))
        first_ns = None if rank is None else int(rank.steps.start[0])
        return analysis.JobProcess(
            launched_ns=self._job.launched(process),
            ready_ns=process.ready_ns,
            end_ns=self._job.end(process),
            spans=spans,
            samples=samples,
            steps=None if rank is None else rank.steps,
            is_sampled_from_start=process.ready_ns is not None
            and len(samples.t_ns) > 0
            and (first_ns is None or int(samples.t_ns[0]) <= first_ns),
            has_completed=self._job.has_completed(process),
            ended_itself=self._job.has_ended_itself(process),
            is_restart=is_restart,
            trains_later=trains_later,
            kept_until_ns=self._find_kept(process),
            stuck=self._find_stuck(process),
        )

    def _read_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        """Read the phases, steps and other spans of a process; few have spans of other kinds than
        those by which steps are found, which are read already."""
        name, kinds = process.process, (*STEP_KINDS, *analysis.JOB_KINDS)
        if name not in self._with_job_kinds:
            return self._run.step_spans(process)
        return load_spans(self._run.reader, [name], kinds, node=process.node).get(name, NO_SPANS)

    def _find_stuck(self, process: schema.ProcessInfo) -> intervals.Intervals:
        """Find the time in which the monitor of the node saw no progress."""
        node = self._run.reader.documents(schema.STUCK, schema.StuckNode).get(process.node)
        if node is None or not node.was_stuck or not node.has_reached_limit:
            return intervals.EMPTY
        end_ns = node.resolved_ns or max(node.seen_ns, self._job.end(process))
        if not self._job.launched(process) <= node.since_ns <= self._job.end(process):
            return intervals.EMPTY
        return intervals.find_gaps(intervals.EMPTY, (node.since_ns, max(end_ns, node.since_ns)))

    def list_restarts(self) -> list[RestartTime]:
        """List the restarts of the training processes."""
        numbers = sorted({process.incarnation for process in self._job.mains})
        restarts = []
        for earlier, number in pairwise(numbers):
            ranks = [r for r in self._job.ranks.values() if r.process.incarnation == number]
            restarts.append(
                RestartTime(
                    incarnation=number,
                    died_ns=self._job.deaths[earlier],
                    launched_ns=self._job.find_relaunch(earlier),
                    first_step_ns=min((int(r.steps.start[0]) for r in ranks), default=None),
                    steps_lost=self._count_lost(number),
                )
            )
        return restarts

    def _count_lost(self, number: int) -> int | None:
        """Count the steps that the restart which began an incarnation lost, of the rank that lost
        most; those that an earlier restart had lost count there."""
        if self._states.get(number) is None:
            return None
        lost: dict[object, int] = {}
        for rank in self._job.ranks.values():
            process = rank.process
            if process.incarnation >= number:
                continue
            kept_ns = self._find_kept(process, upto=number)
            before_ns = self._find_kept(process, upto=number - 1)
            is_lost = rank.steps.end > (_LATEST_NS if kept_ns is None else kept_ns)
            is_lost &= rank.steps.end <= (_LATEST_NS if before_ns is None else before_ns)
            key = process.rank if process.rank is not None else process.process
            lost[key] = lost.get(key, 0) + int(is_lost.sum())
        return max(lost.values(), default=0)

    def _find_kept(self, process: schema.ProcessInfo, upto: int = sys.maxsize) -> int | None:
        """Find the time after which results of a process were lost; None if none were.

        Args:
            process: the process.
            upto: count the restarts up to this incarnation.
        """
        times = [
            self._find_saved(process, state)
            for number, state in self._states.items()
            if process.incarnation < number <= upto and state is not None
        ]
        return min(times, default=None)

    def _find_saved(self, process: schema.ProcessInfo, state: LoadedState) -> int:
        """Find the end of the last step of a process that is in a state which another rank may have
        saved: ranks do not end a step at the same time, but all have as many steps as the one that
        saves."""
        rank, saver = self._job.ranks.get(process.process), self._job.ranks.get(state.process)
        if rank is None or saver is None or saver is rank:
            return state.t_ns
        if saver.process.incarnation != process.incarnation:
            return state.t_ns
        count = int(np.searchsorted(saver.steps.end, state.t_ns, side="right"))
        if not 0 < count <= len(rank.steps):
            return state.t_ns
        return int(rank.steps.end[count - 1])
