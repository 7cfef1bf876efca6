"""Figures of one run of a fleet, from its summary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from stepscope import analysis, store
from stepscope.comparison import RunSummary
from stepscope.fleet.payload import HOUR_NS, Amount, Grouping

UNKNOWN = "unknown"
NO_TAG = "no tag"
LOST_CLASSES = ("stuck", "down", "repeated")
NOT_DIVIDED = "not_divided"
"""Class of the hours of runs whose time is not divided, such as imported traces."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one run."""

    is_current: bool
    """False where another version of stepscope made the summary."""
    labels: store.RunLabels
    created_ns: int
    project: str
    revision: str
    nodes: str
    amount: Amount
    is_sized: bool
    """False where neither GPUs nor cores are known."""
    shares: dict[str, float]
    """Share of the job by class of its time; they sum to 1."""
    suspect: str
    cause: str
    owned_ratio: float | None
    """Share of the job that the bottleneck takes; None where that is not known."""
    fix: str | None
    saving_ratio: float
    """Predicted saving of `fix`, as a share of the job; 0 without a prediction."""
    bound_ratio: float
    """The same where it is an upper bound."""
    sentence: str

    @classmethod
    def from_summary(
        cls, summary: RunSummary, labels: store.RunLabels, *, is_current: bool
    ) -> RunFigures:
        """Take the figures from a summary.

        Raises:
            KeyError, ValueError: it is of a version with other names.
        """
        texts, metrics = summary.texts, summary.metrics
        hours = metrics.get("job/wall_time_ns", 0.0) / HOUR_NS
        gpu_hours = metrics["job/gpus_count"] * hours
        core_hours = 0.0 if gpu_hours else metrics["job/cores_count"] * hours
        usd = metrics.get("job/cost_usd")
        is_priced = usd is not None
        shares = {
            key: share
            for key in analysis.JOB_CLASSES
            if (share := metrics.get(f"time/{key}_ratio"))
        }
        return cls(
            is_current=is_current,
            labels=labels,
            created_ns=round(datetime.fromisoformat(texts["created"]).timestamp()) * 10**9,
            project=texts.get("working_directory") or UNKNOWN,
            revision=texts.get("git_revision") or UNKNOWN,
            nodes=texts.get("nodes", ""),
            amount=Amount(
                gpu_hours=gpu_hours,
                core_hours=core_hours,
                usd=usd,
                priced_gpu_hours=gpu_hours if is_priced else 0.0,
                priced_core_hours=core_hours if is_priced else 0.0,
            ),
            is_sized=bool(gpu_hours or core_hours),
            shares=shares or {NOT_DIVIDED: 1.0},
            suspect=texts["verdict/suspect"],
            cause=texts["verdict/cause"],
            owned_ratio=metrics.get("verdict/job_share_ratio"),
            fix=texts.get("verdict/job_fix"),
            saving_ratio=metrics.get("verdict/job_saving_ratio", 0.0),
            bound_ratio=metrics.get("verdict/job_bound_ratio", 0.0),
            sentence=texts.get("verdict/stuck") or texts["verdict/headline"],
        )

    @property
    def lost_ratio(self) -> float:
        """Share of the job that was lost: stuck, down, or steps that were repeated."""
        return sum(self.shares.get(key, 0.0) for key in LOST_CLASSES)

    @property
    def wasted_ratio(self) -> float:
        """Share of the job that was lost or that the fix is predicted to save; fixes are of steps
        whose result was kept, so no time counts twice."""
        return self.lost_ratio + self.saving_ratio


class FleetRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a fleet."""

    id: str
    name: str
    user: str
    figures: RunFigures

    def groups(self, by: Grouping) -> Sequence[str]:
        """Return the names of its groups: one, or that of each tag; weeks are those of ISO 8601, in
        UTC."""
        if by == "week":
            created = datetime.fromtimestamp(self.figures.created_ns / 1e9, UTC)
            year, week, _ = created.isocalendar()
            return [f"{year}-W{week:02}"]
        if by == "user":
            return [self.user]
        if by == "tag":
            return self.figures.labels.tags or [NO_TAG]
        return [self.figures.project if by == "project" else self.figures.revision]
