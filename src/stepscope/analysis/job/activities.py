"""Activities of a process outside of its steps, from samples of the stack of its training thread.

A sample stands for the time since the previous one, less half of the sampling period, which that
one has: the stack changes somewhere in between, and a C function that does not release the
interpreter delays the sample that shows it. Its stack is a path in the tree of calls. Paths
that ordinary steps have, too, lead to the training loop, such as `<module>`, `main`, `fit`. What a
stack has below them is the activity.

    imports        the stack is in the import machinery, with no function of user code below it
                   other than the top level of a module
    surroundings   calls around an evaluation or a checkpoint: the function of the user, or else of
                   a library, which all samples inside it have in common; and from there outwards
                   the outermost function whose name says the same
    unusual        any activity that ordinary steps do not have
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline import code_stages
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.steps.spans import Spans
from stepscope.intervals import EMPTY, Int, Intervals

MAX_LAG_NS = 25_000_000
"""Half of the sampling period."""
MIN_ORDINARY_RATIO = 0.02
"""A path is ordinary if it has this share of the samples in ordinary steps."""
MIN_ORDINARY_SAMPLES = 5
"""With fewer samples in steps, paths are ordinary that samples before and after a step share."""
ENTRY_NS = 2_000_000
"""A sample that is taken at the start of a span may be earlier by this much."""
MIN_LOADING_RATIO = 0.5
"""The function around a load counts as loading if the load takes this share of it."""
_IMPORT_FILE = re.compile(r"^<frozen importlib|/importlib/")
_MODULE_CALL = "torch/nn/modules/module.py"
TOP_LEVEL = "<module>"
_INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"})
_EVALUATES = re.compile(r"^_?(run_)?(eval|valid|test|predict|infer|score)")
_SAVES = re.compile(r"^_?(save|load|restore|resume|persist)|checkpoint|ckpt|snapshot|pretrained")


class CallTree(msgspec.Struct):
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
                if not frame.function or frame.bare_function in _INLINED:
                    continue
                if _is_generated(frame) or _is_wrapper(frame):
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

    def find_user(self, leaf: int) -> int:
        """Find the innermost node of user code on the path of a leaf; -1 for none."""
        while leaf >= 0 and self.frames[leaf].library:
            leaf = self.parent[leaf]
        return leaf

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


def _is_generated(frame: code_stages.Frame) -> bool:
    """Return True for code that was made from a string, as methods of dataclasses are."""
    return frame.file.startswith("<") and not is_import(frame)


def _is_wrapper(frame: code_stages.Frame) -> bool:
    """Return True for a function inside another one of a library, as its decorators make them: the
    function that it calls says what happens."""
    return bool(frame.library) and "<locals>." in frame.function


def is_import(frame: code_stages.Frame) -> bool:
    """Return True for a frame of the import machinery."""
    return bool(_IMPORT_FILE.search(frame.file))


class SampledActivities(msgspec.Struct, frozen=True):
    """Samples of one thread with their paths."""

    samples: StackSamples
    start_ns: Int
    end_ns: Int
    """Start and end of the time that each sample stands for."""
    tree: CallTree
    is_ordinary: NDArray[np.bool_]
    """Mask of the nodes whose paths ordinary steps have."""
    _stacks: dict[int, NDArray[np.bool_]] = msgspec.field(default_factory=dict)

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
        tree, t_ns = CallTree.build(samples.stacks), samples.t_ns
        cuts_ns = t_ns[:-1] + np.minimum(np.diff(t_ns) // 2, MAX_LAG_NS)
        starts_ns = np.append(min(start_ns, t_ns[0]), cuts_ns) if len(t_ns) else t_ns
        ends_ns = np.append(cuts_ns, t_ns[-1:])
        inside = intervals.contains(ordinary, samples.t_ns)
        if inside.sum() >= MIN_ORDINARY_SAMPLES:
            counts = np.bincount(samples.stack[inside], minlength=len(samples.stacks))
            sums = tree.add_up(counts.astype(np.float64))
            is_ordinary = sums >= max(1.0, MIN_ORDINARY_RATIO * inside.sum())
        else:
            is_ordinary = _find_loop(samples, tree, work)
        return cls(samples, starts_ns, ends_ns, tree, is_ordinary)

    def find_imports(self) -> Intervals:
        """Find the time in which modules are imported."""
        is_importing = np.array(
            [self._find_import(leaf) is not None for leaf in self.tree.leaf], dtype=np.bool_
        )
        return self._select(is_importing[self.samples.stack])

    def find_unusual(self, gaps: Intervals) -> Intervals:
        """Find the time of activities that ordinary steps do not have, in some gaps.

        A single sample in a library does not show one: ordinary steps have many short calls.
        """
        nodes = [self._first_unusual(leaf) for leaf in self.tree.leaf]
        has_user = [
            node is not None and self.tree.find_user(leaf) >= node
            for node, leaf in zip(nodes, self.tree.leaf, strict=True)
        ]
        node = np.array([-1 if one is None else one for one in nodes])[self.samples.stack]
        is_same = np.concatenate([[False], node[1:] == node[:-1], [False]])
        is_sure = (
            np.array(has_user, dtype=np.bool_)[self.samples.stack] | is_same[1:] | is_same[:-1]
        )
        inside = intervals.contains(gaps, self.samples.t_ns)
        unusual = intervals.union(self._select((node >= 0) & is_sure & inside))
        return intervals.subtract(unusual, intervals.subtract(unusual, gaps))

    def ends_in_loop(self, after_ns: int) -> bool:
        """Return True if the last sample is an ordinary one of steps; also without a sample after a
        time."""
        if not len(self.samples.t_ns) or self.samples.t_ns[-1] < after_ns:
            return True
        return self._first_unusual(self.tree.leaf[int(self.samples.stack[-1])]) is None

    def find_last_change(self) -> int:
        """Find the time since which the thread runs one line of user code; the end of time without
        samples."""
        users = np.array([self.tree.find_user(leaf) for leaf in self.tree.leaf], dtype=np.int64)
        node, line = users[self.samples.stack], self.samples.user_line
        changes = np.flatnonzero((node[1:] != node[:-1]) | (line[1:] != line[:-1]))
        start_ns = self.start_ns[changes[-1] + 1 :] if len(changes) else self.start_ns
        return int(start_ns[0]) if len(start_ns) else np.iinfo(np.int64).max

    def _select(self, mask: NDArray[np.bool_]) -> Intervals:
        return Intervals(self.start_ns[mask], self.end_ns[mask])

    def _find_import(self, leaf: int) -> tuple[int, int] | None:
        """Find the outermost and the innermost import of a stack that imports; else None."""
        path = self.tree.path(leaf)
        imports = [i for i, node in enumerate(path) if is_import(self.tree.frames[node])]
        if not imports:
            return None
        below = (self.tree.frames[node] for node in path[imports[-1] + 1 :])
        if any(not frame.library and frame.function != TOP_LEVEL for frame in below):
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
        return next((n for n in calls if n is not None and self._is_named(n, words)), None)

    def _is_named(self, node: int, words: re.Pattern[str]) -> bool:
        return bool(words.search(self.tree.frames[node].bare_function.lower()))

    def _choose_call(self, leaf: int, words: re.Pattern[str]) -> int | None:
        frames = self.tree.frames
        calls = [node for node in self.tree.path(leaf) if not self.is_ordinary[node]]
        modules = (i for i, node in enumerate(calls) if frames[node].file.endswith(_MODULE_CALL))
        calls = calls[: next(modules, len(calls))]
        users = [node for node in calls if not frames[node].library]
        alike = [node for node in users or calls if self._is_named(node, words)]
        return next(iter(alike or users[-1:] or calls[-1:]), None)

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
            end = max(end, min(limits[1], int(self.end_ns[stop - 1])))
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
    activities: SampledActivities,
    saves: Spans,
    evaluation: Intervals,
    work: Intervals,
    *,
    last_ns: int,
) -> Surroundings:
    """Find the calls around evaluation and checkpoints.

    Args:
        activities: of the training thread.
        saves: saves and loads of the thread.
        evaluation: a union.
        work: time of training in steps, a union.
        last_ns: end of the last step. A function that runs only afterwards, such as one that
            uploads the model, counts with its save as one that loads does: by its name, or if the
            save takes half of it.
    """
    samples = activities.samples
    if not len(samples.t_ns):
        return Surroundings(EMPTY, EMPTY)

    def find_limits(busy: Intervals, start: int, end: int) -> tuple[int, int]:
        """Find the end of other work before a span, and its start after it."""
        before, after = (
            np.searchsorted(busy.end, start, side="right"),
            np.searchsorted(busy.start, end),
        )
        bounds = np.append(activities.start_ns[0], busy.end)
        limits = np.append(busy.start, samples.t_ns[-1] + 1)
        return int(bounds[before]), int(limits[after])

    unsaved = intervals.unite(work, evaluation)
    checkpoints, evaluated, savers = [EMPTY], [EMPTY], set[code_stages.Frame]()
    is_load = saves.is_kind("checkpoint_load")
    for row, span in enumerate(zip(saves.start.tolist(), saves.end.tolist(), strict=True)):
        node = activities.find_around(span, _SAVES, is_long=False)
        if node is None:
            continue
        extent = activities.find_extent(node, span, find_limits(unsaved, *span))
        frame = activities.tree.frames[node]
        is_late = span[0] >= last_ns and frame not in savers
        is_named = _SAVES.search(frame.bare_function.lower())
        is_small = span[1] - span[0] < MIN_LOADING_RATIO * extent.total_ns
        if (is_load[row] or is_late) and is_small and not is_named:
            continue
        if not is_load[row]:
            savers.add(frame)
        if not intervals.overlap(extent, evaluation).any():
            checkpoints.append(extent)
    saved = intervals.union(saves.intervals)
    for span in zip(evaluation.start.tolist(), evaluation.end.tolist(), strict=True):
        node = activities.find_around(span, _EVALUATES, is_long=True)
        if node is not None:
            evaluated.append(activities.find_extent(node, span, find_limits(work, *span)))
    return Surroundings(
        intervals.unite(*checkpoints), intervals.subtract(intervals.unite(*evaluated), saved)
    )
