"""Activities of a process outside of its steps, from samples of the stack of its training thread.

A sample stands for the time since the previous one. Its stack is a path in the tree of calls. Paths
that ordinary steps have, too, lead to the training loop, such as `<module>`, `main`, `fit`. What a
stack has below them is the activity.

    imports        the stack is in the import machinery, with no function of user code below it
                   other than the top level of a module
    surroundings   calls around an evaluation or a checkpoint: the function of the user, or else of
                   a library, which all samples inside it have in common; and from there outwards
                   the outermost function whose name says the same
    unusual        any activity that ordinary steps do not have
    functions      time by class and function: the first function of user code from outside inwards
                   that has samples of that class only
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline import code_stages
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.steps.spans import Spans
from stepscope.intervals import EMPTY, Int, Intervals

MIN_ORDINARY_RATIO = 0.02
"""A path is ordinary if it has this share of the samples in ordinary steps."""
MIN_ORDINARY_SAMPLES = 5
"""With fewer samples in steps, paths are ordinary that samples before and after a step share."""
ENTRY_NS = 2_000_000
"""A sample that is taken at the start of a span may be earlier by this much."""
MIN_PURE_RATIO = 0.9
"""A function is of a class if this share of its samples is."""
MIN_LOADING_RATIO = 0.5
"""The function around a load counts as loading if the load takes this share of it."""
_IMPORT_FILE = re.compile(r"^<frozen importlib|/importlib/")
_MODULE_CALL = "torch/nn/modules/module.py"
_TOP_LEVEL = "<module>"
_INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"})
_EVALUATES = re.compile(r"^_?(run_)?(eval|valid|test|predict|infer|score)")
_SAVES = re.compile(r"^_?(save|load|restore|resume|persist)|checkpoint|ckpt|snapshot")


@dataclass(slots=True)
class CallTree:
    """Paths of the calls of some stacks; a node comes after its parent."""

    frames: list[code_stages.Frame]
    parent: list[int]
    """-1 for outermost calls."""
    leaf: list[int]
    """Node by stack; -1 for an empty one."""

    @classmethod
    def build(cls, stacks: Sequence[str]) -> CallTree:
        """Build the tree of some stacks."""
        tree = cls(frames=[], parent=[], leaf=[])
        nodes: dict[tuple[int, code_stages.Frame], int] = {}
        for stack in stacks:
            node = -1
            for frame in code_stages.parse_stack(stack):
                if not frame.function or frame.function in _INLINED:
                    continue
                key = (node, frame)
                if key not in nodes:
                    nodes[key] = len(tree.frames)
                    tree.frames.append(frame)
                    tree.parent.append(node)
                node = nodes[key]
            tree.leaf.append(node)
        return tree

    def path(self, node: int) -> list[int]:
        """List the nodes from the outermost call to a node."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]

    def find_common(self, leaves: Sequence[int]) -> int:
        """Find the deepest node that is in the paths of all leaves; -1 for none."""
        paths = [self.path(leaf) for leaf in leaves]
        common = -1
        for nodes in zip(*paths, strict=False):
            if len(set(nodes)) > 1:
                break
            common = nodes[0]
        return common

    def add_up(self, by_leaf: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values of stacks over all nodes of their paths.

        Args:
            by_leaf: values by stack, in the first dimension.
        """
        sums = np.zeros((len(self.frames), *by_leaf.shape[1:]))
        for stack, node in enumerate(self.leaf):
            if node >= 0:
                sums[node] += by_leaf[stack]
        for node in range(len(self.frames) - 1, -1, -1):
            if self.parent[node] >= 0:
                sums[self.parent[node]] += sums[node]
        return sums


def is_import(frame: code_stages.Frame) -> bool:
    """Return True for a frame of the import machinery."""
    return bool(_IMPORT_FILE.search(frame.file))


@dataclass(frozen=True, slots=True)
class SampledActivities:
    """Samples of one thread with their paths."""

    samples: StackSamples
    start_ns: Int
    """Start of the time that each sample stands for."""
    tree: CallTree
    is_ordinary: NDArray[np.bool_]
    """Mask of the nodes whose paths ordinary steps have."""
    _stacks: dict[int, NDArray[np.bool_]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, samples: StackSamples, start_ns: int, ordinary: Intervals, work: Intervals
    ) -> SampledActivities:
        """Build the paths of samples.

        Args:
            samples: of the training thread.
            start_ns: start of the process.
            ordinary: time of ordinary steps, a union.
            work: time of training in steps, a union.
        """
        tree = CallTree.build(samples.stacks)
        since_ns = np.append(start_ns, samples.t_ns[:-1])[: len(samples.t_ns)]
        inside = intervals.contains(ordinary, samples.t_ns)
        if inside.sum() >= MIN_ORDINARY_SAMPLES:
            counts = np.bincount(samples.stack[inside], minlength=len(samples.stacks))
            sums = tree.add_up(counts.astype(np.float64))
            is_ordinary = sums >= max(1.0, MIN_ORDINARY_RATIO * inside.sum())
        else:
            is_ordinary = _find_loop(samples, tree, work)
        return cls(samples, np.minimum(since_ns, samples.t_ns), tree, is_ordinary)

    def find_imports(self) -> Intervals:
        """Find the time in which modules are imported."""
        is_importing = np.array(
            [self._find_import(leaf) is not None for leaf in self.tree.leaf], dtype=np.bool_
        )
        return self._select(is_importing[self.samples.stack])

    def find_unusual(self, gaps: Intervals) -> Intervals:
        """Find the time of activities that ordinary steps do not have, in some gaps."""
        is_unusual = np.array(
            [leaf >= 0 and self._first_unusual(leaf) is not None for leaf in self.tree.leaf],
            dtype=np.bool_,
        )[self.samples.stack]
        inside = intervals.contains(gaps, self.samples.t_ns)
        unusual = intervals.union(self._select(is_unusual & inside))
        return intervals.subtract(unusual, intervals.subtract(unusual, gaps))

    def ends_in_loop(self, after_ns: int) -> bool:
        """Return True if the last sample is an ordinary one of steps; also without a sample after a
        time."""
        if not len(self.samples.t_ns) or self.samples.t_ns[-1] < after_ns:
            return True
        return self._first_unusual(self.tree.leaf[int(self.samples.stack[-1])]) is None

    def _select(self, mask: NDArray[np.bool_]) -> Intervals:
        return Intervals(self.start_ns[mask], self.samples.t_ns[mask])

    def _find_import(self, leaf: int) -> tuple[int, int] | None:
        """Find the outermost and the innermost import of a stack that imports; else None."""
        path = self.tree.path(leaf)
        imports = [i for i, node in enumerate(path) if is_import(self.tree.frames[node])]
        if not imports:
            return None
        below = (self.tree.frames[node] for node in path[imports[-1] + 1 :])
        if any(not frame.library and frame.function != _TOP_LEVEL for frame in below):
            return None
        return path[imports[0]], path[imports[-1]]

    def _first_unusual(self, leaf: int) -> int | None:
        """Find the outermost node of a path that ordinary steps do not have."""
        return next((node for node in self.tree.path(leaf) if not self.is_ordinary[node]), None)

    def find_around(
        self, span: tuple[int, int], words: re.Pattern[str], *, is_long: bool
    ) -> int | None:
        """Find the call around a span, below the training loop; None if there is none.

        Args:
            span: start and end.
            words: pattern of the names of functions that do the same as the span.
            is_long: True for a span of several calls, which samples tell apart.
        """
        t_ns, leaf = self.samples.t_ns, self.tree.leaf
        first, stop = np.searchsorted(t_ns, [span[0] - ENTRY_NS, span[1]]).tolist()
        if first < stop:
            # The samples before that of a short span may be of other calls.
            inside = self.samples.stack[first if is_long else stop - 1 : stop]
            return self._choose_call(
                self.tree.find_common([leaf[s] for s in np.unique(inside)]), words
            )
        around = [leaf[s] for s in self.samples.stack[max(0, first - 1) : stop + 1]]
        call = self._choose_call(self.tree.find_common(around), words)
        if call is not None:
            return call
        calls = (self._choose_call(node, words) for node in around)
        named = (call for call in calls if call is not None and self._is_named(call, words))
        return next(named, None)

    def _is_named(self, node: int, words: re.Pattern[str]) -> bool:
        return bool(words.search(self.tree.frames[node].bare_function.lower()))

    def _choose_call(self, leaf: int, words: re.Pattern[str]) -> int | None:
        frames = self.tree.frames
        calls = [node for node in self.tree.path(leaf) if not self.is_ordinary[node]]
        modules = (i for i, node in enumerate(calls) if frames[node].file.endswith(_MODULE_CALL))
        calls = calls[: next(modules, len(calls))]
        users = [node for node in calls if not frames[node].library]
        named = [node for node in users or calls if self._is_named(node, words)]
        return next(iter(named or users[-1:] or calls[-1:]), None)

    def find_extent(self, node: int, span: tuple[int, int], limits: tuple[int, int]) -> Intervals:
        """Find the time around a span in which a call ran, with the span.

        Args:
            node: the call.
            span: start and end of the span.
            limits: times between which the call ran.
        """
        t_ns = self.samples.t_ns
        low, high = np.searchsorted(t_ns, limits).tolist()
        outside = low + np.flatnonzero(~self.contain(node)[self.samples.stack[low:high]])
        at = max(low, int(np.searchsorted(t_ns, span[1])) - 1)
        # A sample just before the span may be of the call, or of another one before it.
        before = outside[(outside < at) | (t_ns[outside] <= span[0])]
        after = outside[(outside > at) & (t_ns[outside] > span[0])]
        first = int(before[-1]) + 1 if len(before) else low
        stop = int(after[0]) if len(after) else high
        start, end = span
        if first < stop:
            start = min(start, max(limits[0], int(self.start_ns[first])))
            end = max(end, int(t_ns[stop - 1]))
        return Intervals(*(np.array([time], dtype=np.int64) for time in (start, end)))

    def contain(self, node: int) -> NDArray[np.bool_]:
        """Mask the stacks that contain a call."""
        if node not in self._stacks:
            is_below = np.zeros(len(self.tree.frames) + 1, dtype=np.bool_)
            is_below[node] = True
            for child in range(node + 1, len(self.tree.frames)):
                is_below[child] = is_below[self.tree.parent[child]]
            self._stacks[node] = is_below[self.tree.leaf]
        return self._stacks[node]


def _find_loop(samples: StackSamples, tree: CallTree, work: Intervals) -> NDArray[np.bool_]:
    """Mask the nodes that a sample before and the next one after some training share."""
    is_ordinary = np.zeros(len(tree.frames), dtype=np.bool_)
    before = np.unique(np.searchsorted(samples.t_ns, work.start)) - 1
    before = before[(before >= 0) & (before < len(samples.t_ns) - 1)]
    pairs = np.unique(np.stack([samples.stack[before], samples.stack[before + 1]], 1), axis=0)
    for pair in pairs.tolist():
        common = tree.find_common([tree.leaf[code] for code in pair])
        is_ordinary[tree.path(common)] = True
    return is_ordinary


class Surroundings(NamedTuple):
    """Time of the calls around evaluation and checkpoints."""

    checkpoints: Intervals
    evaluation: Intervals


def find_surroundings(
    activities: SampledActivities, saves: Spans, evaluation: Intervals, work: Intervals
) -> Surroundings:
    """Find the calls around evaluation and checkpoints.

    Args:
        activities: of the training thread.
        saves: saves and loads of the thread.
        evaluation: a union.
        work: time of training in steps, a union.
    """
    samples = activities.samples
    if not len(samples.t_ns):
        return Surroundings(EMPTY, EMPTY)
    bounds = np.append(activities.start_ns[0], work.end)
    limits = np.append(work.start, samples.t_ns[-1] + 1)

    def find_limits(start: int, end: int) -> tuple[int, int]:
        """Find the end of the training before a span, and its start after it."""
        before = int(bounds[np.searchsorted(work.end, start, side="right")])
        return before, int(limits[np.searchsorted(work.start, end)])

    checkpoints, evaluated = [EMPTY], [EMPTY]
    is_load = saves.is_kind("checkpoint_load")
    for row, span in enumerate(zip(saves.start.tolist(), saves.end.tolist(), strict=True)):
        node = activities.find_around(span, _SAVES, is_long=False)
        if node is None:
            continue
        extent = activities.find_extent(node, span, find_limits(*span))
        length_ns = extent.total_ns
        is_named = _SAVES.search(activities.tree.frames[node].bare_function.lower())
        is_small = span[1] - span[0] < MIN_LOADING_RATIO * length_ns
        if is_load[row] and is_small and not is_named:
            continue
        if not intervals.overlap(extent, evaluation).any():
            checkpoints.append(extent)
    saved = intervals.union(saves.intervals)
    for span in zip(evaluation.start.tolist(), evaluation.end.tolist(), strict=True):
        node = activities.find_around(span, _EVALUATES, is_long=True)
        if node is not None:
            evaluated.append(activities.find_extent(node, span, find_limits(*span)))
    return Surroundings(
        intervals.unite(*checkpoints), intervals.subtract(intervals.unite(*evaluated), saved)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFunction:
    """Function with time of one class, or a package that is imported."""

    function: str
    """Name, or that of the package."""
    file: str
    line: int
    """Line that ran in it; 0 if only those of functions that it called are known."""
    text: str
    """Text of the line or call; empty if unknown."""
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
        Functions by class, the longest first. Time of pieces without a sample is of none.
    """
    stack, line, code, time_ns = _weigh(activities.samples, edges, classes)
    tree, samples = activities.tree, activities.samples
    by_stack = np.zeros((len(samples.stacks), max(1, int(code.max(initial=0)) + 1)))
    np.add.at(by_stack, (stack, code), time_ns)
    by_node = tree.add_up(by_stack)
    totals = by_node.sum(axis=1, keepdims=True)
    is_pure = by_node >= MIN_PURE_RATIO * np.maximum(totals, 1)
    rows: dict[int, dict[tuple[str, str, int, str, bool], list[int]]]
    rows = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    keys = np.stack([code, stack, line], axis=1).astype(np.int64)
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    sums = np.zeros(len(unique), dtype=np.int64)
    np.add.at(sums, group.ravel(), time_ns)
    lines = _find_pure_lines(tree, unique, sums)
    for (number, stack_code, user_line), total_ns in zip(
        unique.tolist(), sums.tolist(), strict=True
    ):
        leaf = tree.leaf[stack_code]
        if leaf < 0:
            continue
        text = samples.running_text(stack_code, user_line)
        if number == importing:
            packages = _list_packages(tree, leaf, text)
            for package in dict.fromkeys(packages):
                rows[number][package][1] += total_ns
            rows[number][packages[-1]][0] += total_ns
            continue
        is_own = (number, leaf_user(tree, leaf), user_line) in lines
        key = _name_function(tree, leaf, is_pure[:, number], user_line, text, is_own=is_own)
        for column in range(2):
            rows[number][key][column] += total_ns
    return {
        number: [
            ClassFunction(
                function=function,
                file=file,
                line=row_line,
                text=row_text,
                is_user=is_user,
                time_ns=time,
                total_ns=total,
            )
            for (function, file, row_line, row_text, is_user), (time, total) in sorted(
                functions.items(), key=lambda item: (-item[1][1], item[0])
            )
        ]
        for number, functions in rows.items()
    }


def add_functions(
    tables: Iterable[dict[int, list[ClassFunction]]],
) -> dict[int, list[ClassFunction]]:
    """Add up the functions of several processes by class."""
    sums: dict[int, dict[ClassFunction, list[int]]] = defaultdict(
        lambda: defaultdict(lambda: [0, 0])
    )
    for table in tables:
        for number, functions in table.items():
            for function in functions:
                times = sums[number][replace(function, time_ns=0, total_ns=0)]
                times[0] += function.time_ns
                times[1] += function.total_ns
    return {
        number: sorted(
            (replace(key, time_ns=time, total_ns=total) for key, (time, total) in rows.items()),
            key=lambda function: (-function.total_ns, function.function, function.line),
        )
        for number, rows in sums.items()
    }


def _weigh(
    samples: StackSamples, edges: Int, classes: NDArray[np.int8]
) -> tuple[Int, Int, Int, Int]:
    """Divide the time of pieces over the samples inside each; the last one has the rest of it.

    Returns:
        Stack, line, class and time of each part.
    """
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
    return samples.stack[row], samples.user_line[row], classes[piece].astype(np.int64), end - start


def leaf_user(tree: CallTree, leaf: int) -> int:
    """Find the innermost node of user code on the path of a leaf; -1 for none."""
    while leaf >= 0 and tree.frames[leaf].library:
        leaf = tree.parent[leaf]
    return leaf


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
        times[leaf_user(tree, tree.leaf[stack]), line][number] += time
    return {
        (number, node, line)
        for (node, line), by_class in times.items()
        for number, time in by_class.items()
        if node >= 0 and line > 0 and time >= MIN_PURE_RATIO * sum(by_class.values())
    }


Row = tuple[str, str, int, str, bool]
"""Function, file, line, text, and if it is the user's."""


def _name_function(
    tree: CallTree, leaf: int, is_pure: NDArray[np.bool_], line: int, text: str, *, is_own: bool
) -> Row:
    """Name what a stack runs: the outermost function of user code of its class only; or else the
    line of user code, if that is; or else the outermost function of a library that is."""
    path, innermost = tree.path(leaf), leaf_user(tree, leaf)
    pure = [node for node in path if is_pure[node] and not is_import(tree.frames[node])]
    node = next((n for n in pure if _is_function(tree.frames[n])), None)
    if node is None and not is_own:
        node = next((n for n in pure if tree.frames[n].library), None)
    if node is None:
        node = innermost if innermost >= 0 else leaf
    frame = tree.frames[node]
    has_line = node == innermost
    return (
        frame.function,
        frame.file,
        line if has_line else 0,
        text if has_line else "",
        not frame.library,
    )


def _is_function(frame: code_stages.Frame) -> bool:
    return not frame.library and frame.function != _TOP_LEVEL


_IMPORTS = re.compile(r"^\s*(?:import|from)\s+([\w.]+)")


def _list_packages(tree: CallTree, leaf: int, text: str) -> list[Row]:
    """List the packages that a stack is importing, outermost first; at least one."""
    names: list[Row] = []
    has_import = False
    for node in tree.path(leaf):
        frame = tree.frames[node]
        if is_import(frame):
            has_import = True
        elif has_import and frame.function == _TOP_LEVEL:
            names.append((frame.library or frame.module, "", 0, "", not frame.library))
    if names:
        return names
    match = _IMPORTS.search(text)
    return [(match[1].partition(".")[0] if match else "import", "", 0, "", False)]
