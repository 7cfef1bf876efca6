"""Traces of one import compared with each other: those that cannot belong together, and those that
recorded something else than the others.

    no_device, no_host    no device work, or no host, where the traces of most other ranks have it;
                          no device work of devices that the trace shows, where any other has it
    other_steps           no step with the number of one that most other ranks recorded
    time groups           ranks that were recorded at other times

Their shares are not averaged with those of the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from stepscope import quantities, schema
from stepscope.quantities import count_of
from stepscope.run.model.rank_numbers import name_traces, number_ranges
from stepscope.run.model.run import Run
from stepscope.run.model.trace_records import (
    DEVICE_TABLES,
    EXCLUDING,
    MIN_DOUBT_SHARE,
    NAMING_LOSSES,
    UNRECORDED_DEVICES,
    Doubt,
    QualityIssue,
    make_issue,
)
from stepscope.run.model.traces import Trace

MAX_DISTANCE_NS = 3_600 * 10**9
"""Ranks whose traces are further apart than an hour were not recorded together."""
MAX_SKEW_NS = 60 * 10**9
"""Clocks of nodes differ by less: ranks whose traces are further apart were not recorded together,
whatever the numbers of their steps are."""
MIN_EPOCH_NS = 10**17
"""Three years after 1970: earlier times are no moments, but counted from a start of their own."""
MIN_OVERLAP_RATIO = 0.1
"""Overlap of two traces of a rank, as a share of the shorter one."""
MAX_NAMED_GROUPS = 4
MAX_NAMED_RANGES = 8
_HOST_TABLES = ("operators", "python_functions", "runtime_calls")
_STEPS_QUERY = (
    "SELECT trace, name FROM annotations WHERE on_device = 0 AND name LIKE 'ProfilerStep#%' "
    "UNION SELECT trace, name FROM operators WHERE name LIKE 'ProfilerStep#%'"
)


_WORST = ("device_not_recorded", "other_times", "refused", "missing_rank")
"""Checks of what is not there at all, the worst first."""
NO_DEVICE_WORK = "{} recorded no device work, which other traces have"
NO_HOST_WORK = "{} recorded no operators and calls of the host, which other traces have"
OTHER_STEPS = "{} recorded none of the steps that other ranks recorded"


class UnlikeTraces(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of imported traces that recorded something else than those of other ranks."""

    no_device: frozenset[int] = msgspec.field(default_factory=frozenset)
    no_host: frozenset[int] = msgspec.field(default_factory=frozenset)
    other_steps: frozenset[int] = msgspec.field(default_factory=frozenset)


def find_unlike_traces(run: Run) -> UnlikeTraces:
    """Find the imported traces that recorded something else than most; computed once per run."""
    return run.whole_run.derive(_find_unlike_traces)


def _find_unlike_traces(run: Run) -> UnlikeTraces:
    traces = [trace for trace in run.traces if trace.process is None]
    if len(traces) < 2:
        return UnlikeTraces()
    numbers = {trace.trace for trace in traces}
    device, host = (_find_owners(run, tables) for tables in (DEVICE_TABLES, _HOST_TABLES))
    unrecorded = frozenset(t.trace for t in traces if device and t.unrecorded_devices)
    return UnlikeTraces(
        no_device=_find_rest(numbers, device) | unrecorded,
        no_host=_find_rest(numbers, host),
        other_steps=frozenset(_find_other_steps(run, traces)),
    )


def _find_rest(numbers: set[int], owners: set[int]) -> frozenset[int]:
    """Return the traces that are no owners, unless most are none."""
    is_usual = 2 * len(owners & numbers) >= len(numbers)
    return frozenset(numbers - owners if is_usual else ())


def _find_owners(run: Run, tables: Iterable[str]) -> set[int]:
    """Find the traces that have rows in one of some tables."""
    query = " UNION ".join(f"SELECT DISTINCT trace FROM {table}" for table in tables)  # noqa: S608
    return set(run.reader.sql(query)["trace"].tolist())


