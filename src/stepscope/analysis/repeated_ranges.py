"""Steps of a trace that names none, from ranges that repeat.

An optimizer step ends a training step if a batch is fetched before the next one, or where no
fetches are recorded, so the steps are the times between the ends of such optimizer steps. Without
any, a step is the time from one start of a range to the next. The range is the one
that covers most of that time on its thread, and at least half of it; numbers in its name do not
count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepscope.analysis.kernel_classes import is_host_communication
from stepscope.analysis.trace_steps import HostSteps, is_data_loader
from stepscope.intervals import Intervals

MIN_RANGES = 3
"""Fewer ranges do not make two steps."""
MIN_COVERED_RATIO = 0.5
_OPTIMIZER = "Optimizer.step#"
_NUMBER = re.compile(r"\d+")
_COLLECTIVE = re.compile(r"nccl:|rccl:|c10d::|record_param_comms")


class NamedRange(NamedTuple):
    """One range on a thread of the host."""

    name: str
    track: int
    start: int
    end: int


class RepeatedSteps(NamedTuple):
    """Steps, and the name of the ranges that they come from; `*` stands for numbers."""

    steps: HostSteps
    name: str


def find_optimizer_steps(ranges: Sequence[NamedRange]) -> RepeatedSteps | None:
    """Find the steps between the ends of optimizer steps; None with fewer than `MIN_RANGES`.

    Of several optimizers, the one that steps first counts.

    Args:
        ranges: by start.
    """
    steps = [row for row in ranges if row.name.startswith(_OPTIMIZER)]
    if not steps:
        return None
    first = steps[0]
    outermost = _drop_nested(
        row for row in steps if (row.name, row.track) == (first.name, first.track)
    )
    fetches = [row.start for row in ranges if is_data_loader(row.name)]
    if fetches:
        # Several optimizers, or several updates with one batch, make one step.
        ended = [
            row
            for row, following in pairwise(outermost)
            if bisect_left(fetches, row.end) < bisect_left(fetches, following.start)
        ]
        outermost = ended + outermost[-1:]
    if len(outermost) < MIN_RANGES:
        return None
    return RepeatedSteps(_make_steps([row.end for row in outermost]), first.name)


def find_repeated_steps(ranges: Sequence[NamedRange]) -> RepeatedSteps | None:
    """Find the steps between the starts of a range that repeats; None without one.

    Args:
        ranges: by start.
    """
    groups: dict[tuple[int, str], list[NamedRange]] = defaultdict(list)
    for row in ranges:
        if not _is_part_of_step(row.name):
            groups[row.track, _NUMBER.sub("*", row.name)].append(row)
    best, best_ns = None, 0
    for (_, name), rows in groups.items():
        repeated = _drop_nested(rows)
        if len(repeated) < MIN_RANGES:
            continue
        covered_ns = sum(row.end - row.start for row in repeated[:-1])
        total_ns = repeated[-1].start - repeated[0].start
        if covered_ns > best_ns and covered_ns >= MIN_COVERED_RATIO * total_ns:
            steps = _make_steps([row.start for row in repeated])
            best, best_ns = RepeatedSteps(steps, name), covered_ns
    return best


def _is_part_of_step(name: str) -> bool:
    is_communication = is_host_communication(name) or _COLLECTIVE.match(name) is not None
    return is_communication or is_data_loader(name) or name.startswith("Optimizer.")


def _drop_nested(ranges: Iterable[NamedRange]) -> list[NamedRange]:
    """Drop ranges inside one before."""
    outermost: list[NamedRange] = []
    for row in ranges:
        if not outermost or row.start >= outermost[-1].end:
            outermost.append(row)
    return outermost


def _make_steps(borders: Sequence[int]) -> HostSteps:
    extents = np.array(list(pairwise(borders)), dtype=np.int64)
    return HostSteps(
        names=[str(number) for number in range(len(extents))],
        extent=Intervals(extents[:, 0].copy(), extents[:, 1].copy()),
    )
