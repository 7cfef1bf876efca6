"""Python profiles, as rows of `python_profiles`.

A profile covers the time in the name of its folder, and is a file of cProfile (`python_stats`, the
format of `pstats`) or of pyinstrument (`python_stats.json`, a tree of calls).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.smdebug import marshalled
from stepscope.importers.smdebug.forms import split_recorder
from stepscope.schema import MALFORMED_JSON, library_of
from stepscope.store import DictColumn

_MOMENT = r"[a-z]+-(?:\d+|\*)-[a-z]+"
_FOLDER = re.compile(
    rf"(?P<start_at>{_MOMENT})-(?P<start_us>\d+)(?:\.\d+)?_(?P<end_at>{_MOMENT})-(?P<end_us>\d+)"
    r"(?:\.\d+)?"
)
_OLD_FOLDER = re.compile(r"(?P<start_us>\d+)_(?P<end_us>\d+)_(?P<recorder>.+)_(?P<step>\d+|\*)")
_OWN_TIME = "[self]"
"""Function of frames that later versions of pyinstrument write for the time of their caller."""
MAX_FRAMES = 1_000_000
MAX_SECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSum:
    """Time and calls of one function in a profile."""

    function: str
    file: str
    line: int
    own_ns: int
    total_ns: int
    calls: int | None = None
    primitive_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProfile:
    """One profile."""

    pid: int | None
    host: str | None
    profiler: str
    start_ns: int
    end_ns: int
    start_at: str
    end_at: str
    functions: list[FunctionSum]


def read_profile(path: Path) -> PythonProfile:
    """Read a profile.

    Raises:
        ValueError: the folder does not state the time, or the file is no profile. The message
            completes a sentence about the file.
        OSError: the file cannot be read.
    """
    folder = _FOLDER.fullmatch(path.parent.name)
    old_folder = _OLD_FOLDER.fullmatch(path.parent.name)
    match = folder or old_folder
    if match is None:
        raise ValueError("the name of its folder does not state the time of the profile")
    recorder = path.parents[1].name if old_folder is None else old_folder["recorder"]
    step = f"step-{old_folder['step']}" if old_folder is not None else ""
    pid, host = split_recorder(recorder)
    is_tree = path.suffix == ".json"
    return PythonProfile(
        pid=pid,
        host=host,
        profiler="pyinstrument" if is_tree else "cprofile",
        start_ns=int(match["start_us"]) * 1000,
        end_ns=int(match["end_us"]) * 1000,
        start_at=folder["start_at"] if folder else step,
        end_at=folder["end_at"] if folder else step,
        functions=(_sum_tree if is_tree else _read_stats)(path.read_bytes()),
    )


def columns_of(
    profile: PythonProfile, *, node: str, process: str, first_row: int
) -> Mapping[str, Any]:
    """Return the columns of `python_profiles`."""
    functions = profile.functions
    count = len(functions)
    constants = {
        "node": node,
        "process": process,
        "log": f"{profile.pid or 0}p",
        "profiler": profile.profiler,
        "start_at": profile.start_at,
        "end_at": profile.end_at,
    }
    return {
        **{name: DictColumn.constant(value, count) for name, value in constants.items()},
        "seq": np.arange(first_row, first_row + count, dtype=np.int64),
        "start_ns": np.full(count, profile.start_ns, dtype=np.int64),
        "end_ns": np.full(count, profile.end_ns, dtype=np.int64),
        "function": DictColumn.encode(f.function for f in functions),
        "file": DictColumn.encode(f.file for f in functions),
        "library": DictColumn.encode(library_of(f.file) for f in functions),
        **{
            name: np.array([getattr(f, name) for f in functions], dtype=np.int64)
            for name in ("line", "own_ns", "total_ns")
        },
        **{
            name: _optional([getattr(f, name) for f in functions])
            for name in ("calls", "primitive_calls")
        },
    }


def _optional(values: Sequence[int | None]) -> Any:
    return np.ma.MaskedArray(
        np.array([value or 0 for value in values], dtype=np.int64),
        mask=[value is None for value in values],
    )


# --- cProfile ------------------------------------------------------------------------------------


def _read_stats(data: bytes) -> list[FunctionSum]:
    """Read the functions of a file of `pstats`: a dict of (file, line, function) to (primitive
    calls, calls, own seconds, total seconds, callers)."""
    stats = marshalled.load(data)
    if not isinstance(stats, dict):
        raise ValueError("it is no file of cProfile")
    try:
        return [
            _function_sum(*map(_text, (key[2], key[0])), line=key[1], figures=value[:4])
            for key, value in stats.items()
        ]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError("it is no file of cProfile") from error


def _function_sum(function: str, file: str, *, line: object, figures: object) -> FunctionSum:
    if not isinstance(figures, tuple) or not isinstance(line, int):
        raise TypeError
    primitive_calls, calls, own_s, total_s = figures
    if not isinstance(calls, int) or not isinstance(primitive_calls, int):
        raise TypeError
    return FunctionSum(
        function=function,
        file="" if file == "~" else file,
        line=line,
        own_ns=_nanoseconds(own_s),
        total_ns=_nanoseconds(total_s),
        calls=calls,
        primitive_calls=primitive_calls,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _nanoseconds(seconds: object) -> int:
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError("a time is no number")
    if abs(seconds) > MAX_SECONDS:
        raise ValueError("a time is too long")
    return round(seconds * 1e9)


# --- pyinstrument --------------------------------------------------------------------------------


class _CallFrame(msgspec.Struct, gc=False):
    function: str
    time: float
    file_path: str | None = None
    file_path_short: str | None = None
    line_no: int | None = None
    children: list[Any] = []


class _Session(msgspec.Struct):
    root_frame: Any


_Key = tuple[str, str, int]
"""Function, file and line."""


def _sum_tree(data: bytes) -> list[FunctionSum]:
    """Sum the frames of a tree by function; a function counts once in each path of calls."""
    own_ns: dict[_Key, int] = {}
    total_ns: dict[_Key, int] = {}
    try:
        root = msgspec.json.decode(data, type=_Session).root_frame
        for key, self_ns, all_ns in _walk(root):
            own_ns[key] = own_ns.get(key, 0) + self_ns
            total_ns[key] = total_ns.get(key, 0) + all_ns
    except MALFORMED_JSON as error:
        raise ValueError("it is no file of pyinstrument") from error
    return [
        FunctionSum(
            function=key[0], file=key[1], line=key[2], own_ns=self_ns, total_ns=total_ns[key]
        )
        for key, self_ns in own_ns.items()
    ]


def _walk(root: Any) -> Iterator[tuple[_Key, int, int]]:
    """Yield function, own time and total time of each frame; the total is 0 inside a frame of the
    same function."""
    pending: list[tuple[Any, _Key | None, frozenset[_Key]]] = [(root, None, frozenset())]
    frame_count = 0
    while pending:
        raw, caller, callers = pending.pop()
        frame = msgspec.convert(raw, _CallFrame)
        frame_count += 1
        if frame_count > MAX_FRAMES:
            raise ValueError("it has too many frames")
        key = (frame.function, frame.file_path or frame.file_path_short or "", frame.line_no or 0)
        if frame.function == _OWN_TIME and caller is not None:
            key = caller
        children = [msgspec.convert(child, _CallFrame).time for child in frame.children]
        total_ns = _nanoseconds(frame.time)
        self_ns = max(0, total_ns - sum(map(_nanoseconds, children)))
        yield key, self_ns, 0 if key in callers else total_ns
        pending += [(child, key, callers | {key}) for child in frame.children]
