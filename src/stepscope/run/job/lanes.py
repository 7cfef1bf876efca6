"""Processes of a job by rank, in the order of time.

A rank of a restarted job is several processes, one after the other. Processes without a rank that
do not run at the same time, such as the commands of a script, count as one rank. Programs that
record only their stacks (`schema.ProcessInfo`) are part of it where they run before, between or
after the processes that train.

A process of an earlier incarnation lasts until the first of its ranks has died, or until its last
step: ranks that wait for a dead one make no progress.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepscope import schema
from stepscope.run.job.times import ANY_SAMPLE, list_programs, read_last_times
from stepscope.run.model.run import Run

Lane = list[schema.ProcessInfo]
"""Processes of one rank in the order of their start."""


class JobProcesses:
    """Processes of a job with their times, by rank.

    Args:
        run: the whole run.
        borders: start and end of the job by its statuses.
        is_final: False for a job that runs still.
    """

    def __init__(self, run: Run, borders: tuple[int, int], *, is_final: bool) -> None:
        self._last_ns = read_last_times(run, ANY_SAMPLE)
        self._processes = run.processes
        self._programs = list_programs(run)
        self._statuses = run.reader.statuses()
        self.ranks = {rank.process.process: rank for rank in run.all_ranks}
        """Training processes with steps by the name of the process."""
        self.mains = [process for process in run.processes if process.role == "main"]
        self._latest = max((p.incarnation for p in self.mains), default=1)
        self.deaths = self._find_deaths()
        """Last record of the first process that died, by incarnation; of all but the latest."""
        self.lanes = self._find_lanes()
        """Processes of each rank."""
        start_ns, end_ns = borders
        launches = [status.launched_ns for status in self._statuses.values()]
        launches += [self.launched(lane[0]) for lane in self.lanes]
        self.start_ns = min([start_ns, *(time for time in launches if time is not None)])
        """When the command of the job was launched, or its first process."""
        if not is_final:  # the latest records are still to be read
            recorded = [self._last(process) for process in self._processes]
            end_ns = min(end_ns, max(recorded, default=end_ns))
        self.end_ns = max(self.start_ns, end_ns)
        """End of the job; of a running one, its last record."""

    def launched(self, process: schema.ProcessInfo) -> int:
        """Return when a process was created, or its first record."""
        return process.started_ns if process.launched_ns is None else process.launched_ns

    def _last(self, process: schema.ProcessInfo) -> int:
        """Return the time of the last record of a process."""
        return max(process.started_ns, self._last_ns.get(process.process, process.started_ns))

    def end(self, process: schema.ProcessInfo) -> int:
        """Return when a process ended, as far as is known."""
        rank = self.ranks.get(process.process)
        death_ns = self.deaths.get(process.incarnation)
        if death_ns is not None and process.role == "main":
            last_step_ns = process.started_ns if rank is None else int(rank.steps.end[-1])
            return max(min(death_ns, self._last(process)), last_step_ns)
        if process.ended_ns is None or not self.has_ended_itself(process):
            return self._last(process)
        return max(process.ended_ns, process.started_ns)

    def has_ended_itself(self, process: schema.ProcessInfo) -> bool:
        """Return True if a process ran to its end, or to an error; False if it was killed, or runs
        still."""
        if process.role == "main" and process.incarnation < self._latest:
            return False
        status = self._statuses.get(process.node)
        if status is None or status.state is not schema.JobState.FAILED:
            return self.has_completed(process)
        return status.signal is None

    def has_completed(self, process: schema.ProcessInfo) -> bool:
        """Return True if a process is of a job, and an incarnation, that ended with success."""
        status = self._statuses.get(process.node)
        is_latest = process.role != "main" or process.incarnation == self._latest
        return is_latest and status is not None and status.state is schema.JobState.COMPLETED

    def _find_deaths(self) -> dict[int, int]:
        """Find when the first process of each incarnation but the latest died."""
        return {
            number: min(self._last(p) for p in self.mains if p.incarnation == number)
            for number in {p.incarnation for p in self.mains}
            if number < self._latest
        }

    def _find_lanes(self) -> list[Lane]:
        """Find the processes of each rank."""
        numbered = [process for process in self.mains if process.rank is not None]
        training = [process for process in self.mains if process.process in self.ranks]
        members = numbered or training or self.mains or self._find_roots(self._programs)
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
        return lanes

    def _follows(self, earlier: schema.ProcessInfo, later: schema.ProcessInfo) -> bool:
        """Return True if a process ran after another one; of two of one rank that ran at the same
        time, half of the time tells."""
        if earlier.rank is None:
            return self._is_over(earlier, later)
        shared_ns = self.end(earlier) - self.launched(later)
        return 2 * shared_ns <= self.end(earlier) - self.launched(earlier)

    def _is_over(self, earlier: schema.ProcessInfo, later: schema.ProcessInfo) -> bool:
        """Return True if a process had its last record before another one was created; the end of
        one that left without notice is seen later."""
        return self._last(earlier) <= self.launched(later)

    def _find_roots(self, programs: Iterable[schema.ProcessInfo]) -> list[schema.ProcessInfo]:
        programs = list(programs)
        started = {(program.node, program.pid) for program in programs}
        return [p for p in programs if (p.node, p.parent_pid) not in started]

    def _add_neighbours(self, lane: Lane) -> None:
        """Add the processes of the node that ran while no process of the rank did: those that
        prepare, convert or evaluate, but no launcher."""
        relatives = {(process.node, process.pid) for process in lane}
        by_pid = {(p.node, p.pid): p for p in (*self._processes, *self._programs)}
        ancestors = set[tuple[str, int]]()
        for process in lane:
            parent = by_pid.get((process.node, process.parent_pid))
            while parent is not None and (parent.node, parent.pid) not in ancestors:
                ancestors.add((parent.node, parent.pid))
                parent = by_pid.get((parent.node, parent.parent_pid))
        unranked = [p for p in self.mains if p.rank is None and p.process not in self.ranks]
        for candidate in sorted((*unranked, *self._programs), key=self.launched):
            key = (candidate.node, candidate.pid)
            is_relative = key in relatives or (candidate.node, candidate.parent_pid) in relatives
            if is_relative or key in ancestors or candidate.node != lane[0].node:
                continue
            if all(
                self._is_over(candidate, process) or self._is_over(process, candidate)
                for process in lane
            ):
                lane.append(candidate)
        lane.sort(key=self.launched)

    @staticmethod
    def is_restart(lane: Lane, index: int) -> bool:
        """Return True for a process after those of one incarnation, up to the first of the next."""
        earlier = [p.incarnation for p in lane[:index] if p.role == "main"]
        later = [p.incarnation for p in lane[index:] if p.role == "main"]
        return bool(earlier and later) and earlier[-1] < later[0]

    def find_relaunch(self, earlier: int) -> int:
        """Find when the first process was created after those of an incarnation."""
        return min(
            self.launched(process)
            for lane in self.lanes
            for index, process in enumerate(lane)
            if self.is_restart(lane, index)
            and max(p.incarnation for p in lane[:index] if p.role == "main") == earlier
        )
