"""Sums over the runs of a fleet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from stepscope import analysis, diagnosis, quantities
from stepscope.fleet.payload import (
    Amount,
    Fleet,
    FleetCause,
    FleetClass,
    FleetFix,
    FleetGroup,
    FleetJob,
    FleetSelection,
    Grouping,
)
from stepscope.fleet.reading import FleetReading
from stepscope.fleet.run_figures import NOT_DIVIDED, FleetRun
from stepscope.quantities import count_of, dollars, percent

MAX_JOBS = 20
_TITLES = {**analysis.JOB_CLASS_TITLES, NOT_DIVIDED: "not divided"}


def report_fleet(
    root: str, reading: FleetReading, selection: FleetSelection, by: Grouping
) -> Fleet:
    """Add up the runs of a fleet.

    Args:
        root: directory or URL, as shown.
        reading: its runs.
        selection: the selection that they were read with.
        by: grouping of the runs.
    """
    runs = [run.figures for run in reading.runs]
    total = Amount.add(run.amount for run in runs)
    lost = Amount.add(run.amount.scale(run.lost_ratio) for run in runs)
    saved = Amount.add(run.amount.scale(run.saving_ratio) for run in runs)
    wasted = Amount.add(run.amount.scale(run.wasted_ratio) for run in runs)
    priced_count = sum(run.amount.usd is not None for run in runs)
    return Fleet(
        root=root,
        headline=_write_headline(
            len(runs), priced_count, total=total, lost=lost, saved=saved, wasted=wasted
        ),
        by=by,
        since_ms=None if selection.since_ns is None else selection.since_ns / 1e6,
        until_ms=None if selection.until_ns is None else selection.until_ns / 1e6,
        tag=selection.tag,
        tags=reading.tags,
        run_count=len(runs),
        unsized_count=sum(not run.is_sized for run in runs),
        priced_count=priced_count,
        total=total,
        lost=lost,
        saved=saved,
        wasted=wasted,
        bound=Amount.add(run.amount.scale(run.bound_ratio) for run in runs),
        classes=_add_classes(reading.runs, total),
        causes=_add_causes(reading.runs),
        fixes=_add_fixes(reading.runs),
        groups=_add_groups(reading.runs, by),
        jobs=_list_jobs(reading.runs),
        skipped=reading.skipped,
        notes=_list_notes(reading, total, by),
    )


def _divide(part: float, total: float) -> float | None:
    return part / total if total else None


def _add_classes(runs: Iterable[FleetRun], total: Amount) -> list[FleetClass]:
    amounts: defaultdict[str, list[Amount]] = defaultdict(list)
    for run in runs:
        for key, share in run.figures.shares.items():
            amounts[key].append(run.figures.amount.scale(share))
    classes = []
    for key, parts in amounts.items():
        amount = Amount.add(parts)
        classes.append(
            FleetClass(
                key=key,
                title=_TITLES[key],
                run_count=len(parts),
                gpu_ratio=_divide(amount.gpu_hours, total.gpu_hours),
                core_ratio=_divide(amount.core_hours, total.core_hours),
                amount=amount,
            )
        )
    return sorted(classes, key=lambda row: (row.amount.order, row.key))


def _add_causes(runs: Iterable[FleetRun]) -> list[FleetCause]:
    members: defaultdict[tuple[str, str], list[FleetRun]] = defaultdict(list)
    for run in runs:
        members[run.figures.suspect, run.figures.cause].append(run)
    causes = [
        FleetCause(
            suspect=suspect,
            cause=cause,
            title=_name_bottleneck(suspect, cause),
            run_count=len(group),
            amount=Amount.add(run.figures.amount for run in group),
            owned=Amount.add(
                run.figures.amount.scale(run.figures.owned_ratio)
                for run in group
                if run.figures.owned_ratio is not None
            ),
        )
        for (suspect, cause), group in members.items()
    ]
    return sorted(causes, key=lambda row: (row.amount.order, row.suspect, row.cause))


def _name_bottleneck(suspect: str, cause: str) -> str:
    """Name a bottleneck and its cause, as headlines do."""
    if suspect == "healthy":
        return "no bottleneck"
    name = next((text for key, text in diagnosis.SUSPECT_NAMES.items() if key == suspect), suspect)
    return name if cause in {suspect, ""} else f"{name}: {diagnosis.name_cause(cause)}"


def _add_fixes(runs: Iterable[FleetRun]) -> list[FleetFix]:
    members: defaultdict[str, list[FleetRun]] = defaultdict(list)
    for run in runs:
        if run.figures.fix is not None:
            members[run.figures.fix].append(run)
    fixes = [
        FleetFix(
            title=title,
            run_count=len(group),
            saved=Amount.add(r.figures.amount.scale(r.figures.saving_ratio) for r in group),
            bound=Amount.add(r.figures.amount.scale(r.figures.bound_ratio) for r in group),
        )
        for title, group in members.items()
    ]
    return sorted(fixes, key=lambda row: (row.saved.order, row.bound.order, row.title))


def _add_groups(runs: Iterable[FleetRun], by: Grouping) -> list[FleetGroup]:
    members: defaultdict[str, list[FleetRun]] = defaultdict(list)
    for run in runs:
        for name in run.groups(by):
            members[name].append(run)
    groups = [
        FleetGroup(
            name=name,
            run_count=len(group),
            amount=Amount.add(run.figures.amount for run in group),
            wasted=Amount.add(r.figures.amount.scale(r.figures.wasted_ratio) for r in group),
        )
        for name, group in members.items()
    ]
    if by == "week":
        return sorted(groups, key=lambda row: row.name, reverse=True)
    return sorted(groups, key=lambda row: (row.amount.order, row.name))


def _list_jobs(runs: Iterable[FleetRun]) -> list[FleetJob]:
    jobs = [
        FleetJob(
            id=run.id,
            name=run.name,
            user=run.user,
            project=run.figures.project,
            created_ms=run.figures.created_ns / 1e6,
            nodes=run.figures.nodes,
            wasted_ratio=run.figures.wasted_ratio,
            amount=run.figures.amount,
            wasted=run.figures.amount.scale(run.figures.wasted_ratio),
            fix=run.figures.fix if run.figures.saving_ratio else None,
            sentence=run.figures.sentence,
        )
        for run in runs
        if run.figures.wasted_ratio and run.figures.is_sized
    ]
    return sorted(jobs, key=lambda job: (job.wasted.order, job.id))[:MAX_JOBS]


def _write_headline(
    run_count: int, priced_count: int, *, total: Amount, lost: Amount, saved: Amount, wasted: Amount
) -> str:
    """State the money that is wasted, then the hours with the shares that were lost or that fixes
    would save; hours without waste come last."""
    start = f"{count_of(run_count, 'run')}."
    if wasted.usd:
        money = f" {dollars(wasted.usd)} of {dollars(total.usd)}"
        if priced_count < run_count:
            money += f" in {count_of(priced_count, 'run')} with a price"
        start += f"{money} are wasted."
    units = (
        ("GPU-hours", total.gpu_hours, lost.gpu_hours, saved.gpu_hours, wasted.gpu_hours),
        ("core-hours", total.core_hours, lost.core_hours, saved.core_hours, wasted.core_hours),
    )
    sentences = [
        f"{percent(w / t)} of {_write_hours(t)} {unit} are wasted: {percent(x / t)} lost "
        f"(stuck, down or repeated), {percent(s / t)} that fixes would save."
        if w
        else f"No waste was found in {_write_hours(t)} {unit}."
        for unit, t, x, s, w in sorted(units, key=lambda hours: not hours[-1])
        if t
    ]
    return " ".join([start, *(sentences or ["No hours are known."])])


def _write_hours(hours: float) -> str:
    """Write hours for a sentence.

    >>> _write_hours(0.00002), _write_hours(2.5)
    ('less than 0.001', '2.5')
    """
    is_tiny = hours < quantities.MIN_HOURS
    return f"less than {quantities.MIN_HOURS:g}" if is_tiny else quantities.number(hours)


def _list_notes(reading: FleetReading, total: Amount, by: Grouping) -> list[str]:
    notes = list(reading.notes)
    if reading.summarised_count:
        were = "was" if reading.summarised_count == 1 else "were"
        notes.append(f"{count_of(reading.summarised_count, 'run')} {were} summarised now.")
    former = sum(not run.figures.is_current for run in reading.runs)
    if former:
        notes.append(f"Figures of {count_of(former, 'run')} are of another version of stepscope.")
    for state, number in Counter(run.state for run in reading.skipped).items():
        notes.append(f"{count_of(number, 'run')} in no sum: {state}.")
        if state == "not summarised":
            notes.append("The next `stepscope fleet` summarises more of them.")
    unsized = sum(not run.figures.is_sized for run in reading.runs)
    if unsized:
        notes.append(f"{count_of(unsized, 'run')} without hours: GPUs and cores are not known.")
    if by == "tag" and any(len(run.figures.labels.tags) > 1 for run in reading.runs):
        notes.append("A run with several tags counts in the group of each.")
    if total.usd is None:
        notes.append("No money: the price of no run is known.")
    else:
        priced = [
            f"{percent(part / hours)} of the {unit}"
            for unit, part, hours in (
                ("GPU-hours", total.priced_gpu_hours, total.gpu_hours),
                ("core-hours", total.priced_core_hours, total.core_hours),
            )
            if hours
        ]
        notes.append(f"Money is of the runs with a price: {' and '.join(priced) or 'no hours'}.")
    return notes
