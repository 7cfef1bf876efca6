"""Findings about tensors and losses, for the screen of the tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from stepscope.rule_feed import find_tensor_issues
from stepscope.rules import NamedTensor, name_tensors
from stepscope.run import Run
from stepscope.schema import Finding, field_label

MAX_TENSORS = 200
"""Limit of the tensors of a finding."""


class TensorOfFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Tensor that a finding names."""

    name: str
    rank: int | None
    """Null if the finding does not say it."""
    mode: str
    first_step: Annotated[int | None, field_label(display="identifier")]
    """First step with a violation: the number of steps before it."""
    violation_count: int | None
    """Recorded steps with a violation; null for a rule that does not count them."""
    record_count: Annotated[int | None, field_label("recorded steps")]


class TensorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Rule about tensors or losses that has fired."""

    rule: str
    sentences: list[str]
    recommendation: str
    first_after_ns: int | None
    """Time of the first data that violated the condition, after the run's origin."""
    tensors: list[TensorOfFinding]
    """Tensors that it names, at most 200."""


def list_tensor_findings(run: Run) -> list[TensorFinding]:
    """List the rules about tensors and losses that have fired, by the time of their data.

    A range of time selects among the findings of the whole run.
    """
    findings = [f for f in find_tensor_issues(run.reader) if _overlaps(f, run)]
    findings.sort(key=lambda finding: (finding.first_ns or 0, finding.rule))
    return [
        TensorFinding(
            rule=finding.rule,
            sentences=finding.sentences,
            recommendation=finding.recommendation,
            first_after_ns=None
            if finding.first_ns is None
            else run.clock.count_until(finding.first_ns),
            tensors=[_show(tensor) for tensor in name_tensors(finding)[:MAX_TENSORS]],
        )
        for finding in findings
    ]


class NamingRules:
    """Rules by the tensors that their findings name; a run may have 10,000 tensors.

    Args:
        findings: findings in the order in which the rules are listed.
    """

    def __init__(self, findings: Iterable[TensorFinding]) -> None:
        self._ranks: dict[tuple[str, str], dict[str, set[int | None]]] = {}
        """Ranks by name and mode of the tensor, and by rule; None for all."""
        for finding in findings:
            for tensor in finding.tensors:
                rules = self._ranks.setdefault((tensor.name, tensor.mode), {})
                rules.setdefault(finding.rule, set()).add(tensor.rank)

    def find(self, name: str, rank: int | None, mode: str) -> list[str]:
        """Return the rules whose findings name a tensor."""
        rules = self._ranks.get((name, mode), {})
        return [rule for rule, ranks in rules.items() if ranks & {None, rank or 0}]


def _overlaps(finding: Finding, run: Run) -> bool:
    if run.is_whole or finding.first_ns is None or finding.last_ns is None:
        return True
    return finding.first_ns < run.period.end_ns and finding.last_ns >= run.period.start_ns


def _show(tensor: NamedTensor) -> TensorOfFinding:
    return TensorOfFinding(
        name=tensor.tensor,
        rank=tensor.rank,
        mode=tensor.mode,
        first_step=tensor.first_step,
        violation_count=tensor.violation_count,
        record_count=tensor.record_count,
    )
