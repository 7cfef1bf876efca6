"""Reports: sections for people, facts for programs, all rules in one table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from stepscope import diagnosis, quantities, rule_feed, schema
from stepscope._version import __version__
from stepscope.rule_feed import DEFAULT_SCAN_NS
from stepscope.rules import Rule, summary
from stepscope.run import (
    JobStatistics,
    Run,
    explain_recovery,
    job_statistics,
    make_with_damage,
    run_name,
)
from stepscope.views.profiling_report import building
from stepscope.views.profiling_report.blocks import Block, Cell, Section, Table, Text
from stepscope.views.profiling_report.boosting import build_boosting_sections
from stepscope.views.profiling_report.job import (
    build_framework_section,
    build_job_section,
    build_job_time_section,
)
from stepscope.views.profiling_report.system import build_system_section
from stepscope.views.profiling_report.training import build_training_sections

MAX_NOTES = 20
MAX_COMMAND_LENGTH = 2000
ABOUT = (
    "This report summarizes the training job, the utilization of its machines and the time of the "
    "framework, and lists the findings of the rules with their evidence."
)
NOTICE = (
    "Findings are results of heuristic rules on the recorded data. Check them against your "
    "knowledge of the job before you act on them."
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Report for people. Ratios are 0 to 1, durations in the verdict nanoseconds."""

    name: str
    """Name of the run on all surfaces."""
    run_id: str
    command: str
    version: str
    """Version of stepscope."""
    made_at: str
    until: str
    """End of the evaluated data."""
    in_progress: bool
    about: str
    notice: str
    verdict: diagnosis.Verdict
    sections: list[Section]
    notes: list[str]
    """Parts of the run that could not be read."""


class ReportedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the job; null for parts that need a training step if none was recorded, or if the
    steps cannot be read completely."""

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
    verdict: diagnosis.Verdict
    rules: dict[str, schema.Finding]
    """By name, each with `RuleTriggered`, `Violations`, `Datapoints`, `RuleParameters` and
    `Details`."""
    damage: list[str]


def choose_report_rules(
    names: Iterable[str] = (), *, config: Path | None = None, settings: Sequence[str] = ()
) -> list[Rule[Any]]:
    """Choose the rules of a report: the named ones or all, and always those that only summarize.

    Raises:
        UsageError: as `choose_rules`.
    """
    return rule_feed.choose_rules(
        names, also=building.STATISTICS, config=config, assignments=settings
    )


def make_report(run: Run, rules: Iterable[Rule[Any]]) -> Report:
    """Build the report on a run, which may be growing.

    Args:
        run: the run.
        rules: the rules to evaluate; sections of other rules say that they were not selected.
    """
    return _make_report(*_evaluate(run, rules))


def make_report_facts(run: Run, rules: Iterable[Rule[Any]]) -> ReportFacts:
    """Build the report for programs: findings of all rules with all details."""
    return _make_facts(*_evaluate(run, rules))


def make_both_reports(run: Run, rules: Iterable[Rule[Any]]) -> tuple[Report, ReportFacts]:
    """Build the report for people and that for programs on the same data."""
    results, checked = _evaluate(run, rules)
    return _make_report(results, checked), _make_facts(results, checked)


def _make_report(results: building.RuleResults, checked: rule_feed.RuleReport) -> Report:
    run, info = results.run, results.run.reader.info
    in_progress = rule_feed.progress_of(run.reader) == "running"
    end_ns = checked.end_ns if checked.end_ns is not None else results.job.end_ns
    return Report(
        name=run_name(run.reader.location, info.run_id),
        run_id=info.run_id,
        command=" ".join(info.command)[:MAX_COMMAND_LENGTH],
        version=__version__,
        made_at=quantities.utc_time(time.time_ns()),
        until=quantities.utc_time(end_ns),
        in_progress=in_progress,
        about=ABOUT,
        notice=NOTICE,
        verdict=_diagnose(results),
        sections=[
            build_job_section(results, in_progress=in_progress),
            build_job_time_section(results),
            build_system_section(results),
            build_framework_section(results),
            build_rules_section(results),
            *build_training_sections(results),
            *build_boosting_sections(run),
        ],
        notes=_notes(run, checked),
    )


def _make_facts(results: building.RuleResults, checked: rule_feed.RuleReport) -> ReportFacts:
    run, job = results.run, results.job
    return ReportFacts(
        run_id=run.reader.info.run_id,
        command=run.reader.info.command,
        made_ns=time.time_ns(),
        until_ns=checked.end_ns,
        in_progress=rule_feed.progress_of(run.reader) == "running",
        summary=ReportedJob(**asdict(job), duration_ns=job.duration_ns),
        verdict=_diagnose(results),
        rules=results.findings,
        damage=checked.damage,
    )


def _diagnose(results: building.RuleResults) -> diagnosis.Verdict:
    learning = rule_feed.judge_learning(results.findings.values())
    return replace(diagnosis.diagnose(results.run), learning=learning)


def get_statistics(run: Run) -> building.RuleResults:
    """Return the findings of the rules that only summarize: those recorded while the job ran, else
    of an evaluation now."""
    recorded = rule_feed.recorded_rules(run.reader)
    if recorded is not None and recorded.progress == rule_feed.progress_of(run.reader):
        findings = [finding for finding in recorded.findings if finding.rule in building.STATISTICS]
        if len(findings) == len(building.STATISTICS):
            return _make_results(run, {}, findings)
    results, _ = _evaluate(run, rule_feed.choose_rules(building.STATISTICS))
    return results


def _evaluate(
    run: Run, rules: Iterable[Rule[Any]]
) -> tuple[building.RuleResults, rule_feed.RuleReport]:
    by_name = {rule.name: rule for rule in rules}
    checked = rule_feed.check_rules(run.reader, by_name.values())
    findings = rule_feed.withhold_damaged(run.reader, by_name.values(), checked.findings)
    return _make_results(run, by_name, findings), checked


def _make_results(
    run: Run, rules: dict[str, Rule[Any]], findings: Iterable[schema.Finding]
) -> building.RuleResults:
    job, job_damage = make_with_damage(run, _measure_job)
    if job_damage:
        job = replace(job, initialization_ns=None, training_ns=None, finalization_ns=None)
    return building.RuleResults(
        run=run,
        job=job,
        job_is_damaged=bool(job_damage),
        rules=rules,
        findings={finding.rule: finding for finding in rule_feed.refuse_advice(findings, run)},
    )


def _measure_job(run: Run) -> JobStatistics:
    return job_statistics(run)


def _notes(run: Run, checked: rule_feed.RuleReport) -> list[str]:
    """List the reasons for an incomplete report."""
    recovery = explain_recovery(run.reader)
    notes, more = building.limit_items(
        [*([recovery] if recovery else []), *checked.damage], MAX_NOTES, "notes"
    )
    return [*map(building.shorten, notes), *([more] if more else [])]


SCANS = (
    f"A rule triggers once in each scan of {DEFAULT_SCAN_NS // 10**9} seconds in which its "
    "condition holds."
)


def build_rules_section(results: building.RuleResults) -> Section:
    """List the rules by how often they triggered, without rules that only summarize."""
    listed = [f for name, f in results.findings.items() if results.rules[name].can_fire]
    listed.sort(key=lambda finding: -finding.rule_triggered)
    if not listed:
        blocks: list[Block] = [Text(text="No rule was evaluated.", tone="missing")]
        return Section(id="rules", title="Rules summary", blocks=blocks)
    top = listed[0]
    sentence = (
        f"{top.rule} triggered most often: {quantities.count_of(top.rule_triggered, 'time')} for "
        f"{quantities.count_of(top.datapoints, 'datapoint')}."
        if top.rule_triggered
        else "No rule triggered."
    )
    rows: list[list[Cell]] = [
        [
            finding.rule,
            finding.status.words,
            finding.rule_triggered,
            finding.datapoints,
            summary(type(results.rules[finding.rule])),
            results.rules[finding.rule].recommendation,
            finding.rule_parameters,
        ]
        for finding in listed
    ]
    table = Table(
        title="Rules",
        columns=[
            *building.make_text_columns("Rule", "Status"),
            *building.make_number_columns(
                "Number of times rule triggered", "Number of datapoints", digits=0
            ),
            *building.make_text_columns("Description", "Recommendation", "Rule parameters"),
        ],
        rows=rows,
    )
    return Section(
        id="rules", title="Rules summary", blocks=[Text(text=f"{sentence} {SCANS}"), table]
    )
