"""Input of all sections: a run and the findings of its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from stepscope.rules import Rule, read_details, summary
from stepscope.run import JobStatistics, Run
from stepscope.schema import Finding
from stepscope.views.profiling_report.blocks import Block, Check, Listing, Missing, Parameter, Text
from stepscope.views.profiling_report.words import first, left_out, moment

STATISTICS = ("OverallSystemUsage", "OverallFrameworkMetrics")
"""Rules that only sum up; every report rests on them."""
MAX_PARAGRAPHS = 3
MAX_SENTENCES = 24
"""Of one rule; a job of many ranks has findings about each."""

D = TypeVar("D", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A run with the findings of rules."""

    run: Run
    job: JobStatistics
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
            return f"{rule} was not evaluated: it is not among the rules that were chosen"
        return f"{rule} failed: {finding.error}" if finding.error else finding.missing

    def check(self, rule: str, *, sentences: bool = True) -> list[Block]:
        """Describe the check and result of a rule: the first paragraph of its section."""
        finding = self.findings.get(rule)
        if finding is None:
            return self.missing(rule)
        shown_sentences, more = first(
            finding.sentences if sentences else [], MAX_SENTENCES, "sentences"
        )
        return [
            self._check(finding),
            *self.missing(rule),
            *_paragraphs(shown_sentences),
            *left_out(more),
        ]

    def missing(self, rule: str) -> list[Block]:
        """A block that says why a rule has no numbers, where it has none."""
        why = self.why_missing(rule)
        return [] if why is None else [Missing(text=_sentence(why))]

    def _check(self, finding: Finding) -> Check:
        rule = self.rules[finding.rule]
        patience = getattr(rule.parameters, "patience", None)
        pairs = (line.partition(":") for line in finding.rule_parameters.splitlines())
        return Check(
            rule=finding.rule,
            status=finding.status,
            summary=summary(type(rule)),
            parameters=[Parameter(name=name, value=value) for name, _, value in pairs],
            datapoints=finding.datapoints,
            violations=finding.violations,
            triggered=finding.rule_triggered,
            skipped=f"It decides once there are more than {patience:,} datapoints."
            if patience
            else None,
            last_at=moment(finding.last_ns) if finding.last_ns is not None else None,
            recommendation=finding.recommendation or None,
        )


def _paragraphs(sentences: Sequence[str]) -> list[Block]:
    """Paragraphs; a list where there are many."""
    if len(sentences) > MAX_PARAGRAPHS:
        return [Text(text=sentences[0]), Listing(items=list(sentences[1:]))]
    return [Text(text=sentence) for sentence in sentences]


def _sentence(text: str) -> str:
    """With a capital and a full stop, but names of rules as they are."""
    body = text if text[1:2].isupper() else text[:1].upper() + text[1:]
    return body if body.endswith(".") else f"{body}."
