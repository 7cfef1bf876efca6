"""Named ranges: how often each occurs and how its durations are distributed.

Ranges on the host and their shadows on a device are told apart: on the host a range lasts as long
as the code inside it, on the device from the first to the last piece of work launched there.

    histogram   buckets of equal width from a multiple of the width up to the largest
                duration; a duration d falls into bucket floor(d / width)
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.kernel_classes import rows_where
from stepscope.analysis.statistics import Distribution, distribution
from stepscope.intervals import Int

ANNOTATION_COLUMNS = ("name", "on_device", "duration_ns")
"""What is needed of the table `annotations`."""
BUCKETS = 20
"""About how many buckets a histogram has when no width is asked for."""
MOST_BUCKETS = 1000
_ROUND = (1, 2, 5, 10)
_NUMBER = re.compile(r"#\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRow:
    """Ranges of one name, on the host or on devices."""

    name: str
    """Ranges that differ only in a number after a `#` are one row, named `...#*`."""
    on_device: bool
    count: int
    total_ns: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Durations of the ranges of one name, on the host or on devices."""

    on_device: bool
    total_ns: int
    distribution: Distribution
    bucket_ns: int
    start_ns: int
    """Where the first bucket begins."""
    counts: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationTable:
    """Annotations, those with most time first."""

    rows: list[AnnotationRow]
    """The first `top`."""
    row_count: int


def annotation_table(annotations: Columns, *, top: int = 0) -> AnnotationTable:
    """Ranges by name.

    Args:
        annotations: `ANNOTATION_COLUMNS` of the table.
        top: only so many rows; 0 for all.
    """
    names: Strings = annotations["name"]
    texts: dict[str, int] = {}
    of_name = [texts.setdefault(_NUMBER.sub("#*", name or ""), len(texts)) for name in names.values]
    label = np.array([*of_name, -1], dtype=np.int64)[names.codes]
    duration: Int = annotations["duration_ns"]
    groups = group_rows(label, annotations["on_device"])
    totals, counts, longest = groups.sums(duration), groups.counts(), groups.maxima(duration)
    ordered = duration[np.lexsort((duration, groups.group))]
    starts = np.cumsum(counts) - counts
    p50, p95 = (_quantiles(ordered, starts, counts, share) for share in (0.5, 0.95))
    spelled = list(texts)
    return AnnotationTable(
        rows=[
            AnnotationRow(
                name=spelled[label[groups.first[g]]],
                on_device=bool(annotations["on_device"][groups.first[g]]),
                count=int(counts[g]),
                total_ns=int(totals[g]),
                mean_ns=int(totals[g]) / int(counts[g]),
                p50_ns=float(p50[g]),
                p95_ns=float(p95[g]),
                max_ns=int(longest[g]),
            )
            for g in np.argsort(-totals, kind="stable")[: top or None].tolist()
        ],
        row_count=len(groups),
    )


def _quantiles(ordered: Int, starts: Int, counts: Int, share: float) -> NDArray[np.float64]:
    """A quantile of each run of ordered values, interpolated linearly."""
    place = share * (counts - 1)
    below = np.floor(place).astype(np.int64)
    low = ordered[starts + below]
    high = ordered[starts + np.minimum(below + 1, counts - 1)]
    found: NDArray[np.float64] = low + (place - below) * (high - low)
    return found


def annotation_histograms(
    annotations: Columns, name: str, *, bucket_ns: int | None = None
) -> list[Histogram]:
    """Distribution of the durations of one annotation, on the host and on devices.

    Args:
        annotations: `ANNOTATION_COLUMNS` of the table.
        name: the name, or a pattern in the manner of a shell, such as `ProfilerStep#*`.
        bucket_ns: width of the buckets; None for a round one that makes about twenty.
    """
    chosen = rows_where(
        annotations["name"], lambda each: each == name or fnmatch.fnmatchcase(each, name)
    )
    found = []
    for on_device in (0, 1):
        duration = annotations["duration_ns"][chosen & (annotations["on_device"] == on_device)]
        summary = distribution(duration)
        if summary is not None:
            found.append(_histogram(duration, summary, bool(on_device), bucket_ns))
    return found


def _histogram(
    duration: Int, summary: Distribution, on_device: bool, bucket_ns: int | None
) -> Histogram:
    low, high = int(duration.min()), int(duration.max())
    width = bucket_ns or round_width(high - low)
    # A width that is too small for the range would make a list without end.
    width = max(width, -(-(high - low + 1) // MOST_BUCKETS))
    first = low // width
    return Histogram(
        on_device=on_device,
        total_ns=int(duration.sum()),
        distribution=summary,
        bucket_ns=width,
        start_ns=first * width,
        counts=np.bincount(duration // width - first).tolist(),
    )


def round_width(extent_ns: int) -> int:
    """A width of 1, 2 or 5 times a power of ten that cuts an extent into at most twenty."""
    wanted = max(1, -(-extent_ns // BUCKETS))
    power = int(10 ** (len(str(wanted)) - 1))
    return next(power * digit for digit in _ROUND if power * digit >= wanted)
