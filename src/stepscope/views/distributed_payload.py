"""Payload of `distributed`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope.analysis import Collective, CollectiveSize
from stepscope.run import CarryOver
from stepscope.schema import field_label
from stepscope.views.quality import QualityNote
from stepscope.views.ranges import Ranged


class DividedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one rank's devices; computation, overlap, communication and other sum to it."""

    total_ns: int
    computation_ns: int
    """Kernels that do not communicate, without a simultaneous collective."""
    overlap_ns: int
    """Both at the same time."""
    communication_ns: int
    """Kernels of collectives without simultaneous computation."""
    other_ns: int
    """Neither: copies and sets without simultaneous kernels, and idle time."""


class DividedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Time of each step, by column; steps extend until their device work is done."""

    step: list[str]
    total_ns: list[int]
    computation_ns: list[int]
    overlap_ns: list[int]
    communication_ns: list[int]
    other_ns: list[int]
    transfer_ns: list[int] | None
    """Transfer time of the matched collectives; null without matched ones. See `RankTime`."""
    waiting_ns: list[int] | None


class RankTime(DividedTime, frozen=True, kw_only=True):
    """Trace of one rank: from the first start to the last end of work on its devices."""

    rank: int | None
    trace: str
    work_on: Literal["devices", "host"]
    """Basis of the times: without a device, operators stand for kernels, and calls of the host
    for collectives."""
    computation_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `total_ns`; the four shares sum to 1."""
    overlap_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `total_ns`."""
    communication_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `total_ns`."""
    other_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of `total_ns`."""
    hidden_ratio: float | None
    """Share of the time of collectives that computation hides."""
    collective_count: int
    """Kernels of collectives, or the calls of the host that carries them out."""
    matched_count: int
    """Collectives that were also identified on other ranks."""
    transfer_ns: int | None
    """Estimate: the shortest duration of each matched collective on any rank, at the end of the
    call; time covered by several counts once. Null without matched ones."""
    waiting_ns: int | None
    """Rest of the time in matched collectives: waiting for ranks that arrived later."""
    unmatched_ns: int | None
    """Time in unmatched collectives only."""
    last_count: Annotated[int, field_label("last to arrive")]
    """Matched collectives that started last on this rank: the other ranks waited for it."""
    steps: DividedSteps | None
    missing: Annotated[str | None, field_label("note")]


class RankWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of different ranks made at the same time."""

    name: str
    ranks: list[RankTime]
    collectives: list[Collective]
    """Collectives of all ranks together, the longest in total first."""
    collective_sizes: list[CollectiveSize]
    """Collectives of all ranks by size, and by whether their group spans nodes."""
    rank_collectives: list[Collective]
    """Collectives by rank."""
    notes: list[str]


class StepMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """Step durations: rows by rank, columns by step."""

    source: Literal["watched", "recorded"]
    """Steps of the job, or steps in traces."""
    ranks: list[str]
    steps: list[str]
    """First step of each column."""
    steps_per_column: Annotated[int, field_label(unit="count")]
    """Number of steps that a column averages; the last column may have fewer."""
    duration_ns: list[list[float | None]]
    """Null where a rank lacks the step."""
    step_count: int
    """Steps that at least two ranks have."""
    slowest_count: Annotated[list[int], field_label("slowest in steps")]
    """Number of these steps in which each rank was slowest."""
    excess_ns: Annotated[list[float | None], field_label("mean excess over median rank")]
    """Mean excess of each rank's steps over the median rank's."""
    notes: list[str]


class RankArrival(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one rank at the collectives of the whole job."""

    rank: int
    node: str
    call_count: Annotated[int, field_label("collectives")]
    matched_count: int
    """Collectives that another rank has called with the same number and kind."""
    last_count: Annotated[int, field_label("last to arrive")]
    """Matched collectives that this rank called last."""
    last_ratio: Annotated[float | None, field_label("last to arrive in", display="bar")]
    """Share of its matched collectives."""
    median_ns: Annotated[float | None, field_label("median lateness")]
    p95_ns: Annotated[float | None, field_label("p95 lateness")]
    mean_ns: Annotated[float | None, field_label("mean lateness")]
    caused_wait_ns: Annotated[int | None, field_label("others waited")]
    """Time for which all other ranks waited for this one alone; null for ranks of several nodes
    whose clocks are not aligned well enough."""


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrival of ranks at every collective, from the recorder of the framework."""

    ranks: list[RankArrival]
    lateness_of: str
    """Definition of lateness."""
    skipped_count: Annotated[int, field_label("not recorded")]
    """Calls that the recorder has overwritten before they were read."""
    mismatch_count: Annotated[int, field_label("mismatched")]
    """Collectives that ranks have called with different kinds."""
    notes: list[str]
    missing: str | None
    """Why nothing was recorded."""


class DistributedView(Ranged, frozen=True, kw_only=True):
    """Payload of `distributed`."""

    share_of: str
    communication_of: str
    """Definition of communication."""
    transfer_of: str
    """Definition of transfer and waiting."""
    bandwidth_of: str
    """Definition of the two bandwidths."""
    carry_over: CarryOver
    windows: list[RankWindow]
    arrivals: Arrivals
    matrix: StepMatrix | None
    missing: str | None
    quality: list[QualityNote]
