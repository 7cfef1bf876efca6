"""The verdict "is the model learning?", and findings that the watch process stored.

Findings that the watch process stored in a run while its job ran under `stepscope run`. Reading
them evaluates nothing and imports no rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from stepscope import (  # rules are loaded only for a run with tensors or losses
    diagnosis,
    quantities,
    rule_feed,
    rules,
    schema,
    store,
)
from stepscope.run import Run, has_ended, recall

_TOPICS = ("tensors", "losses")
_NOT_ABOUT_LEARNING = frozenset(
    {"GradientClippingSaturation", "SimilarAcrossRuns", "StalledTrainingRule", "TreeDepth"}
)
"""Other questions; XGBoost's trees are deeper than TreeDepth's limit by default, and learn."""
_STEADY_RULES = frozenset(
    {
        *("AllZero", "VanishingGradient", "WeightUpdateRatio", "UnchangedTensor", "Overfit"),
        "NLPSequenceRatio",
    }
)
"""Rules with a condition that is normal for a few records, as in the first step of a warm-up."""
MIN_STEADY_RATIO = 0.1
"""Share of the records of a tensor, or of the checks, from which their condition is a problem."""
_LOSS_RULE = "LossNotDecreasing"
_NAN_RULE = "NonFiniteLoss"
_REQUIRED = {_LOSS_RULE: "losses", "VanishingGradient": "gradients", "UnchangedTensor": "weights"}
"""Data that each of these rules shows to be recorded."""


_TRENDS = {
    "decreases": "The model is learning: the loss decreases, and",
    "has converged": "The loss has decreased, and lately stays where it is;",
}
"""Beginnings of the answer by the trend of a loss, the better first."""
_NO_TREND = "The loss has no trend beyond chance so far;"


def make_verdict(run: Run, *, planned_step_count: int | None = None) -> diagnosis.Verdict:
    """Diagnose a run: its bottleneck and, if tensors or losses were recorded, whether the model is
    learning. The verdict of a run that has ended is stored with it.

    The findings behind the second answer are those of the watch process if it evaluated the whole
    job, else of an evaluation now.

    Args:
        planned_step_count: as for `diagnosis.diagnose`.
    """
    if planned_step_count is not None:
        return _make_verdict(run, planned_step_count)
    return recall(
        run,
        "verdict",
        diagnosis.Verdict,
        lambda: _make_verdict(run),
        uses_findings=_has_rule_data(run.reader),
    )


def _make_verdict(run: Run, planned_step_count: int | None = None) -> diagnosis.Verdict:
    verdict = (
        run.derive(diagnosis.diagnose)
        if planned_step_count is None
        else diagnosis.diagnose(run, planned_step_count=planned_step_count)
    )
    findings = _find_findings(run.reader)
    if not findings:
        return verdict  # and no rule is imported
    return msgspec.structs.replace(verdict, learning=judge_learning(findings))


REFUSABLE = frozenset(["Dataloader", "DataloaderBottleneck", "FrameworkOverhead"])
"""Rules whose advice the verdict examines."""


def refuse_advice(findings: Iterable[schema.Finding], run: Run) -> list[schema.Finding]:
    """Put the reasons for which the verdict of the whole run refuses the advice of findings before
    that advice, which is in their recommendations alone."""
    findings = list(findings)
    if not any(finding.fired and finding.rule in REFUSABLE for finding in findings):
        return findings
    refused = make_verdict(run.whole_run).refused
    return [
        msgspec.structs.replace(
            finding,
            recommendation=f"Refused by the verdict, because {refused[finding.rule]}. The rule "
            f"advises: {finding.recommendation}",
        )
        if finding.fired and finding.rule in refused and _advises_more(finding)
        else finding
        for finding in findings
    ]


def _advises_more(finding: schema.Finding) -> bool:
    """Return True unless a finding about workers advises fewer, or no change."""
    usages = finding.details.get("nodes", {}).values() if finding.rule == "Dataloader" else ()
    is_many = any(
        (usage["loader_process_count"] or 0) > (usage["cores_available"] or math.inf)
        for usage in usages
    )
    return not is_many and finding.recommendation != rules.KEEP_WORKERS


def find_tensor_issues(reader: store.RunReader) -> list[schema.Finding]:
    """Find the rules about tensors and losses that have fired; see `make_verdict`."""
    fired = [finding for finding in _find_findings(reader) if finding.fired]
    names = _list_rules() if fired else frozenset()
    return [finding for finding in fired if finding.rule in names]


def _find_findings(reader: store.RunReader) -> Sequence[schema.Finding]:
    """Return the findings of the rules about tensors and losses, and maybe of others."""
    if not _has_rule_data(reader):
        return []
    record = recorded_rules(reader)
    if (
        record is not None
        and record.progress == progress_of(reader)
        and all(trend for finding in record.findings for trend in _list_trends(finding))
    ):
        return record.findings
    names = _list_rules()
    tensor_rules = [rule for rule in rule_feed.choose_rules() if rule.name in names]
    return rule_feed.check_rules(reader, tensor_rules).findings


def _has_rule_data(reader: store.RunReader) -> bool:
    return any(reader.has(table) for table in ("tensor_statistics", "tensor_values", "scalars"))


def judge_learning(findings: Iterable[schema.Finding]) -> diagnosis.Learning | None:
    """Judge by the findings of all rules; None without data of those about tensors and losses."""
    names = _list_rules() - _NOT_ABOUT_LEARNING
    relevant = [finding for finding in findings if finding.rule in names and not finding.error]
    judged = [finding for finding in relevant if finding.missing is None and finding.datapoints]
    if not any(finding.datapoints for finding in relevant):
        return None
    not_recorded = _explain_missing(relevant, {finding.rule for finding in judged})
    fired = sorted(
        (finding for finding in judged if finding.fired and _is_steady(finding)),
        key=lambda finding: (finding.first_ns or 0, finding.rule),
    )
    if fired:
        first = next((finding for finding in fired if finding.rule == _NAN_RULE), fired[0])
        fired.remove(first)
        return diagnosis.Learning(
            state="issue",
            headline=(
                "The model no longer learns: its loss or its gradients are NaN or infinite."
                if first.rule == _NAN_RULE
                else f"The model may not learn as it should: {first.rule} fired first."
            ),
            rule=first.rule,
            first_ns=first.first_ns,
            evidence=first.sentences,
            advice=first.recommendation,
            also=[finding.rule for finding in fired],
            not_recorded=not_recorded,
        )
    trends = {trend for finding in judged for trend in _list_trends(finding)}
    if trends:
        trend = next((sentence for name, sentence in _TRENDS.items() if name in trends), _NO_TREND)
        quiet = quantities.count_of(len(judged), "rule")
        return diagnosis.Learning(
            state="not_judged" if trend is _NO_TREND else "healthy",
            headline=f"{trend} {quiet} found no problem.",
            not_recorded=not_recorded,
        )
    return diagnosis.Learning(
        state="not_judged",
        headline="Whether the model is learning is unknown: its loss could not be judged.",
        not_recorded=not_recorded,
    )


def _list_trends(finding: schema.Finding) -> list[str]:
    if finding.rule != _LOSS_RULE:
        return []
    losses = finding.details.get("losses", [])
    # Findings that an earlier version stored have none.
    return [loss.get("trend", "") for loss in losses if loss["record_count"]]


def _is_steady(finding: schema.Finding) -> bool:
    """Return False for a condition that held in so few records that it is normal."""
    if finding.rule not in _STEADY_RULES:
        return True
    tensors = finding.details.get("tensors") or [
        {"violation_count": finding.violations, "record_count": finding.datapoints}
    ]
    return any(
        tensor["violation_count"] >= MIN_STEADY_RATIO * tensor["record_count"] for tensor in tensors
    )


def _list_rules() -> frozenset[str]:
    fireable = (r for r in rules.installed_rules() if r.topic in _TOPICS and r.can_fire)
    return frozenset(rule.__name__ for rule in fireable)


def _explain_missing(findings: Iterable[schema.Finding], judged: set[str]) -> list[str]:
    reasons = {finding.rule: finding.missing for finding in findings}
    return [
        f"{data.capitalize()} were not judged: {reasons.get(rule) or 'they were not recorded'}."
        for rule, data in _REQUIRED.items()
        if rule not in judged
    ]


RULES_DOCUMENT = "rules"
"""Name of the document among a run's findings that the watch process writes."""


def progress_of(reader: store.RunReader) -> schema.Progress:
    """Return `running` for a run that may still grow, by its job's status."""
    return "ended" if has_ended(reader.statuses().values()) else "running"


def recorded_rules(reader: store.RunReader) -> schema.RuleRecord | None:
    """Read the record of the watch process; None where there was none."""
    return reader.document(RULES_DOCUMENT, as_type=schema.RuleRecord)
