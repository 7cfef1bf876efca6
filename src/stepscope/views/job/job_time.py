"""`job-time`: what a job spent its time on, from its launch to its end, with the functions.

A range of time does not restrict it: the classes of time divide the whole job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import analysis, schema
from stepscope.run import JobTime, RankJobTime, RestartTime, Run, read_job_time
from stepscope.views.options import DEFAULTS, ViewOptions

MAX_PIECES = 2000
"""Limit of the pieces of a rank's time; shorter ones are merged into longer ones."""
MAX_FUNCTIONS = 20
"""Limit of the functions of a class."""


class JobFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Function in which a class of time was spent, or a package that was imported."""

    function: str
    file: Annotated[str, schema.field_label(display="identifier")]
    line: Annotated[int | None, schema.field_label(display="identifier")]
    """Line with most of its time; where only lines of functions that it called are known, that of
    its definition; null if unknown."""
    text: str
    """Text of that line, or of the call in it; empty if unknown."""
    is_user: Annotated[bool, schema.field_label("user code")]
    time_ns: float
    """Mean over ranks; of a package without those that it imports."""
    total_ns: float
    """The same; of a package with those that it imports."""
    share_ratio: float | None
    """Share of the class, by `total_ns`."""

    @property
    def title(self) -> str:
        """Name, with file and line of a function of the user."""
        file = self.file.rpartition("/")[2] if self.is_user else ""
        line = "" if self.line is None else f":{self.line}"
        return f"{self.function} ({file}{line})" if file else self.function


class JobClass(msgspec.Struct, frozen=True, kw_only=True):
    """Class of time."""

    key: str
    title: str
    time_ns: float
    """Mean over ranks; the classes sum to the duration of the job."""
    share_ratio: float | None
    """Share of the duration of the job."""
    functions: list[JobFunction]
    """Functions by time, from stack samples; those of the user first."""


class JobPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Piece of a rank's time."""

    key: str
    """Its class."""
    start_ns: int
    """Time after the start of the job."""
    duration_ns: int


class JobRank(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one rank."""

    rank: int | None
    """Null outside a distributed job."""
    name: str
    node: str
    class_ns: dict[str, int]
    """Time by class; sums to the duration of the job."""
    intervals: list[JobPiece]
    """Its time from the start of the job to its end."""
    not_seen: list[str]
    """Reasons for time of which nothing is known."""


class JobRestart(msgspec.Struct, frozen=True, kw_only=True):
    """Restart of the training processes."""

    incarnation: Annotated[int, schema.field_label(display="identifier")]
    """Number of the incarnation that it began."""
    died_ns: int
    """Time after the start of the job at which the first process died."""
    notice_ns: int
    """Time from there to the start of a new process."""
    return_ns: int | None
    """Time from there to the next step; null without one."""
    steps_lost: Annotated[int | None, schema.field_label("steps lost", unit="count")]
    """Steps done since the checkpoint that was loaded; null where that is unknown."""


class JobTimeView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `job-time`."""

    start_after_ns: int
    """Start of the job after the start of the run, which is its first record; mostly negative."""
    duration_ns: int
    """Time from the start of the job to its end, or to its last record so far."""
    is_final: Annotated[bool, schema.field_label("ended")]
    """False while the job runs."""
    rank_count: int
    goodput_ratio: Annotated[float | None, schema.field_label("goodput")]
    """Share of the duration in steps whose result was kept."""
    device_goodput_ratio: Annotated[float | None, schema.field_label("device goodput")]
    """Goodput times the busy share of the GPUs in use; null without GPUs."""
    first_step_ns: Annotated[int | None, schema.field_label("time to first step")]
    """Time from the start of the job to its first step; null without steps."""
    steps_lost: Annotated[int | None, schema.field_label("steps lost", unit="count")]
    """Steps that restarts lost; null where unknown."""
    classes: list[JobClass]
    """Classes with time, in the order in which they occur in a job."""
    ranks: list[JobRank]
    restarts: list[JobRestart]
    not_seen: list[str]
    """Reasons for time of which nothing is known, a sentence each."""
    missing: str | None


def show_job_time(run: Run, _options: ViewOptions = DEFAULTS) -> JobTimeView:
    """Show what a job spent its time on."""
    time = read_job_time(run)
    return JobTimeView(
        start_after_ns=time.start_ns - run.whole_run.clock.origin_ns,
        duration_ns=time.duration_ns,
        is_final=time.is_final,
        rank_count=time.rank_count,
        goodput_ratio=time.goodput_ratio,
        device_goodput_ratio=time.device_goodput_ratio,
        first_step_ns=time.first_step_ns,
        steps_lost=time.steps_lost,
        classes=[_show_class(time, key) for key in analysis.JOB_CLASSES if time.totals[key]],
        ranks=[_show_rank(rank, time.start_ns) for rank in time.ranks],
        restarts=[_show_restart(restart, time.start_ns) for restart in time.restarts],
        not_seen=time.reasons,
        missing=time.missing,
    )


def _show_class(time: JobTime, key: str) -> JobClass:
    return JobClass(
        key=key,
        title=analysis.title_job_class(key, has_steps=time.first_step_ns is not None),
        time_ns=time.time_of(key),
        share_ratio=time.share_of(key),
        functions=_show_functions(time.functions.get(key, ()), time.totals[key], time.rank_count),
    )


def _show_functions(
    functions: Sequence[analysis.ClassFunction], class_ns: int, rank_count: int
) -> list[JobFunction]:
    ordered = sorted(functions, key=lambda function: not function.is_user)  # by time, stable
    return [
        JobFunction(
            function=function.function,
            file=function.file,
            line=function.line or None,
            text=function.text,
            is_user=function.is_user,
            time_ns=function.time_ns / rank_count,
            total_ns=function.total_ns / rank_count,
            share_ratio=function.total_ns / class_ns if class_ns else None,
        )
        for function in ordered[:MAX_FUNCTIONS]
    ]


def _show_rank(rank: RankJobTime, start_ns: int) -> JobRank:
    return JobRank(
        rank=rank.rank,
        name=rank.name,
        node=rank.node,
        class_ns={key: time_ns for key, time_ns in rank.totals.items() if time_ns},
        intervals=[
            JobPiece(key=key, start_ns=start - start_ns, duration_ns=end - start)
            for key, start, end in rank.list_pieces(MAX_PIECES)
        ],
        not_seen=rank.reasons,
    )


def _show_restart(restart: RestartTime, start_ns: int) -> JobRestart:
    return JobRestart(
        incarnation=restart.incarnation,
        died_ns=restart.died_ns - start_ns,
        notice_ns=restart.notice_ns,
        return_ns=restart.return_ns,
        steps_lost=restart.steps_lost,
    )
