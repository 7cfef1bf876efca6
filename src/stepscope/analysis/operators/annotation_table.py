"""Annotations (named ranges): counts and distributions of their durations.

Annotations on the host and their copies on a device are separate rows: on the host a range covers
the code inside it, on the device it extends from the first to the last kernel or copy launched
there.

    self        duration of a range minus those of the ranges directly inside it on its track, at
                least 0
    row         ranges of one name, and of names that differ only in a number at their end: after a
                `#`, or as a counter (`step_12`): at least ten numbers, and none occurs twice
    histogram   buckets of equal width from a multiple of the width up to the largest
                duration; a duration d falls into bucket floor(d / width)
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import Columns, Strings, group_rows
from stepscope.analysis.arrays.statistics import Statistics, summarize
from stepscope.analysis.kernel_classes import fold_number, match_rows

ANNOTATION_COLUMNS = ("name", "on_device", "track", "start_ns", "duration_ns")
"""Columns of the table `annotations` that are read here."""
BUCKETS = 20
"""Approximate bucket count of a histogram without a requested width."""
MAX_BUCKETS = 1000
_ROUND = (1, 2, 5, 10)
MIN_COUNTER_NAMES = 10
_COUNTER = re.compile(r"(?<=[_ :/-])\d+$")


class AnnotationGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations with one name, on the host or on devices."""

    name: str
    """Names that differ only in their number form one row, named `...#*` or `...*`."""
    on_device: bool
    count: int
    total_ns: int
    self_ns: int
    """Time of the ranges outside of those inside them."""
    mean_ns: float
    p50_ns: float
    p95_ns: float
    max_ns: int


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges that took at least `from_ns` and less than the next bucket's."""

    from_ns: int
    count: int


class AnnotationHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the ranges with the requested name."""

    on_device: bool
    total_ns: int
    duration_ns: Statistics | None
    bucket_ns: int
    """Width of the buckets."""
    buckets: list[Bucket]


class AnnotationTable(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations by descending total time."""

    rows: list[AnnotationGroup]
    """The first `top` rows."""
    row_count: int
    """Number of rows without that limit."""


def summarize_annotations(annotations: Columns, *, top: int = 0) -> AnnotationTable:
    """Summarize annotations by name.

    Args:
        annotations: `ANNOTATION_COLUMNS` of the table.
        top: row limit; 0 for all.
    """
    names: Strings = annotations["name"]
    label_codes: dict[str, int] = {}
    codes = [
        label_codes.setdefault(label, len(label_codes))
        for label in _label_names(names, annotations["on_device"])
    ]
    label = np.array([*codes, -1], dtype=np.int64)[names.codes]
    duration: intervals.Int = annotations["duration_ns"]
    groups = group_rows(label, annotations["on_device"])
    totals, counts, maxima = groups.sums(duration), groups.counts(), groups.maxima(duration)
    self_times = groups.sums(_measure_self(annotations))
    ordered = duration[np.lexsort((duration, groups.group))]
    starts = np.cumsum(counts) - counts
    p50, p95 = (_compute_quantiles(ordered, starts, counts, share) for share in (0.5, 0.95))
    labels = list(label_codes)
    return AnnotationTable(
        rows=[
            AnnotationGroup(
                name=labels[label[groups.first[g]]],
                on_device=bool(annotations["on_device"][groups.first[g]]),
                count=int(counts[g]),
                total_ns=int(totals[g]),
                self_ns=int(self_times[g]),
                mean_ns=int(totals[g]) / int(counts[g]),
                p50_ns=float(p50[g]),
                p95_ns=float(p95[g]),
                max_ns=int(maxima[g]),
            )
            for g in np.argsort(-totals, kind="stable")[: top or None].tolist()
        ],
        row_count=len(groups),
    )


