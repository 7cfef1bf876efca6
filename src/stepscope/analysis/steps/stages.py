"""Stages of a process: several trainings one after the other, such as pre-training and fine-tuning,
the folds of a cross-validation, or the trials of a sweep.

A stage is told by what is updated. Every update of an optimizer belongs to a *subject*, the
optimizer. Its identity is an address, at which another one may be later: facts of the process tell
when it is a new one. Without them (older recordings, other frameworks) the classes of the modules
do that it is used with: classes that were trained for one update belong together, so that an
optimizer with more and more modules is one subject, and only modules of altogether different
classes are another one. The extent of a subject goes from its first step to its last. Subjects
whose extents overlap are one stage: the optimizers of a GAN, in whatever rhythm they take turns.

    step       0   1   2   3   4   5   6   7   8
    updates    A   A   AB  A   B   C   C   D   C          A, B: one stage; C, D: another one

So an epoch, an evaluation, a new DataLoader, another learning rate or other parameters of the same
optimizer begin no stage. A process without optimizers has modules as subjects, by their addresses:
those that it trains, or in a job that only predicts all. A model of XGBoost is a subject, too.

A script that makes its optimizer in every few steps has no stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.steps.phases import FETCH_KINDS, PhaseSpans
from stepscope.analysis.steps.spans import (
    FLAG_NEW_MODEL,
    FLAG_NO_GRAD,
    FLAG_NO_RESULT,
    FLAG_SIZED,
    SIZE_BITS,
    Spans,
)
from stepscope.analysis.steps.steps import PREDICTION_KINDS, Steps
from stepscope.intervals import Int, Mask, contains

MIN_MEAN_STEPS = 5
"""Stages with fewer steps on average are none: the script makes its optimizer again and again."""
MAX_NAMES = 2
"""Classes that a title lists."""
MIN_NAMED_RATIO = 0.05
"""Classes with a smaller share are not in a title."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps of one training of a process."""

    start_ns: int
    """Start of its first step; the work between two stages belongs to the later one."""
    end_ns: int
    """End of its last step."""
    first: int
    """Index of its first step."""
    last: int
    """Index of its last step."""
    model: str
    """Classes of the modules that are called for most of the time; empty if unknown."""
    optimizer: str
    """Classes of its optimizers; empty without any."""
    dataset: str
    """Class of the data set that most batches are of; empty without a loader."""

    @property
    def step_count(self) -> int:
        """Number of its steps."""
        return self.last - self.first + 1

    @property
    def title(self) -> str:
        """Names of what it trains, such as `Bert with AdamW on Texts`."""
        title = self.model or "model"
        title += f" with {self.optimizer}" if self.optimizer else ""
        return title + (f" on {self.dataset}" if self.dataset else "")


def find_stages(
    spans: Spans, steps: Steps, first_uses: Sequence[tuple[int, int]] = ()
) -> list[Stage]:
    """Find the stages of a process in the order of time; they have all of its steps.

    Args:
        spans: spans of the process.
        steps: steps of the process, all of them.
        first_uses: identity of each optimizer and the time of its first use, where recorded.

    Returns:
        One stage if there is a single training, none without steps.
    """
    if not len(steps):
        return []
    work = _Work.of(spans, steps)
    extents = _join_extents(_find_extents(work, first_uses))
    if len(extents) * MIN_MEAN_STEPS > len(steps):
        extents = extents[:1]
    borders = [0, *(first for first, _ in extents[1:]), len(steps)]
    return [_describe(work, start, end - 1) for start, end in pairwise(borders)]


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the training thread outside evaluation that is done in steps.

    Masks of its spans, because copies of those of a long run take ten times their memory.
    """

    steps: Steps
    spans: Spans
    is_inside: Mask
    """Mask of the spans that are done in steps."""
    is_update: Mask
    """Mask of the outermost optimizer steps."""
    is_pass: Mask
    """Mask of the outermost forward passes that are trained on; all where nothing trains."""

    @classmethod
    def of(cls, spans: Spans, steps: Steps) -> _Work:
        phases = PhaseSpans.of_thread(spans, steps.thread)
        spans = phases.spans
        inside = (spans.start >= steps.start[0]) & (spans.start < steps.end[-1])
        inside &= ~contains(steps.evaluation, spans.start)
        passes = inside & phases.is_outermost(*PREDICTION_KINDS)
        if not steps.is_inference:
            passes &= ~spans.has_flag(FLAG_NO_GRAD)
        updates = inside & phases.is_outermost("optimizer") & ~spans.unfinished
        return cls(steps=steps, spans=spans, is_inside=inside, is_update=updates, is_pass=passes)

    def find_step(self, times: Int) -> Int:
        """Find the index of the step in which each time is, the end inclusive."""
        index = np.searchsorted(self.steps.end, times, side="left")
        return np.minimum(index, len(self.steps) - 1).astype(np.int64)


def _find_extents(work: _Work, first_uses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Find the first and the last step of each subject."""
    is_update = work.is_update.any()
    rows = work.spans.take(work.is_update if is_update else work.is_pass)
    times = rows.end if is_update else rows.start
    number = _number_subjects(
        len(rows),
        _list_update_subjects(work, rows, first_uses) if is_update else _list_modules(rows),
    )
    if len(number) and (number == number[0]).all():
        first_step, last_step = work.find_step(times[[0, -1]]).tolist()
        return [(first_step, last_step)]
    step = work.find_step(times)
    _, first = np.unique(number, return_index=True)
    _, before_end = np.unique(number[::-1], return_index=True)
    last = len(number) - 1 - before_end
    order = np.argsort(first)
    return list(zip(step[first[order]].tolist(), step[last[order]].tolist(), strict=True))


