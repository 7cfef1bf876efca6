"""A stage of a job that trains several times in one process, as a verdict shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import schema
from stepscope.quantities import count_of

MAX_LISTED = 8
"""Number of stages that are diagnosed and listed, those with the largest share of time."""


class JobStage(msgspec.Struct, frozen=True, kw_only=True):
    """One of several trainings of a job, with its verdict."""

    number: Annotated[int, schema.field_label("stage", display="identifier")]
    """Number in the order of time, counted from 1."""
    title: str
    """Classes of its model, optimizer and data set."""
    model: str
    optimizer: str
    dataset: str
    start_ns: Annotated[int, schema.field_label("start", unit="epoch_ns")]
    end_ns: Annotated[int, schema.field_label("end", unit="epoch_ns")]
    duration_ns: int
    share_ratio: Annotated[float | None, schema.field_label("share of the job")]
    """Share of the time from the start of the job to its end."""
    first_step: Annotated[int, schema.field_label(display="identifier")]
    """Number of its first step, counted from 0."""
    step_count: int
    """Its steps on the first rank."""
    measured_count: int | None
    """Its measured steps of all ranks; null where it was not diagnosed, as all that follow."""
    mean_step_ns: float | None
    suspect: str | None
    cause: str | None
    suspect_share_ratio: float | None
    headline: str | None
    is_main: bool
    """True if the verdict of the job is that of this stage."""
    text: str
    """Its share of the job, its steps and its verdict in words."""


def list_stage_lines(stages: Sequence[JobStage]) -> list[str]:
    """List the stages in words; of many the largest, and the number of the others."""
    lines = [stage.text for stage in stages[:MAX_LISTED]]
    rest = len(stages) - len(lines)
    return [*lines, f"{count_of(rest, 'shorter stage')}."] if rest else lines