def _measure_self(annotations: Columns) -> intervals.Int:
    """Subtract from the duration of each range those of the ranges directly inside it."""
    start, duration = annotations["start_ns"], annotations["duration_ns"]
    self_ns: intervals.Int = duration.copy()
    if not len(start):
        return self_ns
    # Tracks are shifted to follow each other, so that they are nested in one pass.
    _, track = np.unique(annotations["track"], return_inverse=True)
    first = int(start.min())
    shifted = start - first + track * (int((start + duration).max()) - first + 1)
    order = intervals.nesting_order(shifted, shifted + duration)
    shifted, duration = shifted[order], duration[order]
    parent = intervals.parents(shifted, shifted + duration)
    nested = parent >= 0
    np.subtract.at(self_ns, order[parent[nested]], duration[nested])
    return np.maximum(self_ns, 0)


def _label_names(names: Strings, on_device: NDArray[np.bool_]) -> list[str]:
    """Replace the number at the end of a name by `*` where it only counts."""
    labels = [fold_number(name or "") for name in names.values]
    counters = [_COUNTER.sub("*", label) for label in labels]
    calls = group_rows(names.codes, on_device)
    is_repeated = np.zeros(len(labels) + 1, dtype=np.bool_)
    is_repeated[names.codes[calls.first[calls.counts() > 1]]] = True
    repeated = {counters[code] for code in np.flatnonzero(is_repeated[:-1]).tolist()}
    sizes = Counter(counters)
    return [
        counter if sizes[counter] >= MIN_COUNTER_NAMES and counter not in repeated else label
        for label, counter in zip(labels, counters, strict=True)
    ]


def _compute_quantiles(
    ordered: intervals.Int, starts: intervals.Int, counts: intervals.Int, share: float
) -> NDArray[np.float64]:
    """Compute a quantile of each group of sorted values, interpolated linearly."""
    position = share * (counts - 1)
    below = np.floor(position).astype(np.int64)
    low = ordered[starts + below]
    high = ordered[starts + np.minimum(below + 1, counts - 1)]
    quantiles: NDArray[np.float64] = low + (position - below) * (high - low)
    return quantiles


def match_annotations(names: Strings, name: str) -> NDArray[np.bool_]:
    """Mask the annotations with a name.

    Args:
        names: names of annotations.
        name: the name, or a shell-style pattern such as `ProfilerStep#*`.
    """
    return match_rows(names, lambda text: text == name or fnmatch.fnmatchcase(text, name))


def build_annotation_histograms(
    annotations: Columns, name: str, *, bucket_ns: int | None = None
) -> list[AnnotationHistogram]:
    """Build histograms of the durations of one annotation, on the host and on devices.

    Args:
        annotations: `ANNOTATION_COLUMNS` of the table.
        name: the name, or a shell-style pattern such as `ProfilerStep#*`.
        bucket_ns: width of the buckets; None for a round width that gives about twenty.
    """
    rows = match_annotations(annotations["name"], name)
    histograms = []
    for on_device in (0, 1):
        duration = annotations["duration_ns"][rows & (annotations["on_device"] == on_device)]
        distribution = summarize(duration)
        if distribution is not None:
            histograms.append(_build_histogram(duration, distribution, bool(on_device), bucket_ns))
    return histograms


def _build_histogram(
    duration: intervals.Int, distribution: Statistics, on_device: bool, bucket_ns: int | None
) -> AnnotationHistogram:
    low, high = int(duration.min()), int(duration.max())
    width = bucket_ns or choose_round_width(high - low)
    # A width far too small for the range would make an endless list.
    width = max(width, -(-(high - low + 1) // MAX_BUCKETS))
    first = low // width
    return AnnotationHistogram(
        on_device=on_device,
        total_ns=int(duration.sum()),
        duration_ns=distribution,
        bucket_ns=width,
        buckets=[
            Bucket(from_ns=(first + index) * width, count=count)
            for index, count in enumerate(np.bincount(duration // width - first).tolist())
        ],
    )


def choose_round_width(extent_ns: int) -> int:
    """Choose a width of 1, 2 or 5 times a power of ten that gives at most twenty buckets."""
    exact = max(1, -(-extent_ns // BUCKETS))
    power = int(10 ** (len(str(exact)) - 1))
    return next(power * digit for digit in _ROUND if power * digit >= exact)