def _number_subjects(count: int, columns: Iterable[NDArray[Any]]) -> Int:
    """Number the distinct rows of columns; any numbers, equal for equal rows."""
    number = np.zeros(count, dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, code = np.unique(column, return_inverse=True)
            _, number = np.unique(number * len(values) + code, return_inverse=True)
        del column  # before the next one is made
    return number


def _list_update_subjects(
    work: _Work, updates: Spans, first_uses: Sequence[tuple[int, int]]
) -> Iterator[NDArray[Any]]:
    """Yield columns that tell the subjects of the updates: optimizer, and number of its model, or
    group of classes where the optimizers of an address cannot be told apart."""
    yield updates.name
    yield updates.value
    if any(group.flags & FLAG_NEW_MODEL for group in updates.present):
        yield np.cumsum(updates.has_flag(FLAG_NEW_MODEL))
    yield count_first_uses(updates, first_uses) if first_uses else _list_groups(work, updates)


def count_first_uses(updates: Spans, first_uses: Sequence[tuple[int, int]]) -> Int:
    """Count the optimizers of the identity of each update that were used up to it."""
    count = np.zeros(len(updates), dtype=np.int64)
    for identity, time_ns in first_uses:
        count += (updates.value == identity) & (updates.end > time_ns)
    return count


def _list_groups(work: _Work, updates: Spans) -> NDArray[np.int32]:
    """List the group of the classes that were trained for each update, -1 without any."""
    start, spans = work.spans.start[work.is_pass], work.spans
    none = np.broadcast_to(np.uint8(0), len(start))
    passes = Spans(start=start, length=none, group=spans.group[work.is_pass], groups=spans.groups)
    group = np.full(len(updates) + 1, -1, dtype=np.int32)  # passes may follow the last update
    after = np.searchsorted(updates.end, start, side="right")
    if len({present.name for present in passes.present}) == 1:
        group[after] = 0
        return group[:-1]
    class_count = len(passes.names)
    keys = np.sort(after * class_count + passes.name, kind="stable")  # almost in order
    row, name = np.divmod(keys[np.diff(keys, prepend=-1) > 0], class_count)
    is_same_row = row[1:] == row[:-1]
    together = np.unique(np.stack([name[:-1], name[1:]], axis=1)[is_same_row], axis=0)
    groups = _group_classes([*({code} for code in np.unique(name)), *map(set, together.tolist())])
    numbers = np.array([groups.get(code, -1) for code in range(class_count)], dtype=np.int64)
    group[row] = numbers[name]
    return group[:-1]


def _group_classes(sets: Iterable[set[int]]) -> dict[int, int]:
    """Group the classes of modules that were trained together; a group is named by one of them."""
    groups: dict[int, int] = {}

    def find(name: int) -> int:
        while groups.setdefault(name, name) != name:
            name = groups[name]
        return name

    for names in sets:
        root = find(min(names))
        for name in names:
            groups[find(name)] = root
    return {name: find(name) for name in groups}


def _list_modules(passes: Spans) -> Iterator[NDArray[Any]]:
    """Yield columns that tell the modules of forward passes, by class and address."""
    address = np.where(passes.has_flag(FLAG_SIZED), passes.value >> SIZE_BITS, passes.value)
    yield passes.name
    yield np.where(passes.is_kind("forward"), address, 0)


def _join_extents(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the extents that overlap.

    Where no fetch separates two trainings, the last update of the one and the first of the other
    are one step, because they may be a round. That step alone joins none, and belongs to the first.
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(extents):
        border = joined[-1][1] if joined else -1
        if last <= border or first < border:
            joined[-1] = joined[-1][0], max(border, last)
        else:
            joined.append((max(first, border + 1), last))
    return joined


def _describe(work: _Work, first: int, last: int) -> Stage:
    start_ns, end_ns = int(work.steps.start[first]), int(work.steps.end[last])
    rows = slice(*np.searchsorted(work.spans.start, [start_ns, end_ns]).tolist())
    spans, inside = work.spans.slice(rows.start, rows.stop), work.is_inside[rows]
    # Optimizer steps inside those of a GradScaler are listed, too.
    optimizers = _list_names(spans, inside & spans.is_kind("optimizer"))
    waits = spans.is_kind(*FETCH_KINDS[:1]) & ~spans.has_flag(FLAG_NO_RESULT)
    datasets = _list_names(spans, inside & waits)[:1]
    passes = work.is_pass[rows]
    models = _list_names(spans, passes, spans.length[passes])
    return Stage(
        start_ns=start_ns,
        end_ns=end_ns,
        first=first,
        last=last,
        model=_join_names(models),
        optimizer=_join_names([name for name in optimizers if name != "GradScaler"] or optimizers),
        dataset=datasets[0].partition("#")[0] if datasets else "",
    )


def _list_names(spans: Spans, mask: Mask, weights: NDArray[Any] | None = None) -> list[str]:
    """List the names of the spans of a mask by the sum of their weights, or their number, the
    largest first."""
    by_group = np.bincount(spans.group[mask], weights=weights, minlength=len(spans.groups))
    sums = np.zeros(len(spans.names))
    np.add.at(sums, [spans.names.index(group.name) for group in spans.groups], by_group)
    order = np.argsort(-sums, kind="stable").tolist()
    limit = MIN_NAMED_RATIO * sums.sum()
    return [spans.names[code] for code in order if sums[code] > limit and spans.names[code]]


def _join_names(names: list[str]) -> str:
    listed = names[:MAX_NAMES]
    return ", ".join(listed) + (", …" if len(names) > len(listed) else "")
