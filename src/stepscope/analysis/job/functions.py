"""Functions by class of a job's time, from samples of the stack.

A stack is named by the outermost function of user code that runs in one class only: one that runs
in several, as a function that validates and uploads, says nothing about either. Code that such a
function contains itself is named by its line. Imports are named by their packages.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope.analysis.input_pipeline import code_stages
from stepscope.analysis.input_pipeline.stacks import is_hook
from stepscope.analysis.job.activities import TOP_LEVEL, CallTree, SampledActivities, is_import
from stepscope.intervals import Int

KeyT = TypeVar("KeyT", bound=Hashable)
MIN_PURE_RATIO = 0.9
"""A function is of a class if this share of its samples is."""


class ClassFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Function with time of one class, or a package that is imported."""

    function: str
    """Name, or that of the package."""
    file: str
    line: int
    """Line with most of its time; where only those of functions that it called are known, that of
    its definition; 0 if unknown."""
    text: str
    """Text of that line or of the call in it; empty if unknown."""
    is_line: bool
    """True if only this line of the function is meant."""
    is_user: bool
    time_ns: int
    total_ns: int
    """Of a package with those that it imports, otherwise as `time_ns`."""


def measure_functions(
    activities: SampledActivities, edges: Int, classes: NDArray[np.int8], *, importing: int
) -> dict[int, list[ClassFunction]]:
    """Measure the time of functions in each class.

    Args:
        activities: of the process.
        edges, classes: pieces of one class each, as of `Division`.
        importing: the class whose functions are packages.

    Returns:
        Functions by class, the longest first. Time of pieces that no sample of their class stands
        for is of none.
    """
    stack, line, code, time_ns = _weigh(activities, edges, classes)
    tree, samples = activities.tree, activities.samples
    by_stack = np.zeros((len(samples.stacks), max(1, int(code.max(initial=0)) + 1)))
    np.add.at(by_stack, (stack, code), time_ns)
    by_node = tree.add_up(by_stack)
    is_pure = by_node >= MIN_PURE_RATIO * np.maximum(by_node.sum(axis=1, keepdims=True), 1)
    keys = np.stack([code, stack, line], axis=1).astype(np.int64)
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    sums = np.zeros(len(unique), dtype=np.int64)
    np.add.at(sums, group.ravel(), time_ns)
    lines = _find_pure_lines(tree, unique, sums)
    tables: dict[int, dict[_Name, _Times]] = defaultdict(lambda: defaultdict(_Times))
    for (number, stack_code, user_line), sum_ns in zip(unique.tolist(), sums.tolist(), strict=True):
        leaf = tree.leaf[stack_code]
        if leaf < 0:
            continue
        table, text = tables[number], samples.source_text(stack_code, user_line)
        if number == importing:
            packages = _list_packages(tree, leaf, text)
            for package in dict.fromkeys(packages):
                table[package].total_ns += sum_ns
            table[packages[0]].lines[user_line, text] += sum_ns
            table[packages[-1]].own_ns += sum_ns
            continue
        is_own = (number, tree.find_user(leaf), user_line) in lines
        name, has_line = _name_function(tree, leaf, is_pure[:, number], user_line, is_own=is_own)
        table[name].total_ns += sum_ns
        table[name].own_ns += sum_ns
        if has_line:
            table[name].lines[user_line, text] += sum_ns
    return {
        number: _sort(
            times.describe(name, samples.definitions.get((name.file, name.function), 0))
            for name, times in table.items()
        )
        for number, table in tables.items()
    }


class _Name(NamedTuple):
    """Function, a line of one, or package."""

    function: str
    file: str
    is_user: bool
    line: int = 0
    """0 for all lines."""


class _Times(msgspec.Struct):
    """Times of a function in nanoseconds."""

    own_ns: int = 0
    total_ns: int = 0
    lines: Counter[tuple[int, str]] = msgspec.field(default_factory=Counter)
    """Of its lines, with their texts."""

    def describe(self, name: _Name, definition: int) -> ClassFunction:
        """Describe the function by the line with most of its time, or that of its definition."""
        longest = max(self.lines, key=lambda key: (self.lines[key], key), default=None)
        line, text = (definition, "") if longest is None else longest
        return ClassFunction(
            function=name.function,
            file=name.file,
            line=line,
            text=text,
            is_line=name.line > 0,
            is_user=name.is_user,
            time_ns=self.own_ns,
            total_ns=self.total_ns,
        )


def _sort(functions: Iterable[ClassFunction]) -> list[ClassFunction]:
    return sorted(functions, key=lambda row: (-row.total_ns, row.function, row.file, row.line))


def add_functions(
    tables: Iterable[Mapping[KeyT, Sequence[ClassFunction]]],
) -> dict[KeyT, list[ClassFunction]]:
    """Add up the functions of several processes or ranks by class."""
    groups: dict[KeyT, dict[_Name, list[ClassFunction]]] = defaultdict(lambda: defaultdict(list))
    for table in tables:
        for number, functions in table.items():
            for one in functions:
                line = one.line if one.is_line else 0
                groups[number][_Name(one.function, one.file, one.is_user, line)].append(one)
    return {number: _sort(map(_merge, rows.values())) for number, rows in groups.items()}


