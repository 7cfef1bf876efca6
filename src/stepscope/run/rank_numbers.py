"""Numbers of ranks, by which users select processes and traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepscope.errors import UsageError
from stepscope.run.run import Run


@dataclass(frozen=True)
class RankNumbers:
    """Ranks of the processes and traces of a run; the only process of a job is rank 0.

    An imported trace that does not state its rank may be of any.
    """

    by_process: Mapping[str, int]
    by_trace: Mapping[int, int]

    @property
    def numbers(self) -> list[int]:
        """All ranks, ascending; empty where they are unknown."""
        return sorted({*self.by_process.values(), *self.by_trace.values()})

    def require(self, rank: int | None) -> None:
        """Refuse a rank that does not exist; None stands for all ranks.

        Raises:
            UsageError: there is no such rank.
        """
        numbers = self.numbers
        if rank is None or rank in numbers:
            return
        if not numbers:
            raise UsageError(f"There is no rank {rank}: the run does not record ranks.")
        noun = "ranks" if len(numbers) > 1 else "rank"
        raise UsageError(
            f"There is no rank {rank}; the run has {noun} {', '.join(number_ranges(numbers))}."
        )


def number_ranks(run: Run) -> RankNumbers:
    """Number the ranks of a run, also where it is restricted to a range of time."""
    return run.whole_run.derive(_number_ranks)


def _number_ranks(run: Run) -> RankNumbers:
    by_process = {p.process: p.rank for p in run.processes if p.rank is not None}
    by_trace = {t.trace: t.rank for t in run.traces if t.rank is not None}
    if by_process or by_trace:
        return RankNumbers(by_process, by_trace)
    main = [process.process for process in run.processes if process.role == "main"]
    if len(main) > 1:  # a job of several commands, one of which trains
        main = [rank.process.process for rank in run.ranks]
    if len(main) == 1:
        traces = [trace.trace for trace in run.traces if trace.process in {None, main[0]}]
        return RankNumbers({main[0]: 0}, dict.fromkeys(traces, 0))
    return RankNumbers({}, {})


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Format ascending numbers as ranges of three or more, and single numbers.

    >>> number_ranges([1, 2, 3, 7, 8])
    ['1 to 3', '7', '8']
    """
    runs: list[list[int]] = []
    for value in numbers:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts: list[str] = []
    for run in runs:
        texts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return texts
