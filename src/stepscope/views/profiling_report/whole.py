"""A whole report: the page for people, and the same facts for machines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from stepscope._version import __version__
from stepscope.diagnosis import Verdict, diagnose
from stepscope.rule_feed import RuleReport, check_rules, choose_rules, progress_of
from stepscope.rules import Rule
from stepscope.run import Run, is_lost, job_borders, job_statistics
from stepscope.schema import Finding
from stepscope.views.profiling_report.blocks import Section
from stepscope.views.profiling_report.evaluated import STATISTICS, Evaluated
from stepscope.views.profiling_report.framework import framework_section
from stepscope.views.profiling_report.job import job_section
from stepscope.views.profiling_report.rule_summary import rules_section
from stepscope.views.profiling_report.system import system_section
from stepscope.views.profiling_report.training import training_sections
from stepscope.views.profiling_report.words import first, moment, shortened

MAX_NOTES = 20
MAX_COMMAND_LENGTH = 2000
ABOUT = (
    "This report sums up the training job, the resources of its machines and what the framework "
    "spent its time on, and lists what the rules found, with the numbers behind it. Charts and "
    "tables are interactive."
)
NOTICE = (
    "The findings are rules of thumb applied to what was recorded. They are for information: check "
    "them against your own knowledge of the job before you act on them."
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Report for people. Ratios are 0 to 1, durations in the verdict nanoseconds."""

    run_id: str
    command: str
    version: str
    """Of stepscope."""
    made_at: str
    until: str
    """Up to when the run was looked at."""
    in_progress: bool
    about: str
    notice: str
    verdict: Verdict
    sections: list[Section]
    notes: list[str]
    """What of the run could not be read."""


class ReportedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job from beginning to end; null where no training step was seen."""

    start_ns: int
    end_ns: int
    duration_ns: int
    initialization_ns: int | None
    training_ns: int | None
    finalization_ns: int | None


class ReportFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Report for machines."""

    run_id: str
    command: list[str]
    made_ns: int
    until_ns: int | None
    in_progress: bool
    summary: ReportedJob
    verdict: Verdict
    rules: dict[str, Finding]
    """By name, each with `RuleTriggered`, `Violations`, `Datapoints`, `RuleParameters` and
    `Details`."""
    damage: list[str]


def report_rules(
    names: Iterable[str] = (), *, config: Path | None = None, settings: Sequence[str] = ()
) -> list[Rule[Any]]:
    """Rules for a report: those that are named, or all, and always those that only sum up.

    Raises:
        UsageError: as `choose_rules`.
    """
    return choose_rules(names, also=STATISTICS, config=config, assignments=settings)


def make_report(run: Run, rules: Iterable[Rule[Any]]) -> Report:
    """The report on a run as far as it has been written.

    Args:
        signals: the run; it may be growing.
        rules: those to evaluate. Sections of others say that theirs was left out.
    """
    rules = list(rules)
    checked = check_rules(run.reader, rules)
    evaluated = _evaluated(run, rules, checked)
    info = run.reader.info
    in_progress = progress_of(run.reader) == "running"
    end_ns = checked.end_ns if checked.end_ns is not None else evaluated.job.end_ns
    return Report(
        run_id=info.run_id,
        command=" ".join(info.command)[:MAX_COMMAND_LENGTH],
        version=__version__,
        made_at=moment(time.time_ns()),
        until=moment(end_ns),
        in_progress=in_progress,
        about=ABOUT,
        notice=NOTICE,
        verdict=diagnose(run),
        sections=[
            job_section(evaluated, in_progress=in_progress),
            system_section(evaluated),
            framework_section(evaluated),
            rules_section(evaluated),
            *training_sections(evaluated),
        ],
        notes=_notes(run, checked),
    )


def report_facts(run: Run, rules: Iterable[Rule[Any]]) -> ReportFacts:
    """The same for machines: the findings of all rules with all their details."""
    checked = check_rules(run.reader, rules)
    job = job_statistics(run.ranks, *job_borders(run))
    return ReportFacts(
        run_id=run.reader.info.run_id,
        command=run.reader.info.command,
        made_ns=time.time_ns(),
        until_ns=checked.end_ns,
        in_progress=progress_of(run.reader) == "running",
        summary=ReportedJob(**asdict(job), duration_ns=job.duration_ns),
        verdict=diagnose(run),
        rules={finding.rule: finding for finding in checked.findings},
        damage=checked.damage,
    )


def _evaluated(run: Run, rules: list[Rule[Any]], checked: RuleReport) -> Evaluated:
    return Evaluated(
        run=run,
        job=job_statistics(run.ranks, *job_borders(run)),
        rules={rule.name: rule for rule in rules},
        findings={finding.rule: finding for finding in checked.findings},
    )


def _notes(run: Run, checked: RuleReport) -> list[str]:
    """List the reasons for an incomplete report."""
    silent = [
        f"{node} says that the job is in progress, but was last heard of at "
        f"{moment(status.heartbeat_ns)}: `stepscope recover` brings in what it left behind."
        for node, status in sorted(run.reader.statuses().items())
        if is_lost(status)
    ]
    shown, more = first([shortened(note) for note in (*silent, *checked.damage)], MAX_NOTES, "…")
    return [*shown, *([more] if more else [])]