def _find_other_steps(run: Run, traces: Sequence[Trace]) -> list[int]:
    """Find the traces of ranks that have no step in common with the rank that shares most."""
    ranks = {trace.trace: trace.rank for trace in traces if trace.rank is not None}
    steps: defaultdict[int, set[str]] = defaultdict(set)
    for trace, names in run.whole_run.derive(_read_steps).items():
        if trace in ranks:
            steps[ranks[trace]] |= names
    owners: defaultdict[str, int] = defaultdict(int)
    for names in steps.values():
        for name in names:
            owners[name] += 1
    if not owners or min(owners.values()) == len(steps):
        return []
    shared = {rank: max(owners[name] for name in names) for rank, names in steps.items()}
    usual = min(shared, key=lambda rank: (-shared[rank], rank))
    if shared[usual] < 2:  # none is usual
        return []
    return [
        trace for trace, rank in ranks.items() if rank in steps and not steps[rank] & steps[usual]
    ]


def _read_steps(run: Run) -> dict[int, set[str]]:
    """Read the names of the steps of each trace that marks any."""
    steps: defaultdict[int, set[str]] = defaultdict(set)
    rows = run.reader.sql(_STEPS_QUERY)
    for trace, name in zip(rows["trace"].tolist(), rows["name"].tolist(), strict=True):
        steps[trace].add(name)
    return dict(steps)


def group_by_time(run: Run, traces: Sequence[Trace]) -> list[int]:
    """Group traces that were recorded together: at overlapping times, or with a common step and no
    further apart than clocks differ.

    Traces of one rank are together, and so are those of a watched job and those without a clock
    base, whose times are not comparable.

    Returns:
        The number of the group of each trace, from 0.
    """
    if len(traces) < 2:
        return [0] * len(traces)
    steps = run.whole_run.derive(_read_steps)
    keys: list[set[object]] = [
        {trace.rank} if trace.rank is not None else {"any time"} for trace in traces
    ]
    timed = [index for index, trace in enumerate(traces) if has_clock(trace)]
    overlapping, near = (_chain(traces, timed, gap_ns) for gap_ns in (0, MAX_SKEW_NS))
    for index, trace in enumerate(traces):
        if index in near:
            keys[index].add(f"time {overlapping[index]}")
            keys[index] |= {(near[index], name) for name in steps.get(trace.trace, ())}
        else:
            keys[index].add("any time")
    groups = _join_groups(keys)
    if any("any time" in group for group in groups):
        return [0] * len(traces)
    return [next(n for n, group in enumerate(groups) if key & group) for key in keys]


def has_clock(trace: Trace) -> bool:
    """Return True for an imported trace whose times are moments, as those of other files."""
    return trace.process is None and bool(trace.base_ns or trace.start_ns > MIN_EPOCH_NS)


def _chain(traces: Sequence[Trace], indices: Sequence[int], gap_ns: int) -> dict[int, int]:
    """Number the chains of traces that overlap, or between which there is at most a gap."""
    chains: dict[int, int] = {}
    end_ns, number = 0, -1
    for index in sorted(indices, key=lambda index: traces[index].start_ns):
        number += traces[index].start_ns - end_ns >= gap_ns or number < 0
        end_ns = max(end_ns, traces[index].end_ns)
        chains[index] = number
    return chains


def number_recordings(run: Run, traces: Sequence[Trace]) -> list[int]:
    """Number the recordings that ranks made together, each of at most one trace of a rank.

    Traces of one recording overlap in time, or have a step in common that no rank has twice. Where
    neither tells, they are the windows of one number, or the n-th files of the ranks.
    """
    counts: defaultdict[str, int] = defaultdict(int)
    by_count: list[object] = []
    for trace in traces:
        counts[trace.label] += 1
        number = counts[trace.label] if trace.window is None else trace.window
        by_count.append((trace.window is None, number))
    steps = run.whole_run.derive(_read_steps)
    owners: defaultdict[tuple[str, str], int] = defaultdict(int)
    for trace in traces:
        for name in steps.get(trace.trace, ()):
            owners[trace.label, name] += 1
    repeated = {name for (_, name), count in owners.items() if count > 1}
    timed = [index for index, trace in enumerate(traces) if has_clock(trace)]
    overlapping = _chain(traces, timed, 0)
    keys: list[set[object]] = [
        {
            ("file", index),
            ("time", overlapping.get(index, -1 - index)),
            *(steps.get(trace.trace, set()) - repeated),
        }
        for index, trace in enumerate(traces)
    ]
    groups = _join_groups(keys)
    together = [next(n for n, group in enumerate(groups) if key & group) for key in keys]
    members = Counter(zip(together, (trace.label for trace in traces), strict=True))
    is_usual = max(counts.values(), default=0) < 2 or any(t.process is not None for t in traces)
    if is_usual or max(members.values()) > 1 or len(members) == len(set(together)):
        together = [list(dict.fromkeys(by_count)).index(key) for key in by_count]
    return together


