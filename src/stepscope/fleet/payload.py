"""Payload of the fleet report, and the selection of its runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from math import fsum
from typing import Annotated, Literal, get_args

import msgspec

from stepscope import errors, schema

Grouping = Literal["project", "user", "tag", "revision", "week"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
SkipReason = Literal["running", "lost", "damaged", "not summarised"]
_HOURS = {"h": 1, "d": 24, "w": 168}
_AGE = re.compile(r"(\d{1,6})([hdw])")
HOUR_NS = 3_600_000_000_000


class FleetSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of runs by the time at which they were created, epoch nanoseconds, and a tag."""

    since_ns: int | None = None
    until_ns: int | None = None
    """Runs created at this time or later are left out."""
    tag: str | None = None

    def includes(self, created_ns: int) -> bool:
        """Return True for a run that was created in the selected time."""
        return (self.since_ns is None or created_ns >= self.since_ns) and (
            self.until_ns is None or created_ns < self.until_ns
        )


def parse_time(text: str, now_ns: int) -> int:
    """Parse a date, a time, or an age, such as 2026-11-30, 2026-11-30T12:00 or 7d; epoch
    nanoseconds. Without a time zone it is in UTC.

    Raises:
        UsageError: it is none of these.

    >>> parse_time("1970-01-02", 0), parse_time("24h", 90_000_000_000_000)
    (86400000000000, 3600000000000)
    """
    age = _AGE.fullmatch(text)
    if age is not None:
        return now_ns - int(age[1]) * _HOURS[age[2]] * HOUR_NS
    try:
        parsed = datetime.fromisoformat(text)
        zoned = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
        return round(zoned.timestamp()) * 10**9
    except (ValueError, OverflowError):
        raise errors.UsageError(
            f"{text!r} is not a time; use a date such as 2026-11-30, a time such as "
            "2026-11-30T12:00, or an age such as 7d, 4w or 12h."
        ) from None


def select_runs(since: str | None, until: str | None, tag: str | None) -> FleetSelection:
    """Make a selection of texts; see `parse_time`. An empty tag selects all runs.

    Raises:
        UsageError: one of them is no time.
    """
    now_ns = time.time_ns()
    return FleetSelection(
        since_ns=None if since is None else parse_time(since, now_ns),
        until_ns=None if until is None else parse_time(until, now_ns),
        tag=tag or None,
    )


