"""`ranks` and `nodes`: which are late, when, by how much and why."""

from __future__ import annotations

from statistics import fmean
from typing import Annotated

import msgspec

from stepscope import analysis, diagnosis, quantities, schema
from stepscope.quantities import count
from stepscope.run import NodeClocks, RankMesh, Run, align_node_clocks, parse_mesh
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions

MAX_RANKS = 512
"""Rows of the map."""
MAX_COLUMNS = 500
MAX_READ_RANKS = 64
"""Ranks of which the lines of the script are read, the latest."""
MIN_ACTIVITY_RATIO = 0.005
"""Smallest share of the step of an activity that is listed, of the rank or of the others."""
ACTIVITY_NAMES = {**analysis.PART_NAMES, "other": "other work", "h2d": "copies to the device"}
LATENESS_OF = (
    "by how much a rank waits less in the communication of a step than the median of the other "
    "ranks: all of them leave it together, so the last to arrive waits least. Every rank is "
    "measured by its own clock; offsets between nodes do not matter"
)
SHARE_OF = "measured steps that all ranks have"
SHARE_OF_TRACES = "steps that the traces of all ranks have"
PERSISTENCE_OF = (
    "persistent: late in most steps of the run; since: late from a step to the end; transient: "
    "late for some time"
)


class LateEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """Range of steps of which a rank is late in more than two thirds."""

    first_step: Annotated[int, schema.field_label(display="identifier")]
    last_step: Annotated[int, schema.field_label(display="identifier")]
    late_ratio: float | None
    """Share of these steps."""
    lateness_ns: float
    """Median over its late steps."""


class RankActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of one rank in the mean step."""

    activity: str
    mean_ns: Annotated[float, schema.field_label("time per step")]
    others_ns: Annotated[float, schema.field_label("other ranks")]
    """Median of the other ranks."""


class RankLateness(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one rank."""

    rank: str
    node: str
    coordinates: str
    """Place in the mesh, such as dp=1 pp=0 tp=1: from `--mesh`, or process groups of known purpose;
    empty without."""
    late_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of steps in which it is later than the others by at least 5% of the step."""
    last_ratio: float | None
    """Share of steps in which it is late, and the last to arrive."""
    lateness_ns: float
    """Median over its late steps; over all steps where none is late."""
    mean_lateness_ns: float
    """Mean over all steps; negative for a rank that is earlier than the others."""
    mean_waiting_ns: float
    """Mean wait for the last rank of a step."""
    mean_step_ns: float
    """Mean step: the sum of computation, overlap, other work, transfer and waiting."""
    mean_compute_ns: Annotated[float, schema.field_label("mean computation")]
    """Mean time in which only computation runs."""
    mean_overlap_ns: float | None
    """Mean time of computation that hides communication; null in a job, which does not record it:
    it is part of the computation."""
    mean_other_ns: Annotated[float, schema.field_label("mean other work")]
    """Mean time without computation and communication."""
    activities: list[RankActivity]
    """Work in a step, the longest first."""
    lines: list[diagnosis.RankLine] | None
    """Lines of the script that it runs in a step, the longest first; empty without stacks, null
    for all but the latest ranks."""
    persistence: diagnosis.Persistence | None
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
    steps_per_column: Annotated[int, schema.field_label(unit="count")]
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
    report = report_lateness(run, mesh)
    if isinstance(report, str):
        return RanksView(
            sentence=f"No lateness: {report}.",
            share_of=_share_of(run),
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
        share_of=_share_of(run),
        lateness_of=LATENESS_OF,
        persistence_of=PERSISTENCE_OF,
        step_count=len(report.step_numbers),
        mean_transfer_ns=float(report.late.transfer_ns.mean()),
        ranks=[
            _show_rank(
                report, row, _list_lines(run, report, row) if index < MAX_READ_RANKS else None
            )
            for index, row in enumerate(order)
        ],
        map=_show_map(report, sorted(order[:MAX_RANKS])),
        notes=notes,
        missing=None,
    )


def report_lateness(run: Run, mesh: RankMesh | None = None) -> diagnosis.LateReport | str:
    """Report late ranks of the steps of a job, or else of the traces of ranks."""
    if run.ranks or not run.traces:
        return diagnosis.report_late_ranks(run, mesh)
    return diagnosis.report_late_traces(run, mesh)


def _share_of(run: Run) -> str:
    return SHARE_OF if run.ranks or not run.traces else SHARE_OF_TRACES


def _list_lines(run: Run, report: diagnosis.LateReport, row: int) -> list[diagnosis.RankLine]:
    number = report.ranks[row].number
    return diagnosis.list_rank_lines(run, row if run.ranks else number or 0)


def _list_activities(report: diagnosis.LateReport, row: int) -> list[RankActivity]:
    step_ns = float(report.work.step_ns[row])
    activities = []
    for name, times in report.work.work_ns.items():
        time_ns = float(times[row])
        others_ns = time_ns - float(analysis.compare_with_others(times[:, None], [row])[0, 0])
        if max(time_ns, others_ns) >= MIN_ACTIVITY_RATIO * step_ns:
            title = ACTIVITY_NAMES.get(name, name.replace("_", " "))
            activities.append(RankActivity(activity=title, mean_ns=time_ns, others_ns=others_ns))
    return sorted(activities, key=lambda activity: -activity.mean_ns)


def _show_rank(
    report: diagnosis.LateReport, row: int, lines: list[diagnosis.RankLine] | None
) -> RankLateness:
    rank, late, mesh = report.ranks[row], report.late.ranks[row], report.mesh
    origin = report.inherited.get(row)
    numbers = report.step_numbers.tolist()
    number = rank.number
    work = report.work
    step_ns, compute_ns = float(work.step_ns[row]), float(work.compute_ns[row])
    overlap_ns = None if work.overlap_ns is None else float(work.overlap_ns[row])
    communication_ns = float(report.late.transfer_ns.mean()) + late.mean_waiting_ns
    coordinates = mesh.locate(number) if mesh is not None and number is not None else {}
    return RankLateness(
        rank=rank.name,
        node=rank.node,
        coordinates=" ".join(f"{name}={index}" for name, index in coordinates.items()),
        late_ratio=late.late_count / len(numbers),
        last_ratio=late.last_count / len(numbers),
        lateness_ns=late.lateness_ns,
        mean_lateness_ns=late.mean_lateness_ns,
        mean_waiting_ns=late.mean_waiting_ns,
        mean_step_ns=step_ns,
        mean_compute_ns=compute_ns - (overlap_ns or 0.0),
        mean_overlap_ns=overlap_ns,
        mean_other_ns=max(0.0, step_ns - compute_ns - communication_ns),
        activities=_list_activities(report, row),
        lines=lines,
        persistence=diagnosis.classify_persistence(late, len(numbers)),
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


def _show_map(report: diagnosis.LateReport, rows: list[int]) -> LatenessMap:
    steps_per_column, means = analysis.downsample_columns(
        report.late.lateness_ns[rows], MAX_COLUMNS
    )
    numbers = report.step_numbers.tolist()
    return LatenessMap(
        ranks=[report.ranks[row].name for row in rows],
        steps=[str(number) for number in numbers[::steps_per_column]],
        steps_per_column=steps_per_column,
        lateness_ns=[analysis.nan_to_none(row) for row in means],
    )


NO_STEPS = "no step of a training process was recorded"
NO_NODES = "the traces do not name the nodes of their ranks"


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the job."""

    node: str
    ranks: list[str]
    late_ranks: list[str]
    """Ranks that make the others wait, other than by chance."""
    late_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of the steps in which a rank of the node is late, on average over its ranks. Null where
    lateness is not known."""
    mean_lateness_ns: float | None
    """Mean over its ranks and steps; negative if they are earlier than the other ranks."""
    mean_waiting_ns: float | None
    """Mean wait of its ranks for the last rank of a step."""
    clock_offset_ns: float | None
    """Clock of the node minus that of the reference node, in the middle of the job; null where
    collectives do not bound it."""
    clock_residual_ns: float | None
    """Largest possible error of a time of the node on the clock of the reference node."""


class NodesView(Ranged, frozen=True, kw_only=True):
    """Payload of `nodes`."""

    sentence: str
    share_of: str
    lateness_of: str
    """Definition of lateness."""
    clocks: str | None
    """State of the alignment of clocks; null for a job on one node."""
    nodes: list[NodeRow]
    missing: str | None


def show_nodes(run: Run, _options: ViewOptions = DEFAULTS) -> NodesView:
    """Show the nodes of a job."""
    report = report_lateness(run)
    ranks = [(rank.name, rank.process.node) for rank in run.ranks]
    if not ranks and isinstance(report, diagnosis.LateReport):
        ranks = [(rank.name, rank.node) for rank in report.ranks]
        ranks = ranks if all(node for _, node in ranks) else []
    nodes = list(dict.fromkeys(node for _, node in ranks))
    alignment = align_node_clocks(run) if len(nodes) > 1 else None
    clocks = alignment.clocks if isinstance(alignment, NodeClocks) else {}
    rows = [_show_node(ranks, node, report, clocks.get(node)) for node in nodes]
    return NodesView(
        sentence=_write_sentence(rows, report),
        share_of=SHARE_OF,
        lateness_of=LATENESS_OF,
        clocks=None if alignment is None else _describe_clocks(alignment),
        nodes=rows,
        missing=None if rows else NO_NODES if run.traces else NO_STEPS,
    )


def _describe_clocks(alignment: NodeClocks | str) -> str:
    if isinstance(alignment, str):
        return f"{alignment[:1].upper()}{alignment[1:]}."
    unknown = [name for name, clock in alignment.clocks.items() if clock is None]
    sentence = (
        f"Clocks are compared with that of {alignment.reference} by collectives: no rank ends one "
        "before the last has called it."
    )
    if unknown:
        sentence += (
            f" For {', '.join(unknown)} no clock of constant rate keeps to that: it was set during "
            "the job, or too few collectives are known."
        )
    return sentence


def _show_node(
    ranks: list[tuple[str, str]],
    node: str,
    report: diagnosis.LateReport | str,
    clock: analysis.NodeClock | None,
) -> NodeRow:
    offset_ns = None if clock is None else clock.offset_ns
    residual_ns = None if clock is None else clock.residual_ns
    indices = [index for index, (_, node_of_rank) in enumerate(ranks) if node_of_rank == node]
    names = [ranks[index][0] for index in indices]
    if isinstance(report, str):
        return NodeRow(
            node=node,
            ranks=names,
            late_ranks=[],
            late_ratio=None,
            mean_lateness_ns=None,
            mean_waiting_ns=None,
            clock_offset_ns=offset_ns,
            clock_residual_ns=residual_ns,
        )
    late = [report.late.ranks[index] for index in indices]
    step_count = len(report.step_numbers)
    return NodeRow(
        node=node,
        ranks=names,
        late_ranks=[ranks[index][0] for index in report.culprits if index in indices],
        late_ratio=fmean(rank.late_count / step_count for rank in late),
        mean_lateness_ns=fmean(rank.mean_lateness_ns for rank in late),
        mean_waiting_ns=fmean(rank.mean_waiting_ns for rank in late),
        clock_offset_ns=offset_ns,
        clock_residual_ns=residual_ns,
    )


def _write_sentence(rows: list[NodeRow], report: diagnosis.LateReport | str) -> str:
    if not rows:
        return f"No lateness: {report}." if isinstance(report, str) else report.sentence
    count = quantities.count_of(len(rows), "node")
    if isinstance(report, str):
        return f"{count}. No lateness: {report}."
    late = [row for row in rows if row.late_ranks]
    if not late or len(rows) == 1:
        return f"{count}. {report.sentence}"
    names = ", ".join(row.node for row in late)
    late_nodes = [row.node for row in late if len(row.late_ranks) == len(row.ranks) > 1]
    detail = f" All ranks of {', '.join(late_nodes)} are late." if late_nodes else ""
    return f"Late ranks are on {names}, {len(late)} of {count}.{detail} {report.sentence}"