def _join_groups(keys: Iterable[set[object]]) -> list[set[object]]:
    """Join sets with a common element."""
    groups: list[set[object]] = []
    for key in keys:
        joined = set(key).union(*(group for group in groups if group & key))
        groups = [group for group in groups if not group & key] + [joined]
    return groups


def find_time_groups(run: Run) -> list[list[Trace]]:
    """Find the imported traces of ranks that were recorded together; one group for all where all
    were. Traces that recorded other steps than most are left out; computed once per run."""
    return run.whole_run.derive(_find_time_groups)


def _find_time_groups(run: Run) -> list[list[Trace]]:
    other_steps = find_unlike_traces(run).other_steps
    traces = [t for t in run.traces if t.process is None and t.trace not in other_steps]
    if len(traces) < 2:
        return [traces]
    groups: defaultdict[int, list[Trace]] = defaultdict(list)
    for trace, number in zip(traces, group_by_time(run, traces), strict=True):
        groups[number].append(trace)
    return list(groups.values())


def _note_time_groups(run: Run) -> QualityIssue:
    groups = find_time_groups(run)
    names = "; ".join(name_traces(group) for group in groups[:MAX_NAMED_GROUPS])
    more = "; …" if len(groups) > MAX_NAMED_GROUPS else ""
    steps = run.whole_run.derive(_read_steps)
    names_of = [set().union(*(steps.get(t.trace, ()) for t in group)) for group in groups]
    apart = "at different times and share no step"
    if len(set().union(*names_of)) < sum(map(len, names_of)):
        traces = [trace for group in groups for trace in group]
        apart_ns = max(t.start_ns for t in traces) - min(t.start_ns for t in traces)
        apart = f"up to {quantities.duration(apart_ns)} apart, although they share step numbers"
    sentence = (
        f"Ranks were recorded {apart} ({names}{more}): who waits for whom is unknown, and a mean "
        "over them is no step of the job."
    )
    return make_issue("other_times", len(groups) if len(groups) > 1 else 0, None, sentence)


def compare_traces(run: Run) -> list[QualityIssue]:
    """Compare the imported traces of a run with each other; computed once per run.

    Returns:
        An issue for each check that found one, whose detail is a sentence.
    """
    return run.whole_run.derive(_compare_traces)


def _compare_traces(run: Run) -> list[QualityIssue]:
    traces = [trace for trace in run.traces if trace.process is None]
    unlike = find_unlike_traces(run)
    issues = [
        _find_missing_ranks(run),
        _list_refused(traces),
        _note_unrecorded_devices(traces, unlike),
        _note_time_groups(run),
        _note_no_collective(traces),
        _list_copies(traces),
        _compare_worlds(traces),
    ]
    for check, affected, sentence in (
        (
            "overlapping_rank",
            _find_overlapping(traces),
            "One rank has several traces of the same time, as of several jobs: {}.",
        ),
        (
            "rank_outside_world",
            [
                trace
                for trace in traces
                if trace.rank is not None and trace.world_size and trace.rank >= trace.world_size
            ],
            "The rank is not below the world size that the trace states: {}.",
        ),
        (
            "rank_in_name",
            _find_other_names(traces),
            "The names of these files state ranks of others; what the files state counts: {}.",
        ),
        (
            "recorded_apart",
            _find_apart(traces) if len(find_time_groups(run)) < 2 else [],
            "More than an hour lies between the traces of these ranks and of all others: {}.",
        ),
    ):
        names = ", ".join(
            trace.name if trace.rank is None else f"{trace.name} (rank {trace.rank})"
            for trace in affected
        )
        issues.append(make_issue(check, len(affected), len(traces), sentence.format(names)))
    for check, numbers, sentence in (
        ("no_device_work", unlike.no_device, NO_DEVICE_WORK),
        ("no_host_work", unlike.no_host, NO_HOST_WORK),
        ("other_steps", unlike.other_steps, OTHER_STEPS),
    ):
        names = name_traces([trace for trace in traces if trace.trace in numbers])
        text = f"{sentence.format(names)}; shares are over the other traces."
        issues.append(make_issue(check, len(numbers), len(traces), text))
    return [issue for issue in issues if issue.count]


