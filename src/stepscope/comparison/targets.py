"""Targets of a fix of the data pipeline: whether a run with the fix reaches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from stepscope.comparison.before_after import Side
from stepscope.diagnosis import MAX_DATA_RATIO, MIN_GPU_RATIO, TARGET_RULES, TargetName, diagnose
from stepscope.quantities import MISSING
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.rules import percent_beside
from stepscope.run import Run
from stepscope.schema import RuleStatus, field_label

ROUNDING_DIGITS = 9
"""Smaller differences from a target are rounding of the ratio."""
Statuses = Mapping[str, RuleStatus]
"""Status by rule."""


class TargetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A target that the verdict on the first run states, and the second run."""

    name: Annotated[TargetName, field_label("target")]
    text: Annotated[str, field_label("expected after the fix")]
    base_value: Annotated[str, field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[str, field_label("to")] = msgspec.field(name="other")
    is_reached: Annotated[bool | None, field_label("reached")]
    """Null where the second run does not tell."""


def evaluate_targets(
    base_run: Run, other_run: Run, base_side: Side, other_side: Side
) -> list[TargetOutcome]:
    """Evaluate the targets of the verdict on the first run; none where it states none.

    Args:
        base_run, other_run: runs before and after the fix.
        base_side, other_side: their figures.
    """
    verdict, other_verdict = base_run.derive(diagnose), other_run.derive(diagnose)
    if not verdict.targets:
        return []
    texts = {target.name: target.text for target in verdict.targets}
    gpu_ratio, data_ratio = other_side.gpu_mean, other_verdict.get_share("data_pipeline")
    statuses, other_statuses = _check(base_run), _check(other_run)
    values: dict[TargetName, tuple[str, str, bool | None]] = {
        "gpu_utilization": (
            _write_ratio(base_side.gpu_mean, MIN_GPU_RATIO),
            _write_ratio(gpu_ratio, MIN_GPU_RATIO),
            None if gpu_ratio is None else round(gpu_ratio, ROUNDING_DIGITS) >= MIN_GPU_RATIO,
        ),
        "data_loading": (
            _write_ratio(verdict.get_share("data_pipeline"), MAX_DATA_RATIO),
            _write_ratio(data_ratio, MAX_DATA_RATIO),
            None if data_ratio is None else round(data_ratio, ROUNDING_DIGITS) < MAX_DATA_RATIO,
        ),
        "rules": (
            _write_statuses(statuses),
            _write_statuses(other_statuses),
            _are_quiet(statuses, other_statuses),
        ),
    }
    return [
        TargetOutcome(
            name=name,
            text=texts[name],
            base_value=base_value,
            other_value=other_value,
            is_reached=is_reached,
        )
        for name, (base_value, other_value, is_reached) in values.items()
    ]


def _check(run: Run) -> Statuses:
    findings = check_rules(run.reader, choose_rules(TARGET_RULES)).findings
    return {finding.rule: finding.status for finding in findings}


def _are_quiet(before: Statuses, after: Statuses) -> bool | None:
    """Return whether the rules find no issue any more; None where one that had found one before, or
    each of them, cannot tell."""
    if RuleStatus.ISSUES_FOUND in after.values():
        return False
    fired = [rule for rule, status in before.items() if status is RuleStatus.ISSUES_FOUND]
    quiet = {rule for rule, status in after.items() if status is RuleStatus.NO_ISSUES_FOUND}
    return True if quiet and quiet.issuperset(fired) else None


def _write_statuses(statuses: Statuses) -> str:
    fired_count = sum(status is RuleStatus.ISSUES_FOUND for status in statuses.values())
    quiet_count = sum(status is RuleStatus.NO_ISSUES_FOUND for status in statuses.values())
    silent = [rule for rule, status in statuses.items() if status is RuleStatus.NOT_APPLICABLE]
    note = f" ({' and '.join(silent)} not applicable)" if silent else ""
    return f"issues found by {fired_count} of {fired_count + quiet_count}{note}"


def _write_ratio(ratio: float | None, limit: float) -> str:
    return MISSING if ratio is None else percent_beside(ratio, 100 * limit, 0)
