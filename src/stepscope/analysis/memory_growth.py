"""Growth of memory over the steps of a job, with an interval, and the time at which it is full.

    samples ── least of each block ── what is never given back ── sections
                    │                  (least of this and all      rise in nearly all of them,
                    │                   later blocks)              the last ones included, or by
                    │                                              much in all of half as many
                    └── Theil-Sen slope with an interval ── forecast

What is not growth, although memory has risen:

    warm-up              the first fifth of the steps is left out
    caches that fill     the last sections do not rise
    one jump             most sections do not rise
    saw-teeth            what is given back at the end of a tooth was never growth: the sections
                         before it do not rise
    spikes in a step     blocks hold their least sample
    longer inputs        the duration of steps rises steadily, by a larger factor than memory
    mapped files         are not part of the memory that is measured
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.machines import Series

Float = NDArray[np.float64]

WARM_UP_RATIO = 0.2
"""Share of the steps that is left out at the start."""
TAIL_RATIO = 0.03
"""Share of the steps that is left out at the end, where workers of the last epoch end."""
MIN_BLOCKS = 9
MAX_BLOCKS = 48
SECTION_COUNT = 8
MAX_FLAT_SECTIONS = 1
"""Sections that need not rise; the last two have to."""
MIN_SECTION_SHARE = 0.25
"""Rise of a section, as a share of the mean section, from which it counts as rising."""
MIN_UNEVEN_SHARE = 0.1
"""The same where sections rise unevenly; all of them have to."""
MIN_GROWTH_BYTES = 16 << 20
MIN_GROWTH_RATIO = 0.02
"""Growth as a share of the memory at its start, below which it is none."""
MIN_DURATION_RISE = 0.2
"""Rise of the duration of steps from which inputs may have become longer."""
Z_95 = 1.959964
"""Quantile 0.975 of the normal distribution."""
MAX_POINTS = 2048
"""Points that a curve or a series keeps; above, neighbors are joined."""
_HOUR_NS = 3.6e12


class Estimate(NamedTuple):
    """A value with its 95% interval."""

    value: float
    low: float
    high: float

    def scale(self, factor: float) -> Estimate:
        """Return the estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def shift(self, summand: float) -> Estimate:
        """Return the estimate with a number added, at least 0."""
        return Estimate(*(max(0.0, value + summand) for value in self))


class MemoryTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Change of memory over the evaluated steps."""

    start_ns: int
    end_ns: int
    """Extent of the evaluated samples."""
    first_step: float | None
    last_step: float | None
    """Steps at these times; None without steps."""
    start_bytes: float
    """Least memory in the first block."""
    growth_bytes: float
    """Growth from there that was never given back."""
    per_hour: Estimate
    """Bytes per hour."""
    per_step: Estimate | None
    """Bytes per step; None without steps."""
    is_steady: bool
    """True if memory grows and goes on growing."""
    follows_duration: bool
    """True if the duration of steps has risen steadily and by a larger factor: longer inputs
    explain both."""

    @property
    def is_growing(self) -> bool:
        """Return True if memory grows for another reason than longer inputs."""
        return self.is_steady and not self.follows_duration


class StepCurve(msgspec.Struct):
    """Steps of one rank as counts over time, of bounded size.

    The result does not depend on how the steps were cut into additions.
    """

    t_ns: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Ends of steps, ascending."""
    count: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Steps that have ended then."""
    wall_ns: intervals.Int = msgspec.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Their wall time."""
    total: int = 0
    total_ns: int = 0
    stride: int = 1

    def add(self, end_ns: intervals.Int, wall_ns: intervals.Int) -> None:
        """Add consecutive steps."""
        count = self.total + 1 + np.arange(len(end_ns), dtype=np.int64)
        total = self.total_ns + np.cumsum(wall_ns)
        if not len(end_ns):
            return
        self.total, self.total_ns = int(count[-1]), int(total[-1])
        self.t_ns = np.concatenate([self.t_ns, end_ns])
        self.count = np.concatenate([self.count, count])
        self.wall_ns = np.concatenate([self.wall_ns, total])
        while True:
            rows = self.count % self.stride == 0
            if np.count_nonzero(rows) <= MAX_POINTS:
                break
            self.stride *= 2
        self.t_ns, self.count, self.wall_ns = self.t_ns[rows], self.count[rows], self.wall_ns[rows]

    def at(self, t_ns: intervals.Int) -> Float:
        """Return the steps that have ended at some times, with fractions between ends."""
        if not len(self.t_ns):
            return np.zeros(len(t_ns))
        return np.interp(t_ns, self.t_ns, self.count.astype(np.float64))

    def duration_between(self, steps: Float) -> Float:
        """Return the mean wall time of a step between consecutive counts, NaN without a step."""
        total = np.interp(steps, self.count.astype(np.float64), self.wall_ns.astype(np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.diff(total) / np.diff(steps)


class LeastSamples(msgspec.Struct):
    """Least sample of each interval of time, of bounded size, whatever the cuts of additions."""

    width_ns: int = 500_000_000
    series: Series = msgspec.field(
        default_factory=lambda: Series(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
    )

    def add(self, series: Series) -> None:
        """Add later samples, sorted."""
        t_ns = np.concatenate([self.series.t_ns, series.t_ns])
        value = np.concatenate([self.series.value, series.value])
        while True:
            number = t_ns // self.width_ns
            if len(np.unique(number)) <= MAX_POINTS:
                break
            self.width_ns *= 2
        order = np.lexsort((t_ns, value, number))
        first = order[np.flatnonzero(np.diff(number[order], prepend=-1))]
        self.series = Series(t_ns[first], value[first])


def measure_memory_trend(series: Series, steps: StepCurve | None) -> MemoryTrend | None:
    """Measure the trend of the memory of a process, a node or a device.

    Args:
        series: samples in bytes, sorted by time.
        steps: steps of a rank on that node; None without any, where time takes their place.

    Returns:
        None with too few samples.
    """
    position = _positions(series.t_ns, steps)
    if steps is not None and steps.total:
        # Before the first step and after the last one something else runs.
        inside = (series.t_ns >= steps.t_ns[0]) & (series.t_ns <= steps.t_ns[-1])
        series, position = Series(series.t_ns[inside], series.value[inside]), position[inside]
    if not len(position):
        return None
    extent = position[-1] - position[0]
    inside = position >= position[0] + WARM_UP_RATIO * extent
    inside &= position <= position[-1] - TAIL_RATIO * extent
    t_ns, value, position = series.t_ns[inside], series.value[inside], position[inside]
    rows = _least_by_block(position, value)
    if len(rows) < MIN_BLOCKS:
        return None
    t_ns, value, position = t_ns[rows], value[rows], position[rows]
    floor = find_floor(value)
    growth = float(floor[-1] - floor[0])
    has_steps = steps is not None and steps.total > 0
    per_hour = estimate_slope((t_ns - t_ns[0]) / _HOUR_NS, value)
    return MemoryTrend(
        start_ns=int(t_ns[0]),
        end_ns=int(t_ns[-1]),
        first_step=float(position[0]) if has_steps else None,
        last_step=float(position[-1]) if has_steps else None,
        start_bytes=float(floor[0]),
        growth_bytes=growth,
        per_hour=per_hour,
        per_step=estimate_slope(position, value) if has_steps else None,
        is_steady=growth >= max(MIN_GROWTH_BYTES, MIN_GROWTH_RATIO * float(floor[0]))
        and per_hour.low > 0
        and rises_steadily(floor),
        follows_duration=steps is not None
        and has_steps
        and _follows_duration(floor, steps, position),
    )


def _positions(t_ns: intervals.Int, steps: StepCurve | None) -> Float:
    """Return the position of samples: steps, or seconds without any."""
    if steps is None or not steps.total:
        return (t_ns - t_ns[0]) / 1e9 if len(t_ns) else np.empty(0)
    return steps.at(t_ns)


def _least_by_block(position: Float, value: Float) -> intervals.Int:
    """Return the rows of the least value in each of some blocks of equal extent; of a short job,
    some of whose blocks would have no sample, in blocks of equally many samples."""
    if len(position) < MIN_BLOCKS or position[-1] <= position[0]:
        return np.empty(0, dtype=np.int64)
    count = min(MAX_BLOCKS, max(MIN_BLOCKS, len(position) // 2))
    relative = (position - position[0]) / (position[-1] - position[0])
    block = np.minimum((relative * count).astype(np.int64), count - 1)
    if len(np.unique(block)) < MIN_BLOCKS:
        block = np.arange(len(position)) * MIN_BLOCKS // len(position)
    order = np.lexsort((position, value, block))
    rows: intervals.Int = order[np.flatnonzero(np.diff(block[order], prepend=-1))]
    return rows


def find_floor(value: Float) -> Float:
    """Return what is never undercut later: the least of each value and all later ones."""
    floor: Float = np.minimum.accumulate(value[::-1])[::-1]
    return floor


def rises_steadily(floor: NDArray[np.floating]) -> bool:
    """Return True if values that never decrease rise in nearly all sections, and in the last two;
    or, where an allocator or other jobs make it uneven, in all of them and by much in pairs.

    Args:
        floor: ascending values, one per block.
    """
    is_rising = _rising_sections(floor, SECTION_COUNT, MIN_SECTION_SHARE)
    is_steady = is_rising.sum() >= len(is_rising) - MAX_FLAT_SECTIONS and is_rising[-2:].all()
    never_rests = _rising_sections(floor, SECTION_COUNT, MIN_UNEVEN_SHARE).all()
    is_rising = _rising_sections(floor, SECTION_COUNT // 2, 2 * MIN_SECTION_SHARE)
    return bool(is_steady or (never_rests and is_rising.all()))


def _rising_sections(
    floor: NDArray[np.floating], count: int, min_share: float
) -> NDArray[np.bool_]:
    """Mask the sections that rise by a share of the mean section."""
    count = max(1, min(count, len(floor) - 1))
    borders = np.linspace(0, len(floor) - 1, count + 1).round().astype(np.int64)
    rises = np.diff(floor[borders])
    is_rising: NDArray[np.bool_] = rises >= min_share * (floor[-1] - floor[0]) / count
    return is_rising & (rises > 0)


def _follows_duration(floor: Float, steps: StepCurve, position: Float) -> bool:
    """Return True if steps became longer steadily, and by a larger factor than memory."""
    borders = np.linspace(position[0], position[-1], SECTION_COUNT + 1)
    durations = steps.duration_between(borders)
    if not np.isfinite(durations).all() or durations[0] <= 0:
        return False
    rise = durations[-1] / durations[0] - 1
    # From the first section to the last one are 7 of 8 sections.
    growth = (floor[-1] / max(1.0, floor[0]) - 1) * (SECTION_COUNT - 1) / SECTION_COUNT
    is_longer = np.diff(durations) > 0
    return bool(rise >= max(MIN_DURATION_RISE, growth) and is_longer.sum() >= SECTION_COUNT - 2)


def estimate_slope(x: NDArray[np.floating], y: NDArray[np.floating]) -> Estimate:
    """Estimate a slope as the median of the slopes of all pairs of points, with its 95% interval.

    Theil and Sen's estimator: P. K. Sen, Estimates of the regression coefficient based on Kendall's
    tau, JASA 63 (1968). The interval is that between the slopes of ranks (N - C) / 2 and
    (N + C) / 2 + 1 of N, where C = 1.96 sqrt(n (n - 1) (2 n + 5) / 18).
    https://doi.org/10.1080/01621459.1968.10480934

    Args:
        x: distinct values.
        y: as many values.
    """
    first, second = np.triu_indices(len(x), 1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    count, points = len(slopes), len(x)
    half_width = Z_95 * np.sqrt(points * (points - 1) * (2 * points + 5) / 18) / 2
    low = max(0, int(np.floor(count / 2 - half_width)) - 1)
    high = min(count - 1, int(np.ceil(count / 2 + half_width)))
    return Estimate(float(np.median(slopes)), float(slopes[low]), float(slopes[high]))


class Forecast(NamedTuple):
    """Time at which a limit is full if memory goes on growing."""

    in_ns: Estimate
    """Time from the end of the trend on; `high` is infinite where the interval has no end."""
    step: Estimate | None
    """Step at that time; None without steps."""


def forecast_full(
    trend: MemoryTrend, free_bytes: float, steps: StepCurve | None
) -> Forecast | None:
    """Forecast when free memory is full; None where memory does not grow.

    Memory grows by step, and steps may have become faster or slower: the time is that of the steps
    that are left at the pace of the last quarter of the trend. Its interval includes the paces of
    its last half and of all of it.

    Args:
        trend: growth of the memory of the job.
        free_bytes: memory that is left at the end of the trend.
        steps: steps of a rank; None without any.
    """
    if trend.per_hour.value <= 0:
        return None
    if trend.per_step is None or steps is None or trend.per_step.value <= 0:
        return Forecast(_divide(free_bytes, trend.per_hour).scale(_HOUR_NS), None)
    if trend.first_step is None or trend.last_step is None:
        return None
    count = _divide(free_bytes, trend.per_step)
    extent = trend.last_step - trend.first_step
    starts = trend.last_step - extent * np.array([0.25, 0.5, 1.0])
    t_ns = np.interp(starts, steps.count.astype(np.float64), steps.t_ns - steps.t_ns[0])
    end_ns = trend.end_ns - int(steps.t_ns[0])
    step_ns = ((end_ns - t_ns) / (trend.last_step - starts)).tolist()
    in_ns = Estimate(count.value * step_ns[0], count.low * min(step_ns), count.high * max(step_ns))
    return Forecast(in_ns, count.shift(trend.last_step))


def _divide(size: float, rate: Estimate) -> Estimate:
    return Estimate(
        *(size / slope if slope > 0 else np.inf for slope in (rate.value, rate.high, rate.low))
    )