def _note_unrecorded_devices(traces: Sequence[Trace], unlike: UnlikeTraces) -> QualityIssue:
    signs = [
        trace.unrecorded_devices
        for trace in traces
        if trace.unrecorded_devices is not None and trace.trace not in unlike.no_device
    ]
    reason = UNRECORDED_DEVICES.format(", ".join(sorted(set(signs))))
    if len(traces) > 1:
        reason += f" in {len(signs)} of {count_of(len(traces), 'trace')}"
    sentence = (
        f"{reason[:1].upper()}{reason[1:]}: whether they compute, communicate or are waited for is "
        "unknown."
    )
    return make_issue("device_not_recorded", len(signs), len(traces), sentence)


def _note_no_collective(traces: Sequence[Trace]) -> QualityIssue:
    """Note that traces of several ranks contain no collective, as of an unknown library."""
    several = [t for t in traces if t.recorder is schema.PYTORCH and (t.world_size or 0) > 1]
    if not several or several[0].collectives.has_collectives:
        return make_issue(NO_COLLECTIVE, 0, None, "")
    world = max(trace.world_size or 0 for trace in several)
    backend = next((f" (backend {t.backend})" for t in several if t.backend), "")
    sentence = (
        f"The job has {count_of(world, 'rank')}{backend}, and no collective was found in its "
        "traces: what counts as computation may be communication."
    )
    return make_issue(NO_COLLECTIVE, len(several), len(traces), sentence)


NO_COLLECTIVE = "no_collective"
"""Check without which no computation is known to be one."""


def _list_doubts(traces: Sequence[Trace]) -> list[Doubt]:
    """List the doubts about traces together, the worst first."""
    doubts = []
    for check, template in schema.DOUBTS.items():
        issues = {t.name: t.quality_issues[check] for t in traces if check in t.quality_issues}
        if not issues:
            continue
        count = sum(issue.count for issue in issues.values())
        of_count = sum(issue.of_count or 0 for issue in issues.values())
        if check in EXCLUDING:
            of_count = sum(trace.event_count for trace in traces)
        share = count / of_count if of_count else None
        details = {name: issue.detail for name, issue in issues.items() if issue.detail}
        name, detail = next(iter(details.items()), (None, None))
        if len(issues) > 1 and detail is not None:
            detail = f"in {name}: {detail}"
        is_named = check in NAMING_LOSSES and detail is not None
        if share is not None and share < MIN_DOUBT_SHARE and not is_named:
            continue
        sentence = template.format(
            count=quantities.count(count),
            of_count=quantities.count(of_count),
            share="A part" if share is None else quantities.percent(share),
            worst=quantities.duration(max(issue.worst_ns or 0 for issue in issues.values())),
            detail=detail,
            have="has" if count == 1 else "have",
            are="is" if count == 1 else "are",
            more=f" ({detail})" if detail else "",
        )
        if len(traces) > 1:
            several = f"{quantities.count(len(issues))} of {quantities.count(len(traces))} traces"
            sentence += f" ({next(iter(issues)) if len(issues) == 1 else several})"
        doubts.append(Doubt(check, share, f"{sentence}."))
    return doubts


def list_run_doubts(run: Run) -> list[Doubt]:
    """List the doubts about the traces of a run, each and together, the worst first."""
    issues = compare_traces(run)
    # A single trace, and windows, are of ranks that someone chose.
    is_choice = not run.is_imported or (
        len(run.traces) == 1 and all(issue.check != "refused" for issue in issues)
    )
    together = [
        Doubt(issue.check, None, issue.detail or "")
        for issue in issues
        if issue.check != "missing_rank" or not is_choice
    ]
    doubts = [*_list_doubts(run.traces), *together]
    order = {check: number for number, check in enumerate(_WORST)}
    return sorted(doubts, key=lambda doubt: order.get(doubt.check, len(order)))


