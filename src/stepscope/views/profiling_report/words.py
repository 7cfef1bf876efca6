"""Words, units and bounds that all sections of a report share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from stepscope.rules import TRAINING_PHASES, BoxPlot, shares_of_total
from stepscope.views.profiling_report.blocks import Block, Box, Pie, Slice, Text

MAX_NODES = 16
"""Nodes that are listed or drawn one by one."""
MAX_SERIES = 16
"""Ranks, GPUs or loaders in one chart."""
MAX_ROWS = 64
"""Rows of a table that grows with ranks or GPUs."""
MAX_NAME_LENGTH = 160
"""Letters of a name that comes from outside."""
WINDOW = (
    "record a few steps in detail with `stepscope run --start-step N --num-steps M`, or "
    "`stepscope capture RUN --steps N` while the job runs"
)

T = TypeVar("T")


def moment(t_ns: int) -> str:
    """A time as text, in UTC and to the second.

    >>> moment(1_640_485_617_250_000_000)
    '2021-12-26 02:26:57 UTC'
    """
    return datetime.fromtimestamp(t_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def first(items: Sequence[T], limit: int, plural: str) -> tuple[Sequence[T], str | None]:
    """As many items as may be shown, and a sentence about the others.

    >>> first([1, 2, 3], 2, "nodes")
    ([1, 2], 'and 1 more nodes')
    """
    omitted = len(items) - limit
    return items[:limit], f"and {omitted:,} more {plural}" if omitted > 0 else None


def left_out(more: str | None) -> list[Block]:
    """A note below what is shown, where `first` has left something out."""
    return [Text(text=f"… {more}.", tone="note")] if more else []


def shortened(name: str) -> str:
    """A name of bounded length."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=1)
    ('a, b and c', 'a and 2 more')
    """
    shown = [*names[:limit], f"{len(names) - limit} more"] if len(names) > limit else [*names]
    return " and ".join([*([", ".join(shown[:-1])] if shown[1:] else []), *shown[-1:]])


def pie(title: str, parts: Mapping[str, float], share_of: str) -> Pie:
    """A pie of shares that are there."""
    slices = [
        Slice(name=shortened(name), share_ratio=figure(share))
        for name, share in parts.items()
        if share
    ]
    return Pie(title=title, share_of=share_of, slices=slices)


def phase_pies(phases: Mapping[str, float], when: str, share_of: str) -> list[Block]:
    """Three pies of what steps were spent on at some moments: training or not, passes, phases."""
    training = sum(share for phase, share in phases.items() if phase in TRAINING_PHASES)
    other_share = sum(share for phase, share in phases.items() if phase not in TRAINING_PHASES)
    passes = shares_of_total({name: phases.get(name, 0.0) for name in ("forward", "backward")})
    named_shares = {phase.replace("_", " "): share for phase, share in phases.items()}
    of_passes = f"forward and backward passes in {share_of}"
    return [
        pie(f"{when}: TRAIN and others", {"TRAIN": training, "others": other_share}, share_of),
        *([pie(f"{when}: forward and backward", passes, of_passes)] if passes else []),
        pie(f"{when}: general framework operations", named_shares, share_of),
    ]


def box(name: str, plot: BoxPlot) -> Box:
    """Name a box plot of a rule's details."""
    return Box(name=name, **{field: getattr(plot, field) for field in Box.__struct_fields__[1:]})


def figure(value: float) -> float:
    """Six significant digits: more would only make the report large.

    >>> figure(0.123456789)
    0.123457
    """
    return float(f"{value:.6g}")


def figures(values: Iterable[float]) -> list[float]:
    """The same for many."""
    return [figure(value) for value in values]


class TimeUnit(NamedTuple):
    """A unit of durations."""

    unit: str
    per_s: float

    def of_s(self, seconds: float) -> float:
        """Seconds in the unit."""
        return figure(seconds * self.per_s)


def time_unit(seconds: float) -> TimeUnit:
    """The unit in which a duration has two decimals worth reading.

    >>> time_unit(0.36).unit, time_unit(0.05).unit
    ('s', 'ms')
    """
    for unit, per_s in (("s", 1.0), ("ms", 1e3)):
        if seconds * per_s >= 0.1:
            return TimeUnit(unit, per_s)
    return TimeUnit("us", 1e6)