def _merge(functions: Sequence[ClassFunction]) -> ClassFunction:
    """Add up the times of one function, with the line that has most of it."""
    return replace(
        max(functions, key=lambda function: function.total_ns),
        time_ns=sum(function.time_ns for function in functions),
        total_ns=sum(function.total_ns for function in functions),
    )


def _weigh(
    activities: SampledActivities, edges: Int, classes: NDArray[np.int8]
) -> tuple[Int, Int, Int, Int]:
    """Divide the time of pieces over the samples inside each; the last one has the rest of it. A
    piece without a sample belongs to the one that stands for its time, if that is of its class.

    Returns:
        Stack, line, class and time of each part.
    """
    samples = activities.samples
    t_ns = samples.t_ns
    first = np.searchsorted(t_ns, edges[:-1], side="right")
    stop = np.searchsorted(t_ns, edges[1:], side="right")
    counts = stop - first
    piece = np.repeat(np.arange(len(classes)), counts)
    offset = np.cumsum(counts) - counts
    position = np.arange(len(piece)) - offset[piece]
    row = first[piece] + position
    start = np.where(position == 0, edges[:-1][piece], t_ns[np.maximum(row - 1, 0)])
    end = np.where(position == counts[piece] - 1, edges[1:][piece], t_ns[row])
    class_of_row = np.full(len(t_ns) + 1, -1, dtype=np.int64)
    class_of_row[row] = classes[piece]
    empty = np.flatnonzero(counts == 0)
    middle = (edges[empty] + edges[empty + 1]) // 2
    standing = np.searchsorted(activities.end_ns, middle, side="right")
    is_same = class_of_row[standing] == classes[empty]
    empty, standing = empty[is_same], standing[is_same]
    rows = np.concatenate([row, standing])
    pieces = np.concatenate([piece, empty])
    time_ns = np.concatenate([end - start, np.diff(edges)[empty]])
    return samples.stack[rows], samples.user_line[rows], classes[pieces].astype(np.int64), time_ns


def _find_pure_lines(tree: CallTree, keys: Int, time_ns: Int) -> set[tuple[int, int, int]]:
    """Find the lines that run in one class only.

    Args:
        keys: class, stack and line of user code of each row.
        time_ns: time of each row.

    Returns:
        Class, innermost node of user code, and line.
    """
    times: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for (number, stack, line), time in zip(keys.tolist(), time_ns.tolist(), strict=True):
        times[tree.find_user(tree.leaf[stack]), line][number] += time
    return {
        (number, node, line)
        for (node, line), by_class in times.items()
        for number, time in by_class.items()
        if node >= 0 and line > 0 and time >= MIN_PURE_RATIO * sum(by_class.values())
    }


def _name_function(
    tree: CallTree, leaf: int, is_pure: NDArray[np.bool_], line: int, *, is_own: bool
) -> tuple[_Name, bool]:
    """Name what a stack runs: the outermost function of user code of its class only; or else the
    line of user code, if that is; or else a function of a library that is.

    Returns:
        The name, and True if the line of user code is in it.
    """
    path, innermost = tree.path(leaf), tree.find_user(leaf)
    pure = [node for node in path if is_pure[node] and not is_import(tree.frames[node])]
    functions = [n for n in pure if _is_function(tree.frames[n])]
    # The whole script is in its main function, if nothing of it trains.
    inner = (n for n in functions if tree.frames[n].bare_function not in _ENTRIES)
    node = next(inner, next(iter(functions), None))
    is_whole = node is not None
    if node is None and not is_own:
        node = _find_library_call(tree, pure)
    if node is None:
        node = innermost if innermost >= 0 else leaf
    frame = tree.frames[node]
    has_line = node == innermost
    row_line = line if has_line and not is_whole else 0
    return _Name(frame.function, frame.file, not frame.library, row_line), has_line


def _find_library_call(tree: CallTree, path: Sequence[int]) -> int | None:
    """Find the call that says what a library does: the outermost hook, or else the outermost
    function that does not only call the functions registered for an event."""
    nodes = [node for node in path if tree.frames[node].library]
    hooks = (node for node in nodes if is_hook(tree.frames[node].function))
    acts = (node for node in nodes if not _NOTIFIES.search(tree.frames[node].bare_function))
    return next(hooks, next(acts, next(iter(nodes), None)))


def _is_function(frame: code_stages.Frame) -> bool:
    return not frame.library and frame.function != TOP_LEVEL


_ENTRIES = frozenset({"main", "_main"})
_NOTIFIES = re.compile(r"^_*(fire|notify|trigger|emit|dispatch)(_|$)")
_IMPORTS = re.compile(r"^\s*(?:import|from)\s+([\w.]+)")


def _name_module(frame: code_stages.Frame) -> str:
    """Name a module of the user; that of a package by the package."""
    if frame.module != "__init__":
        return frame.module
    return frame.file.rpartition("/")[0].rpartition("/")[2] or frame.module


def _list_packages(tree: CallTree, leaf: int, text: str) -> list[_Name]:
    """List the packages that a stack is importing, outermost first; at least one."""
    names: list[_Name] = []
    has_import = False
    for node in tree.path(leaf):
        frame = tree.frames[node]
        if is_import(frame):
            has_import = True
        elif has_import and frame.function == TOP_LEVEL:
            names.append(_Name(frame.library or _name_module(frame), "", not frame.library))
    if names:
        return names
    match = _IMPORTS.search(text)
    return [_Name(match[1].partition(".")[0] if match else "import", "", is_user=False)]
