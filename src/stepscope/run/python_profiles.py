"""Python profiles that other tools summed up by function."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.intervals import Intervals, contains, union
from stepscope.run.profile_selection import ProfileSelection
from stepscope.schema import ProcessInfo
from stepscope.store import RunReader

_SUMS = ("own_ns", "total_ns", "calls", "primitive_calls")
_KEY = ("profiler", "function", "file", "library")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledFunction:
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
    reader: RunReader,
    process: ProcessInfo,
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
