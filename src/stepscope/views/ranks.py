"""`ranks`: which ranks are late, when, by how much and why."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import downsample_columns, nan_to_none
from stepscope.diagnosis import (
    LateReport,
    Persistence,
    classify_persistence,
    report_late_ranks,
)
from stepscope.quantities import count
from stepscope.run import Run, parse_mesh
from stepscope.schema import field_label
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.ranges import Ranged

MAX_RANKS = 512
"""Rows of the map."""
MAX_COLUMNS = 500
LATENESS_OF = (
    "by how much a rank waits less in the communication of a step than the median of the other "
    "ranks: all of them leave it together, so the last to arrive waits least. Every rank is "
    "measured by its own clock; offsets between nodes do not matter"
)
SHARE_OF = "measured steps that all ranks have"
PERSISTENCE_OF = (
    "persistent: late in most steps of the run; since: late from a step to the end; transient: "
    "late for some time"
)


class LateEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """Range of steps of which a rank is late in more than two thirds."""

    first_step: Annotated[int, field_label(display="identifier")]
    last_step: Annotated[int, field_label(display="identifier")]
    late_ratio: float | None
    """Share of these steps."""
    lateness_ns: float
    """Median over its late steps."""


class RankLateness(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one rank."""

    rank: str
    node: str
    coordinates: str
    """Place in the mesh, such as dp=1 pp=0 tp=1: from `--mesh`, or process groups of known purpose;
    empty without."""
    late_ratio: Annotated[float | None, field_label(display="bar")]
    """Share of steps in which it is later than the others by at least 5% of the step."""
    last_ratio: float | None
    """Share of steps in which it is late, and the last to arrive."""
    lateness_ns: float
    """Median over its late steps; over all steps where none is late."""
    mean_lateness_ns: float
    """Mean over all steps; negative for a rank that is earlier than the others."""
    mean_waiting_ns: float
    """Mean wait for the last rank of a step."""
    persistence: Persistence | None
    """Null for a rank that is not late, other than by chance."""
    cause: str | None
    """Activity of the rank while the others wait for it; null if it is not late, or the cause was
    not found."""
    made_late_by: str | None
    """Rank that makes this one late in an earlier collective of the step; null for none."""
    episodes: list[LateEpisode]


class LatenessMap(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness by rank (rows) and step (columns)."""

    ranks: list[str]
    steps: list[str]
    """First step of each column."""
    steps_per_column: Annotated[int, field_label(unit="count")]
    """Number of steps that a column averages; the last column may have fewer."""
    lateness_ns: list[list[float | None]]
    """Negative where the rank is earlier than the others."""


class RanksView(Ranged, frozen=True, kw_only=True):
    """Payload of `ranks`."""

    sentence: str
    share_of: str
    lateness_of: str
    """Definition of lateness."""
    persistence_of: str
    """Meaning of the values of `persistence`."""
    step_count: int
    mean_transfer_ns: float | None
    """Shortest exposed communication of a step, on average; null without ranks to compare."""
    ranks: list[RankLateness]
    """The latest first."""
    map: LatenessMap | None
    notes: list[str]
    missing: str | None


def show_ranks(run: Run, options: ViewOptions = DEFAULTS) -> RanksView:
    """Show which ranks are late."""
    mesh = None
    if options.mesh is not None:
        sizes = [process.world_size or 0 for process in run.processes if process.role == "main"]
        mesh = parse_mesh(options.mesh, max([len(run.ranks), *sizes]))
    report = report_late_ranks(run, mesh)
    if isinstance(report, str):
        return RanksView(
            sentence=f"No lateness: {report}.",
            share_of=SHARE_OF,
            lateness_of=LATENESS_OF,
            persistence_of=PERSISTENCE_OF,
            step_count=0,
            mean_transfer_ns=None,
            ranks=[],
            map=None,
            notes=[],
            missing=report,
        )
    notes = []
    late = report.late.ranks
    order = sorted(
        range(len(late)), key=lambda index: (-late[index].episode_ns, -late[index].late_count)
    )
    if len(order) > MAX_RANKS:
        notes.append(
            f"the map draws {count(MAX_RANKS)} of {count(len(order))} ranks, the latest; the table "
            "lists all"
        )
    return RanksView(
        sentence=report.sentence,
        share_of=SHARE_OF,
        lateness_of=LATENESS_OF,
        persistence_of=PERSISTENCE_OF,
        step_count=len(report.steps.number),
        mean_transfer_ns=float(report.late.transfer_ns.mean()),
        ranks=[_show_rank(report, index) for index in order],
        map=_show_map(report, sorted(order[:MAX_RANKS])),
        notes=notes,
        missing=None,
    )


def _show_rank(report: LateReport, row: int) -> RankLateness:
    rank, late, mesh = report.ranks[row], report.late.ranks[row], report.mesh
    origin = report.inherited.get(row)
    numbers = report.steps.number.tolist()
    number = rank.process.rank
    coordinates = mesh.locate(number) if mesh is not None and number is not None else {}
    return RankLateness(
        rank=rank.name,
        node=rank.process.node,
        coordinates=" ".join(f"{name}={index}" for name, index in coordinates.items()),
        late_ratio=late.late_count / len(numbers),
        last_ratio=late.last_count / len(numbers),
        lateness_ns=late.lateness_ns,
        mean_lateness_ns=late.mean_lateness_ns,
        mean_waiting_ns=late.mean_waiting_ns,
        persistence=classify_persistence(late, len(numbers)),
        cause=report.causes.get(row),
        made_late_by=None if origin is None else report.ranks[origin].name,
        episodes=[
            LateEpisode(
                first_step=numbers[episode.first],
                last_step=numbers[episode.last],
                late_ratio=episode.late_count / (episode.last - episode.first + 1),
                lateness_ns=episode.lateness_ns,
            )
            for episode in late.episodes
        ],
    )


def _show_map(report: LateReport, rows: list[int]) -> LatenessMap:
    steps_per_column, means = downsample_columns(report.late.lateness_ns[rows], MAX_COLUMNS)
    numbers = report.steps.number.tolist()
    return LatenessMap(
        ranks=[report.ranks[row].name for row in rows],
        steps=[str(number) for number in numbers[::steps_per_column]],
        steps_per_column=steps_per_column,
        lateness_ns=[nan_to_none(row) for row in means],
    )
