"""Limits, texts and charts that all sections of a report share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from stepscope.quantities import count
from stepscope.rules import TRAINING_PHASES, HistogramCounts, shares_of_total
from stepscope.views.names import shorten_name
from stepscope.views.profiling_report.blocks import (
    Bars,
    Block,
    Column,
    Histogram,
    Mark,
    Pie,
    Slice,
    Text,
)

MAX_NODES = 16
"""Upper limit of nodes that are shown individually."""
MAX_SERIES = 16
"""Upper limit of ranks, GPUs or loaders in one chart."""
MAX_ROWS = 64
"""Upper limit of the rows of a table with one per rank or GPU."""
MAX_NAME_LENGTH = 160
"""Upper limit of the characters of a name from the job."""
_WINDOW = (
    "record a trace of some steps with `stepscope run --start-step N --num-steps M -- CMD`, or "
    "with `stepscope capture RUN --steps N` while the job runs"
)

T = TypeVar("T")


def explain_missing_events(names: str, *, is_imported: bool) -> Text:
    """Explain missing events of a framework's profiler.

    Args:
        names: the events, as "CPU operator".
        is_imported: the run is of files of other tools.
    """
    if is_imported:
        return Text(text=f"The imported files contain no {names}.", tone="missing")
    return Text(text=f"No {names} was recorded: {_WINDOW}.", tone="missing")


def limit_items(items: Sequence[T], limit: int, plural: str) -> tuple[Sequence[T], str | None]:
    """Return at most *limit* items, and a text about the omitted ones.

    >>> limit_items([1, 2, 3], 2, "nodes")
    ([1, 2], 'and 1 more nodes')
    """
    omitted = len(items) - limit
    return items[:limit], f"and {count(omitted)} more {plural}" if omitted > 0 else None


def note_omitted(more: str | None) -> list[Block]:
    """Return a note about items that `limit_items` omitted."""
    return [Text(text=f"… {more}.", tone="note")] if more else []


def shorten(name: str) -> str:
    """Limit the length of a name."""
    return shorten_name(name, MAX_NAME_LENGTH)


def make_pie(title: str, parts: Mapping[str, float], share_of: str) -> Pie:
    """Draw a pie of the shares above 0."""
    slices = [
        Slice(name=shorten(name), share_ratio=round_figure(share))
        for name, share in parts.items()
        if share
    ]
    return Pie(title=title, share_of=share_of, slices=slices)


def make_phase_pies(phases: Mapping[str, float], when: str, share_of: str) -> list[Block]:
    """Draw three pies of the time of some steps: training and others, passes, phases."""
    training = sum(share for phase, share in phases.items() if phase in TRAINING_PHASES)
    other_share = sum(share for phase, share in phases.items() if phase not in TRAINING_PHASES)
    passes = shares_of_total({name: phases.get(name, 0.0) for name in ("forward", "backward")})
    of_passes = f"forward and backward passes in {share_of}"
    return [
        make_pie(f"{when}: TRAIN and others", {"TRAIN": training, "others": other_share}, share_of),
        *([make_pie(f"{when}: forward and backward", passes, of_passes)] if passes else []),
        make_pie(f"{when}: general framework operations", name_phases(phases), share_of),
    ]


def name_phases(shares: Mapping[str, float]) -> dict[str, float]:
    """Name the phases of steps for readers."""
    return {phase.replace("_", " "): share for phase, share in shares.items()}


def make_text_columns(*labels: str) -> list[Column]:
    """Make columns of text."""
    return [Column(label=label) for label in labels]


def make_number_columns(*labels: str, digits: int, unit: str = "") -> list[Column]:
    """Make columns of numbers."""
    return [Column(label=label, unit=unit, digits=digits) for label in labels]


def round_figure(value: float) -> float:
    """Round to six significant digits, which keeps the report small.

    >>> round_figure(0.123456789)
    0.123457
    """
    return float(f"{value:.6g}")


def round_figures(values: Iterable[float]) -> list[float]:
    """Round figures to six significant digits."""
    return [round_figure(value) for value in values]


class TimeUnit(NamedTuple):
    """Unit of durations in a chart or table."""

    unit: str
    per_s: float

    def of_s(self, seconds: float) -> float:
        """Convert seconds to the unit."""
        return round_figure(seconds * self.per_s)


def choose_time_unit(seconds: float) -> TimeUnit:
    """Choose the unit in which a duration is at least 0.1.

    >>> choose_time_unit(0.36).unit, choose_time_unit(0.05).unit
    ('s', 'ms')
    """
    for unit, per_s in (("s", 1.0), ("ms", 1e3)):
        if seconds * per_s >= 0.1:
            return TimeUnit(unit, per_s)
    return TimeUnit("µs", 1e6)


def draw_durations(
    histogram: HistogramCounts,
    *,
    title: str,
    axis: str,
    counted: str,
    series: str,
    median_s: float,
    marks_s: Mapping[str, float] | None = None,
) -> Histogram:
    """Draw the durations that a rule counted, in the unit of their median."""
    unit = choose_time_unit(median_s)
    return Histogram(
        title=title,
        axis=axis,
        unit=unit.unit,
        digits=2,
        counted=counted,
        edges=[unit.of_s(edge) for edge in histogram.edges_s],
        series=[Bars(name=series, counts=histogram.counts)],
        marks=[Mark(name=name, value=unit.of_s(s)) for name, s in (marks_s or {}).items()],
    )
