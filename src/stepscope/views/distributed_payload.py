"""What the view `distributed` says."""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.run import CarryOver
from stepscope.views.quality import QualityNote
from stepscope.views.ranges import Ranged


class DividedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one rank's devices; computation, overlap, communication and the rest sum to it."""

    total_ns: int
    computation_ns: int
    """Kernels that do not communicate, while no collective runs."""
    overlap_ns: int
    """Both at once."""
    communication_ns: int
    """Kernels of collectives that nothing hides."""
    other_ns: int
    """Neither: copies and sets on their own, and idle time."""


class DividedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The same for each step, column by column; steps reach until their device work is done."""

    step: list[str]
    total_ns: list[int]
    computation_ns: list[int]
    overlap_ns: list[int]
    communication_ns: list[int]
    other_ns: list[int]
    transfer_ns: list[int] | None
    """Of the collectives that could be matched, as `RankTime` has it; null where none could."""
    waiting_ns: list[int] | None


class RankTime(DividedTime, frozen=True, kw_only=True):
    """One rank's recording: from the first start to the last end of work on its devices."""

    rank: int | None
    trace: str
    work_on: Literal["devices", "host"]
    """Of what the times are: without any device, operators stand for kernels, and calls that
    the host carries out for collectives."""
    computation_ratio: float | None
    """Share of `total_ns`, as the next three, which sum to 1 with it."""
    overlap_ratio: float | None
    communication_ratio: float | None
    other_ratio: float | None
    hidden_ratio: float | None
    """Share of the time of collectives that computation hides."""
    collective_count: int
    """Kernels of collectives; where the host carries them out, its calls."""
    matched_count: int
    """Those that were found on other ranks too."""
    transfer_ns: int | None
    """An estimate: of each matched collective, the shortest duration on any rank, at its end;
    time covered by several counts once. Null where none could be matched."""
    waiting_ns: int | None
    """The rest of the time of the matched ones: waiting for the ranks that came later."""
    unmatched_ns: int | None
    """Time in collectives that could not be matched, and in no other."""
    last_count: int
    """Matched collectives that began last here: those for which the others waited."""
    steps: DividedSteps | None
    missing: str | None


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one name within one group of ranks."""

    name: str
    rank: int | None
    """Null for all ranks together."""
    group: str | None
    """Name of the group of ranks as the recorder writes it; null where it says nothing."""
    group_description: str | None
    group_size: int | None
    dtype: str | None
    """Null where the recorder says nothing, or several are used."""
    call_count: int
    total_ns: int
    """Durations, summed."""
    mean_ns: float
    share_ratio: float | None
    """Of the durations of all collectives, summed, of this rank or of all."""
    matched_count: int
    transfer_ns: int | None
    """Of the matched ones, summed; see `RankTime`."""
    waiting_ns: int | None
    moved_bytes: int | None
    """The larger of what a rank gives and what it gets, summed over the calls with a size."""
    mean_bytes: float | None
    algorithm_bytes_per_s: float | None
    """`moved_bytes` by time, of calls with a size: that of the transfer where it is known."""
    bus_bytes_per_s: float | None
    """That times what a link has to carry of it; see `bandwidth_of`."""


class RankWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Recordings of different ranks that were made at the same time."""

    name: str
    ranks: list[RankTime]
    collectives: list[Collective]
    """Of all ranks together, the longest in total first."""
    rank_collectives: list[Collective]
    """The same rank by rank."""
    notes: list[str]


class StepMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """How long each rank's steps took: rows by rank, columns by step."""

    source: Literal["watched", "recorded"]
    """The job's own steps, or those in recordings."""
    ranks: list[str]
    steps: list[str]
    """Of each column, its first step."""
    steps_per_column: int
    """A column is the mean of so many steps, except perhaps the last."""
    duration_ns: list[list[float | None]]
    """Null where a rank has no such step."""
    step_count: int
    """Steps that at least two ranks have."""
    slowest_count: list[int]
    """By rank: of these, the steps in which it was the slowest."""
    excess_ns: list[float | None]
    """By rank: mean of how much longer its steps take than the median rank's."""
    notes: list[str]


class DistributedView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    transfer_of: str
    """What transfer and waiting mean."""
    bandwidth_of: str
    """What the two bandwidths mean."""
    carry_over: CarryOver
    windows: list[RankWindow]
    matrix: StepMatrix | None
    missing: str | None
    quality: list[QualityNote]