def _find_overlapping(traces: Sequence[Trace]) -> list[Trace]:
    """Find traces of one rank at the same time."""
    by_rank: defaultdict[int, list[Trace]] = defaultdict(list)
    for trace in traces:
        if trace.rank is not None and (trace.base_ns or trace.start_ns > MIN_EPOCH_NS):
            by_rank[trace.rank].append(trace)
    affected: dict[int, Trace] = {}
    for group in by_rank.values():
        ordered = sorted(group, key=lambda trace: trace.start_ns)
        for index, first in enumerate(ordered):
            for second in ordered[index + 1 :]:
                if second.start_ns >= first.end_ns:
                    break
                overlap_ns = min(first.end_ns, second.end_ns) - second.start_ns
                shorter_ns = min(first.end_ns - first.start_ns, second.end_ns - second.start_ns)
                if overlap_ns > 0 and overlap_ns >= MIN_OVERLAP_RATIO * shorter_ns:
                    affected |= {first.trace: first, second.trace: second}
    return list(affected.values())


def _find_other_names(traces: Sequence[Trace]) -> list[Trace]:
    """Find traces of ranks that the names of other files state; names of each node count apart."""
    ranks = [schema.rank_in_name(trace.name) for trace in traces]
    if len(set(ranks)) < len(traces) or set(ranks) != {trace.rank for trace in traces}:
        return []
    return [trace for trace, rank in zip(traces, ranks, strict=True) if rank != trace.rank]


def _find_apart(traces: Sequence[Trace]) -> list[Trace]:
    """Find traces that are far in time from those of all other ranks."""
    ranked = [trace for trace in traces if trace.rank is not None and trace.base_ns]
    ordered = sorted(ranked, key=lambda trace: trace.start_ns)
    if len({trace.rank for trace in ordered}) < 2:
        return []
    groups: list[list[Trace]] = []
    end_ns = 0
    for trace in ordered:
        if not groups or trace.start_ns - end_ns > MAX_DISTANCE_NS:
            groups.append([])
            end_ns = trace.end_ns
        groups[-1].append(trace)
        end_ns = max(end_ns, trace.end_ns)
    if len(groups) < 2:
        return []
    return [trace for group in groups for trace in group if len({t.rank for t in group}) == 1]


def _find_missing_ranks(run: Run) -> QualityIssue:
    """Find the ranks of the job of which the run has no trace."""
    ranks = {trace.rank for trace in run.traces}
    world = max((trace.world_size or 0 for trace in run.traces), default=0)
    missing = [] if None in ranks else [rank for rank in range(world) if rank not in ranks]
    names = number_ranges(missing)
    more = ", …" if len(names) > MAX_NAMED_RANGES else ""
    noun, pronoun = ("rank", "it") if len(missing) == 1 else ("ranks", "them")
    effect = f"; whether the others wait for {pronoun} is unknown" if run.is_imported else ""
    listed = f"{', '.join(names[:MAX_NAMED_RANGES])}{more}"
    sentence = f"The run has no trace of {noun} {listed}{effect}."
    return make_issue("missing_rank", len(missing), world, sentence)


def _list_refused(traces: Sequence[Trace]) -> QualityIssue:
    """List the files of the import that were refused."""
    issues = [t.quality_issues["refused"] for t in traces if "refused" in t.quality_issues]
    count, of_count = (
        sum(getattr(issue, name) or 0 for issue in issues) for name in ("count", "of_count")
    )
    reasons = " ".join(issue.detail or "" for issue in issues)
    files = quantities.count_of(of_count, "file")
    verb = "was" if count == 1 else "were"
    sentence = f"{quantities.count(count)} of {files} {verb} not imported: {reasons}"
    return make_issue("refused", count, of_count, sentence)


def _list_copies(traces: Sequence[Trace]) -> QualityIssue:
    copies = [trace.quality_issues["copy"] for trace in traces if "copy" in trace.quality_issues]
    names = ", ".join((issue.detail or "").rstrip(".") for issue in copies)
    sentence = f"These files hold a trace that another file holds, too, and count once: {names}."
    return make_issue("copy", sum(issue.count for issue in copies), None, sentence)


def _compare_worlds(traces: Sequence[Trace]) -> QualityIssue:
    by_size: defaultdict[int, list[str]] = defaultdict(list)
    for trace in traces:
        if trace.world_size:
            by_size[trace.world_size].append(trace.name)
    sizes = "; ".join(f"{size} in {', '.join(names)}" for size, names in sorted(by_size.items()))
    sentence = f"The traces state different world sizes, as those of several jobs: {sizes}."
    return make_issue("world_size", len(by_size) if len(by_size) > 1 else 0, None, sentence)
