"""Python profiles and stack samples, selected by the modes and periods of a job.

Selection of Python profiles and stack samples by the modes and periods of a job. A moment of a rank
is in a mode, or on the way from one to the next: after the last work of the training before an
evaluation, say, the job goes from `train` to `eval` until the evaluation starts. Before the first
work it comes from `pre_step_zero`, after the last it goes to `post_close`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from stepscope import analysis, schema, store
from stepscope.intervals import EMPTY, Intervals, contains, union
from stepscope.run.job.spans import MODES, find_modes
from stepscope.run.model.clock import ALWAYS, Period
from stepscope.run.model.run import Rank

_SUMS = ("own_ns", "total_ns", "calls", "primitive_calls")
_KEY = ("profiler", "function", "file", "library")


class ProfiledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of one function over the profiles of a process by one profiler."""

    profiler: str
    function: str
    file: str
    library: str
    own_ns: int
    total_ns: int
    calls: int | None
    """None for a profiler that takes samples."""
    primitive_calls: int | None
    profile_own_ns: int
    """Own time of all functions in these profiles."""


def read_python_profiles(
    reader: store.RunReader,
    process: schema.ProcessInfo,
    selection: ProfileSelection,
    within: Intervals | None = None,
) -> list[ProfiledFunction]:
    """Sum the profiles of a process by profiler and function, the highest own time first.

    Args:
        reader: the run.
        process: the process.
        selection: profiles that it accepts count.
        within: profiles that start in these intervals count; None for all.
    """
    rows = reader.table(
        "python_profiles",
        (*_KEY, "start_ns", "start_at", "end_at", *_SUMS),
        condition="process = ?",
        parameters=[process.process],
    )
    times = zip(*(rows[name].tolist() for name in ("start_at", "end_at", "start_ns")), strict=True)
    selected = [selection.accepts_profile(*row) for row in times]
    if within is not None:
        is_within = contains(union(within), rows["start_ns"]).tolist()
        selected = [a and b for a, b in zip(selected, is_within, strict=True)]
    keys = zip(*(rows[name].tolist() for name in _KEY), strict=True)
    figures = zip(*(rows[name].tolist() for name in _SUMS), strict=True)
    sums: dict[tuple[str, ...], list[int | None]] = {}
    profile_ns: dict[str, int] = {}
    for is_selected, key, row in zip(selected, keys, figures, strict=True):
        if is_selected:
            before = sums.get(key, [0] * len(_SUMS))
            sums[key] = [
                None if a is None or b is None else a + b for a, b in zip(before, row, strict=True)
            ]
            profile_ns[key[0]] = profile_ns.get(key[0], 0) + row[0]
    functions = [
        ProfiledFunction(
            profiler=key[0],
            function=key[1],
            file=key[2],
            library=key[3],
            own_ns=own_ns or 0,
            total_ns=total_ns or 0,
            calls=calls,
            primitive_calls=primitive_calls,
            profile_own_ns=profile_ns[key[0]],
        )
        for key, (own_ns, total_ns, calls, primitive_calls) in sums.items()
    ]
    return sorted(functions, key=lambda f: (f.profiler, -f.own_ns, -f.total_ns, f.function))


PRE_STEP_ZERO, POST_CLOSE = "pre_step_zero", "post_close"
PROFILE_MODES = (*MODES, "global", PRE_STEP_ZERO, POST_CLOSE)
"""Modes between which a profile may be; `global` only in imported files, for scripts that name no
modes."""
PROFILE_BORDERS = ("start", "stepstart", "forwardpassend", "stepend", "end")
"""Moments at which imported profiles start and end, named as in their files."""
_MODES_IN_FILES = {"prestepzero": PRE_STEP_ZERO, "posthookclose": POST_CLOSE}
ModePair = tuple[str, str]


class ProfileSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on profiles and samples; None accepts all."""

    period: str | None = None
    """One of `PERIODS`: before the first work, between, and after the last."""
    modes: ModePair | None = None
    """Modes at the start and at the end."""
    borders: tuple[str, str] | None = None
    """Moments at the start and the end of an imported profile."""
    extent: Period = ALWAYS
    """Range of time in which profiles start, and of samples."""

    def accepts_modes(self, pair: ModePair | None) -> bool:
        """Test the modes at start and end; None if they are unknown."""
        if pair is None:
            return self.modes is None and self.period is None
        if self.modes is not None and pair != self.modes:
            return False
        match self.period:
            case "initialization":
                return pair[0] == PRE_STEP_ZERO
            case "finalization":
                return pair[1] == POST_CLOSE
            case "training":
                return pair[0] != PRE_STEP_ZERO and pair[1] != POST_CLOSE
        return True

    def accepts_profile(self, start_at: str, end_at: str, start_ns: int) -> bool:
        """Test an imported profile by `mode-step-moment` at its start and its end, and its start in
        epoch nanoseconds."""
        if not self.extent.start_ns <= start_ns < self.extent.end_ns:
            return False
        start, end = _parse_moment(start_at), _parse_moment(end_at)
        if start is None or end is None:
            return self.borders is None and self.accepts_modes(None)
        if self.borders is not None and (start[1], end[1]) != self.borders:
            return False
        return self.accepts_modes((start[0], end[0]))

    def find_times(self, rank: Rank) -> Intervals | None:
        """Find the time of the accepted moments of a rank; None for all time."""
        if self.period is None and self.modes is None:
            if self.extent == ALWAYS:
                return None
            times = [tuple(self.extent)]
        else:
            times = [
                (max(start, self.extent.start_ns), min(end, self.extent.end_ns))
                for start, end, pair in _divide_by_modes(rank)
                if self.accepts_modes(pair)
            ]
        times = [(start, end) for start, end in times if start < end]
        borders = np.array(times, dtype=np.int64).reshape(-1, 2)
        return union(Intervals(borders[:, 0], borders[:, 1]))


def _parse_moment(text: str) -> tuple[str, str] | None:
    """Parse `train-9-stepstart` into mode and moment; None for the older `step-9`."""
    parts = text.split("-")
    if len(parts) != 3:
        return None
    return _MODES_IN_FILES.get(parts[0], parts[0]), parts[2]


def _divide_by_modes(rank: Rank) -> Iterator[tuple[int, int, ModePair]]:
    """Divide all time by the modes that a rank is in, or goes from and to."""
    mode, border = PRE_STEP_ZERO, ALWAYS.start_ns
    for start, end, next_mode in _find_mode_extents(rank):
        yield border, start, (mode, next_mode)
        yield start, end, (next_mode, next_mode)
        mode, border = next_mode, end
    yield border, ALWAYS.end_ns, (mode, POST_CLOSE)


def _find_mode_extents(rank: Rank) -> list[tuple[int, int, str]]:
    """Find the extents of consecutive work in the same mode, in order of time."""
    times = find_modes(rank)
    work = rank.spans.on_thread(rank.steps.thread)
    work = work.take(work.is_kind(*analysis.WORK_KINDS) & (work.end > work.start))
    work = work.take(~contains(union(rank.steps.evaluation), work.start))
    trained = EMPTY if rank.steps.is_inference else union(work.intervals)
    pieces = [(start, end, "train") for start, end in _pairs(trained)]
    for mode in ("eval", "predict"):
        pieces += [(start, end, mode) for start, end in _pairs(times[mode])]
    extents: list[tuple[int, int, str]] = []
    for start, end, mode in sorted(pieces):
        continues = bool(extents) and extents[-1][2] == mode
        extents.append((extents.pop()[0] if continues else start, end, mode))
    return extents


def _pairs(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))