def parse_grouping(text: str) -> Grouping:
    """Parse the name of a grouping.

    Raises:
        UsageError: there is none of this name.
    """
    for name in GROUPINGS:
        if text == name:
            return name
    raise errors.UsageError(f"Runs cannot be grouped by {text!r}; use {', '.join(GROUPINGS)}.")


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Hours of some runs, and their money where a price is known."""

    gpu_hours: Annotated[float, schema.field_label("GPU-hours")] = 0.0
    """Of runs with GPUs: GPUs x duration."""
    core_hours: Annotated[float, schema.field_label("core-hours")] = 0.0
    """Of runs without a GPU: available cores x duration."""
    usd: Annotated[float | None, schema.field_label("cost")] = None
    """Null if the price of none of the runs is known."""
    priced_gpu_hours: Annotated[float, schema.field_label("priced GPU-hours")] = 0.0
    """GPU-hours of which `usd` is the cost."""
    priced_core_hours: Annotated[float, schema.field_label("priced core-hours")] = 0.0

    def scale(self, ratio: float) -> Amount:
        """Return a share of this amount."""
        return Amount(
            gpu_hours=self.gpu_hours * ratio,
            core_hours=self.core_hours * ratio,
            usd=None if self.usd is None else self.usd * ratio,
            priced_gpu_hours=self.priced_gpu_hours * ratio,
            priced_core_hours=self.priced_core_hours * ratio,
        )

    @property
    def order(self) -> tuple[float, float, float]:
        """Key that sorts the largest amount first: by GPU-hours, then core-hours, then money."""
        return -self.gpu_hours, -self.core_hours, -(self.usd or 0.0)

    @classmethod
    def add(cls, amounts: Iterable[Amount]) -> Amount:
        """Add amounts; the sums are rounded once."""
        parts = list(amounts)
        prices = [part.usd for part in parts if part.usd is not None]
        return cls(
            gpu_hours=fsum(part.gpu_hours for part in parts),
            core_hours=fsum(part.core_hours for part in parts),
            usd=fsum(prices) if prices else None,
            priced_gpu_hours=fsum(part.priced_gpu_hours for part in parts),
            priced_core_hours=fsum(part.priced_core_hours for part in parts),
        )


class FleetClass(msgspec.Struct, frozen=True, kw_only=True):
    """Class of the time of jobs."""

    key: str
    title: Annotated[str, schema.field_label("class")]
    run_count: int
    """Runs with time of this class."""
    gpu_ratio: Annotated[float | None, schema.field_label("GPU-hours share", display="bar")]
    """Share of the GPU-hours of all runs."""
    core_ratio: Annotated[float | None, schema.field_label("core-hours share", display="bar")]
    """Share of the core-hours of all runs."""
    amount: Amount


class FleetCause(msgspec.Struct, frozen=True, kw_only=True):
    """Runs with one bottleneck and cause."""

    suspect: str
    cause: str
    title: Annotated[str, schema.field_label("bottleneck")]
    run_count: int
    amount: Amount
    """All hours of these runs."""
    owned: Annotated[Amount, schema.field_label("of the bottleneck itself")]
    """Hours that the bottleneck itself takes, of runs whose time is divided."""


class FleetFix(msgspec.Struct, frozen=True, kw_only=True):
    """Fix with the largest predicted saving of some runs."""

    title: Annotated[str, schema.field_label("fix")]
    run_count: int
    saved: Amount
    """Sum of the predictions, one fix per run."""
    bound: Annotated[Amount, schema.field_label("at most")]
    """Sum over runs of which only an upper bound of the saving is known; not in `saved`."""


class FleetGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one project, user, tag, revision or week."""

    name: str
    run_count: int
    amount: Amount
    wasted: Amount


class FleetJob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the runs that waste most."""

    id: Annotated[str, schema.field_label("run")]
    """Path of the run below the directory or URL."""
    name: str
    """Title, or else the last part of `id`."""
    user: str
    project: str
    created_ms: Annotated[float, schema.field_label("created", unit="epoch_ms")]
    nodes: str
    wasted_ratio: Annotated[float, schema.field_label("wasted share", display="bar")]
    """Wasted share of the hours of the run."""
    amount: Amount
    wasted: Amount
    fix: str | None
    """Fix whose predicted saving is included."""
    sentence: str


class SkippedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Run that is in no sum."""

    id: Annotated[str, schema.field_label("run")]
    state: SkipReason
    reason: str


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Report on the runs below a directory or URL."""

    root: str
    headline: str
    by: Grouping
    since_ms: Annotated[float | None, schema.field_label("since", unit="epoch_ms")]
    until_ms: Annotated[float | None, schema.field_label("until", unit="epoch_ms")]
    tag: str | None
    """Tag of the runs; null for all runs."""
    tags: list[str]
    """Tags of the runs of this time."""
    run_count: int
    """Runs in the sums."""
    unsized_count: Annotated[int, schema.field_label("runs without hours")]
    """Those of which neither GPUs nor cores are known."""
    priced_count: Annotated[int, schema.field_label("priced runs")]
    total: Amount
    lost: Amount
    """Hours in which jobs were stuck or down, or repeated steps after a restart."""
    saved: Annotated[Amount, schema.field_label("predicted saving")]
    """Predicted savings of at most one fix per run, that with the largest."""
    wasted: Amount
    """`lost` and `saved` together."""
    bound: Annotated[Amount, schema.field_label("at most")]
    """Upper bounds of the saving of runs without a prediction; not in `saved`."""
    classes: list[FleetClass]
    """By hours, the most first, as all lists but weeks, of which the latest is the first."""
    causes: list[FleetCause]
    fixes: list[FleetFix]
    groups: list[FleetGroup]
    jobs: Annotated[list[FleetJob], schema.field_label("runs that waste most")]
    skipped: Annotated[list[SkippedRun], schema.field_label("runs in no sum")]
    notes: list[str]
