"""Input of all sections: a run and the findings of its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from stepscope.quantities import count
from stepscope.rule_feed import UNREADABLE_INPUTS
from stepscope.rules import Rule, read_details, summary
from stepscope.run import JobStatistics, Run
from stepscope.schema import Finding
from stepscope.views.profiling_report.blocks import Block, Check, Listing, Text
from stepscope.views.profiling_report.building import limit_items, note_omitted
from stepscope.views.times import utc_time

STATISTICS = ("OverallSystemUsage", "OverallFrameworkMetrics")
"""Rules that only summarize; every report needs them."""
MAX_PARAGRAPHS = 3
MAX_SENTENCES = 24
"""Upper limit per rule; a rule may write a sentence per rank."""

D = TypeVar("D", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResults:
    """A run with the findings of rules."""

    run: Run
    job: JobStatistics
    job_is_damaged: bool
    """True if a file that `job` depends on cannot be read."""
    rules: dict[str, Rule[Any]]
    findings: dict[str, Finding]

    def details(self, rule: str, details_type: type[D]) -> D | None:
        """Return the details of a rule; None if it was not evaluated or does not apply."""
        finding = self.findings.get(rule)
        return read_details(finding, details_type) if finding else None

    def why_missing(self, rule: str) -> str | None:
        """Return the reason for missing numbers of a rule; None if it has numbers."""
        finding = self.findings.get(rule)
        if finding is None:
            return f"{rule} was not evaluated, because it was not selected"
        return f"{rule} failed: {finding.error}" if finding.error else finding.missing

    def is_withheld(self, rule: str) -> bool:
        """Return whether the figures of a rule are withheld, because it reads damaged files."""
        return self.why_missing(rule) == UNREADABLE_INPUTS

    def check(self, rule: str, *, sentences: bool = True) -> list[Block]:
        """Describe the check and result of a rule: the first paragraph of its section."""
        finding = self.findings.get(rule)
        if finding is None:
            return self.missing(rule)
        shown_sentences, more = limit_items(
            finding.sentences if sentences else [], MAX_SENTENCES, "sentences"
        )
        return [
            self._show_check(finding),
            *self.missing(rule),
            *_write_paragraphs(shown_sentences),
            *note_omitted(more),
        ]

    def describe(
        self, rule: str, details_type: type[D], draw: Callable[[D], list[Block]]
    ) -> list[Block]:
        """Describe the check of a rule, and draw its details if it has any."""
        details = self.details(rule, details_type)
        return [*self.check(rule), *(draw(details) if details else [])]

    def missing(self, rule: str) -> list[Block]:
        """Return a block with the reason for missing numbers of a rule; empty if it has numbers."""
        reason = self.why_missing(rule)
        return [] if reason is None else [Text(text=_write_sentence(reason), tone="missing")]

    def _show_check(self, finding: Finding) -> Check:
        rule = self.rules[finding.rule]
        minimum = getattr(rule.parameters, "patience", None)
        limit = f" Decides after more than {count(minimum)} datapoints." if minimum else ""
        pairs = (line.partition(":") for line in finding.rule_parameters.splitlines())
        return Check(
            rule=finding.rule,
            status=finding.status,
            summary=summary(type(rule)) + limit,
            parameters={name: value for name, _, value in pairs},
            datapoints=finding.datapoints,
            violations=finding.violations,
            triggered=finding.rule_triggered,
            last_at=utc_time(finding.last_ns) if finding.last_ns is not None else None,
            recommendation=finding.recommendation or None,
        )


def _write_paragraphs(sentences: Sequence[str]) -> list[Block]:
    """Write sentences as paragraphs; many of them as a list."""
    if len(sentences) > MAX_PARAGRAPHS:
        return [Text(text=sentences[0]), Listing(items=list(sentences[1:]))]
    return [Text(text=sentence) for sentence in sentences]


def _write_sentence(text: str) -> str:
    """Add a capital and a full stop; names of rules stay as they are."""
    body = text if text[1:2].isupper() else text[:1].upper() + text[1:]
    return body if body.endswith(".") else f"{body}."
